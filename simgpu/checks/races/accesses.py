"""Effects of accesses and cache operations on the shadow; called by checked handlers."""

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
)
from simgpu.checks.races.knowledge import NOTHING, SCALAR_STALE, ClashCause, is_full
from simgpu.checks.races.lds.carried import ATOMIC, COHERENT, SCALAR, STRAIGHT, SWAPS, WRITES
from simgpu.checks.races.lds.clashes import BOTH_WRITE, OTHER_SHIFT, SWAPPED, WROTE
from simgpu.checks.races.lds.look import look_lds
from simgpu.checks.races.lds.rows import row_alone
from simgpu.checks.races.lds.shadow import ROW
from simgpu.checks.races.locations import CellAccess, first_lane, observe_heads, release_at, stored_lanes, take_back_at
from simgpu.checks.races.order import (  # fmt: skip
    block_of,
    epoch_now,
    floor_tag,
    holds,
    order_of,
    site_of,
    state_of,
)
from simgpu.checks.races.pending import SWAP, exchange, lanes_displaced, pending_of, wait_for_swap
from simgpu.checks.races.releases import (  # fmt: skip
    ORDERED_BEFORE,
    begin_segment,
    invalidate,
    invalidate_scalar,
    lack_of,
    needed_scope,
    observe,
    observed_lately,
    reach_of,
    segment_of,
    stale_scalar,
    stores_complete,
    was_over,
    who_of,
    write_back,
)
from simgpu.checks.races.scattered import all_without_clash
from simgpu.checks.races.skips import go_on
from simgpu.checks.races.uses import note_displaced, note_race, note_unseen
from simgpu.checks.waits.in_flight import VM_ISSUED
from simgpu.engine.events import enter_ranked, event
from simgpu.engine.workgroup import number_of, slot_of
from simgpu.hardware.code_object.arguments import dispatch_number
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import cold_part, load32, load64, octets, part, runtime, store64, structure, words

# The event's `extra` holds, from the low bits on: the earlier record, the releasing and the observing record that should have
# ordered the accesses, and the lack (`ClashCause`).
RACE = event("race on device memory")
WAY_BITS = 19  # bits of the releasing record, and of the observing one
WAY, LACK_SHIFT = (1 << WAY_BITS) - 1, c.SITE_BITS + 2 * WAY_BITS
# Cache operations.
(
    WRITE_BACK, WRITE_BACK_FAR, INVALIDATE, INVALIDATE_FAR, INVALIDATE_L2, INVALIDATE_L1, SCALAR_INVALIDATE,
) = range(7)  # fmt: skip


_dispatch_number = part(dispatch_number)


@part
def group_of(wave: int, block: Any) -> int:
    """Returns the number of the wave's workgroup, as cells hold it."""
    group = slot_of(wave).group
    return block.first_group + _dispatch_number(group[0], group[1], group[2], block.grid[0], block.grid[1])


class Cover(NamedTuple):
    """Memory of an access that an array of cells represents."""

    start: int  # byte offset of the access; the first cell may begin before
    unit: int  # bytes of a cell
    size: int  # bytes of a lane
    lane: int  # the first lane


@part
def exempt(access: CellAccess, cell: int, written: bool) -> bool:
    """True if access and cell may be concurrent: both atomic, or one atomic and one a coherent load, at scopes that include both
    waves. written: True for a writer's cell."""
    flags, marks = access.flags, cell & (c.ATOMIC | c.COHERENT)
    if flags & WRITES:
        both = marks & (c.ATOMIC if written else c.ATOMIC | c.COHERENT) if access.tag & c.ATOMIC else marks & c.COHERENT
    else:
        both = flags & COHERENT
    if both == 0:
        return False
    block, area, needed = access.block, access.area, needed_scope(access.block, access.tag, cell)
    return min(reach_of(block, area, cell & c.SITES), reach_of(block, area, access.tag & c.SITES)) >= needed


@part
def cause_of(access: CellAccess, cell: int, written: bool) -> ClashCause:
    """Returns the reason why a clashing cell is not ordered before the access."""
    if was_over(access.block, cell) or exempt(access, cell, written):
        return ClashCause(ORDERED_BEFORE, 0, 0)
    if access.block.synchronises == 0:
        return ClashCause(NOTHING, 0, 0)
    return lack_of(access.block, access.area, access.slot, access.order, access.tag, cell, access.flags, written)


