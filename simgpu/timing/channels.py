"""Computes the fraction of memory channels that a launch keeps busy, on chips where the address selects the channel.

Lines that are a power of two apart use few channels, and other channels in each part of a grid. So rounds of workgroups from
all over the launch are examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from simgpu.hardware.rates.pipelines import Pipelines, memory_channel
from simgpu.timing.native.streams import find_lines
from simgpu.timing.trace import LINE_BYTES, join_streams, number_values


def lines_of(groups: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Returns the distinct 64-byte lines that workgroups request, uint32.

    groups: streams (`simgpu.checks.path_trace`) of the waves of each workgroup. A workgroup with a wave that did not access LDS
    or memory yet is left out.
    """
    words, bounds = join_streams(groups)
    found, ends, came = np.empty(len(words), np.uint32), np.zeros(len(bounds), np.int64), np.zeros(len(bounds) - 1, bool)
    find_lines(words, bounds, found, ends, came)
    waves = np.cumsum([0, *map(len, groups)])
    whole = [found[ends[first] : ends[end]] for first, end in pairwise(waves) if came[first:end].all()]
    return number_values(np.concatenate(whole))[1] if whole else np.empty(0, np.uint32)


def busy_channels(rounds: Sequence[np.ndarray], row: Pipelines) -> float:
    """Returns the fraction of memory's channels that rounds of workgroups keep busy; 1 if the chip's channels are not modelled.

    rounds: the lines of each round. A round takes as long as the channel with most of its lines, so the result is the sum of all
    lines divided by the sum that full use of the channels would serve in that time.
    """
    if not row.memory_channels:
        return 1.0
    lines = longest = 0
    for asked in rounds:
        known = number_values(asked // np.uint32(row.l2_line // LINE_BYTES))[1].astype(np.int64)
        lines += len(known)
        longest += int(np.bincount(memory_channel(known * row.l2_line, row.memory_channels), minlength=1).max())
    return lines / (row.memory_channels * longest) if lines else 1.0
