"""Counts atomics on one line of memory: L2 serves them one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.timing.code import ATOMIC, CodeColumns
from simgpu.timing.trace import Trace


def atomics_on_a_line(code: CodeColumns, traces: Sequence[Trace], groups: int) -> float:
    """Returns the number of requests by atomics on the line with most of them, in a launch of `groups` workgroups.

    traces: some of these workgroups. A line that several of them access belongs to that part of all workgroups.
    """
    if not (code.flags & ATOMIC).any():
        return 0.0
    known = {trace.group: trace for trace in traces}
    lines = [np.empty(0, np.uint32), *(trace.lines_of(code, code.flags & ATOMIC != 0) for trace in known.values())]
    weights = [np.empty(0), *(np.full(len(asked), trace.stretch) for asked, trace in zip(lines[1:], known.values(), strict=True))]
    numbers, where = np.unique(np.concatenate(lines), return_inverse=True)
    if not len(numbers):
        return 0.0
    asked = np.bincount(where, np.concatenate(weights))
    askers = np.bincount(np.unique(np.stack([np.repeat(np.arange(len(lines)), list(map(len, lines))), where]), axis=1)[1])
    shared = np.where(askers > 1, groups / len(known), 1.0)  # a workgroup's own line stays its own
    return float((asked * shared).max())
