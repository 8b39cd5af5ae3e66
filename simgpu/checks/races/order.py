"""What orders accesses besides barriers: atomics, and loads and stores that go past the caches.

A workgroup or wave releases by an atomic or a coherent store, and acquires by an atomic that returns
or a coherent load. An earlier access counts as ordered before a later one where its side released
after it, the later side acquired after that, and both did so on locations of the same class
(64 classes). A plain store that a coherent load read is a release, too: gfx908's and gfx90a's atomic
stores look like plain ones. This leans to silence: it does not ask for the cache operations that go with it.
"""

from __future__ import annotations

import numba

from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, GROUP_SHIFT, GROUP_UNIT, WAVE_SHIFT
from simgpu.engine.fields import context_fields, wave_fields
from simgpu.machine.runtime import PART, load64, store64

# What all workers share: a clock, and whether a barrier was passed without waves that had ended.
TIME, MISSED, CLOCK_FIELDS = range(3)
(BARRIERS,) = wave_fields("races", 1)  # barriers that the wave passed
(BLOCK,) = context_fields("races", 1)  # address of the worker's block
# A worker's block, i64 fields: addresses of the LDS shadow of slot 0, of the slots' states, of the
# groups' table and of the shared clock; workgroups in x and y; bytes from a slot's LDS
# shadow to the next one's, u64 words of a bitmap there.
LDS_SHADOW, STATES, TABLE, CLOCK, GRID_X, GRID_Y, LDS_STRIDE, LDS_WORDS, BLOCK_FIELDS = range(9)

# The state of a workgroup's slot: where its waves meet at a barrier; what it learnt and which locations
# it acquired, counted; then these, the latest of them; and each wave's releases and acquires, on LDS
# and on memory.
RING, LOCKS, WAVES = 32, 8, 16
MEET_EPOCH, MEET_RECORD, MEET_WAVE, KNOWN, LOCKED = range(5)
RING_AT = 8
LOCKS_AT = RING_AT + 2 * RING
SIDES_AT = LOCKS_AT + LOCKS
RELEASE_EPOCH, RELEASES, ACQUIRE_EPOCH, ACQUIRES, SIDE_FIELDS = range(5)
STATE_FIELDS = SIDES_AT + 2 * WAVES * SIDE_FIELDS
STATE_BYTES = 8 * STATE_FIELDS

# A workgroup in the shared table: last epoch and classes of its releases, time of the first; classes
# of its acquires, time of the last.
GROUP_EPOCH, GROUP_RELEASES, GROUP_FIRST, GROUP_ACQUIRES, GROUP_LAST, _, _, GROUP_FIELDS = range(8)

LDS, GLOBAL = range(2)  # spaces


@numba.njit(**PART)
def class_of(location: int) -> int:
    """The class of a dword's address, as one bit of 64."""
    return 1 << ((location ^ location >> 6 ^ location >> 12) & 63)


@numba.njit(**PART)
def side(state: int, space: int, wave: int) -> int:
    return state + 8 * (SIDES_AT + (space * WAVES + wave) * SIDE_FIELDS)


@numba.njit(**PART)
def note(own: int, epoch_field: int, epoch: int, location: int) -> None:
    """Add a location to a wave's releases or acquires of this epoch."""
    classes = own + 8 * (epoch_field + 1)
    kept = load64(classes) if load64(own + 8 * epoch_field) == epoch else 0
    store64(own + 8 * epoch_field, epoch)
    store64(classes, kept | class_of(location))


@numba.njit(**PART)
def release(block: int, state: int, space: int, tag: int, location: int) -> None:
    """The wave of `tag` makes what it did visible at a location."""
    epoch = tag >> EPOCH_SHIFT & EPOCHS
    note(side(state, space, tag >> WAVE_SHIFT & 15), RELEASE_EPOCH, epoch, location)
    if space == GLOBAL:
        mine = load64(block + 8 * TABLE) + 8 * GROUP_FIELDS * (tag >> GROUP_SHIFT)
        time = load64(load64(block + 8 * CLOCK)) + 1
        store64(load64(block + 8 * CLOCK), time)
        store64(mine + 8 * GROUP_EPOCH, epoch)
        store64(mine + 8 * GROUP_RELEASES, load64(mine + 8 * GROUP_RELEASES) | class_of(location))
        if load64(mine + 8 * GROUP_FIRST) == 0:
            store64(mine + 8 * GROUP_FIRST, time)


