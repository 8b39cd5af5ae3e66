"""Finds the cache level that serves a workgroup's lines: its CU's vector or scalar cache, its XCD's L2, the Infinity Cache, memory.

Vector and scalar cache are replayed for one workgroup at a time, with its part of the capacity and one access of each wave in turn.
L2 and the levels after it are replayed for workgroups that run together, a few lines of each in turn. Only the beginnings of these
workgroups may be known, so the result is by instruction: the fraction of its requests that each level passes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import CodeColumns
from simgpu.timing.footprint import AccessedLines, Reach, footprints_of, reach_of
from simgpu.timing.front import Front, front_times, in_step, runs, turns
from simgpu.timing.history import EarlierLines
from simgpu.timing.native.replay import (
    BEHIND,
    FETCHED,
    LEFT,
    LIMITLESS,
    MEMORY,
    MOVED,
    MOVED_HALF,
    OWN,
    PASSED,
    SHORT,
    TAKEN,
    TALLIES,
    WHOLE,
    FirstRequests,
    LastCaches,
    Requests,
    Ways,
    count_distinct,
    pass_first_caches,
    pass_last_caches,
)  # fmt: skip
from simgpu.timing.native.state import ATOMIC, COHERENT, STORE
from simgpu.timing.trace import LINE_BYTES, Trace, distinct, distinct_of_parts, number_values

Warm = bool | Literal["last", "stored"]  # False: caches are empty; for the others see `shares`
SCALAR_WAYS = 4  # of the scalar cache [GCN white paper: 16 KB, 4-way, lines of 64 bytes]


@dataclass(frozen=True)
class ServedAccesses:
    """A trace's accesses, as the CU model reads them."""

    accesses: np.ndarray  # int32 (n, 3): clocks, requests of lines, requests that miss the vector cache
    lines: np.ndarray  # lines of these misses
    owners: np.ndarray  # for each of these lines, the number of its access
    wanted: np.ndarray  # uint8: halves of the line of L2 that the access wants, a bit each

    def count_misses(self, trace: Trace, code: CodeColumns) -> np.ndarray:
        """Returns by instruction the requests that miss the vector or scalar cache."""
        return np.bincount(trace.access_numbers(code), self.accesses[:, 2], len(code.unit))


