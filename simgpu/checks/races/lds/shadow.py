"""Shadow of a workgroup's LDS: bitmaps of its waves' accesses since the last barrier, and each wave's log."""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from simgpu.checks.races.lds.carried import (  # fmt: skip
    ATOMIC,
    CARRIED_LISTS,
    FLAGS_SHIFT,
    LISTS_BYTES,
    LOG_ENTRIES,
    SIZE_SHIFT,
    STRAIGHT,
    WRITES,
    LdsLog,
    offset_of,
)
from simgpu.machine import intrinsics
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import address_of, builtin, cold_part, load64, part, records, store64, structure, words
from simgpu.machine.values import I64, Builder, IrValue

# A slot's shadow consists of an LdsShadow, bitmaps, each wave's log, and each wave's CarriedLists. A bitmap has one bit per byte
# of LDS, in u64 words. Bitmaps: writes of any wave, bytes of the current access (clear between accesses), accesses of each wave.
ANY_WRITE, TOUCHED, OWN = range(3)
OWN_WRITE, OWN_READ, OWN_ATOMIC, OWN_MAPS = range(4)
END = 1 << 32  # an offset above all others
OFFSETS_OF_LANES = ir.VectorType(I64, LANES)
LINE, WORDS = 64, 8  # bytes and u64 words of a host cache line
ROW = 16  # bitmap words of 64 consecutive lanes of 128 bits; also their bytes a lane
WAVES = 16  # most waves of a workgroup


class ByteExtent(Structure):
    """A range that includes all bytes of a set: END minus the first byte, and the last byte + 1; both 0 if it is empty."""

    _fields_ = (("before_end", c_int64), ("end", c_int64))


class LdsShadow(Structure):
    """Head of the shadow of a slot's LDS. Sets of waves are bits."""

    _fields_ = (
        ("atomics", c_int64),  # 1 if there were atomics
        ("carried", c_int64),  # number of accesses that the last barrier carried
        ("writers", c_int64),  # waves with bits in their map of writes
        ("readers", c_int64),  # waves with bits in their map of reads
        ("unmarked", c_int64),  # waves with reads that are only in their log (`mark_reads`)
        ("written", ByteExtent),  # bytes written
        ("read", ByteExtent),  # bytes of reads that are only in logs
        ("unused", c_int64 * 7),
        ("marked", c_int64 * WAVES),  # number of a wave's first log entry with a read that is only in the log
    )


LDS_SHADOW, HEADER_BYTES = np.dtype(LdsShadow), sizeof(LdsShadow)
LDS_LOG, LOG_BYTES = np.dtype(LdsLog), sizeof(LdsLog)


class LdsView(NamedTuple):
    """Shadow of a workgroup's LDS."""

    shadow: Any  # LdsShadow
    count: int  # words of a bitmap
    waves: int


