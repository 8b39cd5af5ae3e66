"""Assigns workgroups to CUs if workgroups differ: each goes to the first free place on its XCD."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# of a launch, to the next sample: no simple fraction of the launch, so in step with no period of its grid
GOLDEN = 0.6180339887498949


def spread(groups: int, count: int) -> Iterable[int]:
    """Yields workgroups from all over the launch, each at most once. Any first ones are evenly spread.

    Yields at least `count` of them if the launch has that many.
    """
    candidates = (int((at + 1) * GOLDEN % 1 * groups) for at in range(2 * count))
    return dict.fromkeys((*candidates, *range(min(groups, 2 * count))))


def nearest_samples(samples: Sequence[int], groups: int) -> np.ndarray:
    """Returns for each workgroup the nearest sample, which represents it, as an index into `samples`."""
    order = np.argsort(samples, kind="stable")
    known = np.asarray(samples)[order]
    borders = (known[:-1] + known[1:]) / 2
    return order[np.searchsorted(borders, np.arange(groups))]


def mix_samples(stand: np.ndarray, count: int) -> np.ndarray:
    """Draws `count` samples, each in proportion to the workgroups that it represents, in step with no period of the launch."""
    return stand[((np.arange(1, count + 1) * GOLDEN) % 1 * len(stand)).astype(np.int64)]


@dataclass(frozen=True)
class DispatchQueue:
    """Workgroups that one CU runs."""

    order: np.ndarray  # samples, in the order of dispatch
    busy: float  # mean work of the working CUs, as a fraction of this one's, 0 to 1


def last_queues(
    clocks: np.ndarray, sizes: np.ndarray, stand: np.ndarray, cus: int, xcds: int, places: int
) -> list[DispatchQueue]:  # fmt: skip
    """Returns the CUs that a launch ends with: the one whose last workgroup ends last, and the one with most to execute.

    clocks: of each sample on an otherwise idle CU; sizes: records that it executes; stand: the sample of each
    workgroup; cus: of all XCDs; places: workgroups that a CU holds. Workgroups go to XCDs in turn, and there to the
    place that is free first.
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
