"""Traces of workgroups as arrays: executed instructions and accessed lines of each wave, the input of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import CodeColumns
from simgpu.timing.native.numbers import enter
from simgpu.timing.native.state import ATOMIC, STORE
from simgpu.timing.native.streams import COUNT, FIELDS, FIRST, walk_all

LINE_BYTES = 64  # size of the lines that `lines` numbers


@dataclass(frozen=True)
class Trace:
    """Trace of one workgroup."""

    steps: np.ndarray  # uint32: executed instructions, as numbers of `CodeColumns`; wave w's are steps[starts[w] : starts[w + 1]]
    starts: np.ndarray  # (waves + 1,)
    # int32 (n, 6), a row per access: clocks of the LDS banks or of the coalescer; index of its first line in `lines`; number of
    # its lines (0 for LDS); clocks and lines if as many lanes had no bank conflict, or consecutive addresses;
    # 1 if several lanes want the same address in memory, and no lane another one
    accesses: np.ndarray
    access_starts: np.ndarray  # (waves + 1,): wave w's accesses begin at access_starts[w]
    lines: np.ndarray  # uint32: numbers of 64-byte lines
    complete: bool  # True if all waves ended
    group: int = 0  # the workgroup's number in the order of dispatch
    stretch: float = 1.0  # executed records divided by `steps`; the records that are missing are assumed to be like them

    @property
    def waves(self) -> int:
        return len(self.starts) - 1

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def access_waves(self) -> np.ndarray:
        """Wave of each access."""
        return np.repeat(np.arange(self.waves), np.diff(self.access_starts))

    def access_numbers(self, code: CodeColumns) -> np.ndarray:
        """Returns the instruction of each access, as a number of `CodeColumns`."""
        return self.steps[code.accesses[self.steps]]

    def lines_of(self, code: CodeColumns, chosen: np.ndarray) -> np.ndarray:
        """Returns the lines that accesses by some instructions request, in their order. chosen: True for these, by number."""
        rows = self.accesses[chosen[self.access_numbers(code)]]
        counts = rows[:, COUNT]
        starts = np.repeat(rows[:, FIRST] - np.cumsum(counts) + counts, counts)
        return self.lines[starts + np.arange(len(starts))]


def updated_fraction(traces: Sequence[Trace], code: CodeColumns) -> float:
    """Returns the fraction of the stored lines that their workgroup also loads; 0 without stores."""
    stores, loads = (code.flags & STORE != 0), (code.flags & (STORE | ATOMIC) == 0) & (code.kind == Kind.VMEM)
    stored = updated = 0
    for trace in traces:
        mine, loaded = distinct(trace.lines_of(code, stores)), trace.lines_of(code, loads)
        stored += len(mine)
        if not len(mine) or not len(loaded):
            continue
        of_stores = np.zeros((int(max(mine[-1], loaded.max())) >> PAGE_SHIFT) + 1, bool)
        of_stores[mine >> PAGE_SHIFT] = True
        loaded = distinct(loaded[of_stores[loaded >> PAGE_SHIFT]])  # few kernels load what is in a page that they store
        updated += len(mine) + len(loaded) - len(distinct(np.concatenate([mine, loaded])))
    return updated / max(1, stored)


def join_streams(groups: Sequence[Sequence[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of all waves' streams, one after another, and their bounds."""
    streams = [stream for group in groups for stream in group]
    return np.concatenate([np.empty(0, np.uint32), *streams]), np.cumsum([0, *map(len, streams)])


def traces_of(
    code: CodeColumns, groups: Sequence[Sequence[np.ndarray]], entry: int, complete: Sequence[bool], numbers: Sequence[int],
    stretches: Sequence[float],
) -> list[Trace]:  # fmt: skip
    """Decodes workgroups into traces: the streams (uint32, `simgpu.checks.path_trace`) of the waves of each.

    entry: number of their first instruction. The other sequences have the traces' fields of these names; numbers: `group`.
    """
    words, bounds = join_streams(groups)
    sizes, ends = np.zeros((len(bounds) - 1, 3), np.int64), np.zeros((len(bounds), 3), np.int64)
    walk = partial(walk_all, words, bounds, entry, code.step, code.accesses, sizes, ends)
    walk(np.empty(0, np.uint32), np.empty((0, FIELDS), np.int32), np.empty(0, np.uint32))
    np.cumsum(sizes, axis=0, out=ends[1:])
    steps, lines = np.empty(ends[-1, 0], np.uint32), np.empty(ends[-1, 2], np.uint32)
    accesses = np.zeros((ends[-1, 1], FIELDS), np.int32)
    walk(steps, accesses, lines)
    made, wave = [], 0
    for group, whole, number, stretch in zip(groups, complete, numbers, stretches, strict=True):
        (a, b, c), (d, e, f) = ends[wave].tolist(), ends[wave + len(group)].tolist()
        inside = np.ascontiguousarray((ends[wave : wave + len(group) + 1] - ends[wave]).T)
        accesses[b:e, FIRST] -= c
        made.append(Trace(steps[a:d], inside[0], accesses[b:e], inside[1], lines[c:f], whole, number, stretch))
        wave += len(group)
    return made


