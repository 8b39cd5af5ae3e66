"""Estimates the memory that a launch or a round of it accesses, from a part of its workgroups and of their lives.

A line counts for the instruction that requests it first, for instructions differ. In a product's loop one of them loads many words
of a line, pass by pass, and another one loads a new line in each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.timing.code import CodeColumns
from simgpu.timing.native.replay import Requests
from simgpu.timing.native.streams import COUNT
from simgpu.timing.trace import LINE_BYTES, Trace, distinct, number_values

MOST_COUNTED = 64  # most workgroups whose own lines are counted


@dataclass(frozen=True)
class AccessedLines:
    """Lines of L2 that consecutive workgroups request, or the workgroups of one XCD among them."""

    half: np.ndarray  # by instruction: distinct lines of the first half of the workgroups
    all: np.ndarray
    groups: int  # number of consecutive workgroups
    part: float = 1.0  # fraction of these that request the lines


@dataclass(frozen=True)
class Reach:
    """Memory that a launch accesses."""

    groups: int  # its workgroups
    times: np.ndarray  # by instruction: distinct lines of a workgroup for each traced one
    further: float  # lines of a workgroup by instructions that the traced part does not reach: no other one requests these
    line: int  # bytes of a line
    most: float  # bytes of all allocations that it accesses

    def of(self, traced: AccessedLines, groups: int = 0) -> float:
        """Returns the bytes of the distinct lines of `groups` workgroups, at most; of the launch by default.

        Each further workgroup adds as many lines as a mean workgroup of the second half of the traced ones.
        """
        groups = groups or self.groups
        each = (traced.all - traced.half) / max(1, traced.groups - traced.groups // 2)
        known = (traced.all + max(0, groups - traced.groups) * each) @ self.times
        return min(self.line * float(known + self.further * groups * traced.part), self.most)


def reach_of(
    groups: int, whole: Sequence[Trace], traced: Sequence[Trace], code: CodeColumns, line: int, most: float, same: bool
) -> Reach:
    """Returns the memory that a launch accesses. whole: workgroups to their ends; traced: workgroups whose footprint will be known;
    same: True if these are all workgroups; line: bytes of a line of L2; most: as in `Reach`."""
    every = np.ones(len(code.unit))
    if same or not traced:
        return Reach(groups, every, 0.0, line, most)
    each, known = _own_lines(whole, code, line), _own_lines(traced, code, line)
    times = np.where(known > 0, each / np.where(known > 0, known, 1), every)
    return Reach(groups, times, float(each[known == 0].sum()), line, most)


def _own_lines(traces: Sequence[Trace], code: CodeColumns, line: int) -> np.ndarray:
    """Returns by instruction the distinct lines of a mean workgroup."""
    made, chosen = np.zeros(len(code.unit)), traces[:: -(-len(traces) // MOST_COUNTED)]
    for trace in chosen:
        owners = np.repeat(trace.access_numbers(code), trace.accesses[:, COUNT])
        places, known = number_values(trace.lines // np.uint32(line // LINE_BYTES))
        made += trace.stretch * _first_requests(places, owners, len(known), len(made))
    return made / len(chosen)


def _first_requests(places: np.ndarray, owners: np.ndarray, known: int, count: int) -> np.ndarray:
    """Returns the distinct lines by the instruction that requests them first. places: number of each request's line, < known."""
    first = np.full(known, count)
    first[places[::-1]] = owners[::-1]  # the last assignment stays
    return np.bincount(first, minlength=count + 1)[:count]


def footprints_of(requests: Requests, groups: np.ndarray, known: int, count: int) -> tuple[AccessedLines, AccessedLines]:
    """Returns the footprints of all XCDs, and of the one whose workgroups request most lines.

    groups: first run of each workgroup, and their end; known: number of distinct lines; count: of instructions.
    """
    ends = [int(requests.starts[groups[at]]) for at in ((len(groups) - 1) // 2, len(groups) - 1)]
    sizes = np.diff(requests.starts)
    owners, xcds = np.repeat(requests.owners, sizes)[: ends[1]], np.repeat(requests.xcds, sizes)[: ends[1]]

    def footprint(mine: np.ndarray, part: float) -> AccessedLines:
        half, whole = (
            _first_requests(requests.places[:end][mine[:end]], owners[:end][mine[:end]], known, count) for end in ends
        )
        return AccessedLines(half, whole, len(groups) - 1, part)

    numbers, total = distinct(xcds), footprint(np.ones(ends[1], bool), 1.0)
    of_xcds = (footprint(xcds == xcd, 1 / len(numbers)) for xcd in numbers)
    return total, max(of_xcds, key=lambda one: int(one.all.sum()), default=total)
