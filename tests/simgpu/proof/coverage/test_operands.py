"""Operands of a GEMM's epilogue, each of its row and column, once; gates; preshuffled B. Broken kernels are found."""

from __future__ import annotations

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

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
SMALL = {"m": 100, "n": 100, "k": 100}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"bias": True, "residual": True, "dtype": "bf16", "dtype_c": "bf16", "activation": "gelu"},
    {"bias": True, "dtype": "f16", "dtype_c": "f16", "scales": "row", "batch": 3},
    {"dtype": "i8", "beta": 2.0, "bias": True},
    {"dtype": "i8", "dtype_c": "bf16", "scales": "tensor", "residual": True},
    {"activation": "swiglu", "bias": True},
    {"activation": "geglu", "m": 1000, "n": 1000, "bias": True, "residual": True},
    {"dtype": "bf16", "trans_b": True, "preshuffle_b": True, "n": 128, "k": 128},
    {"dtype": "f32", "trans_b": True, "preshuffle_b": True, "n": 128, "k": 128, "bias": True, "batch": 2},
    {"dtype": "bf16", "dtype_c": "bf16", "activation": "reglu", "scales": "row", "n": 1000},
)
ALL = {**SMALL, "bias": True, "residual": True, "scales": "row", "activation": "relu", "beta": 1.0}
PANELS = {"m": 100, "n": 128, "k": 128, "dtype": "bf16", "trans_b": True, "preshuffle_b": True}
GATE = {**SMALL, "activation": "reglu", "bias": True}


@cache
def emitted(target: str, options: tuple[tuple[str, Any], ...]) -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(**dict(options), target=target)
    return tree, emit(tree)


def judged(tree: TiledComputation, source: str, target: str) -> tuple[CoverageVerdict, CodeObject, str]:
    code = CodeObject.parse(bytes(load(source, target).code.data))
    name = next(iter(code.kernels))
    return cover(code, name, product_plan(tree)), code, name


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_kernels_of_each_target_are_proved(target: str, variant: dict[str, Any]) -> None:
    tree, kernel = emitted(target, tuple({**SMALL, **variant}.items()))
    verdict, _, _ = judged(tree, kernel.source, target)
    assert verdict.kind == "proved" and verdict.summed, verdict
    if "swiglu" in variant.values():
        assert ("C", 2) in verdict.proved


# Options, the instruction, its altered form, which one of them from 1 on, and the message.
BROKEN: dict[str, tuple[dict[str, Any], str, str, int, str]] = {
    "bias-of-rows": (ALL, "v_lshlrev_b32 v1, 2, v4 ", "v_lshlrev_b32 v1, 2, v3 ", 1, "another row or column"),
    "bias-left-out": (ALL, "v_add_f32 v2, v6, v2 ", "s_nop 0 ", 1, "bias is left out"),
    "bias-twice": (ALL, "v_add_f32 v2, v6, v2 ", "v_add_f32 v2, v6, v2\n v_add_f32 v2, v6, v2 ", 1, "taken twice"),
    "scales-swapped": (ALL, "v11, v1, s[60:63]", "v11, v1, s[44:47]", 1, "another row or column"),
    "scale-of-another-row": (ALL, "v_mul_f32 v15, v8, v15 ", "v_mul_f32 v15, v9, v15 ", 1, "another row or column"),
    "scale-left-out": (ALL, "v_mul_f32 v15, v8, v15 ", "s_nop 0 ", 1, "scale_a is left out"),
    "residual-of-another-row": (ALL, "v_add_f32 v15, v17, v15 ", "v_add_f32 v15, v21, v15 ", 1, "another row or column"),
    "residual-is-C": (ALL, "buffer_load_dword v13, v14, s[68:71]", "buffer_load_dword v13, v14, s[64:67]", 1, "taken twice"),
    "C-of-another-row": (ALL, "v_fmac_f32 v15, s25, v16 ", "v_fmac_f32 v15, s25, v12 ", 1, "another row or column"),
    "row-of-a-panel": (PANELS, "v_lshl_add_u32 v36, v36, 4, v37 ", "v_lshl_add_u32 v36, v36, 5, v37 ", 1, "B: "),
    "k-of-a-panel": (PANELS, "v_lshl_add_u32 v36, v35, 5, v36 ", "v_lshl_add_u32 v36, v35, 4, v36 ", 1, "B: "),
    "panel-of-8-rows": (PANELS, "v_and_b32 v36, 15, v31 ", "v_and_b32 v36, 7, v31 ", 1, "B: "),
    "gate-left-out": (GATE, "v_mul_f32 v2, v1, v2 ", "s_nop 0 ", 1, "is not the sum"),
    "residual-of-another-row-of-pairs": (
        {**GATE, "residual": True}, "v_add_f32 v2, v7, v2 ", "v_add_f32 v2, v10, v2 ", 1, "is not the sum",
    ),
    "residual-of-a-pair-left-out": ({**GATE, "residual": True}, "v_add_f32 v2, v7, v2 ", "s_nop 0 ", 1, "residual is left out"),
    "up-of-another-pair": (GATE, "row_ror:15", "row_ror:13", 1, "is not the sum"),
    "both-lanes-store": (GATE, "v_cmp_eq_u32 vcc, 0, ", "v_cmp_eq_u32 vcc, 1, ", 1, "C: "),
}  # fmt: skip
QUICK = ("bias-of-rows", "up-of-another-pair")


def broken(name: str) -> tuple[TiledComputation, str]:
    options, old, new, number, _ = BROKEN[name]
    tree, kernel = emitted("gfx942", tuple(options.items()))
    return tree, altered(kernel.source, old, new, number)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in BROKEN])
def test_broken_kernels_are_found_and_a_launch_shows_them(name: str) -> None:
    tree, source = broken(name)
    verdict, code, kernel = judged(tree, source, "gfx942")
    assert verdict.kind == "wrong" and BROKEN[name][4] in verdict.reason, verdict
    assert evidence(tree, code, kernel).startswith("simulated with m = ")
