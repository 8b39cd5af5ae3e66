"""Accesses whose addresses differ by a distance only have the same clocks, and the same lines that distance further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.checks.path_trace.patterns import ACCESS_PATTERN, begin_pattern, find_memory, fits
from simgpu.checks.path_trace.tally import LINE_SHIFT
from simgpu.checks.performance import DISTINCT, SIZES, lost_clocks, rules_of
from tests.support.exhaustive import examples

LINE = 1 << LINE_SHIFT
OFFSETS = st.integers(0, 1 << 32).map(lambda seed: np.random.default_rng(seed).integers(0, 1 << 12, 64))
LANES = st.integers(1, (1 << 64) - 1).map(lambda bits: bits - (bits >> 63 << 64))


def found(offsets: np.ndarray, lanes: int, size: int, shift: int = LINE_SHIFT) -> Any:
    pattern = np.zeros(1, ACCESS_PATTERN).view(np.recarray)[0]
    begin_pattern(pattern, 7, lanes, size, 1 << shift, offsets, 0)
    find_memory(pattern, shift)
    return pattern


@given(OFFSETS, LANES, st.sampled_from([1, 2, 4, 8, 12, 16]), st.integers(0, 1 << 20))
@settings(max_examples=examples(16))
def test_memory(offsets: np.ndarray, lanes: int, size: int, distance: int) -> None:
    here, there = found(offsets, lanes, size), found(offsets + LINE * distance, lanes, size)
    assert here.packed == there.packed and here.count == there.count
    assert np.array_equal(here.lines[: here.count] + distance, there.lines[: here.count])
    assert fits(here, 7, lanes, size, LINE, offsets, LINE * distance)
    for other in ((8, lanes, size), (7, lanes ^ lanes & -lanes, size), (7, lanes, 32)):
        assert not fits(here, *other, LINE, offsets, LINE * distance)
    assert not fits(here, 7, lanes, size, LINE, offsets, LINE * distance + 4)
    active = [lane for lane in range(64) if lanes >> lane & 1]
    offsets[active[-1]] += LINE
    assert fits(here, 7, lanes, size, LINE, offsets, LINE * distance) == (len(active) == 1)


@pytest.mark.parametrize(
    "size, stride, begin, clocks",
    [
        (4, 4, 0, 4), (4, 4, 16, 8), (16, 4, -16, 20), (16, 4, 0, 20), (16, 8, -16, 24), (8, 8, 16, 24), (8, 8, 0, 16),
        (16, 16, 0, 16),
    ],
)
def test_lanes_that_overlap_take_a_clock_a_line(size: int, stride: int, begin: int, clocks: int) -> None:
    """TCP_TOTAL_CACHE_ACCESSES of ROCm's seismic stencils on MI250X, 64-byte lines a wave.

    Along x, R = 4, aligned: 6,979 MB of 2^21 waves are 52, by dwordx4 at -16 and 0, dword at 16 and a store. By float2, 5,906 MB of
    2^20 waves are 88, by two dwordx4, dwordx2 at 16 and a store.
    """
    pattern = found(64 + begin + stride * np.arange(64), -1, size)
    assert pattern.packed >> 24 & 0x7F == clocks


@pytest.mark.parametrize(("begin", "shift", "clocks"), [(60, 6, 8), (60, 7, 4), (124, 7, 8), (64, 7, 4)])
def test_rows_of_sixteen_lanes_take_a_clock_for_each_line_of_the_vector_cache(begin: int, shift: int, clocks: int) -> None:
    """Four rows, 1 KB apart, of 16 consecutive floats that begin at a distance from a line. Lines have 128 bytes from gfx942 on."""
    lanes = np.arange(64)
    pattern = found(begin + lanes // 16 * 1024 + lanes % 16 * 4, -1, 4, shift)
    assert pattern.packed >> 24 & 0x7F == clocks


@given(OFFSETS, LANES, st.sampled_from(SIZES), st.sampled_from(["gfx90a", "gfx950"]), st.integers(0, 1 << 14), st.booleans())
@settings(max_examples=examples(16))
def test_lds(offsets: np.ndarray, lanes: int, size: int, arch: str, distance: int, write: bool) -> None:
    rule = rules_of(arch).view(np.recarray)[int(write), SIZES.index(size)]
    room = np.zeros(DISTINCT + 64, np.int64)
    lost = [lost_clocks(rule, offsets + moved, lanes, size // 4, room) for moved in (0, 4 * distance)]
    assert lost[0] == lost[1]
