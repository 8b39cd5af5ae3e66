"""Nodes that record releases and observations, and the knowledge that a wave gains by following them.

A release is a node. It holds its wave, and three epochs: up to them the wave's accesses precede the release, are complete, and
are available to the device. It also holds the list of the wave's earlier observations. A list is a chain of nodes that grows at
its head; a node is an observation of a release, or joins two lists at a barrier. A location holds a chain of links to the
releases that a read of it observes: a read-modify-write adds a link, a store begins a new chain.

When an access clashes, the part of the wave's list that is new since the last time is followed, and the wave's table of
`KnownWave` gets what the wave learns from it.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any, NamedTuple

import numpy as np

from simgpu.checks.races.order import FAR, LEVELS, NEAR, ORDERED, VIEWS, VISITED, device_of
from simgpu.engine.workers.scheduler_loop import fetch_add
from simgpu.hardware.memory_model import Scope
from simgpu.machine.runtime import builtin, cold_part, load64, octets, part, structure, words
from simgpu.machine.values import Builder, IrValue

NODES, LINKS = 1 << 20, 1 << 22  # most nodes and links of a launch, all workers together
MARGIN = 1 << 12  # nodes and links kept free for what workers add before they check `is_full` again
LAUNCHES = 63  # most launches that overlap
STACK, STEPS = 4096, 1 << 20  # most entries on the stack of a walk, most steps of a walk
ENDLESS = -1  # `WaveOrder.explored` after a walk that exceeded them
RELEASE, OBSERVED, JOINED, OBSERVED_NEAR, OBSERVED_GROUP = range(1, 6)
LOAD, STORE, STORE_BACK, STORE_FAR = range(4)  # accesses that must be ordered before others
GROUP_SCOPE, DEVICE_SCOPE, SYSTEM_SCOPE = int(Scope.WORKGROUP), int(Scope.AGENT), int(Scope.SYSTEM)


class OrderNode(Structure):
    """A release, or the head of a list: an observation of a release, or two joined lists."""

    _fields_ = (
        # RELEASE, OBSERVED, OBSERVED_NEAR (only releases of its own device), OBSERVED_GROUP (of its own workgroup) or JOINED
        ("kind", c_int64),
        ("who", c_int64),  # number of the wave in the launch
        ("record", c_int64),  # instruction that released or observed
        ("scope", c_int64),  # scope of its access
        ("before", c_int64),  # a release: its wave's observations; otherwise the rest of the list
        # Observation: the observed node, or minus a link. Joined lists: the second list. Segment: its wave's previous segment.
        ("other", c_int64),
        ("issued", c_int64),  # observation: operations of the wave's vector memory queue up to it
        ("earlier", c_int64),  # observation: the wave's observation before it, which `before` reaches, too
        # Releases only:
        ("begin", c_int64),  # segment: the epoch that it begins
        ("time", c_int64),  # accesses of the wave up to this epoch precede it
        ("seen", c_int64),  # in tgsplit mode, the list of the observations that its plain loads see
        ("loaded", c_int64),  # loads up to this epoch are complete
        ("complete", c_int64),  # stores up to this epoch are complete
        ("available", c_int64 * LEVELS),  # stores up to this epoch are available to the device, to all devices
        ("floor", c_int64),  # all accesses of the workgroup before this epoch are complete
        ("available_floor", c_int64 * LEVELS),  # all accesses of the workgroup before this epoch are available
    )


class LocationLink(Structure):
    """A release at a location (node), the link that it continues, and the first link of their chain; or a list element: minus a
    link, and the next element. 0: none."""

    _fields_ = (("node", c_int64), ("before", c_int64), ("first", c_int64))


class KnownWave(Structure):
    """Epochs up to which a wave knows another wave's loads, complete stores, and available (written-back) stores.

    followed: the other wave's observation up to which it followed them, all of kind OBSERVED. Their numbers grow.
    """

    _fields_ = (("loaded", c_int64), ("complete", c_int64), ("available", c_int64 * LEVELS), ("followed", c_int64))


NODE, LINK, KNOWN = (np.dtype(kind) for kind in (OrderNode, LocationLink, KnownWave))
NODE_BYTES, LINK_BYTES, KNOWN_BYTES = sizeof(OrderNode), sizeof(LocationLink), sizeof(KnownWave)


class ClashCause(NamedTuple):
    """Reason why an access is not ordered or not visible, with the instructions that should have ordered it."""

    lack: int  # NOTHING to SCALAR_STALE
    release: int  # the releasing record, 0 if nothing was released and observed
    observed: int  # the observing record


NOTHING, SCOPE, WAIT, WRITE_BACK, INVALIDATE, SCALAR_STALE = range(6)  # NOTHING: neither release nor acquire


@builtin
def compare_and_swap(build: Builder, address: IrValue, old: IrValue, new: IrValue) -> IrValue:
    """Compares and swaps atomically. Returns the old value."""
    pair = build.cmpxchg(address.pointer(), old, new, "seq_cst", "seq_cst")
    found: IrValue = build.extract_value(pair, 0)
    return found


@part
def node_at(block: Any, number: int) -> Any:
    return structure(block.nodes + number * NODE_BYTES, NODE)


@part
def link_at(block: Any, number: int) -> Any:
    return structure(block.links + number * LINK_BYTES, LINK)


@part
def is_full(block: Any) -> bool:
    """True if there is no room for more nodes or links; from then on, unordered accesses are not reported."""
    return (load64(block.counts) >= NODES - MARGIN) | (load64(block.counts + 8) >= LINKS - MARGIN)


@part
def new_node(block: Any, kind: int, who: int, record: int, before: int, other: int) -> int:
    return fill_node(block, kind, who, record, before, other, 0)


@part
def fill_node(block: Any, kind: int, who: int, record: int, before: int, other: int, spare: int) -> int:
    """Returns the number of a node with these fields: `spare`, or a new one if that is 0."""
    number = spare if spare else fetch_add(block.counts, 1) + 1
    node = node_at(block, number)
    node.kind, node.who, node.record, node.before, node.other = kind, who, record, before, other
    return number


@part
def new_link(block: Any, node: int, before: int) -> int:
    number = fetch_add(block.counts + 8, 1) + 1
    link = link_at(block, number)
    link.node, link.before, link.first = node, before, link_at(block, before).first if before else number
    return number


class ReleaseChain(NamedTuple):
    """A place among observed releases: a link, and the list element that holds its chain; 0: none."""

    cell: int
    link: int


@part
def chain_of(block: Any, first: int) -> ReleaseChain:
    """Returns the first place of an observation. first: a link, or the first element of a list of chains."""
    inner = link_at(block, first).node
    return ReleaseChain(first, -inner) if inner < 0 else ReleaseChain(0, first)


@part
def next_chain(block: Any, cell: int) -> ReleaseChain:
    """Returns the first place in the next element of a list of chains."""
    rest = link_at(block, cell).before if cell else 0
    return ReleaseChain(rest, -link_at(block, rest).node if rest else 0)


@part
def known_at(block: Any, slot: int, wave: int, view: int, who: int) -> Any:
    """Returns the `KnownWave` of a slot's wave about wave `who` of the launch."""
    table = block.known + ((slot * block.waves + wave) * VIEWS + view) * block.total * KNOWN_BYTES
    return structure(table + who * KNOWN_BYTES, KNOWN)


