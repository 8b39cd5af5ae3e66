"""Footprint of a launch: the bytes that its shadow cells saw touched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simgpu.checks.races import cells
from simgpu.checks.races.storage import Shadow, rows, split_lines
from simgpu.engine.footprint import Footprint, runs

# Flags by kind of access, as in a footprint; POLLED and UPDATED are those past the caches.
READ, WRITTEN, POLLED, UPDATED = 1, 2, 4, 8
DWORD = 4


def footprint_of(shadows: Iterable[Shadow], groups: range | None) -> Footprint:
    """Returns what a launch touched, before its shadows are cleared.

    groups: numbers of its workgroups in cells, if other launches have the same shadows; None without others

    A cell holds its last writer and two readers, so an atomic may hide a plain write of another wave, or a plain read.
    """
    held = [LaunchCells(shadow.memory, shadow.area, groups) for shadow in shadows if shadow.area is not None]
    found = map(_footprint, sorted(held, key=lambda each: each.area.address))
    return Footprint(*map(np.concatenate, zip(Footprint.of([], []), *found)))


class LaunchCells(NamedTuple):
    """Cells of a launch in the shadow of an allocation; see `footprint_of`."""

    memory: np.ndarray
    area: cells.Area
    groups: range | None

    def flags(self, first: int, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Returns the flags of three maps' cells, the writers' map and the two of readers after it: uint8 (lines, cells of a
        line)."""
        found = np.zeros(self._rows(first).view(np.int64)[chosen].shape, np.uint8)
        maps = (self.area.written, WRITTEN, UPDATED), (self.area.read, READ, POLLED), (self.area.read2, READ, POLLED)
        for which, (used, plain, apart) in enumerate(maps, first):
            if used:
                held = self._rows(which).view(np.int64)[chosen]
                kind = np.where(held & (cells.ATOMIC | cells.COHERENT) != 0, apart, plain)
                found |= np.where(self._is_own(held), kind, 0).astype(np.uint8)
        return found

    def _is_own(self, held: np.ndarray) -> np.ndarray:
        if self.groups is None:
            return held != 0
        group = held >> cells.GROUP_SHIFT
        return (held != 0) & (group >= self.groups.start) & (group < self.groups.stop)

    def _rows(self, which: int) -> np.ndarray:
        return rows(self.memory, self.area, which)


def _footprint(held: LaunchCells) -> Footprint:
    if not (held.area.written or held.area.read):
        return Footprint.of([], [])
    split = split_lines(held.memory, held.area)
    flags, scale = _flags_of_dwords(held, split), DWORD
    if held.area.narrowed:
        flags, scale = _flags_of_bytes(held, split, flags), 1
    places = [np.flatnonzero(flags & flag) for flag in (READ, WRITTEN, POLLED, UPDATED)]
    return Footprint(*(runs(each, scale, held.area.address) for each in places))


def _flags_of_dwords(held: LaunchCells, split: np.ndarray) -> np.ndarray:
    whole = held.flags(cells.LINE_WRITER)[:, 0]
    flags = np.repeat(whole, cells.LINE_DWORDS).reshape(-1, cells.LINE_DWORDS)
    if split.any():
        flags[split] = held.flags(cells.WRITER, split)
    return flags.reshape(-1)


def _flags_of_bytes(held: LaunchCells, split: np.ndarray, of_dwords: np.ndarray) -> np.ndarray:
    """Returns a flag for each byte, with those of accesses to parts of dwords."""
    flags = np.repeat(of_dwords, DWORD)
    flags.reshape(-1, cells.LINE_BYTES)[split] |= held.flags(cells.BYTE_WRITER, split)
    return flags
