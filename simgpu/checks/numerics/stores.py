"""Checks stores to device memory for NaN and infinities, by `stored_types`."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from simgpu.checks.numerics.stored_types import StoredType, stored_types
from simgpu.checks.numerics.table import BLOCK, NumericKind, NumericsBlock, enter, keep
from simgpu.engine.program import Program
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace
from simgpu.machine.runtime import load32, load64, runtime
from simgpu.machine.values import I1, I32, I64

WIDE = 1 << 63  # marks the fields of an f64
NAN, INFINITY = int(NumericKind.STORED_NAN), int(NumericKind.STORED_INFINITY)


def types_of(program: Program) -> dict[int, StoredType | None]:
    """Returns `stored_types.stored_types` of a program, which keeps it until more code is lowered."""
    key = "numerics stores", program.version
    if key not in program.kept:
        program.kept[key] = stored_types(program)
    found: dict[int, StoredType | None] = program.kept[key]
    return found


def table_of(program: Program, types: dict[int, StoredType | None]) -> np.ndarray:
    """Returns u64 by record: low field | high field << 32 | WIDE for f64; 0 if unknown."""
    table = np.zeros(program.count + 1, np.uint64)
    for index, one in types.items():
        if one is not None:
            table[index] = one.low | one.high << 32 | WIDE * one.wide
    return table


def emit(frame: Frame, access: Access, data: OperandPlace) -> None:
    """Emits a note of the NaN and infinities that an access stores. data: its registers."""
    build = frame.build
    registers = data.bits // 32
    record = frame.slot(layout.SLOT_INDEX).zext(I64)
    fields = frame.context(BLOCK).pointer().at(NumericsBlock.stored.offset).load(I64, 8).pointer().at(record << 3).load(I64, 8)
    low, high = fields.trunc(I32), (fields >> 32).trunc(I32) & 0x7FFFFFFF
    source = frame.operand(data.slot)
    with build.if_then(fields != 0):
        found = frame.value(ir.Constant(ir.VectorType(I1, LANES), [0] * LANES))
        for number in range(registers):
            row = frame.row(source, number)
            for field in (low.splat(LANES), high.splat(LANES)):
                found = found | ((row & field) == field)
        with build.if_then((found.bitcast(I64) & frame.value(access.lanes)) != 0, likely=False):
            frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
            note_stored.call(build, frame.wave, record, access.lanes, source, registers, fields, base, access.size)


@runtime
def note_stored(wave: int, record: int, lanes: int, rows: int, registers: int, fields: int, base: int, size: int) -> None:
    """Counts NaN and infinities in the registers of a store's lanes, and notes where the first goes.

    fields: see `table_of`. base: address of the allocation, to which the wave's ADDRESSES are offsets. size: bytes a lane.
    """
    wide = fields < 0
    low, high = fields & 0x7FFFFFFF, fields >> 32 & 0x7FFFFFFF
    for kind in (NAN, INFINITY):
        mask, count, first, place = 0, 0, 0, 0
        for lane in range(LANES):
            if not lanes >> lane & 1:
                continue
            for number in range(registers):
                if wide and number & 1 == 0:
                    continue
                word = load32(rows + layout.ROW * number + 4 * lane) & 0xFFFFFFFF
                for part in range(2):
                    field = high if part else low
                    if (part and high == low) or word & field != field:
                        continue
                    fraction = (field & -field) - 1
                    if part:
                        fraction &= ~0xFFFF
                    nan = word & fraction != 0
                    if wide and load32(rows + layout.ROW * (number - 1) + 4 * lane) != 0:
                        nan = True
                    if nan == (kind == NAN):
                        if mask == 0:
                            first = word
                            within = 4 * (number - 1 if wide else number) + 2 * part
                            place = base + load64(wave + layout.ADDRESSES + 8 * lane) + (within if within < size else within - 2)
                        mask |= 1 << lane
                        count += 1
        if mask:
            entry = enter(wave, record, kind, mask, count, 0)
            if entry:
                keep(entry, 0, first)
                keep(entry, 1, place)