def first_caches(
    traces: Sequence[Trace], code: CodeColumns, row: Pipelines, resident: int, near: Sequence[int]
) -> list[ServedAccesses]:
    """Replays each workgroup's accesses through its parts of the vector cache, which `resident` workgroups share, and of the
    scalar cache, which several CUs share. near: for each, the number of the workgroup whose lines the scalar cache has, or -1."""
    if not traces:
        return []
    numbers = np.concatenate([trace.access_numbers(code) for trace in traces])
    bases = np.cumsum([0, *(len(trace.accesses) for trace in traces)])
    line_starts = np.cumsum([0, *(len(trace.lines) for trace in traces)])
    starts = [trace.access_starts[:-1] + base for trace, base in zip(traces, bases, strict=False)]
    flags = code.flags[numbers]
    requests = FirstRequests(
        np.concatenate([trace.accesses for trace in traces]), np.concatenate([trace.lines for trace in traces]),
        np.where(flags & (STORE | ATOMIC) != 0, SHORT, np.where(flags & COHERENT != 0, WHOLE, 0)),
        (code.kind == Kind.SMEM)[numbers], np.concatenate([*starts, bases[-1:]]),
        np.cumsum([0, *(trace.waves for trace in traces)]), line_starts, np.array(near), _ways(traces, row, resident),
    )  # fmt: skip
    shift = (row.cache_line // LINE_BYTES).bit_length() - 1
    parts = (row.cache_part // LINE_BYTES).bit_length() - 1, (row.cache_block // row.cache_part).bit_length() - 1
    places = max(1, row.scalar_bytes // LINE_BYTES // SCALAR_WAYS // (max(1, resident) * row.scalar_cus))
    rows, counts = np.zeros((bases[-1], 3), np.int32), np.zeros(len(traces), np.int64)
    out, owners, wanted = (np.empty(line_starts[-1], kind) for kind in (np.uint32, np.int32, np.uint8))
    vector, scalar = Ways.empty(row.cache_sets, _all_ways(row), row.cache_spare), Ways.empty(places, SCALAR_WAYS)
    pass_first_caches(requests, (shift, *parts), vector, scalar, (rows, out, owners, wanted), counts)
    bounds = zip(pairwise(bases.tolist()), line_starts.tolist(), (line_starts[:-1] + counts).tolist(), strict=False)
    return [ServedAccesses(rows[a:b], out[first:end], owners[first:end], wanted[first:end]) for (a, b), first, end in bounds]


def _all_ways(row: Pipelines) -> int:
    """Returns the ways of a set of the vector cache."""
    return row.cache_bytes // row.cache_part // row.cache_sets


def _ways(traces: Sequence[Trace], row: Pipelines, resident: int) -> np.ndarray:
    """Returns the ways, (n, sets), that a workgroup has of each set of the vector cache if `resident` share it.

    The others have as many lines in each set as the mean workgroup. The lines of one may be in a set that others hardly use.
    """
    parts = np.concatenate([trace.lines for trace in traces]) // (row.cache_part // LINE_BYTES)
    lines, bounds = distinct_of_parts(parts, np.cumsum([0, *(len(trace.lines) for trace in traces)]))
    sets = lines // (row.cache_block // row.cache_part) % row.cache_sets
    groups = np.repeat(np.arange(len(traces)), np.diff(bounds))
    counts = np.bincount(row.cache_sets * groups + sets, minlength=row.cache_sets * len(traces)).reshape(-1, row.cache_sets)
    mine = np.maximum(1.0, counts)
    return np.maximum(1, _all_ways(row) * mine / (mine + (resident - 1) * np.maximum(1.0, counts.mean(0)))).astype(np.int64)


@dataclass(frozen=True)
class Shares:
    """Fractions of an instruction's requests that pass each level, by the instruction's number.

    A level passes a stored line on once. More requests wait for a level than reach it: a line that another workgroup has just
    requested is still on its way.
    """

    # float64 (2, n): bytes that L2 passes on for each requested byte; the fraction of these bytes that reaches memory
    past: np.ndarray
    # float64 (2, n): fraction of requests to L2 that wait for later levels; fraction of these requests that wait for memory
    late: np.ndarray
    # float64 (n,): fraction of the bytes past L2 whose lines come from another XCD: loads of lines that it stored in an earlier
    # launch, and stores to halves that it loaded in this one
    moved: np.ndarray
    # float64 (2, 2, n) each: `past` and `late` of the first round, and of later ones; None if all rounds get the mean
    rounds: tuple[np.ndarray, np.ndarray] | None = None
    # Of a round:
    l2_bytes: int = 0  # requested from L2
    past_l2_bytes: int = 0  # requested from the levels after L2
    hbm_bytes: int = 0  # requested from memory
    l2_requests: float = 0.0  # loads of a line of L2, by one access; stores of 64 bytes
    remembered: float = 0.0  # fraction of the bytes past L2 that earlier rounds left there
    # bytes of the launch's distinct lines that the busiest XCD's workgroups access, at most; 0 if nothing depends on them
    of_an_xcd: float = 0.0

    @property
    def past_share(self) -> float:
        """Bytes past L2 for each byte requested from it."""
        return self.past_l2_bytes / max(1, self.l2_bytes)

    @property
    def by_round(self) -> tuple[np.ndarray, np.ndarray]:
        """`past` and `late` of the first round and of later ones."""
        return self.rounds or (np.stack([self.past] * 2), np.stack([self.late] * 2))


@dataclass(frozen=True)
class NextRound:
    """Beginnings of workgroups of the round after the traced one."""

    traces: Sequence[Trace]
    served: Sequence[ServedAccesses]
    together: int  # workgroups of a round
    rounds: float  # of the launch


@dataclass(frozen=True)
class LaterLoads:
    """Loads that go on after the traced beginnings, in a replay of whole workgroups."""

    chosen: np.ndarray  # by instruction: True for these
    tallies: Sequence[np.ndarray]  # of all instructions, (TALLIES, n); of the first round, and of a later one if that was traced


def shares(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines,
    resident: int, warm: Warm | EarlierLines, whole: Sequence[tuple[Trace, ServedAccesses]] = (), front: Front | None = None,
    reach: Reach | None = None, after: NextRound | None = None, late_loads: LaterLoads | None = None,
) -> Shares:  # fmt: skip
    """Replays workgroups that run together, `resident` on a CU.

    warm: what an earlier launch left of these lines: True if the last cache has them if they fit, and L2s have them if those of
    the busiest XCD's workgroups fit; "last" if only the last cache has; "stored" if the launch before stored them, so that they
    are in the L2s of other XCDs too; or the lines of earlier launches. reach: memory that the whole launch accesses (default: the
    traced part is the whole launch).
    whole: workgroups that ran to their ends; the fraction of stores comes from these if no workgroup in `traces` executed a store.
    front: for whole, consecutive workgroups of a launch of several rounds; without it, `traces` begin together with empty caches.
    after: the round after `traces`, if these are beginnings. late_loads: loads that go on after them (default: a load that
    they do not reach gets the mean of the others).

    A CU's bytes in flight divided by the latency are its rate (Little's law). So within one latency a workgroup
    advances by its part of these bytes, and a line that another workgroup requested within that distance is still on
    its way.
    """
    reach = reach or reach_of(len(traces), (), (), code, row.l2_line, math.inf, same=True)
    replayed = _replay_all(traces, served, code, chip, row, resident, warm, front, reach, after)
    stored = code.flags & STORE != 0
    late_loads = late_loads or LaterLoads(np.zeros(len(stored), bool), replayed.tallies)
    footprint, of_an_xcd = (reach.of(one) for one in replayed.footprints)
    launches = partial(_after_launches, warm=warm, stored=stored, chip=chip, row=row, footprint=footprint, of_an_xcd=of_an_xcd)
    each, of_rest = list(map(launches, replayed.tallies)), list(map(launches, late_loads.tallies))
    mean, mean_of_rest = replayed.mean(each), replayed.mean(of_rest)
    asked, passed, fetched, *_, taken = mean
    # If workgroups go on storing after their known beginnings, later stores may be to the lines of these.
    known = stored & (asked > 0) & (_executions(traces, code) >= _executions([trace for trace, _ in whole], code))
    request = np.where(code.short, LINE_BYTES, row.cache_line)  # bytes; L2 passes whole lines on
    written = np.ones(len(stored))
    if known.any():
        written[known] = _stored_lines(list(zip(traces, served, strict=True)), code, row, chip.xcds)[1]
    unknown = _stored_lines(whole, code, row, chip.xcds)[0] if whole or not known.any() else None

    def fractions(tallies: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen, both = late_loads.chosen, (rest, tallies)
        past, late = (np.where(chosen, *(_of_all(of[0], of[near], of[near + 1], code) for of in both)) for near in (1, 3))
        past[0] = np.where(stored & ~known, unknown, past[0]) if unknown is not None else past[0]
        past[0] *= written * row.l2_line / request
        return past, late

    past, late = fractions(mean, mean_of_rest)
    moved = np.where(late_loads.chosen, *(_moved_fraction(row.loads_move * of[5], of[1], code) for of in (mean_of_rest, mean)))
    if moved.any():  # `whole` may request fewer lines than the mean workgroup
        moved *= _mean_misses(zip(traces, served, strict=True), code) / _mean_misses(whole, code) if whole else 1.0
    moved += _taken_fraction(taken, asked, past[0], row)
    l2_bytes = int((asked * request).sum())
    past_l2, hbm = (int(tally.sum()) * row.l2_line for tally in (passed, fetched))
    requests = float((asked * np.where(stored, 1, replayed.lines)).sum())
    rounds, remembered = None, 0.0
    if after:  # workgroups of a front get the mean
        first, later = map(fractions, each, of_rest)
        rounds = np.stack([first[0], later[0]]), np.stack([first[1], later[1]])
        remembered = remembered_share(*(one[1].sum() / max(1.0, (one[0] * request).sum()) for one in (mean, each[0])))
    return Shares(past, late, moved, rounds, l2_bytes, past_l2, hbm, requests, remembered, of_an_xcd)


def remembered_share(mean: float, first: float) -> float:
    """Returns `Shares.remembered`. mean, first: bytes past L2 for each byte requested from it, of all rounds and of the first."""
    return max(0.0, 1 - mean / first) if first else 0.0


def _after_launches(
    tallies: np.ndarray, warm: Warm | EarlierLines, stored: np.ndarray, chip: HardwareDescriptor, row: Pipelines, footprint: float,
    of_an_xcd: float,
) -> np.ndarray:  # fmt: skip
    """Returns counts of requests by instruction, (7, n): to L2, past L2, past the last cache; waiting for each of these two; for
    lines that move from another XCD; stores that take one. warm: as for `shares`; the last two are bytes of the launch."""
    asked, passed, fetched, behind, memory = tallies[:OWN]
    last = chip.mall_bytes or chip.l2_bytes * chip.xcds
    moving = np.zeros_like(passed)
    if isinstance(warm, EarlierLines):
        between = warm.between() if warm.exact else of_an_xcd
        passed, behind, moving = _after_stores(tallies, _kept_fraction(between, chip, row))
        if warm.kept and footprint <= last:
            fetched, memory = (np.where(stored | (fetched == 0), 0.0, tally) for tally in (fetched, memory))
    elif warm and footprint <= last:
        fetched, memory = np.zeros_like(fetched), np.zeros_like(memory)
        if not chip.mall_bytes:
            passed, behind = fetched, memory
        elif warm == "stored":
            passed, behind, moving = _after_stores(tallies, _kept_fraction(of_an_xcd, chip, row))
        elif warm != "last" and of_an_xcd <= chip.l2_bytes:  # stores are written back at the end of every launch
            passed, behind = (np.where(stored, tally, 0.0) for tally in (passed, behind))
    if not chip.mall_bytes:
        fetched, memory = passed, behind
    return np.stack([asked, passed, fetched, behind, memory, moving, tallies[TAKEN]])


def _after_stores(tallies: np.ndarray, kept: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns, by instruction, requests that L2 passes on, that wait for later levels, and that move a line from another XCD.

    An earlier launch stored what this one loads. kept: fraction of its lines that the L2s still hold.
    """
    own, foreign, halves = (kept * tallies[at] for at in (OWN, MOVED, MOVED_HALF))
    hits = own / np.maximum(1, tallies[PASSED])
    return tallies[PASSED] - own + halves, tallies[BEHIND] * (1 - hits) + halves, foreign + halves


def _moved_fraction(moving: np.ndarray, passed: np.ndarray, code: CodeColumns) -> np.ndarray:
    """Returns `Shares.moved`. Loads that were not replayed get the mean. Scalar loads are of arguments and constants."""
    loads = (code.flags & STORE == 0) & (code.kind != Kind.SMEM)
    mean = moving[loads].sum() / max(1.0, passed[loads].sum())
    return np.where(loads, np.where(passed > 0, moving / np.maximum(1, passed), mean), 0.0)


def _taken_fraction(taken: np.ndarray, asked: np.ndarray, past: np.ndarray, row: Pipelines) -> np.ndarray:
    """Returns `Shares.moved` of stores that take half a line from another XCD, which loaded it in this launch."""
    stored = asked * LINE_BYTES * past  # bytes past L2
    return taken * row.l2_line / np.where(stored > 0, stored, np.inf)


def _kept_fraction(nbytes: float, chip: HardwareDescriptor, row: Pipelines) -> float:
    """Returns the fraction of `nbytes` of lines, requested in turn, that an L2 still holds at their next turn.

    A hash scatters them over the sets. Sets with more lines than ways lose each line before its turn comes.
    """
    mean = nbytes * row.l2_ways / chip.l2_bytes  # lines of a set
    return math.exp(-mean) * sum(mean**others / math.factorial(others) for others in range(row.l2_ways))


@dataclass(frozen=True)
class Replayed:
    """Results of a replay."""

    tallies: Sequence[np.ndarray]  # (TALLIES, n) of the first round, and of a later one if there are several
    rounds: float
    footprints: tuple[AccessedLines, AccessedLines]  # of all XCDs, and of the one with most; empty for one round with cold caches
    lines: np.ndarray  # by instruction: lines of L2 per request, an access's lines counted once

    def mean(self, each: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the mean over all rounds. each: of the first round, and of a later one."""
        return each[0] if len(each) == 1 else (each[0] + (self.rounds - 1) * each[1]) / self.rounds


def _replay_all(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines,
    resident: int, warm: Warm | EarlierLines, front: Front | None, reach: Reach, after: NextRound | None,
) -> Replayed:  # fmt: skip
    """Sends the workgroups' requests through the last caches. The first round begins with empty caches and all of its workgroups
    at once. With a front, the others find the lines that earlier ones left: the last workgroups of `traces` represent these."""
    count, earlier = len(code.unit), warm if isinstance(warm, EarlierLines) else None
    nothing = AccessedLines(np.zeros(count), np.zeros(count), 0)
    if not traces:
        return Replayed([np.zeros((TALLIES, count))], 1.0, (nothing, nothing), np.ones(count))
    first, traces, served = len(traces), [*traces, *(after.traces if after else ())], [*served, *(after.served if after else ())]
    requests, groups, known = _requests(traces, served, code, chip, row)
    sizes = np.diff(requests.starts)
    distinct = np.zeros(len(requests.accesses), np.int64)
    count_distinct(requests.lines, requests.starts, requests.accesses, distinct)
    each = np.bincount(requests.owners, distinct, count) / np.maximum(1, np.bincount(requests.owners, sizes, count))
    window = float(row.in_flight // row.l2_line // max(1, resident))  # lines of a workgroup
    sets = max(1, chip.l2_bytes // row.l2_line // row.l2_ways)
    mall = (chip.mall_bytes or LIMITLESS) // row.l2_line

    def fresh() -> LastCaches:
        caches = LastCaches.empty(chip.xcds, sets, row.l2_ways, len(known))
        return earlier.fill(caches, known, requests, code) if earlier else caches

    def replay(
        caches: LastCaches, order: np.ndarray, times: np.ndarray, counted: tuple[int, int] = (0, LIMITLESS), latency: float = 0.0
    ) -> np.ndarray:
        tallies = np.zeros((TALLIES, count))
        pass_last_caches(requests, code.flags, order, times, counted, int(latency > 0), latency or window, mall, caches, tallies)
        return tallies

    since = _line_times(requests, groups) if front else step_times(traces, served, requests.accesses, requests.starts[:-1])
    footprints = footprints_of(requests, groups[: first + 1], len(known), count) if warm or after else (nothing, nothing)
    together = min(first, front.together) if front and front.table else first
    caches = fresh()
    seen = caches.seen.copy()  # before the launch
    cold = replay(caches, turns(since, groups[: together + 1]), since)
    if after:
        later = replay(caches.after_a_round(seen), turns(since, groups[first:]), since)
        kept = _kept_fraction(reach.of(footprints[1], after.together), chip, row)
        return Replayed([cold, _with_losses(later, cold, kept) * first / len(after.traces)], after.rounds, footprints, each)
    if front is None or front.table is None or len(traces) <= together:
        return Replayed([cold], 1.0, footprints, each)
    waves, parts = _progress(traces, code, requests.accesses)
    steady = replay(fresh(), *front_times(groups, waves, parts, together, front.table), front.table.latency)
    return Replayed([cold, steady], front.rounds, footprints, each)


def _with_losses(later: np.ndarray, cold: np.ndarray, kept: float) -> np.ndarray:
    """Returns a later round's tallies if L2s keep only a fraction of the round before. What they lost is as in a cold one."""
    lost, made = (1 - kept) * later[LEFT], later.copy()
    made[PASSED] += lost
    for tally in (FETCHED, BEHIND, MEMORY):
        made[tally] += lost * cold[tally] / np.maximum(1, cold[PASSED])
    return made


def _requests(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines
) -> tuple[Requests, np.ndarray, np.ndarray]:
    """Returns the requests to L2, each workgroup's first run after a 0, and the distinct lines."""
    shift = (row.l2_line // LINE_BYTES).bit_length() - 1
    ends = np.cumsum([0, *(len(one.lines) for one in served)])
    lines = (np.concatenate([one.lines for one in served]) >> np.uint32(shift)).astype(np.int32)
    bases = np.cumsum([0, *(len(trace.accesses) for trace in traces)])
    accesses = np.concatenate([one.owners for one in served])  # accesses of a workgroup are numbered from 0
    starts, groups = runs(accesses, ends)
    of_group = np.diff(groups)
    accesses = accesses[starts[:-1]] + np.repeat(bases[:-1], of_group)
    xcds = np.repeat(np.array([trace.group % chip.xcds for trace in traces], np.uint8), of_group)
    owners = np.concatenate([trace.access_numbers(code) for trace in traces]).astype(np.int32)[accesses]
    askers = _waves(traces)[accesses].astype(np.int64) * len(code.unit) + owners
    seen, known = number_values(lines)
    wanted = np.concatenate([one.wanted for one in served])
    return Requests(lines, seen, wanted, starts, owners, askers, accesses, xcds), groups, known


def _line_times(requests: Requests, groups: np.ndarray) -> np.ndarray:
    """Returns the time of each run in lines of its workgroup. groups: first run of each workgroup, and their end."""
    return requests.starts[:-1] - np.repeat(requests.starts[groups[:-1]], np.diff(groups))


def step_times(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], accesses: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Returns the time of each run if workgroups begin together, in lines of a mean workgroup.

    accesses: number of each run's access, through all workgroups; starts: its first request.
    """
    counts = np.concatenate([one.accesses[:, 2] for one in served])
    ends = np.cumsum([0, *(len(one.accesses) for one in served)])
    waves = np.concatenate([*(trace.access_starts[:-1] + end for trace, end in zip(traces, ends, strict=False)), ends[-1:]])
    times, length = in_step(counts, waves, ends)
    first = np.maximum.accumulate(np.where(np.diff(accesses, prepend=-1) != 0, starts, 0))
    return (times[accesses] + (starts - first) * (length / np.maximum(1, counts))[accesses]).astype(np.int64)


def _waves(traces: Sequence[Trace]) -> np.ndarray:
    """Returns the wave of each access, numbered through all workgroups."""
    firsts = np.cumsum([0, *(trace.waves for trace in traces[:-1])])
    return np.concatenate([trace.access_waves + first for trace, first in zip(traces, firsts, strict=True)])


def _progress(traces: Sequence[Trace], code: CodeColumns, accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for accesses the wave, numbered within its workgroup, and the part of the wave's accesses that precede it, 0 to 1."""
    numbers = np.concatenate([trace.access_numbers(code) for trace in traces])
    vector = np.concatenate([[0], np.cumsum(code.kind[numbers] != Kind.SMEM)])
    bases = np.cumsum([0, *(len(trace.accesses) for trace in traces)])
    begins = np.concatenate([base + trace.access_starts[:-1] for base, trace in zip(bases, traces, strict=False)])
    ends = np.concatenate([begins[1:], bases[-1:]])
    wave = _waves(traces)[accesses]
    first = np.repeat(np.cumsum([0, *(trace.waves for trace in traces[:-1])]), [trace.waves for trace in traces])
    part = (vector[accesses] - vector[begins[wave]] + 0.5) / np.maximum(1, vector[ends] - vector[begins])[wave]
    return wave - first[wave], part


def _executions(traces: Sequence[Trace], code: CodeColumns) -> np.ndarray:
    """Returns how often a mean workgroup executes each instruction, and 0 without workgroups."""
    counts = sum((np.bincount(trace.steps, minlength=len(code.unit)) for trace in traces), np.zeros(len(code.unit)))
    return counts / max(1, len(traces))


def _of_all(asked: np.ndarray, near: np.ndarray, far: np.ndarray, code: CodeColumns) -> np.ndarray:
    """Returns fractions by instruction. An instruction that the beginnings did not reach gets the mean of the loads, or of the
    stores; without any, its requests all pass."""
    made = np.ones((2, len(asked)))
    for mine in (code.flags & STORE != 0, code.flags & STORE == 0):
        for at, (part, of) in enumerate(((near, asked), (far, near))):
            whole = int(of[mine].sum())
            made[at, mine] = part[mine].sum() / whole if whole else float(not asked[mine].any())
            known = mine & (asked > 0)
            made[at, known] = part[known] / np.maximum(of[known], 1)
    return made


def _mean_misses(traced: Iterable[tuple[Trace, ServedAccesses]], code: CodeColumns) -> np.ndarray:
    """Returns by instruction the requests of a mean workgroup that miss the vector cache; 1 without any."""
    mean = np.mean([one.count_misses(trace, code) for trace, one in traced], axis=0)
    return np.where(mean > 0, mean, 1.0)


def _stored_lines(
    traced: Sequence[tuple[Trace, ServedAccesses]], code: CodeColumns, row: Pipelines, xcds: int
) -> tuple[float, float]:
    """Returns what the stores of workgroups write to memory, in lines of L2: for each request, and for each distinct line of an L2.

    Both are 1 without stores. L2 writes in requests of at most 64 bytes [ROCm Compute Profiler, "L2-Fabric transactions"]. So a
    line of 128 bytes of which half is stored counts as half, and so it does in each of two L2s if two XCDs store its halves.
    """
    if not traced:
        return 1.0, 1.0
    numbers = np.concatenate([trace.access_numbers(code) for trace, _ in traced])
    bases, sizes = np.cumsum([0, *(len(trace.accesses) for trace, _ in traced)]), [len(one.lines) for _, one in traced]
    accesses = np.concatenate([one.owners for _, one in traced]) + np.repeat(bases[:-1], sizes)
    stores = code.flags[numbers[accesses]] & STORE != 0
    lines, groups = np.concatenate([one.lines for _, one in traced])[stores], np.repeat(np.arange(len(traced)), sizes)[stores]
    if not len(lines):
        return 1.0, 1.0
    shift = (row.l2_line // LINE_BYTES).bit_length() - 1
    each = len(distinct_of_parts(lines, np.searchsorted(groups, np.arange(len(traced) + 1)))[0])
    of_xcd = np.array([trace.group % xcds for trace, _ in traced])[groups]
    pieces = [distinct(lines[of_xcd == xcd]) for xcd in distinct(of_xcd)]
    whole = sum(len(distinct(one >> np.uint32(shift))) for one in pieces)
    return each / len(lines) / (1 << shift), sum(map(len, pieces)) / whole / (1 << shift)
