  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v3, 0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  v_cmp_eq_u32 vcc, 0, v0
  s_waitcnt vmcnt(0)
  ds_write_b32 v1, v2               ; a column of the matrix
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v3                ; its diagonal element
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_sqrt_f32 v4, v4
  s_and_saveexec_b64 s[8:9], vcc
  ds_write_b32 v3, v4               ; the root takes its place
  s_mov_b64 exec, s[8:9]
  v_rcp_f32 v5, v4
  v_mul_f32 v2, v2, v5
  global_store_dword v1, v2, s[6:7]
  s_endpgm
