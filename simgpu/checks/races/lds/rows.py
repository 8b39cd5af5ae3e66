"""Fast path for plain accesses of all 64 lanes to 128 bits each, at consecutive addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.checks.races.lds.carried import WRITES
from simgpu.checks.races.lds.shadow import (  # fmt: skip
    OWN,
    OWN_MAPS,
    OWN_READ,
    OWN_WRITE,
    ROW,
    log,
    log_of,
    make_room,
    maps_at,
    mark_all_reads,
    meets,
    note_extent,
    view_of,
)
from simgpu.checks.waits.in_flight import DS_ISSUED
from simgpu.engine.workgroup import waves_of
from simgpu.machine import layout
from simgpu.machine.intrinsics import any_lane
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import builtin, load32, load64, part, words
from simgpu.machine.values import I64, Builder, IrValue

ROW_OF_WORDS = ir.VectorType(I64, ROW)


@builtin
def some_bits(build: Builder, row: IrValue) -> IrValue:
    """True if any bit of ROW words is set."""
    return _any_bit(row.pointer().load(ROW_OF_WORDS, align=8))


@builtin
def other_bits(build: Builder, row: IrValue, own: IrValue) -> IrValue:
    """True if any bit of ROW words is set that is not set in `own`."""
    return _any_bit(row.pointer().load(ROW_OF_WORDS, align=8) & ~own.pointer().load(ROW_OF_WORDS, align=8))


@builtin
def all_bits(build: Builder, row: IrValue) -> None:
    """Sets all bits of ROW words."""
    row.pointer().store(ir.Constant(ROW_OF_WORDS, [-1] * ROW), align=8)


def _any_bit(bits: IrValue) -> IrValue:
    return any_lane(bits != ir.Constant(ROW_OF_WORDS, None))


@part
def row_alone(wave: int, record: int, flags: int, block: Any, slot: int) -> bool:
    """Enters a plain access of all 64 lanes to ROW consecutive words of the bitmaps, if it begins at a word and nothing clashes.
    Otherwise returns False; the access is not entered."""
    first, waves, me = load64(wave + layout.ADDRESSES), waves_of(wave), load32(wave + layout.WAVE_ID)
    view = view_of(block, slot, waves)
    shadow = view.shadow
    if first & 63 or shadow.atomics | shadow.carried:
        return False
    maps, step, apart = maps_at(view, 0) + 8 * (first >> 6), 8 * view.count, ~(1 << me)
    own = maps + step * (OWN + OWN_MAPS * me)
    if shadow.writers & apart and other_bits(maps, own + step * OWN_WRITE):
        return False
    if flags & WRITES:
        if meets(shadow.read, first, first + 64 * ROW):
            mark_all_reads(view)
        readers = shadow.readers & apart
        for other in range(waves):
            if readers >> other & 1 and some_bits(maps + step * (OWN + OWN_MAPS * other + OWN_READ)):
                return False
        all_bits(maps)
        all_bits(own + step * OWN_WRITE)
        shadow.writers |= 1 << me
        note_extent(shadow.written, first, first + 64 * ROW)
    else:
        all_bits(own + step * OWN_READ)
        shadow.readers |= 1 << me
    make_room(view, me)
    log(log_of(view, me), record, flags, ROW, -1, load64(wave + DS_ISSUED), words(wave + layout.ADDRESSES, LANES))
    return True
