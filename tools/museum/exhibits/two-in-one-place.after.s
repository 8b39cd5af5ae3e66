  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v3, 0
  v_cmp_eq_u32 vcc, 0, v0
  s_waitcnt lgkmcnt(0)
  s_load_dwordx2 s[10:11], s[4:5], 0x0
  s_waitcnt lgkmcnt(0)
  s_and_saveexec_b64 s[8:9], vcc
  v_mov_b32 v4, s10
  ds_write_b32 v3, v4               ; the tile's number
  s_mov_b64 exec, s[8:9]
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v5, v3
  s_and_saveexec_b64 s[8:9], vcc
  v_mov_b32 v4, s11
  ds_write_b32 v3, v4 offset:4      ; the place found so far
  s_mov_b64 exec, s[8:9]
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v6, v3 offset:4
  s_waitcnt lgkmcnt(0)
  v_add_u32 v5, v5, v6
  global_store_dword v1, v5, s[6:7]
  s_endpgm
