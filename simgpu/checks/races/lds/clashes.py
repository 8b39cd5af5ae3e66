"""Tests an access to LDS for clashes, and reports them."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.checks.races.cells import EPOCH_SHIFT, SITES, WAVE_SHIFT
from simgpu.checks.races.lds.carried import ATOMIC, FLAGS_SHIFT, LOG_ENTRIES, SIZE_SHIFT, WRITES, offset_of
from simgpu.checks.races.lds.order import ordered_by_atomics
from simgpu.checks.races.lds.shadow import (  # fmt: skip
    ANY_WRITE,
    OWN_ATOMIC,
    OWN_MAPS,
    OWN_READ,
    OWN_WRITE,
    TOUCHED,
    LdsView,
    bitmap,
    last_logged,
    log_of,
    meets,
    own_map,
)
from simgpu.engine.events import enter_at, event
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import cold_part, load64, octets, part

# A race is one event for a pair of records, whichever ran first: the event of the higher record, with the lower one in `extra`.
# Its `lanes` hold the lane of the access that found the race, and flags. BOTH_WRITE: both sides wrote. SWAPPED: that access is
# at the lower record. WROTE: that access wrote. The other side's workgroup and wave are above these.
RACE, DUPLICATE = event("race on LDS"), event("same bytes written")
LANE, BOTH_WRITE, SWAPPED, WROTE = 63, 64, 128, 256
OTHER_SHIFT = 16


@part
def is_unchanged(wave: int, offset: int, staged: int, count: int) -> bool:
    """True if LDS already holds the bytes that a staged store will write there."""
    memory, fresh = octets(load64(wave + layout.LDS_BASE) + offset, count), octets(wave + layout.STAGING + staged, count)
    changed = 0
    for at in range(count):
        changed |= memory[at] ^ fresh[at]
    return changed == 0


@part
def clash(view: LdsView, me: int, flags: int, at: int, mask: int) -> int:
    """Returns the bits of `mask` in word `at` where another wave than `me` clashes with an access."""
    found = bitmap(view, ANY_WRITE)[at] & ~own_map(view, me, OWN_WRITE)[at]
    if flags & WRITES:
        for other in range(view.waves):
            if other != me:
                found |= own_map(view, other, OWN_READ)[at]
    if not flags & ATOMIC and view.shadow.atomics:
        for other in range(view.waves):
            if other != me:
                found |= own_map(view, other, OWN_ATOMIC)[at]
    return found & mask


@part
def quick_read(view: LdsView, me: int, size: int, lanes: int, offsets: np.ndarray, first: int, end: int) -> bool:
    """True if a plain read of bytes from first to end - 1 clashes; no lane's bytes may cross a word boundary."""
    if not view.shadow.writers & ~(1 << me) or not meets(view.shadow.written, first, end):
        return False
    written, own = bitmap(view, ANY_WRITE), own_map(view, me, OWN_WRITE)
    ones, found = (1 << size) - 1, 0
    for lane in range(LANES):
        at, mask = offsets[lane] >> 6, ones << (offsets[lane] & 63)
        if lanes >> lane & 1:
            found |= written[at] & ~own[at] & mask
    return found != 0


@part
def words_clash(view: LdsView, me: int, flags: int, first: int, size: int) -> bool:
    """True if an access to all bytes of `size` consecutive words clashes. The loops compile to vector instructions."""
    found = 0
    written, own = bitmap(view, ANY_WRITE)[first : first + size], own_map(view, me, OWN_WRITE)[first : first + size]
    for i in range(size):
        found |= written[i] & ~own[i]
    for other in range(view.waves):
        if other != me:
            if flags & WRITES:
                read = own_map(view, other, OWN_READ)[first : first + size]
                for i in range(size):
                    found |= read[i]
            if view.shadow.atomics:
                atomic = own_map(view, other, OWN_ATOMIC)[first : first + size]
                for i in range(size):
                    found |= atomic[i]
    return found != 0


@part
def other_side(view: LdsView, wave: int, flags: int, byte: int) -> tuple[int, bool, bool]:
    """Returns a wave that clashes at a byte, True if it wrote, and True if it was an atomic; -1 if there is none."""
    at, bit = byte >> 6, byte & 63
    for kind in range(OWN_MAPS):
        if (kind == OWN_READ and not flags & WRITES) or (kind == OWN_ATOMIC and flags & ATOMIC):
            continue
        for other in range(view.waves):
            if other != wave and own_map(view, other, kind)[at] >> bit & 1:
                return other, kind == OWN_WRITE, kind == OWN_ATOMIC
    return -1, False, False