def shadow_bytes(lds_bytes: int, waves: int) -> int:
    """Returns the bytes of the shadow of a workgroup's LDS."""
    each = 8 * OWN_MAPS * map_words(lds_bytes) + LOG_BYTES + LISTS_BYTES
    return -(-(HEADER_BYTES + 8 * OWN * map_words(lds_bytes) + waves * each) // LINE) * LINE


def map_words(lds_bytes: int) -> int:
    """Returns the u64 words of one bitmap, in whole lines. There is at least one spare word, which a mask may spill into."""
    return -(-(-(-lds_bytes // 64) + 1) // WORDS) * WORDS


@part
def view_of(block: Any, slot: int, waves: int) -> LdsView:
    """Returns the shadow of a slot."""
    return LdsView(structure(block.lds_shadow + slot * block.lds_stride, LDS_SHADOW), block.lds_words, waves)


@part
def maps_at(view: LdsView, which: int) -> int:
    """Returns the address of a bitmap."""
    return address_of(view.shadow) + HEADER_BYTES + 8 * which * view.count


@part
def bitmap(view: LdsView, which: int) -> np.ndarray:
    """Returns a bitmap that belongs to no single wave."""
    return words(maps_at(view, which), view.count)


@part
def own_map(view: LdsView, wave: int, kind: int) -> np.ndarray:
    """Returns a wave's bitmap of writes, reads or atomics."""
    return words(maps_at(view, OWN + OWN_MAPS * wave + kind), view.count)


@part
def log_of(view: LdsView, wave: int) -> Any:
    """Returns a wave's log."""
    return structure(maps_at(view, OWN + OWN_MAPS * view.waves) + wave * LOG_BYTES, LDS_LOG)


@part
def lists_of(view: LdsView) -> np.ndarray:
    """Returns the waves' lists of operations carried over barriers."""
    return records(address_of(log_of(view, view.waves)), view.waves, CARRIED_LISTS)


@builtin
def lowest(build: Builder, offsets: IrValue) -> IrValue:
    """Returns the least of 64 offsets, inactive lanes included."""
    return _reduce(build, "smin", offsets)


@builtin
def highest(build: Builder, offsets: IrValue) -> IrValue:
    """Returns the largest of 64 offsets."""
    return _reduce(build, "smax", offsets)


@builtin
def union_of(build: Builder, offsets: IrValue) -> IrValue:
    """Returns the bits that are set in any of 64 offsets."""
    return _reduce(build, "or", offsets)


def _reduce(build: Builder, how: str, offsets: IrValue) -> IrValue:
    row = offsets.pointer().load(OFFSETS_OF_LANES, align=8)
    return IrValue(build, intrinsics.call(build, f"llvm.vector.reduce.{how}.v64i64", I64, [row]))


@part
def note_extent(extent: Any, first: int, end: int) -> None:
    """Extends an extent to include these bytes."""
    extent.before_end = max(extent.before_end, END - first)
    extent.end = max(extent.end, end)


@part
def forget_extent(extent: Any) -> None:
    """Empties an extent."""
    extent.before_end = 0
    extent.end = 0


@part
def meets(extent: Any, first: int, end: int) -> bool:
    """True if one of these bytes may be in an extent."""
    return (first < extent.end) & (END - extent.before_end < end)


@part
def log(where: Any, record: int, flags: int, size: int, lanes: int, number: int, offsets: np.ndarray) -> None:
    """Adds an access to a wave's log, which keeps the latest."""
    count = where.count
    where.count = count + 1
    entry = where.entries[count % LOG_ENTRIES]
    entry.head = record | flags << FLAGS_SHIFT | size << SIZE_SHIFT
    entry.lanes = lanes
    entry.number = number
    places = entry.offsets
    if flags & STRAIGHT:
        places[0] = offsets[0]
    else:
        for lane in range(LANES):
            places[lane] = offsets[lane]


@part
def last_logged(where: Any, byte: int, writes: bool, atomic: bool) -> int:
    """Returns the record of the latest logged access to a byte of this kind (write, atomic, or neither), -1 if none."""
    count = where.count
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = where.entries[(count - back) % LOG_ENTRIES]
        if touches(entry, byte, writes, atomic):
            return entry.head & 0xFFFFFFFF
    return -1


@part
def touches(entry: Any, byte: int, writes: bool, atomic: bool) -> bool:
    """True if a logged access is of this kind (write, atomic, or neither) and to a byte."""
    head = entry.head
    flags, size, lanes = head >> FLAGS_SHIFT & 255, head >> SIZE_SHIFT, entry.lanes
    if (flags & ATOMIC != 0) != atomic or (not atomic and (flags & WRITES != 0) != writes):
        return False
    if flags & STRAIGHT:
        return 0 <= byte - offset_of(entry, 0) < size * LANES
    for lane in range(LANES):
        if lanes >> lane & 1 and 0 <= byte - offset_of(entry, lane) < size:
            return True
    return False


@part
def mark(view: LdsView, me: int, flags: int, at: int, mask: int) -> None:
    """Enters an access to the bytes of `mask` in word `at`."""
    maps = maps_at(view, 0) + 8 * at
    kind = OWN_ATOMIC if flags & ATOMIC else OWN_WRITE if flags & WRITES else OWN_READ
    mine = maps + 8 * view.count * (OWN + OWN_MAPS * me + kind)
    store64(mine, load64(mine) | mask)
    if kind == OWN_WRITE:
        store64(maps, load64(maps) | mask)


@part
def mark_words(view: LdsView, me: int, flags: int, first: int, size: int) -> None:
    """Enters an access to all bytes of `size` words."""
    own_map(view, me, OWN_WRITE if flags & WRITES else OWN_READ)[first : first + size] = -1
    if flags & WRITES:
        bitmap(view, ANY_WRITE)[first : first + size] = -1


@part
def leave_unmarked(view: LdsView, me: int) -> None:
    """Leaves the marks of the read that is about to be logged to `mark_reads`: without a write before the next barrier, none are
    needed."""
    shadow = view.shadow
    if not shadow.unmarked >> me & 1:
        shadow.marked[me] = log_of(view, me).count
        shadow.unmarked |= 1 << me


@part
def make_room(view: LdsView, me: int) -> None:
    """Marks the reads that are only logged, if the next log entry would overwrite one of them."""
    if view.shadow.unmarked >> me & 1:
        if log_of(view, me).count - view.shadow.marked[me] >= LOG_ENTRIES:
            mark_reads(view, me)


@cold_part
def mark_reads(view: LdsView, me: int) -> None:
    """Marks the reads of a wave that are only logged."""
    there, shadow = log_of(view, me), view.shadow
    read = own_map(view, me, OWN_READ)
    for number in range(shadow.marked[me], there.count):
        entry = there.entries[number % LOG_ENTRIES]
        head, lanes = entry.head, entry.lanes
        if head >> FLAGS_SHIFT & (WRITES | ATOMIC | STRAIGHT) == 0:
            size = head >> SIZE_SHIFT
            for lane in range(LANES):
                if lanes >> lane & 1:
                    offset = entry.offsets[lane]
                    at, shift = offset >> 6, offset & 63
                    read[at] |= ((1 << size) - 1) << shift
                    if shift + size > 64:
                        read[at + 1] |= ((1 << size) - 1) >> (64 - shift)
    shadow.unmarked &= ~(1 << me)
    shadow.readers |= 1 << me


@part
def mark_all_reads(view: LdsView) -> None:
    """Marks the logged reads of all waves."""
    unmarked = view.shadow.unmarked
    if unmarked:
        for wave in range(view.waves):
            if unmarked >> wave & 1:
                mark_reads(view, wave)
    forget_extent(view.shadow.read)
