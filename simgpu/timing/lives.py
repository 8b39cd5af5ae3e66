"""Requests of a round of workgroups over their whole lives, if only their beginnings were traced.

Some workgroups ran to their ends. Another one requests the same lines in the same order, at other addresses. Its beginning shows
how far its lines are from those of the workgroup that ran. A load that no beginning reaches moves from workgroup to workgroup as
other loads do, or stays where it is. Samples that ran to their ends show which.

All requests would take too long. So one of several lines is chosen by a hash, and the caches have as much less room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.timing.caches import ServedAccesses, UnreachedLoads, step_times
from simgpu.timing.code import CodeColumns
from simgpu.timing.front import turns
from simgpu.timing.history import EarlierLines
from simgpu.timing.native.lives import move_lines
from simgpu.timing.native.replay import LIMITLESS, TALLIES, LastCaches, Requests, pass_last_caches
from simgpu.timing.native.streams import COUNT, FIRST
from simgpu.timing.trace import LINE_BYTES, PAGE_SHIFT, Trace, number_values, original_lines

MOST_REQUESTS = 1 << 20  # requests of all lives that are replayed, about
MOST_LINES = 1 << 28  # most lines of which these are chosen
MOST_PARTS = 64  # least part of the lines that stands for all
MOST_COMPARED = 8  # most workgroups that ran to their ends whose lines are compared
SPACING = 1 << 24  # lines between workgroups if it is not known where an instruction's lines are
MOST_BASES = 8  # most instructions by whose lines the others' are found
WAVES, ACCESSES = 1 << 6, 1 << 32  # more than a workgroup has
NOWHERE = -1


@dataclass(frozen=True)
class Lives:
    """Requests of the workgroups of one or two rounds over their whole lives, each of one line."""

    requests: Requests
    times: np.ndarray  # of each, in lines of a workgroup
    groups: np.ndarray  # first request of each workgroup, and their end
    first: int  # workgroups of the first round
    known: np.ndarray  # different lines, as they are numbered here
    pages: np.ndarray  # former numbers of their pages
    parts: int  # one of so many lines stands for all
    unreached: np.ndarray  # by instruction: True if the beginnings do not reach it and its lines are known

    def replay(
        self, code: CodeColumns, chip: HardwareDescriptor, row: Pipelines, resident: int, earlier: EarlierLines | None
    ) -> UnreachedLoads:
        """Sends the requests through the last caches, which are empty or have the lines of `earlier` launches."""
        sets = max(1, chip.l2_bytes // row.l2_line // row.l2_ways // self.parts)
        mall = (chip.mall_bytes or LIMITLESS) // row.l2_line // self.parts
        window = float(row.in_flight // row.l2_line // max(1, resident))  # lines of a workgroup
        caches = LastCaches.empty(chip.xcds, sets, row.l2_ways, len(self.known))
        caches = earlier.fill(caches, self.known, self.requests, code, self.pages) if earlier else caches
        seen, made = caches.seen.copy(), []
        for begin, end in pairwise((0, *sorted({self.first, len(self.groups) - 1}))):
            order, tallies = turns(self.times, self.groups[begin : end + 1]), np.zeros((TALLIES, len(code.unit)))
            pass_last_caches(self.requests, code.flags, order, self.times, (0, LIMITLESS), 0, window, mall, caches, tallies)
            made.append(tallies)
            caches = caches.after_a_round(seen)
        return UnreachedLoads(self.unreached, made)


def lives_of(
    whole: Sequence[tuple[Trace, ServedAccesses]], alike: Sequence[Trace], rounds: Sequence[Sequence[Trace]], stand: np.ndarray,
    code: CodeColumns, pages: np.ndarray, l2_line: int, xcds: int,
) -> Lives | None:  # fmt: skip
    """Returns the lives of the workgroups of `rounds`, which were traced for a part; None if there is nothing to learn from them.

    alike: more workgroups that ran to their ends; stand: for each workgroup of the launch, the one of `whole` that represents it
    """
    traces = [trace for each in rounds for trace in each]
    own = [stand[min(trace.group, len(stand) - 1)] for trace in traces]
    if not traces or sum(len(whole[at][1].lines) for at in own) > MOST_LINES:
        return None
    sites = [FirstLines.of(trace, code, pages) for trace, _ in whole]
    others = [FirstLines.of(trace, code, pages) for trace in alike]
    begun = [FirstLines.of(trace, code, pages) for trace in traces]
    reached = np.any([one.executed for one in begun], axis=0)
    moves = _moves([*sites, *others][:MOST_COMPARED], reached)
    unreached = np.isin(np.arange(len(reached)), list(moves)) & ~reached
    if not unreached.any():
        return None
    distances = [_distances(moves, begun[at].distance(sites[of])[0], at) for at, of in enumerate(own)]
    return _lives(whole, traces, own, distances, unreached, len(rounds[0]), code, pages, l2_line, xcds)


@dataclass(frozen=True)
class FirstLines:
    """First line of each wave's first and last execution of each instruction, (waves, n), or NOWHERE."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, trace: Trace, code: CodeColumns, pages: np.ndarray) -> FirstLines:
        """Returns the lines of a trace, as they were numbered before `trace.renumber`."""
        count = len(code.unit)
        waves = trace.access_waves
        rows = np.flatnonzero(trace.accesses[:, COUNT] > 0)
        keys = (waves * count + trace.access_numbers(code))[rows]
        lines = original_lines(trace.lines[trace.accesses[rows, FIRST]], pages)
        first, last = np.full((2, trace.waves * count), NOWHERE, np.int64)
        first[keys[::-1]], last[keys] = lines[::-1], lines  # the last assignment stays
        return cls(first.reshape(-1, count), last.reshape(-1, count))

    @property
    def executed(self) -> np.ndarray:
        """True for each instruction that requested a line."""
        return np.any(self.first != NOWHERE, axis=0)

    def distance(self, other: FirstLines) -> tuple[np.ndarray, np.ndarray]:
        """Returns by instruction how many lines this workgroup's are behind another's, and True if all are; 0 if one has none."""
        waves = min(len(self.first), len(other.first))
        firsts, lasts = self.first[:waves] - other.first[:waves], self.last[:waves] - other.last[:waves]
        both = (self.first[:waves] != NOWHERE) & (other.first[:waves] != NOWHERE)
        made = np.take_along_axis(firsts, both.argmax(0)[None], 0)[0] * both.any(0)
        same = np.all(~both | ((np.abs(firsts - made) <= 1) & (np.abs(lasts - made) <= 1)), axis=0)
        return made, same & both.any(0)


