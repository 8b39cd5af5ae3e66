"""Levels that serve a workgroup's lines, and lines still on their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simgpu import hardware
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import NextRound, Shares, Warm, first_caches, shares
from simgpu.timing.code import columns
from simgpu.timing.footprint import reach_of
from simgpu.timing.gpu import MOST_LOAD, STEADY_LOAD, Load, settle
from simgpu.timing.trace import Trace

LOAD = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=16, counts_vm=True)
ARCH, LINES = "gfx942", 16  # 64-byte lines of a load


def streaming(group: int, first: int, loads: int) -> Trace:
    """Makes a wave that loads consecutive kilobytes from line `first` on."""
    accesses = np.array([(16, LINES * at, LINES) for at in range(loads)], np.int32)
    lines = np.arange(first, first + LINES * loads, dtype=np.uint32)
    ends = np.array([0, loads])
    return Trace(np.zeros(loads, np.uint32), ends, accesses, ends, lines, True, group)


def served(traces: list[Trace], warm: Warm = False, issue: Issue = LOAD) -> Shares:
    chip, row = hardware.target("mi300x"), pipelines(ARCH)
    code = columns({0: (issue, 1)}, 1, row)
    return shares(traces, first_caches(traces, code, row, 1, [-1] * len(traces)), code, chip, row, 1, warm)


def test_workgroups_that_share_lines_wait_for_them_together() -> None:
    xcds = hardware.target("mi300x").xcds
    found = served([streaming(group * xcds, 0, 64) for group in range(4)])  # all of one XCD
    assert found.past[:, 0] == pytest.approx([0.25, 1.0])
    assert found.late[:, 0] == pytest.approx([1.0, 1.0], abs=0.01)
    apart = served([streaming(group * xcds, group << 16, 64) for group in range(4)])
    assert apart.past[:, 0] == pytest.approx([1.0, 1.0]) == apart.late[:, 0]


def test_xcds_fetch_shared_lines_once_from_memory() -> None:
    found = served([streaming(group, 0, 64) for group in range(4)])
    assert found.past[:, 0] == pytest.approx([1.0, 0.25])
    assert found.late[:, 0] == pytest.approx([1.0, 1.0], abs=0.01)


def test_lines_of_long_ago_are_there() -> None:
    """A workgroup goes through its lines again, later by more than a latency's worth of bytes."""
    row = pipelines(ARCH)
    loads = 2 * row.in_flight // 1024
    once = streaming(0, 0, loads)
    twice = Trace(
        np.zeros(2 * loads, np.uint32), np.array([0, 2 * loads]), np.concatenate([once.accesses, once.accesses]),
        np.array([0, 2 * loads]), once.lines, True, 0,
    )  # fmt: skip
    found = served([twice])
    assert found.past[:, 0] == pytest.approx([0.5, 1.0]) == found.late[:, 0]


@pytest.mark.parametrize("arch, board", [("gfx90a", "mi210"), ("gfx942", "mi300x")])
def test_l2_passes_whole_lines_on_whatever_the_vector_cache_asks_for(arch: str, board: str) -> None:
    """gfx90a's vector cache asks for 64 of 128 bytes at a time, as each store does: all of these bytes are drawn."""
    chip, row = hardware.target(board), pipelines(arch)
    trace = streaming(0, 0, 64)
    for issue in (LOAD, replace(LOAD, store=True)):
        code = columns({0: (issue, 1)}, 1, row)
        found = shares([trace], first_caches([trace], code, row, 1, [-1]), code, chip, row, 1, False)
        assert found.past[:, 0] == pytest.approx([1.0, 1.0])
        assert found.l2_bytes == found.past_l2_bytes == found.hbm_bytes == 64 * 1024


@pytest.mark.parametrize("apart", [1, 8], ids=["two XCDs", "one XCD"])
def test_halves_of_a_line_are_written_once_each(apart: int) -> None:
    """Two workgroups store a half of each line: 64 bytes a request leave L2, whether or not they are on the same XCD."""
    lines = np.arange(0, 2 * LINES * 64, 2, np.uint32)
    both = [replace(streaming(group, 0, 64), lines=lines + half) for half, group in ((np.uint32(0), 0), (np.uint32(1), apart))]
    found = served(both, issue=replace(LOAD, store=True))
    assert found.past[0, 0] == pytest.approx(1.0)


