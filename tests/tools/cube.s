.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl cube
.p2align 8
.type cube,@function
cube:
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_mul_f32 v3, v2, v2
  v_mul_f32 v3, v3, v2
  global_store_dword v1, v3, s[4:5]
  s_endpgm
.Lcube_end:
.size cube, .Lcube_end-cube

.section .rodata,"a"
.p2align 6
.amdhsa_kernel cube
  .amdhsa_group_segment_fixed_size 0
  .amdhsa_private_segment_fixed_size 0
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_y 0
  .amdhsa_system_sgpr_workgroup_id_z 0
  .amdhsa_system_vgpr_workitem_id 0
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 8
  .amdhsa_reserve_vcc 1
  .amdhsa_float_denorm_mode_32 3
  .amdhsa_float_denorm_mode_16_64 3
  .amdhsa_accum_offset 4
.end_amdhsa_kernel

.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .name: x
        .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
    .agpr_count: 0
    .group_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .kernarg_segment_size: 8
    .max_flat_workgroup_size: 64
    .name: cube
    .private_segment_fixed_size: 0
    .reqd_workgroup_size: [64, 1, 1]
    .sgpr_count: 14
    .sgpr_spill_count: 0
    .symbol: cube.kd
    .uses_dynamic_stack: false
    .vgpr_count: 4
    .vgpr_spill_count: 0
    .wavefront_size: 64
amdhsa.target: amdgcn-amd-amdhsa--gfx942
amdhsa.version: [1, 2]
...
.end_amdgpu_metadata
