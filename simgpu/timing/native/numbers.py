"""Numbers of different values, by a hash table."""

from __future__ import annotations

import numpy as np

from simgpu.machine.runtime import native, part, shift_in_zeros

HASH = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 over the golden ratio [Knuth, The Art of Computer Programming 3, 6.4], as an i64


@part
def place_of(table, bits, known, value):  # type: ignore[no-untyped-def]
    """Returns the place of a value's number in a hash table of 2^bits places, or the free place where it belongs."""
    place = shift_in_zeros(value * HASH, 64 - bits)
    while table[place] >= 0 and known[table[place]] != value:
        place = (place + 1) & ((1 << bits) - 1)
    return place


@native
def enter(values: np.ndarray, table: np.ndarray, bits: int, numbers: np.ndarray, known: np.ndarray, done: np.ndarray) -> None:
    """Numbers values until half of the table is full.

    done: int64, the values that are numbered, and the different ones among them, which are in `known` but not in `table` (-1).
    """
    for number in range(done[1]):
        table[place_of(table, bits, known, known[number])] = number
    while done[0] < len(values) and 2 * done[1] <= len(table):
        value = values[done[0]]
        place = place_of(table, bits, known, value)
        if table[place] < 0:
            table[place] = done[1]
            known[done[1]] = value
            done[1] += 1
        numbers[done[0]] = table[place]
        done[0] += 1


@native
def enter_parts(
    values: np.ndarray, bounds: np.ndarray, table: np.ndarray, bits: int, known: np.ndarray, ends: np.ndarray, part: int
) -> int:
    """Writes the different values of each part to `known`, from `part` on, until a part fills half of the table.

    Returns the first part that was not done. table: -1, or indices in `known`: of an earlier part, these count as free.
    ends: where each part's values end in `known`; ends[0] is 0.
    """
    while part + 1 < len(bounds):
        first, count = ends[part], ends[part]
        for at in range(bounds[part], bounds[part + 1]):
            place = shift_in_zeros(values[at] * HASH, 64 - bits)
            while table[place] >= first and known[table[place]] != values[at]:
                place = (place + 1) & ((1 << bits) - 1)
            if table[place] < first:
                if 2 * (count - first) > len(table):
                    return part
                table[place] = count
                known[count] = values[at]
                count += 1
        part += 1
        ends[part] = count
    return part
