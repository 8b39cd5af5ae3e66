  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v1
  v_xor_b32 v4, 4, v1
  ds_read_b32 v5, v4
  s_waitcnt lgkmcnt(1)
  v_cvt_pk_bf16_f32 v6, v3, v5
  global_store_dword v1, v6, s[6:7]
  s_endpgm
