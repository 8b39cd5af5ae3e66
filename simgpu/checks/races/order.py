"""What orders accesses besides barriers: atomics, and loads and stores that go past the caches.

A workgroup or wave releases by an atomic or a coherent store, and acquires by an atomic that returns
or a coherent load. An earlier access counts as ordered before a later one where its side released
after it, the later side acquired after that, and both did so on locations of the same class
(64 classes). A plain store that a coherent load read is a release, too: gfx908's and gfx90a's atomic
stores look like plain ones. This leans to silence: it does not ask for the cache operations that go with it.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, GROUP_SHIFT, GROUP_UNIT, WAVE_SHIFT
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context
from simgpu.machine.runtime import part, seldom, structure

(BARRIERS,) = wave_fields("races", 1)  # barriers that the wave passed
(BLOCK_AT,) = context_fields("races", 1)  # address of the worker's Block
RING, LOCKS, WAVES = 32, 8, 16
RELEASES, ACQUIRES = range(2)


class RaceClock(Structure):
    """What all workers share."""

    _fields_ = (
        ("time", c_int64),
        ("missed", c_int64),  # whether a barrier was passed without waves that had ended
    )


class RaceBlock(Structure):
    """What the functions of this check find a worker's memory by."""

    _fields_ = (
        ("lds_shadow", c_int64),  # address of that of slot 0's LDS
        ("lds_stride", c_int64),  # bytes from a slot's to the next one's
        ("lds_words", c_int64),  # u64 words of a bitmap there
        ("states", c_int64),  # address of the slots' State
        ("table", c_int64),  # address of a Group for each workgroup
        ("clock", c_int64),  # address of the Clock
        ("grid", c_int64 * 2),  # workgroups in x and y
        ("uses", c_int64),  # address of a `uses.Use` for each record
        # Of the loads that `expected` found:
        ("loads", c_int64),  # how many there are
        ("roles", c_int64),  # address of a byte for each record: a load's number from 1 on, or SWAP and a swap's from 0 on
        ("expects", c_int64),  # address of an i64 for each swap: the loads, as bits, of which it expects the value
        ("rivals", c_int64),  # address of an i64 for each load: the others that a swap of it expects, too
        ("pending", c_int64),  # address of what waits: `Pending` by slot, wave and load
    )


class Classes(Structure):
    """Classes of locations, as bits, of a wave's releases or acquires in one epoch."""

    _fields_ = (("epoch", c_int64), ("bits", c_int64))


class SlotState(Structure):
    """A slot's workgroup."""

    _fields_ = (
        ("meet_epoch", c_int64),  # where its waves meet at a barrier: epoch, record, the wave that came first
        ("meet_record", c_int64),
        ("meet_wave", c_int64),
        ("known", c_int64),  # accesses of others that it learnt of
        ("ring", c_int64 * RING),  # the latest of them
        ("locked", c_int64),  # locations that it acquired
        ("locks", c_int64 * LOCKS),  # the latest of them
        ("sides", Classes * (2 * 2 * WAVES)),  # by RELEASES or ACQUIRES, space and wave
    )


class RaceGroup(Structure):
    """A workgroup in the shared table."""

    _fields_ = (
        ("epoch", c_int64),  # the last of its releases
        ("releases", c_int64),  # their classes
        ("first", c_int64),  # time of the first
        ("acquires", c_int64),  # classes of its acquires
        ("last", c_int64),  # time of the last
    )


CLOCK, BLOCK, STATE, GROUP = (np.dtype(kind) for kind in (RaceClock, RaceBlock, SlotState, RaceGroup))
STATE_BYTES, GROUP_BYTES = sizeof(SlotState), sizeof(RaceGroup)
LDS, GLOBAL = range(2)  # spaces


@part
def class_of(location: int) -> int:
    """The class of a dword's address, as one bit of 64."""
    return 1 << ((location ^ location >> 6 ^ location >> 12) & 63)


