"""Orders the requests of workgroups to L2: all begin together, or as a front that moves through a launch of many rounds.

After a few rounds workgroups begin one by one, each when another ends. So at any time those on the GPU are at all stages. When a
wave requests what decides how long a line must stay in L2 until the next plane of a stencil wants it. The CU model knows that:
older waves go first, so that a wave's loads follow each other quickly, after it has waited for the older ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import CodeColumns
from simgpu.timing.native import state
from simgpu.timing.native.runs import find_runs, take_turns
from simgpu.timing.trace import distinct

STAGES = 64  # parts of a wave's accesses whose times are known


@dataclass(frozen=True)
class Timetable:
    """When the waves of a workgroup in the middle of a launch access memory, by the CU model."""

    clocks: np.ndarray  # float64 (waves, STAGES): mean clocks from the workgroup's begin to each part of a wave's accesses
    life: float  # mean clocks from a workgroup's begin to its end
    latency: float  # clocks of a load from memory, with the queue before it

    def times(self, waves: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Returns the clocks of requests since their workgroups began. waves, parts: see `front_times`."""
        at = np.clip(parts * STAGES - 0.5, 0, STAGES - 1)
        low = np.minimum(at.astype(int), STAGES - 2)
        first, second = self.clocks[waves, low], self.clocks[waves, low + 1]
        return np.asarray(first + (second - first) * (at - low))


@dataclass(frozen=True)
class Front:
    """A front of workgroups that moves through a launch."""

    together: int  # workgroups that the GPU holds
    rounds: float  # workgroups of the launch divided by `together`
    table: Timetable | None = None  # when their waves access memory; None: they begin together


def timetable(log: np.ndarray, ends: np.ndarray, code: CodeColumns, waves: int, resident: int, latency: float) -> Timetable | None:
    """Returns the timetable of a CU, or None if no wave accesses memory.

    log, ends: see `simgpu.timing.native.state.CuResult`. The first half of the workgroups is left out, because they began together,
    and the last `resident`, because nothing takes the places of those that end.
    """
    first, end = len(ends) // 2, max(len(ends) // 2 + 1, len(ends) - resident)
    log = log[(log[:, 5] >= first) & (log[:, 5] < end)]
    begins = np.full(max(0, end - first), state.NEVER)
    np.minimum.at(begins, log[:, 5] - first, log[:, 2])
    asked = log[code.kind[log[:, 1]] == Kind.VMEM]
    if not len(asked):
        return None
    group, wave = asked[:, 5] - first, asked[:, 0] % waves
    sums, found = np.zeros((waves, STAGES)), np.zeros((waves, 1))
    for owner in distinct(group * waves + wave):
        clocks = asked[group * waves + wave == owner, 3] - begins[owner // waves]
        sums[owner % waves] += np.interp(_middles(STAGES), _middles(len(clocks)), clocks)
        found[owner % waves] += 1
    mean = sums / np.maximum(1, found)
    mean[found[:, 0] == 0] = mean[found[:, 0] > 0].mean(0)  # of waves without accesses among these workgroups
    return Timetable(mean, float((ends[first:end] - begins).mean()), latency)


def _middles(count: int) -> np.ndarray:
    """Returns the middles of `count` equal parts of 0 to 1."""
    return (np.arange(count) + 0.5) / count


def front_times(
    groups: np.ndarray, waves: np.ndarray, parts: np.ndarray, together: int, table: Timetable
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Returns the order of runs, their times in clocks, and the begin and end of the last round's times.

    groups: as `runs` returns them; waves: of each run; parts: part of its wave's accesses that precede each run, 0 to 1.
    """
    begins = np.repeat(np.arange(len(groups) - 1) * (table.life / together), np.diff(groups))
    times = (begins + table.times(waves, parts)).astype(np.int64)
    end = int((len(groups) - 1) / together * table.life)  # then no workgroup would begin any more
    return np.argsort(times, kind="stable"), times, (end - int(table.life), end)


def runs(accesses: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first request of each run, and their end; and the first run of each workgroup, and their end.

    A run is consecutive requests by one access, in one turn of its workgroup. accesses: of each request; ends: end of each
    workgroup's requests, after a 0.
    """
    starts, groups = np.empty(len(accesses) + 1, np.int64), np.zeros(len(ends), np.int64)
    count = find_runs(accesses, ends, starts, groups)
    return starts[: count + 1], groups


def in_step(counts: np.ndarray, waves: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each access of workgroups that begin together its time, and how long it takes, in lines of a mean workgroup.

    Their waves do one access each in turn. Workgroups with fewer lines, because an edge masks lanes, do not go faster: they wait as
    long for a loop's loads, and have fewer of them in flight. counts: lines of each access; waves: first access of each wave, and
    the end; ends: first access of each workgroup, and the end.
    """
    starts = np.repeat(waves[:-1], np.diff(waves))
    group = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    order = np.lexsort((starts, np.arange(len(counts)) - starts, group))
    place = np.arange(len(counts)) - ends[group]  # of the accesses in their order
    each = np.bincount(place, counts[order]) / np.maximum(1, np.bincount(place))
    times, length = np.empty((2, len(counts)))
    times[order], length[order] = (np.cumsum(each) - each)[place], each[place]
    return times, length


def turns(times: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns the order of the runs of workgroups that begin together. times: of each run, in lines of a workgroup."""
    order = np.empty(groups[-1] - groups[0], np.int64)
    take_turns(times, groups, groups[:-1].copy(), order)
    return order
