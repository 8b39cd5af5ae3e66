"""Kernels that add the parts of a split K: each part once, each element of C once; broken kernels are found."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simgpu.asm import EmittedKernel, emit
from simgpu.asm.builder.formula import division_words
from simgpu.hardware.code_object import CodeObject
from simgpu.operators import TiledComputation
from simgpu.proof.coverage.judge import CoverageVerdict
from simgpu.proof.coverage.parts import _divides, add_up
from simgpu.tools.cases.coverage import parts_plan
from simgpu.tools.cases.coverage_launch import evidence
from simgpu.tools.cases.sources import load
from tests.support.altered import altered

SIZES = {"m": 64, "n": 64, "k": 8192}
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
VARIANTS: tuple[dict[str, Any], ...] = (
    {"bias": True, "residual": True, "dtype_c": "bf16", "scales": "row", "beta": 1.0},
    {"activation": "swiglu", "bias": True},
    {"dtype": "i8"},
    {"dtype": "i8", "dtype_c": "f16", "scales": "tensor", "bias": True},
    {"batch": 3, "dtype": "bf16", "dtype_c": "f16"},
    {"dtype": "f64", "activation": "gelu", "bias": True, "k": 100},
)


@cache
def emitted(target: str, options: tuple[tuple[str, Any], ...] = (("bias", True),)) -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(**{**SIZES, **dict(options)}, target=target)
    return tree, emit(tree)


def judged(tree: TiledComputation, kernel: EmittedKernel, source: str) -> tuple[CoverageVerdict, CodeObject]:
    code = CodeObject.parse(bytes(load(source, kernel.target).code.data))
    return add_up(code, kernel.following[0].name, parts_plan(tree)), code


@pytest.mark.parametrize("variant", [{"bias": True}, *VARIANTS], ids=str)
def test_each_part_is_added_once(variant: dict[str, Any]) -> None:
    tree, kernel = emitted("gfx942", tuple(variant.items()))
    verdict, _ = judged(tree, kernel, kernel.source)
    assert verdict.kind == "proved" and verdict.proved == (("partials", 1), ("C", 1)), verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("variant", [{"bias": True}, *VARIANTS[:-1]], ids=str)
def test_on_each_target(target: str, variant: dict[str, Any]) -> None:
    tree, kernel = emitted(target, tuple(variant.items()))
    assert judged(tree, kernel, kernel.source)[0].kind == "proved"


# The instruction, its altered form, which one of them from 1 on, and the message.
BROKEN = {
    "part-left-out": ("v_add_f32 v9, v17, v9 ", "s_nop 0 ", 1, "part 1 is left out"),
    "part-twice": ("v_add_f32 v9, v17, v9 ", "v_add_f32 v9, v13, v9 ", 1, "part 0 is added twice"),
    "round-left-out": ("s_mov_b32 s21, 4 ", "s_mov_b32 s21, 3 ", 1, "part 24 is left out"),
    "round-more": ("s_mov_b32 s21, 4 ", "s_mov_b32 s21, 5 ", 1, "none of the product's parts"),
    "part-of-another-element": ("v_add_f32 v9, v17, v9 ", "v_add_f32 v9, v18, v9 ", 1, "something else than the sum"),
    "parts-of-another-product": ("s_lshl_b32 s21, s3, 5 ", "s_mul_i32 s21, s3, 31 ", 1, "none of the product's parts"),
    "another-element": ("v_lshlrev_b32 v5, 2, v1 ", "v_lshlrev_b32 v5, 2, v2 ", 1, "another element than that of C"),
    "elements-apart": ("s_lshl_b32 s21, s2, 8 ", "s_lshl_b32 s21, s2, 7 ", 1, "begins at another element of C"),
    "lanes-of-another-element": ("v_cndmask_b32 v8, -2.0, v8, s[22:23]", "v_cndmask_b32 v8, -2.0, v8, s[24:25]", 1, "C: an"),
    "lanes-outside": ("v_cndmask_b32 v8, -2.0, v8, s[22:23]", "s_nop 0", 1, "is not known"),
    "row-of-C": ("v_mul_lo_u32 v8, v13, s20 ", "v_mul_lo_u32 v8, v13, s17 ", 1, "C: another element"),
    "store-left-out": ("buffer_store_dword v9, v8, s[32:35], 0 offen ", "s_nop 0 ", 1, "element of another workgroup"),
    "store-twice": ("buffer_store_dword v10, v8, s[32:35], 0 offen ",
                    "buffer_store_dword v10, v8, s[32:35], 0 offen\n buffer_store_dword v10, v8, s[32:35], 0 offen ", 1, "C: "),
    "bias-of-another-column": ("v_lshlrev_b32 v13, 2, v7 ", "v_lshlrev_b32 v13, 2, v1 ", 1, "bias: another element"),
    "bias-left-out": ("v_add_f32 v10, v5, v10 ", "s_nop 0 ", 1, "bias is left out"),
    "bias-twice": ("v_add_f32 v10, v5, v10 ", "v_add_f32 v10, v5, v10\n v_add_f32 v10, v5, v10 ", 1, "taken twice"),
}  # fmt: skip
# Faults that one product without padding has not, or that no wrong number shows.
UNSEEN = ("parts-of-another-product", "lanes-of-another-element", "lanes-outside", "row-of-C", "store-twice")


def broken(name: str) -> tuple[TiledComputation, EmittedKernel, str]:
    tree, kernel = emitted("gfx942")
    old, new, number, _ = BROKEN[name]
    return tree, kernel, altered(kernel.source, old, new, number)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_found(name: str) -> None:
    tree, kernel, source = broken(name)
    verdict, _ = judged(tree, kernel, source)
    assert verdict.kind == "wrong" and BROKEN[name][3] in verdict.reason, verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BROKEN)
def test_a_launch_shows_them(name: str) -> None:
    tree, kernel, source = broken(name)
    found = evidence(tree, judged(tree, kernel, source)[1], kernel.following[0].name)
    assert found.startswith("simulated with m = ") != (name in UNSEEN)


def test_divisions_that_are_exact() -> None:
    for elements in (1, 2, 3, 7, 64, 100, 641, 65537, 2**30 - 1, 2**31 - 1):
        _, factor, shift = division_words(elements)
        assert _divides(elements, factor, shift) and not _divides(elements + 1, factor, shift)
        assert not _divides(elements, factor - 1, shift)
