  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  s_mov_b32 s8, 32
half:
  v_xor_b32 v3, s8, v0
  v_lshlrev_b32 v3, 2, v3
  ds_bpermute_b32 v4, v3, v2
  s_waitcnt lgkmcnt(0)
  v_max_i32 v2, v2, v4
  s_lshr_b32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 half
  s_mov_b64 exec, 1
  v_mov_b32 v5, 0
  global_atomic_smax v5, v2, s[6:7]
  s_endpgm
