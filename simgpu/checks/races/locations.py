"""Releases at the locations of atomics and coherent stores, and observations of them.

Each dword of an area has a head: the link to its latest release.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simgpu.checks.races.knowledge import compare_and_swap, is_full, link_at, new_link
from simgpu.checks.races.lds.carried import ATOMIC, COHERENT, RETURNS, SCALAR
from simgpu.checks.races.order import note_lock
from simgpu.checks.races.releases import new_release, observe, observed_lately, says_again, take_back, who_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import cold_part, load32, load64, part, store64, words

HASH = 0x9E3779B97F4A7C15 >> 2  # factor of a hash of link numbers

class CellAccess(NamedTuple):
    """An access of a wave to an area."""

    wave: int
    record: int
    area: Any  # `cells.Area`
    block: Any  # `order.RaceBlock`
    slot: int
    state: Any  # `order.SlotState`
    order: Any  # `order.WaveOrder`; unused if the launch does not synchronise
    flags: int  # bits of `lds.carried`: WRITES, ATOMIC, COHERENT and so on
    tag: int  # cell that the access would leave
    floor: int  # see `order.floor_tag`


@part
def first_lane(flags: int, lanes: int) -> int:
    """Returns the first lane of an access, 0 of a scalar one."""
    at = 0
    while not flags & SCALAR and lanes >> at & 1 == 0:
        at += 1
    return at


@part
def place_of(flags: int, offsets: np.ndarray, lane: int) -> int:
    """Returns the dword of the area that a lane accesses first."""
    return offsets[0 if flags & SCALAR else lane] >> 2


@cold_part
def observe_heads(wave: int, record: int, lanes: int, flags: int, area: Any, block: Any, state: Any, order: Any, who: int) -> None:
    """Records that the lanes of an atomic or a coherent load observe the releases at their locations."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    last, number, many = 0, 0, False
    for lane in range(LANES):
        if lanes >> lane & 1:
            head = load64(area.heads + 8 * place_of(flags, offsets, lane))
            if head != 0 and head != last:
                many = last != 0
                last = head
                number = number * HASH + head
    if lanes & (lanes - 1) == 0 and flags & (RETURNS | COHERENT):
        note_lock(state, (area.address >> 2) + place_of(flags, offsets, first_lane(flags, lanes)))
    if last == 0 or is_full(block) or observed_lately(order, -last if not many else number | 1 << 62):
        return
    if not many:
        observe(wave, block, area, order, who, record, -last)
        return
    cell, last = 0, 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            head = load64(area.heads + 8 * place_of(flags, offsets, lane))
            if head != 0 and head != last:
                last = head
                cell = new_link(block, -head, cell)
    observe(wave, block, area, order, who, record, -cell)


@part
def link_to(block: Any, order: Any, node: int, before: int) -> int:
    """Returns a link to a release: the one that was taken back, if it continues the same link."""
    spare = order.spare_link
    order.spare_link = 0
    if spare and link_at(block, spare).node == node and link_at(block, spare).before == before:
        return spare
    return new_link(block, node, before)


@cold_part
def release_at(access: CellAccess, lanes: int, whole: bool) -> None:
    """Records a release at the locations of the lanes of an atomic or a coherent store. whole: True if all earlier stores of the
    wave are complete."""
    wave, block, heads, record = access.wave, access.block, access.area.heads, access.record
    offsets, continues = words(wave + layout.ADDRESSES, LANES), access.flags & ATOMIC
    access.order.begun = 0
    if is_full(block):
        return
    who, node, link, before = who_of(block, access.tag), 0, 0, 0
    if lanes & (lanes - 1) == 0:
        place = place_of(access.flags, offsets, first_lane(access.flags, lanes))
        if says_again(access.state, access.order, block, heads + 8 * place):
            return
    node = new_release(wave, block, access.state, access.order, who, record, whole)
    access.order.release = access.order.begun = node
    for lane in range(LANES):
        if lanes >> lane & 1:
            head_at = heads + 8 * place_of(access.flags, offsets, lane)
            access.order.released_at = head_at
            while True:
                head = load64(head_at)
                if link_at(block, head).node == node:
                    break  # another lane has added it
                if link == 0 or (continues and head != before):
                    before = head if continues else 0
                    link = link_to(block, access.order, node, before)
                if not continues:
                    store64(head_at, link)
                elif compare_and_swap(head_at, head, link) != head:
                    continue
                break


@part
def stored_lanes(wave: int, lanes: int, size: int) -> int:
    """Returns which of the lanes of an executed compare-and-swap found the value that they compared with.

    The wave's STAGING has the new values of all lanes, those to compare with, and the old ones.
    """
    compared, old, stored = wave + layout.STAGING + size * LANES, wave + layout.STAGING + 2 * size * LANES, 0
    for lane in range(LANES):
        at = lane * size
        same = load64(compared + at) == load64(old + at) if size == 8 else load32(compared + at) == load32(old + at)
        stored |= (lanes >> lane & int(same)) << lane
    return stored


@cold_part
def take_back_at(wave: int, block: Any, heads: int, order: Any, state: Any, lanes: int, stored: int) -> None:
    """Takes back the release of a compare-and-swap at the locations where none of its lanes stored a value."""
    offsets, node, gone = words(wave + layout.ADDRESSES, LANES), order.begun, True
    for lane in range(LANES):
        if (lanes & ~stored) >> lane & 1:
            head_at, kept = heads + 8 * place_of(0, offsets, lane), False
            for other in range(LANES):
                kept = kept or (stored >> other & 1 != 0 and offsets[other] == offsets[lane])
            head = load64(head_at)
            before = link_at(block, head).before
            if kept:
                continue
            if link_at(block, head).node == node and compare_and_swap(head_at, head, before) == head:
                order.spare_link = head
            elif link_at(block, order.spare_link).before != head:  # another thread's release continues it
                gone = False
    if stored == 0 and gone:
        take_back(order, state)
