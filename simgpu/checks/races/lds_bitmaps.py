"""Which bytes of a workgroup's LDS its waves read and wrote since the last barrier, as bitmaps.

For each byte: did any wave write it, and for each wave, did it write it, read it, update it atomically.
With that an access sees whether another wave's clashes with it, and the next barrier clears all of it.
A log of each wave's accesses since then tells what the other side was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.checks.races.carried import (  # fmt: skip
    ATOMIC,
    FLAGS_SHIFT,
    HEAD,
    LIST_BYTES,
    LISTS,
    LOG_BYTES,
    MASK,
    NEXT,
    NUMBER,
    OFFSETS,
    RETURNS,
    SIZE_SHIFT,
    STRAIGHT,
    WRITES,
    arrive,
    look_carried,
    offset_of,
    pass_on,
)
from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, SITES, WAVE_SHIFT
from simgpu.checks.races.order import BARRIERS, LDS, acquire, ordered, release
from simgpu.checks.waits.in_flight import DS_ISSUED
from simgpu.engine.events import enter, enter_at, event
from simgpu.engine.workgroup import waves_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import clear, load32, load64, octets, part, store64, words

# A race is one event for a pair of places, whichever ran first: that of the later record, with the
# earlier one as `extra`. Its `lanes` say which lane saw it, whether both sides wrote, whether the wave that
# saw it stood at the earlier record, and whether it wrote; above these stand the other side's workgroup and wave.
RACE, DUPLICATE = event("race on LDS"), event("same bytes written")
LANE, BOTH_WRITE, SWAPPED, WROTE = 63, 64, 128, 256
OTHER_SHIFT = 16

# A slot's shadow: a header, then bitmaps of one bit a byte, in u64 words: what any wave wrote, an access that is looked at (else
# clear), what each wave did; then each wave's log; then each wave's lists of `race_carried`.
ANY_WRITE, TOUCHED, OWN = range(3)
OWN_WRITE, OWN_READ, OWN_ATOMIC, OWN_MAPS = range(4)
ATOMICS, CARRIED, HEADER = 0, 1, 8  # the header: whether there were atomics; what the last barrier carried
LOG_ENTRIES = 256


def shadow_bytes(lds_bytes: int, waves: int) -> int:
    """Bytes of the shadow of a workgroup's LDS."""
    each = 8 * OWN_MAPS * map_words(lds_bytes) + 8 + LOG_ENTRIES * LOG_BYTES + LISTS * LIST_BYTES
    return 8 * HEADER + 8 * OWN * map_words(lds_bytes) + waves * each


