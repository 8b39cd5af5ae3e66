"""Integer matrix instructions on terms, against numpy, and against other ways to the same sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import z3

from simgpu.hardware.isa import decode
from simgpu.hardware.mfma import MatrixInstruction, instructions, multiply
from simgpu.proof.equal import compare
from simgpu.proof.matrix import run_matrix
from simgpu.proof.memory_log import MemoryLog
from simgpu.proof.roots import Roots
from simgpu.proof.solver import Budget, Limits
from simgpu.proof.state import WaveState
from simgpu.proof.terms import Lanes, subterms
from tests.simgpu.proof.test_equal import kernel
from tests.support.clang import assemble

FIRST = {"A": 0, "B": 8, "C": 32}  # registers of the operands
ROWS = [
    (target, row)
    for target in ("gfx908", "gfx942", "gfx950")
    for row in instructions(target)
    if row.cd_type == "i32" and not row.sparse
]  # fmt: skip
QUICK = ("v_mfma_i32_4x4x4i8", "v_mfma_i32_16x16x32_i8")


def named(given: Any) -> str:
    return str(getattr(given, "mnemonic", given))


def span(file: str, first: int, count: int) -> str:
    return f"{file}[{first}:{first + count - 1}]" if count > 1 else f"{file}{first}"


def check(target: str, row: MatrixInstruction, modifiers: str = "", **selected: int) -> None:
    """Compares the sums of drawn lanes and registers."""
    counts = {operand: row.registers(operand) for operand in FIRST}
    sums = "a" if target == "gfx908" else "v"
    operands = ", ".join(span(sums if each == "C" else "v", FIRST[each], counts[each]) for each in ("C", "A", "B", "C"))
    (assembled,) = assemble([f"{row.mnemonic} {operands}{modifiers}"], target)
    assert assembled is not None
    inst = decode(assembled.code, 0, target)
    lanes = Lanes()
    state = WaveState("k", lanes, 0, 0, MemoryLog("k", lanes, Roots(lanes, Budget(Limits()), list)))
    run_matrix(state, inst, target)
    rng = np.random.default_rng(1)
    words = {each: rng.integers(0, 1 << 32, (counts[each], 64), np.uint32) for each in FIRST}
    matrices = []
    for operand in "ABC":
        where = row.map(operand)
        raw = words[operand][where[..., 0], where[..., 1]] >> where[..., 2].astype(np.uint32)
        matrices.append(raw & (0xFFFFFFFF if operand == "C" else 0xFF))
    wanted = multiply(row, *matrices, **selected)
    for _ in range(6):
        register, lane = int(rng.integers(counts["C"])), int(rng.integers(64))
        i, j, block = row.element("C", register, lane)
        term = z3.simplify(z3.substitute(state.read((sums, FIRST["C"] + register)), (lanes.lane, z3.BitVecVal(lane, 32))))
        assert value(term, words) == int(wanted[block, i, j])


def value(term: Any, words: dict[str, np.ndarray]) -> int:
    """Returns a term's value for rows of registers."""
    known = []
    for each in subterms([term]):
        if each.num_args() and each.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            index = int(each.decl().name().removeprefix("k.").lstrip("va"))
            operand = max((name for name in FIRST if FIRST[name] <= index), key=lambda name: FIRST[name])
            row = words[operand][index - FIRST[operand]]
            known.append((each, z3.BitVecVal(int(row[each.arg(0).as_long()]), 32)))
    return int(z3.simplify(z3.substitute(term, *known)).as_long())


@pytest.mark.parametrize(("target", "row"), [pair for pair in ROWS if pair[1].mnemonic in QUICK], ids=named)
def test_sums_are_those_of_numpy(target: str, row: MatrixInstruction) -> None:
    check(target, row)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_all_sums_are_those_of_numpy(target: str, row: MatrixInstruction) -> None:
    check(target, row)
    if row.blocks > 1:
        check(target, row, " cbsz:1 abid:1", cbsz=1, abid=1)


SUM = "v_mov_b32 v4, v2\n v_mfma_i32_4x4x4_16b_i8 v[8:11], v2, v4, {}\n s_nop 7\n v_{} v3, v8{}"


def test_a_sum_that_begins_with_0_is_one_that_is_added() -> None:
    a = kernel("".join(f"v_mov_b32 v{at}, s8\n" for at in range(8, 12)) + SUM.format("v[8:11]", "mov_b32", ""))
    b = kernel(SUM.format("0", "add_u32", ", s8"))
    wrong = kernel(SUM.format("0", "sub_u32", ", s8"))
    assert compare(a, b, "f").kind == "equal"
    assert compare(a, wrong, "f").kind == "different"
