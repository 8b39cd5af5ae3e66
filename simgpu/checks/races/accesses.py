"""What an access, a barrier and a wave's end do to the shadow cells; called by checked handlers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simgpu.checks.races import cells as c
from simgpu.checks.races.cells import (  # fmt: skip
    add_mark,
    any_clash,
    clashes,
    has_mark,
    mark_shared,
    note_first,
    note_second,
    note_writer,
    split,
    whole_lines,
)
from simgpu.checks.races.lds.carried import ATOMIC, COHERENT, RETURNS, SCALAR, STRAIGHT, WRITES
from simgpu.checks.races.lds.clashes import BOTH_WRITE, OTHER_SHIFT, SWAPPED, WROTE
from simgpu.checks.races.lds.look import carry, forget_lds, look_lds
from simgpu.checks.races.lds.rows import row_alone
from simgpu.checks.races.lds.shadow import ROW
from simgpu.checks.races.order import (  # fmt: skip
    BARRIERS,
    GLOBAL,
    STATE_BYTES,
    acquire,
    block_of,
    clock_of,
    holds,
    learn,
    ordered,
    release,
    state_of,
)
from simgpu.checks.races.pending import SWAP, elsewhere, exchange, forget_pending, pending_of, wait_for_swap
from simgpu.checks.races.scattered import all_without_clash
from simgpu.checks.races.uses import displaced, raced, unseen
from simgpu.engine.events import enter, enter_ranked, event
from simgpu.engine.workgroup import number_of, slot_of, waves_of
from simgpu.hardware.code_object.arguments import dispatch_number
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import clear, load32, octets, part, runtime, seldom, store32, store64, structure, words

# What a barrier event says: `extra` above the record.
RACE, BARRIER = event("race on device memory"), event("barrier")
ELSEWHERE, ENDED = range(2)


_dispatch_number = part(dispatch_number)


@part
def group_of(wave: int, block: Any) -> int:
    """Number of the wave's workgroup in the launch."""
    group = slot_of(wave).group
    return _dispatch_number(group[0], group[1], group[2], block.grid[0], block.grid[1])


class CellAccess(NamedTuple):
    """An access of a wave to an area."""

    wave: int
    record: int
    area: Any
    block: Any
    state: Any
    flags: int
    tag: int


class Cover(NamedTuple):
    """What the cells of an access stand for."""

    start: int  # byte offset of the first cell
    unit: int  # bytes of each
    size: int  # bytes of a lane
    lane: int  # the first


@part
def report_first_clash(access: CellAccess, cells: np.ndarray, skip: int, need: int, who: int, cover: Cover) -> None:
    """Report the first of the cells that clashes and is not ordered by atomics, and count all of them as `uses`.

    who: BOTH_WRITE, WROTE.
    """
    area, tag = access.area, access.tag
    if not any_clash(cells, tag, skip, need):
        return
    told = False
    for at in range(cells.size):
        cell = cells[at]
        if not clashes(cell, tag, skip, need):
            continue
        address, over = area.address + cover.start + at * cover.unit, 0
        while over < cover.unit and ordered(access.block, access.state, GLOBAL, tag, cell, (address + over) >> 2):
            over += 4
        if over >= cover.unit:
            continue
        if who == 0:
            raced(access.wave, area, tag, cell)
        elif who == WROTE:
            raced(access.wave, area, cell, tag)
        if told:
            continue
        told = True
        address += over
        seen = cover.lane + (at * cover.unit + over) // cover.size | who
        here, there = access.record & c.SITES, cell & c.SITES
        if there > here:
            here, there = there, here
            seen |= SWAPPED
        other, mine, theirs = cell >> c.GROUP_SHIFT << 4 | (cell >> c.WAVE_SHIFT & 15), tag >> c.GROUP_SHIFT, cell >> c.GROUP_SHIFT
        rank = min(mine, theirs) << c.GROUP_BITS | max(mine, theirs)
        enter_ranked(access.wave, here, RACE, seen | other << OTHER_SHIFT, address, there, rank, access.record)
        if who & BOTH_WRITE:
            return


