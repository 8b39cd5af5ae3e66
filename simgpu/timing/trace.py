"""Traces of workgroups as arrays: executed instructions and accessed lines of each wave, the input of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numba
import numpy as np

from simgpu.timing.code import CodeColumns

# Kinds of a stream's words, in their two high bits (`simgpu.checks.path_trace` writes them).
END, JUMP, LDS, MEMORY = range(4)
LINE_BYTES = 64  # size of the lines that `lines` numbers
CLOCKS, FIRST, COUNT, LEAST_CLOCKS, LEAST_LINES, UNIFORM, FIELDS = range(7)  # columns of `accesses`


@dataclass(frozen=True)
class Trace:
    """Trace of one workgroup."""

    steps: np.ndarray  # uint32: executed instructions, as numbers of `CodeColumns`; wave w's are steps[starts[w] : starts[w + 1]]
    starts: np.ndarray  # (waves + 1,)
    # int32 (n, 6), a row per access: clocks of the LDS banks or of the coalescer; index of its first line in `lines`; number of
    # its lines (0 for LDS); clocks and lines if as many lanes had no bank conflict, or consecutive addresses;
    # 1 if several lanes want the same address in memory, and no lane another one
    accesses: np.ndarray
    access_starts: np.ndarray  # (waves + 1,): wave w's accesses begin at access_starts[w]
    lines: np.ndarray  # uint32: numbers of 64-byte lines
    complete: bool  # True if all waves ended
    group: int = 0  # the workgroup's number in the order of dispatch
    stretch: float = 1.0  # executed records divided by `steps`; the records that are missing are assumed to be like them

    @property
    def waves(self) -> int:
        return len(self.starts) - 1

    def __len__(self) -> int:
        return len(self.steps)

    def lines_of(self, code: CodeColumns, chosen: np.ndarray) -> np.ndarray:
        """Returns the lines that accesses by some instructions request, in their order. chosen: True for these, by number."""
        rows = self.accesses[chosen[self.steps[code.accesses[self.steps]]]]
        counts = rows[:, COUNT]
        starts = np.repeat(rows[:, FIRST] - np.cumsum(counts) + counts, counts)
        return self.lines[starts + np.arange(len(starts))]


def traces_of(
    code: CodeColumns, groups: Sequence[Sequence[np.ndarray]], entry: int, complete: Sequence[bool], numbers: Sequence[int],
    stretches: Sequence[float],
) -> list[Trace]:  # fmt: skip
    """Decodes workgroups into traces: the streams (uint32, `simgpu.checks.path_trace`) of the waves of each.

    entry: number of their first instruction. The other sequences have the traces' fields of these names; numbers: `group`.
    """
    streams = [stream for group in groups for stream in group]
    words = np.concatenate([np.empty(0, np.uint32), *streams])
    bounds = np.cumsum([0, *map(len, streams)])
    sizes, ends = np.zeros((len(streams), 3), np.int64), np.zeros((len(streams) + 1, 3), np.int64)
    walk = partial(_walk_all, words, bounds, entry, code.step, code.accesses, sizes, ends)
    walk(np.empty(0, np.uint32), np.empty((0, FIELDS), np.int32), np.empty(0, np.uint32))
    np.cumsum(sizes, axis=0, out=ends[1:])
    steps, lines = np.empty(ends[-1, 0], np.uint32), np.empty(ends[-1, 2], np.uint32)
    accesses = np.zeros((ends[-1, 1], FIELDS), np.int32)
    walk(steps, accesses, lines)
    made, wave = [], 0
    for group, whole, number, stretch in zip(groups, complete, numbers, stretches, strict=True):
        (a, b, c), (d, e, f) = ends[wave].tolist(), ends[wave + len(group)].tolist()
        inside = ends[wave : wave + len(group) + 1] - ends[wave]
        accesses[b:e, FIRST] -= c
        made.append(Trace(steps[a:d], inside[:, 0], accesses[b:e], inside[:, 1], lines[c:f], whole, number, stretch))
        wave += len(group)
    return made


def part_of(code: CodeColumns, trace: Trace, share: float) -> Trace:
    """Returns a trace of only the first steps of each wave, for a workgroup that does a fraction `share` of the work."""
    counts = np.ceil(np.diff(trace.starts) * trace.stretch * share).astype(np.int64)
    counts = np.minimum(counts, np.diff(trace.starts))
    kept = [trace.steps[start : start + count] for start, count in zip(trace.starts, counts, strict=False)]
    held = [int(code.accesses[steps].sum()) for steps in kept]
    accesses = [trace.accesses[start : start + count] for start, count in zip(trace.access_starts, held, strict=False)]
    return replace(
        trace, steps=np.concatenate(kept), starts=np.cumsum([0, *map(len, kept)]), accesses=np.concatenate(accesses),
        access_starts=np.cumsum([0, *held]), stretch=max(1.0, trace.stretch * share * len(trace) / max(1, int(counts.sum()))),
    )  # fmt: skip


PAGE_SHIFT = 15  # 2^15 lines are a page and stay together: the driver maps 2 MiB at a time


def renumber(traces: Sequence[Trace]) -> list[Trace]:
    """Renumbers the traces' pages in the order of their first touch, so that the host's placement does not matter."""
    ends = np.cumsum([len(trace.lines) for trace in traces])
    lines = np.concatenate([trace.lines for trace in traces]) if traces else np.empty(0, np.uint32)
    page, _ = number_values(lines >> PAGE_SHIFT)
    made = (page << PAGE_SHIFT) | (lines & ((1 << PAGE_SHIFT) - 1))
    return [replace(trace, lines=part) for trace, part in zip(traces, np.split(made, ends[:-1]), strict=True)]


HASH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio [Knuth, The Art of Computer Programming 3, 6.4]


@numba.njit(cache=True, nogil=True)
def number_values(values):  # type: ignore[no-untyped-def]
    """Returns a number for each value, uint32, and the value of each number. Equal values have the same number: 0, 1, ... in the
    order of their first occurrence.

    It is like `np.unique` with its inverse, without sorting. Values are integers of 0 or more. The hash table grows with the
    number of different values, so a few values stay in the host's cache.
    """
    bits = 6
    table = np.full(1 << bits, -1, np.int64)
    numbers, known, count = np.empty(len(values), np.uint32), np.empty_like(values), 0
    for at in range(len(values)):
        place = _place_of(table, bits, known, values[at])
        if table[place] < 0:
            table[place] = count
            known[count] = values[at]
            count += 1
            if 2 * count > len(table):
                bits += 2
                table = np.full(1 << bits, -1, np.int64)
                for number in range(count):
                    table[_place_of(table, bits, known, known[number])] = number
                place = _place_of(table, bits, known, values[at])
        numbers[at] = table[place]
    return numbers, known[:count]


@numba.njit(cache=True, nogil=True)
def _place_of(table, bits, known, value):  # type: ignore[no-untyped-def]
    """Returns the place of a value's number in a hash table of 2^bits places, or the free place where it belongs."""
    place = np.uint64(value) * HASH >> np.uint64(64 - bits)
    while table[place] >= 0 and known[table[place]] != value:
        place = place + np.uint64(1) & np.uint64((1 << bits) - 1)
    return place


