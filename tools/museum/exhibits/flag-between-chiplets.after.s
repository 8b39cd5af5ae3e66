s_load_dwordx4 s[4:7], s[0:1], 0x0
s_load_dwordx2 s[8:9], s[0:1], 0x10
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 0
v_mov_b32 v3, 1
v_mov_b32 v4, 1.0
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s2, 0
s_cbranch_scc0 consumer
global_store_dword v1, v4, s[4:5]         ; the value
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
global_store_dword v2, v3, s[6:7] sc1     ; its flag
s_endpgm
consumer:
global_load_dword v5, v2, s[6:7] sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s10, v5
s_cmp_eq_u32 s10, 1
s_cbranch_scc0 consumer
buffer_inv sc1
global_load_dword v6, v1, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v1, v6, s[8:9]
s_endpgm
