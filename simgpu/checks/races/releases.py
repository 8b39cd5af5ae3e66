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
    OBSERVED_GROUP,
    OBSERVED_NEAR,
    RELEASE,
    SCALAR_STALE,
    STORE,
    STORE_BACK,
    STORE_FAR,
    ClashCause,
    compare_and_swap,
    ended_before,
    fill_node,
    find_release,
    is_full,
    known_at,
    knows,
    link_at,
    new_link,
    new_node,
    node_at,
)
from simgpu.checks.races.lds.carried import SCALAR, WRITES
from simgpu.checks.races.order import (  # fmt: skip
    FAR,
    FAR_VISIBLE,
    LEVELS,
    ORDER_BYTES,
    ORDERED,
    RECENT,
    SCALAR_VISIBLE,
    VIEWS,
    VISIBLE,
    VISITED,
    device_of,
    epoch_now,
    order_of,
    site_of,
)
from simgpu.checks.waits.in_flight import VM_DONE, VM_ISSUED
from simgpu.hardware.memory_model import Scope
from simgpu.machine.runtime import address_of, clear, cold_part, load64, octets, part, words

L2_ALONE, L1_ALONE = LEVELS, LEVELS + 1  # see `invalidate`
GRID_HEAD = 16  # byte of `RaceBlock.counts` with the latest link of an arrival at ds_gws_barrier
ORDERED_BEFORE = -1  # `ClashCause.lack` of an access that is ordered and visible


@part
def scope_at(block: Any, site: int) -> int:
    """Returns the scope of an access, by the number of its record in cells and nodes."""
    return octets(block.scopes + site, 1)[0]


@part
def reach_of(block: Any, area: Any, site: int) -> int:
    """Returns the widest scope that an access to an area orders. Coarse-grained memory orders nothing between devices."""
    scope = scope_at(block, site)
    return min(scope, int(Scope.AGENT)) if area.coarse else scope


@part
def who_of(block: Any, tag: int) -> int:
    """Returns the wave of the launch in a tag or cell."""
    return (tag >> c.GROUP_SHIFT) * block.stride + (tag >> c.WAVE_SHIFT & 15)


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
    number = fill_node(block, RELEASE, who, site_of(block, record), order.lists[ORDERED], 0, order.spare)
    order.spare = 0
    node = node_at(block, number)
    node.scope = scope_at(block, node.record)
    node.time, node.loaded, node.complete, node.seen = epoch, order.loaded, order.complete, order.lists[VISIBLE]
    node.floor = state.floor + 1
    for level in range(LEVELS):
        if block.through[level]:
            node.available[level], node.available_floor[level] = order.complete, state.floor + 1
        else:
            written = order.written[level]
            if written and (order.written_settled[level] or order.written_issued[level] <= load64(wave + VM_DONE)):
                order.available[level] = written
                state.available_floor[level] = max(state.available_floor[level], order.written_floor[level])
            node.available[level] = min(order.available[level], order.complete)
            node.available_floor[level] = state.available_floor[level] + 1
    state.clock += 1
    return number


@part
def take_back(order: Any, state: Any) -> None:
    """Takes back the release that an atomic has begun, which names no location any more."""
    order.spare, order.release, order.begun = order.begun, 0, 0
    state.clock -= 1  # no other access came in between


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


@part
def new_observation(block: Any, order: Any, who: int, record: int, what: int, scope: int) -> int:
    """Makes the node of a wave's observation, the new head of its list. record, what: see `OrderNode`."""
    number = new_node(block, OBSERVED, who, record, order.lists[ORDERED], what)
    node = node_at(block, number)
    node.scope, node.earlier = scope, order.latest
    order.lists[ORDERED] = order.latest = number
    return number


@cold_part
def observe(wave: int, block: Any, area: Any, order: Any, who: int, record: int, what: int) -> None:
    """Records that the wave observed releases in an area. what: a node, or minus a link or list element.

    Who passes the barrier of a grid sees what was released, without an invalidate: each wave invalidates its caches before it
    arrives (ROCm's device library, ockl/src/cg.cl), so none of the launch has an older copy when the barrier opens.
    """
    site = site_of(block, record)
    number = new_observation(block, order, who, site, what, reach_of(block, area, site))
    node_at(block, number).issued = load64(wave + VM_ISSUED)
    if area.barrier:
        order.lists[VISIBLE] = order.near_from = number


