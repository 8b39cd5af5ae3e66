"""Lint for gfx1250: each rule on a kernel broken on purpose, and silence on the same kernel put right."""

from __future__ import annotations

from functools import cache

import pytest

from simgpu import asm
from simgpu.checks.lint import lint_kernel
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object import CodeObject
from simgpu.hardware.isa import disassemble
from tests.support.clang import linked

EXPERT = "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2), 2"
NORMAL = "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2), 0"
LOAD = "global_load_b32 v1, v2, s[2:3]"
BARRIER = ("s_barrier_signal -1", "s_barrier_wait -1")
# Name: lines, and the finding as "severity kind rule place count"; "" for none. s_endpgm ends each.
KERNELS: dict[str, tuple[tuple[str, ...], str]] = {
    "load": ((LOAD, "v_add_f32 v3, v1, v1"), "error wait read v1 0"),
    "load_waited": ((LOAD, "s_wait_loadcnt 0", "v_add_f32 v3, v1, v1"), ""),
    "load_idle": ((LOAD, "s_wait_idle", "v_add_f32 v3, v1, v1"), ""),
    "load_other_counter": ((LOAD, "s_wait_dscnt 0", "v_add_f32 v3, v1, v1"), "error wait read v1 0"),
    "load_count": (
        (LOAD, "global_load_b32 v4, v2, s[2:3] offset:4", "s_wait_loadcnt 1", "v_add_f32 v3, v1, v1", "v_mov_b32 v5, v4"),
        "error wait read v4 0",
    ),
    "load_overwritten": ((LOAD, "v_mov_b32 v1, 0"), "error wait overwritten v1 0"),
    "load_by_load": ((LOAD, "global_load_b32 v1, v2, s[2:3] offset:4"), "note wait overwritten v1 0"),
    "lds_by_lds": (("ds_load_b32 v1, v2", "ds_load_b32 v1, v2 offset:4"), ""),
    "both": (("flat_load_b32 v1, v[2:3]", "s_wait_loadcnt 0", "v_mov_b32 v4, v1"), "error wait read v1 0"),
    "both_waited": (("flat_load_b32 v1, v[2:3]", "s_wait_loadcnt_dscnt 0", "v_mov_b32 v4, v1"), ""),
    "scalar": (("s_load_b64 s[4:5], s[2:3], 0", "s_mov_b32 s6, s5"), "error wait read s5 0"),
    "scalar_count": (("s_load_b32 s4, s[2:3], 0", "s_load_b32 s5, s[2:3], 4", "s_wait_kmcnt 1", "s_mov_b32 s6, s4"),
                     "error wait read s4 0"),
    "atomic": (("global_atomic_add_u32 v1, v2, v3, s[2:3] th:TH_ATOMIC_RETURN", "v_mov_b32 v4, v1"), "error wait read v1 0"),
    "atomic_quiet": (("global_atomic_add_u32 v2, v3, s[2:3]", "v_mov_b32 v4, v3"), ""),
    "first": (("s_barrier_signal_isfirst -1", "s_cselect_b32 s4, 1, 0", "s_barrier_wait -1"), "error wait read scc 0"),
    "first_waited": (("s_barrier_signal_isfirst -1", "s_barrier_wait -1", "s_cselect_b32 s4, 1, 0"), ""),
    # Expert scheduling mode: the bugs of AITER's pull request 5402, A to D.
    "a": ((EXPERT, "v_add_nc_u32 v4, v5, v6", "global_load_async_to_lds_b128 v4, v[2:3], off", "s_wait_asynccnt 0"),
          "error wait vector result v4 0"),
    "a_waited": ((EXPERT, "v_add_nc_u32 v4, v5, v6", "s_wait_alu depctr_va_vdst(0)",
                  "global_load_async_to_lds_b128 v4, v[2:3], off", "s_wait_asynccnt 0"), ""),
    "a_normal": (("v_add_nc_u32 v4, v5, v6", "global_load_async_to_lds_b128 v4, v[2:3], off", "s_wait_asynccnt 0"), ""),
    "a_back_to_normal": ((EXPERT, NORMAL, "v_add_nc_u32 v4, v5, v6", "ds_store_b32 v4, v5"), ""),
    "a_count": ((EXPERT, "v_add_nc_u32 v4, v5, v6", "v_mov_b32 v7, 0", "s_wait_alu depctr_va_vdst(1)", "ds_store_b32 v4, v5"), ""),
    "a_count_too_high": ((EXPERT, "v_mov_b32 v7, 0", "v_add_nc_u32 v4, v5, v6", "s_wait_alu depctr_va_vdst(1)",
                          "ds_store_b32 v4, v5"), "error wait vector result v4 0"),
    "a_apart": ((EXPERT, "v_add_nc_u32 v4, v5, v6", *("v_nop",) * 7, "ds_store_b32 v4, v5"), "error wait vector result v4 7"),
    "a_further": ((EXPERT, "v_add_nc_u32 v4, v5, v6", *("v_nop",) * 8, "ds_store_b32 v4, v5"), "note wait vector result v4 8"),
    "a_slow": ((EXPERT, "v_exp_f32 v4, v5", *("v_nop",) * 8, "ds_store_b32 v4, v5"), "error wait vector result v4 8"),
    "a_far": ((EXPERT, "v_add_nc_u32 v4, v5, v6", *("v_nop",) * 15, "ds_store_b32 v4, v5"), ""),
    "a_prefetch": ((EXPERT, "v_add_nc_u32 v4, v5, v6", "global_prefetch_b8 v4, s[2:3]"), "note wait vector result v4 0"),
    "vector_after_vector": ((EXPERT, "v_add_nc_u32 v4, v5, v6", "v_mov_b32 v7, v4"), ""),
    "b": ((EXPERT, "ds_store_b128 v4, v[8:11]", "v_cvt_pk_bf16_f32 v8, v12, v13"), "error wait memory operand v8 0"),
    "b_waited": ((EXPERT, "ds_store_b128 v4, v[8:11]", "s_wait_alu depctr_vm_vsrc(0)", "v_cvt_pk_bf16_f32 v8, v12, v13"), ""),
    "b_complete": ((EXPERT, "ds_store_b128 v4, v[8:11]", "s_wait_dscnt 0", "v_cvt_pk_bf16_f32 v8, v12, v13"), ""),
    "b_normal": (("ds_store_b128 v4, v[8:11]", "v_cvt_pk_bf16_f32 v8, v12, v13"), ""),
    "c": ((EXPERT, "global_load_async_to_lds_b128 v4, v[2:3], off", "v_add_nc_u64 v[2:3], v[2:3], v[6:7]", "s_wait_asynccnt 0"),
          "error wait memory operand v2 0"),
    "d": ((EXPERT, "buffer_store_b32 v8, v9, s[4:7], null offen", "v_and_b32 v8, 15, v0"), "error wait memory operand v8 0"),
    "d_translated": ((EXPERT, "buffer_store_b32 v8, v9, s[4:7], null offen", "s_wait_xcnt 0", "v_and_b32 v8, 15, v0"), ""),
    # High bits of VGPR numbers.
    "high": (("s_set_vgpr_msb 0x40", "ds_load_b32 v1, v2", "s_set_vgpr_msb 0x4000", "v_mov_b32 v3, v1"), ""),
    "high_read": (("s_set_vgpr_msb 0x40", "ds_load_b32 v1, v2", "s_set_vgpr_msb 0x4001", "v_mov_b32 v3, v1"),
                  "error wait read v257 0"),
    # Barriers.
    "store": (("ds_store_b32 v1, v2", *BARRIER, "ds_load_b32 v3, v1"), "error wait shared  0"),
    "store_waited": (("ds_store_b32 v1, v2", "s_wait_dscnt 0", *BARRIER, "ds_load_b32 v3, v1"), ""),
    "store_waited_late": (("ds_store_b32 v1, v2", BARRIER[0], "s_wait_dscnt 0", BARRIER[1], "ds_load_b32 v3, v1"),
                          "error wait shared  0"),
    "loads": (("ds_load_b32 v3, v1", "ds_load_b32 v4, v1 offset:8", *BARRIER, "ds_store_b32 v1, v2"), "note wait shared  0"),
    "loads_of_readers": (("ds_load_b32 v3, v1", *BARRIER, "ds_load_b32 v4, v1"), ""),
    "signal_only": ((BARRIER[0], BARRIER[0]), "error barrier second signal  -1"),
    "wait_only": ((BARRIER[1],), "error barrier wait without signal  -1"),
    "cluster": (("s_barrier_wait -3",), ""),
    # Transfers to LDS.
    "transfer": (("global_load_async_to_lds_b128 v4, v[2:3], off", *BARRIER, "ds_load_b32 v5, v6", "s_wait_asynccnt 0"),
                 "error wait transfer  0"),
    "transfer_tensor": (("tensor_load_to_lds s[0:3], s[4:11]", "s_wait_asynccnt 0", *BARRIER, "ds_load_b32 v5, v6",
                         "s_wait_tensorcnt 0"), "error wait transfer  0"),
    "transfer_waited": (("global_load_async_to_lds_b128 v4, v[2:3], off", "s_wait_asynccnt 0", *BARRIER, "ds_load_b32 v5, v6"), ""),
    "transfer_ahead": (("global_load_async_to_lds_b128 v4, v[2:3], off", "global_load_async_to_lds_b128 v7, v[2:3], off",
                        "s_wait_asynccnt 1", *BARRIER, "ds_load_b32 v5, v6", "s_wait_asynccnt 0"), ""),
    "transfer_beside_stores": (("global_load_async_to_lds_b128 v4, v[2:3], off", "ds_store_b32 v6, v7", "ds_load_b32 v5, v6",
                                "s_wait_asynccnt 0"), ""),
    "ended": (("global_load_async_to_lds_b128 v4, v[2:3], off",), "note wait ended  0"),
    "ended_tensor": (("tensor_load_to_lds s[0:3], s[4:11]", "s_wait_tensorcnt 0"), ""),
}  # fmt: skip
LOOP = (
    "v_mov_b32 v1, 0", "s_mov_b32 s6, 4", "loop:", "v_add_f32 v3, v1, v1", LOAD, "s_sub_co_i32 s6, s6, 1", "s_cmp_lg_u32 s6, 0",
    "s_cbranch_scc1 loop",
)  # fmt: skip


