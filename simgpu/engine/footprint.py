"""Bytes of device memory that a launch or a copy touches, and the bytes where two of them clash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

FOOTPRINT = "footprint"  # key in `Dispatch.checks`
NOTHING = np.empty((0, 2), np.int64)


class Footprint(NamedTuple):
    """Ranges of addresses by the kind of access: int64 (n, 2), first byte and end, in order and apart.

    >>> first, second = (Footprint.of(reads, writes) for reads, writes in (([(0, 64)], [(64, 96)]), ([(80, 100)], [(0, 4)])))
    >>> first.clash(second)   # the first one reads what the second one writes
    (0, 4)
    >>> first.clash(first._replace(writes=NOTHING)) is None
    True
    """

    reads: np.ndarray
    writes: np.ndarray
    polls: np.ndarray  # loads past the caches, as of flags
    atomics: np.ndarray  # atomics, and stores past the caches

    @classmethod
    def of(cls, reads: Iterable[tuple[int, int]], writes: Iterable[tuple[int, int]]) -> Footprint:
        """Returns the footprint of a copy's ranges, each its first byte and end."""
        return cls(merge(reads), merge(writes), NOTHING, NOTHING)

    def clash(self, other: Footprint) -> tuple[int, int] | None:
        """Returns the first range of bytes that both touch and one of them writes, None if there is none. Atomics do not clash with
        atomics, nor with loads past the caches."""
        pairs = [(self.writes, ranges) for ranges in other] + [(ranges, other.writes) for ranges in self]
        pairs += [(self.atomics, other.reads), (self.reads, other.atomics)]
        found = [common for mine, theirs in pairs if (common := first_common(mine, theirs)) is not None]
        return min(found, default=None)

    def boxes(self, gap: int) -> list[tuple[int, int]]:
        """Returns ranges that hold all that it touches, at least `gap` bytes apart by kind of access."""
        found: list[tuple[int, int]] = []
        for ranges in self:
            if len(ranges):
                ends = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] >= gap)
                first, last = np.append(0, ends + 1), np.append(ends, len(ranges) - 1)
                found += zip(ranges[first, 0].tolist(), ranges[last, 1].tolist())
        return found

    def writes_at(self, address: int) -> bool:
        """True if it writes the byte at an address, or has an atomic there."""
        here = np.array([(address, address + 1)])
        return any(first_common(ranges, here) is not None for ranges in (self.writes, self.atomics))


def merge(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Returns ranges in order; ranges that touch become one."""
    given = np.array(sorted(ranges), np.int64).reshape(-1, 2)
    if not len(given):
        return NOTHING
    ends = np.maximum.accumulate(given[:, 1])
    begins = np.flatnonzero(np.append(True, given[1:, 0] > ends[:-1]))
    return np.stack((given[begins, 0], ends[np.append(begins[1:], len(ends)) - 1]), axis=1)


def runs(places: np.ndarray, scale: int, base: int) -> np.ndarray:
    """Returns the ranges of increasing numbers of cells of `scale` bytes each, the first at address `base`.

    >>> runs(np.array([0, 1, 2, 7]), 4, 100).tolist()
    [[100, 112], [128, 132]]
    """
    if not len(places):
        return NOTHING
    gaps = np.flatnonzero(np.diff(places) != 1)
    first, last = places[np.append(0, gaps + 1)], places[np.append(gaps, len(places) - 1)]
    return np.stack((first, last + 1), axis=1) * scale + base


def first_common(a: np.ndarray, b: np.ndarray) -> tuple[int, int] | None:
    """Returns the first range that two lists of ranges have in common, None if there is none."""
    if not len(a) or not len(b):
        return None
    at = np.searchsorted(b[:, 1], a[:, 0], "right")  # the first range of b that ends after each range of a begins
    met = np.flatnonzero((at < len(b)) & (b[np.minimum(at, len(b) - 1), 0] < a[:, 1]))
    if not len(met):
        return None
    mine, theirs = a[met[0]], b[at[met[0]]]
    return int(max(mine[0], theirs[0])), int(min(mine[1], theirs[1]))
