"""Workgroups and waves that wait for each other, and endless ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import simgpu
from simgpu.engine.workers import team
from simgpu.engine.workers.scheduler import TURN
from simgpu.hardware.errors import Deadlock, InstructionLimit
from simgpu.machine import layout
from tests.support.kernels import loaded_kernel

# Workgroup i of n spins until the counter is n - 1 - i times the waves, each of which then adds 1. Arguments: counter, n, waves.
LAST_FIRST = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v3, 1
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
s_sub_u32 s10, s10, s2
s_sub_u32 s10, s10, 1
s_mul_i32 s10, s10, s11
spin:
global_load_dword v2, v1, s[8:9] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s12, v2
s_cmp_lt_u32 s12, s10
s_cbranch_scc1 spin
global_atomic_add v1, v3, s[8:9]
"""


@pytest.mark.parametrize(("threads", "waves"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_workgroups_that_wait_for_later_ones_finish(threads, waves):
    """Workgroup i spins until the counter is n - 1 - i, and its waves add: the last workgroup must run first."""
    gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=500_000_000)
    k = loaded_kernel(gpu, LAST_FIRST, "buffer", "i32", "i32", group_segment_fixed_size=64)
    counter = gpu.upload(np.zeros(1, np.uint32))
    k.launch(grid=16, block=64 * waves, args=[counter, 16, waves])
    assert counter.download(np.uint32)[0] == 16 * waves


def test_workgroups_that_poll_leave_time_to_the_one_they_wait_for():
    """Workgroup i polls until the counter is n - 1 - i. With whole slices for each poll, this takes 440 million instructions."""
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=50_000_000)
    k = loaded_kernel(gpu, LAST_FIRST, "buffer", "i32", "i32", group_segment_fixed_size=64)
    counter = gpu.upload(np.zeros(1, np.uint32))
    k.launch(grid=64, args=[counter, 64, 1])
    assert counter.download(np.uint32)[0] == 64


def test_a_grid_that_fits_the_gpu_passes_a_barrier_of_its_own():
    """200 workgroups add 1 to a counter, then poll until it is 200: a persistent kernel without a cooperative launch."""
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=50_000_000)
    lines = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v3, 1
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    global_atomic_add v1, v3, s[8:9]
    spin:
    global_load_dword v2, v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s12, v2
    s_cmp_lt_u32 s12, s10
    s_cbranch_scc1 spin
    global_atomic_add v1, v3, s[8:9] offset:4
    """
    k = loaded_kernel(gpu, lines, "buffer", "i32", group_segment_fixed_size=64)
    counters = gpu.upload(np.zeros(2, np.uint32))
    k.launch(grid=200, args=[counters, 200])
    assert counters.download(np.uint32).tolist() == [200, 200]


def test_barriers_order_the_waves_of_a_workgroup():
    """16 waves hand a word round through LDS, eight times: each adds its turn's value."""
    gpu = simgpu.Device("gfx90a")
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, v0
    s_mov_b32 s10, 8
    turn:
    ds_write_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_add_u32 v3, 0x100, v1
    v_and_b32 v3, 0xfff, v3
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 turn
    global_store_dword v1, v2, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=4096)
    out = gpu.alloc(4096)
    k.launch(grid=3, block=1024, args=[out])
    np.testing.assert_array_equal(out.download(np.uint32), (np.arange(1024) + 8 * 64) % 1024)


