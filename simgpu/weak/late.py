"""Loads that take effect late: when their wave waits for them, not when they are issued.

A wave remembers its latest loads. When it waits, some of them read memory again and overwrite their registers, which the code may
not read before. A CU performs accesses to one location in the order of issue, so any access of the CU to the same lines fixes its
earlier loads to the values that they have. So does a barrier, and another wave's wait, which a release of the other may follow.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.machine import layout
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.runtime import address_of, copy, load32, part, records, store32, structure
from simgpu.weak.caches import LINE_SHIFT, chance

DEEP = 4  # most late loads of a wave


class LateLoad(Structure):
    """A load that may take effect again. The fields but the last are arguments of `accesses.load`."""

    _fields_ = (
        ("base", c_int64), ("delta", c_int64), ("lanes", c_int64), ("size", c_int64), ("level", c_int64),
        ("target", c_int64),  # address of the first register row
        ("offsets", c_int64 * LANES),
    )  # fmt: skip


class LateLoads(Structure):
    """Late loads of a wave."""

    _fields_ = (
        ("count", c_int64),
        ("fixed", c_int64),  # `Cache.fixed` when the first was noted: all have taken effect if it differs
        ("paused", c_int64),  # 1 if the wave paused before the access that it executes next
        ("loads", LateLoad * DEEP),
    )


LATE, WAVE_LATE = np.dtype(LateLoad), np.dtype(LateLoads)
LATE_BYTES = sizeof(LateLoads)


@part
def late_of(block: Any, wave: int) -> Any:
    """Returns a wave's late loads."""
    return structure(block.late + LATE_BYTES * load32(wave + layout.HW_ID), WAVE_LATE)


@part
def line_bit(address: int) -> int:
    """Returns the bit of an address's line in `Cache.late`."""
    return 1 << ((address >> LINE_SHIFT) * 0x9E3779B1 >> 16 & 63)


@part
def fix_loads(cache: Any) -> None:
    """Makes all late loads of a CU keep the values that they have."""
    cache.fixed += 1
    cache.late = 0


@part
def fix_same_lines(cache: Any, lines: int) -> None:
    """Does so if an access of the CU touches lines that a late load may have read. lines: `line_bit` of each."""
    if cache.late & lines:
        fix_loads(cache)


@part
def note_late(block: Any, cache: Any, wave: int, base: int, delta: int, lanes: int, size: int, level: int, target: int) -> bool:
    """Remembers a load, if there is room; its offsets are in the wave. Returns True if it did."""
    mine = late_of(block, wave)
    if mine.fixed != cache.fixed:
        mine.count = 0
        mine.fixed = cache.fixed
    if mine.count == DEEP or not chance(block, block.postpone):
        return False
    load = records(address_of(mine.loads), DEEP, LATE)[mine.count]
    load.base, load.delta, load.lanes, load.size, load.level, load.target = base, delta, lanes, size, level, target
    copy(address_of(load.offsets), wave + layout.ADDRESSES, 8 * LANES)
    mine.count += 1
    return True


@part
def put_in_rows(target: int, lane: int, value: int, size: int) -> None:
    """Writes a lane's bytes, at address `value`, to register rows from `target` on."""
    for dword in range(size >> 2):
        store32(target + ROW * dword + 4 * lane, load32(value + 4 * dword))