def part_of(code: CodeColumns, trace: Trace, share: float) -> Trace:
    """Returns a trace of only the first steps of each wave, for a workgroup that does a fraction `share` of the work."""
    counts = np.ceil(np.diff(trace.starts) * trace.stretch * share).astype(np.int64)
    counts = np.minimum(counts, np.diff(trace.starts))
    kept = [trace.steps[start : start + count] for start, count in zip(trace.starts, counts, strict=False)]
    held = [int(code.accesses[steps].sum()) for steps in kept]
    accesses = [trace.accesses[start : start + count] for start, count in zip(trace.access_starts, held, strict=False)]
    return replace(
        trace, steps=np.concatenate(kept), starts=np.cumsum([0, *map(len, kept)]), accesses=np.concatenate(accesses),
        access_starts=np.cumsum([0, *held]), stretch=max(1.0, trace.stretch * share * len(trace) / max(1, int(counts.sum()))),
    )  # fmt: skip


PAGE_SHIFT = 15  # 2^15 lines are a page and stay together: the driver maps 2 MiB at a time


def renumber(traces: Sequence[Trace]) -> tuple[list[Trace], np.ndarray]:
    """Renumbers the traces' pages in the order of their first touch, so that the host's placement does not matter.

    Returns the traces, and the former number of each page.
    """
    ends = np.cumsum([len(trace.lines) for trace in traces])
    lines = np.concatenate([trace.lines for trace in traces]) if traces else np.empty(0, np.uint32)
    page, pages = number_values(lines >> PAGE_SHIFT)
    made = (page << PAGE_SHIFT) | (lines & ((1 << PAGE_SHIFT) - 1))
    return [replace(trace, lines=part) for trace, part in zip(traces, np.split(made, ends[:-1]), strict=True)], pages


def original_lines(lines: np.ndarray, pages: np.ndarray, shift: int = PAGE_SHIFT) -> np.ndarray:
    """Returns the numbers, int64, that renumbered lines had before. shift: log2 of the lines of a page."""
    return (pages[lines >> shift].astype(np.int64) << shift) | (lines & ((1 << shift) - 1))


class DistinctLines:
    """Counts the distinct lines that were added.

    >>> lines = DistinctLines()
    >>> lines.add(np.array([7, 1 << 20], np.uint32))
    >>> lines.add(np.array([7, 8], np.uint32))
    >>> lines.count
    3
    """

    def __init__(self) -> None:
        self.count = 0
        self._pages: dict[int, np.ndarray] = {}  # by number: True for lines of the page that were added

    def add(self, lines: np.ndarray) -> None:
        """Adds uint32 lines; they may repeat."""
        numbers, pages = number_values(lines >> PAGE_SHIFT)
        size = 1 << PAGE_SHIFT
        marks = np.array([self._pages.get(page, np.zeros(size, bool)) for page in pages.tolist()]).reshape(-1, size)
        before = np.count_nonzero(marks)
        marks[numbers, lines & (size - 1)] = True
        self._pages.update(zip(pages.tolist(), marks, strict=True))
        self.count += int(np.count_nonzero(marks) - before)


def distinct(values: np.ndarray) -> np.ndarray:
    """Returns the different values, sorted. Unlike `np.unique`, it does not import numpy's masked arrays.

    >>> distinct(np.array([7, 3, 7]))
    array([3, 7])
    """
    return np.sort(number_values(values)[1])


def distinct_of_parts(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the different values of each part, and their bounds: as `distinct` of each, but in the order of first occurrence.

    bounds: of the parts, (n + 1,).

    >>> distinct_of_parts(np.array([7, 3, 7, 3, 9]), np.array([0, 3, 5]))
    (array([7, 3, 3, 9]), array([0, 2, 4]))
    """
    return _number_parts(values, bounds)[1:]


def number_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a number for each value, uint32, and the value of each number. Equal values have the same number: 0, 1, ... in the
    order of their first occurrence.

    It is like `np.unique` with its inverse, without sorting. Values are integers of 0 or more. The hash table grows with the
    number of different values, so a few values stay in the host's cache.

    >>> number_values(np.array([7, 3, 7, 9], np.int32))
    (array([0, 1, 0, 2], dtype=uint32), array([7, 3, 9], dtype=int32))
    """
    return _number_parts(values, np.array([0, len(values)]))[:2]


def _number_parts(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the numbers and the values of `number_values` for each part, and where each part's values end, after a 0."""
    values = np.ascontiguousarray(values)
    numbers, known, ends = np.empty(len(values), np.uint32), np.empty_like(values), np.zeros(len(bounds), np.int64)
    done, bits = np.zeros(3, np.int64), 6
    while done[1] + 1 < len(bounds):
        enter(values, bounds, np.full(1 << bits, -1, np.int32), bits, numbers, known, ends, done)
        bits += 2
    return numbers, known[: done[2]], ends