@part
def report_first_clash(
    access: CellAccess, cells: np.ndarray, skip: int, need: int, who: int, cover: Cover, written: bool
) -> None:
    """Reports the first cell that clashes with the access and is not ordered before it. Records every such pair of a read and a
    write in `uses`.

    who: BOTH_WRITE | WROTE if both sides write, WROTE if only the access writes, 0 if it reads. written: True for writers' cells.
    """
    tag, floor = access.tag, access.floor
    if not any_clash(cells, tag, floor, skip, need):
        return
    told = False
    for at in range(cells.size):
        cell = cells[at]
        if not clashes(cell, tag, floor, skip, need):
            continue
        cause = cause_of(access, cell, written)
        if cause.lack == ORDERED_BEFORE:
            continue
        if who == 0:
            note_race(access.wave, access.area, tag, cell)
        elif who == WROTE:
            note_race(access.wave, access.area, cell, tag)
        if told:
            continue
        told = True
        report(access, cell, at, who, cover, cause)
        if who & BOTH_WRITE:
            return


@cold_part
def report(access: CellAccess, cell: int, at: int, who: int, cover: Cover, cause: ClashCause) -> None:
    """Reports cell `at` of a cover, which clashes. who: see `report_first_clash`."""
    tag = access.tag
    begin = (cover.start & -cover.unit) + at * cover.unit
    address = access.area.address + begin
    seen = cover.lane + max(begin - cover.start, 0) // cover.size | who
    here, there = tag & c.SITES, cell & c.SITES
    own = there >= access.block.first_site and there < access.block.first_site + access.block.records
    if there > here and own:
        here, there = there, here
        seen |= SWAPPED
    other, mine, theirs = cell >> c.GROUP_SHIFT << 4 | (cell >> c.WAVE_SHIFT & 15), tag >> c.GROUP_SHIFT, cell >> c.GROUP_SHIFT
    rank = min(mine, theirs) << c.GROUP_BITS | max(mine, theirs)
    way = cause.release & WAY | (cause.observed & WAY) << WAY_BITS
    extra = there | way << c.SITE_BITS | cause.lack << LACK_SHIFT
    enter_ranked(access.wave, here, RACE, seen | other << OTHER_SHIFT, address, extra, rank, access.record)


@cold_part
def look_scalar(access: CellAccess, cells: np.ndarray, cover: Cover) -> None:
    """Reports a scalar load of a value that its own workgroup stored before: the scalar cache may hold an older copy."""
    for at in range(cells.size):
        cell = cells[at]
        if cell and not clashes(cell, access.tag, access.floor, 0, 0) and stale_scalar(access.order, access.tag, cell):
            report(access, cell, at, 0, cover, ClashCause(SCALAR_STALE, 0, 0))
            return


@part
def compare_with_cells(access: CellAccess, cells: int, first: int, count: int, cover: Cover) -> None:
    """Compares an access with the `count` cells from `first` on that it covers. cells: c.WRITER, c.BYTE_WRITER or c.LINE_WRITER."""
    area, flags, tag, block = access.area, access.flags, access.tag, access.block
    atomic = 0 if block.narrow else tag & c.ATOMIC  # with narrow scopes, each cell is examined
    if area.written:
        writers = words(area.maps[cells] + 8 * first, count)
        if flags & WRITES:
            report_first_clash(access, writers, atomic, 0, BOTH_WRITE | WROTE, cover, True)
        elif not flags & COHERENT:
            report_first_clash(access, writers, 0, 0, 0, cover, True)
            if flags & SCALAR:
                look_scalar(access, writers, cover)
        elif not block.stores_release:
            report_first_clash(access, writers, 0 if block.narrow else c.ATOMIC, 0, 0, cover, True)
        if block.synchronises and flags & COHERENT and not flags & WRITES and block.stores_release and not is_full(block):
            for at in range(count):
                cell = writers[at]
                if clashes(cell, tag, access.floor, c.ATOMIC, 0):
                    segment = segment_of(block, cell)
                    if segment and not observed_lately(access.order, segment):
                        observe(access.wave, block, area, access.order, who_of(block, tag), access.record, segment)
    if not area.read or (not flags & WRITES and (flags & COHERENT or not area.atomics)):
        return
    skip = c.COHERENT if block.stores_release else 0
    skip = ((skip | c.COHERENT | c.ATOMIC if atomic else skip) if flags & WRITES else 0) if not block.narrow else 0
    need = 0 if flags & WRITES else c.ATOMIC
    wrote = WROTE if flags & WRITES else 0
    readers = words(area.maps[cells + 1] + 8 * first, count)
    report_first_clash(access, readers, skip, need, wrote, cover, False)
    if area.read2:
        readers = words(area.maps[cells + 2] + 8 * first, count)
        report_first_clash(access, readers, skip, need, wrote, cover, False)


