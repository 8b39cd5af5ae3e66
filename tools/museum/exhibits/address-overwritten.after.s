  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v20, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[4:7], v20, s[4:5]
  v_lshlrev_b32 v8, 3, v0
  v_add_u32 v9, 0x200, v8
  s_waitcnt vmcnt(0)
  ds_write_b128 v20, v[4:7]
  s_waitcnt lgkmcnt(0)
  ds_read_b64 v[14:15], v8           ; "=&v"
  ds_read_b64 v[10:11], v9
  s_waitcnt lgkmcnt(0)
  v_add_u32 v12, v14, v10
  global_store_dword v1, v12, s[6:7]
  s_endpgm
