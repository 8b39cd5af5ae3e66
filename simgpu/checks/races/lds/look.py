"""Effects of an access to LDS and of a barrier on the shadow."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, WAVE_SHIFT
from simgpu.checks.races.lds.carried import ATOMIC, RETURNS, STRAIGHT, SWAPS, WRITES, arrive, look_carried, pass_on
from simgpu.checks.races.lds.clashes import DUPLICATE, clash, explain, quick_read, repeats, words_clash
from simgpu.checks.races.lds.order import ACQUIRES, RELEASES, note
from simgpu.checks.races.lds.shadow import (  # fmt: skip
    ANY_WRITE,
    END,
    OWN_ATOMIC,
    OWN_READ,
    OWN_WRITE,
    LdsView,
    bitmap,
    forget_extent,
    highest,
    leave_unmarked,
    lists_of,
    log,
    log_of,
    lowest,
    make_room,
    mark,
    mark_all_reads,
    mark_words,
    meets,
    note_extent,
    own_map,
    union_of,
    view_of,
)
from simgpu.checks.races.order import BARRIERS, holds, note_lock
from simgpu.checks.waits.in_flight import DS_ISSUED
from simgpu.engine.events import enter
from simgpu.engine.workgroup import waves_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import address_of, clear, load32, load64, part, words


@part
def lds_tag(state: Any, passed: int, wave: int) -> int:
    """Returns a tag for `ordered_by_atomics`: the barriers that a wave passed (+ 1, as its epoch) and its number."""
    return (passed % EPOCHS + 1) << EPOCH_SHIFT | wave << WAVE_SHIFT


@part
def unlocks(state: Any, me: int, flags: int, lanes: int, offsets: np.ndarray) -> int:
    """Returns ATOMIC for a lane's plain store to a location that its wave took by a swap, else 0; notes a swap's location.

    LLVM lowers an atomic store to LDS to a wait and a plain store, which gives the lock back. Other atomics take no lock: a store
    to a counter is a plain one.
    """
    at = 0
    while lanes >> at & 1 == 0:
        at += 1
    location = -1 - (offsets[at] >> 2 << 4 | me)  # negative, unlike those of device memory
    if flags & SWAPS:
        note_lock(state, location)
    return ATOMIC if flags & ATOMIC == 0 and holds(state, location) else 0


BY_WORDS, BY_READS, BY_LANES = range(3)  # ways to search the bitmaps: see `way_of`


@part
def look_lds(wave: int, record: int, lanes: int, size: int, flags: int, block: Any, slot: int, state: Any) -> None:
    """Handles an access of the lanes to LDS at the offsets in the wave's ADDRESSES."""
    view, me = view_of(block, slot, waves_of(wave)), load32(wave + layout.WAVE_ID)
    tag = lds_tag(state, load32(wave + BARRIERS), me)
    offsets = words(wave + layout.ADDRESSES, LANES)
    if flags & WRITES and lanes & (lanes - 1) == 0:
        flags |= unlocks(state, me, flags, lanes, offsets)
    first = offsets[0] if flags & STRAIGHT else max(lowest(wave + layout.ADDRESSES), 0)
    end = first + LANES * size if flags & STRAIGHT else min(highest(wave + layout.ADDRESSES), END) + size
    if flags & WRITES:
        if meets(view.shadow.read, first, end):
            mark_all_reads(view)
        note_extent(view.shadow.written, first, end)
    way = way_of(wave, size, flags, view)
    found = 0
    if way == BY_WORDS:
        found = words_clash(view, me, flags, offsets[0] >> 6, size)
    elif way == BY_READS:
        found = quick_read(view, me, size, lanes, offsets, first, end)
    else:
        found = lanes_clash(view, me, flags, size, lanes, offsets)
    if found and flags & WRITES and not flags & ATOMIC and repeats(wave, record, lanes, size, offsets, view, me):
        enter(wave, record, DUPLICATE, 0, offsets[0], 0)
    elif found:
        told = 0
        for lane in range(LANES):
            if lanes >> lane & 1:
                told |= explain(wave, record, flags, size, lane, offsets[lane], view, block, state, tag)
                if told & 1:
                    break
        if told == 2:
            enter(wave, record, DUPLICATE, 0, offsets[0], 0)
    if way == BY_READS:
        make_room(view, me)
        leave_unmarked(view, me)
        note_extent(view.shadow.read, first, end)
    else:
        note_marks(view, me, flags, size, lanes, offsets, way)
    if view.shadow.carried:
        look_carried(wave, record, lanes, size, flags, lists_of(view), me)
    log(log_of(view, me), record, flags, size, lanes, load64(wave + DS_ISSUED), offsets)
    if flags & ATOMIC:
        view.shadow.atomics = 1
        for lane in range(LANES):
            if lanes >> lane & 1:
                note(state, RELEASES, tag, offsets[lane] >> 2)
                if flags & RETURNS:
                    note(state, ACQUIRES, tag, offsets[lane] >> 2)