def test_a_load_waits_for_all_of_a_line_that_it_brings() -> None:
    """Two requests of MI210's vector cache, half a line of L2 each, belong to one load; both are under way."""
    chip, row = hardware.target("mi210"), pipelines("gfx90a")
    trace, code = streaming(0, 0, 64), columns({0: (LOAD, 1)}, 1, row)
    found = shares([trace], first_caches([trace], code, row, 1, [-1]), code, chip, row, 1, False)
    assert found.late[:, 0] == pytest.approx([1.0, 1.0], abs=0.01)


def test_a_line_that_is_read_and_stored_to_is_drawn_and_written_back_once() -> None:
    chip, row = hardware.target("mi300x"), pipelines(ARCH)
    code = columns({0: (LOAD, 1), 1: (replace(LOAD, store=True), 1), 2: (replace(LOAD, store=True), 1)}, 3, row)
    lines = np.tile(np.arange(LINES, dtype=np.uint32), 3)
    accesses = np.array([(16, LINES * at, LINES) for at in range(3)], np.int32)
    trace = Trace(np.arange(3, dtype=np.uint32), np.array([0, 3]), accesses, np.array([0, 3]), lines, True, 0)
    found = shares([trace], first_caches([trace], code, row, 1, [-1]), code, chip, row, 1, False)
    assert found.past[0].tolist() == [1.0, 1.0, 0.0] and found.hbm_bytes == 2 * 1024


def test_a_warm_last_cache_keeps_memory_out() -> None:
    found = served([streaming(0, 0, 64)], warm="last")
    assert found.past[:, 0].tolist() == [1.0, 0.0] == found.late[:, 0].tolist()


@pytest.mark.parametrize("kilobytes, store, past", [(64, False, 0.0), (5000, False, 1.0), (64, True, 1.0)])
def test_a_warm_l2_serves_loads_of_what_one_xcds_holds(kilobytes: int, store: bool, past: float) -> None:
    """4 MB. What a launch stores is written back at its end, even if earlier launches stored it too."""
    found = served([streaming(0, 0, kilobytes)], True, replace(LOAD, store=store))
    assert found.past[:, 0].tolist() == [past, 0.0]


@pytest.mark.parametrize(("kilobytes", "past"), [(3000, 0.0), (5000, 1.0)])
def test_each_xcd_keeps_what_its_own_workgroups_load(kilobytes: int, past: float) -> None:
    """Eight workgroups, one on each XCD, load other lines each: 24 or 40 MB, and an L2 has 4."""
    found = served([streaming(group, group << 17, kilobytes) for group in range(8)], True)
    assert found.past[:, 0].tolist() == [past, 0.0]
    assert found.of_an_xcd == kilobytes << 10


@pytest.mark.parametrize("wanted", [0.0, 0.2, 0.6, 3.0])
def test_loads_settle_where_they_make_themselves(wanted: float) -> None:
    """Requests fall as the load lengthens latency; if they ask for everything, the load is the greatest possible."""

    def run(load: Load) -> tuple[float, Load, float]:
        made = min(MOST_LOAD, wanted / (1 + load[1] / (1 - load[1])))
        return load[1], (0.0, made), 0.0

    found = settle(run)
    assert found == pytest.approx(min(MOST_LOAD, wanted * (1 - found)), abs=2 * STEADY_LOAD)


