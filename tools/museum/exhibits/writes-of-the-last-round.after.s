  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_movk_i32 s8, 0x80               ; the distance of a pair's keys
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:512
  s_waitcnt vmcnt(0)
  ds_write2st64_b32 v1, v2, v3 offset1:2
  s_load_dword s9, s[0:1], 0x0      ; blockDim.x in HIP
  s_waitcnt lgkmcnt(0)              ; for it; no write to LDS is in flight, either
  s_branch round
next:
  s_or_b64 exec, exec, s[10:11]
  s_lshr_b32 s8, s8, 1
  s_cbranch_scc0 done
round:
  s_add_i32 s9, s8, -1
  v_and_b32 v4, s9, v0
  v_lshlrev_b32 v5, 1, v0
  v_sub_u32 v4, v5, v4
  v_lshlrev_b32 v4, 2, v4
  v_lshl_add_u32 v5, s8, 2, v4
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v6, v4
  ds_read_b32 v7, v5
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_i32 vcc, v6, v7
  s_and_saveexec_b64 s[10:11], vcc
  ds_write_b32 v4, v7
  ds_write_b32 v5, v6
  s_branch next
done:
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read2st64_b32 v[2:3], v1 offset1:2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[6:7]
  global_store_dword v1, v3, s[6:7] offset:512
  s_endpgm
