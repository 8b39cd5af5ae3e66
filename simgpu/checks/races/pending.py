"""Loads that race with nothing if a compare-and-swap of the same address follows: what they loaded waits for it, lane by lane.

`expected` says which loads; a swap that expects such a value at another address makes the load an access like any other.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.checks.races.lds.carried import SCALAR
from simgpu.checks.races.lds.order import WAVES
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load32, part, seldom, structure, words

SWAP = 0x80  # of a role: the rest is a swap's number, else a load's; 0 is any other record's


class Pending(Structure):
    """A load's last execution by a wave."""

    _fields_ = (
        ("lanes", c_int64),  # whose value no swap expected yet; 1 of a scalar load
        ("area", c_int64),  # as `watch` has them
        ("size", c_int64),
        ("flags", c_int64),
        ("record", c_int64),
        ("offsets", c_int64 * LANES),
    )


PENDING, PENDING_BYTES = np.dtype(Pending), sizeof(Pending)


@part
def pending_of(block: Any, slot: int, wave: int, number: int) -> Any:
    """What waits of a numbered load (from 0) of a wave."""
    of_wave = (slot * WAVES + load32(wave + layout.WAVE_ID)) * block.loads
    return structure(block.pending + (of_wave + number) * PENDING_BYTES, PENDING)


@seldom
def wait_for_swap(wave: int, record: int, lanes: int, size: int, flags: int, area: int, block: Any, slot: int, number: int) -> None:
    """A load that may race with nothing: keep what it is."""
    for other in range(block.loads):
        if words(block.rivals, block.loads)[number] >> other & 1:
            pending_of(block, slot, wave, other).lanes &= ~lanes  # a swap that expects either will expect this one's
    held = pending_of(block, slot, wave, number)
    offsets = words(wave + layout.ADDRESSES, LANES)
    if held.area == area and held.size == size and not flags & SCALAR:
        held.lanes |= lanes
    else:
        held.lanes = lanes
    held.area, held.size, held.flags, held.record = area, size, flags, record
    for lane in range(LANES):
        if lanes >> lane & 1:
            held.offsets[lane] = offsets[lane]


@seldom
def elsewhere(wave: int, lanes: int, size: int, area: int, held: Any) -> int:
    """The lanes of a load, in whose place a swap of other bytes came; nothing waits for the others any more."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    wrong = 0
    for lane in range(LANES):
        if lanes >> lane & 1 and (held.flags & SCALAR or held.lanes >> lane & 1):
            place = 0 if held.flags & SCALAR else lane
            if held.area != area or held.size != size or held.offsets[place] != offsets[lane]:
                wrong |= 1 << place
    if held.flags & SCALAR == 0:
        held.lanes &= ~lanes
    return wrong & held.lanes if held.flags & SCALAR else wrong


@seldom
def exchange(wave: int, held: Any) -> None:
    """Put the load's offsets where `watch` reads them, and what is there in their place, and back."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    for lane in range(LANES):
        offsets[lane], held.offsets[lane] = held.offsets[lane], offsets[lane]


@seldom
def forget_pending(wave: int, block: Any, slot: int) -> None:
    """The wave ends: what it loaded is of no use."""
    for number in range(block.loads):
        pending_of(block, slot, wave, number).lanes = 0
