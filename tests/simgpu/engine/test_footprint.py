"""Footprints: ranges against sets of bytes, and what launches touch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.engine.footprint import NOTHING, Footprint, first_common, merge, runs
from tests.support.checked import assembled
from tests.support.kernels import KernelText, assemble

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))), max_size=6)
ACCESSES = ("load", "load past the caches", "store", "atomic")


def bytes_of(ranges: np.ndarray | list[tuple[int, int]]) -> set[int]:
    return {byte for first, end in ranges for byte in range(first, end)}


@given(RANGES, RANGES)
def test_ranges_are_sets_of_bytes(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    mine, theirs = merge(a), merge(b)
    assert bytes_of(mine) == bytes_of(a) and (mine[1:, 0] > mine[:-1, 1]).all()
    assert runs(np.array(sorted(bytes_of(a)), np.int64), 1, 0).tolist() == mine.tolist()
    common, both = first_common(mine, theirs), bytes_of(a) & bytes_of(b)
    assert (common is None) == (not both)
    if common is not None:
        assert common[0] == min(both) and bytes_of([common]) <= both and common[1] not in both


@given(st.tuples(*8 * [RANGES]))
def test_what_clashes(ranges: tuple[list[tuple[int, int]], ...]) -> None:
    """Byte by byte: one side writes, and not both are atomic or past the caches."""
    first, second = (Footprint(*map(merge, ranges[at : at + 4])) for at in (0, 4))
    sets = [[bytes_of(each) for each in side] for side in (first, second)]
    clashing = {
        byte for a, mine in enumerate(sets[0]) for b, theirs in enumerate(sets[1]) for byte in mine & theirs
        if 1 in (a, b) or {a, b} == {0, 3}
    }  # fmt: skip
    found = first.clash(second)
    assert second.clash(first) == found and (found is None) == (not clashing)
    if found is not None:
        assert found[0] == min(clashing) and bytes_of([found]) <= clashing


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_a_launch_tells_what_it_touched(target: str, data: st.DataObject) -> None:
    """Loads, stores and atomics of one wave or several, of 1 to 16 bytes, in the order of their addresses or not."""
    size = data.draw(st.sampled_from((1, 2, 4, 8, 16)))
    kind = data.draw(st.sampled_from(ACCESSES if size == 4 else ACCESSES[:3]))
    stride, first = data.draw(st.sampled_from((1, 3, -1))) * size, 64 * size * 3 + data.draw(st.integers(0, 5)) * size
    groups = data.draw(st.sampled_from((1, 3)))
    name = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2", 16: "dwordx4"}[size]
    register = {8: "v[8:9]", 16: "v[8:11]"}.get(size, "v8")
    past = "sc1" if target == "gfx942" else "glc"
    op = {
        "load": f"global_load_{'u' * (size < 4)}{name} {register}, v4, s[4:5]",
        "load past the caches": f"global_load_{'u' * (size < 4)}{name} {register}, v4, s[4:5] {past}",
        "store": f"global_store_{name} v4, {register}, s[4:5]", "atomic": "global_atomic_add v4, v8, s[4:5]",
    }[kind]  # fmt: skip
    lines = [
        *(f"v_mov_b32 v{register}, 0" for register in range(8, 12)),
        f"v_mul_i32_i24 v4, {stride}, v0", f"v_add_u32 v4, {first}, v4", op, "s_waitcnt vmcnt(0)",
    ]  # fmt: skip
    gpu = simgpu.Device(target, check=True)
    gpu.footprints = True
    buffers = [gpu.upload(np.zeros(4096, np.uint32)) for _ in range(2)]
    run = gpu.load(assembled(target, lines))["k"].launch(grid=groups, block=64, args=buffers)
    touched = {buffers[0].address + first + lane * stride + byte for lane in range(64) for byte in range(size)}
    footprint = run.footprint
    assert footprint is not None
    of_kind = dict(zip(ACCESSES, (footprint.reads, footprint.polls, footprint.writes, footprint.atomics)))
    assert bytes_of(of_kind.pop(kind)) == touched
    assert all(ranges.tolist() == NOTHING.tolist() for ranges in of_kind.values())


def test_a_launch_without_memory_touches_nothing() -> None:
    gpu = simgpu.Device("mi300x", check=True)
    gpu.footprints = True
    run = gpu.load(assemble("gfx942", KernelText("k", "s_nop 0")))["k"].launch(grid=2, block=64)
    assert run.findings == [] and run.footprint is not None and not any(map(len, run.footprint))


def test_only_launches_that_are_asked_have_a_footprint() -> None:
    gpu = simgpu.Device("mi300x", check=True)
    run = gpu.load(assembled("gfx942", ["s_nop 0"]))["k"].launch(grid=1, block=64, args=[gpu.zeros(16), gpu.zeros(16)])
    assert run.footprint is None
