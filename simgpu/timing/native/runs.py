"""Runs of requests to L2, and their order if workgroups begin together."""

from __future__ import annotations

import numpy as np

from simgpu.machine.runtime import native

TURN_LINES = 16  # lines that a workgroup requests in its turn, if workgroups begin together


@native
def find_runs(accesses: np.ndarray, ends: np.ndarray, starts: np.ndarray, groups: np.ndarray) -> int:
    """Fills `starts` and `groups`, see `simgpu.timing.front.runs`; returns the number of runs."""
    count = 0
    for group in range(len(ends) - 1):
        for place in range(ends[group], ends[group + 1]):
            if (place - ends[group]) % TURN_LINES == 0 or accesses[place] != accesses[place - 1]:
                starts[count] = place
                count += 1
        groups[group + 1] = count
    starts[count] = len(accesses)
    return count


@native
def take_turns(times: np.ndarray, groups: np.ndarray, after: np.ndarray, order: np.ndarray) -> None:
    """Fills `order`, see `simgpu.timing.front.turns`. after: the next run of each workgroup."""
    done = end = 0
    while done < len(order):
        end += TURN_LINES
        for group in range(len(after)):
            while after[group] < groups[group + 1] and times[after[group]] < end:
                order[done] = after[group]
                done += 1
                after[group] += 1