@part
def compare_with_cells(access: CellAccess, cells: int, first: int, count: int, cover: Cover) -> None:
    """Compare an access with the cells (`cells`: c.WRITER, c.BYTE_WRITER or c.LINE_WRITER) that it covers."""
    area, flags, tag = access.area, access.flags, access.tag
    if area.written:
        writers = words(area.maps[cells] + 8 * first, count)
        if flags & WRITES:
            skip = c.ATOMIC if tag & c.ATOMIC else 0
            report_first_clash(access, writers, skip, 0, BOTH_WRITE | WROTE, cover)
        elif not flags & COHERENT:
            report_first_clash(access, writers, 0, 0, 0, cover)
        if flags & (COHERENT | RETURNS):
            for at in range(count):
                if clashes(writers[at], tag, 0, 0):
                    learn(access.state, writers[at])
    atomic = tag & c.ATOMIC
    if not area.read or (not flags & WRITES and (flags & COHERENT or not area.atomics)):
        return
    skip = (c.COHERENT | (c.ATOMIC if atomic else 0)) if flags & WRITES else 0
    need = 0 if flags & WRITES else c.ATOMIC
    wrote = WROTE if flags & WRITES else 0
    readers = words(area.maps[cells + 1] + 8 * first, count)
    report_first_clash(access, readers, skip, need, wrote, cover)
    if area.read2:
        readers = words(area.maps[cells + 2] + 8 * first, count)
        report_first_clash(access, readers, skip, need, wrote, cover)


