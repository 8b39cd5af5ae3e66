  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshrrev_b32 v2, 4, v0           ; the sequence, of 16 tokens
  v_and_b32 v4, 15, v0              ; the token
  v_add_u32 v2, v2, v4
  v_lshlrev_b32 v2, 2, v2
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v2, s[4:5]  ; the gradient of its loss
  s_waitcnt vmcnt(0)
  global_store_dword v1, v3, s[6:7]
  s_endpgm
