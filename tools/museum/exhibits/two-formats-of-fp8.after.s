  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_ubyte v2, v0, s[4:5]
  s_waitcnt vmcnt(0)
  v_cvt_f32_fp8 v3, v2
  v_add_f32 v3, v3, v3
  global_store_dword v1, v3, s[6:7]
  s_endpgm
