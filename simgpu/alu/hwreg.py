"""Emits accesses to hardware registers: s_getreg reads them, s_setreg writes MODE.

Ids and fields: ISA guides, "Hardware registers" and s_getreg_b32. Fields without a meaning in a functional model read as 0, and
writes to registers other than MODE have no effect. If bits of MODE change that handlers depend on, the wave continues in other
records.
"""

from __future__ import annotations

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout, mode
from simgpu.machine.frame import Frame
from simgpu.machine.layout import RECORD, Status
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE
from simgpu.machine.values import I32, I64, IrValue

MODE, STATUS, HW_ID, LDS_ALLOC, SH_MEM_BASES = 1, 2, 4, 6, 15
LDS_GRANULE = 512  # bytes, of LDS_ALLOC's size field (GFX9: 128 dwords)


def fields(simm16: int) -> tuple[int, int, int]:
    """Returns (register id, offset, width) of a hwreg operand."""
    return simm16 & 63, simm16 >> 6 & 31, (simm16 >> 11 & 31) + 1


def read(frame: Frame, simm16: int) -> IrValue:
    """Returns the named field, as i32."""
    register, offset, width = fields(simm16)
    return _register(frame, register) >> offset & (1 << width) - 1


def _register(frame: Frame, register: int) -> IrValue:
    if register == MODE:
        return frame.state(layout.MODE)
    if register == STATUS:
        return _status(frame)
    if register == HW_ID:
        return _hardware_id(frame)
    if register == LDS_ALLOC:
        size = frame.state(layout.LDS_SIZE, I64).trunc(I32)
        granules = frame.build.udiv(size + LDS_GRANULE - 1, ir.Constant(I32, LDS_GRANULE))
        return granules << 12
    # The high 16 bits of the two apertures (LLVM, getSegmentAperture).
    bases = (SHARED_APERTURE >> 16) << 16 | PRIVATE_APERTURE >> 16
    return frame.value(ir.Constant(I32, bases if register == SH_MEM_BASES else 0))


def _status(frame: Frame) -> IrValue:
    """Returns the STATUS register: SCC 0, EXECZ 9, VCCZ 10, IN_TG 11, VALID 16."""
    word = frame.state(layout.SCC) | (1 << 11 | 1 << 16)
    for register, bit in ((isa.EXEC, 9), (isa.VCC, 10)):
        zero = frame.state(frame.scalar(register), I64) == 0
        word = word | zero.zext(I32) << bit
    return word


def _hardware_id(frame: Frame) -> IrValue:
    """Returns the HW_ID register: WAVE_ID [3:0], SIMD_ID [5:4], CU_ID [11:8], from the number of the wave's place."""
    place = frame.state(layout.HW_ID)
    wave, simd, unit = place >> 2 & 15, place & 3, place >> 6 & 15
    return wave | simd << 4 | unit << 8


def write(frame: Frame, simm16: int, value: IrValue, dwords: int) -> None:
    """Writes the named field and continues with the instruction `dwords` further."""
    register, offset, width = fields(simm16)
    if register != MODE:
        frame.next(dwords)
        return
    mask = ((1 << width) - 1) << offset & 0xFFFFFFFF
    kept = frame.state(layout.MODE) & (~mask & 0xFFFFFFFF)
    change_mode(frame, kept | value << offset & mask, dwords)


def change_mode(frame: Frame, word: IrValue, dwords: int) -> None:
    """Sets MODE and continues with the instruction `dwords` further, in the records for the new MODE.

    The context holds the records' addresses by `mode.number`. If there are none yet, the wave returns MODE, and Python makes them.
    """
    build = frame.build
    old = frame.state(layout.MODE)
    frame.set_state(layout.MODE, word)
    differs = (old ^ word) & mode.ARITHMETIC
    with build.if_then(differs != 0):
        number = word & 0x3FF
        for bit, at in mode.HIGH:
            number = number | (word >> bit & 1) << at
        base = frame.context(layout.CTX_PROGRAMS).pointer().at(number.zext(I64) * 8).load(I64, 8)
        following = frame.slot(layout.SLOT_INDEX) + dwords
        with build.if_then(base == 0, likely=False):
            frame.exit(Status.MODE, following)
            build.ret_void()
        frame.set_state(layout.RECORDS, base)
        record = (base + following.zext(I64) * RECORD).pointer()
        frame.leave_to_lower(record, following)
        frame.jump_record(record, computed=True)
    frame.next(dwords)
