  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v20, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[2:5], v20, s[4:5]
  s_waitcnt vmcnt(0)
  v_mfma_f32_32x32x16_f16 v[8:23], v[2:5], v[2:5], 0
  s_nop 11
  v_add_f32 v6, 1.0, v8
  global_store_dword v1, v6, s[6:7]
  s_endpgm
