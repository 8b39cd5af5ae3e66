"""GEMM kernels of each type: elements that share words or take two, and elements that work-items load several times."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from simgpu.asm import EmittedKernel, emit
from simgpu.hardware.code_object import CodeObject
from simgpu.operators import TiledComputation
from simgpu.operators.gemm.plan import with_tiling
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.judge import CoverageVerdict, cover
from simgpu.proof.coverage.pieces import move_pieces
from simgpu.proof.coverage.values import ZEROS, Cells
from simgpu.tools.cases.coverage import product_plan
from simgpu.tools.cases.coverage_launch import evidence
from simgpu.tools.cases.sources import load
from tests.support.altered import altered

NEW = ("f16", "bf16", "i8", "f64", "fp8", "bf8")
TYPES = {"gfx908": NEW[:3], "gfx90a": NEW[:4], "gfx942": NEW, "gfx950": NEW}


@cache
def emitted(target: str, dtype: str, size: int, **more: Any) -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(m=size, n=size, k=size, dtype=dtype, target=target, **more)
    return tree, emit(tree)


def judged(tree: TiledComputation, source: str, target: str) -> CoverageVerdict:
    code = CodeObject.parse(bytes(load(source, target).code.data))
    return cover(code, next(name for name in code.kernels if "reduce" not in name), product_plan(tree))


@cache
def small_tiles() -> tuple[TiledComputation, EmittedKernel]:
    """Returns a product of 8-bit elements in tiles of 32 x 32."""
    tree = TiledComputation(m=64, n=64, k=64, dtype="i8", target="gfx942")
    tiling = replace(tree.plan.tiling, tile_m=32, tile_n=32, limited_by=None)
    tree.derivation = with_tiling(tree.problem, tree.descriptor, tree.derivation.policy, tiling)
    return tree, emit(tree)


@pytest.mark.slow
def test_a_product_of_8_bits_is_proved() -> None:
    tree, kernel = small_tiles()
    verdict = judged(tree, kernel.source, "gfx942")
    assert verdict.kind == "proved" and verdict.summed and verdict.proved == (("C", 1), ("A", 16), ("B", 16)), verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize(("target", "dtype"), [(target, dtype) for target, types in TYPES.items() for dtype in types])
@pytest.mark.parametrize("size", [64, 100, 4096])
def test_the_kernels_of_each_type_are_proved(target: str, dtype: str, size: int) -> None:
    tree, kernel = emitted(target, dtype, size)
    verdict = judged(tree, kernel.source, target)
    assert verdict.kind == "proved" and verdict.summed, verdict
    code = CodeObject.parse(kernel.assemble())
    assert size == 4096 or not evidence(tree, code, next(iter(code.kernels)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", [
    {"dtype": "f16", "dtype_c": "f16"}, {"dtype": "f32", "dtype_c": "bf16"}, {"dtype": "i8", "dtype_c": "bf16"},
    {"dtype": "fp8", "dtype_c": "fp8"}, {"dtype": "bf16", "trans_a": True, "trans_b": True}, {"dtype": "f64", "trans_b": True},
], ids=str)  # fmt: skip
def test_other_results_and_layouts_are_proved(variant: dict[str, Any]) -> None:
    tree, kernel = emitted("gfx942", size=100, **variant)
    verdict = judged(tree, kernel.source, "gfx942")
    assert verdict.kind == "proved" and verdict.summed, verdict


def split() -> tuple[TiledComputation, EmittedKernel]:
    tree = TiledComputation(m=64, n=64, k=8000, dtype="bf16", batch=3, trans_b=True, target="gfx942")
    assert tree.plan.split_k > 1
    return tree, emit(tree)


@pytest.mark.exhaustive
def test_parts_of_a_split_k_are_proved() -> None:
    tree, kernel = split()
    verdict = judged(tree, kernel.source, "gfx942")
    assert verdict.kind == "proved" and verdict.summed and verdict.proved == (("partials", 1), ("A", 8), ("B", 8)), verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize(("old", "new", "part"), [
    ("s_add_u32 s46, s46, s47 ", "s_add_u32 s46, s46, 0 ", 1), ("s_mul_i32 s26, s47, s20 ", "s_mul_i32 s26, s46, s20 ", 0),
], ids=["stored", "multiplied"])  # fmt: skip
def test_a_part_at_another_place_is_found(old: str, new: str, part: int) -> None:
    tree, kernel = split()
    assert kernel.source.count(old) == 1, "the emitter no longer emits this instruction: choose another one"
    verdict = judged(tree, kernel.source.replace(old, new), "gfx942")
    first = part * tree.loop("k").tile
    assert verdict.kind == "wrong" and f"workgroups have the tile at row 0, column 0, k {first}, not 3" in verdict.reason, verdict


BF16 = "v_mfma_f32_16x16x16_bf16 a[0:3], v[10:11], v[20:21], a[0:3] "
I8 = "v_mfma_i32_16x16x32_i8 a[0:3], v[8:9], v[18:19], a[0:3] "
LEFT_OUT, TWICE, PAIRS = "may be left out", "is added twice", "multiplies elements of different k"
# The type, the instruction, its altered form, which one of them from 1 on, and the verdict.
BROKEN = {
    "dropped": ("bf16", BF16, "s_nop 0 ", 1, "is left out"),
    "doubled": ("i8", I8, f"{I8}\n  {I8}", 1, TWICE),
    "halves-exchanged": ("bf16", "v_perm_b32 v30, v15, v14, s30", "v_perm_b32 v30, v14, v15, s30", 1, PAIRS),
    "other-halves": ("bf16", "v_perm_b32 v30, v15, v14, s30", "v_perm_b32 v30, v15, v14, s40", 1, "products of different rows"),
    "bytes-exchanged": ("i8", "v_perm_b32 v31, v15, v14, s41", "v_perm_b32 v31, v14, v15, s41", 1, PAIRS),
    "a-byte-lost": ("i8", "v_lshl_or_b32 v4, v4, 8, v33 ", "v_lshl_or_b32 v4, v4, 16, v33 ", 1, "something else than elements"),
    "bytes-at-an-end": ("i8", "v_lshl_or_b32 v4, v4, 8, v33 ", "v_lshl_or_b32 v4, v33, 8, v4 ", 1, "something else than elements"),
    "words-of-two": ("f64", "ds_read_b128 v[8:11], v3 ", "ds_read_b128 v[8:11], v3 offset:4 ", 1, "takes parts of several"),
    "store-twice": ("f64", "buffer_store_dwordx2 v[10:11], v2, ", "buffer_store_dwordx2 v[10:11], v1, ", 1, "twice"),
    "a-store-left-out": ("bf16", "buffer_store_dword v9, v10, s[32:35], 0 offen", "s_nop 0", 1, "is accessed never"),
    "step-doubled": ("bf16", "s_add_u32 s32, s32, 0x80", "s_add_u32 s32, s32, 0x40", 2, "A: "),
    "k-left": ("i8", "s_sub_u32 s29, s29, 0x80 ", "s_sub_u32 s29, s29, 64 ", 1, "A: "),
}
QUICK = ("words-of-two",)
UNSEEN = ("a-byte-lost", "bytes-at-an-end")  # a launch of rows that are shorter than a load


def broken(name: str) -> tuple[TiledComputation, str]:
    dtype, old, new, number, _ = BROKEN[name]
    tree, kernel = emitted("gfx942", dtype, 112)  # K fills no steps of f64 that are longer than two spans
    return tree, altered(kernel.source, old, new, number)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in BROKEN])
def test_broken_kernels_are_found(name: str) -> None:
    tree, source = broken(name)
    verdict = judged(tree, source, "gfx942")
    assert verdict.kind == "wrong" and BROKEN[name][4] in verdict.reason, verdict
    code = CodeObject.parse(bytes(load(source, "gfx942").code.data))
    assert evidence(tree, code, next(iter(code.kernels))).startswith("simulated with m = ") != (name in UNSEEN)


def test_small_tiles_load_elements_several_times() -> None:
    """Units of 4 x 4 elements: 32 x 64 elements are 128 units for 256 work-items."""
    plans = {each.argument: each for each in product_plan(small_tiles()[0]).matrices}
    assert plans["A"].times.min() == plans["A"].times.max() == 1
    assert plans["B"].times.shape == (64, 32) and plans["B"].times.min() == plans["B"].times.max() == 2


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_moved_pieces_are_those_of_the_instructions(bits: int) -> None:
    """Moves codes of pieces that are their own bits, and compares with moved bits."""
    rng, count = np.random.default_rng(bits), 32 // bits
    codes = [rng.integers(1, 1 << min(bits, 16), (3, count)) << 8 | 1 for _ in range(2)]
    high, low = map(Cells, codes)
    pair = Cells(np.concatenate([codes[1], codes[0]], axis=1)).outer.astype(object)
    together = sum(pair[:, at] << bits * at for at in range(2 * count))
    for by in range(0, 32, max(8, bits)):
        found = move_pieces("v_alignbit_b32", [high, low, Form.of(by)], (3, count))
        selector = sum((by // 8 + at & 7) << 8 * at for at in range(4))
        chosen = move_pieces("v_perm_b32", [high, low, Form.of(selector)], (3, count))
        assert found is not None and chosen is not None and np.array_equal(found.code, chosen.code)
        words = sum(found.outer.astype(object)[:, at] << bits * at for at in range(count))
        assert np.array_equal(words, together >> by & 0xFFFFFFFF)


def test_words_that_overlap_are_unknown() -> None:
    word = Cells(np.array([[9, 17]]))
    assert move_pieces("v_lshl_or_b32", [word, Form.of(16), Form()], (1, 2)).code.tolist() == [[ZEROS, 9]]  # type: ignore[union-attr]
    assert move_pieces("v_lshl_or_b32", [word, Form.of(16), word], (1, 2)).code.tolist() == [[9, 0]]  # type: ignore[union-attr]
    assert move_pieces("v_lshl_or_b32", [word, Form.of(8), word], (1, 2)) is None
