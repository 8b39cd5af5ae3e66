"""Numbers of different values, by a hash table."""

from __future__ import annotations

import numpy as np

from simgpu.machine.runtime import native, part, shift_in_zeros

HASH = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 over the golden ratio [Knuth, The Art of Computer Programming 3, 6.4], as an i64


@part
def place_of(table, bits, known, first, value):  # type: ignore[no-untyped-def]
    """Returns the place of a value in a hash table of 2^bits indices in `known`, or the place where it belongs. Indices below
    `first` count as free."""
    place = shift_in_zeros(value * HASH, 64 - bits)
    while table[place] >= first and known[table[place]] != value:
        place = (place + 1) & ((1 << bits) - 1)
    return place


@native
def enter(
    values: np.ndarray, bounds: np.ndarray, table: np.ndarray, bits: int, numbers: np.ndarray, known: np.ndarray, ends: np.ndarray,
    done: np.ndarray,
) -> None:  # fmt: skip
    """Numbers the values of each part, 0, 1, ... by first occurrence, until a part fills half of the table.

    bounds: of the parts. table: 2^bits times -1. known: the different values of all parts; `ends` has where each part's end, after
    a 0. done: int64, the numbered values, the complete parts, and the values in `known`.
    """
    at, now, count = done[0], done[1], done[2]
    for index in range(ends[now], count):
        table[place_of(table, bits, known, ends[now], known[index])] = index
    full = False
    while now + 1 < len(bounds) and not full:
        first = ends[now]
        while at < bounds[now + 1] and not full:
            place = place_of(table, bits, known, first, values[at])
            if table[place] < first:
                table[place] = count
                known[count] = values[at]
                count += 1
            numbers[at] = table[place] - first
            at += 1
            full = 2 * (count - first) > len(table)
        if at == bounds[now + 1]:
            now += 1
            ends[now] = count
    done[0], done[1], done[2] = at, now, count
