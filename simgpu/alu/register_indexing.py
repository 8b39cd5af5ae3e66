"""Registers chosen at run time by M0: s_movrel, and VGPR indexing (s_set_gpr_idx_*).

While MODE.GPR_IDX_EN is set, M0[7:0] is added to the VGPR numbers of the vector operands that
M0[15:12] names: src0, src1, src2, vdst (ISA guides, "VGPR Indexing"). Handlers for that state
run on a copy of their record whose slots were moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

from simgpu.alu.hwreg import change_mode
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout, mode
from simgpu.machine.frame import Frame, opaque
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import RECORD, ROW, SLOTS, Fault
from simgpu.machine.operands import Place

LAST_SGPR = 101


def m0(frame: Frame) -> Any:
    return frame.state(frame.scalar(isa.M0))


def moved_scalar(frame: Frame, place: Place) -> Any:
    """Pointer to the SGPR M0 places after the operand's; a fault past s101."""
    build = frame.build
    start = frame.slot(place.slot)
    distance = build.mul(m0(frame), ir.Constant(I32, 4))
    target = build.add(start, distance)
    last = layout.SGPR + 4 * (LAST_SGPR + 1) - place.bits // 8
    far = build.icmp_unsigned(">", m0(frame), ir.Constant(I32, LAST_SGPR))
    outside = build.or_(far, build.icmp_unsigned(">", target, ir.Constant(I32, last)))
    with build.if_then(outside, likely=False):
        frame.fault(Fault.REGISTER, build.zext(m0(frame), I64), ir.Constant(I32, -1))
    return frame.at(frame.wave, target)


def set_index(frame: Frame, index: Any) -> None:
    """M0[7:0] = index[7:0]."""
    build = frame.build
    kept = build.and_(m0(frame), ir.Constant(I32, 0xFFFFFF00))
    frame.set_state(frame.scalar(isa.M0), build.or_(kept, build.and_(index, ir.Constant(I32, 0xFF))))


def set_operands(frame: Frame, bits: Any) -> None:
    """M0[15:12] = which operands are indexed."""
    build = frame.build
    kept = build.and_(m0(frame), ir.Constant(I32, 0xFFFF0FFF))
    field = build.shl(build.and_(bits, ir.Constant(I32, 15)), ir.Constant(I32, 12))
    frame.set_state(frame.scalar(isa.M0), build.or_(kept, field))


def switch(frame: Frame, on: bool, dwords: int) -> None:
    """Turn indexing on or off and go on."""
    build = frame.build
    bit = 1 << mode.GPR_IDX_EN
    word = frame.state(layout.MODE)
    if on:
        word = build.or_(word, ir.Constant(I32, bit))
    else:
        word = build.and_(word, ir.Constant(I32, ~bit & 0xFFFFFFFF))
    change_mode(frame, word, dwords)


def relocate(frame: Frame, operands: Iterable[tuple[Place, int]]) -> None:
    """Let the frame read its slots from a copy in which the indexed VGPRs are moved.

    operands: the places and their mode bits. A register past v255 is a fault.
    """
    build = frame.build
    storage = build.alloca(ir.ArrayType(I32, SLOTS))
    storage.align = 64
    copy = opaque(frame, storage)
    whole = ir.VectorType(I32, RECORD // 4)
    frame.store(frame.load(frame.record, whole, align=64), copy, align=64)
    word = m0(frame)
    distance = build.mul(build.and_(word, ir.Constant(I32, 0xFF)), ir.Constant(I32, ROW))
    for place, bit in operands:
        if place.kind != "row":
            continue
        start = frame.slot(place.slot)
        wanted = build.and_(build.lshr(word, ir.Constant(I32, 12 + bit)), ir.Constant(I32, 1))
        in_vgprs = build.icmp_unsigned("<", start, ir.Constant(I32, layout.AGPR))
        on = build.and_(build.icmp_unsigned("!=", wanted, ir.Constant(I32, 0)), in_vgprs)
        moved = build.add(start, build.select(on, distance, ir.Constant(I32, 0)))
        size = max(1, place.bits // 32) * ROW
        end = build.add(moved, ir.Constant(I32, size))
        past = build.icmp_unsigned(">", end, ir.Constant(I32, layout.AGPR))
        with build.if_then(build.and_(on, past), likely=False):
            frame.fault(Fault.REGISTER, build.zext(word, I64), ir.Constant(I32, -1))
        frame.store(moved, frame.at(copy, 4 * place.slot))
    frame.record = copy