def strided(board: str, rows_apart: int, waves: int = 1) -> Shares:
    """Runs workgroups of a wave whose 64 lanes load from rows `rows_apart` bytes apart, twice the same line."""
    chip, row = hardware.target(board), pipelines(hardware.target(board).arch)
    code = columns({0: (LOAD, 1), 1: (LOAD, 1)}, 2, row)
    accesses = np.array([(64, 0, 64), (64, 64, 64)], np.int32)
    traces = []
    for group in range(64):
        lines = np.tile((np.arange(64) + 64 * group) * (rows_apart // 64), 2).astype(np.uint32)
        traces.append(Trace(np.array([0, 1], np.uint32), np.array([0, 2]), accesses, np.array([0, 2]), lines, True, group))
    served = first_caches(traces, code, row, waves, [-1] * len(traces))
    return shares(traces, served, code, chip, row, waves, False)


def test_rows_a_power_of_two_apart_share_few_sets_of_the_vector_cache() -> None:
    """Low bits of the address select its sets. A single wave finds the lines of 64 rows again, but waves that share it do not.

    ROCm Compute Profiler counted so for yAx on MI210 (hit rate 0). For adjacent rows both find them.
    """
    assert strided("mi210", 256 << 10).l2_bytes == 64 * 64 * 64
    assert strided("mi210", 256 << 10, waves=4).l2_bytes == 2 * 64 * 64 * 64
    assert strided("mi210", 64, waves=4).l2_bytes == 64 * 64 * 64


@pytest.mark.parametrize("rows, apart, misses", [(192, 768, 3), (128, 512, 5), (64, 256, 3), (64, 512, 3)])
def test_rows_of_two_matrices_in_the_vector_cache_of_mi300(rows: int, apart: int, misses: int) -> None:
    """A workgroup loads a line of each row of two matrices twice, then the next ones: three times, as products with a vector do.

    On an MI300A (MGPUSim's gesummv), 384 lines in rows of 768 bytes take as long as if all hit the second time, and 256 lines in
    rows of 512 bytes as if all missed: they fill two sets, whose lines are replaced. 512 lines that stay all hit (its kmeans).
    """
    lines = np.concatenate([np.arange(rows) * apart // 64 + first for first in (0, 1 << 16)])
    found = _passed([lines + at for at in (0, 0, 1, 1, 2, 2)])
    assert misses * len(lines) <= found <= misses * len(lines) + 4  # the spare way of each set had a line
    assert _passed([np.arange(512)] * 3) == 256  # of 128 bytes


def _passed(loads: list[np.ndarray]) -> int:
    """Returns the lines that miss the vector cache of an MI300X if a wave loads these one after another."""
    lines = np.concatenate(loads).astype(np.uint32)
    accesses = np.array([(64, 64 * at, 64) for at in range(len(lines) // 64)], np.int32)
    ends = np.array([0, len(accesses)])
    trace = Trace(np.zeros(len(accesses), np.uint32), ends, accesses, ends, lines, True, 0)
    row = pipelines(ARCH)
    (served,) = first_caches([trace], columns({0: (LOAD, 1)}, 1, row), row, 1, [-1])
    return int(served.accesses[:, 2].sum())


def test_workgroups_in_other_sets_do_not_take_ways() -> None:
    """A workgroup's rows are in one set. It keeps its lines if the others are in other sets, and loses them if all are there."""
    row, code = pipelines(ARCH), columns({0: (LOAD, 1)}, 1, pipelines(ARCH))

    def passed(blocks: list[int]) -> list[int]:
        accesses, ends = np.array([(64, 64 * at, 64) for at in range(2)], np.int32), np.array([0, 2])
        traces = []
        for group, block in enumerate(blocks):
            lines = np.tile((np.arange(60) + 60 * group) * 16 + 4 * block, 2)[:120].astype(np.uint32)
            lines = np.concatenate([lines[:60], lines[56:60], lines[60:], lines[116:]])
            traces.append(Trace(np.zeros(2, np.uint32), ends, accesses, ends, lines, True, group))
        return [len(one.lines) for one in first_caches(traces, code, row, 4, [-1] * len(traces))]

    assert passed([0, 1, 2, 3]) == [60] * 4
    assert min(passed([0] * 4)) > 60


def test_l2_keeps_rows_a_power_of_two_apart() -> None:
    """MI210's and MI300A's L2 had 93 % of yAx's lines (amd/HPCTrainingExamples): not all rows need the same set."""
    found = strided("mi210", 256 << 10, waves=4)
    assert found.past[0, 1] == 0


def test_stores_that_no_beginning_comes_to_write_their_lines_once() -> None:
    """Parallel workgroups traced only loads; one traced to its end stores whole lines, or every second half, as half a line."""
    chip, row = hardware.target("mi300x"), pipelines(ARCH)
    code = columns({0: (LOAD, 1), 1: (replace(LOAD, store=True), 1)}, 2, row)
    beginning = streaming(0, 0, 4)
    accesses = np.array([(16, 0, LINES), (16, LINES, LINES)], np.int32)
    for apart in (1, 2):  # in lines of 64 bytes
        lines = np.concatenate([np.arange(LINES), 4096 + apart * np.arange(LINES)]).astype(np.uint32)
        whole = Trace(np.arange(2, dtype=np.uint32), np.array([0, 2]), accesses, np.array([0, 2]), lines, True, 0)
        given = first_caches([beginning, whole], code, row, 1, [-1, -1])
        found = shares([beginning], given[:1], code, chip, row, 1, False, [(whole, given[1])])
        assert found.past[:, 1] == pytest.approx([1.0, 1.0])


def test_stores_after_the_beginnings_fill_the_lines_of_the_first_ones() -> None:
    """A loop stores sixteen parts of each half line. The parallel workgroups are traced for one pass only."""
    chip, row, passes = hardware.target("mi300x"), pipelines(ARCH), 16
    code = columns({0: (replace(LOAD, store=True), 1)}, 1, row)
    whole = replace(streaming(0, 0, passes), lines=np.tile(np.arange(LINES, dtype=np.uint32), passes))
    beginning = streaming(0, 0, 1)
    given = first_caches([beginning, whole], code, row, 1, [-1, -1])
    found = shares([beginning], given[:1], code, chip, row, 1, False, [(whole, given[1])])
    assert found.past[0, 0] == pytest.approx(1 / passes)


def at_one_line(xcds: Sequence[int], issue: Issue) -> Shares:
    """Workgroups, each of an XCD, that access the same line one after another."""
    chip, row = hardware.target("mi300x"), pipelines(ARCH)
    code = columns({0: (issue, 1)}, 1, row)
    steps, ends, accesses = np.zeros(1, np.uint32), np.array([0, 1]), np.array([(1, 0, 1)], np.int32)
    traces = [Trace(steps, ends, accesses, ends, np.array([5], np.uint32), True, group) for group in xcds]
    return shares(traces, first_caches(traces, code, row, 1, [-1] * len(traces)), code, chip, row, 1, False)


@pytest.mark.parametrize("kind", [Kind.VMEM, Kind.SMEM])
def test_a_workgroup_finds_first_caches_without_lines_of_the_workgroups_before(kind: Kind) -> None:
    """Each has 16 waves, so that its lines are in another order than its accesses."""
    row, code = pipelines(ARCH), columns({0: (replace(LOAD, kind=kind), 1)}, 1, pipelines(ARCH))
    ends = np.arange(0, 65, 4)
    traces = []
    for group, first in enumerate((0, 0, 40)):
        lines = (first + 7 * np.arange(64) % 48).astype(np.uint32)
        accesses = np.array([(1, at, 1) for at in range(64)], np.int32)
        traces.append(Trace(np.zeros(64, np.uint32), ends, accesses, ends, lines, True, group))
    together = first_caches(traces, code, row, 1, [-1, 0, 1])
    pairs = [first_caches(traces[at : at + 2], code, row, 1, [-1, 0]) for at in (0, 1)]
    alone = [first_caches(traces[:1], code, row, 1, [-1])[0], *(pair[1] for pair in pairs)]
    for one, other in zip(together, alone, strict=True):
        for field in ("accesses", "lines", "owners"):
            assert getattr(one, field).tolist() == getattr(other, field).tolist()


@pytest.mark.parametrize("xcds, passed", [((0, 8, 16, 24), 0.25), ((0, 1, 0, 1), 1.0), ((0, 0, 1, 1), 0.5)])
def test_an_atomic_takes_the_line_from_other_xcds(xcds: tuple[int, ...], passed: float) -> None:
    assert at_one_line(xcds, replace(LOAD, atomic=True)).past[0, 0] * 64 / 128 == pytest.approx(passed)


def test_loads_leave_the_line_to_other_xcds() -> None:
    assert at_one_line((0, 1, 0, 1), LOAD).past[0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize("change, misses", [({}, [1, 0, 0]), ({"coherent": True}, [1, 1, 1]), ({"atomic": True}, [1, 1, 1])])
@pytest.mark.parametrize("kind", [Kind.VMEM, Kind.SMEM])
def test_caches_before_l2_serve_no_coherent_load_and_no_atomic(kind: Kind, change: dict[str, bool], misses: list[int]) -> None:
    unit = Unit.VMEM if kind is Kind.VMEM else Unit.SCALAR
    row, code = pipelines(ARCH), columns({0: (replace(LOAD, unit=unit, kind=kind, **change), 1)}, 1, pipelines(ARCH))
    ends, accesses = np.array([0, 3]), np.array([(1, at, 1) for at in range(3)], np.int32)
    trace = Trace(np.zeros(3, np.uint32), ends, accesses, ends, np.full(3, 5, np.uint32), True, 0)
    assert first_caches([trace], code, row, 1, [-1])[0].accesses[:, 2].tolist() == misses


def test_a_line_that_another_xcd_stored_moves_once_to_each_that_loads_it() -> None:
    """Workgroups of four XCDs load the same lines: one is taken for the XCD that stored them, and its L2 has them."""
    groups = [streaming(group, 0, 64) for group in range(4)]
    alone, found, last = served(groups[:1], "stored"), served(groups, "stored"), served(groups, "last")
    assert (alone.past[0, 0], alone.moved[0], last.moved[0]) == pytest.approx((0.0, 0.0, 0.0), abs=1e-4)
    assert (found.past[0, 0], found.moved[0]) == pytest.approx((0.75, 1.0), abs=1e-3)
    twice = served([*groups, *(replace(one, group=one.group + 8) for one in groups)], "stored")  # eight XCDs: the same again
    assert twice.past[0, 0] == pytest.approx(0.75 / 2, abs=1e-3)


def halves(group: int, first: int, both: bool) -> Trace:
    """Makes a wave that loads every second line of 64 bytes from `first` on, or all of them."""
    one = streaming(group, 0, 64)
    step = 1 if both else 2
    return replace(one, lines=(step * np.arange(len(one.lines)) + first).astype(np.uint32))


def test_halves_of_a_line_that_an_xcd_stored_itself_do_not_move() -> None:
    """Two XCDs have a half each of every line. A third loads both, and one of the two wants the other half too."""
    even, odd = halves(0, 0, False), halves(1, 1, False)
    assert served([even, odd], "stored").moved[0] == pytest.approx(0.0, abs=1e-4)
    third = served([even, odd, halves(2, 0, True)], "stored")
    assert third.moved[0] == pytest.approx(1.0, abs=1e-3)
    neighbour = served([even, odd, halves(8, 1, False)], "stored")  # of the first XCD
    assert (neighbour.past[0, 0], neighbour.moved[0]) == pytest.approx((1 / 3, 1.0), abs=1e-3)


def test_lines_that_the_l2s_no_longer_hold_do_not_move() -> None:
    """An XCD loads 12 MB, and its L2 has 4."""
    found = served([streaming(group, 0, 12 << 10) for group in range(2)], "stored")
    assert found.moved[0] == pytest.approx(0.0, abs=1e-3) and found.past[0, 0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("share", "l2s", "kept"), [(1.0, 0.2, 1.0), (0.5, 0.2, 1.0), (1.0, 1.0, 0.5), (1.0, 3.0, 0.0)])
def test_a_later_round_finds_lines_of_the_one_before_in_its_xcds_l2(share: float, l2s: float, kept: float) -> None:
    """Beginnings of 64 workgroups load 16 lines each, and those of the next round a part of the same. l2s: bytes that a round of an
    XCD accesses, divided by those of L2: at 1, sets with more lines than ways lose all, half of them (Poisson)."""
    chip, row = hardware.target("mi300x"), pipelines(ARCH)
    code = columns({0: (LOAD, 1)}, 1, row)
    count, shared = 64, int(16 * share)
    first = [streaming(group, 16 * LINES * group, 16) for group in range(count)]
    own = [np.concatenate([one.lines[: LINES * shared], (1 << 20) + one.lines[LINES * shared :]]) for one in first]
    later = [replace(trace, lines=lines) for trace, lines in zip(first, own, strict=True)]
    elsewhere = [replace(trace, group=trace.group + 1) for trace in first]
    whole = streaming(0, 0, round(16 * l2s * chip.l2_bytes / (count / chip.xcds * 16 * LINES * 64)))
    reach = reach_of(2 * count, [whole], first, code, row.l2_line, 1e12, same=False)

    def found(after: list[Trace]) -> tuple[float, float]:
        given = first_caches([*first, *after], code, row, 1, [-1] * (2 * count))
        made = shares(
            first, given[:count], code, chip, row, 1, False, reach=reach, after=NextRound(after, given[count:], count, 2.0)
        )
        assert made.rounds and made.rounds[0][0, 0, 0] == pytest.approx(1.0)
        assert made.past[0, 0] == pytest.approx(made.rounds[0][:, 0, 0].mean())  # two rounds
        return made.rounds[0][1, 0, 0], made.rounds[1][1, 0, 0]

    assert found(later) == pytest.approx((1 - share * kept, 1 - share * kept), abs=0.06)
    assert found(elsewhere) == pytest.approx((1.0, 1.0), abs=0.01)
