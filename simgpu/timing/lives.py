"""Requests of a round of workgroups over their whole lives, if only their beginnings were traced.

Some workgroups ran to their ends. Another one requests the same lines in the same order, at other addresses. Its beginning shows
how far its lines are from those of the workgroup that ran. An access of a later phase moves from workgroup to workgroup as accesses
of the beginning do, or stays where it is. Samples that ran to their ends show which.

All requests would take too long. So one of several lines is chosen by a hash, and the caches have as much less room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.timing.caches import LaterLoads, ServedAccesses, step_times
from simgpu.timing.code import CodeColumns
from simgpu.timing.front import turns
from simgpu.timing.history import EarlierLines
from simgpu.timing.native.lives import move_lines
from simgpu.timing.native.replay import LIMITLESS, TALLIES, LastCaches, Requests, pass_last_caches
from simgpu.timing.native.state import STORE
from simgpu.timing.native.streams import COUNT, FIRST
from simgpu.timing.trace import LINE_BYTES, PAGE_SHIFT, Trace, number_values, original_lines

MOST_REQUESTS = 1 << 20  # requests of all lives that are replayed, about
MOST_LINES = 1 << 28  # most lines of which these are chosen
MOST_PARTS = 64  # least part of the lines that stands for all
MOST_COMPARED = 4  # most other workgroups that ran to their ends with whose lines those of one are compared
SPACING = 1 << 24  # lines between workgroups if it is not known where an instruction's lines are
MOST_BASES = 8  # most instructions by whose lines the others' are found
MOST_TRIED = 16  # most different distances for which a combination is looked for, of one workgroup
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
    late: np.ndarray  # by instruction: True for loads that go on after the beginnings, if their lines are known

    def replay(
        self, code: CodeColumns, chip: HardwareDescriptor, row: Pipelines, resident: int, earlier: EarlierLines | None
    ) -> LaterLoads:
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
        return LaterLoads(self.late, made)


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
    traced = _traced_accesses(traces)
    used = sorted(set(own))
    whole, own = [whole[at] for at in used], [used.index(at) for at in own]
    samples = [(trace, _lines(trace, pages)) for trace in (*(trace for trace, _ in whole), *alike)]
    moves = [_moves(at, samples, traced, code) for at in range(len(whole))]
    late = [_late_loads(trace, one, traced, code) for (trace, _), one in zip(whole, moves, strict=True)]
    chosen = np.all([known for _, known in late], axis=0) & np.any([any_late for any_late, _ in late], axis=0)
    if not chosen.any():
        return None
    firsts = [_first_lines(trace, code, pages) for trace, _ in whole]
    distances = [
        moves[of].distances(_first_lines(trace, code, pages), firsts[of], at)
        for at, (trace, of) in enumerate(zip(traces, own, strict=True))
    ]
    return _lives(whole, traces, own, moves, distances, chosen, len(rounds[0]), code, pages, l2_line, xcds)


def _traced_accesses(traces: Sequence[Trace]) -> np.ndarray:
    """Returns the number of accesses of each wave that the beginnings of most workgroups have."""
    waves = max(trace.waves for trace in traces)
    counts = np.array([np.pad(np.diff(trace.access_starts), (0, waves - trace.waves)) for trace in traces])
    return np.sort(counts, axis=0)[len(traces) // 2]


def _is_late(trace: Trace, traced: np.ndarray) -> np.ndarray:
    """True for accesses that are after those of the beginnings. traced: as `_traced_accesses` returns them."""
    number = np.arange(len(trace.accesses)) - trace.access_starts[trace.access_waves]
    return number >= traced[np.minimum(trace.access_waves, len(traced) - 1)]


def _lines(trace: Trace, pages: np.ndarray) -> np.ndarray:
    """Returns the first line of each access, as numbered before `trace.renumber`, or NOWHERE."""
    if not len(trace.lines):
        return np.full(len(trace.accesses), NOWHERE, np.int64)
    lines = original_lines(trace.lines[np.minimum(trace.accesses[:, FIRST], len(trace.lines) - 1)], pages)
    return np.where(trace.accesses[:, COUNT] > 0, lines, NOWHERE)


def _first_lines(trace: Trace, code: CodeColumns, pages: np.ndarray) -> np.ndarray:
    """Returns the first line of each wave's first execution of each instruction, (waves, n), or NOWHERE."""
    lines = _lines(trace, pages)
    rows, made = np.flatnonzero(lines != NOWHERE)[::-1], np.full((trace.waves, len(code.unit)), NOWHERE, np.int64)
    made[trace.access_waves[rows], trace.access_numbers(code)[rows]] = lines[rows]  # the last assignment stays
    return made