@part
def way_of(wave: int, size: int, flags: int, view: LdsView) -> int:
    """Returns the way to search: BY_WORDS (whole words of the bitmaps), BY_READS (a plain read, no lane of which crosses a word),
    or BY_LANES."""
    if flags & STRAIGHT:  # never for atomics: the handler does not set the flag for them
        return BY_WORDS if load64(wave + layout.ADDRESSES) & 63 == 0 else BY_LANES
    if flags & WRITES == 0 and union_of(wave + layout.ADDRESSES) & (size - 1) == 0 and not view.shadow.atomics:
        return BY_READS
    return BY_LANES


@part
def lanes_clash(view: LdsView, me: int, flags: int, size: int, lanes: int, offsets: np.ndarray) -> int:
    """Returns the clashing bytes of any lane, as bits."""
    ones, found = (1 << size) - 1, 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            at, shift = offsets[lane] >> 6, offsets[lane] & 63
            found |= clash(view, me, flags, at, ones << shift)
            if shift + size > 64:
                found |= clash(view, me, flags, at + 1, ones >> (64 - shift))
    return found


@part
def note_marks(view: LdsView, me: int, flags: int, size: int, lanes: int, offsets: np.ndarray, way: int) -> None:
    """Marks the bytes that an access touches in the bitmaps."""
    if flags & ATOMIC == 0:
        if flags & WRITES:
            view.shadow.writers |= 1 << me
        else:
            view.shadow.readers |= 1 << me
    make_room(view, me)
    if way == BY_WORDS:
        mark_words(view, me, flags, offsets[0] >> 6, size)
        return
    ones = (1 << size) - 1
    for lane in range(LANES):
        if lanes >> lane & 1:
            at, shift = offsets[lane] >> 6, offsets[lane] & 63
            mark(view, me, flags, at, ones << shift)
            if shift + size > 64:
                mark(view, me, flags, at + 1, ones >> (64 - shift))


@part
def carry(wave: int, block: Any, slot: int, ends: bool) -> None:
    """Records the wave's LDS operations that are in flight at a barrier. ends: True if the wave ends, which completes them."""
    view, me = view_of(block, slot, waves_of(wave)), load32(wave + layout.WAVE_ID)
    lists = lists_of(view)[me]
    if ends:
        lists.next.count = 0
    else:
        arrive(wave, lists, log_of(view, me))


@part
def forget_lds(block: Any, slot: int, waves: int) -> None:
    """Clears the shadow when all waves are at a barrier or have ended: only operations in flight are not ordered."""
    view = view_of(block, slot, waves)
    shadow, nbytes = view.shadow, 8 * view.count
    for wave in range(waves):
        if shadow.writers >> wave & 1:
            clear(address_of(own_map(view, wave, OWN_WRITE)), nbytes)
        if shadow.readers >> wave & 1:
            clear(address_of(own_map(view, wave, OWN_READ)), nbytes)
        if shadow.atomics:
            clear(address_of(own_map(view, wave, OWN_ATOMIC)), nbytes)
    if shadow.writers:
        clear(address_of(bitmap(view, ANY_WRITE)), nbytes)
    shadow.atomics = 0
    shadow.writers = 0
    shadow.readers = 0
    shadow.unmarked = 0
    forget_extent(shadow.written)
    forget_extent(shadow.read)
    carried = 0
    for wave in range(waves):
        log_of(view, wave).count = 0
        carried += pass_on(lists_of(view)[wave])
    shadow.carried = carried
