"""Emits scalar instructions: the body on single values, with SCC, EXEC, VCC and M0 as state of the wave."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.types import Type
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import LLVMOps, element
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.sources import load_scalar
from simgpu.machine.values import I1, I32, I64

STATE_REGISTER = {"exec": isa.EXEC, "vcc": isa.VCC, "m0": isa.M0}


def read_state(frame: Frame, type_: Type) -> Any:
    """Reads SCC as i1; EXEC, VCC and M0 as integers."""
    with frame.hoist():
        if type_.state == "scc":
            return frame.state(layout.SCC) != 0
        kind = I64 if type_.bits == 64 else I32
        return frame.state(frame.scalar(STATE_REGISTER[type_.state]), kind)


def write_state(frame: Frame, type_: Type, raw: Any) -> None:
    if type_.state == "scc":
        frame.set_state(layout.SCC, frame.build.zext(raw, I32))
    else:
        frame.set_state(frame.scalar(STATE_REGISTER[type_.state]), raw)


def plan(inst: Instruction, plan: Plan) -> tuple[dict[str, OperandPlace], list[OperandPlace]]:
    """Plans the parameters by name, and the register results in order."""
    places: dict[str, OperandPlace] = {}
    position = 0
    for param in inst.spec.params:
        if param.type.state in ("scc", "exec", "vcc", "m0"):
            continue
        if param.name in ("sdst", "vdst"):
            register = inst.args["sdst"]
            assert isinstance(register, Reg)
            places[param.name] = plan.register(register, max(32, param.type.bits))
        elif param.name == "simm16":
            operand = inst.args["simm16"]
            assert isinstance(operand, Imm)
            value = operand.value & 0xFFFF
            if param.type.kind == "signed" and value & 0x8000:
                value |= 0xFFFF0000
            places[param.name] = plan.immediate(value)
        else:
            places[param.name] = plan.source(inst.args[f"src{position}"], param.type)
            position += 1
    results = []
    for type_ in inst.spec.results:
        if type_.state in ("", "sgpr"):
            register = inst.args["sdst"]
            assert isinstance(register, Reg)
            results.append(plan.register(register, max(32, type_.bits)))
    return places, results


def emit(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], results: list[OperandPlace]) -> None:
    """Emits the instruction, without the jump to the next one."""
    ops = LLVMOps(frame.build, 1)
    values = []
    for param in inst.spec.params:
        if param.type.state in ("scc", "exec", "vcc", "m0"):
            values.append(Value(ops, param.type, read_state(frame, param.type)))
            continue
        raw = load_scalar(frame, places[param.name])
        wanted = element(param.type)
        if raw.type != wanted:
            narrower = isinstance(wanted, ir.IntType) and wanted.width < raw.type.width
            raw = raw.trunc(wanted) if narrower else raw.bitcast(wanted)
        values.append(Value(ops, param.type, raw))
    assert inst.spec.body is not None
    returned = inst.spec.body(*values)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    written = iter(results)
    # Destinations are stored after all sources were read, SCC and EXEC last.
    for type_, value in zip(inst.spec.results, outputs, strict=True):
        raw = value.raw
        if type_.state in ("", "sgpr"):
            place = next(written)
            kind = I64 if place.bits == 64 else I32
            if raw.type == I1 or (isinstance(raw.type, ir.IntType) and raw.type.width < kind.width):
                raw = frame.build.zext(raw, kind)
            elif raw.type != kind:
                raw = frame.build.bitcast(raw, kind)
            frame.store(raw, frame.operand(place.slot))
        else:
            write_state(frame, type_, raw)


