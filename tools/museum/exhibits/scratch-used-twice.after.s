  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshrrev_b32 v2, 6, v0           ; the wave
  v_lshlrev_b32 v2, 2, v2
  v_mov_b32 v3, 0
  v_mov_b32 v4, 1.0
  ds_write_b32 v2, v4               ; the wave's sum
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b64 v[6:7], v3
  s_waitcnt lgkmcnt(0)
  v_add_f32 v8, v6, v7
  s_barrier
  v_mov_b32 v5, 2.0
  ds_write_b32 v2, v5               ; the wave's squares
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b64 v[6:7], v3
  s_waitcnt lgkmcnt(0)
  v_add_f32 v9, v6, v7
  v_sub_f32 v8, v9, v8
  global_store_dword v1, v8, s[6:7]
  s_endpgm