@cold_part
def repeats(wave: int, record: int, lanes: int, size: int, offsets: np.ndarray, view: LdsView, me: int) -> bool:
    """True if a write stores the bytes that LDS already holds, and that other waves wrote by the same instruction. False if unsure.

    Triton programs do that if a block has fewer elements than threads. This test is faster than `explain` for each lane.
    Where several lanes write a byte, the highest one's remains. Lower ones may differ: sums in other orders are rounded otherwise.
    """
    if view.shadow.atomics:
        return False
    changed = 0
    memory = load64(wave + layout.LDS_BASE)
    touched = bitmap(view, TOUCHED)
    for lane in range(LANES - 1, -1, -1):
        if lanes >> lane & 1:
            held, fresh = octets(memory + offsets[lane], size), octets(wave + layout.STAGING + lane * size, size)
            for byte in range(size):
                at, mask = (offsets[lane] + byte) >> 6, 1 << ((offsets[lane] + byte) & 63)
                if touched[at] & mask == 0:
                    changed |= held[byte] ^ fresh[byte]
                    touched[at] |= mask
    same = changed == 0
    for other in range(view.waves):
        if same and other != me:
            read = bitmaps_meet(own_map(view, other, OWN_READ), touched, lanes, size, offsets)
            wrote = bitmaps_meet(own_map(view, other, OWN_WRITE), touched, lanes, size, offsets)
            same = not read and (not wrote or wrote_last(log_of(view, other), record, lanes, size, offsets, touched))
    for lane in range(LANES):
        if lanes >> lane & 1:
            at = offsets[lane] >> 6
            touched[at] = 0
            touched[at + 1] = 0
    return same


@part
def bitmaps_meet(theirs: np.ndarray, touched: np.ndarray, lanes: int, size: int, offsets: np.ndarray) -> bool:
    """True if a bitmap has a byte of an access. touched: bitmap of the access's bytes."""
    found = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            at, end = offsets[lane] >> 6, (offsets[lane] + size - 1) >> 6
            found |= (theirs[at] & touched[at]) | (theirs[end] & touched[end])
    return found != 0


@part
def wrote_last(log: Any, record: int, lanes: int, size: int, offsets: np.ndarray, touched: np.ndarray) -> bool:
    """True if a log's latest write to bytes of `touched` is by this record, with the same lanes, size and offsets."""
    count = log.count
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = log.entries[(count - back) % LOG_ENTRIES]
        head, mask = entry.head, entry.lanes
        if head >> FLAGS_SHIFT & WRITES == 0:
            continue
        bytes_ = head >> SIZE_SHIFT
        apart, overlaps = (head & 0xFFFFFFFF ^ record) | (mask ^ lanes) | (bytes_ ^ size), 0
        for lane in range(LANES):
            if mask >> lane & 1:
                at = offset_of(entry, lane)
                apart |= at ^ offsets[lane]
                shift = at & 63
                overlaps |= touched[at >> 6] >> shift & ((1 << bytes_) - 1)
                if shift + bytes_ > 64:
                    overlaps |= touched[(at >> 6) + 1] & (((1 << bytes_) - 1) >> (64 - shift))
        if apart == 0:
            return True
        if overlaps:
            return False
    return False


@cold_part
def explain(
    wave: int, record: int, flags: int, size: int, lane: int, offset: int, view: LdsView, block: Any, state: Any, tag: int
) -> int:
    """Reports a clash of one lane. Returns 1 if there is one, 2 if the lane only stores the bytes that are there, else 0."""
    me = tag >> WAVE_SHIFT & 15
    for byte in range(offset, offset + size):
        mask = 1 << (byte & 63)
        if not clash(view, me, flags, byte >> 6, mask):
            continue
        other, writes, atomic = other_side(view, me, flags, byte)
        if other < 0:
            continue
        there = last_logged(log_of(view, other), byte, writes, atomic)
        cell = tag >> EPOCH_SHIFT << EPOCH_SHIFT | other << WAVE_SHIFT
        if ordered_by_atomics(state, tag, cell, byte, log_of(view, other), writes, atomic):
            continue
        if flags & WRITES and writes and there == record and not flags & ATOMIC:
            if is_unchanged(wave, offset, lane * size, size):
                return 2
        seen = lane | (BOTH_WRITE if flags & WRITES and (writes or atomic) else 0) | (WROTE if flags & WRITES else 0)
        here, there = record, there if there >= 0 else record
        if there > here:
            here, there = there, here
            seen |= SWAPPED
        enter_at(wave, here, RACE, seen | other << OTHER_SHIFT, byte, there & SITES, record)
        return 1
    return 0
