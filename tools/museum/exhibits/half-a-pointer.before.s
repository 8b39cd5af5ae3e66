  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v4, 3, v0           ; where the pointer is kept: 8 bytes
  v_add_u32 v2, 0x200, v1           ; the address of `result`
  s_waitcnt lgkmcnt(0)
  global_load_dword v5, v1, s[4:5]
  ds_write_b32 v4, v2               ; 4 of them
  s_waitcnt vmcnt(0) lgkmcnt(0)
  ds_read_b64 v[6:7], v4
  s_waitcnt lgkmcnt(0)
  flat_store_dword v[6:7], v5
  s_waitcnt vmcnt(0) lgkmcnt(0)
  ds_read_b32 v8, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v8, s[6:7]
  s_endpgm
