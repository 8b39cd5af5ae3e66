"""Each element of C is the sum of all its products in emitted GEMM kernels; altered kernels are found."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simgpu.asm import EmittedKernel, emit
from simgpu.hardware.code_object import CodeObject
from simgpu.operators import TiledComputation
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.judge import CoverageJudge
from simgpu.proof.solver import Budget, Limits, own_terms
from simgpu.tools.cases.coverage import product_plan
from simgpu.tools.cases.coverage_launch import evidence
from simgpu.tools.cases.sources import load
from tests.support.altered import altered

SMALL = {"m": 100, "n": 100, "k": 100}
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
VARIANTS: tuple[dict[str, Any], ...] = (
    {"trans_a": True}, {"trans_b": True}, {"trans_a": True, "trans_b": True}, {"batch": 3}, {"bias": True}, {"activation": "gelu"},
)  # fmt: skip


@cache
def emitted(target: str, sizes: tuple[tuple[str, Any], ...] = tuple(SMALL.items())) -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(**dict(sizes), target=target)
    return tree, emit(tree)


def judged(tree: TiledComputation, source: str, target: str) -> str:
    """Returns the fault in the sums of a kernel, "" if nothing."""
    code = CodeObject.parse(bytes(load(source, target).code.data))
    plan = product_plan(tree)
    with own_terms():
        budget = Budget(Limits())
        judge = CoverageJudge(code, next(iter(code.kernels)), plan, Limits())
        judge.run(budget)
        try:
            judge.sums({each.argument: each.multiples[-1] for each in plan.matrices}, budget)
        except Violation as wrong:
            return str(wrong)
    return ""


@pytest.mark.slow
def test_each_product_is_added_once() -> None:
    tree, kernel = emitted("gfx942")
    assert judged(tree, kernel.source, "gfx942") == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [100, 1000, 4096])
def test_in_the_kernels_of_each_target(target: str, size: int) -> None:
    tree, kernel = emitted(target, (("m", size), ("n", size), ("k", size)))
    assert judged(tree, kernel.source, target) == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_in_other_layouts_and_with_epilogues(variant: dict[str, Any]) -> None:
    tree, kernel = emitted("gfx942", tuple({**SMALL, **variant}.items()))
    assert judged(tree, kernel.source, "gfx942") == ""


MFMA = "v_mfma_f32_16x16x4_f32 a[0:3]"
LAST = ".Lgemm_f32_nn_32x32x32_last_tile_0 "
LEFT_OUT, TWICE, PAIRS = "on may be left out", "is added twice", "multiplies elements of different k"
OTHER = "is not the sum for its row and column"
# The instruction, its altered form, which one of them from 1 on, and the message.
BROKEN = {
    "a-round-short": ("s_cmp_gt_i32 s28, 0 ", "s_cmp_gt_i32 s28, 32 ", 1, LEFT_OUT),
    "a-round-more": ("s_cmp_gt_i32 s28, 0 ", "s_cmp_gt_i32 s28, -32 ", 1, TWICE),
    "two-tiles-counted": ("s_sub_u32 s28, s28, 32 ", "s_sub_u32 s28, s28, 64 ", 1, LEFT_OUT),
    "counted-apart": ("s_sub_u32 s28, s28, 32 ", "s_sub_u32 s28, s28, 64 ", 2, "are not alike"),
    "last-tile-left-out": (f"s_cbranch_scc1 {LAST}", "s_cbranch_scc1 .Lgemm_f32_nn_32x32x32_multiplied_0 ", 2, LEFT_OUT),
    "dropped": (f"{MFMA}, v9, v19, a[0:3] ", "s_nop 0 ", 1, "of a step is left out"),
    "dropped-at-the-end": (f"{MFMA}, v10, v20, a[0:3] ", "s_nop 0 ", 6, LEFT_OUT),
    "doubled": (f"{MFMA}, v10, v20, a[0:3] ", f"{MFMA}, v10, v20, a[0:3]\n  {MFMA}, v10, v20, a[0:3] ", 2, TWICE),
    "k-of-A": ("v_xor_b32 v12, 64, v3 ", "v_xor_b32 v12, 32, v3 ", 1, PAIRS),
    "k-of-B": ("ds_read_b32 v20, v13 offset:2304 ", "ds_read_b32 v20, v13 offset:2432 ", 1, PAIRS),
    "fragments-swapped": (f"{MFMA}, v9, v19, a[0:3] ", f"{MFMA}, v9, v20, a[0:3] ", 1, PAIRS),
    "stage-of-reads": ("v_add_u32 v3, s40, v3 ", "v_add_u32 v3, 0, v3 ", 1, "something else than elements of A and B"),
    "stage-of-writes": ("v_subrev_u32 v27, s40, v27 ", "v_subrev_u32 v27, 0, v27 ", 1, PAIRS),
    "swizzle": ("v_xor_b32 v22, v22, v2 ", "v_or_b32 v22, v22, v2 ", 1, PAIRS),
    "rows-of-A": ("v_add_u32 v3, s43, v1 ", "v_add_u32 v3, s43, v2 ", 1, "products of different rows"),
    "rows-of-C": ("v_lshl_add_u32 v3, v2, 2, s43 ", "v_lshl_add_u32 v3, v1, 2, s43 ", 1, OTHER),
    "another-accumulator": ("v_accvgpr_read_b32 v8, a1", "v_accvgpr_read_b32 v8, a2", 1, "an operand of the epilogue"),
    "not-cleared": ("v_accvgpr_write_b32 a1, 0 ", "s_nop 0 ", 1, "added to something else than the sum"),
}
# What no tried launch does: a branch that needs other sizes, beta, and registers that do not begin with 0.
UNSEEN = ("last-tile-left-out", "another-accumulator", "not-cleared")
QUICK = ("dropped", "k-of-A")


def broken(name: str) -> tuple[TiledComputation, str]:
    tree, kernel = emitted("gfx942", (("m", 100), ("n", 100), ("k", 96)))  # K fills steps of 32, no longer ones
    old, new, number, _ = BROKEN[name]
    return tree, altered(kernel.source, old, new, number)


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_product_is_told(name: str) -> None:
    tree, source = broken(name)
    assert BROKEN[name][3] in judged(tree, source, "gfx942")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BROKEN)
def test_wrong_products_are_told_and_a_launch_shows_them(name: str) -> None:
    tree, source = broken(name)
    assert BROKEN[name][3] in judged(tree, source, "gfx942")
    code = CodeObject.parse(bytes(load(source, "gfx942").code.data))
    found = evidence(tree, code, next(iter(code.kernels)))
    assert found.startswith("simulated with m = ") != (name in UNSEEN)
