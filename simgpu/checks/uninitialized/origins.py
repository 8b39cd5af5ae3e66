"""Origins of undefined bits: the load that brought them, by register.

A register has one origin: 1 + the record of a load, or 0 if the bits come from no load. A load is the origin of the registers
that it loads; other instructions pass on the origin of their last undefined source. Only the slow path updates origins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import flags, shadow_layout
from simgpu.checks.uninitialized.flags import STATES
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32


@dataclass(frozen=True)
class OperandStates:
    """Places of an instruction's operands, and names of the states that it uses (`flags.STATES`)."""

    sources: Sequence[OperandPlace]
    results: Sequence[OperandPlace]
    states_read: Sequence[str]
    states_written: Sequence[str]


def _pointer(frame: Frame, place: OperandPlace) -> Any:
    """Returns a pointer to the origins of an operand's registers."""
    base = frame.at(frame.wave, shadow_layout.ORIGINS)
    if place.kind == "row":
        number = flags.register_number(frame, place)
        return frame.at(base, frame.build.shl(number, ir.Constant(I32, 2)))
    return frame.at(frame.at(base, 4 * shadow_layout.REGISTERS), frame.slot(place.slot))


def _state_pointer(frame: Frame, name: str) -> Any:
    return frame.at(frame.wave, shadow_layout.ORIGINS + 4 * shadow_layout.REGISTERS + STATES[name][0])


def pick_origin(frame: Frame, operands: OperandStates) -> Any:
    """Returns i32: the origin that the results will have. To be called before they are written."""
    build = frame.build
    origin: Any = ir.Constant(I32, 0)
    for place in operands.results:
        if place.kind == "row":  # unwritten lanes keep their origin
            never = flags.wholly_undefined(frame, place)
            origin = build.select(never, ir.Constant(I32, 0), frame.load(_pointer(frame, place), I32))
    for place in operands.sources:
        test = flags.any_undefined(frame, place) if place.kind in ("row", "sgpr") else None
        if test is not None:
            fresh = frame.load(_pointer(frame, place), I32)
            if place.kind == "row":
                fresh = build.select(flags.wholly_undefined(frame, place), ir.Constant(I32, 0), fresh)
            origin = build.select(test, fresh, origin)
    for name in operands.states_read:
        test = flags.undefined_state(frame, *STATES[name])
        origin = build.select(test, frame.load(_state_pointer(frame, name), I32), origin)
    return origin


def store(frame: Frame, operands: OperandStates, origin: Any) -> None:
    """Stores the results' origin."""
    for place in operands.results:
        for number in range(flags.registers_of(place)):
            frame.store(origin, frame.at(_pointer(frame, place), 4 * number))
    for name in operands.states_written:
        for number in range(STATES[name][1].width // 32):
            frame.store(origin, frame.at(_state_pointer(frame, name), 4 * number))


def own_origin(frame: Frame) -> Any:
    """Returns the frame's own record as an origin."""
    return frame.build.add(frame.slot(layout.SLOT_INDEX), ir.Constant(I32, 1))