def source(kernels: dict[str, tuple[str, ...]]) -> str:
    """Returns assembly with a kernel for each name."""
    parts = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx1250"', ".text"]
    metadata = []
    for name, lines in kernels.items():
        body = "\n".join(line.replace("loop", f"{name}_loop") for line in lines)
        parts += [f".globl {name}\n.p2align 8\n.type {name},@function\n{name}:", body, f"s_endpgm\n.{name}_end:",
                  f".size {name}, .{name}_end-{name}"]
        metadata.append(
            f"  - .name: {name}\n    .symbol: {name}.kd\n    .kernarg_segment_size: 0\n    .kernarg_segment_align: 8\n"
            "    .group_segment_fixed_size: 4096\n    .private_segment_fixed_size: 0\n    .wavefront_size: 32\n"
            "    .sgpr_count: 16\n    .vgpr_count: 512\n    .max_flat_workgroup_size: 128\n"
        )
    parts.append(".rodata")
    parts += [
        f".p2align 6\n.amdhsa_kernel {name}\n.amdhsa_next_free_vgpr 512\n.amdhsa_next_free_sgpr 16\n"
        ".amdhsa_group_segment_fixed_size 4096\n.end_amdhsa_kernel"
        for name in kernels
    ]
    parts.append(".amdgpu_metadata\namdhsa.version:\n  - 1\n  - 2\namdhsa.target: amdgcn-amd-amdhsa--gfx1250\namdhsa.kernels:")
    return "\n".join((*parts, "".join(metadata).rstrip(), ".end_amdgpu_metadata")) + "\n"


