"""Accesses byte by byte, for swizzled memory at addresses that are no multiple of 4: a lane's bytes are not consecutive.

Private memory is interleaved by dword over the lanes. All targets have LLVM's FeatureUnalignedScratchAccess, which HSA's
unaligned access mode enables: a lane's bytes stay its own at any address (CDNA guides, "Scratch": mis-aligned access).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from llvmlite import ir

from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.values import I8, I32, I64, IrValue
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.lane_copy import ONE_BY_ONE, StagedRows, read_staged, staging, write_staged

ROW = ir.VectorType(I8, LANES)  # a byte of every lane
ROWS = 1024  # offset in staging of a row for each byte of the access

# From the number of a byte of the access (i64) to the lanes' device addresses, <64 x i64>, or to their mask, i64.
OfByte = Callable[[IrValue], IrValue]


def any_torn(rows: StagedRows, offsets: IrValue, lanes: IrValue) -> IrValue:
    """Returns i1: some lane of the mask has bytes in more dwords than an aligned access of this size."""
    return (lanes & ((offsets & 3).unsigned > max(0, 4 - rows.lane_bytes)).bitcast(I64)) != 0


def load(frame: Frame, rows: StagedRows, address_of: OfByte, lanes_of: OfByte) -> list[IrValue]:
    """Returns a load's registers, <64 x i32> each."""

    def load_byte(byte: IrValue) -> tuple[()]:
        GlobalAccess(frame, address_of(byte), 1, False, ONE_BY_ONE).run(lanes_of(byte))
        _row(frame, byte).store(staging(frame).load(ROW), align=64)
        return ()

    frame.loop(rows.lane_bytes, load_byte)
    registers = []
    for first in range(0, rows.lane_bytes, 4):
        count = min(4, rows.lane_bytes)
        parts = [_row(frame, first + byte).load(ROW, align=64).zext(I32) << 8 * byte for byte in range(count)]
        registers.append(functools.reduce(operator.or_, parts))
    if rows.bits < 32:
        write_staged(frame, StagedRows(rows.bits), registers)
        return read_staged(frame, rows)
    return registers


def store(frame: Frame, rows: StagedRows, registers: list[IrValue], address_of: OfByte, lanes_of: OfByte) -> None:
    """Stores an instruction's registers, <64 x i32> each."""
    for number in range(rows.lane_bytes):
        register = registers[number // 4] >> 16 if rows.d16 == "hi" else registers[number // 4]
        _row(frame, number).store((register >> 8 * (number % 4)).trunc(I8), align=64)

    def store_byte(byte: IrValue) -> tuple[()]:
        staging(frame).store(_row(frame, byte).load(ROW, align=64), align=64)
        GlobalAccess(frame, address_of(byte), 1, True, ONE_BY_ONE).run(lanes_of(byte))
        return ()

    frame.loop(rows.lane_bytes, store_byte)


def _row(frame: Frame, byte: IrValue | int) -> IrValue:
    return staging(frame).at(ROWS).at(byte * LANES)
