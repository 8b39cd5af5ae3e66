"""The shadow of a workgroup's LDS: bitmaps of what its waves did since the last barrier, and each wave's log."""

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
from simgpu.machine.runtime import address_of, builtin, load64, part, records, seldom, store64, structure, words
from simgpu.machine.values import I64, Builder, IrValue

# A slot's shadow: an LdsShadow, then bitmaps of one bit a byte, in u64 words: what any wave wrote, an access that is looked at
# (else clear), what each wave did; then each wave's log; then each wave's CarriedLists.
ANY_WRITE, TOUCHED, OWN = range(3)
OWN_WRITE, OWN_READ, OWN_ATOMIC, OWN_MAPS = range(4)
END = 1 << 32  # an offset above all others
OFFSETS_OF_LANES = ir.VectorType(I64, LANES)
LINE, WORDS = 64, 8  # bytes of a host's cache line, words
ROW = 16  # words of 64 lanes of 128 bits that follow each other
WAVES = 16  # of a workgroup, at most


class Extent(Structure):
    """Bytes that hold all of some: END minus the first, and the one behind the last; 0: nothing."""

    _fields_ = (("before_end", c_int64), ("end", c_int64))


class LdsShadow(Structure):
    """Begins the shadow of a slot's LDS. Waves are bits."""

    _fields_ = (
        ("atomics", c_int64),  # whether there were some
        ("carried", c_int64),  # how much the last barrier carried
        ("writers", c_int64),  # waves with bits in their map of writes
        ("readers", c_int64),  # of reads
        ("unmarked", c_int64),  # waves with reads that are in their log only (`mark_reads`)
        ("written", Extent),
        ("read", Extent),  # by reads that are in logs only
        ("unused", c_int64 * 7),
        ("marked", c_int64 * WAVES),  # number of a wave's first entry in the log that is `unmarked`
    )


LDS_SHADOW, HEADER_BYTES = np.dtype(LdsShadow), sizeof(LdsShadow)
LDS_LOG, LOG_BYTES = np.dtype(LdsLog), sizeof(LdsLog)


class LdsView(NamedTuple):
    """The shadow of a workgroup's LDS."""

    shadow: Any  # LdsShadow
    count: int  # words of a bitmap
    waves: int


