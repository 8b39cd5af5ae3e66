  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_u32 vcc, 3, v0           ; rows of the batch
  s_and_saveexec_b64 s[10:11], vcc
  global_load_ubyte v2, v0, s[4:5]  ; scales of these rows
  global_load_dword v3, v1, s[6:7]
  s_waitcnt vmcnt(0)
  v_lshlrev_b32 v2, 23, v2          ; E8M0: 2^(scale - 127)
  v_mul_f32 v3, v2, v3
  global_store_dword v1, v3, s[8:9]
  s_endpgm