def test_a_wave_that_waits_lets_the_others_on():
    """Eight waves, two rounds: a wave overwrites another's value unread if it does not wait for its own reads, as on a GPU.

    Checked mode reports the race; AITER's causal attention for gfx950 has it.
    """
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_sub_u32 v3, 0x7fc, v1
    s_mov_b32 s10, 2
    s_waitcnt lgkmcnt(0)
    turn:
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[8:9]
    v_add_u32 v0, 0x200, v0
    s_add_u32 s8, s8, 0x800
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 turn
    """
    for check in (False, True):
        gpu = simgpu.Device("gfx950", check=check)
        out = gpu.alloc(4096)
        run = loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=2048).launch(grid=1, block=512, args=[out])
        assert out.download(np.uint32).tolist() == [*range(511, -1, -1), *range(1023, 511, -1)]
        assert {finding.kind for finding in run.findings} == ({"race"} if check else set())


def test_what_a_wave_writes_behind_its_reads_comes_behind_those_of_the_others():
    """LDS serves waves in turn, so all have read before any has written.

    It is a race too; AITER's experts in bf16 have it.
    """
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_sub_u32 v3, 0x7fc, v1
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_read_b32 v2, v3
    v_mov_b32 v4, 0
    ds_write_b32 v1, v4
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[8:9]
    """
    gpu = simgpu.Device("gfx942")
    out = gpu.alloc(2048)
    loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=2048).launch(grid=1, block=512, args=[out])
    assert out.download(np.uint32).tolist() == [*range(511, -1, -1)]


WAVE_ID = """
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s12, v1
s_cmp_eq_u32 s12, 0
"""


def test_ended_waves_do_not_hold_a_barrier():
    gpu = simgpu.Device("gfx90a", max_instructions=1_000_000)
    k = loaded_kernel(gpu, WAVE_ID + "s_cbranch_scc1 done\ns_barrier\ns_barrier\ndone:")
    run = k.launch(grid=2, block=256)
    assert run.instructions == 2 * (6 + 3 * 8)


def test_a_wave_that_never_reaches_the_barrier_is_a_deadlock():
    gpu = simgpu.Device("gfx90a", max_instructions=1_000_000)
    k = loaded_kernel(gpu, WAVE_ID + "s_cbranch_scc1 spin\ns_barrier\ns_endpgm\nspin:\ns_branch spin")
    with pytest.raises(Deadlock) as error:
        k.launch(grid=1, block=128)
    message = str(error.value)
    assert re.search(r"wave 1 waits at the barrier", message)
    assert re.search(r"wave 0 never reaches one and is at k\+0x\w+ .*`s_branch", message)
    assert "1000000" in message


ENDLESS = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
again:
v_add3_u32 v3, v1, v2, v2
global_atomic_add v1, v2, s[8:9]
s_branch again
"""


def test_a_runaway_kernel_hits_its_budget():
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=10_000)
    k = loaded_kernel(gpu, ENDLESS, "buffer")
    out = gpu.upload(np.zeros(1, np.uint32))
    with pytest.raises(InstructionLimit, match=r"k\+0x\w+ .*still running after 10000 instructions"):
        k.launch(grid=1, args=[out])
    # Five instructions precede the loop, three are in a turn: the turn that passes the budget is the last.
    assert out.download(np.uint32)[0] == (10_000 - 5) // 3 + 1
    # The device stays usable.
    assert loaded_kernel(gpu, "s_nop 0").launch(grid=1).instructions == 2


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("budget", [50_000, 2_000_000])
def test_the_budget_is_the_launch_s_not_a_thread_s(threads, check, budget):
    """A kernel with instructions of 4 and 8 bytes exceeds it by at most two pieces a further thread."""
    gpu = simgpu.Device("gfx90a", threads=threads, check=check, max_instructions=budget)
    out = gpu.upload(np.zeros(1, np.uint32))
    with pytest.raises(InstructionLimit, match=f"after {budget} instructions"):
        loaded_kernel(gpu, ENDLESS, "buffer").launch(grid=8, args=[out])
    executed = 3 * int(out.download(np.uint32)[0])
    assert budget - 8 * 64 <= executed <= budget + 3 + (threads - 1) * (2 * layout.PIECE + 3)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_launch_that_just_fits_its_budget_ends_well(threads):
    """Five instructions of 8 bytes a turn, 3,000 turns, 16 workgroups: in dwords twice the budget."""
    lines = "s_movk_i32 s10, 3000\nagain:\n" + "v_add3_u32 v3, v1, v2, v2\n" * 5
    lines += "s_sub_u32 s10, s10, 1\ns_cmp_lg_u32 s10, 0\ns_cbranch_scc1 again"
    wanted = 16 * (1 + 3000 * 8 + 1)
    for budget in (wanted, wanted + 1):
        gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=budget)
        assert loaded_kernel(gpu, lines).launch(grid=16).instructions == wanted
    gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=wanted - 1)
    with pytest.raises(InstructionLimit):
        loaded_kernel(gpu, lines).launch(grid=16)


MIXED = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_lshl_b32 s12, s2, 9
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_add_u32 v2, s12, v1
s_waitcnt lgkmcnt(0)
global_load_dword v3, v2, s[8:9]
s_waitcnt vmcnt(0)
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
s_barrier
v_xor_b32 v4, 0x1fc, v1
ds_read_b32 v5, v4
s_waitcnt lgkmcnt(0)
v_mul_f32 v5, v5, v3
global_store_dword v2, v5, s[10:11]
v_mov_b32 v6, 0
v_mov_b32 v7, 1
global_atomic_add v6, v7, s[10:11] offset:-4
"""


