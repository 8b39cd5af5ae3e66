  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v2, 7, v0               ; column
  v_lshrrev_b32 v3, 3, v0           ; row
  v_lshl_add_u32 v2, v2, 3, v3      ; strides: 1 for rows, 8 for columns
  v_lshlrev_b32 v2, 2, v2
  s_waitcnt lgkmcnt(0)
  global_load_dword v4, v2, s[4:5]
  s_waitcnt vmcnt(0)
  global_store_dword v1, v4, s[6:7]
  s_endpgm