Combination = Sequence[tuple[int, float]]  # instructions, each with a factor


@dataclass(frozen=True)
class AccessWays:
    """Ways in which the accesses of a workgroup move to others."""

    ways: Sequence[Combination]  # instructions whose lines in the beginnings move so, together; without any, lines are the same
    of: np.ndarray  # the way of each access: an index of `ways`, or their number if it is not known

    def distances(self, lines: np.ndarray, before: np.ndarray, at: int) -> np.ndarray:
        """Returns by how many lines each way moves to a workgroup; at: its number.

        lines, before: `_first_lines` of its beginning, and of the workgroup that ran
        """
        waves = min(len(lines), len(before))
        both = (lines[:waves] != NOWHERE) & (before[:waves] != NOWHERE)
        far = np.take_along_axis(lines[:waves] - before[:waves], both.argmax(0)[None], 0)[0]
        made, known = np.full(len(self.ways) + 1, at * SPACING), both.any(0)
        for number, way in enumerate(self.ways):
            if all(known[base] for base, _ in way):
                made[number] = round(sum(factor * float(far[base]) for base, factor in way))
        return made


def _moves(at: int, samples: Sequence[tuple[Trace, np.ndarray]], traced: np.ndarray, code: CodeColumns) -> AccessWays:
    """Returns how accesses of a sample move, by others that make as many. samples: each with the first lines of its accesses."""
    trace, mine = samples[at]
    theirs = [lines for one, lines in samples if one is not trace and np.array_equal(one.access_starts, trace.access_starts)]
    if not theirs:
        return AccessWays((), np.zeros(len(mine), np.int64))
    theirs = theirs[:MOST_COMPARED]
    valid = np.all([lines != NOWHERE for lines in theirs], axis=0) & (mine != NOWHERE)
    far, of = np.stack(theirs) - mine, np.full(len(mine), -1)
    bases = _bases(far, np.flatnonzero(valid & ~_is_late(trace, traced)), trace.access_numbers(code))
    ways: list[Combination] = [(), *(((base, 1.0),) for base in bases)]
    for number, way in enumerate(ways):
        of[valid & (of < 0) & _is_near(far, way, bases)] = number
    for _ in range(MOST_TRIED):
        rest = np.flatnonzero(valid & (of < 0))
        if not len(rest):
            break
        if found := _combination(bases, far[:, rest[0]]):
            of[rest[_is_near(far[:, rest], found, bases)]] = len(ways)
            ways.append(found)
        else:
            valid[rest[np.all(far[:, rest] == far[:, rest[:1]], axis=0)]] = False
    return AccessWays(ways, np.where(of < 0, len(ways), of))


def _bases(far: np.ndarray, early: np.ndarray, numbers: np.ndarray) -> Mapping[int, np.ndarray]:
    """Returns the distances of some instructions that the beginnings reach, by number; none are as far as another one's.

    early: accesses that the beginnings reach; numbers: instruction of each access
    """
    made: dict[int, np.ndarray] = {}
    places, known = number_values(numbers[early])
    first = np.zeros(len(known), np.int64)
    first[places[::-1]] = early[::-1]
    for number, at in zip(known.tolist(), first.tolist(), strict=True):
        new = far[:, at].any() and not any(np.all(np.abs(far[:, at] - base) <= 1) for base in made.values())
        if new and len(made) < MOST_BASES:
            made[number] = far[:, at]
    return made


def _is_near(far: np.ndarray, way: Combination, bases: Mapping[int, np.ndarray]) -> np.ndarray:
    """True for accesses that move in a way. far: their distances, (samples, accesses)"""
    expected = sum((factor * bases[base] for base, factor in way), np.zeros(len(far)))
    most = 0.0 if not way else 1.0 if [factor for _, factor in way] == [1.0] else 1 + sum(abs(factor) for _, factor in way)
    return np.all(np.abs(far - expected[:, None]) <= most, axis=0)


