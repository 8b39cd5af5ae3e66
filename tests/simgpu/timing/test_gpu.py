"""Memory rates and channels, the last round, dispatch: kernels timed on whole GPUs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import simgpu
from simgpu.hardware.rates.clocks import Busy, sustained_clock
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import Prediction, predict
from tests.support.exhaustive import left_out
from tests.support.kernels import loaded_kernel
from tests.support.timed_kernels import kernel_on_words

# A lane loads a word of one of 8,192 blocks of 8 KB; a row of 128 workgroups covers all, the next row 1 KB further on.
ROWS = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_and_b32 s6, s2, 127
s_lshr_b32 s7, s2, 7
s_lshl_b32 s6, s6, 22
s_lshl_b32 s7, s7, 10
s_add_u32 s6, s6, s7
v_lshl_add_u32 v1, v0, 16, s6
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
"""


@pytest.mark.slow
def test_memorys_channels_are_those_of_rounds_all_over_the_launch() -> None:
    """A round is 104 workgroups, one a CU. A row of the grid keeps 4 channels of 32 busy, two rows up to 8.

    So a single round gives 0.12 to 0.25, depending on its place. The test wants the mean over all places, by the addresses'
    affine form.
    """
    gpu, groups, together = simgpu.Device("mi210", threads=1), 1024, 104
    kernel = loaded_kernel(gpu, ROWS, "buffer", group_segment_fixed_size=gpu.descriptor.lds_bytes)
    row, column = np.divmod(np.arange(groups), 128)
    block = (column[:, None] << 22) + (row[:, None] << 10) + (np.arange(64) << 16) >> 8
    channel = (block ^ (block >> 5) % 4 * 8 ^ (block >> 8) % 4) % 32
    fullest = [np.bincount(channel[at : at + together].ravel()).max() for at in range(groups - together + 1)]
    found = kernel.time(groups, 64, [gpu.alloc(1 << 29)]).sampled.channels
    assert found == pytest.approx(together * 64 / 32 / np.mean(fullest), rel=0.03)


