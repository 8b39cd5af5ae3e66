"""Footprint of a launch: the bytes that its shadow cells saw touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.checks.races import cells
from simgpu.checks.races.storage import Shadow, rows
from simgpu.engine.footprint import NOTHING, Footprint, runs

# Flags by kind of access, as in a footprint; POLLED and UPDATED are those past the caches.
READ, WRITTEN, POLLED, UPDATED = 1, 2, 4, 8
DWORD = 4


def footprint_of(shadows: Sequence[Shadow]) -> Footprint:
    """Returns what a launch touched, before its shadows are cleared.

    A cell holds its last writer and two readers, so an atomic may hide a plain write of another wave, or a plain read.
    """
    found = [_footprint(shadow.memory, shadow.area) for shadow in shadows if shadow.area is not None]
    found.sort(key=lambda each: min((int(ranges[0, 0]) for ranges in each if len(ranges)), default=0))
    return Footprint(*(np.concatenate((NOTHING, *ranges)) for ranges in zip(*found)))


def _footprint(memory: np.ndarray, area: cells.Area) -> Footprint:
    flags, scale = _flags_of_lines(memory, area)
    if area.narrowed:
        flags, scale = _flags_of_bytes(memory, area, flags), 1
    places = [np.flatnonzero(flags & flag) for flag in (READ, WRITTEN, POLLED, UPDATED)]
    return Footprint(*(runs(each, scale, area.address) for each in places))


def _flags_of_lines(memory: np.ndarray, area: cells.Area) -> tuple[np.ndarray, int]:
    """Returns a flag for each dword of the area, and the bytes of each."""
    whole = _flags(memory, area, cells.LINE_WRITER)[:, 0]
    split = rows(memory, area, cells.LINE_MARKS)[:, 0] & cells.SPLIT_MARK != 0
    flags = np.repeat(whole, cells.LINE_DWORDS).reshape(-1, cells.LINE_DWORDS)
    if split.any():
        flags[split] = _flags(memory, area, cells.WRITER, split)
    return flags.reshape(-1), DWORD


def _flags_of_bytes(memory: np.ndarray, area: cells.Area, of_dwords: np.ndarray) -> np.ndarray:
    """Returns a flag for each byte, with those of accesses to parts of dwords."""
    flags = np.repeat(of_dwords, DWORD)
    split = rows(memory, area, cells.LINE_MARKS)[:, 0] & cells.SPLIT_MARK != 0
    flags.reshape(-1, cells.LINE_BYTES)[split] |= _flags(memory, area, cells.BYTE_WRITER, split)
    return flags


def _flags(memory: np.ndarray, area: cells.Area, first: int, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Returns the flags of three maps' cells, the writers' map and the two of readers after it: uint8 (lines, cells of a line)."""
    found = np.zeros(rows(memory, area, first).view(np.int64)[chosen].shape, np.uint8)
    maps = (area.written, WRITTEN, UPDATED), (area.read, READ, POLLED), (area.read2, READ, POLLED)
    for which, (used, plain, apart) in enumerate(maps, first):
        if used:
            held = rows(memory, area, which).view(np.int64)[chosen]
            kind = np.where(held & (cells.ATOMIC | cells.COHERENT) != 0, apart, plain)
            found |= np.where(held != 0, kind, 0).astype(np.uint8)
    return found
