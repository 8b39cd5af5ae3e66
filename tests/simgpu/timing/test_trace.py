"""Numbers for values, in the order in which the values come, and lines that workgroups update."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.code import columns
from simgpu.timing.trace import Trace, distinct_of_parts, number_values, updated_fraction

LOAD = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=4, counts_vm=True)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("most", [1, 3, 1 << 17, (1 << 32) - 1])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 5000])
def test_values_are_numbered_in_the_order_in_which_they_first_come(count: int, most: int, dtype: type) -> None:
    values = np.random.default_rng(count).integers(0, most, count, endpoint=True).astype(dtype)
    numbers, known = number_values(values)
    assert known[numbers].tolist() == values.tolist()
    assert known.tolist() == list(dict.fromkeys(values.tolist()))


@pytest.mark.parametrize("most", [3, 40, 1 << 17])
@pytest.mark.parametrize("sizes", [[], [0], [5000], [1, 0, 7, 300, 2, 3000, 64, 5000, 9]])
def test_different_values_of_parts_are_those_of_each_part(sizes: list[int], most: int) -> None:
    """Parts of very different sizes: the table of all has room for the largest."""
    bounds = np.cumsum([0, *sizes])
    values = np.random.default_rng(most).integers(0, most, bounds[-1], endpoint=True).astype(np.uint32)
    known, ends = distinct_of_parts(values, bounds)
    assert len(ends) == len(sizes) + 1
    for part, (first, end) in enumerate(pairwise(bounds)):
        assert known[ends[part] : ends[part + 1]].tolist() == list(dict.fromkeys(values[first:end].tolist()))


@pytest.mark.parametrize(("first", "updated"), [(0, 1.0), (2, 0.5), (4, 0.0)])
def test_stored_lines_that_a_workgroup_also_loads_are_updated(first: int, updated: float) -> None:
    """A load of lines 0 to 3, then a store of four lines from `first` on."""
    code = columns({0: (LOAD, 1), 1: (replace(LOAD, store=True), 1)}, 2, pipelines("gfx942"))
    accesses = np.zeros((2, 6), np.int32)
    accesses[:, 1:3] = (0, 4), (4, 4)
    ends, lines = np.array([0, 2]), np.concatenate([np.arange(4), np.arange(first, first + 4)]).astype(np.uint32)
    assert updated_fraction([Trace(np.array([0, 1], np.uint32), ends, accesses, ends, lines, True)], code) == updated
    assert updated_fraction([], code) == 0.0