@part
def record_access(wave: int, area: Any, flags: int, tag: int, cells: int, first: int, count: int) -> None:
    """Record an access in the cells that it covers."""
    per = 4 if cells == c.BYTE_WRITER else 1
    marks = area.maps[c.LINE_MARKS if cells == c.LINE_WRITER else c.MARKS]
    dwords = octets(marks + first // per, (first + count - 1) // per - first // per + 1)
    if flags & WRITES:
        note_writer(words(area.maps[cells] + 8 * first, count), tag)
        area.written = 1
        add_mark(dwords, c.WRITTEN_MARK)
    if not flags & WRITES or tag & c.ATOMIC:
        readers = words(area.maps[cells + 1] + 8 * first, count)
        seconds = words(area.maps[cells + 2] + 8 * first, count)
        came = note_first(readers, tag)
        if came & c.AGAIN:
            unseen(wave, area, tag)
        if came & c.OTHERS:
            if area.read2:
                displaced(wave, area, readers, seconds, tag)
            note_second(readers, seconds, tag)
            area.read2 = 1
            if per == 1:
                mark_shared(readers, seconds, dwords)
        area.read = 1
    if tag & c.ATOMIC:
        area.atomics = 1
    if per == 4:
        add_mark(dwords, c.NARROW_MARK)
        area.narrowed = 1


@part
def access_range(access: CellAccess, start: int, nbytes: int, size: int, lane: int) -> None:
    """Compare and record the access of `nbytes` from byte `start` on, by lanes of `size` bytes from `lane` on."""
    wave, area, flags, tag = access.wave, access.area, access.flags, access.tag
    if (start | nbytes) & ((1 << c.LINE_SHIFT) - 1) == 0:
        line, lines = start >> c.LINE_SHIFT, nbytes >> c.LINE_SHIFT
        if whole_lines(area, line, lines):
            compare_with_cells(access, c.LINE_WRITER, line, lines, Cover(start, 1 << c.LINE_SHIFT, size, lane))
            record_access(wave, area, flags, tag, c.LINE_WRITER, line, lines)
            return
    split(area, start, nbytes)
    first, last = start >> 2, (start + nbytes - 1) >> 2
    count = last - first + 1
    if (start | nbytes) & 3 == 0:
        compare_with_cells(access, c.WRITER, first, count, Cover(start, 4, size, lane))
        if area.narrowed:
            marks = octets(area.maps[c.MARKS] + first, count)
            if has_mark(marks, c.NARROW_MARK):
                compare_with_cells(access, c.BYTE_WRITER, start, nbytes, Cover(start, 1, size, lane))
        record_access(wave, area, flags, tag, c.WRITER, first, count)
    else:
        compare_with_cells(access, c.WRITER, first, count, Cover(start & ~3, 4, size, lane))
        compare_with_cells(access, c.BYTE_WRITER, start, nbytes, Cover(start, 1, size, lane))
        record_access(wave, area, flags, tag, c.BYTE_WRITER, start, nbytes)


@seldom
def synchronise(area: Any, block: Any, state: Any, flags: int, tag: int, start: int) -> None:
    """What an atomic or coherent access at byte `start` releases and acquires."""
    location = (area.address + start) >> 2
    if tag & c.ATOMIC:
        release(block, state, GLOBAL, tag, location)
    if flags & RETURNS or (flags & COHERENT and not flags & WRITES):
        acquire(block, state, GLOBAL, tag, location)


@runtime
def row(wave: int, record: int, first: int, flags: int) -> int:
    """A plain access of all 64 lanes to 128 bits each of LDS, in a row from byte `first` on: whether that is all there is to it."""
    block = block_of(wave)
    if block.loads:
        return 0
    store64(wave + layout.ADDRESSES, first)
    return 1 if row_alone(wave, record, flags, block, number_of(wave)) else 0


@runtime
def watch(wave: int, record: int, lanes: int, size: int, flags: int, area_at: int) -> None:
    """An access of the lanes at the offsets in the wave's ADDRESSES; without an area, in the workgroup's LDS."""
    block = block_of(wave)
    slot = number_of(wave)
    if area_at == 0 and flags & STRAIGHT and size == ROW and not block.loads and row_alone(wave, record, flags, block, slot):
        return
    if block.loads:
        role = octets(block.roles + record, 1)[0]
        if role & SWAP:
            expects = words(block.expects + 8 * (role & ~SWAP), 1)[0]
            for number in range(block.loads):
                if expects >> number & 1:
                    held = pending_of(block, slot, wave, number)
                    wrong = elsewhere(wave, lanes, size, area_at, held)
                    if wrong:
                        exchange(wave, held)
                        look(wave, held.record, wrong, held.size, held.flags, held.area, block, slot)
                        exchange(wave, held)
        elif role:
            wait_for_swap(wave, record, lanes, size, flags, area_at, block, slot, role - 1)
            return
    look(wave, record, lanes, size, flags, area_at, block, slot)


@part
def look(wave: int, record: int, lanes: int, size: int, flags: int, area_at: int, block: Any, slot: int) -> None:
    """Compare an access with others, and record it."""
    state = state_of(block, slot)
    if area_at == 0:
        look_lds(wave, record, lanes, size, flags, block, slot, state)
        return
    area = structure(area_at, c.AREA)
    passed = load32(wave + BARRIERS)
    # Past the last epoch a workgroup's own waves could not be told apart from stale ones.
    if passed >= c.EPOCHS:
        return
    epoch, group = passed + 1, group_of(wave, block) & c.GROUPS
    tag = group << c.GROUP_SHIFT | epoch << c.EPOCH_SHIFT | load32(wave + layout.WAVE_ID) << c.WAVE_SHIFT
    tag |= record & c.SITES
    offsets = words(wave + layout.ADDRESSES, LANES)
    if flags & ATOMIC or (flags & COHERENT and flags & WRITES):
        tag |= c.ATOMIC
    elif flags & COHERENT:
        tag |= c.COHERENT
    elif flags & WRITES and lanes & (lanes - 1) == 0 and state.locked:
        at = 0
        while not flags & SCALAR and lanes >> at & 1 == 0:
            at += 1
        if holds(state, (area.address + offsets[at]) >> 2):
            tag |= c.ATOMIC
    access = CellAccess(wave, record, area, block, state, flags, tag)
    if flags & SCALAR:
        access_range(access, offsets[0], size, size, 0)
    elif flags & STRAIGHT:
        access_range(access, offsets[0], size * LANES, size, 0)
    elif size & 3 or not all_without_clash(wave, area, flags, tag, lanes, offsets, size >> 2):
        for lane in range(LANES):
            if lanes >> lane & 1:
                access_range(access, offsets[lane], size, size, lane)
    if tag & (c.ATOMIC | c.COHERENT):
        if flags & SCALAR:
            synchronise(area, block, state, flags, tag, offsets[0])
        else:
            for lane in range(LANES):
                if lanes >> lane & 1:
                    synchronise(area, block, state, flags, tag, offsets[lane])


@seldom
def miss(wave: int, record: int, block: Any) -> None:
    """A barrier that waves which ended did not come to."""
    clock_of(block).missed = 1
    enter(wave, record, BARRIER, 0, 0, ENDED << c.SITE_BITS)


@runtime
def barrier(wave: int, record: int) -> None:
    """A wave arrives at the barrier of a record: others may be at another one, or have ended."""
    block = block_of(wave)
    slot = number_of(wave)
    state = state_of(block, slot)
    passed = load32(wave + BARRIERS)
    store32(wave + BARRIERS, passed + 1)
    group = slot_of(wave)
    if group.left < group.waves:
        miss(wave, record, block)
    if state.meet_epoch == passed + 1 and group.waiting:
        there = state.meet_record
        if there != record:
            other = state.meet_wave
            enter(wave, record, BARRIER, 0, other, ELSEWHERE << c.SITE_BITS | there)
    else:
        state.meet_epoch = passed + 1
        state.meet_record = record
        state.meet_wave = load32(wave + layout.WAVE_ID)
    carry(wave, block, slot, False)
    if group.waiting + 1 == group.left:
        forget_lds(block, slot, waves_of(wave))


@runtime
def end(wave: int, record: int) -> None:
    """A wave ends; others may wait at a barrier that it does not reach. The last one frees the slot."""
    block = block_of(wave)
    slot = number_of(wave)
    state = state_of(block, slot)
    group = slot_of(wave)
    if group.waiting:
        miss(wave, state.meet_record, block)
    carry(wave, block, slot, True)
    if group.waiting + 1 == group.left:
        forget_lds(block, slot, waves_of(wave))
    if block.loads:
        forget_pending(wave, block, slot)
    if group.left == 1:
        clear(block.states + slot * STATE_BYTES, STATE_BYTES)
