"""Handles arithmetic with defined sources that writes undefined registers: a lean handler has no shadow for it.

Most programs do nothing else with undefined registers, and the shadow takes LLVM longer to compile than the instruction.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import origins, runtime, shadow_layout
from simgpu.checks.uninitialized.flags import STATES, any_undefined, undefined_state
from simgpu.checks.uninitialized.origins import OperandStates
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import Flag
from simgpu.machine.frame import Frame
from simgpu.machine.layout import ROW
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I1
from simgpu.machine.wave_frame import ROW32

DWORD = 6  # value of SDWA's dst_sel for the whole register


def emit(frame: Frame, inst: Instruction, operands: OperandStates) -> None:
    """Marks the results as defined in active lanes if the sources are defined. Asks for the whole handler otherwise."""
    if not replaces(inst, operands):
        frame.ask_for_whole()
        return
    with frame.build.if_then(_unknown(frame, operands), likely=False):
        frame.ask_for_whole()
    origin = origins.pick_origin(frame, OperandStates((), operands.results, (), ()))
    for place in operands.results:
        _define(frame, place)
    for name in operands.states_written:
        offset, type_ = STATES[name]
        frame.at(frame.wave, shadow_layout.DELTA + offset).store(ir.Constant(type_, 0))
    origins.store(frame, operands, origin)


def replaces(inst: Instruction, operands: OperandStates) -> bool:
    """True if the results in active lanes depend only on the sources: no old bits of the result registers are kept."""
    if not operands.results and not operands.states_written:
        return False
    if inst.spec.encoding.startswith("sop"):
        return True
    parted = inst.spec.flags & {Flag.PRESERVE_HIGH, Flag.WRITE_HIGH, Flag.IGNORE_EXEC} or inst.mods.get("op_sel", 0) & 8
    known = inst.spec.encoding.startswith("vop") and inst.spec.kind == "lane" and inst.form != "dpp"
    return known and not parted and inst.mods.get("dst_sel", DWORD) == DWORD


def _unknown(frame: Frame, operands: OperandStates) -> Any:
    """Returns i1: true if any source may be undefined."""
    tests = [any_undefined(frame, place) for place in operands.sources]
    tests += [undefined_state(frame, *STATES[name]) for name in operands.states_read]
    unknown: Any = ir.Constant(I1, 0)
    for test in tests:
        unknown = unknown if test is None else frame.build.or_(unknown, test)
    return unknown


def _define(frame: Frame, place: OperandPlace) -> None:
    shadow = frame.at(frame.at(frame.wave, shadow_layout.DELTA), frame.slot(place.slot))
    if place.kind != "row":
        shadow.store(ir.Constant(ir.IntType(place.bits), 0))
        return
    for number in range(max(1, place.bits // 32)):
        row = shadow.at(number * ROW)
        runtime.fill_row.call(frame.build, frame.wave, row)
        frame.write_row(row, 0, ir.Constant(ROW32, None), frame.lanes(frame.exec_bits()))
        runtime.settle_row.call(frame.build, frame.wave, row)