def test_results_do_not_depend_on_the_number_of_threads():
    data = np.random.default_rng(1).standard_normal(128 * 97).astype(np.float32)
    found = []
    for threads in (1, 2, 3, 7):
        gpu = simgpu.Device("gfx942", threads=threads)
        k = loaded_kernel(gpu, MIXED, "buffer", "buffer", group_segment_fixed_size=512)
        given, out = gpu.upload(data), gpu.alloc(data.nbytes + 4)
        run = k.launch(grid=97, block=128, args=[given, out.address + 4])
        counters = {name: value for name, value in run.counters.items() if "seconds" not in name}
        found.append((out.download(np.uint32).tobytes(), run.instructions, counters, run.profile))
    want = data.reshape(97, 128) * data.reshape(97, 128)[:, ::-1]
    got = np.frombuffer(found[0][0], np.uint32)
    np.testing.assert_array_equal(got[1:].view(np.float32), want.ravel())
    assert got[0] == data.size
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("lds", [64, 0])
def test_workgroups_that_poll_with_barriers_let_later_ones_begin(lds):
    """Workgroup i polls, between barriers, until the counter is n - 1 - i, and adds 1: the last one must run first."""
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=500_000_000)
    lines = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_mov_b32 v1, 0
    v_mov_b32 v3, 1
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s10, s10, s2
    s_sub_u32 s10, s10, 1
    look:
    global_load_dword v2, v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    s_barrier
    v_readfirstlane_b32 s12, v2
    s_cmp_lt_u32 s12, s10
    s_cbranch_scc1 look
    v_cmpx_eq_u32 vcc, 0, v0
    global_atomic_add v1, v3, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer", "i32", group_segment_fixed_size=lds)
    counter = gpu.upload(np.zeros(1, np.uint32))
    k.launch(grid=6, block=128, args=[counter, 6])
    assert counter.download(np.uint32)[0] == 6