@numba.njit(**PART)
def acquire(block: int, state: int, space: int, tag: int, location: int) -> None:
    """The wave of `tag` sees what others made visible at a location."""
    epoch = tag >> EPOCH_SHIFT & EPOCHS
    note(side(state, space, tag >> WAVE_SHIFT & 15), ACQUIRE_EPOCH, epoch, location)
    if space == GLOBAL:
        mine = load64(block + 8 * TABLE) + 8 * GROUP_FIELDS * (tag >> GROUP_SHIFT)
        store64(mine + 8 * GROUP_ACQUIRES, load64(mine + 8 * GROUP_ACQUIRES) | class_of(location))
        store64(mine + 8 * GROUP_LAST, load64(load64(block + 8 * CLOCK)))
    if not holds(state, location):
        at = load64(state + 8 * LOCKED)
        store64(state + 8 * (LOCKS_AT + at % LOCKS), location)
        store64(state + 8 * LOCKED, at + 1)


@numba.njit(**PART)
def holds(state: int, location: int) -> bool:
    """Whether the workgroup acquired at this location lately: its plain store there is an unlock."""
    for at in range(min(LOCKS, load64(state + 8 * LOCKED))):
        if load64(state + 8 * (LOCKS_AT + at)) == location:
            return True
    return False


@numba.njit(**PART)
def learn(state: int, cell: int) -> None:
    """A coherent load found what `cell` says: its workgroup's accesses up to that epoch are known."""
    count = load64(state + 8 * KNOWN)
    for at in range(min(RING, count)):
        if load64(state + 8 * (RING_AT + at)) >> EPOCH_SHIFT == cell >> EPOCH_SHIFT:
            return
    store64(state + 8 * (RING_AT + count % RING), cell)
    store64(state + 8 * KNOWN, count + 1)


@numba.njit(**PART)
def knows(state: int, cell: int) -> bool:
    for at in range(min(RING, load64(state + 8 * KNOWN))):
        known = load64(state + 8 * (RING_AT + at))
        if known >> GROUP_SHIFT == cell >> GROUP_SHIFT and known >> EPOCH_SHIFT >= cell >> EPOCH_SHIFT:
            return True
    return False


@numba.njit(**PART)
def ordered(block: int, state: int, space: int, tag: int, cell: int, location: int) -> bool:
    """Whether the access in `cell` came before that of `tag` by release and acquire."""
    epoch = cell >> EPOCH_SHIFT & EPOCHS
    if (cell ^ tag) < GROUP_UNIT:
        theirs = side(state, space, cell >> WAVE_SHIFT & 15)
        mine = side(state, space, tag >> WAVE_SHIFT & 15)
        if load64(theirs + 8 * RELEASE_EPOCH) == epoch and load64(mine + 8 * ACQUIRE_EPOCH) == epoch:
            shared = load64(theirs + 8 * RELEASES) & load64(mine + 8 * ACQUIRES)
            # The location itself orders nothing: a counter that is read too early is a race.
            if shared & ~class_of(location):
                return True
        return space == GLOBAL and knows(state, cell)
    if knows(state, cell):
        return True
    table = load64(block + 8 * TABLE)
    theirs = table + 8 * GROUP_FIELDS * (cell >> GROUP_SHIFT)
    mine = table + 8 * GROUP_FIELDS * (tag >> GROUP_SHIFT)
    first = load64(theirs + 8 * GROUP_FIRST)
    if first == 0 or load64(theirs + 8 * GROUP_EPOCH) < epoch or load64(mine + 8 * GROUP_LAST) < first:
        return False
    return load64(theirs + 8 * GROUP_RELEASES) & load64(mine + 8 * GROUP_ACQUIRES) != 0