def _combination(bases: Mapping[int, np.ndarray], target: np.ndarray) -> Combination:
    """Returns the combination of at most two of `bases` whose distances are `target`, or (). Fewer factors than samples show it. A
    matrix may move by the rows of one operand and the columns of another."""
    for size in range(1, min(3, len(target))):
        for chosen in combinations(bases, size):
            columns = np.stack([bases[base] for base in chosen], axis=1).astype(float)
            way = tuple(zip(chosen, np.linalg.lstsq(columns, target, rcond=None)[0].tolist(), strict=True))
            if _is_near(target[:, None], way, bases)[0]:
                return way
    return ()


def _late_loads(trace: Trace, moves: AccessWays, traced: np.ndarray, code: CodeColumns) -> tuple[np.ndarray, np.ndarray]:
    """Returns by instruction: True if it loads after the beginnings; True if it is known how all its later accesses move."""
    late = _is_late(trace, traced) & (trace.accesses[:, COUNT] > 0)
    numbers, made = trace.access_numbers(code), np.zeros((2, len(code.unit)), bool)
    made[0, numbers[late]] = True
    made[1, numbers[late & (moves.of == len(moves.ways))]] = True
    return made[0] & (code.flags & STORE == 0), ~made[1]


def _lives(
    whole: Sequence[tuple[Trace, ServedAccesses]], traces: Sequence[Trace], own: Sequence[int], moves: Sequence[AccessWays],
    distances: Sequence[np.ndarray], late: np.ndarray, first: int, code: CodeColumns, pages: np.ndarray, l2_line: int, xcds: int,
) -> Lives:  # fmt: skip
    shift, count = (l2_line // LINE_BYTES).bit_length() - 1, len(code.unit)
    parts = min(MOST_PARTS, -(-sum(len(whole[at][1].lines) for at in own) // MOST_REQUESTS))
    known = []
    for (trace, one), move, when in zip(whole, moves, _times(whole), strict=True):
        columns = (column[one.owners] for column in (move.of, trace.access_numbers(code), trace.access_waves))
        known.append((original_lines(one.lines, pages), one.wanted, *columns, one.owners.astype(np.int64), when))
    made = []
    for at, (of, far) in enumerate(zip(own, distances, strict=True)):
        lines, _, ways, *_ = known[of]
        chosen, moved = np.empty((2, len(lines)), np.int64)
        kept = move_lines(lines, ways, far, shift, (1 << 32) // parts, chosen, moved)
        _, wanted, _, numbers, waves, accesses, when = (column[chosen[:kept]] for column in known[of])
        xcd, asker = np.full(kept, traces[at].group % xcds, np.uint8), (at * WAVES + waves) * count + numbers
        made.append((moved[:kept], wanted, numbers.astype(np.int32), asker, at * ACCESSES + accesses, xcd, when))
    lines, wanted, owners, askers, accesses, where, times = map(np.concatenate, zip(*made, strict=True))
    page, numbered = number_values(lines >> (PAGE_SHIFT - shift))
    lines = (page.astype(np.int64) << (PAGE_SHIFT - shift) | lines & ((1 << PAGE_SHIFT - shift) - 1)).astype(np.int32)
    places, different = number_values(lines)
    requests = Requests(lines, places, wanted, np.arange(len(lines) + 1), owners, askers, accesses, where)
    groups = np.cumsum([0, *(len(one[0]) for one in made)])
    return Lives(requests, times, groups, first, different, numbered, parts, late)


def _times(whole: Sequence[tuple[Trace, ServedAccesses]]) -> list[np.ndarray]:
    """Returns when each request is made if workgroups are in step, in lines of a workgroup."""
    traces, served = zip(*whole, strict=True)
    ends = np.cumsum([0, *(len(one.accesses) for one in served)])
    accesses = np.concatenate([one.owners + end for one, end in zip(served, ends, strict=False)])
    times = step_times(traces, served, accesses, np.arange(len(accesses)))
    return np.split(times, np.cumsum([len(one.owners) for one in served[:-1]]))
