"""Estimates how atomics meet on lines of memory: L2 serves those on one line one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.timing.code import CodeColumns
from simgpu.timing.native.state import ATOMIC
from simgpu.timing.native.streams import COUNT
from simgpu.timing.trace import LINE_BYTES, Trace


@dataclass(frozen=True)
class LineContention:
    """Contention of a launch's atomics on lines of memory."""

    requests: float  # by an atomic, on one line
    # float64 (n,), by an atomic's number: fraction of the other workgroups whose execution requests the same line
    share: np.ndarray


def line_contention(code: CodeColumns, traces: Sequence[Trace], groups: int, line: int) -> LineContention:
    """Estimates the contention in a launch of `groups` workgroups from `traces`, some of these. line: bytes of a line of L2."""
    share, requests = np.zeros(len(code.unit)), 0.0
    known = {trace.group: trace for trace in sorted(traces, key=lambda trace: trace.complete)}  # whole ones replace beginnings
    counted = [(trace, np.bincount(trace.steps, minlength=len(share)), *_atomic_lines(code, trace)) for trace in known.values()]
    for number in np.flatnonzero(code.flags & ATOMIC):
        some = [(trace, counts[number], lines[owners == number]) for trace, counts, owners, lines in counted]
        some = [one for one in some if one[1] or one[0].complete]
        if not any(count for _, count, _ in some):
            continue
        times = np.array([count for _, count, _ in some], np.float64)
        executed = float((times * [trace.stretch for trace, *_ in some]).mean())
        share[number] = _share([lines // np.uint32(line // LINE_BYTES) for *_, lines in some], times)
        requests = max(requests, share[number] * executed * groups, 1.0)
    return LineContention(requests, share)


def _atomic_lines(code: CodeColumns, trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each line that a trace's atomics request the number of its atomic, and the line."""
    atomics = code.flags & ATOMIC > 0
    owners = trace.steps[code.accesses[trace.steps]]
    mine = atomics[owners]
    return np.repeat(owners[mine], trace.accesses[mine, COUNT]), trace.lines_of(code, atomics)


def _share(lines: Sequence[np.ndarray], counts: np.ndarray) -> float:
    """Returns the fraction of other workgroups whose execution of an atomic requests the same line as one of a workgroup.

    lines: that the atomic requests, by workgroup; counts: its executions. Pairs of requests on the same line by different
    workgroups are counted and divided by all possible pairs. A standard error is subtracted, because few samples also meet by
    chance.
    """
    owners, count = np.repeat(np.arange(len(lines)), [len(some) for some in lines]), len(lines)
    if count < 2 or not len(owners):
        return 0.0
    _, where = np.unique(np.concatenate(lines), return_inverse=True)
    both, times = np.unique(where * count + owners, return_counts=True)
    on_line = np.bincount(both // count, times)
    pairs = (on_line**2).sum() - (times.astype(np.float64) ** 2).sum()
    each, wide = counts.sum() / np.count_nonzero(counts), len(owners) / counts.sum()  # executions of a workgroup, lines of one
    met = float(min(1.0, pairs / (counts.sum() * each * wide * (count - 1))))
    return max(0.0, met - (met * (1 - met) / (count * (count - 1) / 2)) ** 0.5)
