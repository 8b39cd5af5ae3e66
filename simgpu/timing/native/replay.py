"""Sends requests through caches: the vector and scalar cache of a CU, the XCDs' L2s and the Infinity Cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simgpu.machine.runtime import native, part, shift_in_zeros
from simgpu.timing.native.numbers import HASH
from simgpu.timing.native.state import ATOMIC, STORE, STREAM
from simgpu.timing.native.streams import CLOCKS, COUNT, FIRST

LIMITLESS = 1 << 60  # of bytes, or of times
SHORT, WHOLE = 1, 2  # accesses that go to L2: by lines of 64 bytes, stores and atomics; by lines of the first cache, coherent loads


class Ways(NamedTuple):
    """A cache: for each way of each set its line, or -1, when it was used, and the request that filled it, or -1."""

    lines: np.ndarray
    used: np.ndarray
    filler: np.ndarray
    spare: np.ndarray  # ways of each set that hold no line now, and after a line of it was replaced: those on their way

    @classmethod
    def empty(cls, sets: int, ways: int, spare: int = 0) -> Ways:
        """Returns a cache without lines."""
        return cls(np.full((sets, ways), -1, np.int64), np.zeros((sets, ways), np.int64), np.full((sets, ways), -1, np.int64),
                   np.array([[0, spare]] * sets, np.int64))  # fmt: skip


@part
def _touch(cache, line, group, ways, now, request):  # type: ignore[no-untyped-def]
    """Returns the request that filled a line of a cache: `request` if the line was not there, and replaces the one of its set
    that was used least recently. group: its set; ways: those that the workgroup has."""
    oldest, ways = 0, max(1, ways - cache.spare[group, 0])
    for way in range(ways):
        if cache.lines[group, way] == line:
            cache.used[group, way] = now
            return cache.filler[group, way]
        if cache.used[group, way] < cache.used[group, oldest]:
            oldest = way
    if cache.lines[group, oldest] >= 0:
        cache.spare[group, 0] = cache.spare[group, 1]
    cache.lines[group, oldest], cache.used[group, oldest], cache.filler[group, oldest] = line, now, request
    return request


class FirstRequests(NamedTuple):
    """Accesses of workgroups, one workgroup after another; a wave's are in order."""

    accesses: np.ndarray  # rows of `Trace.accesses`
    lines: np.ndarray
    beyond: np.ndarray  # by access: SHORT or WHOLE if it always goes to L2
    scalar: np.ndarray  # by access: True if it goes to the scalar cache
    starts: np.ndarray  # first access of each wave, and their end
    # Of each workgroup, and their end:
    waves: np.ndarray  # first wave
    line_starts: np.ndarray  # first line
    near: np.ndarray  # number of the workgroup whose lines the scalar cache has, or -1
    ways: np.ndarray  # (n, sets): ways that it has of each set of the vector cache


@part
def _load_scalar(requests, cache, group):  # type: ignore[no-untyped-def]
    """Sends a workgroup's scalar accesses to the scalar cache, wave by wave. Returns their number of lines."""
    now, base = 0, requests.line_starts[group]
    for at in range(requests.starts[requests.waves[group]], requests.starts[requests.waves[group + 1]]):
        if requests.scalar[at]:
            first = base + requests.accesses[at, FIRST]
            for place in range(first, first + requests.accesses[at, COUNT]):
                now += 1
                _touch(cache, requests.lines[place], requests.lines[place] % len(cache.lines), cache.lines.shape[1], now, -1)
    return now


@part
def _empty(cache):  # type: ignore[no-untyped-def]
    """Removes all lines. Returns 0."""
    sets, ways = cache.lines.shape
    for index in range(sets):
        cache.spare[index, 0] = 0
        for way in range(ways):
            cache.lines[index, way], cache.used[index, way], cache.filler[index, way] = -1, 0, -1
    return 0


@part
def _half(line):  # type: ignore[no-untyped-def]
    """Returns the bit of a line of 64 bytes within a line of L2, which has two."""
    return 1 << (line & 1)