Combination = Sequence[tuple[int, float]]  # instructions, each with a factor


def _moves(samples: Sequence[FirstLines], reached: np.ndarray) -> dict[int, Combination]:
    """Returns for instructions the `reached` ones whose lines move from workgroup to workgroup as theirs do, with factors.

    Without any, the lines of all workgroups are the same. An instruction is left out if the samples do not show how it moves.
    """
    if len(samples) < 2:
        return {}
    pairs = [one.distance(samples[0]) for one in samples[1:]]
    far, same = np.stack([pair[0] for pair in pairs]), np.all([pair[1] for pair in pairs], axis=0)
    bases = list[int]()
    for number in np.flatnonzero(reached & same & far.any(0)).tolist():
        if len(bases) < MOST_BASES and not any(_near(far[:, number], far[:, base]) for base in bases):
            bases.append(number)
    made: dict[int, Combination] = {number: ((number, 1.0),) for number in np.flatnonzero(reached).tolist()}
    known = dict[bytes, Combination | None]()
    for number in np.flatnonzero(same & ~reached).tolist():
        key = far[:, number].tobytes()
        if key not in known:
            known[key] = _combination(far, bases, far[:, number])
        if (found := known[key]) is not None:
            made[number] = found
    return made


def _near(one: np.ndarray, other: np.ndarray, most: float = 1.0) -> bool:
    """True if distances differ by no more than parts of a line."""
    return bool(np.all(np.abs(one - other) <= most))


