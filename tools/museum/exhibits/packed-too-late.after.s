  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 3, v0
  v_lshlrev_b32 v20, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[2:3], v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_mov_b32 v6, v2
  v_mov_b32 v7, v3
  v_and_b32 v4, 0xffff, v3       ; low half, as ds_read_u16 leaves it
  v_and_b32 v5, 0xffff0000, v3   ; high half, as ds_read_u16_d16_hi leaves it
  v_or_b32 v3, v4, v5
  v_mfma_f32_16x16x16f16 v[8:11], v[6:7], v[6:7], 0
  s_nop 0
  v_mfma_f32_16x16x16f16 v[12:15], v[2:3], v[2:3], 0
  s_nop 15
  s_nop 2
  global_store_dwordx4 v20, v[12:15], s[6:7]
  s_endpgm