@part
def _pass_access(requests, shifts, cache, served, numbers, whole, count, now):  # type: ignore[no-untyped-def]
    """Sends an access through a cache. Returns the number of lines that the workgroup passed on until then, and the time.

    numbers: of the access, of its workgroup's first one, and of the workgroup; whole: its first line, and their end.
    """
    rows, out, owners, wanted = served
    at, first, group = numbers
    before, filler, sets = -1, -1, len(cache.lines)
    for place in range(whole[0], whole[1]):
        line = requests.lines[place] if requests.scalar[at] else requests.lines[place] >> shifts[0]
        part = requests.lines[place] if requests.scalar[at] else requests.lines[place] >> shifts[1]
        if requests.beyond[at] == SHORT:
            rows[at, 1] += 1
            rows[at, 2] += 1
            out[count], owners[count], wanted[count] = requests.lines[place], at - first, _half(requests.lines[place])
            count += 1
            continue
        rows[at, 1] += line != before
        now += 1
        same = line == before and filler >= 0  # the access requested another part of the line
        request = filler if same else count
        index = (part if requests.scalar[at] else part >> shifts[2]) % sets
        ways = cache.lines.shape[1] if requests.scalar[at] else requests.ways[group, index]
        found = _touch(cache, part, index, ways, now, request)
        found = request if requests.beyond[at] == WHOLE else found
        before = line
        if found != request:
            if found >= 0:
                wanted[found] |= _half(requests.lines[place])
            filler = filler if same else -1
        elif same:
            wanted[filler] |= _half(requests.lines[place])
        else:
            filler = count
            rows[at, 2] += 1
            out[count], owners[count], wanted[count] = requests.lines[place], at - first, _half(requests.lines[place])
            count += 1
    return count, now


@native
def pass_first_caches(
    requests: FirstRequests, shifts: tuple[int, int, int], vector_cache: Ways, scalar_cache: Ways,
    served: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], counts: np.ndarray,
) -> None:  # fmt: skip
    """Sends workgroups' accesses through their caches, each workgroup by itself. A request for a line wants all of its halves that
    the workgroup accesses while its cache has the line.

    shifts: from lines to those of the vector cache, to the parts that it fills, and from these to blocks of a set. served: arrays
    to fill, see `simgpu.timing.caches.ServedAccesses`; counts: lines that each workgroup passes on, which begin at its
    `line_starts`.
    """
    for group in range(len(counts)):
        _empty(vector_cache)
        _empty(scalar_cache)
        now = _load_scalar(requests, scalar_cache, requests.near[group]) if requests.near[group] >= 0 else 0
        begin, end, base = requests.waves[group], requests.waves[group + 1], requests.line_starts[group]
        first, count, longest = requests.starts[begin], base, 0
        for wave in range(begin, end):
            longest = max(longest, requests.starts[wave + 1] - requests.starts[wave])
        for index in range(longest):
            for wave in range(begin, end):
                at = requests.starts[wave] + index
                if at >= requests.starts[wave + 1]:
                    continue
                served[0][at, 0] = requests.accesses[at, CLOCKS]
                whole = base + requests.accesses[at, FIRST], base + requests.accesses[at, FIRST] + requests.accesses[at, COUNT]
                cache = scalar_cache if requests.scalar[at] else vector_cache
                count, now = _pass_access(requests, shifts, cache, served, (at, first, group), whole, count, now)
        counts[group] = count - base


@native
def count_distinct(lines: np.ndarray, starts: np.ndarray, accesses: np.ndarray, found: np.ndarray) -> None:
    """Counts the lines of each run, each of an access once: its lines are consecutive, and equal ones are neighbours."""
    for run in range(len(accesses)):
        again = run > 0 and accesses[run] == accesses[run - 1] and lines[starts[run]] == lines[starts[run] - 1]
        found[run] = 0 if again else 1
        for at in range(starts[run] + 1, starts[run + 1]):
            found[run] += lines[at] != lines[at - 1]


class Requests(NamedTuple):
    """Requests of workgroups to L2, workgroup by workgroup: the first three by line, the others by run (`front.runs`)."""

    lines: np.ndarray  # int32: numbers of L2 lines
    places: np.ndarray  # index of each line in `seen`
    wanted: np.ndarray  # uint8: halves of each line that the access wants, a bit each
    starts: np.ndarray  # first line of each run, and their end
    owners: np.ndarray  # instruction
    askers: np.ndarray  # wave and instruction
    accesses: np.ndarray  # number of the access, through all workgroups
    xcds: np.ndarray  # XCD of the workgroup

    def lines_of(self, chosen: np.ndarray, known: int) -> np.ndarray:
        """Returns for each line True if some instructions request it. chosen: True for these; known: number of different lines."""
        made = np.zeros(known, bool)
        made[self.places[np.repeat(chosen[self.owners], np.diff(self.starts))]] = True
        return made

    def wanting(self, loads: np.ndarray, known: int) -> np.ndarray:
        """Returns the XCDs whose loads request each half of each line, a bit each. loads: True for loads, by instruction; known: as
        for `lines_of`."""
        sizes, made = np.diff(self.starts), np.zeros(2 * known, np.int64)
        xcds = np.repeat(np.where(loads[self.owners], self.xcds.astype(int), -1), sizes)
        for xcd in range(int(self.xcds.max(initial=0)) + 1):
            for half in range(2):
                made[2 * self.places[(xcds == xcd) & (self.wanted >> half & 1 == 1)] + half] |= 1 << xcd
        return made