def _combination(far: np.ndarray, bases: Sequence[int], target: np.ndarray) -> Combination | None:
    """Returns the combination of at most two of `bases` whose distances are `target`; fewer factors than samples show it. A matrix
    may move by the rows of one operand and the columns of another."""
    if not target.any():
        return ()
    for base in bases:
        if _near(far[:, base], target):
            return ((base, 1.0),)
    for size in range(1, min(3, len(target))):
        for chosen in combinations(bases, size):
            columns = far[:, chosen].astype(float)
            factors = np.linalg.lstsq(columns, target, rcond=None)[0]
            if _near(columns @ factors, target, 1 + float(np.abs(factors).sum())):
                return tuple(zip(chosen, factors.tolist(), strict=True))
    return None


def _distances(moves: Mapping[int, Combination], begun: np.ndarray, at: int) -> np.ndarray:
    """Returns a workgroup's distances by instruction. begun: from its beginning; at: number of the workgroup."""
    made = np.full(len(begun), at * SPACING)
    for number, combination in moves.items():
        made[number] = round(sum(factor * float(begun[base]) for base, factor in combination))
    return made


def _lives(
    whole: Sequence[tuple[Trace, ServedAccesses]], traces: Sequence[Trace], own: Sequence[int], distances: Sequence[np.ndarray],
    unreached: np.ndarray, first: int, code: CodeColumns, pages: np.ndarray, l2_line: int, xcds: int,
) -> Lives:  # fmt: skip
    shift, count = (l2_line // LINE_BYTES).bit_length() - 1, len(code.unit)
    parts = min(MOST_PARTS, -(-sum(len(whole[at][1].lines) for at in own) // MOST_REQUESTS))
    known = []
    for (trace, one), when in zip(whole, _times(whole), strict=True):
        waves = trace.access_waves[one.owners]
        numbers = trace.access_numbers(code).astype(np.int64)[one.owners]
        known.append((original_lines(one.lines, pages), one.wanted, numbers, waves, one.owners.astype(np.int64), when))
    made = []
    for at, (of, far) in enumerate(zip(own, distances, strict=True)):
        lines, _, numbers, *_ = known[of]
        chosen, moved = np.empty((2, len(lines)), np.int64)
        kept = move_lines(lines, numbers, far, shift, (1 << 32) // parts, chosen, moved)
        _, wanted, numbers, waves, accesses, when = (column[chosen[:kept]] for column in known[of])
        xcd, asker = np.full(kept, traces[at].group % xcds, np.uint8), (at * WAVES + waves) * count + numbers
        made.append((moved[:kept], wanted, numbers.astype(np.int32), asker, at * ACCESSES + accesses, xcd, when))
    lines, wanted, owners, askers, accesses, where, times = map(np.concatenate, zip(*made, strict=True))
    page, numbered = number_values(lines >> (PAGE_SHIFT - shift))
    lines = (page.astype(np.int64) << (PAGE_SHIFT - shift) | lines & ((1 << PAGE_SHIFT - shift) - 1)).astype(np.int32)
    places, different = number_values(lines)
    requests = Requests(lines, places, wanted, np.arange(len(lines) + 1), owners, askers, accesses, where)
    groups = np.cumsum([0, *(len(one[0]) for one in made)])
    return Lives(requests, times, groups, first, different, numbered, parts, unreached)


def _times(whole: Sequence[tuple[Trace, ServedAccesses]]) -> list[np.ndarray]:
    """Returns when each request is made if workgroups are in step, in lines of a workgroup."""
    traces, served = zip(*whole, strict=True)
    ends = np.cumsum([0, *(len(one.accesses) for one in served)])
    accesses = np.concatenate([one.owners + end for one, end in zip(served, ends, strict=False)])
    times = step_times(traces, served, accesses, np.arange(len(accesses)))
    return np.split(times, np.cumsum([len(one.owners) for one in served[:-1]]))
