"""LDS operations in flight when their wave comes to a barrier, and who touches their bytes behind it.

A barrier orders what is complete. An operation that a wave has not waited for when it arrives is carried over
it: until the wave comes to a later barrier and has waited, another wave's access to the same bytes clashes with
it where one of the two writes. A wave has a list of what the last barrier carried (`NOW`), and one of what the
barrier at which it waits will (`NEXT`), which takes the place of the former when all waves have arrived.
"""

from __future__ import annotations

import numpy as np

from simgpu.checks.waits.in_flight import DS_DONE, DS_ISSUED, FLAG_SHIFT, LEFT_SHIFT
from simgpu.engine.events import enter, event
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import copy, load32, load64, part, seldom, store64, words

# An entry of a wave's log of LDS accesses: record, flags and size; lanes; its number among the wave's LDS
# operations; offsets (one where the lanes follow each other).
CARRIED = event("LDS in flight behind a barrier")
HEAD, MASK, NUMBER, OFFSETS = 0, 8, 16, 24
LOG_BYTES = OFFSETS + 4 * LANES
FLAGS_SHIFT, SIZE_SHIFT = 32, 40
WRITES, ATOMIC, COHERENT, RETURNS, SCALAR, STRAIGHT, QUEUED = (1 << bit for bit in range(7))
# A list: how many, then the entries, each behind its first and last byte and the lgkmcnt that would have waited
# for it before the barrier. lgkmcnt counts 15 at most, and no operation makes more than two accesses.
NOW, NEXT, LISTS = range(3)
FIRST, LAST, LEFT, ENTRY = 0, 8, 16, 24
ENTRIES, STRIDE = 32, ENTRY + LOG_BYTES
LIST_BYTES = 8 + ENTRIES * STRIDE


@part
def offset_of(log: int, lane: int) -> int:
    """Where a lane of a logged access begins."""
    if load64(log + HEAD) >> FLAGS_SHIFT & STRAIGHT:
        return load32(log + OFFSETS) + lane * (load64(log + HEAD) >> SIZE_SHIFT)
    return load32(log + OFFSETS + 4 * lane)


@part
def add(where: int, log: int, left: int) -> None:
    """Put a logged access into a list."""
    count = load64(where)
    if count == ENTRIES:
        return
    store64(where, count + 1)
    entry = where + 8 + STRIDE * count
    lanes, size = load64(log + MASK), load64(log + HEAD) >> SIZE_SHIFT
    first, last = 1 << 40, -1
    for lane in range(LANES):
        if lanes >> lane & 1:
            at = offset_of(log, lane)
            first, last = min(first, at), max(last, at + size - 1)
    store64(entry + FIRST, first)
    store64(entry + LAST, last)
    store64(entry + LEFT, left)
    copy(entry + ENTRY, log, LOG_BYTES)


@seldom
def arrive(wave: int, lists: int, log: int, entries: int) -> None:
    """A wave comes to a barrier: list what it has not waited for.

    log: of its accesses since the last barrier, a count and the latest `entries` of them.
    """
    following = lists + NEXT * LIST_BYTES
    store64(following, 0)
    issued, done = load64(wave + DS_ISSUED), load64(wave + DS_DONE)
    if issued <= done:
        return
    count = load64(log)
    for back in range(1, min(count, entries) + 1):
        entry = log + 8 + (count - back) % entries * LOG_BYTES
        if load64(entry + HEAD) >> FLAGS_SHIFT & QUEUED:
            if load64(entry + NUMBER) <= done:
                break
            add(following, entry, issued - load64(entry + NUMBER))
    current = lists + NOW * LIST_BYTES
    for at in range(load64(current)):
        entry = current + 8 + STRIDE * at + ENTRY
        if load64(entry + NUMBER) > done:
            add(following, entry, issued - load64(entry + NUMBER))


@seldom
def pass_on(lists: int) -> int:
    """All waves have arrived, or this one ended: what it carries; how much that is."""
    current, following = lists + NOW * LIST_BYTES, lists + NEXT * LIST_BYTES
    count = load64(following)
    if count:
        copy(current, following, 8 + STRIDE * count)
    store64(current, count)
    store64(following, 0)
    return count


@part
def overlap(log: int, size: int, lanes: int, offsets: np.ndarray) -> int:
    """A byte that both a logged access and one of these lanes touch, times 64 plus the lane; or -1."""
    mask, theirs = load64(log + MASK), load64(log + HEAD) >> SIZE_SHIFT
    for lane in range(LANES):
        if lanes >> lane & 1:
            for other in range(LANES):
                if mask >> other & 1:
                    at = offset_of(log, other)
                    if at < offsets[lane] + size and offsets[lane] < at + theirs:
                        return max(at, offsets[lane]) * LANES + lane
    return -1


@seldom
def look_carried(
    wave: int, record: int, lanes: int, size: int, flags: int, lists: int, me: int, waves: int
) -> None:
    """Report what of other waves' operations an access clashes with; lists: of wave 0, the others' behind."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    first, last = 1 << 40, -1
    for lane in range(LANES):
        if lanes >> lane & 1:
            first, last = min(first, offsets[lane]), max(last, offsets[lane] + size - 1)
    for other in range(waves):
        current = lists + other * LISTS * LIST_BYTES + NOW * LIST_BYTES
        for at in range(0 if other == me else load64(current)):
            entry = current + 8 + STRIDE * at
            there = load64(entry + ENTRY + HEAD) >> FLAGS_SHIFT
            if not (flags | there) & WRITES or flags & there & ATOMIC:
                continue
            if first > load64(entry + LAST) or last < load64(entry + FIRST):
                continue
            found = overlap(entry + ENTRY, size, lanes, offsets)
            if found >= 0:
                place = found // LANES | load64(entry + LEFT) << LEFT_SHIFT
                place |= (1 if flags & WRITES else 0) << FLAG_SHIFT
                behind = load64(entry + ENTRY + HEAD) & 0xFFFFFFFF
                enter(wave, record, CARRIED, 1 << found % LANES, place, behind)
                return
