"""Derives the range of scalar values that code computes from work-item numbers.

Code that gives waves of a workgroup different tasks tests the number of the wave, which it computes from v0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from simgpu.checks.lint.compares import ValueRange, constant, single
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.instruction import Operand, Reg

VECTORS_FROM = 2000  # cell of v0's values, see `conditions`
IDS = "ids"  # packed contents of v0: the work-item's number along x is in its low ten bits
X_BITS = 0x3FF
PASS_ON = ("v_and_b32", "v_lshrrev_b32", "v_mov_b32", "v_bfe_u32")


def vectors_of(steps: Collection[LintStep], ranged: Collection[int]) -> frozenset[int]:
    """Returns the VGPRs through which values may reach SGPRs that are tested. ranged: these SGPRs."""
    reads = [step for step in steps if step.inst.mnemonic == "v_readfirstlane_b32"]
    sources = [_vector(step.inst.args["src0"]) for step in reads if single(step.inst.args["sdst"]) in ranged]
    found = {number for number in sources if number is not None}
    moves = [step for step in steps if step.inst.mnemonic in PASS_ON]
    before = -1 if found else 0
    while len(found) != before:
        before = len(found)
        for step in moves:
            if _vector(step.inst.args["vdst"]) in found:
                found |= {number for name in ("src0", "src1") if (number := _vector(step.inst.args.get(name))) is not None}
    return frozenset(found)


def vector_values(step: LintStep, known: Mapping[Any, Any], work_items: int, scalars_from: int) -> dict[Any, Any]:
    """Returns the possible values of the register that a vector instruction writes, by its cell. scalars_from: the cell of s0."""
    inst = step.inst
    if inst.form not in ("e32", "e64") or inst.mods:
        return {}
    if inst.mnemonic == "v_readfirstlane_b32":
        number, values = single(inst.args["sdst"]), _known_value(inst.args["src0"], known)
        return {scalars_from + number: values} if number is not None and isinstance(values, ValueRange) else {}
    target = _vector(inst.args.get("vdst"))
    if inst.mnemonic not in PASS_ON or target is None:
        return {}
    values = _result(inst.mnemonic, [inst.args.get(name) for name in ("src0", "src1", "src2")], known, work_items)
    return {} if values is None else {VECTORS_FROM + target: values}


def _result(name: str, sources: list[Operand | None], known: Mapping[Any, Any], work_items: int) -> Any:
    numbers, held = [constant(source) for source in sources], [_known_value(source, known) for source in sources]
    if name == "v_mov_b32":
        return held[0]
    if name == "v_lshrrev_b32" and numbers[0] is not None and isinstance(held[1], ValueRange) and held[1].low >= 0:
        return ValueRange(held[1].low >> (numbers[0] & 31), held[1].high >> (numbers[0] & 31))
    if name == "v_bfe_u32" and numbers[1] == 0 and numbers[2] == X_BITS.bit_length() and held[0] == IDS:
        return ValueRange(0, min(X_BITS, work_items - 1))
    if name == "v_and_b32":
        for number, other in ((numbers[0], held[1]), (numbers[1], held[0])):
            if number == X_BITS and other == IDS:
                return ValueRange(0, min(X_BITS, work_items - 1))
            if number is not None and number >= 0:
                return ValueRange(0, min(number, other.high) if isinstance(other, ValueRange) and other.low >= 0 else number)
    return None


def _known_value(operand: Operand | None, known: Mapping[Any, Any]) -> Any:
    number = _vector(operand)
    return None if number is None else known.get(VECTORS_FROM + number)


def _vector(operand: Operand | None) -> int | None:
    """Returns the number of a single VGPR."""
    return operand.index if isinstance(operand, Reg) and operand.file == "v" and operand.count == 1 else None
