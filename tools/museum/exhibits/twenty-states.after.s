  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v20, 3, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[2:3], v20, s[4:5]
  s_waitcnt vmcnt(0)
  v_mfma_f32_32x32x4_2b_f16 v[32:63], v[2:3], v[2:3], 0
  v_mov_b32 v4, 0
  v_mov_b32 v5, 0
  v_mov_b32 v6, 0
  v_mov_b32 v7, 0
  v_mov_b32 v8, 0
  v_mov_b32 v9, 0
  v_mov_b32 v10, 0
  v_mov_b32 v11, 0
  v_mov_b32 v12, 0
  v_mov_b32 v13, 0
  v_mov_b32 v14, 0
  v_mov_b32 v15, 0
  v_mov_b32 v16, 0
  v_mov_b32 v17, 0
  v_mov_b32 v18, 0
  v_mov_b32 v19, 0
  v_mov_b32 v20, 0
  v_mov_b32 v21, 0
  v_mov_b32 v22, 0
  s_nop 0
  v_add_f32 v23, 1.0, v32
  global_store_dword v1, v23, s[6:7]
  s_endpgm
