  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mul_u32_u24 v2, 0xa0, v0       ; the lane's row: 128 bytes and 32
  s_waitcnt lgkmcnt(0)
  global_load_dword v8, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_mov_b32 v9, v8
  v_mov_b32 v10, v8
  v_mov_b32 v11, v8
  ds_write_b128 v2, v[8:11]
  s_waitcnt lgkmcnt(0)
  ds_read_b128 v[12:15], v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v15, s[6:7]
  s_endpgm
