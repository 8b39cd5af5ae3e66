"""Finds the cache level that serves a workgroup's lines: its CU's vector or scalar cache, its XCD's L2, the Infinity Cache, memory.

Vector and scalar cache are replayed for one workgroup at a time, with its part of the capacity and one access of each wave in turn.
L2 and the levels after it are replayed for workgroups that run together, a few lines of each in turn. Only the beginnings of these
workgroups may be known, so the result is by instruction: the fraction of its requests that each level passes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numba
import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.code import ATOMIC, COHERENT, STORE, STREAM, CodeColumns
from simgpu.timing.front import Front, Timetable, front_times, runs, turns
from simgpu.timing.trace import CLOCKS, COUNT, FIRST, HASH, LINE_BYTES, Trace, number_values

VECTOR_WAYS = 64  # of gfx9's vector cache [ROCm Compute Profiler, "vL1D": 64-way]
SHORT, WHOLE = 1, 2  # accesses that go to L2: by lines of 64 bytes, stores and atomics; by lines of the first cache, coherent loads
Warm = bool | Literal["last"]  # False: caches are empty; for the others see `shares`
SCALAR_WAYS = 4  # of the scalar cache [GCN white paper: 16 KB, 4-way, lines of 64 bytes]


@dataclass(frozen=True)
class ServedAccesses:
    """A trace's accesses, as the CU model reads them."""

    accesses: np.ndarray  # int32 (n, 3): clocks, requests of lines, requests that miss the vector cache
    lines: np.ndarray  # lines of these misses
    owners: np.ndarray  # for each of these lines, the number of its access