# Of `LastCaches`: an XCD that is not known, none; when a line was seen that was not, and one that an earlier launch accessed.
UNKNOWN, NOBODY = -1, -2
UNSEEN, LONG_AGO = -1, -(1 << 40)
# Tallies: requests to L2, requests that L2 passes on, those that reach memory; requests that wait for a level after L2, and for
# memory. Then loads, after earlier launches (see `_source`): L2 passes a line on whose halves its XCD stored;
# another XCD stored a half, and L2 passes the line on, or has the other half; all others. TAKEN: stores to a half that another
# XCD loaded in this launch, and has in its L2 as nobody stored it since. LEFT: hits of lines that an earlier round used last.
ASKED, PASSED, FETCHED, BEHIND, MEMORY, OWN, MOVED, MOVED_HALF, AGAIN, TAKEN, LEFT, TALLIES = range(12)


class LastCaches(NamedTuple):
    """L2s and the Infinity Cache: arrays by XCD, set and way of its L2, then by place (see `Requests`)."""

    tags: np.ndarray  # int32: line, or -1
    used: np.ndarray  # int32: when it was used; below 0 in an earlier round
    filled: np.ndarray  # when it was filled
    filler: np.ndarray  # int32: the run that filled it
    dirty: np.ndarray  # uint8: 1 if it is to be written back
    seen: np.ndarray  # time of each line's last request that went on to memory, UNSEEN or LONG_AGO
    touched: np.ndarray  # lines that had passed L2 when each line was last in the Infinity Cache
    holders: np.ndarray  # XCDs whose L2 may have each line, a bit each
    storers: np.ndarray  # int8: XCD that stored each half of each line, UNKNOWN or NOBODY
    valid: np.ndarray  # XCDs that have had each half since it was stored, a bit each
    takers: np.ndarray  # XCDs that have fetched each line from others, a bit each
    loaders: np.ndarray  # XCDs that loaded each half in this launch since it was stored, a bit each

    @classmethod
    def empty(cls, xcds: int, sets: int, ways: int, known: int) -> LastCaches:
        """Returns caches without lines; known: number of different lines."""
        shape = xcds, sets, ways
        return cls(
            np.full(shape, -1, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int64), np.zeros(shape, np.int32),
            np.zeros(shape, np.uint8), np.full(known, UNSEEN, np.int64), np.zeros(known, np.int64), np.zeros(known, np.int64),
            np.full(2 * known, UNKNOWN, np.int8), np.zeros(2 * known, np.int64), np.zeros(known, np.int64),
            np.zeros(2 * known, np.int64),
        )  # fmt: skip

    def after_a_round(self, seen: np.ndarray) -> LastCaches:
        """Returns these L2s as the next round finds them, at time 0. The Infinity Cache is as `seen` says."""
        used = np.where(self.tags < 0, np.iinfo(np.int32).min, self.used - self.used.max(initial=0) - 1).astype(np.int32)
        return self._replace(used=used, filled=np.full_like(self.filled, LONG_AGO), seen=seen, touched=np.zeros_like(self.touched))


@part
def _drop(tags, index, line, kept):  # type: ignore[no-untyped-def]
    """Removes a line from a set of all XCDs but one. Returns True if another one had it."""
    count, _, ways = tags.shape
    found = False
    for xcd in range(count):
        for way in range(ways):
            if xcd != kept and tags[xcd, index, way] == line:
                tags[xcd, index, way], found = -1, True
    return found


@part
def _claim(caches, where, wanted, xcd, kind):  # type: ignore[no-untyped-def]
    """Notes that an XCD has a line, and loads halves of it. A store or an atomic takes it from all others. Returns True for a
    store to a half that another one loaded and has. where: set, line and place.
    """
    index, line, place = where
    mine, taken, dropped = 1 << xcd, False, False
    held, loaders = caches.holders[place], caches.loaders
    if kind & (STORE | ATOMIC) and held & ~mine:
        held, dropped = 0, _drop(caches.tags, index, line, xcd)
    caches.holders[place] = held | mine
    for half in range(2):
        at = 2 * place + half
        if wanted >> half & 1:
            taken = taken or (dropped and kind & STORE != 0 and loaders[at] & ~mine != 0)
            loaders[at] = 0 if kind & STORE else loaders[at] | mine
    return taken