@part
def ended_before(block: Any, launches: int, group: int) -> bool:
    """True if the launch of a workgroup ended before one of the launches, given as bits, began."""
    other = octets(block.launches + group, 1)[0]
    found = 0
    for launch in range(LAUNCHES):
        if launches >> launch & 1:
            found |= load64(block.ended + 8 * launch) >> other
    return found & 1 != 0


@part
def scope_between(block: Any, who: int, other: int) -> int:
    """Returns the scope that includes two waves of a launch, or of launches that overlap."""
    group, theirs = who // block.stride, other // block.stride
    if group == theirs:
        return GROUP_SCOPE
    return DEVICE_SCOPE if device_of(block, group) == device_of(block, theirs) else SYSTEM_SCOPE


@part
def learn(
    block: Any, slot: int, wave: int, order: Any, view: int, who: int, loaded: int, complete: int, near: int, far: int
) -> None:
    """Records that a wave knows of another's accesses up to these epochs."""
    known = known_at(block, slot, wave, view, who)
    known.loaded = max(known.loaded, loaded)
    known.complete = max(known.complete, complete)
    known.available[NEAR] = max(known.available[NEAR], min(complete, near))
    known.available[FAR] = max(known.available[FAR], min(complete, far))
    use_table(order, who)


@part
def use_table(order: Any, who: int) -> None:
    """Records that the tables of a slot's wave contain wave `who`."""
    order.low = min(order.low, who + 1) if order.low else who + 1
    order.high = max(order.high, who)


