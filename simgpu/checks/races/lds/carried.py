"""LDS operations that are in flight when their wave arrives at a barrier, and later accesses to their bytes.

A barrier orders only complete operations. An operation that a wave has not waited for is carried over the barrier. Until the
wave has waited and comes to a later barrier, another wave's access to the same bytes clashes with it if one of the two writes.

A wave has two lists: `now` for operations that the last barrier carried, and `next` for those that the barrier at which it
waits will carry. `next` replaces `now` when all waves have arrived.
"""

from __future__ import annotations

from ctypes import Structure, c_int32, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.checks.waits.in_flight import DS_DONE, DS_ISSUED, FLAG_SHIFT, LEFT_SHIFT
from simgpu.engine.events import enter, event
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import address_of, cold_part, copy, load64, part, words

CARRIED = event("LDS in flight behind a barrier")
FLAGS_SHIFT, SIZE_SHIFT = 32, 40
# Flags of an access, also of device memory. COHERENT: it bypasses caches. RETURNS: an atomic that returns. SCALAR: of a scalar
# load. STRAIGHT: all 64 lanes, at consecutive offsets. QUEUED: in the queue that lgkmcnt counts in order. SWAPS: an atomic on LDS
# that may take a lock, or a compare-and-swap of device memory.
WRITES, ATOMIC, COHERENT, RETURNS, SCALAR, STRAIGHT, QUEUED, SWAPS = (1 << bit for bit in range(8))
LOG_ENTRIES = 256  # accesses that a log keeps
ENTRIES = 32  # most entries of a list: lgkmcnt counts to 15, and an operation makes at most two accesses


class LoggedAccess(Structure):
    """An access to LDS."""

    _fields_ = (
        ("head", c_int64),  # record | flags << FLAGS_SHIFT | bytes a lane << SIZE_SHIFT
        ("lanes", c_int64),  # mask
        ("number", c_int64),  # number among the wave's LDS operations
        ("offsets", c_int32 * LANES),  # only the first is used if the lanes are consecutive
    )


class LdsLog(Structure):
    """Latest accesses of a wave to LDS since the last barrier."""

    # count: of all accesses; entry i % LOG_ENTRIES is access i
    _fields_ = (("count", c_int64), ("entries", LoggedAccess * LOG_ENTRIES))


class CarriedAccess(Structure):
    """An access that a barrier carries."""

    _fields_ = (
        ("first", c_int64),  # first byte
        ("last", c_int64),  # last byte
        ("left", c_int64),  # the lgkmcnt that would have waited for it before the barrier
        ("access", LoggedAccess),
    )


class CarriedList(Structure):
    """Accesses in flight at a barrier."""

    _fields_ = (("count", c_int64), ("entries", CarriedAccess * ENTRIES))


class CarriedLists(Structure):
    """Lists of a wave: operations carried by the last barrier, and by the barrier at which it waits."""

    _fields_ = (("now", CarriedList), ("next", CarriedList))


CARRIED_LISTS, LISTS_BYTES = np.dtype(CarriedLists), sizeof(CarriedLists)
LOGGED_BYTES, CARRIED_BYTES = sizeof(LoggedAccess), sizeof(CarriedAccess)


@part
def offset_of(access: Any, lane: int) -> int:
    """Returns the first byte of a lane of a logged access."""
    if access.head >> FLAGS_SHIFT & STRAIGHT:
        return access.offsets[0] + lane * (access.head >> SIZE_SHIFT)
    return access.offsets[lane]


@part
def add(where: Any, access: Any, left: int) -> None:
    """Adds a logged access to a list."""
    count = where.count
    if count == ENTRIES:
        return
    where.count = count + 1
    entry = where.entries[count]
    lanes, size = access.lanes, access.head >> SIZE_SHIFT
    first, last = 1 << 40, -1
    for lane in range(LANES):
        if lanes >> lane & 1:
            at = offset_of(access, lane)
            first, last = min(first, at), max(last, at + size - 1)
    entry.first = first
    entry.last = last
    entry.left = left
    copy(address_of(entry.access), address_of(access), LOGGED_BYTES)


@cold_part
def arrive(wave: int, lists: Any, log: Any) -> None:
    """Fills `next` with the operations that a wave has not waited for when it arrives at a barrier."""
    lists.next.count = 0
    issued, done = load64(wave + DS_ISSUED), load64(wave + DS_DONE)
    if issued <= done:
        return
    count = log.count
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        access = log.entries[(count - back) % LOG_ENTRIES]
        if access.head >> FLAGS_SHIFT & QUEUED:
            if access.number <= done:
                break
            add(lists.next, access, issued - access.number)
    for at in range(lists.now.count):
        access = lists.now.entries[at].access
        if access.number > done:
            add(lists.next, access, issued - access.number)


@cold_part
def pass_on(lists: Any) -> int:
    """Replaces the wave's carried list when all waves have arrived or this one ended. Returns the list's length."""
    count = lists.next.count
    if count:
        copy(address_of(lists.now.entries), address_of(lists.next.entries), CARRIED_BYTES * count)
    lists.now.count = count
    lists.next.count = 0
    return count


@part
def overlap(access: Any, size: int, lanes: int, offsets: np.ndarray) -> int:
    """Returns a byte that both a logged access and one of these lanes touch, times 64 plus the lane; -1 if none."""
    mask, theirs = access.lanes, access.head >> SIZE_SHIFT
    for lane in range(LANES):
        if lanes >> lane & 1:
            for other in range(LANES):
                if mask >> other & 1:
                    at = offset_of(access, other)
                    if at < offsets[lane] + size and offsets[lane] < at + theirs:
                        return max(at, offsets[lane]) * LANES + lane
    return -1


@cold_part
def look_carried(wave: int, record: int, lanes: int, size: int, flags: int, lists: np.ndarray, me: int) -> None:
    """Reports the first clash of an access with a carried operation of another wave. lists: `CarriedLists` by wave. me: the wave's
    number."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    first, last = 1 << 40, -1
    for lane in range(LANES):
        if lanes >> lane & 1:
            first, last = min(first, offsets[lane]), max(last, offsets[lane] + size - 1)
    for other in range(lists.size):
        current = lists[other].now
        for at in range(0 if other == me else current.count):
            entry = current.entries[at]
            there = entry.access.head >> FLAGS_SHIFT
            if not (flags | there) & WRITES or flags & there & ATOMIC:
                continue
            if first > entry.last or last < entry.first:
                continue
            found = overlap(entry.access, size, lanes, offsets)
            if found >= 0:
                place = found // LANES | entry.left << LEFT_SHIFT
                place |= (1 if flags & WRITES else 0) << FLAG_SHIFT
                enter(wave, record, CARRIED, 1 << found % LANES, place, entry.access.head & 0xFFFFFFFF)
                return
