"""Verdicts on pairs of kernels: right compilations are equal, altered ones are not, other effects are unknown."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import z3

from simgpu import Device
from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.code_object import CodeObject
from simgpu.proof.equal import NANS, WHOLE_WAVES, Verdict, compare
from simgpu.proof.solver import Limits
from simgpu.tools.cases.sources import compile
from simgpu.tools.robustness.ir_faults import FAULTS, CompilerFault
from simgpu.tools.robustness.ir_runs import code_object
from tests.support.exhaustive import one_in

DESCRIPTOR = """
.text
.globl f
.p2align 8
.type f,@function
f:
{body}
  s_endpgm
.size f, .-f
.rodata
.p2align 6
.amdhsa_kernel f
  .amdhsa_next_free_vgpr 32
  .amdhsa_next_free_sgpr 32
  .amdhsa_accum_offset 32
  .amdhsa_kernarg_size 20
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_group_segment_fixed_size 1024
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: f
    .symbol: f.kd
    .kernarg_segment_size: 20
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 32
    .max_flat_workgroup_size: 256
    .args:
      - {{.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}}
      - {{.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}}
      - {{.offset: 16, .size: 4, .value_kind: by_value, .value_type: u32}}
...
.end_amdgpu_metadata
"""
LOAD = """
  s_load_dwordx4 s[4:7], s[0:1], 0
  s_load_dword s8, s[0:1], 16
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
"""
ADDED = "1: v_add_u32 v3, v3, v2\n s_sub_u32 s9, s9, 1\n s_cmp_lg_u32 s9, 0\n s_cbranch_scc1 1b"
STORE = "\n  global_store_dword v1, v3, s[6:7]\n"


def kernel(middle: str, target: str = "gfx942") -> CodeObject:
    """Returns a kernel that loads v2 of a lane's dword, and stores v3."""
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"\n' + DESCRIPTOR.format(body=LOAD + middle + STORE)
    return CodeObject.parse(assemble(text, target))


def judged(a: str, b: str) -> Verdict:
    return compare(kernel(a), kernel(b), "f")


def hip(text: str, target: str = "gfx942") -> CodeObject:
    return CodeObject.parse(compile(text, target))


@pytest.mark.slow
def test_a_right_rewriting_is_equal_and_a_wrong_one_differs() -> None:
    source = "__global__ void f(float *x, const int *y, int n) {{\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  {}\n}}\n"
    right = hip(source.format("if (i < n) x[i] = x[i] * 2 + y[i] * 8;"))
    other = hip(source.format("if (i >= n) return; float t = y[i] << 3; x[i] = 2 * x[i] + t;"))
    wrong = hip(source.format("if (i >= n) return; float t = y[i] << 2; x[i] = 2 * x[i] + t;"))
    off = hip(source.format("if (i <= n) x[i] = x[i] * 2 + y[i] * 8;"))
    (name,) = right.kernels
    verdict = compare(right, other, name)
    assert (verdict.kind, verdict.counterexample) == ("equal", None) and NANS in verdict.assumed
    for altered in (wrong, off):
        verdict = compare(right, altered, name)
        assert verdict.kind == "different", verdict.reason
        shown = verdict.counterexample
        assert shown is not None and shown.argument == 0 and shown.results[0] != shown.results[1]


SLOW = ("division-of-24-bits", "carry-of-a-product")  # the solver takes 20 s and more for reciprocals and 64-bit products


@pytest.mark.parametrize("fault", one_in(2, [fault for fault in FAULTS if fault.name not in SLOW]), ids=lambda fault: fault.name)
def test_faults_of_llvm_differ(fault: CompilerFault) -> None:
    example = fault.example()
    right, wrong = (CodeObject.parse(code_object([example], setting)) for setting in (fault.right, fault.wrong))
    verdict = compare(right, wrong, "p0")
    assert verdict.kind == "different", verdict.reason
    optimized = dataclasses.replace(fault.right, level="-O2", passes=fault.wrong.passes)
    again = compare(right, CodeObject.parse(code_object([example], optimized)), "p0")
    alike = (fault.wrong.target, fault.wrong.global_isel) == (optimized.target, optimized.global_isel)
    faulty = alike and fault.wrong.level != "-O0"  # the fault of an optimization: -O2 has it, too
    assert faulty == (again.kind == "different"), again.reason


def test_a_counterexample_runs() -> None:
    a, b = kernel("v_add_u32 v3, v2, s8"), kernel("v_add_u32 v3, v2, s8\n v_max_u32 v3, v3, v2")
    shown = compare(a, b, "f").counterexample
    assert shown is not None
    after = []
    for code in (a, b):
        gpu = Device("gfx942")
        buffers = [gpu.upload(value) if isinstance(value, np.ndarray) else value for value in shown.arguments]
        gpu.load(code.data)["f"].launch(grid=shown.grid, block=shown.block, args=buffers)
        after.append(buffers[shown.argument].download(np.uint8)[shown.byte :][: len(shown.results[0])].tobytes())
    assert tuple(after) == shown.results


