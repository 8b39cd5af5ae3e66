"""Which workgroups a CU gets where they are not alike: each goes to the first place that is free on its XCD."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

GOLDEN = 0.6180339887498949  # of a launch, to the next sample: at no simple fraction of it, and in step with no period of its grid


def spread(groups: int, count: int) -> Iterable[int]:
    """Workgroups all over the launch, each at most once, of which any first ones lie evenly: `count` at least if there are."""
    candidates = (int((at + 1) * GOLDEN % 1 * groups) for at in range(2 * count))
    return dict.fromkeys((*candidates, *range(min(groups, 2 * count))))


def standing(samples: Sequence[int], groups: int) -> np.ndarray:
    """For each workgroup of the launch the sample that stands for it, by its place in `samples`: the nearest one."""
    order = np.argsort(samples, kind="stable")
    known = np.asarray(samples)[order]
    borders = (known[:-1] + known[1:]) / 2
    return order[np.searchsorted(borders, np.arange(groups))]


def mixed(stand: np.ndarray, count: int) -> np.ndarray:
    """So many samples, each as often as it stands for workgroups, none in step with the launch."""
    return stand[((np.arange(1, count + 1) * GOLDEN) % 1 * len(stand)).astype(np.int64)]


@dataclass(frozen=True)
class DispatchQueue:
    """What a CU runs: samples in the order of dispatch; busy: how much of its work a CU that works has on average, 0 to 1."""

    order: np.ndarray
    busy: float


def last_queues(
    clocks: np.ndarray, sizes: np.ndarray, stand: np.ndarray, cus: int, xcds: int, places: int
) -> list[DispatchQueue]:  # fmt: skip
    """The CUs that a launch ends with: that whose last workgroup ends last, and that with most to execute.

    clocks: of each sample alone; sizes: what it executes; stand: the sample of each workgroup; cus: of all XCDs; places: for
    workgroups on a CU.
    Workgroups go to XCDs in turn, and there to the place that is free first.
    """
    each = max(1, cus // xcds)
    free = [[(0.0, place * each + unit, unit) for place in range(places) for unit in range(each)] for _ in range(xcds)]
    queues: list[list[int]] = [[] for _ in range(xcds * each)]
    ends = np.zeros(len(queues))
    for group, sample in enumerate(stand.tolist()):
        xcd = group % xcds
        begin, place, unit = free[xcd][0]
        number, end = xcd * each + unit, begin + float(clocks[sample])
        heapq.heapreplace(free[xcd], (end, place, unit))
        queues[number].append(sample)
        ends[number] = max(ends[number], end)
    work = np.array([sizes[queue].sum() if queue else 0.0 for queue in queues])
    last, mean = dict.fromkeys((int(ends.argmax()), int(work.argmax()))), work.sum() / min(len(stand), cus)
    return [DispatchQueue(np.array(queues[at], np.int64), min(1.0, float(mean / max(1.0, work[at])))) for at in last]