def test_a_grid_s_barrier_that_polls_through_lds_costs_short_turns():
    """150 workgroups of two waves meet as Triton's do: lane 0 polls, and each round passes the counter through LDS, with two
    barriers. With whole turns for each poll, 16 workgroups take 51 million instructions."""
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=8_000_000)
    lines = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_mov_b32 v1, 0
    v_mov_b32 v3, 1
    v_cmp_eq_u32 vcc, 0, v0
    s_waitcnt lgkmcnt(0)
    s_and_saveexec_b64 s[14:15], vcc
    global_atomic_add v1, v3, s[8:9]
    s_mov_b64 exec, s[14:15]
    look:
    s_and_saveexec_b64 s[14:15], vcc
    global_load_dword v2, v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v2
    s_mov_b64 exec, s[14:15]
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_read_b32 v4, v1
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_readfirstlane_b32 s12, v4
    s_cmp_lt_u32 s12, s10
    s_cbranch_scc1 look
    s_and_b64 exec, exec, vcc
    global_atomic_add v1, v3, s[8:9] offset:4
    """
    k = loaded_kernel(gpu, lines, "buffer", "i32", group_segment_fixed_size=64)
    counters = gpu.upload(np.zeros(2, np.uint32))
    k.launch(grid=150, block=128, args=[counters, 150])
    assert counters.download(np.uint32).tolist() == [150, 150]


def test_all_workgroups_that_the_gpu_holds_meet_at_a_barrier_of_flags():
    """Workgroup 0 waits until each of the others has set its flag, then lets them go, as hipCUB's GridBarrier does.

    Its four waves poll 64 flags at a time. Some flag is set between any two of its turns.
    """
    gpu = simgpu.Device("gfx942", threads=1, max_instructions=20_000_000)
    lines = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_mov_b32 v1, 1
    v_mov_b32 v2, s2
    v_lshlrev_b32 v2, 2, v2
    s_waitcnt lgkmcnt(0)
    s_lshl_b32 s11, s10, 2
    v_mov_b32 v3, s11
    s_sub_u32 s12, s11, 4
    global_store_dword v2, v1, s[8:9]
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 first
    go:
    global_load_dword v4, v3, s[8:9] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s13, v4
    s_cmp_eq_u32 s13, 0
    s_cbranch_scc1 go
    s_endpgm
    first:
    v_lshlrev_b32 v5, 2, v0
    flags:
    v_min_u32 v6, s12, v5
    poll:
    global_load_dword v4, v6, s[8:9] sc1
    s_waitcnt vmcnt(0)
    v_cmp_eq_u32 vcc, 0, v4
    s_cbranch_vccnz poll
    v_add_u32 v5, 0x400, v5
    v_cmp_gt_u32 vcc, s11, v5
    s_cbranch_vccnz flags
    s_barrier
    global_store_dword v3, v1, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer", "i32")
    flags = gpu.upload(np.zeros(601, np.uint32))
    k.launch(grid=600, block=256, args=[flags, 600])
    assert flags.download(np.uint32).all()


def test_a_long_workgroup_that_passes_barriers_keeps_its_place():
    """Six workgroups take four turns each in sequence, all in the first one's registers and LDS."""
    gpu = simgpu.Device("gfx90a", threads=1)
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_mov_b32 v1, s2
    v_lshlrev_b32 v1, 2, v1
    s_mov_b32 s10, 0x4000
    tile:
    .rept 14
    ds_read_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    .endr
    s_barrier
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 tile
    s_getreg_b32 s11, hwreg(HW_REG_HW_ID)
    v_mov_b32 v2, s11
    global_store_dword v1, v2, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=64)
    places = gpu.upload(np.full(6, 99, np.uint32))
    run = k.launch(grid=6, block=128, args=[places])
    assert run.instructions > 6 * 2 * TURN
    assert len(set(places.download(np.uint32).tolist())) == 1


@pytest.mark.parametrize("nops", range(4))
def test_a_pause_at_any_wave_does_not_end_a_turn(nops, monkeypatch):
    """Four waves use a whole turn's steps, then four come to the barrier, and the worker pauses once, after one of these."""
    lines = f"""
    {"s_nop 0; " * nops}
    v_lshrrev_b32 v1, 6, v0
    v_readfirstlane_b32 s8, v1
    s_mov_b32 s10, {layout.SLICE}
    s_cmp_gt_u32 s8, 3
    s_cbranch_scc1 meet
    work:
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 work
    meet:
    s_barrier
    """
    kernel = loaded_kernel(simgpu.Device("gfx90a", threads=1), lines, group_segment_fixed_size=64)
    for steps in (1 << 17, *range(TURN, TURN + 80, 4)):
        monkeypatch.setattr(team, "FEWEST", steps // 4)
        monkeypatch.setattr(team, "MOST", steps)
        assert kernel.launch(grid=1, block=512).counters["instructions"] > 4 * layout.SLICE
