"""Releases, observations, write-backs and invalidates of a wave, and the order that follows; `knowledge` stores them."""

from __future__ import annotations

from typing import Any

from simgpu.checks.races import cells as c
from simgpu.checks.races.knowledge import (  # fmt: skip
    INVALIDATE,
    JOINED,
    KNOWN_BYTES,
    LOAD,
    OBSERVED,
    RELEASE,
    SCALAR_STALE,
    STORE,
    STORE_BACK,
    ClashCause,
    find_release,
    is_full,
    known_at,
    knows,
    link_at,
    new_node,
    node_at,
)
from simgpu.checks.races.lds.carried import SCALAR, WRITES
from simgpu.checks.races.order import (  # fmt: skip
    ORDER_BYTES,
    ORDERED,
    RECENT,
    SCALAR_VISIBLE,
    VIEWS,
    VISIBLE,
    epoch_now,
    order_of,
)
from simgpu.checks.waits.in_flight import VM_DONE, VM_ISSUED
from simgpu.hardware.memory_model import Scope
from simgpu.machine.runtime import address_of, clear, cold_part, load64, octets, part, words

ORDERED_BEFORE = -1  # `ClashCause.lack` of an access that is ordered and visible


@part
def scope_at(block: Any, record: int) -> int:
    """Returns the scope of a record's access."""
    return octets(block.scopes + record, 1)[0]


@part
def who_of(block: Any, tag: int) -> int:
    """Returns the wave of the launch in a tag or cell."""
    return (tag >> c.GROUP_SHIFT) * block.waves + (tag >> c.WAVE_SHIFT & 15)


@part
def stores_complete(wave: int, order: Any) -> bool:
    """True if all stores of the wave are certainly complete."""
    return order.issued <= load64(wave + VM_DONE)


@cold_part
def new_release(wave: int, block: Any, state: Any, order: Any, who: int, record: int, complete: bool) -> int:
    """Returns a new release of all accesses of the wave so far; later ones have a later epoch. complete: True if all its stores
    are complete."""
    epoch = epoch_now(state)
    if order.load_issued <= load64(wave + VM_DONE):
        order.loaded = epoch
    if complete:
        order.complete = epoch
    if block.stores_release:
        order.available, available_floor = order.complete, state.floor + 1
    else:
        if order.written and (order.written_settled or order.written_issued <= load64(wave + VM_DONE)):
            order.available = order.written
            state.available_floor = max(state.available_floor, order.written_floor)
        available_floor = state.available_floor + 1
    number = new_node(block, RELEASE, who, record, order.lists[ORDERED], 0)
    node = node_at(block, number)
    node.scope = scope_at(block, record)
    node.time, node.loaded, node.complete = epoch, order.loaded, order.complete
    node.available = min(order.available, order.complete)
    node.floor, node.available_floor = state.floor + 1, available_floor
    state.clock += 1
    return number


@cold_part
def begin_segment(wave: int, block: Any, state: Any, order: Any, who: int, record: int) -> None:
    """Handles a plain store that may be an atomic one: on such targets both look alike. Begins a segment, a release whose epoch
    separates earlier accesses from later ones, unless the store releases nothing new."""
    if is_full(block):
        return
    segment, whole = order.segment, stores_complete(wave, order)
    if segment:
        held = node_at(block, segment)
        news = whole and order.epoch > held.complete
        if not news and held.floor == state.floor + 1 and held.before == order.lists[ORDERED]:
            return
    number = new_release(wave, block, state, order, who, record, whole)
    node = node_at(block, number)
    node.begin = node.time + 1
    node.time = node.begin  # includes the segment's accesses before the store, for reports about it
    node.other = segment
    order.segment = number
    words(block.segments + 8 * who, 1)[0] = number


@cold_part
def says_again(state: Any, order: Any, block: Any, head_at: int) -> bool:
    """True if the wave's last release was at this location, the location is unchanged, and the wave has nothing new to release."""
    last, head = order.release, load64(head_at)
    if last == 0 or order.released_at != head_at or head == 0 or link_at(block, head).node != last:
        return False
    held = node_at(block, last)
    return order.epoch <= held.time and held.before == order.lists[ORDERED] and held.floor == state.floor + 1


@cold_part
def observed_lately(order: Any, what: int) -> bool:
    """True if `what` is among the wave's latest observations. Otherwise records it there."""
    for at in range(min(RECENT, order.acquired)):
        if order.recent[at] == what:
            return True
    order.recent[order.acquired % RECENT] = what
    order.acquired += 1
    return False


@cold_part
def observe(wave: int, block: Any, order: Any, who: int, record: int, what: int) -> None:
    """Records that the wave observed releases. what: a node, or minus a link or list element."""
    number = new_node(block, OBSERVED, who, record, order.lists[ORDERED], what)
    node = node_at(block, number)
    node.scope = scope_at(block, record)
    node.issued = load64(wave + VM_ISSUED)
    order.lists[ORDERED] = number


@cold_part
def segment_of(block: Any, cell: int) -> int:
    """Returns the node of the segment that contains the plain store of a cell, 0 if none."""
    number, epoch = words(block.segments + 8 * who_of(block, cell), 1)[0], cell >> c.EPOCH_SHIFT & c.EPOCHS
    while number and node_at(block, number).begin > epoch:
        number = node_at(block, number).other
    return number