@part
def _set_of(line, sets):  # type: ignore[no-untyped-def]
    """Returns the set of a line: a hash scatters lines as if at random."""
    mixed = line * HASH
    mixed = (mixed ^ shift_in_zeros(mixed, 29)) * HASH
    return shift_in_zeros(mixed, 32) % sets


@part
def _place(tags, used, line):  # type: ignore[no-untyped-def]
    """Returns the way of a set that has a line, and True; or the way that was used least recently, and False."""
    oldest = 0
    for way in range(len(tags)):
        if tags[way] == line:
            return way, True
        if used[way] < used[oldest]:
            oldest = way
    return oldest, False


@part
def _source(storers, valid, takers, place, wanted, xcd, hit):  # type: ignore[no-untyped-def]
    """Returns the tally of a load: who has the halves of a line that it wants, since an earlier launch stored or loaded them.

    If it is UNKNOWN which XCD stored a half, the one whose workgroup wants it first is taken for it: neighbours in a grid want
    it, too. An XCD that has fetched a line has both halves.
    """
    mine = 1 << xcd
    if takers[place] & mine:
        return AGAIN
    foreign = missing = False
    for half in range(2):
        at = 2 * place + half
        if wanted >> half & 1:
            if storers[at] == UNKNOWN:
                storers[at] = xcd
            if storers[at] != xcd and not valid[at] & mine:
                foreign = foreign or storers[at] >= 0
                missing = missing or storers[at] == NOBODY
    if foreign or missing:
        takers[place] |= mine
    if foreign:
        return MOVED_HALF if hit else MOVED
    return AGAIN if hit or missing else OWN


@part
def _note_wait(tallies, owner, since, window, clocks):  # type: ignore[no-untyped-def]
    """Tallies a request for a line that is on its way. since: the time since L2 and memory got the first request for it."""
    if since[0] < window:
        rest = 1 - since[0] / window if clocks else 1.0
        tallies[BEHIND, owner] += rest
        tallies[MEMORY, owner] += (min(rest, 1 - since[1] / window) if clocks else rest) * (since[1] < window)


@native
def pass_last_caches(
    requests: Requests, flags: np.ndarray, order: np.ndarray, times: np.ndarray, counted: tuple[int, int], clocks: int,
    window: float, mall: int, caches: LastCaches, tallies: np.ndarray,
) -> None:  # fmt: skip
    """Sends runs of requests in their order through the caches of their XCDs.

    window: how long a line is on its way, in the unit of `times`. clocks: 1 if these are clocks; who requests the line
    meanwhile waits for the rest. In turns, whose times are lines of a workgroup, it waits as long as the first. A store or an
    atomic takes the line from other XCDs: their next access misses, as memory's probes keep L2s coherent [LLVM, AMDGPUUsage,
    gfx942: MTYPE RW].
    counted: the first time at which requests are tallied, and the end of these times. mall: lines of the Infinity Cache.
    """
    lines, places, wanted, starts, owners, askers, accesses, xcds = requests
    tags, used, filled, filler, dirty, seen, touched, _, storers, valid, takers, _ = caches
    passes = now = 0
    for run in order:
        owner, xcd, kind = owners[run], xcds[run], flags[owners[run]]
        time = times[run] - (not clocks)
        for at in range(starts[run], starts[run + 1]):
            line, place = lines[at], places[at]
            time += not clocks
            now += 1
            one = counted[0] <= time < counted[1]
            tallies[ASKED, owner] += one
            index = _set_of(line, tags.shape[1])
            tallies[TAKEN, owner] += one * _claim(caches, (index, line, place), wanted[at], xcd, kind)
            oldest, hit = _place(tags[xcd, index], used[xcd, index], line)
            tallies[LEFT, owner] += one and hit and used[xcd, index, oldest] < 0
            used[xcd, index, oldest] = 0 if kind & STREAM else now  # a streamed line is the next to be replaced
            if not hit:
                tags[xcd, index, oldest] = line
                filled[xcd, index, oldest], dirty[xcd, index, oldest], filler[xcd, index, oldest] = time, 0, run
            known = seen[place] != UNSEEN and passes - touched[place] < mall
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
            if not kind & STORE:
                tallies[_source(storers, valid, takers, place, wanted[at], xcd, hit), owner] += one
            # A wave that repeats an instruction has the line that the instruction loaded before, unless the same load requested it.
            by = filler[xcd, index, oldest]
            again = hit and askers[by] == askers[run] and accesses[by] != accesses[run]
            if one and not again:
                _note_wait(tallies, owner, (time - filled[xcd, index, oldest], time - seen[place]), window, clocks)
