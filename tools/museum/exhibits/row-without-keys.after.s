  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]  ; keys of this row
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s8, v2
  v_mov_b32 v3, 0
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc1 store              ; nothing to sum
loop:
  v_add_f32 v3, 1.0, v3
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 loop
store:
  global_store_dword v1, v3, s[6:7]
  s_endpgm
