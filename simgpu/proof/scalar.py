"""Scalar instructions on terms, as `alu.salu` emits them."""

from __future__ import annotations

from typing import Any

from simgpu.alu.salu import STATE_REGISTER
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.lane_smt import SmtOps, bits_of, choose, number, unwrap, wrap
from simgpu.hardware.isa.types import Type
from simgpu.proof.state import SCC, WaveState
from simgpu.proof.terms import NotModelled

Term = Any
STATES = (SCC, *STATE_REGISTER)


def read_state(state: WaveState, type_: Type) -> Term:
    """Returns SCC as a condition; EXEC, VCC and M0 as integers."""
    if type_.state == SCC:
        return state.read((SCC, 0))
    return state.scalar(STATE_REGISTER[type_.state], type_.bits)


def run_scalar(state: WaveState, inst: Instruction, ops: SmtOps) -> None:
    """Runs an instruction of the scalar ALU."""
    values = []
    position = 0
    for param in inst.spec.params:
        type_ = param.type
        if type_.state in STATES:
            raw = read_state(state, type_)
        elif param.name in ("sdst", "vdst"):
            raw = state.operand(inst.args["sdst"], type_)
        elif param.name == "simm16":
            operand = inst.args["simm16"]
            assert isinstance(operand, Imm)
            value = operand.value & 0xFFFF
            raw = number(value | (0xFFFF0000 if type_.kind == "signed" and value & 0x8000 else 0), 32)
        else:
            raw = state.operand(inst.args[f"src{position}"], type_)
            position += 1
        if type_.state != SCC and raw.size() > type_.bits:
            raw = bits_of(raw, 0, type_.bits)
        if state.lanes.varies(raw):
            raise NotModelled(f"{inst.mnemonic} of a vector register")
        values.append(wrap(ops, type_, raw))
    assert inst.spec.body is not None
    returned = inst.spec.body(*values)
    results = returned if isinstance(returned, tuple) else (returned,)
    for type_, value in zip(inst.spec.results, results, strict=True):
        raw = unwrap(type_, value)
        if type_.state in ("", "sgpr"):
            register = inst.args["sdst"]
            assert isinstance(register, Reg)
            bits = max(32, type_.bits)
            if type_.bits == 1 or not hasattr(raw, "size"):
                raw = choose(raw, number(1, bits), number(0, bits))
            state.set_scalar(register.index, raw)
        elif type_.state == SCC:
            state.registers[SCC, 0] = raw
        else:
            state.set_scalar(STATE_REGISTER[type_.state], raw)