@cache
def code() -> CodeObject:
    kernels = {name: lines for name, (lines, _) in KERNELS.items()} | {"looped": LOOP}
    return CodeObject.parse(asm.assemble(source(kernels), "gfx1250"))


def words(finding: Finding) -> str:
    return f"{finding.severity} {finding.kind.removeprefix('missing-')} {finding.rule} {finding.place} {finding.needed}"


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    found = lint_kernel(code(), code().kernels[name])
    expected = KERNELS[name][1]
    assert [words(finding) for finding in found] == ([expected] if expected else [])
    assert all(finding.certain for finding in found)


def test_a_load_is_read_in_the_next_round() -> None:
    (finding,) = lint_kernel(code(), code().kernels["looped"])
    assert words(finding) == "error wait read v1 0"
    assert (finding.text, finding.other_text) == ("v_add_f32_e32 v3, v1, v1", "global_load_b32 v1, v2, s[2:3]")


def test_message_names_wait_and_distance() -> None:
    (finding,) = lint_kernel(code(), code().kernels["a_count_too_high"])
    assert finding.message == (
        "v4 is read while `v_add_nc_u32_e32 v4, v5, v6` may not have written it, 1 instruction between: "
        "s_wait_alu depctr_va_vdst(0) is needed (scheduling mode 2)"
    )


