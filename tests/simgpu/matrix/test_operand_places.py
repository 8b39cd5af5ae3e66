"""Matrix instructions with overlapping operands, constants, or inactive lanes."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.isa.instruction import Const, Operand, Reg
from simgpu.hardware.mfma import MatrixInstruction, find
from simgpu.matrix.one_mfma import DTYPES, from_registers, instruction_of, to_registers
from tests.support.mfma_operands import assert_same, expected, moderate, operands, rng_of
from tests.support.one_instruction import Wave

PLACING = [
    ("v_mfma_f32_16x16x4f32", "gfx908"),
    ("v_mfma_f32_4x4x1_16b_f32", "gfx942"),
    ("v_mfma_f32_32x32x1_2b_f32", "gfx942"),
    ("v_mfma_f32_16x16x4f16", "gfx90a"),
    ("v_mfma_f32_32x32x8_f16", "gfx942"),
    ("v_mfma_f32_16x16x32_fp8_bf8", "gfx942"),
    ("v_mfma_i32_16x16x32_i8", "gfx942"),
    ("v_mfma_f64_16x16x4_f64", "gfx942"),
    ("v_mfma_f64_4x4x4f64", "gfx90a"),
]


def run_placed(
    row: MatrixInstruction, made: dict[str, np.ndarray], at: dict[str, Reg], c: Operand | None = None
) -> np.ndarray:
    """Returns D for operands at these registers; c: an operand in C's place."""
    wave = Wave()
    for name in [n for n in ("A", "B", "C") if n != "C" or c is None]:
        reg = at[name]
        file = wave.a if reg.file == "a" else wave.v
        file[reg.index : reg.index + reg.count] = to_registers(row, name, made[name])
    args = {"vdst": at["D"], "src0": at["A"], "src1": at["B"], "src2": c or at["C"]}
    wave.run(instruction_of(row, args, {}))
    file, d = (wave.a if at["D"].file == "a" else wave.v), at["D"]
    return from_registers(row, "D", file[d.index : d.index + d.count])


@pytest.mark.parametrize("name, target", PLACING)
def test_d_may_lie_on_its_sources(name, target):
    """D on A, on B, on C, or shifted by a register pair gives the results of disjoint operands.

    gfx908's sources are AccVGPRs, like C and D. A and B at the same place are an array that is read twice.
    """
    row = find(name, target)
    made = operands(row, rng_of("alias", name), moderate)
    counts = {op: row.registers(op) for op in "ABCD"}
    for d, a, b, c in ((40, 40, 80, 120), (40, 80, 40, 120), (40, 80, 100, 40), (40, 38, 80, 120), (40, 80, 100, 42)):
        first = {"D": d, "A": a, "B": b, "C": c}
        at = {op: Reg("a", first[op], counts[op]) for op in first}
        assert_same(row, run_placed(row, made, at), expected(row, made))


@pytest.mark.parametrize("on", ["A", "B"])
@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_32x32x8_bf16", "v_mfma_f32_16x16x32_fp8_bf8"])
def test_d_on_an_operand_where_c_leaves_the_fast_path_midway(name, on):
    """An infinity is in C's last row: the general path continues there, with A and B unchanged."""
    row = find(name, "gfx942")
    made = operands(row, rng_of("midway", name), moderate)
    made["C"][:, -1, :] = 0x7F800000
    first = {"A": 40, "B": 60, "C": 80}
    first["D"] = first[on]
    at = {op: Reg("v", first[op], row.registers(op)) for op in first}
    assert_same(row, run_placed(row, made, at), expected(row, made))


@pytest.mark.parametrize("name, target", PLACING)
@pytest.mark.parametrize("code, value", [(128, 0), (129, 1), (193, -1), (242, 1.0), (245, -2.0)])
def test_c_may_be_an_inline_constant(name, target, code, value):
    row = find(name, target)
    made = operands(row, rng_of("constant", name), moderate)
    kind = DTYPES[row.cd_type]
    if isinstance(value, float) and kind.kind == "i":
        bits = np.float32(value).view(np.uint32)  # a float constant is its f32 bits
    elif isinstance(value, float):
        bits = np.array(value, kind).view(f"u{kind.itemsize}")
    else:
        bits = np.array(value, f"i{kind.itemsize}").view(f"u{kind.itemsize}")
    made["C"] = np.full((row.blocks, row.m, row.n), bits, np.uint64)
    first = {"D": 40, "A": 80, "B": 100}
    at = {op: Reg("a", first[op], row.registers(op)) for op in first}
    assert_same(row, run_placed(row, made, at, Const(code)), expected(row, made))


def test_exec_does_not_matter():
    """Matrix instructions ignore EXEC (ISA guides)."""
    row = find("v_mfma_f32_16x16x4f32", "gfx90a")
    made = operands(row, rng_of("exec"), moderate)
    at = {op: Reg("v", first, row.registers(op)) for op, first in {"A": 0, "B": 2, "C": 4, "D": 8}.items()}
    wave = Wave()
    wave.s[126:128] = 0
    for name in "ABC":
        wave.v[at[name].index : at[name].index + at[name].count] = to_registers(row, name, made[name])
    wave.run(instruction_of(row, {"vdst": at["D"], "src0": at["A"], "src1": at["B"], "src2": at["C"]}, {}))
    assert_same(row, from_registers(row, "D", wave.v[8:12]), expected(row, made))
