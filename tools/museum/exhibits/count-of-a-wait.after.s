  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v20, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[4:7], v20, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b128 v20, v[4:7]
  s_waitcnt lgkmcnt(0)
  ds_read_b64 v[8:9], v20           ; the first operand
  ds_read_b64 v[10:11], v20 offset:8
  ds_read_b64 v[12:13], v20         ; prefetched for later
  ds_read_b64 v[14:15], v20 offset:8
  s_waitcnt lgkmcnt(2)
  v_mfma_f32_16x16x16_f16 v[24:27], v[8:9], v[8:9], 0
  v_mfma_f32_16x16x16_f16 v[24:27], v[10:11], v[10:11], v[24:27]
  s_waitcnt lgkmcnt(0)
  s_nop 10
  global_store_dword v1, v24, s[6:7]
  s_endpgm
