"""Workgroups that represent a launch: they differ, wait for each other, or take each other's work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError
from simgpu.sampling import kinds
from simgpu.timing.predict import Prediction
from tests.support.exhaustive import left_out
from tests.support.kernels import loaded_kernel
from tests.support.timed_kernels import LOOP, kernel_on_words

# Each workgroup loops as often as a table says. Its entry has a cache line of its own, so no other workgroup loads it.
BY_TABLE = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_lshl_b32 s8, s2, 7
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


def gpu_of(cus: int) -> simgpu.Device:
    gpu = simgpu.Device("gfx90a", threads=1)
    gpu.descriptor = replace(gpu.descriptor, num_cus=cus)
    return gpu


def by_table(passes: np.ndarray, cus: int) -> Prediction:
    """Returns the time of a launch on a GPU of one XCD with `cus` CUs; each holds one workgroup."""
    gpu = gpu_of(cus)
    kernel = loaded_kernel(gpu, BY_TABLE, "buffer", "buffer", group_segment_fixed_size=40_000)
    table = np.zeros((len(passes), 32), np.uint32)
    table[:, 0] = passes
    return kernel.time(len(passes), 64, [gpu.alloc(256), gpu.upload(table)])


HEADS = np.tile(np.arange(8) * 25 + 25, 20)  # like causal attention's rows of blocks, head by head
SHAPES = {
    "heads": HEADS,
    "few are long": np.where(np.arange(160) % 8 == 3, 300, 5),
    "the first are long": np.where(np.arange(160) < 16, 300, 5),
    "half have nothing to do": np.where(np.arange(160) < 80, 100, 1),
    "the last are long": np.arange(160) + 1,
}  # fmt: skip


@pytest.mark.parametrize("passes", SHAPES.values(), ids=list(SHAPES))
def test_workgroups_that_differ_take_what_dispatching_them_takes(passes: np.ndarray) -> None:
    """Each goes to the first free CU, for the model's time of one of its length; a CU's first one starts cold."""
    cus = 8
    one, more = (by_table(np.full(cus, count), cus).result.clocks for count in (1, 101))
    next_one = (by_table(np.full(11 * cus, 1), cus).result.clocks - one) / 10
    clocks = next_one + (more - one) / 100 * (passes - 1.0)
    ends = np.full(cus, one - next_one)
    for each in clocks:
        ends[ends.argmin()] += each
    assert by_table(passes, cus).result.clocks == pytest.approx(ends.max(), rel=0.05)


@pytest.mark.parametrize("at", [0, -1], ids=["first", "last"])
def test_a_long_workgroup_at_an_end_of_many_rounds_is_found(at: int) -> None:
    """It takes 20 times as long as all others of its CU together, and represents itself only."""
    passes = np.full(800, 5)
    passes[at] = 10_000
    found, alone = by_table(passes, 8), by_table(np.array([10_000]), 8)
    assert 0.99 * alone.result.clocks < found.result.clocks < 1.2 * alone.result.clocks
    assert any("workgroups differ" in note for note in found.notes)


def test_a_long_last_workgroup_of_more_than_are_dispatched_one_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = np.full(800, 5)
    short = by_table(passes, 8)
    passes[-1] = 10_000
    queued = by_table(passes, 8)
    monkeypatch.setattr("simgpu.timing.predict.MOST_QUEUED", 100)
    assert by_table(np.full(800, 5), 8).cycles == short.cycles
    assert by_table(passes, 8).cycles == pytest.approx(queued.cycles, rel=0.05)


@pytest.mark.slow
def test_a_launch_too_large_to_run_has_a_band_for_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "DIFFERENT_STEPS", 20_000)
    passes = np.random.default_rng(3).exponential(100, 1000) + 1
    some = by_table(passes, 8)
    monkeypatch.setattr(kinds, "DIFFERENT_STEPS", 1 << 40)
    monkeypatch.setattr(kinds, "MOST_DIFFERENT", 1000)
    monkeypatch.setattr(kinds, "NEAR", 0.0)
    every = by_table(passes, 8)
    assert len(some.sampled.whole) < 200 and len(every.sampled.whole) == 1000
    assert some.sampled.wider > 0.05 and every.sampled.wider == 0
    assert abs(some.cycles / every.cycles - 1) < some.sampled.wider
    assert any("workgroups differ" in note for note in some.notes)


@pytest.mark.parametrize("passes", [np.where(np.arange(1200) < 448, 24, 18), np.arange(1200) % 3 * 6 + 12])
def test_of_few_kinds_of_workgroups_few_are_run(passes: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    few = by_table(passes, 1200)
    monkeypatch.setattr(kinds, "FEW_KINDS", 0)
    monkeypatch.setattr(kinds, "MOST_DIFFERENT", 1200)
    every = by_table(passes, 1200)
    assert len(few.sampled.whole) < 200 and len(every.sampled.whole) == 1200
    assert few.cycles == pytest.approx(every.cycles, rel=0.01)


def test_where_one_kind_of_workgroups_ends_is_known() -> None:
    found = by_table(np.where(np.arange(1200) < 448, 24, 18), 1200).sampled.whole
    longest = max(map(len, found))
    assert max(one.group for one in found if len(one) == longest) == 447
    assert min(one.group for one in found if len(one) < longest) == 448


@pytest.mark.slow
def test_of_a_round_of_many_kinds_of_workgroups_many_are_run() -> None:
    assert len(by_table(np.arange(1200) // 12 + 5, 1200).sampled.whole) == 1024


# Workgroups take tiles by an atomic until none are left; each tile is 50 passes.
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


@pytest.mark.parametrize("tiles, rounds", [(104 * 10, 10), (104 * 3 + 1, 4), (50, 1), (104 * 200, 200), left_out(104 * 2000, 2000)])
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


# Waits until the previous workgroup has stored its flag.
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


# The same by scalar loads, which record no addresses.
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
@pytest.mark.parametrize("groups", [5, 700])
def test_workgroups_that_wait_for_those_before_them_run_in_order(groups: int, text: str) -> None:
    """A GPU of eight CUs holds 256 of these workgroups."""
    gpu = gpu_of(8)
    kernel = loaded_kernel(gpu, text, "buffer")
    flags = np.zeros(groups + 1, np.uint32)
    flags[0] = 1
    one = kernel.time(groups, 64, [gpu.upload(flags)])
    assert {len(trace) for trace in one.sampled.whole} == {12} and one.groups == groups
    assert any("wait for those before them" in note for note in one.notes) and one.high / one.seconds > 1.3
    flags[0] = 0
    with pytest.raises(LaunchError, match="workgroup 0 waits for others"):
        kernel.time(groups, 64, [gpu.upload(flags)])


# Loads 256 bytes a wave through a buffer; the middle workgroup's are past its end.
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
    """An edge's workgroup executes as much, but a buffer's end cuts its requests off; a round's samples include the middle one."""
    middle = (groups - 1) // 2
    kernel, buffer = kernel_on_words(CLIPPED.replace("MIDDLE", str(middle)), 1 << 16)
    found = kernel.time(grid=groups, args=[buffer])
    wanted = {one.group: len(one.lines) - 1 for one in found.sampled.whole}  # without the arguments
    assert wanted == {group: 256 // 64 * (group != middle) for group in range(groups)}
    assert found.past_l2_bytes == pytest.approx((groups - 1) * 256, rel=0.01)


# Stores 16 times 256 bytes a wave through a buffer, a page a workgroup; those of every PERIODth workgroup are past its end.
MASKED_STORES = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mul_hi_u32 s8, s2, (1 << 32) / PERIOD + 1
s_mul_i32 s8, s8, PERIOD
s_cmp_eq_u32 s2, s8
s_cselect_b32 s6, 0, 0x4000000
s_mov_b32 s7, 0x00020000
v_lshlrev_b32 v1, 2, v0
s_lshl_b32 s8, s2, 12
s_waitcnt lgkmcnt(0)
s_and_b32 s5, s5, 0xffff
""" + "".join(f"buffer_store_dword v0, v1, s[4:7], s8 offen offset:{256 * n}\n" for n in range(16))


@pytest.mark.parametrize("period", [2, 3])
def test_bytes_of_a_launch_are_those_of_all_workgroups_if_masks_differ(period: int) -> None:
    """Workgroups that execute as much and store different bytes are all represented."""
    groups = 3000
    kernel, buffer = kernel_on_words(MASKED_STORES.replace("PERIOD", str(period)), 1 << 24, group_segment_fixed_size=40_000)
    one = kernel.time(grid=groups, args=[buffer])
    assert len(one.sampled.whole) > 1 and one.groups > one.sampled.chip.num_cus * one.resident
    stored = sum(group % period > 0 for group in range(groups)) * 16 * 256
    assert one.past_l2_bytes == pytest.approx(stored, rel=0.25)  # 128 samples represent all


def test_workgroups_that_do_not_do_the_same_are_told() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    assert any("workgroups differ" in note for note in kernel.time(8, 64, [buffer]).notes)
    same = kernel_on_words(LOOP.replace("s_and_b32 s7, s2, 1", "s_mov_b32 s7, 2"), 256 * 8)
    assert not any("differ" in note for note in same[0].time(8, 64, [same[1]]).notes)
