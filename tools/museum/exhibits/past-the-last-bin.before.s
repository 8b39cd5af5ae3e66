  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_lshlrev_b32 v2, 2, v2
  v_mov_b32 v3, 1
  global_atomic_add v2, v3, s[6:7]
  s_endpgm
