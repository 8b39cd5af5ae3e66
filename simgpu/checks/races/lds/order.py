"""Order by atomics on LDS, which LDS performs in the order of issue, from whatever wave.

A wave releases by an atomic, and acquires by one that returns. An access counts as ordered before a later one of another wave if
its wave executed an atomic after it in the same epoch, and the other wave one that returns before its access. Both atomics must
be on locations of the same class (64 classes). LDS has no cache, so nothing else is needed.

A plain store to a location of the wave's atomics also counts as a release, as one that unlocks. If the wave took the location by a
swap, the store also counts as an atomic one (`look.unlocks`). An access that the wave's log no
longer holds counts as executed before the release.
"""

from __future__ import annotations

from ctypes import Structure, c_int64
from typing import Any

from simgpu.checks.races.cells import EPOCH_SHIFT, EPOCHS, WAVE_SHIFT
from simgpu.checks.races.lds.carried import ATOMIC, FLAGS_SHIFT, LOG_ENTRIES, WRITES, offset_of
from simgpu.checks.races.lds.shadow import touches
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import cold_part, part

WAVES = 16  # most waves of a workgroup
RELEASES, ACQUIRES = range(2)


class Classes(Structure):
    """Locations of a wave's releases or acquires in one epoch, by class."""

    _fields_ = (("epoch", c_int64), ("bits", c_int64))  # bits: a set of `class_of`


@part
def class_of(location: int) -> int:
    """Returns the class of a dword's address, as one bit of 64."""
    return 1 << ((location ^ location >> 6 ^ location >> 12) & 63)


@part
def side(state: Any, which: int, tag: int) -> Any:
    """Returns the releases or acquires of the wave in a tag."""
    return state.sides[which * WAVES + (tag >> WAVE_SHIFT & 15)]


@cold_part
def note(state: Any, which: int, tag: int, location: int) -> None:
    """Adds a location to the releases or acquires of the wave in a tag, in its epoch."""
    own, epoch = side(state, which, tag), tag >> EPOCH_SHIFT & EPOCHS
    own.bits = class_of(location) | (own.bits if own.epoch == epoch else 0)
    own.epoch = epoch


@cold_part
def ordered_by_atomics(state: Any, tag: int, cell: int, byte: int, log: Any, writes: bool, atomic: bool) -> bool:
    """True if a release and an acquire at another location order an access to a byte before that of `tag`, another wave's.

    cell: wave and epoch of the access; log: the wave's; writes, atomic: kind of the access.
    """
    released, acquired, epoch = side(state, RELEASES, cell), side(state, ACQUIRES, tag), cell >> EPOCH_SHIFT & EPOCHS
    # The location itself orders nothing: a counter that is read too early is a race.
    classes = released.bits & acquired.bits & ~class_of(byte >> 2)
    if released.epoch != epoch or acquired.epoch != epoch or classes == 0:
        return False
    return released_since(log, byte, writes, atomic, classes)


@cold_part
def released_since(log: Any, byte: int, writes: bool, atomic: bool, classes: int) -> bool:
    """True if a wave wrote to a location of these classes after its latest access of a kind to a byte, or if the log lacks it."""
    count = log.count
    for back in range(1, min(count, LOG_ENTRIES) + 1):
        entry = log.entries[(count - back) % LOG_ENTRIES]
        if touches(entry, byte, writes, atomic):
            return False
        if entry.head >> FLAGS_SHIFT & (WRITES | ATOMIC):
            for lane in range(LANES):
                if entry.lanes >> lane & 1 and class_of(offset_of(entry, lane) >> 2) & classes:
                    return True
    return True
