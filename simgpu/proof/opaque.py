"""Matrix instructions as functions of unknown value: the same instruction on the same rows gives the same result."""

from __future__ import annotations

from typing import Any

import z3

from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.lane_smt import joined
from simgpu.hardware.isa.types import f32
from simgpu.proof.state import WaveState

Term = Any


def run_matrix(state: WaveState, inst: Instruction) -> None:
    """Runs a matrix instruction. It reads all lanes, active or not, so a result is known by the terms of its whole operands."""
    rows = []
    for name in sorted(inst.args):
        operand = inst.args[name]
        if name == "vdst" and "sparse" not in inst.spec.flags:
            continue
        bits = 32 * operand.count if isinstance(operand, Reg) else 32
        rows.append(state.operand(operand, f32, bits, other_lanes=True))
    target = inst.args["vdst"]
    assert isinstance(target, Reg)
    state.lanes.crossed = True
    mods = ",".join(f"{name}={value}" for name, value in sorted(inst.mods.items()))
    signs = inst.src_mods
    name = f"{inst.mnemonic} {mods} {signs.neg} {signs.abs} mode {state.mode:#x}"
    whole = joined(*rows)
    number_ = state.lanes.number_of(whole)
    made = z3.Function(f"{name} {number_}", z3.BitVecSort(32), z3.BitVecSort(32 * target.count))(state.lanes.lane)
    state.set_vector(target, made, z3.BoolVal(True))

