"""Remembers which XCD stored, and which ones loaded, the lines of earlier launches: their L2s have these when a launch begins.

A write invalidates the line in other L2s by a probe [LLVM, AMDGPUUsage, memory model of gfx90a]. The next XCD that loads the line
fetches it from the one that stored it. Without traces of all workgroups, those that were traced represent the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Protocol

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import CodeColumns
from simgpu.timing.native.replay import LONG_AGO, NOBODY, UNKNOWN, UNSEEN, LastCaches, Requests
from simgpu.timing.native.state import ATOMIC, STORE
from simgpu.timing.trace import LINE_BYTES, PAGE_SHIFT, Trace, distinct, original_lines

GOLDEN = 0x9E3779B1  # 2^32 over the golden ratio [Knuth, The Art of Computer Programming 3, 6.4]
Lines = Mapping[int, np.ndarray]  # by XCD: different numbers of lines of 64 bytes, sorted


class TracedLaunch(Protocol):
    """Fields of `simgpu.timing.predict.SampledLaunch` that tell what a launch accessed."""

    @property
    def chip(self) -> HardwareDescriptor: ...
    @property
    def code(self) -> CodeColumns: ...
    @property
    def whole(self) -> Sequence[Trace]: ...
    @property
    def beginnings(self) -> Sequence[Trace]: ...
    @property
    def loads(self) -> Mapping[int, int]: ...
    @property
    def stores(self) -> Mapping[int, int]: ...
    @property
    def pages(self) -> np.ndarray: ...
    @property
    def all_traced(self) -> bool: ...
    @property
    def lines(self) -> tuple[Lines, Lines]: ...


@dataclass(frozen=True, eq=False)
class LaunchHistory:
    """Lines that a chain of launches left. The empty chain left none.

    >>> LaunchHistory().exact
    True
    """

    # Lines that the chain accessed, sorted; both halves of each line of L2.
    lines: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))
    # XCD that stored each of them last, NOBODY, or UNKNOWN
    owners: np.ndarray = field(default_factory=partial(np.empty, 0, np.int8))
    valid: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))  # XCDs whose L2 has the last stored data, a bit each
    accessed: Sequence[Lines] = ()  # by launch
    exact: bool = True  # all workgroups of all launches were traced
    loads: frozenset[int] = frozenset()  # first lines of the allocations that the chain loaded from
    stores: frozenset[int] = frozenset()  # and stored to

    def after(self, sampled: TracedLaunch) -> LaunchHistory:
        """Returns the chain with one more launch."""
        loads, stores = self.loads | set(sampled.loads), self.stores | set(sampled.stores)
        loaded, stored = sampled.lines
        xcds = {*loaded, *stored}
        accessed = {xcd: distinct(np.concatenate([of[xcd] for of in (loaded, stored) if xcd in of])) for xcd in xcds}
        halves = [(lines[:, None] & ~1 | [0, 1]).ravel() for lines in accessed.values()]
        lines = distinct(np.concatenate([self.lines, *halves]))
        owners, valid = np.full(len(lines), NOBODY, np.int8), np.zeros(len(lines), np.int64)
        before = np.searchsorted(lines, self.lines)
        owners[before], valid[before] = self.owners, self.valid
        for xcd, wanted in loaded.items():
            places = np.searchsorted(lines, wanted)
            fetched = distinct(places[valid[places] >> xcd & 1 == 0] >> 1)
            valid[2 * fetched] |= 1 << xcd
            valid[2 * fetched + 1] |= 1 << xcd
        if not sampled.all_traced:  # the others may have stored to any line of these allocations
            for first, nbytes in sampled.stores.items():
                begin, end = np.searchsorted(lines, (first, first + nbytes // LINE_BYTES))
                owners[begin:end] = UNKNOWN
        for xcd, written in stored.items():
            places = np.searchsorted(lines, written)
            owners[places], valid[places] = xcd, 1 << xcd
        return LaunchHistory(lines, owners, valid, (*self.accessed, accessed), self.exact and sampled.all_traced, loads, stores)

    def warm(self, sampled: TracedLaunch) -> LaunchHistory | bool:
        """Returns `warm` of `simgpu.timing.caches.shares` for a launch after the chain.

        It is the chain, if there are several L2s. Otherwise it is True if the chain accessed most bytes of the allocations that
        the launch loads from.
        """
        if sampled.chip.xcds > 1:
            return self if self.accessed or not self.exact else False
        known = sum(nbytes for first, nbytes in sampled.loads.items() if first in self.loads | self.stores)
        return 0 < sum(sampled.loads.values()) <= 2 * known

    def state(self, places: np.ndarray, sampled: TracedLaunch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the owners and the valid copies of lines of 64 bytes, and True if the chain accessed the line.

        If some workgroups were not traced, other lines of an allocation that the chain stored to have an UNKNOWN owner. All XCDs
        have the lines of one that it only loaded from.
        """
        at = np.minimum(np.searchsorted(self.lines, places), max(0, len(self.lines) - 1))
        found = self.lines[at] == places if len(self.lines) else np.zeros(len(places), bool)
        if self.exact:
            owners, valid = np.full(len(places), NOBODY, np.int8), np.zeros(len(places), np.int64)
            owners[found], valid[found] = self.owners[at[found]], self.valid[at[found]]
            return owners, valid, found
        owners, valid, inside = self._by_allocation(places, sampled)
        found &= self.owners[at] >= 0 if len(self.lines) else False
        owners[found], valid[found] = self.owners[at[found]], self.valid[at[found]]
        return owners, valid, found | inside

    def _by_allocation(self, places: np.ndarray, sampled: TracedLaunch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        owners, valid, found = np.full(len(places), NOBODY, np.int8), np.zeros(len(places), np.int64), np.zeros(len(places), bool)
        for first, nbytes in {**sampled.loads, **sampled.stores}.items():
            inside = (places >= first) & (places < first + nbytes // LINE_BYTES)
            if first in self.stores:
                owners[inside], found[inside] = UNKNOWN, True
            elif first in self.loads:
                valid[inside], found[inside] = (1 << sampled.chip.xcds) - 1, True
        return owners, valid, found

    @property
    def nbytes(self) -> int:
        """Bytes of the lines that the chain accessed."""
        return len(self.lines) * LINE_BYTES

    def between(self, sampled: TracedLaunch) -> int:
        """Returns the bytes of different lines that the busiest XCD accessed since the lines of a launch were accessed last.

        The launch's own lines count.
        """
        loaded, stored = sampled.lines
        mine = [{xcd: lines >> 1 for xcd, lines in of.items()} for of in (loaded, stored)]
        since = _union(*mine)
        missing = np.intersect1d(distinct(np.concatenate([np.empty(0, np.int64), *loaded.values()])) >> 1, self.lines >> 1)
        for launch in reversed(self.accessed):
            if not len(missing):
                break
            theirs = {xcd: lines >> 1 for xcd, lines in launch.items()}
            since = _union(since, theirs)
            missing = np.setdiff1d(missing, np.concatenate(list(theirs.values())))
        return 2 * LINE_BYTES * max(map(len, since.values()), default=0)


@dataclass(frozen=True, eq=False)
class EarlierLines:
    """Lines of a chain of launches, for the launch after it."""

    history: LaunchHistory
    sampled: TracedLaunch

    @property
    def exact(self) -> bool:
        """True if all lines of the chain and of the launch are known."""
        return self.history.exact and self.sampled.all_traced

    @property
    def kept(self) -> bool:
        """True if the last cache has all lines of the chain, as far as they are known."""
        return self.history.nbytes <= self.sampled.chip.mall_bytes

    def between(self) -> int:
        """Returns the bytes of `LaunchHistory.between`."""
        return self.history.between(self.sampled)

    def fill(
        self, caches: LastCaches, known: np.ndarray, requests: Requests, code: CodeColumns, pages: np.ndarray | None = None
    ) -> LastCaches:
        """Returns empty caches with the chain's lines. known: lines of L2 by place; pages: see `trace.renumber` (default: those of
        the launch). L2 has lines that scalar loads request: constants and arguments."""
        scalar = requests.lines_of(code.kind == Kind.SMEM, len(known))
        wanting = requests.wanting(code.flags & STORE == 0, len(known))
        places = original_lines(known.astype(np.uint32), self.sampled.pages if pages is None else pages, PAGE_SHIFT - 1)
        owners, valid, found = self.history.state((2 * places[:, None] + [0, 1]).ravel(), self.sampled)
        _represent(owners, valid, np.repeat(places, 2), wanting, self.sampled.chip.xcds)
        owners[np.repeat(scalar, 2) & ~found] = UNKNOWN
        seen = np.where((found[::2] & self.kept) | scalar, LONG_AGO, UNSEEN)
        return caches._replace(storers=owners, valid=valid, seen=seen)


def _represent(owners: np.ndarray, valid: np.ndarray, lines: np.ndarray, wanting: np.ndarray, xcds: int) -> None:
    """Gives halves with an UNKNOWN owner one that does not want them, to as many as there are among those with a known owner.

    Without any such, each XCD may have stored it. The others keep UNKNOWN: the first XCD that wants it has it. lines: of L2, which
    are chosen by a hash.
    """
    asked = wanting != 0
    known, unknown = asked & (owners >= 0), asked & (owners == UNKNOWN)
    bits = wanting[:, None] >> np.arange(xcds) & 1
    foreign = np.mean(wanting[known] >> owners[known] & 1 == 0) if known.any() else 1 - bits.sum(1) / xcds
    chosen = unknown & ((lines * GOLDEN & 0xFFFFFFFF) < foreign * (1 << 32)) & (bits.sum(1) < xcds)
    owners[chosen] = bits[chosen].argmin(1)  # the first that does not want it
    valid[chosen] = 1 << owners[chosen].astype(np.int64)


def _union(*of: Lines) -> dict[int, np.ndarray]:
    """Returns the different lines of all, by XCD."""
    xcds = reduce(set.union, map(set, of), set[int]())
    return {xcd: distinct(np.concatenate([one[xcd] for one in of if xcd in one])) for xcd in xcds}


def lines_by_xcd(sampled: TracedLaunch) -> tuple[Lines, Lines]:
    """Returns the lines that the traced workgroups of each XCD load by vector instructions, and the lines that they store to."""
    code = sampled.code
    stores = code.flags & (STORE | ATOMIC) != 0
    kinds = (code.kind == Kind.VMEM) & ~stores, stores
    found: list[dict[int, list[np.ndarray]]] = [{}, {}]
    for trace in (*sampled.beginnings, *sampled.whole):
        for of, kind in zip(found, kinds, strict=True):
            if len(lines := trace.lines_of(code, kind)):
                of.setdefault(trace.group % sampled.chip.xcds, []).append(lines)
    loaded, stored = (
        {xcd: distinct(original_lines(np.concatenate(parts), sampled.pages)) for xcd, parts in of.items()} for of in found
    )
    return loaded, stored
