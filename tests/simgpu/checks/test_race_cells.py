"""Marks of LDS that decide whether a load takes the quick way: compiled code against its definition."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.checks.races import cells
from simgpu.machine.jit import compiler
from simgpu.machine.runtime import structure, words
from simgpu.machine.runtime.functions import Runtime
from tests.support.exhaustive import examples

DWORDS = 64 * 4


def quick(area: int, lanes: int, offsets: int, count: int) -> int:
    return 1 if cells.widely_read(structure(area, cells.AREA), lanes, words(offsets, 64), count) else 0


@settings(max_examples=examples(60))
@given(
    common=st.sampled_from([cells.SHARED_MARK, cells.SHARED_MARK | cells.SPLIT_MARK, 0]),
    other=st.sampled_from([0, cells.NARROW_MARK, cells.SHARED_MARK, cells.WRITTEN_MARK, cells.SPLIT_MARK]),
    place=st.integers(0, DWORDS - 1),
    lanes=st.sampled_from([-1, 1, 0x5555]),
    count=st.sampled_from([1, 2, 4]),
)
def test_a_load_is_quick_if_all_its_dwords_are_shared_and_none_written(
    common: int, other: int, place: int, lanes: int, count: int
) -> None:
    runtime = Runtime(quick)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(
        compiler().address_of_source(f"{__name__}.{runtime.text('f')}", runtime.source)
    )
    marks = np.full(DWORDS, common, np.uint8)
    marks[place] |= other
    offsets = 4 * count * np.arange(64)
    area = cells.Area(dwords=DWORDS)
    area.maps[cells.MARKS] = marks.ctypes.data
    read = np.concatenate([marks[lane * count : lane * count + count] for lane in range(64) if lanes >> lane & 1])
    shared, spoilt = read & cells.SHARED_MARK != 0, read & (cells.NARROW_MARK | cells.WRITTEN_MARK) != 0
    assert call(ctypes.addressof(area), lanes, offsets.ctypes.data, count) == (shared.all() and not spoilt.any())