PAIRS = {
    "carry in two halves": (
        "v_add_co_u32 v4, vcc, v2, s8\n v_addc_co_u32 v5, vcc, 0, v0, vcc\n v_xor_b32 v3, v4, v5",
        "v_mov_b32 v6, v2\n v_mov_b32 v7, v0\n v_mov_b32 v8, s8\n v_mov_b32 v9, 0\n v_lshl_add_u64 v[4:5], v[6:7], 0, v[8:9]\n"
        "v_xor_b32 v3, v4, v5",
    ),
    "divergent branch and select": (
        "v_mov_b32 v3, v2\n v_cmp_lt_u32 vcc, s8, v2\n s_and_saveexec_b64 s[10:11], vcc\n s_cbranch_execz 1f\n"
        "v_add_u32 v3, v2, s8\n 1: s_mov_b64 exec, s[10:11]",
        "v_add_u32 v3, v2, s8\n v_cmp_lt_u32 vcc, s8, v2\n v_cndmask_b32 v3, v2, v3, vcc",
    ),
    "uniform branch": (
        "v_mov_b32 v3, v2\n s_cmp_lt_u32 s8, 7\n s_cbranch_scc1 1f\n v_lshlrev_b32 v3, 1, v2\n 1:",
        "s_cmp_lt_u32 s8, 7\n s_cselect_b32 s9, 0, 1\n v_lshlrev_b32 v3, s9, v2",
    ),
    "loop": (
        "v_mov_b32 v3, 0\n s_mov_b32 s9, 5\n" + ADDED,
        "v_mul_u32_u24 v4, 5, v2\n v_mul_lo_u32 v3, v2, 5",
    ),
    "loop whose end depends on a lane": (
        "v_and_b32 v4, 3, v2\n v_mov_b32 v3, 0\n s_mov_b64 s[10:11], exec\n 1: v_add_u32 v3, v3, 3\n v_cmp_ne_u32 vcc, 0, v4\n"
        "v_subrev_u32 v4, 1, v4\n s_and_b64 exec, exec, vcc\n s_cbranch_execnz 1b\n s_mov_b64 exec, s[10:11]",
        "v_and_b32 v4, 3, v2\n v_add_u32 v4, v4, 1\n v_mul_u32_u24 v3, v4, 3",
    ),
    "selects of bytes": (
        "v_bfe_u32 v4, v2, 8, 8\n v_add_u32 v3, v4, v0",
        "v_mov_b32 v5, v2\n v_add_u32_sdwa v3, v5, v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
    ),
    "neighbours by DPP and by bpermute": (
        "v_mov_b32_dpp v3, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        "v_xor_b32 v4, 1, v0\n v_lshlrev_b32 v4, 2, v4\n v_mbcnt_lo_u32_b32 v5, -1, 0\n v_mbcnt_hi_u32_b32 v5, -1, v5\n"
        "v_xor_b32 v5, 1, v5\n v_lshlrev_b32 v5, 2, v5\n ds_bpermute_b32 v3, v5, v2\n s_waitcnt lgkmcnt(0)",
    ),
    "spilled to lanes": (
        "v_writelane_b32 v9, s8, 3\n v_readlane_b32 s9, v9, 3\n v_add_u32 v3, v2, s9",
        "v_add_u32 v3, v2, s8",
    ),
    "LDS of its own": (
        "ds_write_b32 v1, v2\n s_waitcnt lgkmcnt(0)\n ds_read_b32 v3, v1\n s_waitcnt lgkmcnt(0)",
        "ds_write_b32 v1, v2\n v_mov_b32 v3, v2",
    ),
    "matrix instruction": (
        "v_mov_b32 v4, v2\n v_mfma_f32_4x4x1_16b_f32 v[8:11], v2, v4, 0\n s_nop 7\n v_mov_b32 v3, v8",
        "v_mfma_f32_4x4x1_16b_f32 v[8:11], v2, v2, 0\n s_nop 7\n v_mov_b32 v3, v8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_equal_ways_are_equal(pair: str) -> None:
    verdict = judged(*PAIRS[pair])
    assert verdict.kind == "equal", verdict.reason
    assert (WHOLE_WAVES in verdict.assumed) == (pair in ("neighbours by DPP and by bpermute", "matrix instruction"))


MUTANTS = {
    "carry in two halves": ("v_addc_co_u32 v5, vcc, 0, v0, vcc", "v_add_u32 v5, 0, v0"),
    "divergent branch and select": ("s_mov_b64 exec, s[10:11]", "s_nop 0"),
    "uniform branch": ("s_cmp_lt_u32 s8, 7", "s_cmp_le_u32 s8, 7"),
    "loop": ("s_mov_b32 s9, 5", "s_mov_b32 s9, 4"),
    "loop whose end depends on a lane": ("v_and_b32 v4, 3, v2", "v_and_b32 v4, 2, v2"),
    "selects of bytes": ("v_bfe_u32 v4, v2, 8, 8", "v_bfe_i32 v4, v2, 8, 8"),
    "neighbours by DPP and by bpermute": ("quad_perm:[1,0,3,2]", "quad_perm:[1,0,2,3]"),
    "spilled to lanes": ("v_readlane_b32 s9, v9, 3", "s_mov_b32 s9, 0"),
    "LDS of its own": ("ds_read_b32 v3, v1", "ds_read_u16 v3, v1"),
}


@pytest.mark.parametrize("pair", MUTANTS, ids=str)
def test_one_altered_instruction_differs(pair: str) -> None:
    a, b = PAIRS[pair]
    old, new = MUTANTS[pair]
    assert old in a
    verdict = judged(a.replace(old, new), b)
    assert verdict.kind == "different", verdict.reason


UNKNOWN = {
    "another lane's LDS": ("ds_write_b32 v1, v2\n v_xor_b32 v4, 4, v1\n ds_read_b32 v3, v4", "LDS is read that another lane"),
    "a clock": ("s_memtime s[10:11]\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v3, s10", "a clock (s_memtime"),
    "rounds of a loop": (
        "v_mov_b32 v3, 0\n s_mov_b32 s9, s8\n" + ADDED,
        "a loop of more than 8 rounds",
    ),
    "VGPR indexing": ("s_set_gpr_idx_on s8, 1\n v_mov_b32 v3, v2\n s_set_gpr_idx_off", "s_set_gpr_idx_on"),
}


@pytest.mark.parametrize("what", UNKNOWN, ids=str)
def test_what_is_not_modelled_is_unknown(what: str) -> None:
    """A kernel is compared with itself, so that nothing differs."""
    code, reason = UNKNOWN[what]
    made = kernel(code)
    verdict = compare(made, made, "f", limits=Limits(rounds=8))
    assert verdict.kind == "unknown" and reason in verdict.reason


def test_kernels_of_other_arguments_are_unknown() -> None:
    one = hip("__global__ void f(float *x) {\n x[0] = 1;\n}\n")
    two = hip("__global__ void f(float *x, int n) {\n x[0] = 1;\n}\n")
    verdict = compare(one, two, *one.kernels, *two.kernels)
    assert (verdict.kind, verdict.reason) == ("unknown", "the kernels take different arguments")


PRODUCTS = (
    "v_mul_lo_u32 v3, v2, v2\n v_mul_lo_u32 v3, v3, s8",
    "v_mul_lo_u32 v3, v2, s8\n v_mul_lo_u32 v3, v3, v2",
)


@pytest.mark.parametrize(("limits", "reason"), [(Limits(effort=1e-6), "effort"), (Limits(seconds=1e-4), "time")], ids=str)
def test_effort_and_time_run_out(limits: Limits, reason: str) -> None:
    a, b = map(kernel, PRODUCTS)
    verdict = compare(a, b, "f", limits=limits)
    assert verdict.kind == "unknown" and verdict.reason.startswith(reason), verdict


def test_no_module_keeps_terms() -> None:
    """Terms of one proof mean something else in another one."""
    assert importlib.import_module("simgpu.proof.safety.judge") and importlib.import_module("simgpu.proof.coverage.judge")
    for name, module in list(sys.modules.items()):
        if name.startswith(("simgpu.proof", "simgpu.hardware.isa")):
            kept = [key for key, value in vars(module).items() if _has_terms(value)]
            assert not kept, (name, kept)


def _has_terms(value: Any, depth: int = 3) -> bool:
    if isinstance(value, dict) and depth:
        return any(_has_terms(each, depth - 1) for each in value.values())
    if isinstance(value, (list, tuple, set, frozenset)) and depth:
        return any(_has_terms(each, depth - 1) for each in value)
    return isinstance(value, z3.AstRef)


REPEATED = """
from simgpu.proof import equal
from simgpu.tools.robustness.ir_proofs import compile_program, small_program
codes = [compile_program(small_program(1, 3), "gfx942", level) for level in ("-O0", "-O3")]
budgets = []
budget = equal.Budget
equal.Budget = lambda limits: budgets.append(budget(limits)) or budgets[-1]
for _ in range(2):
    verdict = equal.compare(*codes, "p3")
    print(verdict.kind, verdict.reason, verdict.proved, budgets[-1].left)
"""


@pytest.mark.exhaustive
def test_a_proof_takes_the_same_effort_each_time() -> None:
    """Whatever was proved before in the process, and in whatever order Python's sets are."""
    found = []
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", REPEATED], env=environment, capture_output=True, text=True, check=True)
        found += done.stdout.splitlines()
    assert len(found) == 4 and len(set(found)) == 1, found
