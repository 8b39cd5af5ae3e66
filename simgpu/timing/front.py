"""Orders the requests of workgroups to L2: all begin together, or as a front that moves through a launch of many rounds.

After a few rounds workgroups begin one by one, each when another ends. So at any time those on the GPU are at all stages. When a
wave requests what decides how long a line must stay in L2 until the next plane of a stencil wants it. The CU model knows that:
older waves go first, so that a wave's loads follow each other quickly, after it has waited for the older ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import CodeColumns

TURN_LINES = 16  # lines that a workgroup requests in its turn, if workgroups begin together
STAGES = 64  # parts of a wave's accesses whose times are known


@dataclass(frozen=True)
class Front:
    """A front of workgroups that moves through a launch."""

    together: int  # workgroups that the GPU holds
    rounds: float  # workgroups of the launch divided by `together`


def stages(log: np.ndarray, ends: np.ndarray, code: CodeColumns) -> np.ndarray:
    """Returns when waves execute the parts of their memory accesses, float64 (STAGES,): 0 at the workgroup's begin, 1 at its end.

    log, ends: see `simgpu.timing.state.CuResult`. The first half of the workgroups is left out: they began together.
    """
    log = log[log[:, 5] >= len(ends) // 2]
    wave, number, came, issued, _, group = log[np.argsort(log[:, 5], kind="stable")].T
    _, first, of = np.unique(group, return_index=True, return_inverse=True)
    begin = np.minimum.reduceat(came, first)[of]
    progress = (issued - begin) / np.maximum(1, ends[group] - begin)
    asked = code.kind[number] == Kind.VMEM
    progress, owner = progress[asked], (group * (1 + wave.max(initial=0)) + wave)[asked]
    order = np.argsort(owner, kind="stable")
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    each = np.repeat(counts, counts)
    part = (np.arange(len(order)) - np.repeat(starts, counts) + 0.5) / each
    sums, found = (np.bincount((part * STAGES).astype(int), weight, STAGES) for weight in (progress[order], None))
    known = found > 0
    at = np.arange(STAGES)
    return np.interp(at, at[known], sums[known] / found[known]) if known.any() else (at + 0.5) / STAGES


def front_times(
    ends: np.ndarray, parts: np.ndarray, together: int, stage: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Returns the order of requests, their times in lines of a workgroup, and the begin and end of the last round's times.

    ends: end of each workgroup's requests, after a 0; parts: part of its wave's accesses that precede each request, 0 to 1; stage:
    see `stages`.
    """
    groups = len(ends) - 1
    lines = float(np.diff(ends).mean())
    begins = np.repeat(np.arange(groups) / together, np.diff(ends))
    times = ((begins + np.interp(parts, (np.arange(STAGES) + 0.5) / STAGES, stage)) * lines).astype(np.int64)
    end = int(groups / together * lines)  # then no workgroup would begin any more
    return np.argsort(times, kind="stable"), times, (end - int(lines), end)


@numba.njit(cache=True, nogil=True)
def turns(ends):  # type: ignore[no-untyped-def]
    """Returns the order of the requests of workgroups that begin together, and their times in lines of a workgroup."""
    groups, done, turn = len(ends) - 1, 0, 0
    order, times = np.empty(ends[groups], np.int64), np.empty(ends[groups], np.int64)
    while done < len(order):
        for group in range(groups):
            for place in range(ends[group] + turn * TURN_LINES, min(ends[group + 1], ends[group] + (turn + 1) * TURN_LINES)):
                order[done], times[place] = place, place - ends[group]
                done += 1
        turn += 1
    return order, times
