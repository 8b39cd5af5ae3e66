"""The shadow of a workgroup's LDS: bitmaps of what its waves did since the last barrier, and each wave's log."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from simgpu.checks.races.lds.carried import (  # fmt: skip
    ATOMIC,
    FLAGS_SHIFT,
    HEAD,
    LIST_BYTES,
    LISTS,
    LOG_BYTES,
    MASK,
    NUMBER,
    OFFSETS,
    SIZE_SHIFT,
    STRAIGHT,
    WRITES,
    offset_of,
)
from simgpu.machine import intrinsics
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import builtin, load32, load64, part, seldom, store64, words
from simgpu.machine.values import I64, Builder, Value

# A slot's shadow: a header, then bitmaps of one bit a byte, in u64 words: what any wave wrote, an access that is looked at (else
# clear), what each wave did; then each wave's log; then each wave's lists of `race_carried`.
ANY_WRITE, TOUCHED, OWN = range(3)
OWN_WRITE, OWN_READ, OWN_ATOMIC, OWN_MAPS = range(4)
# The header: whether there were atomics; what the last barrier carried; waves, as bits, with bits in their map of writes, of reads,
# and with reads that are in their log alone (`mark_reads`), from an entry on whose number stands at MARKED + wave. Where what was
# written lies, and what these reads read: from which byte on, from the LDS' end backwards, and up to which; 0: nothing.
ATOMICS, CARRIED, WRITERS, READERS, UNMARKED, WRITTEN, READ, MARKED, HEADER = 0, 1, 2, 3, 4, 5, 7, 16, 32
END = 1 << 32  # an offset above all others
LOG_ENTRIES = 256
OFFSETS_OF_LANES = ir.VectorType(I64, LANES)
LINE, WORDS = 64, 8  # bytes of a host's cache line, words
ROW = 16  # words of 64 lanes of 128 bits that follow each other


def shadow_bytes(lds_bytes: int, waves: int) -> int:
    """Bytes of the shadow of a workgroup's LDS."""
    each = 8 * OWN_MAPS * map_words(lds_bytes) + 8 + LOG_ENTRIES * LOG_BYTES + LISTS * LIST_BYTES
    return -(-(8 * HEADER + 8 * OWN * map_words(lds_bytes) + waves * each) // LINE) * LINE


def map_words(lds_bytes: int) -> int:
    """u64 words of one bitmap, in whole lines; at least one more than the bytes take, so that a mask may spill over."""
    return -(-(-(-lds_bytes // 64) + 1) // WORDS) * WORDS


@part
def bitmap(shadow: int, which: int, count: int) -> np.ndarray:
    return words(shadow + 8 * (HEADER + which * count), count)


@part
def log_of(shadow: int, wave: int, waves: int, count: int) -> int:
    return shadow + 8 * (HEADER + count * (OWN + OWN_MAPS * waves)) + wave * (8 + LOG_ENTRIES * LOG_BYTES)


@part
def lists_of(shadow: int, wave: int, waves: int, count: int) -> int:
    """The lists of what a wave's operations own behind a barrier."""
    return log_of(shadow, waves, waves, count) + wave * LISTS * LIST_BYTES


@part
def note_kind(shadow: int, which: int, wave: int) -> None:
    """Have the header say that a wave is one of WRITERS, READERS or UNMARKED."""
    store64(shadow + 8 * which, load64(shadow + 8 * which) | 1 << wave)


@builtin
def lowest(build: Builder, offsets: Value) -> Value:
    """The least of 64 offsets, those of lanes that are not active among them."""
    return _reduced(build, "smin", offsets)


@builtin
def highest(build: Builder, offsets: Value) -> Value:
    """The largest of them."""
    return _reduced(build, "smax", offsets)


@builtin
def together(build: Builder, offsets: Value) -> Value:
    """The bits that any of them has."""
    return _reduced(build, "or", offsets)


def _reduced(build: Builder, how: str, offsets: Value) -> Value:
    row = offsets.pointer().load(OFFSETS_OF_LANES, align=8)
    return Value(build, intrinsics.call(build, f"llvm.vector.reduce.{how}.v64i64", I64, [row]))


@part
def note_extent(shadow: int, which: int, first: int, end: int) -> None:
    """Have WRITTEN or READ hold these bytes as well."""
    here = shadow + 8 * which
    store64(here, max(load64(here), END - first))
    store64(here + 8, max(load64(here + 8), end))


@part
def meets(shadow: int, which: int, first: int, end: int) -> bool:
    """Whether one of these bytes may be of WRITTEN or READ."""
    here = shadow + 8 * which
    return (first < load64(here + 8)) & (END - load64(here) < end)


@part
def log(at: int, record: int, flags: int, size: int, lanes: int, number: int, offsets: np.ndarray) -> None:
    """Add an access to a wave's log, which keeps the latest."""
    count = load64(at)
    store64(at, count + 1)
    entry = at + 8 + count % LOG_ENTRIES * LOG_BYTES
    store64(entry + HEAD, record | flags << FLAGS_SHIFT | size << SIZE_SHIFT)
    store64(entry + MASK, lanes)
    store64(entry + NUMBER, number)
    places = words(entry + OFFSETS, LANES // 2).view(np.int32)
    if flags & STRAIGHT:
        places[0] = offsets[0]
    else:
        for lane in range(LANES):
            places[lane] = offsets[lane]


@part
def logged(at: int, byte: int, writes: bool, atomic: bool) -> int:
    """Record of the latest access in a log to a byte that is a write, or an atomic, or neither; or -1."""
    count = load64(at)
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = at + 8 + (count - back) % LOG_ENTRIES * LOG_BYTES
        head = load64(entry + HEAD)
        flags, size, lanes = head >> FLAGS_SHIFT & 255, head >> SIZE_SHIFT, load64(entry + MASK)
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
def mark(shadow: int, count: int, me: int, flags: int, at: int, mask: int) -> None:
    """Enter an access to the bytes of `mask` in word `at`."""
    maps = shadow + 8 * (HEADER + at)
    kind = OWN_ATOMIC if flags & ATOMIC else OWN_WRITE if flags & WRITES else OWN_READ
    mine = maps + 8 * count * (OWN + OWN_MAPS * me + kind)
    store64(mine, load64(mine) | mask)
    if kind == OWN_WRITE:
        store64(maps, load64(maps) | mask)


@part
def mark_words(shadow: int, count: int, me: int, flags: int, first: int, size: int) -> None:
    """Enter an access to all bytes of `size` words."""
    kind = OWN_WRITE if flags & WRITES else OWN_READ
    bitmap(shadow, OWN + OWN_MAPS * me + kind, count)[first : first + size] = -1
    if flags & WRITES:
        bitmap(shadow, ANY_WRITE, count)[first : first + size] = -1


@part
def leave_unmarked(shadow: int, count: int, me: int, waves: int) -> None:
    """Leave the read that is about to be logged to `mark_reads`: what is only read until the next barrier needs no marks."""
    if not load64(shadow + 8 * UNMARKED) >> me & 1:
        store64(shadow + 8 * (MARKED + me), load64(log_of(shadow, me, waves, count)))
        note_kind(shadow, UNMARKED, me)


@part
def make_room(shadow: int, count: int, me: int, waves: int) -> None:
    """Before an access is logged: mark the reads that are only logged where one of them would make place for it."""
    if load64(shadow + 8 * UNMARKED) >> me & 1:
        logged = load64(log_of(shadow, me, waves, count))
        if logged - load64(shadow + 8 * (MARKED + me)) >= LOG_ENTRIES:
            mark_reads(shadow, count, me, waves)


@seldom
def mark_reads(shadow: int, count: int, me: int, waves: int) -> None:
    """Mark the reads of a wave that are only logged."""
    there = log_of(shadow, me, waves, count)
    read = bitmap(shadow, OWN + OWN_MAPS * me + OWN_READ, count)
    for number in range(load64(shadow + 8 * (MARKED + me)), load64(there)):
        entry = there + 8 + number % LOG_ENTRIES * LOG_BYTES
        head, lanes = load64(entry + HEAD), load64(entry + MASK)
        if head >> FLAGS_SHIFT & (WRITES | ATOMIC | STRAIGHT) == 0:
            size = head >> SIZE_SHIFT
            for lane in range(LANES):
                if lanes >> lane & 1:
                    offset = load32(entry + OFFSETS + 4 * lane)
                    at, shift = offset >> 6, offset & 63
                    read[at] |= ((1 << size) - 1) << shift
                    if shift + size > 64:
                        read[at + 1] |= ((1 << size) - 1) >> (64 - shift)
    store64(shadow + 8 * UNMARKED, load64(shadow + 8 * UNMARKED) & ~(1 << me))
    note_kind(shadow, READERS, me)


@part
def mark_all_reads(shadow: int, count: int, waves: int) -> None:
    """The same of all waves."""
    unmarked = load64(shadow + 8 * UNMARKED)
    if unmarked:
        for wave in range(waves):
            if unmarked >> wave & 1:
                mark_reads(shadow, count, wave, waves)
    store64(shadow + 8 * READ, 0)
    store64(shadow + 8 * (READ + 1), 0)
