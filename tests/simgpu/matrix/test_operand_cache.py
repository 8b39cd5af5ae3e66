"""Cache of matrix operands: same bits give the same product, other bits never an older one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.isa.instruction import Reg
from simgpu.hardware.mfma import MatrixInstruction, find
from simgpu.machine import layout
from simgpu.matrix.one_mfma import DTYPES, from_registers, instruction_of, to_registers
from tests.support.exhaustive import examples
from tests.support.mfma_operands import assert_same, expected, moderate, operands, rng_of
from tests.support.one_instruction import Wave

ROWS = [
    find(name, target)
    for target, names in {
        "gfx942": (
            "v_mfma_f32_16x16x16_f16", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x32_fp8_fp8",
            "v_mfma_f32_16x16x32_bf8_fp8", "v_mfma_f32_16x16x8_xf32", "v_mfma_i32_16x16x32_i8",
        ),
        "gfx90a": ("v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x8bf16"),
    }.items()
    for name in names
]  # fmt: skip
PLACES = (0, 2, 2 * layout.CACHE_ENTRIES)  # the first and the last share an entry, and 2 overlaps neither


def small_integers(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws integers; truncation loses nothing of their sums."""
    values = rng.integers(-3, 4, shape).astype(DTYPES[kind])
    return values.view(f"u{values.itemsize}").astype(np.uint64)


def run(wave: Wave, row: MatrixInstruction, made: dict[str, np.ndarray], a: int, b: int, d: int = 220) -> None:
    """Runs the instruction on operands at v[a], v[128 + b], v[200] and asserts the bits of D, at v[d]."""
    at = {name: Reg("v", first, row.registers(name)) for name, first in zip("ABCD", (a, 128 + b, 200, d), strict=True)}
    for name in "ABC":
        wave.v[at[name].index : at[name].index + at[name].count] = to_registers(row, name, made[name])
    wave.run(instruction_of(row, {"vdst": at["D"], "src0": at["A"], "src1": at["B"], "src2": at["C"]}, {}))
    assert_same(row, from_registers(row, "D", wave.v[d : d + at["D"].count]), expected(row, made))


def instructions(most: int, *choices: Sequence[object]) -> st.SearchStrategy:
    """Draws lists of a row, an item of each choice, and a seed."""
    chosen = [st.sampled_from(values) for values in (ROWS, *choices)]
    return st.lists(st.tuples(*chosen, st.integers(0, 2**32 - 1)), min_size=2, max_size=most)


@pytest.mark.parametrize("place", [0, 128])
def test_d_on_an_operand_is_summed_as_elsewhere(place):
    """Only the fast path keeps converted operands."""
    row = find("v_mfma_f32_16x16x16_f16", "gfx942")
    wave = Wave()
    run(wave, row, operands(row, rng_of("fast"), moderate), 0, 0, d=place)
    assert wave.context[layout.CTX_OPERAND_CACHE : layout.CTX_AHEAD].any()


@given(instructions(12, PLACES, PLACES, [None, "A", "B", "bit of A", "bit of B"]))
@settings(max_examples=examples(60))
def test_operands_that_change_between_instructions(steps):
    """Types, places and order are random; whole operands or single bits change in between."""
    wave = Wave()
    values: dict[tuple[str, str], np.ndarray] = {}
    for row, a, b, change, seed in steps:
        rng = np.random.default_rng(seed)
        fresh = operands(row, rng, moderate if seed % 2 else small_integers)
        made = {"C": fresh["C"]}
        for name, kind in (("A", row.a_type), ("B", row.b_type)):
            key = (name, kind + str(fresh[name].shape))
            if key not in values or change == name:
                values[key] = fresh[name]
            made[name] = values[key]
            if change == f"bit of {name}":
                made[name] = made[name].copy()
                made[name].flat[seed % made[name].size] ^= np.uint64(1 << seed % 8)
        run(wave, row, made, a, b)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_the_last_bit_of_every_register_counts(row):
    """A bit of a lane in a register of A or B changes; D's operands change with it."""
    wave = Wave()
    made = operands(row, rng_of("last bit", row.mnemonic), moderate)
    run(wave, row, made, 0, 0)
    for name in "AB":
        for at in (0, made[name].size // 2, made[name].size - 1):
            made[name] = made[name].copy()
            made[name].flat[at] ^= np.uint64(1)
            run(wave, row, made, 0, 0)


C_KINDS = {"near": 1.0, "far": 2.0**9, "farther": 2.0**40, "huge": 2.0**127, "infinite": np.inf, "NaN": np.nan, "tiny": 2.0**-120}


@given(instructions(8, sorted(C_KINDS), range(16), ["none", "a row", "half of k", "all"], [False, True]))
@settings(max_examples=examples(80))
def test_c_that_needs_another_form_of_the_sum_from_a_row_on(steps):
    """After a sum that ended with the longer rounding, the next begins with it: right for any large C and zero products."""
    wave = Wave()
    for row, kind, line, zeros, small, seed in steps:
        made = operands(row, np.random.default_rng(seed), small_integers if small else moderate)
        made["C"][:, :line] = 0
        some = C_KINDS[kind] * np.random.default_rng(seed).uniform(-2, 2, made["C"][:, line:].shape)
        made["C"][:, line:] = some.astype(np.float32).view(np.uint32)
        if zeros != "none":
            places = {"a row": np.s_[:, line], "half of k": np.s_[:, :, : row.k // 2], "all": np.s_[:]}[zeros]
            made["A"][places] = 0
        run(wave, row, made, 0, 0, d=200)  # on C: a finished part must not run again


def test_cached_operands_are_used_again():
    """A's cache entry, corrupted by hand, shows in D until A changes: no clock is needed."""
    row = ROWS[0]
    wave = Wave()
    made = operands(row, rng_of("used again"), moderate)
    run(wave, row, made, 0, 0)
    entry = wave.context[layout.CTX_OPERAND_CACHE : layout.CTX_OPERAND_CACHE + layout.CACHE_ENTRY_BYTES].view(np.float32)
    values = entry[(64 + 2 * layout.ROW) // 4 :][: 4 * layout.LANES]
    assert (values != 0).any()
    values *= 2
    with pytest.raises(AssertionError):
        run(wave, row, made, 0, 0)
    made["A"] = made["A"] ^ np.uint64(1)
    run(wave, row, made, 0, 0)
