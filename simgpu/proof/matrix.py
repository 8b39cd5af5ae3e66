"""Matrix instructions on terms: exact sums of products of integers; floats are functions of unknown value.

Of floats, the same instruction on the same rows gives the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import z3

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.lane_smt import bits_of, concat, fold, number
from simgpu.hardware.isa.types import f32
from simgpu.hardware.mfma import find
from simgpu.hardware.mfma.instruction import MatrixInstruction
from simgpu.hardware.mfma.layout import output_element
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled

Term = Any
BYTE = 8
SELECTORS = ("cbsz", "abid", "blgp")


def run_matrix(state: WaveState, inst: Instruction, target: str, exact: bool = True) -> None:
    """Runs a matrix instruction. It reads and writes all lanes, active or not. exact: False if its result is of no interest."""
    state.lanes.crossed = True
    row = _integer(inst, target) if exact else None
    register = inst.args["vdst"]
    assert isinstance(register, Reg)
    made = _unknown(state, inst, register) if row is None else _sums(state, inst, row)
    state.set_vector(register, made, z3.BoolVal(True))


def _integer(inst: Instruction, target: str) -> MatrixInstruction | None:
    """Returns an instruction whose result is a sum of products of bytes, modulo 2**32; None for another."""
    if inst.mods.get("clamp"):
        return None
    try:
        row = find(inst.mnemonic, target)
    except TargetError:
        return None
    return row if row.cd_type == "i32" and not row.sparse else None


def _unknown(state: WaveState, inst: Instruction, register: Reg) -> Term:
    """Returns a result that is known by the terms of the whole operands."""
    rows = []
    for name in sorted(inst.args):
        operand = inst.args[name]
        if name == "vdst" and "sparse" not in inst.spec.flags:
            continue
        bits = 32 * operand.count if isinstance(operand, Reg) else 32
        rows.append(state.operand(operand, f32, bits, other_lanes=True))
    mods = ",".join(f"{name}={value}" for name, value in sorted(inst.mods.items()))
    signs = inst.src_mods
    name = f"{inst.mnemonic} {mods} {signs.neg} {signs.abs} mode {state.mode:#x}"
    number_ = state.lanes.number_of(concat(*rows))
    return z3.Function(f"{name} {number_}", z3.BitVecSort(32), z3.BitVecSort(32 * register.count))(state.lanes.lane)


def _sums(state: WaveState, inst: Instruction, row: MatrixInstruction) -> Term:
    """Returns the registers of a product of matrices of bytes with signs."""
    maps = [row.map(operand, *(int(inst.mods.get(name, 0)) for name in SELECTORS)) for operand in "AB"]
    sources = []
    for name, operand in (("src0", "A"), ("src1", "B")):
        whole = state.operand(inst.args[name], f32, 32 * row.registers(operand), other_lanes=True)
        sources.append([bits_of(whole, 32 * at, 32) for at in range(row.registers(operand))])
    count = row.registers("C")
    old = inst.args["src2"]
    start = state.operand(old, f32, 32 * count if isinstance(old, Reg) else 32, other_lanes=True)
    lanes, made = np.arange(WAVEFRONT), []
    for register in range(count):
        i, j, block = (np.broadcast_to(each, WAVEFRONT) for each in output_element(register, lanes, m=row.m, n=row.n))
        total = bits_of(start, 32 * register, 32) if isinstance(old, Reg) else start
        for k in range(row.k):
            total = total + _byte(state, sources[0], maps[0][block, i, k]) * _byte(state, sources[1], maps[1][block, k, j])
        made.append(fold(total))
    return concat(*made)


def _byte(state: WaveState, registers: list[Term], places: np.ndarray) -> Term:
    """Returns the element that each lane multiplies, by its places in registers."""
    register, low = int(places[0, 0]), int(places[0, 2])
    if np.any(places[:, 0] != register) or np.any(places[:, 2] != low):
        raise NotModelled("lanes that multiply elements of different registers")
    there = state.lanes.at(registers[register], _lane(state.lanes.lane, places[:, 1]))
    return z3.SignExt(32 - BYTE, bits_of(there, low, BYTE))


def _lane(lane: Term, table: np.ndarray) -> Term:
    """Returns the lane of a table in which each bit of the lane's number goes to one bit or to none."""
    first = int(table[0])
    images = [int(table[1 << bit]) ^ first for bit in range(6)]
    wanted = [first ^ sum(image for bit, image in enumerate(images) if at >> bit & 1) for at in range(WAVEFRONT)]
    if wanted != table.tolist() or any(image & image - 1 for image in images):
        raise NotModelled("lanes of a matrix instruction")
    masks: dict[int, int] = {}
    for bit, image in enumerate(images):
        if image:
            shift = image.bit_length() - 1 - bit
            masks[shift] = masks.get(shift, 0) | 1 << bit
    total = number(first, 32)
    for shift, mask in sorted(masks.items()):
        part = lane & mask
        total = total ^ (part << shift if shift >= 0 else z3.LShR(part, -shift))
    return z3.simplify(total)
