"""Finds out whether a trace may depend on results that were left out (`simgpu.engine.demand`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from simgpu.engine.demand import Demand
from simgpu.engine.launch import Launch
from simgpu.timing.code import CodeColumns
from simgpu.timing.trace import Trace, distinct


def demand_of_launch(launch: Launch) -> Demand:
    """Returns the demand of all code that a launch ran, of each kind all instructions."""
    found = [one for program in launch.programs.values() for one in program.demands.values()]
    return reduce(lambda mine, other: Demand(*(left | right for left, right in zip(mine, other, strict=True))), found, Demand())


def reads_left_out(code: CodeColumns, traces: Sequence[Trace], demand: Demand) -> bool:
    """True if a load that may decide an address or a branch read a line that got data that were not computed."""
    if not demand.deciding or not demand.doubtful:
        return False
    loaded = _lines_of(code, traces, demand.deciding)
    return len(loaded) > 0 and len(np.intersect1d(loaded, _lines_of(code, traces, demand.doubtful), assume_unique=True)) > 0


def _lines_of(code: CodeColumns, traces: Sequence[Trace], numbers: frozenset[int]) -> np.ndarray:
    """Returns the lines that instructions access."""
    named = np.zeros(len(code.unit), bool)
    named[list(numbers)] = True
    return distinct(np.concatenate([np.empty(0, np.uint32), *(trace.lines_of(code, named) for trace in traces)]))
