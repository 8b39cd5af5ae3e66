"""Kernels timed by the model: its results, omissions and refusals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.errors import LaunchError
from simgpu.sampling import kinds, samples
from simgpu.timing.lines import lines
from simgpu.timing.predict import Prediction
from tests.support.timed_kernels import LOOP, kernel_on_words

# Waits until a word that nobody writes is not 0.
SPIN = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
again:
s_sleep 1
global_load_dword v2, v1, s[4:5] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s6, v2
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 again
"""


def answer(one: Prediction) -> tuple[Any, ...]:
    return one.cycles, one.seconds, one.low, one.high, one.limit, one.result.hits.tolist(), one.result.stalls.tolist()


def test_samples_execute_what_the_launch_does_and_leave_memory_alone() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    before = buffer.download("u4")
    one = kernel.time(8, 64, [buffer])
    assert np.array_equal(buffer.download("u4"), before)
    run = kernel.launch(8, 64, [buffer])
    assert not np.array_equal(buffer.download("u4"), before)
    executed: Counter[int] = Counter()
    for group in range(8):
        trace = next((trace for trace in one.sampled.whole if trace.group == group), None)
        twin = next(trace for trace in one.sampled.whole if trace.group % 2 == group % 2) if trace is None else trace
        executed.update((4 * (twin.steps.astype(int) - one.sampled.entry)).tolist())
    assert dict(executed) == dict(run.profile)