COMPILED = """
typedef float v4 __attribute__((ext_vector_type(4)));
extern __attribute__((address_space(3))) v4 tile[];
#define GLOBAL __attribute__((address_space(1)))
#define FENCE(order) __builtin_amdgcn_fence(order, "workgroup")
#define MEET FENCE(__ATOMIC_RELEASE); __builtin_amdgcn_s_barrier(); FENCE(__ATOMIC_ACQUIRE)
__attribute__((amdgpu_kernel)) void tiled(GLOBAL const v4 *a, GLOBAL v4 *c, int n) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  v4 sum = 0;
  for (int i = 0; i < n; i++) {
    tile[lane] = a[i * 64 + lane] + (float)i;
    MEET;
    for (int j = 0; j < 4; j++) sum += tile[lane + j & 63] * tile[j];
    MEET;
  }
  if (sum.x > 2.0f) c[lane] = sum;
}
__attribute__((amdgpu_kernel)) void counted(GLOBAL int *x, GLOBAL const int *y, int n) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  int v = y[lane];
  if (v & 1) x[lane] = y[v & 15] * 3;
  else for (int j = 0; j < (v & 7); j++) v += y[j];
  x[lane + 64] = __atomic_fetch_add(&x[v & 3], v / (n + 1), __ATOMIC_RELAXED);
}
"""


@pytest.mark.parametrize("options", [("-O2",), ("-O0",), ("-O2", "-mllvm", "-amdgpu-expert-scheduling-mode")], ids=" ".join)
def test_compiled_kernels_have_no_finding(options: tuple[str, ...]) -> None:
    """LLVM inserts the waits that lint asks for, in both scheduling modes."""
    code = CodeObject.parse(linked(COMPILED, *options, target="gfx1250"))
    assert len(code.kernels) == 2
    lines = [line for kernel in code.kernels.values() for line in disassemble(code.read(kernel.entry, kernel.code_size), "gfx1250")]
    assert any("depctr_va_vdst" in shown for _, shown in lines) == (len(options) > 1)
    assert [str(finding) for kernel in code.kernels.values() for finding in lint_kernel(code, kernel)] == []
