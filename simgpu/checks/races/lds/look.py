"""What an access to LDS and a barrier do to the shadow."""

from __future__ import annotations

from typing import Any

from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, WAVE_SHIFT
from simgpu.checks.races.lds.carried import ATOMIC, LIST_BYTES, NEXT, RETURNS, STRAIGHT, WRITES, arrive, look_carried, pass_on
from simgpu.checks.races.lds.clashes import DUPLICATE, clash, explain, quick_read, repeats, words_clash
from simgpu.checks.races.lds.shadow import (  # fmt: skip
    ATOMICS,
    CARRIED,
    END,
    HEADER,
    LOG_ENTRIES,
    OWN,
    OWN_ATOMIC,
    OWN_MAPS,
    OWN_READ,
    OWN_WRITE,
    READ,
    READERS,
    UNMARKED,
    WRITERS,
    WRITTEN,
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
    note_kind,
    together,
)
from simgpu.checks.races.order import BARRIERS, LDS, acquire, release
from simgpu.checks.waits.in_flight import DS_ISSUED
from simgpu.engine.events import enter
from simgpu.engine.workgroup import waves_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import clear, load32, load64, part, store64, words


@part
def lds_tag(state: Any, passed: int, wave: int) -> int:
    """Epoch and number of a wave, in the form that `race_order` takes."""
    return (passed % EPOCHS + 1) << EPOCH_SHIFT | wave << WAVE_SHIFT


@part
def look_lds(wave: int, record: int, lanes: int, size: int, flags: int, block: Any, slot: int, state: Any) -> None:
    """An access of the lanes to LDS at the offsets in the wave's ADDRESSES."""
    waves = waves_of(wave)
    count = block.lds_words
    shadow = block.lds_shadow + slot * block.lds_stride
    me = load32(wave + layout.WAVE_ID)
    tag = lds_tag(state, load32(wave + BARRIERS), me)
    offsets = words(wave + layout.ADDRESSES, LANES)
    ones, found, quick = (1 << size) - 1, 0, 0
    first = offsets[0] if flags & STRAIGHT else max(lowest(wave + layout.ADDRESSES), 0)
    end = first + LANES * size if flags & STRAIGHT else min(highest(wave + layout.ADDRESSES), END) + size
    if flags & WRITES:
        if meets(shadow, READ, first, end):
            mark_all_reads(shadow, count, waves)
        note_extent(shadow, WRITTEN, first, end)
    # Atomics are never STRAIGHT: the handler does not say that they are.
    whole = flags & STRAIGHT and offsets[0] & 63 == 0  # whole words of the bitmaps
    if not flags & (WRITES | STRAIGHT):
        quick = together(wave + layout.ADDRESSES) & (size - 1) == 0 and not load64(shadow + 8 * ATOMICS)
    if whole:
        found = words_clash(shadow, count, me, waves, flags, offsets[0] >> 6, size)
    elif quick:
        found = quick_read(shadow, count, me, size, lanes, offsets, first, end)
    else:
        for lane in range(LANES):
            if lanes >> lane & 1:
                at, shift = offsets[lane] >> 6, offsets[lane] & 63
                found |= clash(shadow, count, me, waves, flags, at, ones << shift)
                if shift + size > 64:
                    found |= clash(shadow, count, me, waves, flags, at + 1, ones >> (64 - shift))
    if found and flags & WRITES and not flags & ATOMIC and repeats(wave, record, lanes, size, offsets, shadow, count, me, waves):
        enter(wave, record, DUPLICATE, 0, offsets[0], 0)
    elif found:
        told = 0
        for lane in range(LANES):
            if lanes >> lane & 1:
                told |= explain(wave, record, flags, size, lane, offsets[lane], shadow, count, waves, block, state, tag)
                if told & 1:
                    break
        if told == 2:
            enter(wave, record, DUPLICATE, 0, offsets[0], 0)
    if not flags & ATOMIC and not quick:
        note_kind(shadow, WRITERS if flags & WRITES else READERS, me)
    make_room(shadow, count, me, waves)
    if whole:
        mark_words(shadow, count, me, flags, offsets[0] >> 6, size)
    elif quick:
        leave_unmarked(shadow, count, me, waves)
        note_extent(shadow, READ, first, end)
    else:
        for lane in range(LANES):
            if lanes >> lane & 1:
                at, shift = offsets[lane] >> 6, offsets[lane] & 63
                mark(shadow, count, me, flags, at, ones << shift)
                if shift + size > 64:
                    mark(shadow, count, me, flags, at + 1, ones >> (64 - shift))
    if load64(shadow + 8 * CARRIED):
        look_carried(wave, record, lanes, size, flags, lists_of(shadow, 0, waves, count), me, waves)
    log(log_of(shadow, me, waves, count), record, flags, size, lanes, load64(wave + DS_ISSUED), offsets)
    if flags & ATOMIC:
        store64(shadow + 8 * ATOMICS, 1)
        for lane in range(LANES):
            if lanes >> lane & 1:
                release(block, state, LDS, tag, offsets[lane] >> 2)
                if flags & RETURNS:
                    acquire(block, state, LDS, tag, offsets[lane] >> 2)


@part
def carry(wave: int, block: Any, slot: int, ends: bool) -> None:
    """What of the wave's LDS operations is in flight at a barrier; nothing where it ends, as those complete."""
    count, waves = block.lds_words, waves_of(wave)
    shadow, me = block.lds_shadow + slot * block.lds_stride, load32(wave + layout.WAVE_ID)
    lists = lists_of(shadow, me, waves, count)
    if ends:
        store64(lists + NEXT * LIST_BYTES, 0)
    else:
        arrive(wave, lists, log_of(shadow, me, waves, count), LOG_ENTRIES)


@part
def forget_lds(block: Any, slot: int, waves: int) -> None:
    """All waves are at the barrier, or ended: what they did before is ordered, but for what is in flight."""
    count = block.lds_words
    shadow = block.lds_shadow + slot * block.lds_stride
    writers, readers, atomics = load64(shadow + 8 * WRITERS), load64(shadow + 8 * READERS), load64(shadow + 8 * ATOMICS)
    for wave in range(waves):
        own = shadow + 8 * (HEADER + (OWN + OWN_MAPS * wave) * count)
        if writers >> wave & 1:
            clear(own + 8 * OWN_WRITE * count, 8 * count)
        if readers >> wave & 1:
            clear(own + 8 * OWN_READ * count, 8 * count)
        if atomics:
            clear(own + 8 * OWN_ATOMIC * count, 8 * count)
    if writers:
        clear(shadow + 8 * HEADER, 8 * count)
    store64(shadow + 8 * ATOMICS, 0)
    store64(shadow + 8 * WRITERS, 0)
    store64(shadow + 8 * READERS, 0)
    store64(shadow + 8 * UNMARKED, 0)
    clear(shadow + 8 * WRITTEN, 32)
    carried = 0
    for wave in range(waves):
        store64(log_of(shadow, wave, waves, count), 0)
        carried += pass_on(lists_of(shadow, wave, waves, count))
    store64(shadow + 8 * CARRIED, carried)
