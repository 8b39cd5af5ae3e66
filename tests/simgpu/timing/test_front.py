"""Requests of workgroups that begin together, and of a front of workgroups that moves through a launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simgpu import hardware
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import ServedAccesses, shares
from simgpu.timing.code import columns
from simgpu.timing.front import STAGES, Front, Timetable, front_times, in_step, runs, timetable, turns
from simgpu.timing.trace import Trace

LOAD = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=8, counts_vm=True)
STORE = replace(LOAD, store=True)
MI210, ROW = hardware.target("mi210"), pipelines("gfx90a")
LINE = ROW.l2_line // 64  # 64-byte lines of a line of L2
LATENCY = 1.0  # clocks
EVEN = Timetable(100 * (np.arange(STAGES)[None] + 0.5) / STAGES, 100, LATENCY)  # 100 clocks, evenly filled with accesses


def test_workgroups_that_begin_together_take_turns_of_sixteen_lines() -> None:
    """Two workgroups: 20 requests by accesses of eight, and one request."""
    starts, groups = runs(np.array([0] * 8 + [1] * 12 + [0]), np.array([0, 20, 21]))
    assert (starts.tolist(), groups.tolist()) == ([0, 8, 16, 20, 21], [0, 3, 4])
    assert turns(np.array([0, 8, 16, 0]), groups).tolist() == [0, 1, 3, 2]


def test_workgroups_in_step_do_the_same_access_at_a_time() -> None:
    """Two workgroups of two waves. An edge masks most lines of the second, which is not faster for that."""
    counts = np.array([8, 6, 8, 6, 8, 0, 0, 0])
    times, length = in_step(counts, np.arange(0, 10, 2), np.array([0, 4, 8]))
    assert times.tolist() == [0, 12, 8, 15] * 2, "waves take turns: accesses 0 and 2, then 1 and 3"
    assert length.tolist() == [8, 3, 4, 3] * 2


@pytest.mark.parametrize("seed", range(4))
def test_equal_workgroups_are_in_step_by_their_lines(seed: int) -> None:
    """Independently, wave by wave: the lines that a workgroup requested before."""
    source = np.random.default_rng(seed)
    sizes = source.integers(0, 6, 3)
    counts, waves = source.integers(0, 9, sizes.sum()), np.cumsum([0, *sizes])
    expected, before = np.zeros(len(counts), int), 0
    for at in range(6):
        for wave in range(3):
            if at < sizes[wave]:
                expected[waves[wave] + at], before = before, before + counts[waves[wave] + at]
    both = in_step(np.tile(counts, 2), np.array([*waves[:-1], *(waves + sizes.sum())]), sizes.sum() * np.arange(3))
    assert both[0].tolist() == [*expected] * 2 and both[1].tolist() == [*counts] * 2


def test_a_front_begins_a_workgroup_when_another_ends() -> None:
    """Two workgroups at a time, of ten requests and 100 clocks each: the second begins after half of the first."""
    waves, parts = np.zeros(40, int), np.tile((np.arange(10) + 0.5) / 10, 4)
    order, times, counted = front_times(np.arange(0, 50, 10), waves, parts, 2, EVEN)
    assert times[:10].tolist() == list(range(5, 100, 10))
    assert times[10:20].tolist() == [50 + time for time in times[:10]]
    assert sorted(order.tolist()) == list(range(40)) and (np.diff(times[order]) >= 0).all()
    assert counted == (100, 200)


def test_a_timetable_is_when_waves_access_memory() -> None:
    """A wave of each of six workgroups waits for 60 of 100 clocks, then loads twice in ten; only the fourth and fifth count."""
    code = columns({0: (LOAD, 1), 1: (Issue(Unit.VALU), 1)}, 2, ROW)
    events = [(1, 0, 4), (0, 4, 60), (0, 64, 70)]  # number, clocks at which the wave comes to it and issues it
    rows = [
        (0, number, at + came, at + issued, at + issued + 4, group)
        for group, at in enumerate([0, 0, 0, 2000, 3000, 9000]) for number, came, issued in events
    ]  # fmt: skip
    ends = np.array([900, 950, 990, 2100, 3100, 9999])
    found = timetable(np.array(rows, np.int64), ends, code, 1, 1, 570)
    assert found and found.clocks[0, [0, -1]].tolist() == [60, 70]
    assert (found.life, found.latency) == (100, 570)
    assert timetable(np.zeros((0, 6), np.int64), np.zeros(0, np.int64), code, 1, 1, 570) is None


def test_waves_of_a_workgroup_have_times_of_their_own() -> None:
    table = Timetable(np.array([[0.0] * STAGES, [30.0] * STAGES]), 100, LATENCY)
    _, times, _ = front_times(np.array([0, 2]), np.array([0, 1]), np.array([0.5, 0.5]), 1, table)
    assert times.tolist() == [0, 30]


@pytest.mark.parametrize(("after", "late"), [(1, 0.99), (10, 0.9), (75, 0.25), (100, 0), (500, 0)])
def test_a_line_on_its_way_is_waited_for_as_long_as_it_still_takes(after: int, late: float) -> None:
    """Pairs of workgroups load a line each, the second `after` clocks after the first; a load takes 100."""
    code = columns({0: (LOAD, 1)}, 1, ROW)
    ends = np.array([0, 1])
    traces, served = [], []
    for group in range(40):
        lines = np.array([group // 2 * LINE], np.uint32)
        traces.append(Trace(np.zeros(1, np.uint32), ends, np.zeros((1, 6), np.int32), ends, lines, True, group))
        served.append(ServedAccesses(np.zeros((1, 3), np.int32), lines, np.zeros(1, np.int32), np.full(1, 3, np.uint8)))
    table = Timetable(np.zeros((1, STAGES)), 2 * after, 100)
    found = shares(traces, served, code, MI210, ROW, 1, False, (), Front(2, 1e9, table))
    assert found.late[0, 0] == pytest.approx((1 + late) / 2, abs=0.01)


def planes(l2_bytes: float, stored: Issue | None, together: int = 32, size: int = 128) -> float:
    """Returns how often memory reads each line of a box, whose workgroups load a row of three planes.

    l2_bytes: of a plane. size: workgroups of a plane. stored: how they store a row of another box; None: they do not.
    """
    row = int(l2_bytes / size / ROW.l2_line)  # lines
    issues = [LOAD, LOAD, LOAD] + [stored] * (stored is not None)
    code = columns({at: (issue, 1) for at, issue in enumerate(issues)}, len(issues), ROW)
    traces, served = [], []
    for group in range(12 * size):
        own = np.arange(row) + row * group
        boxes = [own + row * size * at for at in range(3)] + [own + (1 << 20)] * (stored is not None)
        lines = (np.concatenate(boxes) * LINE).astype(np.uint32)
        ends, count = np.array([0, len(boxes)]), len(boxes)
        traces.append(Trace(np.arange(count, dtype=np.uint32), ends, np.zeros((count, 6), np.int32), ends, lines, True, group))
        owners, halves = np.repeat(np.arange(count, dtype=np.int32), row), np.full(len(lines), 3, np.uint8)
        served.append(ServedAccesses(np.zeros((count, 3), np.int32), lines, owners, halves))
    found = shares(traces, served, code, MI210, ROW, 1, False, (), Front(together, 1e9, EVEN))
    return float(found.past[0, :3].sum() * ROW.cache_line / ROW.l2_line)


@pytest.mark.slow
def test_planes_that_fit_l2_are_read_once() -> None:
    """A round is a quarter of a plane, so each plane comes from an earlier round."""
    assert planes(MI210.l2_bytes / 8, None) == pytest.approx(1, abs=0.02)
    assert planes(MI210.l2_bytes * 1.2, None) == pytest.approx(3, abs=0.05)


def test_a_streamed_store_leaves_room_for_the_planes() -> None:
    """Three planes and the stored one just exceed L2, in some sets more than in others."""
    plain, streamed = (planes(MI210.l2_bytes / 4, replace(STORE, stream=stream)) for stream in (False, True))
    assert 1.7 < plain < 2.8
    assert 1 <= streamed < 1.4


def test_the_infinity_cache_forgets_lines_that_more_lines_than_it_holds_followed() -> None:
    """Two workgroups, each on its own XCD and after the other, load the same lines: twice what the cache holds, or less."""
    chip, row = replace(hardware.target("mi300x"), mall_bytes=1 << 20), pipelines("gfx942")
    code = columns({0: (LOAD, 1)}, 1, row)
    for count, fetched in ((1 << 12, 0), (1 << 14, 1 << 14)):
        lines = (np.arange(count) * LINE).astype(np.uint32)
        ends = np.array([0, 1])
        traces = [Trace(np.zeros(1, np.uint32), ends, np.zeros((1, 6), np.int32), ends, lines, True, at) for at in range(2)]
        served = [ServedAccesses(np.zeros((1, 3), np.int32), lines, np.zeros(count, np.int32), np.full(count, 3, np.uint8))] * 2
        found = shares(traces, served, code, chip, row, 1, False, (), Front(1, 1e9, EVEN))
        assert (found.past_l2_bytes, found.hbm_bytes) == (count * row.l2_line, fetched * row.l2_line)