@cold_part
def release_to_grid(wave: int, block: Any, state: Any, order: Any, who: int, record: int) -> None:
    """Records a release to all waves that pass the grid's ds_gws_barrier."""
    if is_full(block):
        return
    node, head_at = new_release(wave, block, state, order, who, record, stores_complete(wave, order)), block.counts + GRID_HEAD
    while True:
        head = load64(head_at)
        if compare_and_swap(head_at, head, new_link(block, node, head)) == head:
            break
    order.grid_barrier = record


@cold_part
def observe_grid(block: Any, order: Any, who: int) -> None:
    """Records that a wave at an s_barrier passed ds_gws_barrier before: it observed all arrivals. See `observe` for caches."""
    if order.grid_barrier == 0 or is_full(block):
        return
    arrivals = -load64(block.counts + GRID_HEAD)
    number = new_observation(block, order, who, site_of(block, order.grid_barrier), arrivals, int(Scope.AGENT))
    order.lists[VISIBLE] = order.near_from = number
    order.grid_barrier = 0


@cold_part
def segment_of(block: Any, cell: int) -> int:
    """Returns the node of the segment that contains the plain store of a cell, 0 if none."""
    number, epoch = words(block.segments + 8 * who_of(block, cell), 1)[0], cell >> c.EPOCH_SHIFT & c.EPOCHS
    while number and node_at(block, number).begin > epoch:
        number = node_at(block, number).other
    return number


# -- cache operations and barriers ---------------------------------------------------------------------


@cold_part
def write_back(wave: int, state: Any, order: Any, farthest: int) -> None:
    """Handles a write-back of the L2: it makes earlier accesses of the wave and its workgroup available. farthest: the level."""
    for level in range(farthest + 1):
        order.written[level], order.written_floor[level] = epoch_now(state), state.floor
        order.written_issued[level], order.written_settled[level] = load64(wave + VM_ISSUED), stores_complete(wave, order)
    state.clock += 1


@cold_part
def invalidate(wave: int, block: Any, order: Any, who: int, what: int) -> None:
    """Handles an invalidate: later plain loads see the observed releases, except by observing loads that are still in flight.

    what: NEAR, FAR if other devices' memory is also dropped, L2_ALONE if only the L2 drops it, and not the L1, L1_ALONE if only the
    L1 drops it
    """
    number, done, waiting = order.lists[ORDERED], load64(wave + VM_DONE), True
    while number and waiting:
        node = node_at(block, number)
        waiting = node.kind == OBSERVED and node.who == who and node.issued > done
        if waiting:
            number = node.before
    before, far = order.lists[VISIBLE], order.lists[FAR_VISIBLE]
    if what == L1_ALONE:
        show_group(block, order, who, number)
        return
    if what != L2_ALONE:
        order.lists[VISIBLE] = order.near_from = number
    if block.devices == 0:
        return
    if what == FAR or (what == L2_ALONE and number == before):
        order.lists[FAR_VISIBLE] = number
    elif what == L2_ALONE:
        order.dropped = number
    elif order.dropped:
        order.lists[FAR_VISIBLE] = order.dropped
        order.dropped = 0
    else:
        while number and number != before and not is_full(block):
            node = node_at(block, number)
            if node.kind == OBSERVED and node.who == who:
                far = new_node(block, OBSERVED_NEAR, who, node.record, far, node.other)
                node_at(block, far).scope = node.scope
            number = node.before
        order.lists[FAR_VISIBLE] = far


@cold_part
def show_group(block: Any, order: Any, who: int, last: int) -> None:
    """Lets plain loads of a wave see the releases of its workgroup among its observations up to `last`."""
    number, shown = last, order.lists[VISIBLE]
    while number and number != order.near_from and not is_full(block):
        node = node_at(block, number)
        if node.kind == OBSERVED:
            shown = new_node(block, OBSERVED_GROUP, who, node.record, shown, node.other)
            node_at(block, shown).scope = node.scope
        number = node.before
    order.lists[VISIBLE], order.near_from = shown, last


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
    for level in range(LEVELS):
        back = True
        for wave in range(block.waves):
            order = order_of(block, slot, wave)
            back = back and (order.stored <= order.written[level] or order.stored <= state.available_floor[level])
        if back:
            state.available_floor[level] = state.clock
    first = order_of(block, slot, 0)
    for view in range(VIEWS):
        differs = False
        for wave in range(1, block.waves):
            differs = differs or order_of(block, slot, wave).lists[view] != first.lists[view]
        if differs and not is_full(block):
            join_lists(block, slot, view)


@cold_part
def arrive(wave: int, block: Any, slot: int, state: Any, me: int, record: int, who: int) -> None:
    """Handles a wave's arrival at a barrier in tgsplit mode: it releases complete operations."""
    if not is_full(block):
        order = order_of(block, slot, me)
        order.arrival = new_release(wave, block, state, order, who, record, stores_complete(wave, order))