def map_words(lds_bytes: int) -> int:
    """u64 words of one bitmap; one more than the bytes take, so that a mask may spill over."""
    return -(-lds_bytes // 64) + 1


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
def unchanged(wave: int, offset: int, staged: int, count: int) -> bool:
    """Whether LDS holds already what a store that is staged will write there."""
    memory, fresh = octets(load64(wave + layout.LDS_BASE) + offset, count), octets(wave + layout.STAGING + staged, count)
    changed = 0
    for at in range(count):
        changed |= memory[at] ^ fresh[at]
    return changed == 0


@part
def clash(shadow: int, count: int, me: int, waves: int, flags: int, at: int, mask: int) -> int:
    """Bits of `mask` in word `at` where another wave than `me` did what clashes with an access."""
    maps = shadow + 8 * (HEADER + at)
    step = 8 * count
    found = load64(maps) & ~load64(maps + step * (OWN + OWN_MAPS * me + OWN_WRITE))
    if flags & WRITES:
        for other in range(waves):
            if other != me:
                found |= load64(maps + step * (OWN + OWN_MAPS * other + OWN_READ))
    if not flags & ATOMIC and load64(shadow + 8 * ATOMICS):
        for other in range(waves):
            if other != me:
                found |= load64(maps + step * (OWN + OWN_MAPS * other + OWN_ATOMIC))
    return found & mask


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
def quick_read(shadow: int, count: int, me: int, size: int, lanes: int, offsets: np.ndarray) -> bool:
    """A plain read of which no lane's bytes reach into the next word: mark it; whether something clashes."""
    written = bitmap(shadow, ANY_WRITE, count)
    own = bitmap(shadow, OWN + OWN_MAPS * me + OWN_WRITE, count)
    read = bitmap(shadow, OWN + OWN_MAPS * me + OWN_READ, count)
    ones, found = (1 << size) - 1, 0
    for lane in range(LANES):
        at, mask = offsets[lane] >> 6, ones << (offsets[lane] & 63)
        if lanes >> lane & 1:
            found |= written[at] & ~own[at] & mask
            read[at] |= mask
    return found != 0


@part
def words_clash(shadow: int, count: int, me: int, waves: int, flags: int, first: int, size: int) -> bool:
    """Whether an access to all bytes of `size` words clashes; vector instructions, as all is in order."""
    found = 0
    written = bitmap(shadow, ANY_WRITE, count)[first : first + size]
    own = bitmap(shadow, OWN + OWN_MAPS * me + OWN_WRITE, count)[first : first + size]
    for i in range(size):
        found |= written[i] & ~own[i]
    for other in range(waves):
        if other != me:
            if flags & WRITES:
                read = bitmap(shadow, OWN + OWN_MAPS * other + OWN_READ, count)[first : first + size]
                for i in range(size):
                    found |= read[i]
            if load64(shadow + 8 * ATOMICS):
                atomic = bitmap(shadow, OWN + OWN_MAPS * other + OWN_ATOMIC, count)[first : first + size]
                for i in range(size):
                    found |= atomic[i]
    return found != 0


@part
def mark_words(shadow: int, count: int, me: int, flags: int, first: int, size: int) -> None:
    """Enter an access to all bytes of `size` words."""
    kind = OWN_WRITE if flags & WRITES else OWN_READ
    bitmap(shadow, OWN + OWN_MAPS * me + kind, count)[first : first + size] = -1
    if flags & WRITES:
        bitmap(shadow, ANY_WRITE, count)[first : first + size] = -1


@part
def other_side(shadow: int, count: int, wave: int, waves: int, flags: int, byte: int) -> tuple[int, bool, bool]:
    """A wave that did what clashes at a byte, and whether that was a write, or an atomic."""
    at, bit = byte >> 6, byte & 63
    for kind in range(OWN_MAPS):
        if (kind == OWN_READ and not flags & WRITES) or (kind == OWN_ATOMIC and flags & ATOMIC):
            continue
        for other in range(waves):
            if other != wave and bitmap(shadow, OWN + OWN_MAPS * other + kind, count)[at] >> bit & 1:
                return other, kind == OWN_WRITE, kind == OWN_ATOMIC
    return -1, False, False


@part
def repeats(
    wave: int, record: int, lanes: int, size: int, offsets: np.ndarray, shadow: int, count: int, me: int, waves: int
) -> bool:
    """Whether a write writes nothing but what is there, and what other waves wrote by the same instruction; False where not sure.

    Triton's programs do that where a block has fewer elements than threads: `explain` would look at each lane alone.
    """
    if load64(shadow + 8 * ATOMICS):
        return False
    changed, ones = 0, (1 << size) - 1
    memory = load64(wave + layout.LDS_BASE)
    for lane in range(LANES):
        if lanes >> lane & 1:
            held, fresh = octets(memory + offsets[lane], size), octets(wave + layout.STAGING + lane * size, size)
            for at in range(size):
                changed |= held[at] ^ fresh[at]
    if changed:
        return False
    touched = bitmap(shadow, TOUCHED, count)
    for lane in range(LANES):
        if lanes >> lane & 1:
            at, shift = offsets[lane] >> 6, offsets[lane] & 63
            touched[at] |= ones << shift
            if shift + size > 64:
                touched[at + 1] |= ones >> (64 - shift)
    same = True
    for other in range(waves):
        if same and other != me:
            read = met(bitmap(shadow, OWN + OWN_MAPS * other + OWN_READ, count), touched, lanes, size, offsets)
            wrote = met(bitmap(shadow, OWN + OWN_MAPS * other + OWN_WRITE, count), touched, lanes, size, offsets)
            there = log_of(shadow, other, waves, count)
            same = not read and (not wrote or wrote_last(there, record, lanes, size, offsets, touched))
    for lane in range(LANES):
        if lanes >> lane & 1:
            at = offsets[lane] >> 6
            touched[at] = 0
            touched[at + 1] = 0
    return same


@part
def met(theirs: np.ndarray, touched: np.ndarray, lanes: int, size: int, offsets: np.ndarray) -> bool:
    """Whether a bitmap has a byte of an access, of which another one has all."""
    found = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            at, end = offsets[lane] >> 6, (offsets[lane] + size - 1) >> 6
            found |= (theirs[at] & touched[at]) | (theirs[end] & touched[end])
    return found != 0


@part
def wrote_last(log: int, record: int, lanes: int, size: int, offsets: np.ndarray, touched: np.ndarray) -> bool:
    """Whether a log's latest write that touches a bitmap's bytes is that of a record, by the same lanes at the same offsets."""
    count = load64(log)
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = log + 8 + (count - back) % LOG_ENTRIES * LOG_BYTES
        head, mask = load64(entry + HEAD), load64(entry + MASK)
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


@part
def explain(
    wave: int, record: int, flags: int, size: int, lane: int, offset: int,
    shadow: int, count: int, waves: int, block: Any, state: Any, tag: int,
) -> int:  # fmt: skip
    """Report a clash of one lane; returns 1 where it was told, 2 where it writes what is there, else 0."""
    me = tag >> WAVE_SHIFT & 15
    for byte in range(offset, offset + size):
        mask = 1 << (byte & 63)
        if not clash(shadow, count, me, waves, flags, byte >> 6, mask):
            continue
        other, writes, atomic = other_side(shadow, count, me, waves, flags, byte)
        if other < 0:
            continue
        there = logged(log_of(shadow, other, waves, count), byte, writes, atomic)
        cell = tag >> EPOCH_SHIFT << EPOCH_SHIFT | other << WAVE_SHIFT
        if ordered(block, state, LDS, tag, cell, byte >> 2):
            continue
        if flags & WRITES and writes and there == record and not flags & ATOMIC:
            if unchanged(wave, offset, lane * size, size):
                return 2
        seen = lane | (BOTH_WRITE if flags & WRITES and (writes or atomic) else 0) | (WROTE if flags & WRITES else 0)
        here, there = record, there if there >= 0 else record
        if there > here:
            here, there = there, here
            seen |= SWAPPED
        enter_at(wave, here, RACE, seen | other << OTHER_SHIFT, byte, there & SITES, record)
        return 1
    return 0


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
    ones, found, spread, quick = (1 << size) - 1, 0, 0, 0
    # Atomics are never STRAIGHT: the handler does not say that they are.
    whole = flags & STRAIGHT and offsets[0] & 63 == 0  # whole words of the bitmaps
    if not flags & (WRITES | STRAIGHT):
        for lane in range(LANES):
            spread |= offsets[lane]
        quick = spread & (size - 1) == 0 and not load64(shadow + 8 * ATOMICS)
    if whole:
        found = words_clash(shadow, count, me, waves, flags, offsets[0] >> 6, size)
    elif quick:
        found = quick_read(shadow, count, me, size, lanes, offsets)
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
    if whole:
        mark_words(shadow, count, me, flags, offsets[0] >> 6, size)
    elif not quick:
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
    for wave in range(waves):
        if load64(log_of(shadow, wave, waves, count)):
            clear(shadow + 8 * (HEADER + (OWN + OWN_MAPS * wave) * count), 8 * OWN_MAPS * count)
            clear(shadow + 8 * HEADER, 8 * count)
    store64(shadow + 8 * ATOMICS, 0)
    carried = 0
    for wave in range(waves):
        store64(log_of(shadow, wave, waves, count), 0)
        carried += pass_on(lists_of(shadow, wave, waves, count))
    store64(shadow + 8 * CARRIED, carried)