# -- cache operations and barriers ---------------------------------------------------------------------


@cold_part
def write_back(wave: int, state: Any, order: Any) -> None:
    """Handles a write-back of the L2: it makes earlier accesses of the wave and its workgroup available to the device."""
    order.written, order.written_floor = epoch_now(state), state.floor
    order.written_issued, order.written_settled = load64(wave + VM_ISSUED), stores_complete(wave, order)
    state.clock += 1


@cold_part
def invalidate(wave: int, block: Any, order: Any, who: int) -> None:
    """Handles an invalidate: later plain loads see the observed releases, except by observing loads that are still in flight."""
    number, done, waiting = order.lists[ORDERED], load64(wave + VM_DONE), True
    while number and waiting:
        node = node_at(block, number)
        waiting = node.kind == OBSERVED and node.who == who and node.issued > done
        if waiting:
            number = node.before
    order.lists[VISIBLE] = number


@cold_part
def invalidate_scalar(state: Any, order: Any) -> None:
    """Handles s_dcache_inv: later scalar loads see the observed releases, and earlier stores of the workgroup."""
    order.lists[SCALAR_VISIBLE] = order.lists[ORDERED]
    order.scalar_floor, order.scalar_epoch = state.floor + 1, epoch_now(state)
    state.clock += 1


@cold_part
def join_lists(block: Any, slot: int, view: int) -> None:
    """Joins the lists of all waves at a barrier: each wave gets all of them."""
    joined = 0
    for wave in range(block.waves):
        mine = order_of(block, slot, wave).lists[view]
        if mine == 0 or mine == joined:
            continue
        joined = new_node(block, JOINED, 0, 0, joined, mine) if joined else mine
    for wave in range(block.waves):
        order_of(block, slot, wave).lists[view] = joined


@cold_part
def meet(block: Any, slot: int, state: Any) -> None:
    """Updates the waves' orders when all waves are at a barrier. The clock has advanced already."""
    back = True
    for wave in range(block.waves):
        order = order_of(block, slot, wave)
        back = back and (order.stored <= order.written or order.stored <= state.available_floor)
    if back:
        state.available_floor = state.clock
    first = order_of(block, slot, 0)
    for view in range(VIEWS):
        differs = False
        for wave in range(1, block.waves):
            differs = differs or order_of(block, slot, wave).lists[view] != first.lists[view]
        if differs and not is_full(block):
            join_lists(block, slot, view)


@cold_part
def forget_order(block: Any, slot: int) -> None:
    """Clears the order of a slot whose workgroup has ended."""
    for wave in range(block.waves):
        order = order_of(block, slot, wave)
        if order.low:
            for view in range(VIEWS):
                low = order.low - 1
                clear(address_of(known_at(block, slot, wave, view, low)), (order.high + 1 - low) * KNOWN_BYTES)
        clear(address_of(order), ORDER_BYTES)


# -- order ---------------------------------------------------------------------------------------------


@part
def needed_scope(apart: int) -> int:
    """Returns the scope that two accesses need to synchronise. apart: exclusive or of their tags."""
    return int(Scope.AGENT) if apart >= c.GROUP_UNIT else int(Scope.WORKGROUP)


@part
def stale_scalar(order: Any, tag: int, cell: int) -> bool:
    """True if a scalar load of a value that its workgroup stored before may find an older copy in the scalar cache."""
    epoch, own = cell >> c.EPOCH_SHIFT & c.EPOCHS, (cell ^ tag) & c.WAVES_MASK == 0
    return (order.scalar_epoch < epoch) if own else (order.scalar_floor <= epoch)


@cold_part
def lack_of(block: Any, slot: int, order: Any, tag: int, cell: int, flags: int, written: bool) -> ClashCause:
    """Returns why the access in `cell` is not ordered before that of `tag`, or not visible to it; ORDERED_BEFORE if it is both.

    written: True for a writer's cell.
    """
    who, epoch = who_of(block, cell), cell >> c.EPOCH_SHIFT & c.EPOCHS
    within = (cell ^ tag) < c.GROUP_UNIT
    if is_full(block):
        return ClashCause(ORDERED_BEFORE, 0, 0)
    view = ORDERED
    if flags & WRITES == 0 and flags & SCALAR:
        view = SCALAR_VISIBLE
    elif flags & WRITES == 0 and not within and scope_at(block, tag & c.SITES) < int(Scope.AGENT):
        view = VISIBLE
    back = not within and scope_at(block, cell & c.SITES) < int(Scope.AGENT)
    what = (STORE_BACK if back else STORE) if written else LOAD
    if knows(block, slot, tag >> c.WAVE_SHIFT & 15, order, view, who, epoch, what):
        return ClashCause(ORDERED_BEFORE, 0, 0)
    found = find_release(block, order, who, epoch, what)
    if found.lack == INVALIDATE and view == SCALAR_VISIBLE and knows(
        block, slot, tag >> c.WAVE_SHIFT & 15, order, VISIBLE, who, epoch, what
    ):
        return ClashCause(SCALAR_STALE, found.release, found.observed)
    return found