def first_caches(trace: Trace, code: CodeColumns, row: Pipelines, resident: int, before: Trace | None) -> ServedAccesses:
    """Replays a workgroup's accesses through its parts of the vector cache, which `resident` workgroups share, and of the scalar
    cache, which several CUs share. before: a workgroup whose lines the scalar cache has."""
    rows = np.zeros((len(trace.accesses), 3), np.int32)
    numbers = trace.steps[code.accesses[trace.steps]]
    shift = (row.cache_line // LINE_BYTES).bit_length() - 1
    sets = row.cache_bytes // row.cache_line // VECTOR_WAYS
    ways = max(1, VECTOR_WAYS // max(1, resident))  # of each set: lines that other workgroups want are in the same sets
    out, owners = np.empty(len(trace.lines), np.uint32), np.empty(len(trace.lines), np.int32)
    flags = code.flags[numbers]
    beyond = np.where(flags & (STORE | ATOMIC) != 0, SHORT, np.where(flags & COHERENT != 0, WHOLE, 0))
    scalar = code.kind == Kind.SMEM
    places = max(1, row.scalar_bytes // LINE_BYTES // SCALAR_WAYS // (max(1, resident) * row.scalar_cus))
    cache = np.full((places, SCALAR_WAYS), -1, np.int64), np.zeros((places, SCALAR_WAYS), np.int64)
    now = _load_scalar(before.steps, before.accesses, before.lines, code.accesses, scalar, *cache) if before else 0
    count = _first(
        trace.accesses, trace.access_starts, trace.lines, beyond, scalar[numbers], shift, (sets, ways), cache, now,
        rows, out, owners,
    )  # fmt: skip
    return ServedAccesses(rows, out[:count], owners[:count])


@numba.njit(cache=True, nogil=True)
def _touch(tags, used, line, now):  # type: ignore[no-untyped-def]
    """True if a cache has a line; if not, the line replaces the one of its set that was used least recently."""
    sets, ways = tags.shape
    group, oldest = line % sets, 0
    for way in range(ways):
        if tags[group, way] == line:
            used[group, way] = now
            return True
        if used[group, way] < used[group, oldest]:
            oldest = way
    tags[group, oldest], used[group, oldest] = line, now
    return False


@numba.njit(cache=True, nogil=True)
def _load_scalar(steps, accesses, lines, is_access, is_scalar, tags, used):  # type: ignore[no-untyped-def]
    """Sends a workgroup's scalar accesses to the scalar cache, wave by wave. Returns their number of lines."""
    at, now = 0, 0
    for step in steps:
        if is_access[step]:
            if is_scalar[step]:
                for place in range(accesses[at, FIRST], accesses[at, FIRST] + accesses[at, COUNT]):
                    now += 1
                    _touch(tags, used, np.int64(lines[place]), now)
            at += 1
    return now


@numba.njit(cache=True, nogil=True)
def _first(accesses, starts, lines, beyond, scalar, shift, sizes, cache, now, rows, out, owners):  # type: ignore[no-untyped-def]
    """Fills `rows`, `out` and `owners`. beyond: SHORT or WHOLE for accesses that always go to L2."""
    tags, used = np.full(sizes, -1, np.int64), np.zeros(sizes, np.int64)
    scalar_tags, scalar_used = cache
    waves, longest, count = len(starts) - 1, 0, 0
    for wave in range(waves):
        longest = max(longest, starts[wave + 1] - starts[wave])
    for index in range(longest):
        for wave in range(waves):
            at = starts[wave] + index
            if at >= starts[wave + 1]:
                continue
            rows[at, 0] = accesses[at, CLOCKS]
            before = -1
            for place in range(accesses[at, FIRST], accesses[at, FIRST] + accesses[at, COUNT]):
                line = np.int64(lines[place]) >> shift
                if scalar[at]:
                    line = np.int64(lines[place])
                if beyond[at] == SHORT:
                    rows[at, 1] += 1
                    rows[at, 2] += 1
                    out[count], owners[count] = lines[place], at
                    count += 1
                    continue
                if line == before:
                    continue
                before = line
                rows[at, 1] += 1
                now += 1
                hit = _touch(scalar_tags, scalar_used, line, now) if scalar[at] else _touch(tags, used, line, now)
                if hit and beyond[at] != WHOLE:
                    continue
                rows[at, 2] += 1
                out[count], owners[count] = lines[place], at
                count += 1
    return count


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
    # Of a round:
    l2_bytes: int = 0  # requested from L2
    past_l2_bytes: int = 0  # requested from the levels after L2
    hbm_bytes: int = 0  # requested from memory
    l2_requests: float = 0.0  # loads of a line of L2, by one access; stores of 64 bytes
    remembered: float = 0.0  # fraction of the bytes past L2 that earlier rounds left there

    @property
    def past_share(self) -> float:
        """Bytes past L2 for each byte requested from it."""
        return self.past_l2_bytes / max(1, self.l2_bytes)


def shares(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines,
    resident: int, warm: Warm, whole: Sequence[tuple[Trace, ServedAccesses]] = (), front: Front | None = None,
    table: Timetable | None = None,
) -> Shares:  # fmt: skip
    """Replays workgroups that run together, `resident` on a CU.

    warm: what an earlier launch left of these lines: True if the last cache has them if they fit, and L2 has them if they fit in
    one XCD's; "last" if only the last cache has. whole: workgroups that ran to their ends; the fraction
    of stores comes from these if no workgroup in `traces` executed a store. front: for whole, consecutive workgroups of a launch of
    several rounds; without it, `traces` begin together with empty caches. table: when their waves access memory.

    A CU's bytes in flight divided by the latency are its rate (Little's law). So within one latency a workgroup
    advances by its part of these bytes, and a line that another workgroup requested within that distance is still on
    its way.
    """
    tallies, footprint, lines = _replay_all(traces, served, code, chip, row, resident, front, table)
    asked, passed, fetched, behind, memory = tallies
    last = chip.mall_bytes or chip.l2_bytes * chip.xcds
    if warm and footprint <= last:
        fetched, memory = np.zeros_like(fetched), np.zeros_like(memory)
        if not chip.mall_bytes:
            passed, behind = fetched, memory
        elif warm != "last" and footprint <= chip.l2_bytes:  # stores are written back at the end of every launch
            passed, behind = (np.where(code.flags & STORE != 0, tally, 0.0) for tally in (passed, behind))
    if not chip.mall_bytes:
        fetched, memory = passed, behind
    past, late = (_of_all(asked, near, far, code) for near, far in ((passed, fetched), (behind, memory)))
    stored = code.flags & STORE != 0
    if not asked[stored].any():
        past[0, stored] = _lines_a_store(whole, code, row)
    request = np.where(code.short, LINE_BYTES, row.cache_line)  # bytes; L2 passes whole lines on
    past[0] *= row.l2_line / request
    l2_bytes = int((asked * request).sum())
    past_l2, hbm = (int(tally.sum()) * row.l2_line for tally in (passed, fetched))
    return Shares(past, late, l2_bytes, past_l2, hbm, float((asked * np.where(stored, 1, lines)).sum()))


def _replay_all(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines,
    resident: int, front: Front | None, table: Timetable | None,
) -> tuple[np.ndarray, int, np.ndarray]:  # fmt: skip
    """Returns the tallies of `_l2` by instruction, (5, n), of a mean round; the bytes of the distinct lines; and for each
    instruction the lines of L2 per request, an access's lines counted once.

    With a front, the first round begins with empty caches and all of its workgroups at once. The others find the lines that earlier
    ones left: the last workgroups of `traces` represent these.
    """
    count = len(code.unit)
    if not traces:
        return np.zeros((5, count)), 0, np.ones(count)
    requests, groups, known = _requests(traces, served, code, chip, row)
    sizes = np.diff(requests.starts)
    distinct = _distinct(requests.lines, requests.starts, requests.accesses)
    each = np.bincount(requests.owners, distinct, count) / np.maximum(1, np.bincount(requests.owners, sizes, count))
    window = float(row.in_flight // row.l2_line // max(1, resident))  # lines of a workgroup
    sets = max(1, chip.l2_bytes // row.l2_line // row.l2_ways)
    levels = chip.xcds, sets, row.l2_ways, (chip.mall_bytes or LIMITLESS) // row.l2_line

    def replay(
        clocks: bool, window: float, order: np.ndarray, times: np.ndarray, counted: tuple[int, int] = (0, LIMITLESS)
    ) -> tuple[np.ndarray, int]:
        seen, tallies = np.full(known, -1, np.int64), np.zeros((5, count))
        _l2(tuple(requests), code.flags.astype(np.uint8), order, times, counted, clocks, window, levels, seen, tallies)
        return tallies, int(np.count_nonzero(seen >= 0)) * row.l2_line

    together = min(len(traces), front.together) if front else len(traces)
    cold, footprint = replay(False, window, *turns(requests.starts, groups[: together + 1]))
    if front is None or table is None or len(traces) <= together:
        return cold, footprint, each
    waves, parts = _progress(traces, code, requests.accesses)
    steady, footprint = replay(True, table.latency, *front_times(groups, waves, parts, together, table))
    return (cold + (front.rounds - 1) * steady) / front.rounds, footprint, each


@numba.njit(cache=True, nogil=True)
def _distinct(lines, starts, accesses):  # type: ignore[no-untyped-def]
    """Returns the lines of each run, each of an access counted once: its lines are consecutive, and equal ones are neighbours."""
    found = np.zeros(len(accesses), np.int64)
    for run in range(len(accesses)):
        again = run > 0 and accesses[run] == accesses[run - 1] and lines[starts[run]] == lines[starts[run] - 1]
        found[run] = 0 if again else 1
        for at in range(starts[run] + 1, starts[run + 1]):
            found[run] += lines[at] != lines[at - 1]
    return found


def _requests(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, chip: HardwareDescriptor, row: Pipelines
) -> tuple[Requests, np.ndarray, int]:
    """Returns the requests to L2, each workgroup's first run after a 0, and the number of distinct lines."""
    shift = (row.l2_line // LINE_BYTES).bit_length() - 1
    ends = np.cumsum([0, *(len(one.lines) for one in served)])
    lines = (np.concatenate([one.lines for one in served]) >> np.uint32(shift)).astype(np.int32)
    steps = np.concatenate([trace.steps for trace in traces])
    bases = np.cumsum([0, *(len(trace.accesses) for trace in traces)])
    accesses = np.concatenate([one.owners for one in served])  # accesses of a workgroup are numbered from 0
    starts, groups = runs(accesses, ends)
    of_group = np.diff(groups)
    accesses = accesses[starts[:-1]] + np.repeat(bases[:-1], of_group)
    xcds = np.repeat(np.array([trace.group % chip.xcds for trace in traces], np.uint8), of_group)
    owners = steps[code.accesses[steps]].astype(np.int32)[accesses]
    askers = _waves(traces)[accesses].astype(np.int64) * len(code.unit) + owners
    seen, known = number_values(lines)
    return Requests(lines, seen, starts, owners, askers, accesses, xcds), groups, len(known)


def _waves(traces: Sequence[Trace]) -> np.ndarray:
    """Returns the wave of each access, numbered through all workgroups."""
    counts = np.concatenate([np.diff(trace.access_starts) for trace in traces])
    return np.repeat(np.arange(len(counts)), counts)


def _progress(traces: Sequence[Trace], code: CodeColumns, accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for accesses the wave, numbered within its workgroup, and the part of the wave's accesses that precede it, 0 to 1."""
    steps = np.concatenate([trace.steps for trace in traces])
    vector = np.concatenate([[0], np.cumsum(code.kind[steps[code.accesses[steps]]] != Kind.SMEM)])
    bases = np.cumsum([0, *(len(trace.accesses) for trace in traces)])
    begins = np.concatenate([base + trace.access_starts[:-1] for base, trace in zip(bases, traces, strict=False)])
    ends = np.concatenate([begins[1:], bases[-1:]])
    wave = _waves(traces)[accesses]
    first = np.repeat(np.cumsum([0, *(trace.waves for trace in traces[:-1])]), [trace.waves for trace in traces])
    part = (vector[accesses] - vector[begins[wave]] + 0.5) / np.maximum(1, vector[ends] - vector[begins])[wave]
    return wave - first[wave], part


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


def _lines_a_store(whole: Sequence[tuple[Trace, ServedAccesses]], code: CodeColumns, row: Pipelines) -> float:
    """Returns distinct L2 lines per store request of whole workgroups; 1 if they store nothing."""
    shift = (row.l2_line // LINE_BYTES).bit_length() - 1
    requests = lines = 0
    for trace, one in whole:
        numbers = trace.steps[code.accesses[trace.steps]][one.owners]
        stored = one.lines[code.flags[numbers] & STORE != 0] >> np.uint32(shift)
        requests, lines = requests + len(stored), lines + len(np.unique(stored))
    return lines / requests if requests else 1.0


def written_fraction(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> float:
    """Returns the fraction of a launch's bytes between L2 and memory that are written. traces: workgroups that represent all."""
    stores = code.flags & STORE != 0
    each = np.where(code.short, LINE_BYTES, row.cache_line) * traffic.past.prod(0)
    moved = np.zeros(len(each))
    for trace, one in zip(traces, served, strict=True):
        moved += each * np.bincount(trace.steps[code.accesses[trace.steps]], one.accesses[:, 2], len(each))
    return float(moved[stores].sum() / max(1.0, moved.sum()))


class Requests(NamedTuple):
    """Requests of workgroups to L2, workgroup by workgroup: `lines` and `places` by line, the others by run (`front.runs`)."""

    lines: np.ndarray  # int32: numbers of L2 lines
    places: np.ndarray  # index of each line in `seen`
    starts: np.ndarray  # first line of each run, and their end
    owners: np.ndarray  # instruction
    askers: np.ndarray  # wave and instruction
    accesses: np.ndarray  # number of the access, through all workgroups
    xcds: np.ndarray  # XCD of the workgroup


# Tallies: requests to L2, requests that L2 passes on, those that reach memory; requests that wait for a level after L2, and for
# memory.
ASKED, PASSED, FETCHED, BEHIND, MEMORY = range(5)


LIMITLESS = 1 << 60  # bytes


@numba.njit(cache=True, nogil=True)
def _drop(tags, index, line, kept):  # type: ignore[no-untyped-def]
    """Removes a line from a set of all XCDs but one. Returns 0, the others that have it."""
    count, _, ways = tags.shape
    for xcd in range(count):
        for way in range(ways):
            if xcd != kept and tags[xcd, index, way] == line:
                tags[xcd, index, way] = -1
    return np.uint64(0)


@numba.njit(cache=True, nogil=True)
def _empty_l2(shape):  # type: ignore[no-untyped-def]
    """Returns for each way of the XCDs' L2s: its line, when it was used and filled, the run that filled it, if it is dirty."""
    tags, used = np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
    return tags, used, np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.uint8)


@numba.njit(cache=True, nogil=True)
def _set_of(line, sets):  # type: ignore[no-untyped-def]
    """Returns the set of a line: a hash scatters lines as if at random."""
    mixed = np.uint64(line) * HASH
    mixed = (mixed ^ mixed >> np.uint64(29)) * HASH
    return np.int64((mixed >> np.uint64(32)) % np.uint64(sets))


@numba.njit(cache=True, nogil=True)
def _place(tags, used, line):  # type: ignore[no-untyped-def]
    """Returns the way of a set that has a line, and True; or the way that was used least recently, and False."""
    oldest = 0
    for way in range(len(tags)):
        if tags[way] == line:
            return way, True
        if used[way] < used[oldest]:
            oldest = way
    return oldest, False


@numba.njit(cache=True, nogil=True)
def _l2(requests, flags, order, times, counted, clocks, window, levels, seen, tallies):  # type: ignore[no-untyped-def]
    """Sends runs of requests in their order through the caches of their XCDs.

    window: how long a line is on its way, in the unit of `times`. clocks: True if these are clocks; who requests the line
    meanwhile waits for the rest. In turns, whose times are lines of a workgroup, it waits as long as the first. A store or an
    atomic takes the line from other XCDs: their next access misses, as memory's probes keep L2s coherent [LLVM, AMDGPUUsage,
    gfx942: MTYPE RW].
    counted: the first time at which requests are tallied, and the end of these times.
    """
    lines, places, starts, owners, askers, accesses, xcds = requests
    sets, mall = levels[1], levels[3]
    tags, used, filled, filler, dirty = _empty_l2(levels[:3])
    touched = np.zeros(len(seen), np.int64)  # `passes` when each line was last in the Infinity Cache
    holders = np.zeros(len(seen), np.uint64)  # XCDs whose L2 may have each line, a bit each
    passes = now = 0
    for run in order:
        owner, xcd, kind = owners[run], xcds[run], flags[owners[run]]
        mine, time = np.uint64(1) << np.uint64(xcd), times[run] - (not clocks)
        for at in range(starts[run], starts[run + 1]):
            line, place = lines[at], places[at]
            time += not clocks
            now += 1
            one = counted[0] <= time < counted[1]
            tallies[ASKED, owner] += one
            index = _set_of(line, sets)
            held = holders[place]
            if kind & (STORE | ATOMIC) and held & ~mine:
                held = _drop(tags, index, line, xcd)
            holders[place] = held | mine
            oldest, hit = _place(tags[xcd, index], used[xcd, index], line)
            used[xcd, index, oldest] = 0 if kind & STREAM else now  # a streamed line is the next to be replaced
            if not hit:
                tags[xcd, index, oldest] = line
                filled[xcd, index, oldest], dirty[xcd, index, oldest] = time, 0
                filler[xcd, index, oldest] = run
            known = seen[place] >= 0 and passes - touched[place] < mall
            if kind & STORE:  # dirty lines are written back once
                if not dirty[xcd, index, oldest]:
                    dirty[xcd, index, oldest] = 1
                    tallies[PASSED, owner] += one
                    tallies[FETCHED, owner] += one
                    seen[place] = max(seen[place], time)
                    passes += not known
                    touched[place] = passes
            elif not hit:
                tallies[PASSED, owner] += one
                if not known:
                    seen[place] = time
                    tallies[FETCHED, owner] += one
                    passes += 1
                touched[place] = passes
            # A wave that repeats an instruction has the line that the instruction loaded before, unless the same load requested it.
            by = filler[xcd, index, oldest]
            again = hit and askers[by] == askers[run] and accesses[by] != accesses[run]
            since, also = time - filled[xcd, index, oldest], time - seen[place]
            if since < window and not again:
                rest = 1 - since / window if clocks else 1.0
                tallies[BEHIND, owner] += one * rest
                tallies[MEMORY, owner] += one * (min(rest, 1 - also / window) if clocks else rest) * (also < window)