@part
def learn_release(block: Any, slot: int, wave: int, order: Any, view: int, number: int, by: Any) -> bool:
    """Learns from release `number`, which node `by` observed. Returns False if their scopes do not include each other."""
    node = node_at(block, number)
    first, between = node.who - node.who % block.stride, scope_between(block, node.who, by.who)
    if min(node.scope, by.scope) < between or (by.kind == OBSERVED_NEAR and between == SYSTEM_SCOPE):
        return False
    if by.kind == OBSERVED_GROUP and between != GROUP_SCOPE:
        return False
    if block.devices:
        order.met[view] |= 1 << octets(block.launches + node.who // block.stride, 1)[0]
    far = FAR if between == SYSTEM_SCOPE else NEAR  # a release of the device passes on to others all that is available there
    if between == GROUP_SCOPE and block.split:  # both use one L2
        learn(block, slot, wave, order, view, node.who, node.loaded, node.complete, node.complete, node.complete)
    elif between == GROUP_SCOPE:  # both use one L1, where operations of all waves are in order
        learn(block, slot, wave, order, view, node.who, node.time, node.time, node.time, node.time)
    else:
        available = node.available
        learn(block, slot, wave, order, view, node.who, node.loaded, node.complete, available[NEAR], available[far])
    floor, floors = node.floor - 1, node.available_floor
    for other in range(block.stride):  # the releasing wave may not have waited for its own accesses before its last barrier
        if first + other != node.who:
            learn(block, slot, wave, order, view, first + other, floor, floor, floors[NEAR] - 1, floors[far] - 1)
    return True


@part
def list_before(block: Any, release: int, by: Any) -> int:
    """Returns the list of what an observation of a release passes on. An invalidate of only the L1 shows what the releasing wave
    itself sees."""
    node = node_at(block, release)
    return node.seen if by.kind == OBSERVED_GROUP else node.before


@part
def is_new(block: Any, slot: int, wave: int, order: Any, view: int, number: int) -> bool:
    """True if list node `number` was not followed yet, as far as is remembered."""
    if number == 0:
        return False
    node = node_at(block, number)
    if node.kind == OBSERVED:
        return number > known_at(block, slot, wave, view, node.who).followed
    return order.visited[view * VISITED + (number & (VISITED - 1))] != number


@part
def followed_link(block: Any, order: Any, view: int, link: int) -> int:
    """Returns the link up to which the chain of a link was followed, as far as the small table remembers; 0 if none."""
    first = link_at(block, link).first
    last = -order.visited[view * VISITED + (first & (VISITED - 1))]
    return last if last > 0 and link_at(block, last).first == first else 0


class Walk(NamedTuple):
    """State of a walk: the height of its stack, and the steps that it took."""

    height: int
    steps: int


@part
def push(block: Any, slot: int, wave: int, order: Any, view: int, count: int, number: int) -> int:
    """Puts a list on the stack of a walk if it has something new. Returns the stack's height; above STACK it has no room."""
    if is_new(block, slot, wave, order, view, number):
        if count < STACK:
            words(block.stack, STACK)[count] = number
        count += 1
    return count


@part
def follow_links(block: Any, slot: int, wave: int, order: Any, view: int, by: Any, last: int, walk: Walk) -> Walk:
    """Follows the releases at a location that node `by` observed, from link `last` back to those that were followed."""
    link, count, steps = last, walk.height, walk.steps
    whole = by.kind != OBSERVED_GROUP
    known = followed_link(block, order, view, last) if whole else 0
    while link > known and count <= STACK and steps <= STEPS:
        entry = link_at(block, link)
        link = entry.before
        steps += 1
        if learn_release(block, slot, wave, order, view, entry.node, by):
            count = push(block, slot, wave, order, view, count, list_before(block, entry.node, by))
        else:
            whole = False
    if whole and last > known:
        order.visited[view * VISITED + (link_at(block, last).first & (VISITED - 1))] = -last
    return Walk(count, steps)


@part
def follow(block: Any, slot: int, wave: int, order: Any, view: int, by: Any, walk: Walk) -> Walk:
    """Follows what list node `by` names: an observed release, those at locations, or a joined list."""
    count, steps = walk.height, walk.steps + 1
    if by.kind == JOINED:
        count = push(block, slot, wave, order, view, count, by.other)
    elif by.other > 0:
        if learn_release(block, slot, wave, order, view, by.other, by):
            count = push(block, slot, wave, order, view, count, list_before(block, by.other, by))
    else:
        chain = chain_of(block, -by.other)
        while chain.link:
            walk = follow_links(block, slot, wave, order, view, by, chain.link, Walk(count, steps))
            count, steps = walk.height, walk.steps
            chain = next_chain(block, chain.cell)
    return Walk(count, steps)


@cold_part
def explore(block: Any, slot: int, wave: int, order: Any, view: int) -> bool:
    """Follows the new part of a wave's list. Returns False if it exceeds STACK or STEPS, which ends the wave's walks."""
    count, steps = push(block, slot, wave, order, view, 0, order.lists[view]), 0
    while count:
        count -= 1
        number, followed = words(block.stack, STACK)[count], 0
        if not is_new(block, slot, wave, order, view, number):
            continue
        node = node_at(block, number)
        if node.kind == OBSERVED:
            known = known_at(block, slot, wave, view, node.who)
            followed, known.followed = known.followed, number
            use_table(order, node.who)
        else:
            order.visited[view * VISITED + (number & (VISITED - 1))] = number
        while number > followed:  # a wave's observations, the latest first
            node = node_at(block, number)
            number = node.earlier
            if node.before != number:
                count = push(block, slot, wave, order, view, count, node.before)
            walk = follow(block, slot, wave, order, view, node, Walk(count, steps))
            count, steps = walk.height, walk.steps
            if count > STACK or steps > STEPS:
                order.explored[view] = ENDLESS
                return False
    order.explored[view] = order.lists[view]
    return True


@part
def has_learnt(block: Any, slot: int, wave: int, order: Any, view: int, who: int, epoch: int, what: int) -> bool:
    """True if a wave's tables say that it knows of an access; see `knows`."""
    known = known_at(block, slot, wave, view, who)
    if order.met[view] and ended_before(block, order.met[view], who // block.stride):
        return True
    if what == LOAD:
        return known.loaded >= epoch
    if what == STORE:
        return known.complete >= epoch
    return known.available[FAR if what == STORE_FAR else NEAR] >= epoch


@part
def knows(block: Any, slot: int, wave: int, order: Any, view: int, who: int, epoch: int, what: int) -> bool:
    """True if a wave knows of an access of wave `who`, or if a walk gave up.

    what: LOAD, STORE, or a store that must be written back to be available, STORE_BACK to the device, STORE_FAR to all
    """
    if order.explored[view] == ENDLESS or has_learnt(block, slot, wave, order, view, who, epoch, what):
        return True
    if order.explored[view] == order.lists[view]:
        return False
    return not explore(block, slot, wave, order, view) or has_learnt(block, slot, wave, order, view, who, epoch, what)


@cold_part
def find_release(block: Any, order: Any, who: int, epoch: int, what: int) -> ClashCause:
    """Returns why a wave does not know of an access: the lack, and the first observed release after the access."""
    stack = words(block.stack, STACK)
    count, steps, narrow = 1, 0, ClashCause(NOTHING, 0, 0)
    stack[0] = order.lists[ORDERED]
    while count:
        count -= 1
        number = stack[count]
        steps += 1
        if number == 0 or steps > STACK or count + 4 > STACK:
            continue
        node = node_at(block, number)
        stack[count] = node.before
        count += 1
        if node.kind == JOINED:
            stack[count] = node.other
            count += 1
            continue
        chain = chain_of(block, -node.other) if node.other < 0 else ReleaseChain(0, 0)
        cell, link = chain.cell, chain.link
        released = link_at(block, link).node if link else node.other
        while released:
            steps += 1
            found = node_at(block, released)
            mine = found.who == who and found.time >= epoch
            mates = found.who // block.stride == who // block.stride
            if mine or (mates and found.who != who and found.floor > epoch):
                between = scope_between(block, found.who, node.who)
                far = FAR if what == STORE_FAR and between == SYSTEM_SCOPE else NEAR
                if min(found.scope, node.scope) < between:
                    narrow = ClashCause(SCOPE, found.record, node.record)
                elif ((found.loaded if what == LOAD else found.complete) < epoch) if mine else (found.floor <= epoch):
                    return ClashCause(WAIT, found.record, node.record)
                elif what >= STORE_BACK and ((found.available[far] < epoch) if mine else (found.available_floor[far] <= epoch)):
                    return ClashCause(WRITE_BACK, found.record, node.record)
                else:
                    return ClashCause(INVALIDATE, found.record, node.record)
            if count + 4 < STACK and steps < STACK:
                stack[count] = found.before
                count += 1
            else:
                return narrow
            link = link_at(block, link).before if link else 0
            if link == 0:
                chain = next_chain(block, cell)
                cell, link = chain.cell, chain.link
            released = link_at(block, link).node if link else 0
    return narrow
