"""Loads whose races have no effect if a compare-and-swap of the same address follows. Each lane waits for the swap.

`expected` finds these loads. If a swap at another address expects such a value, the load is handled as an ordinary access.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.checks.races.lds.carried import SCALAR
from simgpu.checks.races.lds.order import WAVES
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import cold_part, load32, part, structure, words

SWAP = 0x80  # flag of a role (`RaceBlock.roles`)


class PendingLoad(Structure):
    """Last execution of a load by a wave."""

    _fields_ = (
        ("lanes", c_int64),  # lanes whose value no swap has expected yet; 1 for a scalar load
        ("area", c_int64),  # this and the next fields: arguments of `watch`
        ("size", c_int64),
        ("flags", c_int64),
        ("record", c_int64),
        ("offsets", c_int64 * LANES),
    )


PENDING, PENDING_BYTES = np.dtype(PendingLoad), sizeof(PendingLoad)


@part
def pending_of(block: Any, slot: int, wave: int, number: int) -> Any:
    """Returns the `PendingLoad` of a wave's load, by the load's number from 0 on."""
    of_wave = (slot * WAVES + load32(wave + layout.WAVE_ID)) * block.loads
    return structure(block.pending + (of_wave + number) * PENDING_BYTES, PENDING)


@cold_part
def wait_for_swap(wave: int, record: int, lanes: int, size: int, flags: int, area: int, block: Any, slot: int, number: int) -> None:
    """Records a load that waits for a swap. number: the load's."""
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


@cold_part
def lanes_displaced(wave: int, lanes: int, size: int, area: int, held: Any) -> int:
    """Returns the lanes of a waiting load for which the swap is at another address. Lanes that swap no longer wait."""
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


@cold_part
def exchange(wave: int, held: Any) -> None:
    """Exchanges the load's offsets with the wave's ADDRESSES, which `look` reads. A second call restores both."""
    offsets = words(wave + layout.ADDRESSES, LANES)
    for lane in range(LANES):
        offsets[lane], held.offsets[lane] = held.offsets[lane], offsets[lane]


@cold_part
def forget_pending(wave: int, block: Any, slot: int) -> None:
    """Drops all waiting loads of a wave that ends: their values are unused."""
    for number in range(block.loads):
        pending_of(block, slot, wave, number).lanes = 0
