  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b32 v1, v2
  v_mov_b32 v3, 0
  s_mov_b32 s8, 3
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v4, v1                ; the first step's operand
loop:
  s_waitcnt lgkmcnt(0)
  v_add_f32 v3, v3, v4
  ds_read_b32 v4, v1                ; the next step's; after the last step nobody wants it
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 loop
  s_waitcnt lgkmcnt(0)
  v_mul_f32 v4, 2.0, v3             ; the result, in a register that the read may still write
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v4, s[6:7]
  s_endpgm