@part
def record_access(access: CellAccess, cells: int, first: int, count: int) -> None:
    """Records an access in the cells that it covers; arguments as for `compare_with_cells`."""
    wave, area, flags, tag = access.wave, access.area, access.flags, access.tag
    per = 4 if cells == c.BYTE_WRITER else 1
    marks = area.maps[c.LINE_MARKS if cells == c.LINE_WRITER else c.MARKS]
    dwords = octets(marks + first // per, (first + count - 1) // per - first // per + 1)
    if flags & WRITES:
        c.note_writer(words(area.maps[cells] + 8 * first, count), tag)
        area.written = 1
        add_mark(dwords, c.WRITTEN_MARK)
    if not flags & WRITES or tag & c.ATOMIC:
        readers = words(area.maps[cells + 1] + 8 * first, count)
        seconds = words(area.maps[cells + 2] + 8 * first, count)
        came = note_first(readers, tag, access.floor)
        if came & c.AGAIN:
            note_unseen(wave, area, tag)
        if came & c.OTHERS:
            if area.read2:
                note_displaced(wave, area, readers, seconds, tag)
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
    """Compares and records an access to `nbytes` from byte `start` of the area on. size: bytes a lane. lane: the first lane."""
    area = access.area
    if (start | nbytes) & ((1 << c.LINE_SHIFT) - 1) == 0:
        line, lines = start >> c.LINE_SHIFT, nbytes >> c.LINE_SHIFT
        if c.whole_lines(area, line, lines):
            compare_with_cells(access, c.LINE_WRITER, line, lines, Cover(start, 1 << c.LINE_SHIFT, size, lane))
            record_access(access, c.LINE_WRITER, line, lines)
            return
    c.split(area, start, nbytes)
    first, last = start >> 2, (start + nbytes - 1) >> 2
    count = last - first + 1
    if (start | nbytes) & 3 == 0:
        compare_with_cells(access, c.WRITER, first, count, Cover(start, 4, size, lane))
        if area.narrowed:
            marks = octets(area.maps[c.MARKS] + first, count)
            if has_mark(marks, c.NARROW_MARK):
                compare_with_cells(access, c.BYTE_WRITER, start, nbytes, Cover(start, 1, size, lane))
        record_access(access, c.WRITER, first, count)
    else:
        compare_with_cells(access, c.WRITER, first, count, Cover(start, 4, size, lane))
        compare_with_cells(access, c.BYTE_WRITER, start, nbytes, Cover(start, 1, size, lane))
        record_access(access, c.BYTE_WRITER, start, nbytes)


@part
def access_runs(access: CellAccess, lanes: int, offsets: np.ndarray, size: int) -> None:
    """Does `access_range` for each run of consecutive bytes. Lanes that load the bytes of the lane before add nothing."""
    writes, lane = access.flags & WRITES, 0
    while lane < LANES:
        if lanes >> lane & 1 == 0:
            lane += 1
            continue
        first, end = lane, offsets[lane]
        while lane < LANES and lanes >> lane & 1 and offsets[lane] == end:
            lane += 1
            end += size
        access_range(access, offsets[first], end - offsets[first], size, first)
        while not writes and lane < LANES and lanes >> lane & 1 and offsets[lane] == end - size:
            lane += 1


@runtime
def note_atomic(wave: int, record: int, lanes: int, size: int, flags: int, area_at: int) -> None:
    """Handles an atomic that has been executed: it observes releases. Its offsets are in the wave's ADDRESSES."""
    block, slot, me = block_of(wave), number_of(wave), load32(wave + layout.WAVE_ID)
    if block.synchronises:
        who = (group_of(wave, block) & c.GROUPS) * block.stride + me
        area, order, state = structure(area_at, c.AREA), order_of(block, slot, me), state_of(block, slot)
        if flags & SWAPS and order.begun:
            stored = stored_lanes(wave, lanes, size)
            if stored != lanes:
                take_back_at(wave, block, area.heads, order, state, lanes, stored)
        observe_heads(wave, record, lanes, flags, area, block, state, order, who)


@runtime
def row(wave: int, record: int, first: int, flags: int) -> int:
    """Handles a plain access of all 64 lanes to 128 consecutive bits of LDS each, from byte `first` on.

    Returns 1 if nothing clashed and the access is recorded, 0 if `watch` must handle it.
    """
    block = block_of(wave)
    go_on(wave, record, -1)
    if block.loads:
        return 0
    store64(wave + layout.ADDRESSES, first)
    return 1 if row_alone(wave, record, flags, block, number_of(wave)) else 0


@runtime
def watch(wave: int, record: int, lanes: int, size: int, flags: int, area_at: int) -> None:
    """Handles an access whose offsets are in the wave's ADDRESSES. area_at: address of the area, 0 for the workgroup's LDS."""
    block = block_of(wave)
    if flags & SCALAR == 0:
        go_on(wave, record, lanes)
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
                    wrong = lanes_displaced(wave, lanes, size, area_at, held)
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
    """Compares an access with earlier ones, and records it."""
    state = state_of(block, slot)
    if area_at == 0:
        look_lds(wave, record, lanes, size, flags, block, slot, state)
        return
    area = structure(area_at, c.AREA)
    group, me = group_of(wave, block) & c.GROUPS, load32(wave + layout.WAVE_ID)
    offsets = words(wave + layout.ADDRESSES, LANES)
    order, whole, kind = order_of(block, slot, me), True, 0
    if flags & ATOMIC or (flags & COHERENT and flags & WRITES):
        kind = c.ATOMIC
    elif flags & COHERENT:
        kind = c.COHERENT
    elif flags & WRITES and lanes & (lanes - 1) == 0 and state.locked:
        if holds(state, (area.address + offsets[first_lane(flags, lanes)]) >> 2):
            kind = c.ATOMIC
    if block.synchronises:
        whole = stores_complete(wave, order)
        if kind == 0 and flags & WRITES and block.stores_release:
            begin_segment(wave, block, state, order, group * block.stride + me, record)
    # After the last epoch, cells of a workgroup's own waves could not be distinguished from stale ones.
    if state.clock >= c.EPOCHS - 1:
        return
    tag = group << c.GROUP_SHIFT | epoch_now(state) << c.EPOCH_SHIFT | me << c.WAVE_SHIFT | kind | site_of(block, record)
    access = CellAccess(wave, record, area, block, slot, state, order, flags, tag, floor_tag(state, group))
    if flags & SCALAR:
        access_range(access, offsets[0], size, size, 0)
    elif flags & STRAIGHT:
        access_range(access, offsets[0], size * LANES, size, 0)
    elif size & 3 or not all_without_clash(wave, area, flags, tag, access.floor, lanes, offsets, size >> 2):
        access_runs(access, lanes, offsets, size)
    if block.synchronises:
        if kind & c.ATOMIC:
            release_at(access, lanes, whole)
        if kind == c.COHERENT or (flags & ATOMIC and flags & SCALAR):
            observe_heads(wave, record, lanes, flags, area, block, state, order, who_of(block, tag))
        note_access(wave, order, tag, flags)


@part
def note_access(wave: int, order: Any, tag: int, flags: int) -> None:
    """Records the wave's latest access."""
    order.epoch = tag >> c.EPOCH_SHIFT & c.EPOCHS
    if flags & WRITES:
        order.stored, order.issued = order.epoch, load64(wave + VM_ISSUED)
    elif flags & SCALAR == 0:
        order.load_issued = load64(wave + VM_ISSUED)


@runtime
def keep_caches(wave: int, what: int) -> None:
    """Handles a cache operation of the wave."""
    block, slot = block_of(wave), number_of(wave)
    if block.synchronises == 0 or (what == INVALIDATE_L1 and not block.split):
        return
    me = load32(wave + layout.WAVE_ID)
    state, order = state_of(block, slot), order_of(block, slot, me)
    if what <= WRITE_BACK_FAR:
        write_back(wave, state, order, what - WRITE_BACK)
    elif what == SCALAR_INVALIDATE:
        invalidate_scalar(state, order)
    else:
        invalidate(wave, block, order, (group_of(wave, block) & c.GROUPS) * block.stride + me, what - INVALIDATE)
