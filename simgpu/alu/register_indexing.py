"""Registers chosen at run time by M0: s_movrel, and VGPR indexing (s_set_gpr_idx_*).

While MODE.GPR_IDX_EN is set, M0[7:0] is added to the VGPR numbers of the vector operands that M0[15:12] selects: src0,
src1, src2, vdst (ISA guides, "VGPR Indexing"). Handlers for that state run on a copy of their record with moved slots.
The guides do not mention AccVGPRs. AITER's f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256 of gfx950 reads its sums by an indexed
v_accvgpr_read_b32 and is wrong without, so their numbers move, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from llvmlite import ir

from simgpu.alu.hwreg import change_mode
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout, mode
from simgpu.machine.frame import Frame
from simgpu.machine.layout import RECORD, ROW, SLOTS, Fault
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue, where
from simgpu.machine.wave_frame import opaque

LAST_SGPR = 101


def m0(frame: Frame) -> IrValue:
    return frame.state(frame.scalar(isa.M0))


def moved_scalar(frame: Frame, place: OperandPlace) -> IrValue:
    """Returns a pointer to the SGPR whose number is the operand's plus M0. Faults past s101."""
    target = frame.slot(place.slot) + m0(frame) * 4
    last = layout.SGPR + 4 * (LAST_SGPR + 1) - place.bits // 8
    outside = (m0(frame).unsigned > LAST_SGPR) | (target.unsigned > last)
    with frame.build.if_then(outside, likely=False):
        frame.fault(Fault.REGISTER, m0(frame).zext(I64), ir.Constant(I32, -1))
    return frame.at(frame.wave, target)


def set_index(frame: Frame, index: IrValue) -> None:
    """Sets M0[7:0] = index[7:0]."""
    frame.set_state(frame.scalar(isa.M0), m0(frame) & 0xFFFFFF00 | index & 0xFF)


def set_operands(frame: Frame, bits: IrValue) -> None:
    """Sets M0[15:12]: the operands that are indexed."""
    frame.set_state(frame.scalar(isa.M0), m0(frame) & 0xFFFF0FFF | (bits & 15) << 12)


def switch(frame: Frame, on: bool, dwords: int) -> None:
    """Turns indexing on or off and continues."""
    bit, word = 1 << mode.GPR_IDX_EN, frame.state(layout.MODE)
    change_mode(frame, word | bit if on else word & (~bit & 0xFFFFFFFF), dwords)


def relocate(frame: Frame, operands: Iterable[tuple[OperandPlace, int]]) -> None:
    """Makes the frame read its slots from a copy of the record in which indexed VGPRs are moved.

    operands: places, each with its bit of M0[15:12]. A register past v255 or a255 faults.
    """
    build = frame.build
    storage = build.alloca(ir.ArrayType(I32, SLOTS))
    storage.align = 64
    copy = opaque(frame, storage)
    whole = ir.VectorType(I32, RECORD // 4)
    frame.store(frame.load(frame.record, whole, align=64), copy, align=64)
    word = m0(frame)
    distance = (word & 0xFF) * ROW
    for place, bit in operands:
        if place.kind != "row":
            continue
        start = frame.slot(place.slot)
        on = (word >> 12 + bit & 1) != 0
        moved = start + where(on, distance, 0)
        end = where(start.unsigned < layout.AGPR, ir.Constant(I32, layout.AGPR), layout.WAVE_BYTES)
        past = (moved + max(1, place.bits // 32) * ROW).unsigned > end
        with build.if_then(on & past, likely=False):
            frame.fault(Fault.REGISTER, word.zext(I64), ir.Constant(I32, -1))
        copy.at(4 * place.slot).store(moved)
    frame.record = copy
