"""Memory of shadow cells: allocated by the host when touched, and kept for the next launch.

The first touch of a page costs a host far more than the check of its cells. So a device keeps the shadows of its last launch,
and clears the used cells when the launch is over.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Hashable, Mapping
from ctypes import c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.checks.races import cells
from simgpu.checks.races.lds.shadow import shadow_bytes
from simgpu.engine.workers.fields import allocation_fields
from simgpu.engine.workers.initial_state import GRID_BARRIER
from simgpu.hardware.errors import LaunchError
from simgpu.machine.host_memory import NORESERVE

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

LARGE = 1 << 26  # larger shadows, in bytes, use huge pages
KEPT_DWORDS = 1 << 24  # dwords of the largest allocation whose shadow is kept
POOL = "races"
(AREA,) = allocation_fields("races", 1)  # address of the allocation's area (`cells`), 0 if none
# Maps of an area: bytes for each line.
LINE_SHARES = {
    **dict.fromkeys((cells.WRITER, cells.READER, cells.READER2), 8 * cells.LINE_DWORDS),
    **dict.fromkeys((cells.BYTE_WRITER, cells.BYTE_READER, cells.BYTE_READER2), 32 * cells.LINE_DWORDS),
    **dict.fromkeys((cells.LINE_WRITER, cells.LINE_READER, cells.LINE_READER2), 8),
    cells.MARKS: cells.LINE_DWORDS,
    cells.LINE_MARKS: 1,
}


@dataclass
class Shadow:
    """Shadow memory of an allocation, or of a worker's LDS."""

    key: Hashable  # kind and sizes; a kept shadow serves only the same key
    memory: np.ndarray
    area: cells.Area | None = None  # None for LDS
    heads: np.ndarray | None = None  # `Area.heads` of the current launch, if it has any


