"""Emitted GEMM kernels access each element of their matrices as planned; kernels with a wrong address, mask or step do not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from simgpu.asm import EmittedKernel, emit
from simgpu.hardware.code_object import CodeObject
from simgpu.operators import TiledComputation
from simgpu.proof.coverage.judge import CoverageVerdict, cover
from simgpu.tools.cases.coverage import product_plan
from simgpu.tools.cases.coverage_launch import evidence
from simgpu.tools.cases.sources import load
from tests.support.altered import altered

SMALL = {"m": 100, "n": 100, "k": 100}
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


@cache
def emitted(target: str, sizes: tuple[tuple[str, Any], ...]) -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(**dict(sizes), target=target)
    return tree, emit(tree)


def judged(tree: TiledComputation, source: str, target: str, matrices: str = "CAB") -> CoverageVerdict:
    code = CodeObject.parse(bytes(load(source, target).code.data))
    plan = product_plan(tree)
    plan = replace(plan, matrices=tuple(each for each in plan.matrices if each.argument in matrices))
    return cover(code, next(iter(code.kernels)), plan)


def proof(target: str, matrices: str = "CAB", **sizes: Any) -> CoverageVerdict:
    tree, kernel = emitted(target, tuple(sizes.items()))
    return judged(tree, kernel.source, target, matrices)


@pytest.mark.slow
def test_results_are_written_once_and_rows_read_once() -> None:
    verdict = proof("gfx942", "CA", m=20, n=20, k=12)
    assert verdict.kind == "proved" and verdict.proved == (("C", 1), ("A", 4)), verdict
    assert verdict.accesses > 16


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [SMALL, {"m": 4096, "n": 4096, "k": 4096}], ids=["small", "large"])
def test_the_kernels_of_each_target_are_proved(target: str, sizes: dict[str, int]) -> None:
    verdict = proof(target, **sizes)
    assert verdict.kind == "proved" and {name for name, _ in verdict.proved} == set("ABC"), verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("turned", [{"trans_a": True}, {"trans_b": True}, {"trans_a": True, "trans_b": True}, {"batch": 3}])
def test_other_layouts_are_proved(turned: dict[str, Any]) -> None:
    verdict = proof("gfx942", **SMALL, **turned)
    assert verdict.kind == "proved", verdict


# The instruction, its broken form, which one of them from 1 on, and the matrix whose claim fails.
BROKEN = {
    "lane": ("v_lshl_add_u32 v3, v2, 2, s43 ", "v_lshl_add_u32 v3, v2, 1, s43 ", 1, "C"),
    "store-twice": ("buffer_store_dword v11, v12, s[32:35]", "buffer_store_dword v11, v10, s[32:35]", 1, "C"),
    "store-left-out": ("buffer_store_dword v9, v10, s[32:35], 0 offen", "s_nop 0", 1, "C"),
    "rows-of-C": ("s_sub_u32 s30, s25, 2 ", "s_sub_u32 s30, s25, 1 ", 2, "C"),
    "columns-of-C": ("s_sub_u32 s30, s26, 0 ", "s_sub_u32 s30, s26, -1 ", 2, "C"),
    "edge-of-C": ("s_cmp_lt_i32 s26, 32 ", "s_cmp_lt_i32 s26, 31 ", 1, "C"),
    "rows-of-A": ("v_cmp_gt_i32 vcc, s25, v30 ", "s_sub_u32 s30, s25, 1\n  v_cmp_gt_i32 vcc, s30, v30 ", 1, "A"),
    "step-of-A": ("s_add_u32 s32, s32, 0x100 ", "s_add_u32 s32, s32, 0x80 ", 2, "A"),
    "step-of-A-in-the-loop": ("s_add_u32 s32, s32, 0x100 ", "s_add_u32 s32, s32, 0x80 ", 3, "A"),
    "k-left": ("s_sub_u32 s29, s29, 64 ", "s_sub_u32 s29, s29, 32 ", 1, "A"),
    "stride-of-B": ("s_add_u32 s36, s36, s30", "s_add_u32 s36, s36, s22", 4, "B"),
    "batch-of-B": ("s_mul_i32 s38, s47, s12 ", "s_mul_i32 s38, s47, s10 ", 1, "B"),
}


UNSEEN = ("batch-of-B", "stride-of-B")  # they need a launch with a batch, or with fewer than 4 columns


def broken(name: str) -> tuple[TiledComputation, str, str]:
    tree, kernel = emitted("gfx942", tuple(SMALL.items()))
    old, new, number, matrix = BROKEN[name]
    return tree, altered(kernel.source, old, new, number), matrix


@pytest.mark.slow
def test_a_store_twice_is_found() -> None:
    tree, source, matrix = broken("store-twice")
    verdict = judged(tree, source, "gfx942", matrix)
    assert verdict.kind == "wrong" and "row 2, column 0 of a tile is accessed twice" in verdict.reason


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_found(name: str) -> None:
    tree, source, matrix = broken(name)
    verdict = judged(tree, source, "gfx942")
    assert verdict.kind == "wrong" and verdict.reason.startswith(f"{matrix}: "), verdict
    code = CodeObject.parse(bytes(load(source, "gfx942").code.data))
    if name not in UNSEEN:
        assert evidence(tree, code, next(iter(code.kernels))).startswith("simulated with m = "), "no launch shows it"


@pytest.mark.exhaustive
def test_two_workgroups_with_one_tile_are_found() -> None:
    tree, kernel = emitted("gfx942", tuple(SMALL.items()))
    source = kernel.source.replace("s_and_b32 s51, s2, 7 ", "s_and_b32 s51, s2, 3 ", 1)
    verdict = judged(tree, source, "gfx942", "C")
    assert verdict.kind == "wrong" and "2 workgroups have the tile at row 0, column 0, not 1" in verdict.reason, verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_no_launch_shows_a_fault_of_a_right_kernel(target: str) -> None:
    tree, kernel = emitted(target, tuple(SMALL.items()))
    code = CodeObject.parse(kernel.assemble())
    assert not evidence(tree, code, next(iter(code.kernels)))


@pytest.mark.exhaustive
def test_a_branch_on_the_hardware_is_unknown() -> None:
    tree, kernel = emitted("gfx942", tuple(SMALL.items()))
    source = kernel.source.replace("s_cmp_lt_i32 s25, 32 ", "s_getreg_b32 s30, hwreg(HW_REG_HW_ID)\n  s_cmp_lt_i32 s30, 32 ", 1)
    assert judged(tree, source, "gfx942", "C").kind == "unknown"