@cold_part
def meet_apart(block: Any, slot: int, first: int) -> None:
    """Lets all waves that are at a barrier in tgsplit mode observe each other's arrival. first: the first wave's number."""
    if is_full(block):
        return
    link, record = 0, 0
    for wave in range(block.waves):
        order = order_of(block, slot, wave)
        if order.arrival:
            link, record = new_link(block, order.arrival, link), node_at(block, order.arrival).record
    for wave in range(block.waves):
        order = order_of(block, slot, wave)
        if order.arrival:
            new_observation(block, order, first + wave, record, -link, int(Scope.WORKGROUP))
            order.arrival = 0


@cold_part
def forget_order(block: Any, slot: int) -> None:
    """Clears the order of a slot whose workgroup has ended."""
    views = VIEWS if block.devices else FAR_VISIBLE  # the last one is used only between devices
    for wave in range(block.waves):
        order = order_of(block, slot, wave)
        if order.low:
            for view in range(views):
                low = order.low - 1
                clear(address_of(known_at(block, slot, wave, view, low)), (order.high + 1 - low) * KNOWN_BYTES)
        clear(address_of(order), ORDER_BYTES - 8 * VISITED * (VIEWS - views))


# -- order ---------------------------------------------------------------------------------------------


@part
def needed_scope(block: Any, tag: int, cell: int) -> int:
    """Returns the scope that two accesses need to synchronise."""
    if (tag ^ cell) < c.GROUP_UNIT:
        return int(Scope.WORKGROUP)
    same = device_of(block, tag >> c.GROUP_SHIFT) == device_of(block, cell >> c.GROUP_SHIFT)
    return int(Scope.AGENT) if same else int(Scope.SYSTEM)


@part
def was_over(block: Any, cell: int) -> bool:
    """True if the launch of a cell's access ended before this one began, which orders everything."""
    if block.devices == 0:
        return False
    return ended_before(block, 1 << block.launch, cell >> c.GROUP_SHIFT)


@part
def passes_caches(block: Any, area: Any, tag: int, needed: int) -> bool:
    """True if an access itself reaches what all threads of a scope share. tag: its tag, or its cell."""
    scope = scope_at(block, tag & c.SITES)
    if needed == int(Scope.SYSTEM) and not area.coarse and scope == int(Scope.AGENT):
        return True  # no cache holds fine-grained memory beyond the caches that a device's threads share
    return scope >= needed


@part
def stale_scalar(order: Any, tag: int, cell: int) -> bool:
    """True if a scalar load of a value that its workgroup stored before may find an older copy in the scalar cache."""
    epoch, own = cell >> c.EPOCH_SHIFT & c.EPOCHS, (cell ^ tag) & c.WAVES_MASK == 0
    return (order.scalar_epoch < epoch) if own else (order.scalar_floor <= epoch)


@cold_part
def lack_of(block: Any, area: Any, slot: int, order: Any, tag: int, cell: int, flags: int, written: bool) -> ClashCause:
    """Returns why the access in `cell` is not ordered before that of `tag`, or not visible to it; ORDERED_BEFORE if it is both.

    written: True for a writer's cell.
    """
    who, epoch = who_of(block, cell), cell >> c.EPOCH_SHIFT & c.EPOCHS
    needed = needed_scope(block, tag, cell)
    if is_full(block):
        return ClashCause(ORDERED_BEFORE, 0, 0)
    view = ORDERED
    if flags & WRITES == 0 and flags & SCALAR:
        view = SCALAR_VISIBLE
    elif flags & WRITES == 0 and (needed > int(Scope.WORKGROUP) or block.split) and not passes_caches(block, area, tag, needed):
        view = FAR_VISIBLE if needed == int(Scope.SYSTEM) else VISIBLE
    what = STORE if written else LOAD
    if written and needed == int(Scope.SYSTEM) and (block.stores_release or not passes_caches(block, area, cell, needed)):
        what = STORE_FAR
    elif written and needed == int(Scope.AGENT) and not passes_caches(block, area, cell, needed):
        what = STORE_BACK
    if knows(block, slot, tag >> c.WAVE_SHIFT & 15, order, view, who, epoch, what):
        return ClashCause(ORDERED_BEFORE, 0, 0)
    found = find_release(block, order, who, epoch, what)
    if found.lack == INVALIDATE and view == SCALAR_VISIBLE and knows(
        block, slot, tag >> c.WAVE_SHIFT & 15, order, VISIBLE, who, epoch, what
    ):
        return ClashCause(SCALAR_STALE, found.release, found.observed)
    return found
