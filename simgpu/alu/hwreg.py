"""Hardware registers: s_getreg reads them, s_setreg writes MODE; a changed MODE changes records.

Ids and fields: ISA guides, "Hardware registers" and s_getreg_b32; what a functional model has no
value for reads 0, and writes to anything but MODE have no effect.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout, mode
from simgpu.machine.frame import PTR, Frame
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import RECORD, Status
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE

MODE, STATUS, HW_ID, LDS_ALLOC, SH_MEM_BASES = 1, 2, 4, 6, 15
LDS_GRANULE = 512  # bytes, of LDS_ALLOC's size field (GFX9: 128 dwords)


def fields(simm16: int) -> tuple[int, int, int]:
    """(register id, offset, width) of a hwreg operand."""
    return simm16 & 63, simm16 >> 6 & 31, (simm16 >> 11 & 31) + 1


def read(frame: Frame, simm16: int) -> Any:
    """The named field, as i32."""
    register, offset, width = fields(simm16)
    build = frame.build
    raw = _register(frame, register)
    field = build.lshr(raw, ir.Constant(I32, offset))
    return build.and_(field, ir.Constant(I32, (1 << width) - 1))


def _register(frame: Frame, register: int) -> Any:
    build = frame.build
    if register == MODE:
        return frame.state(layout.MODE)
    if register == STATUS:
        return _status(frame)
    if register == HW_ID:
        return _hardware_id(frame)
    if register == LDS_ALLOC:
        size = build.trunc(frame.state(layout.LDS_SIZE, I64), I32)
        rounded = build.add(size, ir.Constant(I32, LDS_GRANULE - 1))
        granules = build.udiv(rounded, ir.Constant(I32, LDS_GRANULE))
        return build.shl(granules, ir.Constant(I32, 12))
    if register == SH_MEM_BASES:
        # The high 16 bits of the two apertures (LLVM, getSegmentAperture).
        return ir.Constant(I32, (SHARED_APERTURE >> 16) << 16 | PRIVATE_APERTURE >> 16)
    return ir.Constant(I32, 0)


def _status(frame: Frame) -> Any:
    """SCC 0, EXECZ 9, VCCZ 10, IN_TG 11, VALID 16."""
    build = frame.build
    word: Any = build.or_(frame.state(layout.SCC), ir.Constant(I32, 1 << 11 | 1 << 16))
    for register, bit in ((isa.EXEC, 9), (isa.VCC, 10)):
        bits = frame.state(frame.scalar(register), I64)
        zero = build.zext(build.icmp_unsigned("==", bits, ir.Constant(I64, 0)), I32)
        word = build.or_(word, build.shl(zero, ir.Constant(I32, bit)))
    return word


def _hardware_id(frame: Frame) -> Any:
    """WAVE_ID [3:0], SIMD_ID [5:4], CU_ID [11:8], from the number of the wave's place."""
    build = frame.build
    place = frame.state(layout.HW_ID)

    def part(shift: int, bits: int, at: int) -> Any:
        field = build.lshr(place, ir.Constant(I32, shift))
        return build.shl(build.and_(field, ir.Constant(I32, (1 << bits) - 1)), ir.Constant(I32, at))

    return build.or_(build.or_(part(2, 4, 0), part(0, 2, 4)), part(6, 4, 8))


def write(frame: Frame, simm16: int, value: Any, dwords: int) -> None:
    """Write the named field and go on with the instruction `dwords` further."""
    register, offset, width = fields(simm16)
    if register != MODE:
        frame.next(dwords)
        return
    build = frame.build
    mask = ((1 << width) - 1) << offset & 0xFFFFFFFF
    old = frame.state(layout.MODE)
    kept = build.and_(old, ir.Constant(I32, ~mask & 0xFFFFFFFF))
    moved = build.and_(build.shl(value, ir.Constant(I32, offset)), ir.Constant(I32, mask))
    change_mode(frame, build.or_(kept, moved), dwords)


def change_mode(frame: Frame, word: Any, dwords: int) -> None:
    """Set MODE and go on `dwords` further, in the records that are lowered for it.

    The context holds their addresses by `mode.number`; one that is missing is made by Python.
    """
    build = frame.build
    old = frame.state(layout.MODE)
    frame.set_state(layout.MODE, word)
    differs = build.and_(build.xor(old, word), ir.Constant(I32, mode.ARITHMETIC))
    with build.if_then(build.icmp_unsigned("!=", differs, ir.Constant(I32, 0))):
        number = build.and_(word, ir.Constant(I32, 0x3FF))
        for bit, at in ((mode.FP16_OVFL, 10), (mode.GPR_IDX_EN, 11)):
            flag = build.and_(build.lshr(word, ir.Constant(I32, bit)), ir.Constant(I32, 1))
            number = build.or_(number, build.shl(flag, ir.Constant(I32, at)))
        table = build.inttoptr(frame.context(layout.CTX_PROGRAMS), PTR)
        entry = frame.at(table, build.mul(build.zext(number, I64), ir.Constant(I64, 8)))
        base = frame.load(entry, I64, 8)
        following = build.add(frame.slot(layout.SLOT_INDEX), ir.Constant(I32, dwords))
        with build.if_then(build.icmp_unsigned("==", base, ir.Constant(I64, 0)), likely=False):
            frame.exit(Status.MODE, following)
            build.ret_void()
        frame.set_state(layout.RECORDS, base)
        distance = build.mul(build.zext(following, I64), ir.Constant(I64, RECORD))
        frame.jump_record(build.inttoptr(build.add(base, distance), PTR), computed=True)
    frame.next(dwords)
