"""Estimates how atomics meet on lines of memory: L2 serves those on one line one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simgpu.timing.code import CodeColumns
from simgpu.timing.native.state import ATOMIC
from simgpu.timing.native.streams import COUNT
from simgpu.timing.trace import LINE_BYTES, Trace


@dataclass(frozen=True)
class LineContention:
    """Contention of a launch's atomics on lines of memory: float64 (n,) each, by an atomic's number."""

    on_line: np.ndarray  # requests on one line
    moving: np.ndarray  # of these, requests that find the line in another XCD's L2
    share: np.ndarray  # fraction of the other workgroups whose execution requests the same line
    moved: np.ndarray  # the same for workgroups on other XCDs
    executed: np.ndarray  # executions by a workgroup

    @property
    def requests(self) -> float:
        """Requests on the line with most of them."""
        return float(self.on_line.max(initial=0.0))

    @property
    def moves(self) -> float:
        """Moves of the line with most of them."""
        return float(self.moving.max(initial=0.0))

    def without(self, numbers: Iterable[int], waves: int) -> LineContention:
        """Returns the contention if workgroups of `waves` waves add up what these atomics would, and then execute one a wave.

        Workgroups that execute no more than that add up further, and execute one.

        >>> one = LineContention(*np.full((4, 1), 80.0), executed=np.full(1, 8.0))
        >>> one.without([0], 4).requests, LineContention(*np.full((4, 1), 80.0), executed=np.full(1, 4.0)).without([0], 4).requests
        (40.0, 20.0)
        """
        mine = np.isin(np.arange(len(self.share)), list(numbers))
        left = np.where(self.executed > waves, waves, 1)
        part = np.where(mine, np.minimum(1, left / np.maximum(self.executed, 1)), 1)
        return replace(
            self, on_line=self.on_line * part, moving=self.moving * part, share=self.share * ~mine, moved=self.moved * ~mine
        )


@dataclass(frozen=True)
class GroupAtomics:
    """Atomics that a workgroup executed."""

    group: int  # its number in the order of dispatch
    complete: bool  # True if all its waves ended
    stretch: float  # as the trace's
    executed: Mapping[int, int]  # executions, by an atomic's number
    lines: Mapping[int, np.ndarray]  # 64-byte lines that these request, in their order


def atomics_of(code: CodeColumns, trace: Trace) -> GroupAtomics:
    """Returns the atomics of a trace."""
    atomics = code.flags & ATOMIC > 0
    if not atomics.any():
        return GroupAtomics(trace.group, trace.complete, trace.stretch, {}, {})
    owners = trace.access_numbers(code)
    mine = atomics[owners]
    by, lines = np.repeat(owners[mine], trace.accesses[mine, COUNT]), trace.lines_of(code, atomics)
    numbers, counts = np.unique(trace.steps[atomics[trace.steps]], return_counts=True)
    executed = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return GroupAtomics(trace.group, trace.complete, trace.stretch, executed, {number: lines[by == number] for number in executed})


def line_contention(code: CodeColumns, ran: Sequence[GroupAtomics], groups: int, line: int, xcds: int) -> LineContention:
    """Estimates the contention in a launch of `groups` workgroups from those that ran. line: bytes of a line of L2.

    Workgroups go to the `xcds` XCDs in turn.
    """
    on_line, moving, share, moved, executed = np.zeros((5, len(code.unit)))
    known = {one.group: one for one in sorted(ran, key=lambda one: one.complete)}  # whole ones replace beginnings
    for number in sorted({number for one in known.values() for number in one.executed}):
        some = [one for one in known.values() if number in one.executed or one.complete]
        times = np.array([one.executed.get(number, 0) for one in some], np.float64)
        executed[number] = (times * [one.stretch for one in some]).mean()
        lines = [one.lines.get(number, np.empty(0, np.uint32)) // np.uint32(line // LINE_BYTES) for one in some]
        share[number], apart = _share(lines, times, np.array([one.group % xcds for one in some]))
        moved[number] = share[number] * apart
        on_line[number] = max(share[number] * executed[number] * groups, 1.0)
        moving[number] = moved[number] * executed[number] * groups
    return LineContention(on_line, moving, share, moved, executed)


def _share(lines: Sequence[np.ndarray], counts: np.ndarray, xcd: np.ndarray) -> tuple[float, float]:
    """Returns the fraction of other workgroups whose execution of an atomic requests the same line as one of a workgroup, and the
    fraction of these that are on another XCD.

    lines: that the atomic requests, by workgroup; counts: its executions; xcd: the workgroups' XCDs. Pairs of requests on the same
    line by different workgroups are counted and divided by all possible pairs. A standard error is subtracted, because few samples
    also meet by chance.
    """
    owners, count = np.repeat(np.arange(len(lines)), [len(some) for some in lines]), len(lines)
    if count < 2 or not len(owners):
        return 0.0, 0.0
    _, where = np.unique(np.concatenate(lines), return_inverse=True)
    meeting = _pairs(where)
    pairs = meeting - _pairs(where * count + owners)
    each, wide = counts.sum() / np.count_nonzero(counts), len(owners) / counts.sum()  # executions of a workgroup, lines of one
    met = float(min(1.0, pairs / (counts.sum() * each * wide * (count - 1))))
    apart = (meeting - _pairs(where * (xcd.max() + 1) + xcd[owners])) / max(1.0, pairs)
    return max(0.0, met - (met * (1 - met) / (count * (count - 1) / 2)) ** 0.5), apart


def _pairs(keys: np.ndarray) -> float:
    """Returns the number of ordered pairs with equal keys, each with itself too."""
    return float((np.unique(keys, return_counts=True)[1].astype(np.float64) ** 2).sum())