def lazy_zeros(nbytes: int, sparse: bool = False) -> np.ndarray:
    """Returns zeroed bytes, which the host allocates when they are touched. Raises LaunchError if there is no room.

    sparse: True if few of them are touched, far apart
    """
    given = {}
    if hasattr(mmap, "MAP_PRIVATE"):  # Windows has no flags
        given["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    try:
        memory = mmap.mmap(-1, max(nbytes, 1), **given)
        if nbytes > LARGE and not sparse and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(memory, np.uint8)
    except OSError as error:
        raise LaunchError(
            f"no room for {nbytes} bytes of shadow memory: check smaller buffers, or without check=True"
        ) from error


def _take(shadows: Mapping[str, Any], key: Hashable, make: Callable[[], Shadow]) -> Shadow:
    """Returns a shadow of this key that an earlier launch left, or a new one."""
    kept: list[Shadow] = shadows.get(POOL, [])
    found = next((shadow for shadow in kept if shadow.key == key), None)
    if found is None:
        return make()
    kept.remove(found)
    return found


def lds_shadow(launch: Dispatch, slots: int) -> Shadow:
    """Returns the shadow for the LDS of a worker's slots."""
    stride = shadow_bytes(launch.lds_bytes, launch.waves)
    key = "lds", slots, launch.lds_bytes, launch.waves
    return _take(launch.shadows, key, lambda: Shadow(key, lazy_zeros(slots * stride)))


def allocation_shadows(
    launch: Dispatch, synchronises: bool, common: dict[tuple[int, int], Shadow] | None = None
) -> list[Shadow]:
    """Returns the shadows of the allocations that kernels may write, and enters them in the launch's table. A launch of one wave
    that runs by itself has none, unless its footprint is wanted, nor has the launch's own memory but the grid's barrier.

    synchronises: True if areas need `heads`, see `knowledge`. common: shadows of launches that overlap, by address and bytes,
    which get new ones; they are not returned
    """
    if common is None and launch.groups * launch.waves == 1 and not launch.footprints:
        return []
    own = launch.borrowed.allocations
    barriers = {allocation.address for allocation in own if allocation.label == GRID_BARRIER}
    temporary = {allocation.address for allocation in own} - barriers
    made: list[Shadow] = []
    for entry in launch.table.entries[1:]:
        if not entry.writable or not entry.size or entry.base in temporary:
            continue
        dwords = -(-entry.size >> cells.LINE_SHIFT) * cells.LINE_DWORDS
        key = "cells", dwords
        shadow = None if common is None else common.get((entry.base, entry.size))
        if shadow is None:
            kept = launch.shadows if launch.node is None or common is None else launch.node.shared
            shadow = _take(kept, key, functools.partial(_cells, key, dwords))
            assert shadow.area is not None
            shadow.area.address, shadow.area.number = entry.base, len(common or made) + 1
            shadow.heads = lazy_zeros(8 * dwords) if synchronises else None
            shadow.area.heads = 0 if shadow.heads is None else shadow.heads.ctypes.data
            shadow.area.barrier = int(entry.base in barriers)
            allocation = launch.memory.find(entry.base)
            shadow.area.coarse = allocation is not None and not allocation.fine
            if common is None:
                made.append(shadow)
            else:
                common[entry.base, entry.size] = shadow
        assert shadow.area is not None
        c_int64.from_buffer(entry, AREA).value = ctypes.addressof(shadow.area)
    return made


def _cells(key: Hashable, dwords: int) -> Shadow:
    lines = dwords // cells.LINE_DWORDS
    memory = lazy_zeros(lines * sum(LINE_SHARES.values()))
    area = cells.Area(dwords=dwords)
    at = memory.ctypes.data
    for which, share in LINE_SHARES.items():
        area.maps[which] = at
        at += share * lines
    return Shadow(key, memory, area)


def give_back(shadows: dict[str, Any], used: list[Shadow]) -> None:
    """Clears the shadows of a finished launch and keeps them for the next; those kept before are dropped."""
    kept = []
    for shadow in used:
        if shadow.area is not None:
            if shadow.area.dwords > KEPT_DWORDS:
                continue
            _clear(shadow.memory, shadow.area)
            shadow.heads, shadow.area.heads = None, 0
        kept.append(shadow)  # LDS shadows are clear when no workgroup is left
    shadows[POOL] = kept


def rows(memory: np.ndarray, area: cells.Area, which: int) -> np.ndarray:
    """Returns a map's bytes in a shadow's memory, a row for each line."""
    lines, at = area.dwords // cells.LINE_DWORDS, area.maps[which] - area.maps[cells.WRITER]
    return memory[at : at + LINE_SHARES[which] * lines].reshape(lines, -1)


def split_lines(memory: np.ndarray, area: cells.Area) -> np.ndarray:
    """Returns True for each line whose dwords have cells of their own."""
    return rows(memory, area, cells.LINE_MARKS)[:, 0] & cells.SPLIT_MARK != 0


def _clear(memory: np.ndarray, area: cells.Area) -> None:
    """Zeroes the cells that were used, without the first touch of any page."""
    split = split_lines(memory, area)
    parted: Any = slice(None) if split.all() else np.flatnonzero(split)
    if split.any():
        rows(memory, area, cells.MARKS)[parted] = 0
    for used, maps in (
        (area.written, (cells.WRITER, cells.BYTE_WRITER, cells.LINE_WRITER)),
        (area.read, (cells.READER, cells.BYTE_READER, cells.LINE_READER)),
        (area.read2, (cells.READER2, cells.BYTE_READER2, cells.LINE_READER2)),
    ):
        wide, byte, line = maps
        if used:
            rows(memory, area, line)[:] = 0
            rows(memory, area, wide)[parted] = 0
            if area.narrowed:
                rows(memory, area, byte)[parted] = 0
    rows(memory, area, cells.LINE_MARKS)[:] = 0
    area.written = area.read = area.read2 = area.narrowed = area.atomics = 0
