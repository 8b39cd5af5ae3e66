"""Values of source operands in a handler, read from the places that its record names."""

from __future__ import annotations

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue
from simgpu.machine.wave_frame import WaveFrame


def load_scalar(frame: WaveFrame, place: OperandPlace) -> IrValue:
    """Loads a scalar source as i32 or i64."""
    with frame.hoist():
        return _load_scalar(frame, place)


def _load_scalar(frame: WaveFrame, place: OperandPlace) -> IrValue:
    kind = I64 if place.bits == 64 else I32
    if place.kind == "imm":
        return frame.slot(place.slot, kind)
    if place.kind == "sgpr":
        if place.bits > 64:
            raise UnsupportedInstruction("scalar operand wider than 64 bits in arithmetic")
        return frame.load(frame.operand(place.slot), kind)
    if place.kind == "row":  # a VGPR instead of a scalar operand: lane 0
        if place.bits > 32:
            raise UnsupportedInstruction("a scalar operand of 64 bits in vector registers")
        return frame.load(frame.operand(place.slot), I32)
    if place.kind == "scc":
        value = frame.state(layout.SCC)
    else:
        register = isa.VCC if place.kind == "vccz" else isa.EXEC
        value = (frame.state(frame.scalar(register), I64) == 0).zext(I32)
    return value.zext(I64) if kind == I64 else value


def load_vector(frame: WaveFrame, place: OperandPlace) -> IrValue:
    """Loads a vector source: <64 x i32> or <64 x i64>, or a scalar to be spread."""
    if place.kind == "row":
        return frame.read_wide(frame.operand(place.slot), place.bits)
    return load_scalar(frame, place)
