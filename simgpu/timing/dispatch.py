"""Assigns workgroups to CUs if workgroups differ, as the dispatchers of XCDs do."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Distance between samples as a fraction of the launch: the golden ratio is near no simple fraction, so samples do not fall into
# step with a period of the grid.
GOLDEN = 0.6180339887498949
ALIKE = 0.99  # least records of a workgroup over those of another that executes as much


def spread(groups: int, count: int) -> Iterable[int]:
    """Returns workgroups from all over the launch, each once; the first n of them are evenly spread, for any n.

    There are at least `count` of them if the launch has that many.
    """
    candidates = (int((at + 1) * GOLDEN % 1 * groups) for at in range(2 * count))
    return dict.fromkeys((*candidates, *range(min(groups, 2 * count))))


def nearest_samples(samples: Sequence[int], groups: int, sizes: Sequence[float] = (), grid: Sequence[int] = ()) -> np.ndarray:
    """Returns for each workgroup the nearest sample, which represents it, as an index into `samples`.

    Near is meant in the order of dispatch, or along an axis of the grid if sizes of neighbours are more alike there. Workgroups of
    a causal mask differ along one axis. sizes: records that each sample executes; grid: workgroups in x, y and z

    >>> nearest_samples([0, 5], 8).tolist()
    [0, 0, 0, 1, 1, 1, 1, 1]
    >>> nearest_samples([0, 3, 5, 6], 8, sizes=[1, 9, 9, 1], grid=[2, 4, 1]).tolist()
    [0, 1, 3, 2, 0, 1, 3, 2]
    """
    known, numbers = np.asarray(samples), np.arange(groups)
    below = np.cumprod([1, *grid])[:-1]
    axes = [(known // step % extent, numbers // step % extent) for step, extent in zip(below, grid) if extent > 1]
    if len(sizes) > 1 and axes:
        errors = [_error_by_neighbours(place, np.asarray(sizes, float)) for place, _ in [(known, numbers), *axes]]
        best = int(np.argmin(errors))
        if best:
            return _nearest_along(*axes[best - 1])
    order = np.argsort(samples, kind="stable")
    borders = (known[order][1:] + known[order][:-1]) / 2
    return order[np.searchsorted(borders, numbers)]


def _error_by_neighbours(places: np.ndarray, sizes: np.ndarray) -> float:
    """Returns the mean squared error of each sample's size if its neighbours' mean is taken for it."""
    far = np.abs(places[:, None] - places).astype(float)
    np.fill_diagonal(far, np.inf)
    near = far == far.min(1, keepdims=True)
    return float(np.mean(((near @ sizes) / near.sum(1) - sizes) ** 2))


def _nearest_along(known: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns for each place the samples nearest to it, in turn, as indices. known: places of the samples"""
    found = np.empty(len(places), np.int64)
    for place in np.unique(places):
        far = np.abs(known - place)
        (near,) = (far == far.min()).nonzero()
        (here,) = (places == place).nonzero()
        found[here] = near[np.arange(len(here)) % len(near)]
    return found


def mix_samples(stand: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` samples, each as often as its part of the launch requires. stand: the sample of each workgroup."""
    return stand[((np.arange(1, count + 1) * GOLDEN) % 1 * len(stand)).astype(np.int64)]


class Sharing(NamedTuple):
    """Work of all CUs divided by that of one of them, in several measures: so many CUs like it would share the GPU."""

    work: float  # records that workgroups execute
    l2: float  # bytes requested from L2
    mall: float  # bytes past L2
    memory: float  # bytes of memory
    stored: float  # bytes of stores

    @classmethod
    def even(cls, cus: float) -> Sharing:
        """Returns the sharing of `cus` CUs that do the same."""
        return cls(*[cus] * len(cls._fields))

    def at_most(self, cus: float) -> Sharing:
        """Returns the parts of a CU: one that does less than the mean gets a `cus`th, if it wants as much."""
        return Sharing(*(min(cus, each) for each in self))


@dataclass(frozen=True)
class DispatchQueue:
    """Workgroups that one CU runs."""

    order: np.ndarray  # samples, in the order of dispatch
    sharing: Sharing


class Dispatcher:
    """An XCD's dispatcher. It places workgroups on CUs in turn, and passes over CUs without room.

    So do models of AMD's dispatcher: gem5's Shader::dispatchWorkgroups, and MGPUSim's roundRobinAlgorithm.
    """

    def __init__(self, units: int, places: int, interval: float) -> None:
        self.free, self.interval, self.turn, self.begin = [places] * units, interval, 0, 0.0
        self.room = bytearray([1]) * units  # 1 for each CU with a free place
        self.ends: list[tuple[float, int]] = []  # when workgroups end, and their CUs

    def place(self, clocks: float) -> tuple[int, float]:
        """Places the next workgroup as soon as a CU has room, but not before `interval` has passed since the last one.

        Returns its CU, and when it ends if it takes `clocks`.
        """
        self.begin += self.interval
        if 1 not in self.room:
            self.begin = max(self.begin, self.ends[0][0])
        while self.ends and self.ends[0][0] <= self.begin:
            self._change(heapq.heappop(self.ends)[1], 1)
        unit = self.room.find(1, self.turn)
        unit = unit if unit >= 0 else self.room.find(1)
        self._change(unit, -1)
        self.turn = unit + 1
        heapq.heappush(self.ends, (self.begin + clocks, unit))
        return unit, self.begin + clocks

    def _change(self, unit: int, more: int) -> None:
        self.free[unit] += more
        self.room[unit] = self.free[unit] > 0


def last_queues(
    clocks: np.ndarray, works: np.ndarray, stand: np.ndarray, cus: int, xcds: int, places: int, interval: float = 0.0
) -> list[DispatchQueue]:  # fmt: skip
    """Returns the queues of the CU whose last workgroup ends last, and of the CUs that execute most and request most from L2.

    clocks: clocks of each sample on an otherwise idle CU; works: each sample's work, (samples, measures of `Sharing`); stand: the
    sample of each workgroup; cus: CUs of all XCDs; places: workgroups that a CU holds; interval: clocks between the starts of two
    workgroups on an XCD. Workgroups go to XCDs in turn.
    """
    each = max(1, cus // xcds)
    dispatchers = [Dispatcher(each, places, interval) for _ in range(xcds)]
    queues: list[list[int]] = [[] for _ in range(xcds * each)]
    ends = np.zeros(len(queues))
    for group, sample in enumerate(stand.tolist()):
        xcd = group % xcds
        unit, end = dispatchers[xcd].place(float(clocks[sample]))
        number = xcd * each + unit
        queues[number].append(sample)
        ends[number] = max(ends[number], end)
    does = np.array([works[queue].sum(0) for queue in queues])
    most = does.argmax(0)[:2] if works[:, 0].min() < ALIKE * works[:, 0].max() else does.argmax(0)[1:2]
    active, total = min(len(stand), cus), does.sum(0)
    return [
        DispatchQueue(
            np.array(queues[at], np.int64),
            Sharing(*(float(every / mine) if mine else active for every, mine in zip(total, does[at], strict=True))),
        )
        for at in dict.fromkeys([int(ends.argmax()), *most.tolist()])
    ]
