  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_u32 vcc, 48, v0          ; lanes of the row
  s_and_saveexec_b64 s[10:11], vcc
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[6:7]  ; the bias, for these lanes
  s_waitcnt vmcnt(0)
  v_sub_f32 v2, v2, v3
  global_store_dword v1, v2, s[8:9]
  s_endpgm
