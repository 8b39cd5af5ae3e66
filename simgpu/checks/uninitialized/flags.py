"""Emits tests for undefined operands before an instruction: one load and one compare for each operand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import shadow_layout
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import GPR_INDEXING, ControlKind
from simgpu.hardware.isa.types import State
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import ROW
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue

# State that instructions use without naming it: byte offset in the wave's state, type.
STATES = {"scc": (layout.SCC, I32), "vcc": (4 * isa.VCC, I64), "m0": (4 * isa.M0, I32)}
FIRST_ROW = layout.VGPR // ROW  # of the vector registers, in rows from the beginning of a wave's state
SPECIAL = {"scc": "scc", "vccz": "vcc"}  # sources with a code of their own


def registers_of(place: OperandPlace) -> int:
    return max(1, place.bits // 32)


def any_undefined(frame: Frame, place: OperandPlace) -> Any | None:
    """Returns i1: true if any part of an operand may be undefined; None for constants."""
    if place.kind == "row":
        return nonzero(frame, flag_pointer(frame, place), ir.IntType(8 * registers_of(place)), 1)
    if place.kind == "sgpr":
        shadow = frame.at(frame.at(frame.wave, shadow_layout.DELTA), frame.slot(place.slot))
        return nonzero(frame, shadow, ir.IntType(place.bits), 4)
    return undefined_state(frame, *STATES[SPECIAL[place.kind]]) if place.kind in SPECIAL else None


def wholly_undefined(frame: Frame, place: OperandPlace) -> Any:
    """Returns i1: true if none of a vector operand's registers was written."""
    kind = ir.IntType(8 * registers_of(place))
    never = int.from_bytes(bytes([shadow_layout.UNDEFINED] * registers_of(place)), "little")
    return frame.build.icmp_unsigned("==", frame.load(flag_pointer(frame, place), kind, 1), ir.Constant(kind, never))


def never_written(frame: Frame, place: OperandPlace) -> Any:
    """Returns i1: true if at least one of a vector operand's registers was never written."""
    kind = ir.IntType(8 * registers_of(place))
    never = int.from_bytes(bytes([shadow_layout.UNDEFINED] * registers_of(place)), "little")
    flags = frame.build.and_(frame.load(flag_pointer(frame, place), kind, 1), ir.Constant(kind, never))
    return frame.build.icmp_unsigned("!=", flags, ir.Constant(kind, 0))


def register_number(frame: Frame, place: OperandPlace) -> Any:
    """Returns i32: a vector operand's first register, VGPRs from 0, AccVGPRs from 256."""
    return _row_number(frame, place) - FIRST_ROW


def flag_pointer(frame: Frame, place: OperandPlace) -> Any:
    """Returns a pointer to the flags of a vector operand's registers."""
    return frame.at(frame.at(frame.wave, shadow_layout.FLAGS - FIRST_ROW), _row_number(frame, place))


def _row_number(frame: Frame, place: OperandPlace) -> IrValue:
    """Returns i32: a vector operand's offset in the wave's state, in rows of 256 bytes: the slot without its lowest byte."""
    with frame.hoist():
        return frame.at(frame.record, 4 * place.slot + 1).load(ir.IntType(16), 1).zext(I32)


def undefined_state(frame: Frame, offset: int, type_: ir.Type) -> Any:
    """Returns i1: true if any bit of a field of the wave's state is undefined. offset: in bytes."""
    return nonzero(frame, frame.at(frame.wave, shadow_layout.DELTA + offset), type_, 4)


def nonzero(frame: Frame, pointer: Any, type_: ir.Type, align: int) -> Any:
    return frame.build.icmp_unsigned("!=", frame.load(pointer, type_, align), ir.Constant(type_, 0))


M0_READERS = {ControlKind.MOVRELS, ControlKind.MOVRELD, ControlKind.APPEND, ControlKind.CONSUME, *GPR_INDEXING}


def states_read(inst: Instruction) -> set[State]:
    """Returns those of SCC, VCC and M0 that the instruction reads without naming them."""
    used = {param.type.state for param in inst.spec.params}
    memory = inst.spec.memory
    if (memory and memory.lds) or inst.mods.get("lds") or "addtid" in inst.mnemonic:
        used.add("m0")
    if inst.spec.control in M0_READERS:
        used.add("m0")
    return used & STATES.keys()


def states_written(inst: Instruction) -> set[State]:
    """Returns those of SCC, VCC and M0 that the instruction writes without naming them."""
    return {type_.state for type_ in inst.spec.results} & STATES.keys()


def states_of(inst: Instruction) -> list[State]:
    """Returns the states that the instruction reads or writes without naming them, sorted."""
    return sorted(states_read(inst) | states_written(inst))


def may_be_undefined(inst: Instruction, places: Iterable[OperandPlace]) -> bool:
    """True if an instruction has any operand that may be undefined, that is, not only constants."""
    return bool(states_of(inst)) or any(place.kind in ("row", "sgpr", *SPECIAL) for place in places)
