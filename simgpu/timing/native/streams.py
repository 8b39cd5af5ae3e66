"""Streams of waves (uint32, `simgpu.checks.path_trace`): the steps, accesses and lines that they record."""

from __future__ import annotations

import numpy as np

from simgpu.machine.runtime import native, part

# Kinds of a stream's words, in their two high bits.
END, JUMP, LDS, MEMORY = range(4)
CLOCKS, FIRST, COUNT, LEAST_CLOCKS, LEAST_LINES, UNIFORM, FIELDS = range(7)  # columns of `Trace.accesses`


@part
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
                for number in range(count if fill else 0):
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


@native
def walk_all(
    words: np.ndarray, bounds: np.ndarray, entry: int, step: np.ndarray, is_access: np.ndarray, sizes: np.ndarray, ends: np.ndarray,
    steps: np.ndarray, accesses: np.ndarray, lines: np.ndarray,
) -> None:  # fmt: skip
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


@native
def find_lines(words: np.ndarray, bounds: np.ndarray, found: np.ndarray, ends: np.ndarray, came: np.ndarray) -> None:
    """Writes the lines in all waves' streams to `found`, and fills `ends`, their number up to each wave, after a 0.

    words: the streams, between `bounds`. came: set to 1 for each wave that has any access except scalar ones.
    """
    count = 0
    for wave in range(len(came)):
        word, size = bounds[wave], bounds[wave + 1]
        while word + 1 < size:
            kind, packed = words[word] >> 30, words[word + 1]
            word += 2
            if kind == LDS or (kind == MEMORY and packed >> 16 > 0):
                came[wave] = 1
            if kind == MEMORY:
                asked = min(size - word, packed & 0xFF)
                for number in range(asked):
                    found[count + number] = words[word + number]
                count += asked
                word += asked
        ends[wave + 1] = count
