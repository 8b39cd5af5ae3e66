"""Lines of workgroups that do as another one does, at other addresses."""

from __future__ import annotations

import numpy as np

from simgpu.machine.runtime import native, shift_in_zeros
from simgpu.timing.native.numbers import HASH


@native
def move_lines(
    lines: np.ndarray, ways: np.ndarray, distances: np.ndarray, shift: int, limit: int, chosen: np.ndarray, moved: np.ndarray
) -> int:
    """Fills `moved` with lines of L2 that a workgroup requests, and `chosen` with their indices in `lines`; returns their number.

    lines: of 64 bytes, of the workgroup that it is like; ways: how each moves; distances: in such lines, by way.
    shift: from these to lines of L2; limit: number of lines that are chosen out of 2^32, by a hash.
    """
    count = 0
    for at in range(len(lines)):
        line = (lines[at] + distances[ways[at]]) >> shift
        if shift_in_zeros(line * HASH, 16) & 0xFFFFFFFF < limit:  # bits that do not place lines in hash tables
            chosen[count], moved[count] = at, line
            count += 1
    return count