@numba.njit(cache=True, nogil=True)
def _walk(stream, entry, step, is_access, steps, accesses, lines):  # type: ignore[no-untyped-def]
    """Returns the numbers of steps, accesses and lines of a wave. Fills the arrays unless `steps` is empty."""
    at, word, size = entry, 0, len(stream)
    done = found = held = 0
    fill = len(steps) > 0
    while word < size:
        if fill:
            steps[done] = at
        done += 1
        if is_access[at]:
            clocks = least = fewest = uniform = 0
            first = held
            while word < size and stream[word] & 0x3FFFFFFF == at and stream[word] >> 30 >= LDS:
                cut = word + 1 >= size or (stream[word] >> 30 == MEMORY and word + 2 + (stream[word + 1] & 0xFF) > size)
                if cut:  # the stream ended inside the record
                    word = size
                    break
                packed, count = stream[word + 1], stream[word + 1] & 0xFF
                clocks += packed >> 24 & 0x7F
                uniform = packed >> 31
                least += packed >> 16 & 0xFF
                fewest += packed >> 8 & 0xFF
                word += 2
                for number in range(count if fill else 0):  # without slices: see `simgpu.timing.channels`
                    lines[held + number] = stream[word + number]
                held += count
                word += count
            if fill:
                accesses[found, CLOCKS], accesses[found, FIRST], accesses[found, COUNT] = clocks, first, held - first
                accesses[found, LEAST_CLOCKS], accesses[found, LEAST_LINES] = least, fewest
                accesses[found, UNIFORM] = uniform
            found += 1
        elif word < size and stream[word] & 0x3FFFFFFF == at:
            if stream[word] >> 30 == END or word + 1 >= size:
                break
            at = stream[word + 1]
            word += 2
            continue
        if step[at] == 0:
            break
        at += step[at]
    return done, found, held


@numba.njit(cache=True, nogil=True)
def _walk_all(words, bounds, entry, step, is_access, sizes, ends, steps, accesses, lines):  # type: ignore[no-untyped-def]
    """Fills `sizes`, the numbers of steps, accesses and lines of each wave; if `steps` has elements, also the other arrays.

    words: the waves' streams, between `bounds`. ends: sums of `sizes`, zeros before these are known; an access's first line
    counts from the first wave's.
    """
    for wave in range(len(sizes)):
        first, held = ends[wave, 1], ends[wave, 2]
        sizes[wave, 0], sizes[wave, 1], sizes[wave, 2] = _walk(
            words[bounds[wave] : bounds[wave + 1]], entry, step, is_access, steps[ends[wave, 0] :], accesses[first:], lines[held:]
        )
        for access in range(first, ends[wave + 1, 1]):
            accesses[access, FIRST] += held
