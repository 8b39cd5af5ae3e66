"""Clocks and lines of accesses by their addresses, computed once for accesses that differ by a distance only.

A loop repeats an access with all addresses moved by the same distance. If that is a multiple of a dword (LDS) or of a line
(memory), banks and lines move with them, and clocks and the number of lines stay.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_uint32
from typing import Any

import numpy as np

from simgpu.checks.path_trace.tally import LINE_SHIFT
from simgpu.checks.performance import lines_touched, lost_clocks, rule_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load32, part, records

PATTERNS = 1 << 14  # patterns that a worker remembers; the host allocates their pages when they are touched
APART = 4099  # patterns between those of a record for one wave and for the next, whose addresses may differ in other ways
UNIT_SHIFT = 7  # patterns between those of LDS and of memory are the difference of their units, shifted by this
MOST_LINES = 2 * LANES  # of an access: a lane's bytes are in two lines at most


class AccessPattern(Structure):
    """Clocks and lines of the last access of a record and a wave."""

    _fields_ = (
        ("record", c_int64),  # the record's number + 1; 0 if there was no access
        ("lanes", c_int64),  # active lanes
        ("lane_bytes", c_int64),
        ("unit", c_int64),  # distances by which addresses may differ are multiples of it
        ("leader", c_int64),  # the lowest active lane
        ("packed", c_int64),  # clocks and lines as in a stream
        ("count", c_int64),  # number of lines
        ("starts", c_int64 * LANES),  # address of each lane
        ("lines", c_uint32 * MOST_LINES),  # numbers of its lines
    )


ACCESS_PATTERN = np.dtype(AccessPattern)


@part
def pattern_of(patterns: int, wave: int, index: int, unit: int) -> Any:
    """Returns the pattern for a record, a wave and a unit: a load to LDS has two accesses. patterns: address of a worker's."""
    place = index + APART * load32(wave + layout.WAVE_ID) + (unit << UNIT_SHIFT)
    return records(patterns, PATTERNS, ACCESS_PATTERN)[place & PATTERNS - 1]


@part
def fits(pattern: Any, index: int, lanes: int, size: int, unit: int, offsets: np.ndarray, base: int) -> bool:
    """True if an access at `base` + `offsets` is that of the pattern, moved by a multiple of `unit` bytes."""
    if pattern.record != index + 1 or pattern.lanes != lanes or pattern.lane_bytes != size or pattern.unit != unit:
        return False
    starts = pattern.starts
    moved = base + offsets[pattern.leader] - starts[pattern.leader]
    other = moved & unit - 1
    for lane in range(LANES):
        other |= (base + offsets[lane] - starts[lane] - moved) & -(lanes >> lane & 1)
    return other == 0


@part
def begin_pattern(pattern: Any, index: int, lanes: int, size: int, unit: int, offsets: np.ndarray, base: int) -> None:
    """Makes the pattern that of an access; its clocks and lines follow."""
    pattern.record, pattern.lanes, pattern.lane_bytes, pattern.unit = index + 1, lanes, size, unit
    pattern.leader = pattern.count = 0
    starts = pattern.starts
    for lane in range(LANES - 1, -1, -1):
        starts[lane] = base + offsets[lane]
        if lanes >> lane & 1:
            pattern.leader = lane


@part
def find_lds(pattern: Any, rules: int, write: int, scratch: np.ndarray) -> None:
    """Computes the clocks of an access to LDS. rules: address of `performance.rules_of`."""
    dwords, lanes = max(1, pattern.lane_bytes >> 2), pattern.lanes
    rule = rule_of(rules, write, dwords)
    phases = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            phases |= 1 << rule.phases[lane]
    served = 0
    while phases:
        phases &= phases - 1
        served += 1
    pattern.packed = served + lost_clocks(rule, pattern.starts, lanes, dwords, scratch) << 24 | served << 16


@part
def group_clocks(starts: np.ndarray, lanes: int, first: int, count: int, size: int, shift: int) -> int:
    """Returns the clocks that the coalescer takes for the addresses of `count` lanes from `first` on. size: bytes a lane. shift:
    log2 of the bytes of a line of the vector cache.

    Lanes in one 64-byte line take one clock. Otherwise there are four clocks for each distinct dword of the bank with the most
    of them (16 banks), and at least one for each line, up to seven lines. The maximum is one clock a lane. Source:
    te42kyfo/gpu-benches, gpu-strides on MI210.

    Both lines of an access that crosses from one to the next count. Consecutive lanes take one clock a line, wherever they
    begin, also if their bytes overlap. Source: TCP_TOTAL_CACHE_ACCESSES of ROCm's seismic stencils on MI250X. A wave of the stencil
    along y accesses 10 x 8 lines off a line's start, along x 20 + 20 + 8 + 4, or 3 x 24 + 16 by two floats a lane.
    """
    lines = low = deepest = served = lowest = highest = 0
    banks = 0  # for each of 16 banks, 4 bits: the number of distinct dwords in it
    for lane in range(first, first + count):
        if not lanes >> lane & 1:
            continue
        if served == 0:
            lowest = highest = starts[lane]
        lowest, highest = min(lowest, starts[lane]), max(highest, starts[lane])
        line, last = starts[lane] >> LINE_SHIFT, (starts[lane] + size - 1) >> LINE_SHIFT
        bank = starts[lane] >> 2 & 15
        if served == 0 or line < low:
            low = line
        new, cut = True, last > line  # an unaligned access may be in two lines
        for other in range(first, lane):
            if lanes >> other & 1:
                start, end = starts[other] >> LINE_SHIFT, (starts[other] + size - 1) >> LINE_SHIFT
                new = new and start != line and end != line
                cut = cut and start != last and end != last
        lines += (1 if new else 0) + (1 if cut else 0)
        fresh = True  # lanes that want the same dword share it
        for other in range(first, lane):
            if lanes >> other & 1 and starts[other] >> 2 == starts[lane] >> 2:
                fresh = False
                break
        if fresh:
            depth = min((banks >> 4 * bank & 15) + 1, 15)
            banks = banks & ~(15 << 4 * bank) | depth << 4 * bank
            deepest = max(deepest, depth)
        served += 1
    if lines <= 1:
        return min(served, 1)
    gaps = highest - lowest - (served - 1) * size  # below 0: lanes overlap
    if gaps == 0 or (gaps < 0 and size > 4):
        return min(lines, (highest + size - 1 >> shift) - (lowest >> shift) + 1)
    return min(count, max(min(lines, 7), 4 * deepest))


@part
def find_memory(pattern: Any, shift: int) -> None:
    """Computes the clocks and lines of an access to memory. shift: as for `group_clocks`."""
    starts, lanes, size = pattern.starts, pattern.lanes, pattern.lane_bytes
    together = 16 if size <= 4 else 4  # lanes that pass in a clock at best (gpu-strides: float and double)
    clocks = least = active = several = 0
    for first in range(0, LANES, together):
        clocks += group_clocks(starts, lanes, first, together, size, shift)
        served = 0
        for lane in range(first, first + together):
            if not lanes >> lane & 1:
                continue
            several |= 1 if starts[lane] != starts[pattern.leader] else 0
            served += 1
        least += 1 if served else 0
        active += served
    count = pattern.count = lines_touched(starts, lanes, size, LINE_SHIFT, pattern.lines)
    fewest = min(count, (active * size + (1 << LINE_SHIFT) - 1) >> LINE_SHIFT)
    uniform = 0 if several or active < 2 else 1
    pattern.packed = uniform << 31 | clocks << 24 | least << 16 | fewest << 8 | count
