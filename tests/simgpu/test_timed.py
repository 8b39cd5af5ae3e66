"""Kernels timed by the model: what it says, what it leaves alone, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu import timed
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.rates.sustained import sustained
from simgpu.timing import cu
from simgpu.timing.lines import lines
from simgpu.timing.perfetto import timeline
from simgpu.timing.predict import Prediction
from simgpu.timing.thread_trace import documents, write_trace
from tests.support.kernels import loaded_kernel

# Each wave adds 1 to its 256 bytes, once, and once more where the workgroup's number is odd.
LOOP = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_lshl_b32 s6, s2, 8
v_lshl_add_u32 v1, v0, 2, s6
s_and_b32 s7, s2, 1
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 1, v2
global_store_dword v1, v2, s[4:5]
s_waitcnt vmcnt(0)
s_sub_u32 s7, s7, 1
s_cbranch_scc0 again
"""
# Waits until a word is not 0, which nobody writes.
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


def made(text: str, nbytes: int, target: str = "gfx90a", **options: Any) -> tuple[Any, Any]:
    gpu = simgpu.Device(target, threads=1, max_instructions=options.pop("max_instructions", None))
    buffer = gpu.upload(np.arange(nbytes // 4, dtype=np.uint32))
    return loaded_kernel(gpu, text, "buffer", **options), buffer


def answer(one: Prediction) -> tuple[Any, ...]:
    return one.cycles, one.seconds, one.low, one.high, one.limit, one.result.hits.tolist(), one.result.stalls.tolist()


def test_samples_execute_what_the_launch_does_and_leave_memory_alone() -> None:
    kernel, buffer = made(LOOP, 256 * 8)
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


def test_the_model_counts_what_the_traces_hold() -> None:
    kernel, buffer = made(LOOP, 256 * 8)
    one = kernel.time(8, 64, [buffer])
    assert one.per_cu == 1 and len(one.result.ends) == 1
    assert {line.offset: line.hits for line in lines(one)}[0] == 1
    assert one.groups == 8 and one.active == 8


def test_the_answer_is_the_same_every_time_and_after_a_run() -> None:
    kernel, buffer = made(LOOP, 256 * 40)
    first = kernel.time(40, 64, [buffer])
    assert answer(first) == answer(kernel.time(40, 64, [buffer]))
    assert answer(first) == answer(kernel.launch(40, 64, [buffer]).time())


def test_the_clock_that_is_given_holds() -> None:
    kernel, buffer = made(LOOP, 256 * 40)
    slow, fast = (kernel.time(40, 64, [buffer], mhz=mhz) for mhz in (1000, 2000))
    assert slow.clock.mhz == 1000 and slow.clock.source == "given"
    assert slow.seconds > fast.seconds > slow.seconds / 2 * 0.99
    assert slow.low < slow.seconds < slow.high


def test_more_workgroups_never_take_less() -> None:
    kernel, buffer = made(LOOP, 256 * 30_000)
    found = [kernel.time(count, 64, [buffer]).cycles for count in (1, 104, 105, 3000, 30_000)]
    assert found == sorted(found) and found[-1] > 2 * found[0]


def test_warm_caches_are_no_slower() -> None:
    kernel, buffer = made(LOOP, 256 * 2000, target="gfx942")
    cold, warm = (kernel.time(2000, 64, [buffer], warm=warm) for warm in (False, True))
    assert warm.cycles < cold.cycles


# Each workgroup loops as often as a table says.
BY_TABLE = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_lshl_b32 s8, s2, 2
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
s_load_dword s7, s[6:7], s8
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
s_sub_u32 s7, s7, 1
s_cmp_lg_u32 s7, 0
s_cbranch_scc1 again
"""


def by_table(passes: np.ndarray, cus: int) -> Prediction:
    """The time of a launch on a GPU of one XCD with so many CUs, each of which holds one workgroup."""
    gpu = simgpu.Device("gfx90a", threads=1)
    gpu.descriptor = replace(gpu.descriptor, num_cus=cus)
    kernel = loaded_kernel(gpu, BY_TABLE, "buffer", "buffer", group_segment_fixed_size=40_000)
    return kernel.time(len(passes), 64, [gpu.alloc(256), gpu.upload(passes.astype(np.uint32))])


HEADS = np.tile(np.arange(8) * 25 + 25, 20)  # as causal attention's rows of blocks, head by head
SHAPES = {
    "heads": HEADS,
    "few are long": np.where(np.arange(160) % 8 == 3, 300, 5),
    "the first are long": np.where(np.arange(160) < 16, 300, 5),
    "half have nothing to do": np.where(np.arange(160) < 80, 100, 1),
    "the last are long": np.arange(160) + 1,
}  # fmt: skip


@pytest.mark.parametrize("passes", SHAPES.values(), ids=list(SHAPES))
def test_workgroups_that_differ_take_what_dispatching_them_takes(passes: np.ndarray) -> None:
    """Each to the CU that is free first, for as long as the model says of one of its length; a CU's first one starts cold."""
    cus = 8
    one, more = (by_table(np.full(cus, count), cus).result.clocks for count in (1, 101))
    next_one = (by_table(np.full(11 * cus, 1), cus).result.clocks - one) / 10
    clocks = next_one + (more - one) / 100 * (passes - 1.0)
    ends = np.full(cus, one - next_one)
    for each in clocks:
        ends[ends.argmin()] += each
    assert by_table(passes, cus).result.clocks == pytest.approx(ends.max(), rel=0.05)


def test_a_launch_too_large_to_run_has_a_band_for_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "DIFFERENT_STEPS", 20_000)
    passes = np.random.default_rng(3).exponential(100, 4000) + 1
    some = by_table(passes, 8)
    monkeypatch.setattr(timed, "DIFFERENT_STEPS", 1 << 40)
    monkeypatch.setattr(timed, "MOST_DIFFERENT", 4000)
    monkeypatch.setattr(timed, "NEAR", 0.0)
    every = by_table(passes, 8)
    assert len(some.sampled.whole) < 200 and len(every.sampled.whole) == 4000
    assert some.sampled.wider > 0.05 and every.sampled.wider == 0
    assert abs(some.cycles / every.cycles - 1) < some.sampled.wider
    assert any("workgroups differ" in note for note in some.notes)


@pytest.mark.parametrize("passes", [np.where(np.arange(1200) < 448, 80, 60), np.arange(1200) % 3 * 20 + 40])
def test_of_few_kinds_of_workgroups_few_are_run(passes: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    few = by_table(passes, 1200)
    monkeypatch.setattr(timed, "FEW_KINDS", 0)
    monkeypatch.setattr(timed, "MOST_DIFFERENT", 1200)
    every = by_table(passes, 1200)
    assert len(few.sampled.whole) < 200 and len(every.sampled.whole) == 1200
    assert few.cycles == pytest.approx(every.cycles, rel=0.01)


def test_where_one_kind_of_workgroups_ends_is_known() -> None:
    kinds = by_table(np.where(np.arange(1200) < 448, 80, 60), 1200).sampled.whole
    longest = max(map(len, kinds))
    assert max(one.group for one in kinds if len(one) == longest) == 447
    assert min(one.group for one in kinds if len(one) < longest) == 448


def test_of_a_round_of_many_kinds_of_workgroups_many_are_run() -> None:
    assert len(by_table(np.arange(1200) // 12 + 5, 1200).sampled.whole) == 1024


# Workgroups take tiles by an atomic until there are none: each tile is 50 passes.
QUEUE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dword s8, s[0:1], 0x8
v_mov_b32 v1, 0
v_mov_b32 v6, 1
s_waitcnt lgkmcnt(0)
take:
s_mov_b64 exec, 1
global_atomic_add v2, v1, v6, s[4:5] glc
s_waitcnt vmcnt(0)
s_mov_b64 exec, -1
v_readfirstlane_b32 s9, v2
s_movk_i32 s10, 50
s_cmp_ge_u32 s9, s8
s_cbranch_scc1 done
tile:
v_fma_f32 v4, v3, v3, v3
v_fma_f32 v4, v3, v3, v3
s_sub_u32 s10, s10, 1
s_cmp_lg_u32 s10, 0
s_cbranch_scc1 tile
s_branch take
done:
"""


@pytest.mark.parametrize("tiles, rounds", [(104 * 10, 10), (104 * 3 + 1, 4), (50, 1), (104 * 2000, 2000)])
def test_work_that_the_first_workgroup_alone_would_take_is_shared_out(tiles: int, rounds: int) -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    kernel = loaded_kernel(gpu, QUEUE, "buffer", "i32")
    counter = gpu.upload(np.zeros(1, np.uint32))
    one = kernel.time(104, 64, [counter, tiles])
    assert counter.download("u4")[0] == 0
    assert any("take their work from memory that they share" in note for note in one.notes) and one.high / one.seconds > 1.3
    alone = loaded_kernel(simgpu.Device("gfx90a", threads=1), QUEUE, "buffer", "i32")
    fair = alone.time(1, 64, [alone.module.device.upload(np.zeros(1, np.uint32)), rounds])
    clocks = [got.result.clocks * got.sampled.whole[0].stretch for got in (one, fair)]
    assert clocks[0] == pytest.approx(clocks[1], rel=0.1)


# Waits until the workgroup before it has stored its flag.
CHAIN = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v1, s2
v_lshlrev_b32 v1, 2, v1
v_mov_b32 v6, 1
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s6, v2
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 again
global_store_dword v1, v6, s[4:5] offset:4
"""


# The same by scalar loads, which leave no trace of their addresses.
SCALAR_CHAIN = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_lshl_b32 s6, s2, 2
v_mov_b32 v1, s6
v_mov_b32 v6, 1
s_waitcnt lgkmcnt(0)
again:
s_dcache_inv
s_load_dword s7, s[4:5], s6
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s7, 0
s_cbranch_scc1 again
global_store_dword v1, v6, s[4:5] offset:4
"""


@pytest.mark.parametrize("text", [CHAIN, SCALAR_CHAIN], ids=["vector", "scalar"])
@pytest.mark.parametrize("groups", [5, 9000])
def test_workgroups_that_wait_for_those_before_them_run_in_order(groups: int, text: str) -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    kernel = loaded_kernel(gpu, text, "buffer")
    flags = np.zeros(groups + 1, np.uint32)
    flags[0] = 1
    one = kernel.time(groups, 64, [gpu.upload(flags)])
    assert {len(trace) for trace in one.sampled.whole} == {12} and one.groups == groups
    assert any("wait for those before them" in note for note in one.notes) and one.high / one.seconds > 1.3
    flags[0] = 0
    with pytest.raises(LaunchError, match="workgroup 0 waits for others"):
        kernel.time(groups, 64, [gpu.upload(flags)])


# Loads 256 bytes a wave through a buffer; the middle one's lie past its end.
CLIPPED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_cmp_eq_u32 s2, MIDDLE
s_cselect_b32 s6, 0, 0x10000
s_mov_b32 s7, 0x00020000
v_lshlrev_b32 v1, 2, v0
s_lshl_b32 s8, s2, 8
s_waitcnt lgkmcnt(0)
s_and_b32 s5, s5, 0xffff
buffer_load_dword v2, v1, s[4:7], s8 offen
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("groups", [7, 8, 60])
def test_a_workgroup_at_an_edge_does_not_stand_for_all(groups: int) -> None:
    """It executes as much, and a buffer's end cuts off what it asks for: the middle one is among the samples of one round."""
    kernel, buffer = made(CLIPPED.replace("MIDDLE", str((groups - 1) // 2)), 1 << 16)
    (one,) = kernel.time(grid=groups, args=[buffer]).sampled.whole
    assert len(one.lines) == 256 // 64


# A lane loads a word of one of 8,192 blocks of 8 KB, a row of 128 workgroups all of them; the next row those 1 KB further on.
ROWS = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_and_b32 s6, s2, 127
s_lshr_b32 s7, s2, 7
s_lshl_b32 s6, s6, 19
s_lshl_b32 s7, s7, 10
s_add_u32 s6, s6, s7
v_lshl_add_u32 v1, v0, 13, s6
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
"""


def test_memorys_channels_are_those_of_rounds_all_over_the_launch() -> None:
    """A round is 104 workgroups, one a CU. A row of the grid keeps 4 channels of 32 busy and two rows up to 8, so one round says
    0.12 to 0.25 by where it lies; wanted is the mean over all places, here by the affine form of the addresses."""
    gpu, groups, together = simgpu.Device("mi210", threads=1), 1024, 104
    kernel = loaded_kernel(gpu, ROWS, "buffer", group_segment_fixed_size=gpu.descriptor.lds_bytes)
    row, column = np.divmod(np.arange(groups), 128)
    block = (column[:, None] << 19) + (row[:, None] << 10) + (np.arange(64) << 13) >> 8
    channel = (block ^ (block >> 8) % 4) % 32
    fullest = [np.bincount(channel[at : at + together].ravel()).max() for at in range(groups - together + 1)]
    found = kernel.time(groups, 64, [gpu.alloc(1 << 26)]).sampled.channels
    assert found == pytest.approx(together * 64 / 32 / np.mean(fullest), rel=0.03)


STREAM = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_and_b32 s6, s2, 2047
s_lshl_b32 s6, s6, 12
v_lshl_add_u32 v1, v0, 4, s6
v_add_u32 v2, 0x800000, v1
s_waitcnt lgkmcnt(0)
"""
READS, WRITES = "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)\n", "global_store_dwordx4 v2, v[4:7], s[4:5]\n"


@pytest.mark.parametrize("board, reads, writes, both", [("mi100", 1180, 1064, 1042), ("mi210", 1389, 1526, 1358)])
def test_memory_has_a_rate_for_each_direction_and_turns(board: str, reads: int, writes: int, both: int) -> None:
    """GB/s of gpu-stream's kernels that read, store, and scale (te42kyfo/gpu-benches), MI210's reads by ROCm Compute Profiler."""
    gpu = simgpu.Device(board, threads=1)
    buffer, groups, nbytes = gpu.alloc(1 << 24), 1 << 16, 256 * 16
    for text, count, wanted in ((READS, 1, reads), (WRITES, 1, writes), (READS + WRITES, 2, both)):
        one = loaded_kernel(gpu, STREAM + text, "buffer").time(groups, 256, [buffer])
        assert count * groups * nbytes / one.seconds / 1e9 == pytest.approx(wanted, rel=0.03), text


def test_waits_are_told_by_the_load() -> None:
    kernel, buffer = made(LOOP, 256 * 8)
    found = {line.text: line for line in lines(kernel.time(8, 64, [buffer]))}
    wait = found["s_waitcnt vmcnt(0)"]
    assert wait.reason == "WAITCNT" and wait.waits[0].text.startswith("global_")


def test_workgroups_that_do_not_do_the_same_are_told() -> None:
    kernel, buffer = made(LOOP, 256 * 8)
    assert any("workgroups differ" in note for note in kernel.time(8, 64, [buffer]).notes)
    same = made(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 2"), 256 * 8)
    assert not same[0].time(8, 64, [same[1]]).notes


def test_a_kernel_that_waits_for_ever_is_refused_in_words() -> None:
    kernel, _ = made(SPIN, 256, max_instructions=200_000)
    buffer = kernel.module.device.alloc(256)
    with pytest.raises(LaunchError, match="waits for others"):
        kernel.time(4, 64, [buffer])


def test_clocks_that_are_none_are_refused() -> None:
    kernel, buffer = made(LOOP, 256 * 8)
    for mhz in (0, -1, float("nan"), float("inf")):
        with pytest.raises(LaunchError, match="engine's clock in MHz"):
            kernel.time(8, 64, [buffer], mhz=mhz)


def test_a_loop_past_what_is_traced_goes_on_as_until_there() -> None:
    """Four times the passes take four times the clocks, though the trace holds fewer than either."""
    found = []
    for passes in (0x100000, 0x400000):
        kernel, buffer = made(LOOP.replace("s_and_b32 s7, s2, 1", f"s_mov_b32 s7, {passes}"), 256)
        found.append(kernel.time(1, 64, [buffer]))
    for one in found:
        (trace,) = one.sampled.whole
        assert trace.complete and trace.stretch > 2 and one.high / one.seconds > 1.16
        assert any("go on past what was traced" in note for note in one.notes)
    assert found[1].cycles / found[0].cycles == pytest.approx(4, rel=0.01)


def test_a_workgroup_that_has_no_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "MOST_STEPS", 1 << 20)
    kernel, buffer = made(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 0x100000"), 256)
    one = kernel.time(1, 64, [buffer])
    assert any("went on past" in note for note in one.notes) and one.high / one.seconds > 1.5


def test_all_waves_of_a_beginning_go_on_where_one_has_gone_far_enough() -> None:
    """Else the beginnings of long kernels hold one wave's accesses, and caches see a part of the round."""
    kernel, buffer = made(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 0x100000"), 1 << 17)
    one = kernel.time(104, 256, [buffer])
    for trace in one.sampled.beginnings:
        executed = np.diff(trace.starts)
        assert len(executed) == 4 and executed.min() > 0.9 * executed.max() > 100


# A workgroup reads 256 KB of its own, up to 12 KB at a time: one alone on a CU does not draw its share of memory.
LONG_STREAM = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_lshl_b32 s6, s2, 18
v_lshl_add_u32 v1, v0, 4, s6
s_movk_i32 s7, 21
s_waitcnt lgkmcnt(0)
again:
global_load_dwordx4 v[4:7], v1, s[4:5]
v_add_u32 v1, 0x1000, v1
global_load_dwordx4 v[8:11], v1, s[4:5]
v_add_u32 v1, 0x1000, v1
global_load_dwordx4 v[12:15], v1, s[4:5]
v_add_u32 v1, 0x1000, v1
s_waitcnt vmcnt(0)
s_sub_u32 s7, s7, 1
s_cmp_lg_u32 s7, 0
s_cbranch_scc1 again
"""


@pytest.mark.parametrize("rounds", [1, 1.5, 2.5])
def test_memory_gives_a_last_round_that_is_not_full_no_more_than_its_rate(rounds: float) -> None:
    gpu = simgpu.Device("mi300x", threads=1)
    groups = int(rounds * gpu.descriptor.num_cus)
    one = loaded_kernel(gpu, LONG_STREAM, "buffer").time(groups, 256, [gpu.alloc(groups << 18)])
    assert one.seconds >= (groups * 63 << 12) / sustained(gpu.descriptor).hbm


@pytest.mark.parametrize("block, rate", [(64, 0.3), (256, 0.3), (1024, 1.75 / 16)])
def test_a_launch_takes_no_less_than_its_dispatch(block: int, rate: float) -> None:
    """gpu-stream on MI210: 0.26 to 0.33 small workgroups a clock, of large ones 1.75 waves."""
    kernel, buffer = made("s_nop 0", 256)
    one = kernel.time(1 << 18, block, [buffer], mhz=1000)
    assert one.limit == "dispatch" and one.cycles == pytest.approx((1 << 18) / rate, rel=0.02)


def test_partial_workgroups_have_fewer_waves() -> None:
    kernel, buffer = made(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 1"), 4096)
    one = kernel.time(global_size=64 * 7, block=256, args=[buffer])
    assert not any("went on past" in note for note in one.notes)
    run = kernel.launch(global_size=64 * 7, block=256, args=[buffer])
    assert sum(map(len, one.sampled.whole)) == run.instructions and len(one.sampled.whole) == 2


def test_a_run_of_the_engines_own_device_cannot_be_timed() -> None:
    from simgpu.engine.result import Run

    with pytest.raises(LaunchError, match="cannot be timed"):
        Run(0, 0.0, {}).time()


# Waves of different lengths, LDS, a barrier in a loop, stores, scalar and vector loads.
MIXED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_lshrrev_b32 v5, 6, v0
v_readfirstlane_b32 s8, v5
s_and_b32 s9, s2, 3
s_add_u32 s9, s9, 2
s_waitcnt lgkmcnt(0)
again:
s_mov_b32 s10, s8
v_mov_b32 v3, 0
uneven:
v_exp_f32 v3, v3
s_sub_u32 s10, s10, 1
s_cbranch_scc0 uneven
global_load_dword v2, v1, s[4:5]
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v1
s_waitcnt vmcnt(0) lgkmcnt(0)
v_add_u32 v2, v2, v3
global_store_dword v1, v2, s[4:5]
s_sub_u32 s9, s9, 1
s_cbranch_scc0 again
"""


@pytest.mark.parametrize("groups, block", [(1, 64), (5, 256), (300, 512), (1000, 192)])
def test_lines_waves_and_timelines_add_up(groups: int, block: int) -> None:
    """Hits, latency, stall and idle by line, by wave and in the timeline are the same clocks, a wait's loads what it waited for."""
    kernel, buffer = made(MIXED, 4096, group_segment_fixed_size=2048)
    one = kernel.time(groups, block, [buffer], events=1_000_000)
    found = lines(one)
    assert sum(line.hits for line in found) == int(one.result.tally[cu.ISSUED]) == len(one.result.log)
    steps = documents("k", one)
    waves = [document["wave"] for name, document in steps.items() if name.startswith("se0_sm")]
    by_line: dict[int, list[int]] = {}
    for wave in waves:
        assert sum(clocks for _, clocks in wave["timeline"]) == wave["end"] - wave["begin"]
        for _, _, stall, latency, number in wave["instructions"]:
            entry = by_line.setdefault(number, [0, 0, 0])
            entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + latency, entry[2] + stall
    for number, line in enumerate(found, start=1):
        assert by_line[number] == [line.hits, line.latency, line.stall + line.idle], line.text
        assert 0 <= line.stall + line.idle <= line.latency
        assert sum(line.reasons.values()) == line.stall + line.idle
        assert sum(wait.clocks for wait in line.waits) == line.reasons.get("WAITCNT", 0)
    assert any(line.reason == "BARRIER_WAIT" for line in found) == (block > 64)
    shown = [event for event in timeline([("k", one)])["traceEvents"] if event["ph"] == "X"]
    assert sum(event["args"]["cycles"] for event in shown) == sum(line.latency for line in found)


def test_timelines_show_each_instruction_once(tmp_path: Path) -> None:
    kernel, buffer = made(LOOP, 256 * 8)
    one = kernel.time(8, 64, [buffer], events=10_000)
    issued = int(one.result.tally[cu.ISSUED])
    events = [event for event in timeline([("k", one)])["traceEvents"] if event["ph"] == "X"]
    assert len(events) == issued and all(event["dur"] > 0 for event in events)
    (place,) = write_trace([("k", one)], tmp_path / "att", force=False)
    files = json.loads((place / "filenames.json").read_text())["wave_filenames"]["0"]
    named = [entry[0] for simd in files.values() for slot in simd.values() for entry in slot.values()]
    waves = [json.loads((place / name).read_text()) for name in named]
    code = json.loads((place / "code.json").read_text())["code"]
    hits = Counter(step[4] for wave in waves for step in wave["wave"]["instructions"])
    assert {row[2]: row[6] for row in code[1:]} == dict(hits)
    for wave in waves:
        assert sum(clocks for _, clocks in wave["wave"]["timeline"]) == wave["duration"]
    with open(place.parent / f"stats_{place.name}.csv") as file:
        assert sum(int(row["Hitcount"]) for row in csv.DictReader(file)) == issued
    with pytest.raises(LaunchError, match="--force"):
        write_trace([("k", one)], tmp_path / "att", force=False)
