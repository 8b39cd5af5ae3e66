  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s3, s2, 6
  v_add_u32 v1, s3, v0
  v_max_u32 v2, 1, v1
  v_subrev_u32 v2, 1, v2
  v_lshlrev_b32 v1, 2, v1
  v_lshlrev_b32 v2, 2, v2
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v2, s[4:5]  ; the neighbour before
  s_waitcnt vmcnt(0)
  global_store_dword v1, v3, s[4:5]
  s_endpgm