@pytest.mark.parametrize(
    "more, restored",
    [("", False), ("global_load_dword v9, v1, s[4:5] glc\n", True), ("global_store_dword v1, v2, s[4:5] glc slc\n", False)],
)
def test_a_large_buffer_may_keep_what_samples_wrote_unless_these_may_run_again(
    more: str, restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workgroups may wait for others by a load that caches do not serve. The sample that waited then runs again. A nontemporal
    store has the same modifiers on MI200, and decides nothing."""
    monkeypatch.setattr(samples, "SMALL", 0)
    kernel, buffer = kernel_on_words(LOOP + more, 256 * 8)
    before = buffer.download("u4")
    one = answer(kernel.time(8, 64, [buffer]))
    assert np.array_equal(buffer.download("u4"), before)
    assert answer(kernel.time(8, 64, [buffer], restore=False)) == one
    assert np.array_equal(buffer.download("u4"), before) == restored


def test_the_model_counts_what_the_traces_hold() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    one = kernel.time(8, 64, [buffer])
    assert one.per_cu == 1 and len(one.result.ends) == 1
    assert {line.offset: line.hits for line in lines(one)}[0] == 1
    assert one.groups == 8 and one.active == 8


def test_the_answer_is_the_same_every_time_and_after_a_run() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 40)
    first = kernel.time(40, 64, [buffer])
    assert answer(first) == answer(kernel.time(40, 64, [buffer]))
    assert answer(first) == answer(kernel.launch(40, 64, [buffer]).time())


def test_the_clock_that_is_given_holds() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 40)
    slow, fast = (kernel.time(40, 64, [buffer], mhz=mhz) for mhz in (1000, 2000))
    assert slow.clock.mhz == 1000 and slow.clock.source == "given"
    assert slow.seconds > fast.seconds > slow.seconds / 2 * 0.99
    assert slow.low < slow.seconds < slow.high


@pytest.mark.slow
def test_more_workgroups_never_take_less() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 10_000)
    found = [kernel.time(count, 64, [buffer]).cycles for count in (1, 104, 105, 10_000)]
    assert found == sorted(found) and found[-1] > 2 * found[0]


def test_warm_caches_are_no_slower() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 2000, target="gfx942")
    cold, warm = (kernel.time(2000, 64, [buffer], warm=warm) for warm in (False, True))
    assert warm.cycles < cold.cycles


@pytest.mark.parametrize(("kilobytes", "misses"), [(2048, False), (512, True)])
def test_a_warm_cache_has_lines_only_if_those_of_all_rounds_fit(kilobytes: int, misses: bool) -> None:
    """16 rounds of 256 workgroups load and store 1 MB; one round's part would fit."""
    kernel, buffer = kernel_on_words(LOOP, 256 * 4096, target="gfx942")
    gpu = kernel.module.device
    gpu.descriptor = replace(gpu.descriptor, num_cus=8, mall_bytes=kilobytes << 10)
    one = kernel.time(4096, 64, [buffer], warm="last")
    assert (one.traffic.hbm_bytes > 0) == misses


def test_memory_that_a_launch_accesses_is_at_most_its_allocations() -> None:
    """All workgroups access the same lines, so the launch's accesses say nothing of its memory."""
    kernel, buffer = kernel_on_words(LOOP.replace("s_lshl_b32 s6, s2, 8", "s_mov_b32 s6, 0"), 256, target="gfx942")
    sampled = kernel.time(4096, 64, [buffer]).sampled
    assert sampled.reachable == 256


def test_a_kernel_that_waits_for_ever_is_refused_in_words() -> None:
    kernel, _ = kernel_on_words(SPIN, 256, max_instructions=200_000)
    buffer = kernel.module.device.alloc(256)
    with pytest.raises(LaunchError, match="waits for others"):
        kernel.time(4, 64, [buffer])


def test_clocks_that_are_none_are_refused() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    for mhz in (0, -1, float("nan"), float("inf")):
        with pytest.raises(LaunchError, match="engine's clock in MHz"):
            kernel.time(8, 64, [buffer], mhz=mhz)


@pytest.mark.slow
def test_a_loop_past_what_is_traced_goes_on_as_until_there() -> None:
    """Four times the passes take four times the clocks, though the trace holds fewer than either."""
    found = []
    for passes in (0x100000, 0x400000):
        kernel, buffer = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", f"s_mov_b32 s7, {passes}"), 256)
        found.append(kernel.time(1, 64, [buffer]))
    for one in found:
        (trace,) = one.sampled.whole
        assert trace.complete and trace.stretch > 2 and one.high / one.seconds > 1.16
        assert any("as long as was traced" in note for note in one.notes)
    assert found[1].cycles / found[0].cycles == pytest.approx(4, rel=0.01)


def test_a_workgroup_that_has_no_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MOST_STEPS", 1 << 20)
    kernel, buffer = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 0x100000"), 256)
    one = kernel.time(1, 64, [buffer])
    assert any("went on past" in note for note in one.notes) and one.high / one.seconds > 1.5


@pytest.mark.slow
def test_all_waves_of_a_beginning_go_on_where_one_has_gone_far_enough() -> None:
    """Otherwise the beginnings of long kernels hold one wave's accesses, and caches see part of the round."""
    kernel, buffer = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 0x100000"), 1 << 17)
    one = kernel.time(104, 256, [buffer])
    for trace in one.sampled.beginnings:
        executed = np.diff(trace.starts)
        assert len(executed) == 4 and executed.min() > 0.9 * executed.max() > 100


def test_partial_workgroups_have_fewer_waves() -> None:
    kernel, buffer = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 1"), 4096)
    one = kernel.time(global_size=64 * 7, block=256, args=[buffer])
    assert not any("went on past" in note for note in one.notes)
    run = kernel.launch(global_size=64 * 7, block=256, args=[buffer])
    assert sum(map(len, one.sampled.whole)) == run.instructions and len(one.sampled.whole) == 2


CUT = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_and_b32 s5, s5, 0xffff
s_movk_i32 s6, {records}
s_mov_b32 s7, 0x27000
v_lshlrev_b32 v1, 4, v0
buffer_load_dwordx4 v[4:7], v1, s[4:7], 0 offen
s_waitcnt vmcnt(0)
buffer_store_dwordx4 v[4:7], v1, s[4:7], 0 offen
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("records, lines", [(1024, 16), (1016, 16), (516, 9), (8, 1)])
def test_a_lane_that_a_buffer_cuts_costs_no_more_than_its_own_dwords(records: int, lines: int) -> None:
    """All lanes but one are moved at once; `lines` of 64 bytes are in range."""
    kernel, buffer = kernel_on_words(CUT.format(records=records), 4096)
    (trace,) = kernel.time(1, 64, [buffer]).sampled.whole
    _, load, store = trace.accesses
    assert lines <= load[0] <= lines + 4 and list(load[3:]) == list(store[3:])


def test_a_run_of_the_engines_own_device_cannot_be_timed() -> None:
    from simgpu.engine.result import Run

    with pytest.raises(LaunchError, match="cannot be timed"):
        Run(0, 0.0, {}).time()


def test_without_room_to_restore_memory_a_launch_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux would end the process without a word. The launch itself still runs."""
    kernel, buffer = kernel_on_words(CUT.format(records=1024), 4096)
    monkeypatch.setattr("simgpu.engine.allocations.LARGE", 0)
    monkeypatch.setattr("simgpu.engine.allocations.free_bytes", lambda: 1e3)
    with pytest.raises(LaunchError, match="all memory that kernels may write is copied, to restore it"):
        kernel.time(1, 64, [buffer])
    assert kernel.launch(1, 64, [buffer]).instructions


@pytest.mark.slow
def test_the_next_round_is_sampled_if_workgroups_are_cut() -> None:
    """A round of MI250X is 104 CUs with two workgroups of 16 waves, whose loop is too long to be traced to its end."""
    kernel, buffer = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", "s_movk_i32 s7, 0x3ff"), 1 << 17)
    places = 104 * 2

    def found(groups: int) -> tuple[list[int], list[int]]:
        sampled = kernel.time(groups, 1024, [buffer]).sampled
        return [trace.group for trace in sampled.beginnings], [trace.group for trace in sampled.later]

    assert found(places) == (list(range(places)), [])
    begun, later = found(2 * places - 8)
    assert begun == list(range(places)) and later == list(range(places, 2 * places - 8))
