"""Rule for undefined bits in floating-point arithmetic: a lane's whole result is undefined if any bit of its sources is.

The rules for LLVM's operations give the same, as memcheck does, but they need a shadow of each operation. The bits of an
exponent, from which `v_ldexp_f64` or `v_trig_preop_f64` computes with integers, are then treated alike.
"""

from __future__ import annotations

import re

from llvmlite import ir

from simgpu.alu.valu_sources import SourcePlaces
from simgpu.checks.uninitialized import runtime, shadow_layout
from simgpu.checks.uninitialized.flags import any_undefined, registers_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I1, IrValue
from simgpu.machine.wave_frame import ROW32

SMEARING = re.compile(
    "v_(add|sub|subrev|mul|mac|mad|fma|fmac|rcp|rsq|sqrt|exp|log|sin|cos|fract|trunc|ceil|rndne|floor|ldexp|div_fixup|trig_preop)"
    "_(f32|f64)"
)


def smears(inst: Instruction) -> bool:
    """True if `emit` serves an instruction. An absolute value leaves out a sign bit, so the shadow must look at it."""
    return inst.form in ("e32", "e64") and not inst.mods.get("abs") and SMEARING.fullmatch(inst.mnemonic) is not None


def emit(frame: Frame, places: SourcePlaces) -> None:
    """Writes the shadow of the result in active lanes."""
    undefined, everywhere = frame.value(ir.Constant(ROW32, None)), frame.value(ir.Constant(I1, 0))
    for place in places.sources.values():
        if place.kind == "row":
            for row in _rows(frame, place):
                undefined = undefined | row.load(ROW32, align=64)
        elif (test := any_undefined(frame, place)) is not None:
            everywhere = everywhere | test
    lanes = (undefined != 0) | everywhere.splat(LANES)
    for place in places.result:
        for row in _rows(frame, place):
            frame.write_row(row, 0, lanes.sext(ROW32), frame.lanes(frame.exec_bits()))
            runtime.settle_row.call(frame.build, frame.wave, row)


def _rows(frame: Frame, place: OperandPlace) -> list[IrValue]:
    """Returns pointers to the shadow rows of an operand's registers, filled in if nothing wrote them."""
    first = frame.at(frame.at(frame.wave, shadow_layout.DELTA), frame.slot(place.slot))
    rows = [first.at(number * ROW) for number in range(registers_of(place))]
    for row in rows:
        runtime.fill_row.call(frame.build, frame.wave, row)
    return rows
