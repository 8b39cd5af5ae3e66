  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  v_mov_b32 v5, 0
  s_mov_b32 s8, 3
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(0)
step:
  ds_write_b32 v1, v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  v_add_f32 v5, v4, v5
  v_add_f32 v3, v3, v3
  s_barrier
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 step
  global_store_dword v1, v5, s[6:7]
  s_endpgm