@part
def block_of(wave: int) -> Any:
    return structure(context(wave, BLOCK_AT), BLOCK)


@part
def state_of(block: Any, slot: int) -> Any:
    return structure(block.states + slot * STATE_BYTES, STATE)


@part
def clock_of(block: Any) -> Any:
    return structure(block.clock, CLOCK)


@part
def row_of(block: Any, tag: int) -> Any:
    """The table's row of the workgroup in a tag or cell."""
    return structure(block.table + GROUP_BYTES * (tag >> GROUP_SHIFT), GROUP)


@part
def side(state: Any, which: int, space: int, tag: int) -> Any:
    """The releases or acquires of the wave in a tag or cell."""
    return state.sides[(2 * which + space) * WAVES + (tag >> WAVE_SHIFT & 15)]


@part
def note(own: Any, tag: int, location: int) -> None:
    """Add a location to a wave's releases or acquires of this epoch."""
    epoch = tag >> EPOCH_SHIFT & EPOCHS
    own.bits = class_of(location) | (own.bits if own.epoch == epoch else 0)
    own.epoch = epoch


@seldom
def release(block: Any, state: Any, space: int, tag: int, location: int) -> None:
    """The wave of `tag` makes what it did visible at a location."""
    note(side(state, RELEASES, space, tag), tag, location)
    if space == GLOBAL:
        mine, clock = row_of(block, tag), clock_of(block)
        clock.time += 1
        mine.epoch = tag >> EPOCH_SHIFT & EPOCHS
        mine.releases |= class_of(location)
        if mine.first == 0:
            mine.first = clock.time


@seldom
def acquire(block: Any, state: Any, space: int, tag: int, location: int) -> None:
    """The wave of `tag` sees what others made visible at a location."""
    note(side(state, ACQUIRES, space, tag), tag, location)
    if space == GLOBAL:
        mine = row_of(block, tag)
        mine.acquires |= class_of(location)
        mine.last = clock_of(block).time
    if not holds(state, location):
        state.locks[state.locked % LOCKS] = location
        state.locked += 1


@part
def holds(state: Any, location: int) -> bool:
    """Whether the workgroup acquired at this location lately: its plain store there is an unlock."""
    for at in range(min(LOCKS, state.locked)):
        if state.locks[at] == location:
            return True
    return False


@seldom
def learn(state: Any, cell: int) -> None:
    """A coherent load found what `cell` says: its workgroup's accesses up to that epoch are known."""
    for at in range(min(RING, state.known)):
        if state.ring[at] >> EPOCH_SHIFT == cell >> EPOCH_SHIFT:
            return
    state.ring[state.known % RING] = cell
    state.known += 1


@part
def knows(state: Any, cell: int) -> bool:
    for at in range(min(RING, state.known)):
        known = state.ring[at]
        if known >> GROUP_SHIFT == cell >> GROUP_SHIFT and known >> EPOCH_SHIFT >= cell >> EPOCH_SHIFT:
            return True
    return False


@seldom
def ordered(block: Any, state: Any, space: int, tag: int, cell: int, location: int) -> bool:
    """Whether the access in `cell` came before that of `tag` by release and acquire."""
    epoch = cell >> EPOCH_SHIFT & EPOCHS
    if (cell ^ tag) < GROUP_UNIT:
        released, acquired = side(state, RELEASES, space, cell), side(state, ACQUIRES, space, tag)
        # The location itself orders nothing: a counter that is read too early is a race.
        if released.epoch == epoch and acquired.epoch == epoch and released.bits & acquired.bits & ~class_of(location):
            return True
        return space == GLOBAL and knows(state, cell)
    if knows(state, cell):
        return True
    theirs, mine = row_of(block, cell), row_of(block, tag)
    if theirs.first == 0 or theirs.epoch < epoch or mine.last < theirs.first:
        return False
    return theirs.releases & mine.acquires != 0