def shadow_bytes(lds_bytes: int, waves: int) -> int:
    """Bytes of the shadow of a workgroup's LDS."""
    each = 8 * OWN_MAPS * map_words(lds_bytes) + LOG_BYTES + LISTS_BYTES
    return -(-(HEADER_BYTES + 8 * OWN * map_words(lds_bytes) + waves * each) // LINE) * LINE


def map_words(lds_bytes: int) -> int:
    """u64 words of one bitmap, in whole lines; at least one more than the bytes take, so that a mask may spill over."""
    return -(-(-(-lds_bytes // 64) + 1) // WORDS) * WORDS


@part
def view_of(block: Any, slot: int, waves: int) -> LdsView:
    """That of a slot."""
    return LdsView(structure(block.lds_shadow + slot * block.lds_stride, LDS_SHADOW), block.lds_words, waves)


@part
def maps_at(view: LdsView, which: int) -> int:
    """Address of a bitmap."""
    return address_of(view.shadow) + HEADER_BYTES + 8 * which * view.count


@part
def bitmap(view: LdsView, which: int) -> np.ndarray:
    """One that is no wave's own."""
    return words(maps_at(view, which), view.count)


@part
def own_map(view: LdsView, wave: int, kind: int) -> np.ndarray:
    """What a wave wrote, read or did by atomics."""
    return words(maps_at(view, OWN + OWN_MAPS * wave + kind), view.count)


@part
def log_of(view: LdsView, wave: int) -> Any:
    """A wave's log."""
    return structure(maps_at(view, OWN + OWN_MAPS * view.waves) + wave * LOG_BYTES, LDS_LOG)


@part
def lists_of(view: LdsView) -> np.ndarray:
    """By wave, what its operations own behind a barrier."""
    return records(address_of(log_of(view, view.waves)), view.waves, CARRIED_LISTS)


@builtin
def lowest(build: Builder, offsets: IrValue) -> IrValue:
    """The least of 64 offsets, those of lanes that are not active among them."""
    return _reduced(build, "smin", offsets)


@builtin
def highest(build: Builder, offsets: IrValue) -> IrValue:
    """The largest of them."""
    return _reduced(build, "smax", offsets)


@builtin
def together(build: Builder, offsets: IrValue) -> IrValue:
    """The bits that any of them has."""
    return _reduced(build, "or", offsets)


def _reduced(build: Builder, how: str, offsets: IrValue) -> IrValue:
    row = offsets.pointer().load(OFFSETS_OF_LANES, align=8)
    return IrValue(build, intrinsics.call(build, f"llvm.vector.reduce.{how}.v64i64", I64, [row]))


@part
def note_extent(extent: Any, first: int, end: int) -> None:
    """Have an extent hold these bytes as well."""
    extent.before_end = max(extent.before_end, END - first)
    extent.end = max(extent.end, end)


@part
def forget_extent(extent: Any) -> None:
    """Have it hold nothing."""
    extent.before_end = 0
    extent.end = 0


@part
def meets(extent: Any, first: int, end: int) -> bool:
    """Whether one of these bytes may be in an extent."""
    return (first < extent.end) & (END - extent.before_end < end)


@part
def log(where: Any, record: int, flags: int, size: int, lanes: int, number: int, offsets: np.ndarray) -> None:
    """Add an access to a wave's log, which keeps the latest."""
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
def logged(where: Any, byte: int, writes: bool, atomic: bool) -> int:
    """Record of the latest access in a log to a byte that is a write, or an atomic, or neither; or -1."""
    count = where.count
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = where.entries[(count - back) % LOG_ENTRIES]
        head = entry.head
        flags, size, lanes = head >> FLAGS_SHIFT & 255, head >> SIZE_SHIFT, entry.lanes
        if (flags & ATOMIC != 0) != atomic or (not atomic and (flags & WRITES != 0) != writes):
            continue
        if flags & STRAIGHT:
            if 0 <= byte - offset_of(entry, 0) < size * LANES:
                return head & 0xFFFFFFFF
            continue
        for lane in range(LANES):
            if lanes >> lane & 1 and 0 <= byte - offset_of(entry, lane) < size:
                return head & 0xFFFFFFFF
    return -1


@part
def mark(view: LdsView, me: int, flags: int, at: int, mask: int) -> None:
    """Enter an access to the bytes of `mask` in word `at`."""
    maps = maps_at(view, 0) + 8 * at
    kind = OWN_ATOMIC if flags & ATOMIC else OWN_WRITE if flags & WRITES else OWN_READ
    mine = maps + 8 * view.count * (OWN + OWN_MAPS * me + kind)
    store64(mine, load64(mine) | mask)
    if kind == OWN_WRITE:
        store64(maps, load64(maps) | mask)


@part
def mark_words(view: LdsView, me: int, flags: int, first: int, size: int) -> None:
    """Enter an access to all bytes of `size` words."""
    own_map(view, me, OWN_WRITE if flags & WRITES else OWN_READ)[first : first + size] = -1
    if flags & WRITES:
        bitmap(view, ANY_WRITE)[first : first + size] = -1


@part
def leave_unmarked(view: LdsView, me: int) -> None:
    """Leave the read that is about to be logged to `mark_reads`: what is only read until the next barrier needs no marks."""
    shadow = view.shadow
    if not shadow.unmarked >> me & 1:
        shadow.marked[me] = log_of(view, me).count
        shadow.unmarked |= 1 << me


@part
def make_room(view: LdsView, me: int) -> None:
    """Before an access is logged: mark the reads that are only logged where one of them would make place for it."""
    if view.shadow.unmarked >> me & 1:
        if log_of(view, me).count - view.shadow.marked[me] >= LOG_ENTRIES:
            mark_reads(view, me)


@seldom
def mark_reads(view: LdsView, me: int) -> None:
    """Mark the reads of a wave that are only logged."""
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
    """The same of all waves."""
    unmarked = view.shadow.unmarked
    if unmarked:
        for wave in range(view.waves):
            if unmarked >> wave & 1:
                mark_reads(view, wave)
    forget_extent(view.shadow.read)