STREAM = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_and_b32 s6, s2, 0x3fff
s_lshl_b32 s6, s6, 12
v_lshl_add_u32 v1, v0, 4, s6
v_add_u32 v2, 0x4000000, v1
s_waitcnt lgkmcnt(0)
"""
READS, WRITES = "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)\n", "global_store_dwordx4 v2, v[4:7], s[4:5]\n"


@pytest.mark.slow
@pytest.mark.parametrize("board, reads, writes, both", [left_out("mi100", 1180, 1064, 1042), ("mi210", 1389, 1526, 1358)])
def test_memory_has_a_rate_for_each_direction_and_turns(board: str, reads: int, writes: int, both: int) -> None:
    """GB/s of gpu-stream's kernels that read, store, and scale (te42kyfo/gpu-benches); MI210's reads by ROCm Compute Profiler."""
    gpu = simgpu.Device(board, threads=1)
    buffer, groups, nbytes = gpu.alloc(1 << 27), 1 << 16, 256 * 16  # each array exceeds L2 by far
    for text, count, wanted in ((READS, 1, reads), (WRITES, 1, writes), (READS + WRITES, 2, both)):
        one = loaded_kernel(gpu, STREAM + text, "buffer").time(groups, 256, [buffer])
        assert count * groups * nbytes / one.seconds / 1e9 == pytest.approx(wanted, rel=0.03), text


@pytest.mark.parametrize("board, groups", [("mi300x", 1024), ("mi300x", 1), ("mi300x", 16384), ("mi210", 1024)])
def test_several_l2s_write_back_at_the_end_what_the_launch_stored(board: str, groups: int) -> None:
    """As much as they hold, at the Infinity Cache's peak, an eighth of it for an XCD. The modelled CU has whole rounds only."""
    gpu = simgpu.Device(board, threads=1)
    sampled = loaded_kernel(gpu, STREAM + WRITES, "buffer").time(groups, 256, [gpu.alloc(1 << 27)]).sampled
    longer, shorter = (predict(sampled, mhz=2000, on=Mechanisms(launch=False, write_back=on)).seconds for on in (True, False))
    chip, nbytes = gpu.descriptor, groups * 256 * 16
    if chip.xcds == 1:
        assert longer == shorter
        return
    rounds = max(1, groups // chip.num_cus) * min(groups, chip.num_cus) / groups
    left = min(rounds * nbytes, chip.l2_bytes * chip.xcds) / (17.2e12 * min(groups, chip.xcds) / chip.xcds)
    assert longer - shorter == pytest.approx(left, rel=0.02)


# A workgroup reads its own 256 KB, up to 12 KB at a time: by itself on a CU it does not draw its share of memory.
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


@pytest.mark.parametrize("rounds", [1, 1.5, left_out(2.5)])
def test_memory_gives_a_last_round_that_is_not_full_no_more_than_its_rate(rounds: float) -> None:
    gpu = simgpu.Device("mi300x", threads=1)
    groups = int(rounds * gpu.descriptor.num_cus)
    one = loaded_kernel(gpu, LONG_STREAM, "buffer").time(groups, 256, [gpu.alloc(groups << 18)])
    assert one.seconds >= (groups * 63 << 12) / sustained_rates(gpu.descriptor).hbm


@pytest.mark.parametrize("block, rate", [left_out(64, 0.3), (256, 0.3), (1024, 1.75 / 16)])
def test_a_launch_takes_no_less_than_its_dispatch(block: int, rate: float) -> None:
    """gpu-stream on MI210: 0.26 to 0.33 small workgroups a clock, and 1.75 waves of large ones."""
    kernel, buffer = kernel_on_words("s_nop 0", 256)
    one = kernel.time(1 << 16, block, [buffer], mhz=1000)
    assert one.limit == "dispatch" and one.cycles == pytest.approx((1 << 16) / rate, rel=0.02)


# Four waves sleep for 8,128 clocks, {pauses} times and once more. Then they keep the matrix units busy for 128 passes.
PRODUCT = """
s_movk_i32 s7, {pauses}
wait:
s_sleep 127
s_sub_u32 s7, s7, 1
s_cbranch_scc0 wait
s_movk_i32 s7, 127
again:
{work}
s_sub_u32 s7, s7, 1
s_cbranch_scc0 again
"""
CUS = 256  # of MI355X


@cache
def product(pauses: int, groups: int, work: str = "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]") -> Prediction:
    gpu = simgpu.Device("mi355x", threads=1)
    text = PRODUCT.format(pauses=pauses, work="\n".join([work] * 8))
    kernel = loaded_kernel(gpu, text, next_free_vgpr=32, accum_offset=32, group_segment_fixed_size=gpu.descriptor.lds_bytes)
    return predict(kernel.time(groups, 256, []).sampled)


def test_one_round_holds_the_clock_of_its_loop() -> None:
    """A board's clock by duty is published for loops of products of one round. In several rounds CUs do different parts."""
    chip, pauses = simgpu.Device("mi355x").descriptor, 16
    long, short = product(pauses, CUS), product(0, CUS)
    assert long.shares["matrix"] < 0.7 and long.clock.mhz == pytest.approx(short.clock.mhz, rel=0.01)
    assert short.clock.mhz == pytest.approx(sustained_clock(chip, Busy.product(1.0), 1.0, "bf16").mhz, rel=0.02)
    assert product(pauses, 2 * CUS).clock.mhz > 1.1 * long.clock.mhz


def test_a_launch_without_matrix_instructions_holds_the_clock_of_its_mean() -> None:
    work = "v_mov_b32 v0, v1\n" * 8
    assert product(16, CUS, work).clock.mhz > product(0, CUS, work).clock.mhz + 20
