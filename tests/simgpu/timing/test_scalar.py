"""Scalar loads move bytes: a scalar cache of 16 KB that CUs share, then L2 and memory."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.timing.native import state
from simgpu.timing.predict import Prediction
from tests.support.kernels import loaded_kernel

# Each workgroup loads `passes` times `lines` lines of 64 bytes, from `stride` bytes times its number on.
KERNEL = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mul_i32 s6, s2, {stride}
s_mov_b32 s9, {passes}
s_waitcnt lgkmcnt(0)
s_add_u32 s4, s4, s6
s_addc_u32 s5, s5, 0
again:
s_mov_b32 s7, 0
s_mov_b32 s8, {lines}
line:
s_load_dwordx16 s[16:31], s[4:5], s7
s_add_u32 s7, s7, 64
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_waitcnt lgkmcnt(0)
s_cbranch_scc1 line
s_sub_u32 s9, s9, 1
s_cmp_lg_u32 s9, 0
s_cbranch_scc1 again
"""
GROUPS = 1000  # one on a CU at a time, by their LDS; two CUs share 16 KB


def timed(lines: int, passes: int, stride: int) -> Prediction:
    gpu = simgpu.Device("mi210", threads=1)
    kernel = loaded_kernel(gpu, KERNEL.format(lines=lines, passes=passes, stride=stride), "buffer", group_segment_fixed_size=65536)
    return kernel.time(GROUPS, 64, [gpu.alloc(stride * GROUPS + 64 * lines)])


def bytes_a_group(one: Prediction) -> float:
    """Returns the bytes that scalar loads of a workgroup request from L2."""
    return float(one.result.tally[state.Tally.SCALAR_BYTES]) / len(one.result.ends)


def test_a_workgroups_own_lines_come_from_memory_once() -> None:
    one = timed(64, 3, 4096)
    assert bytes_a_group(one) == 4096
    assert one.past_l2_bytes == pytest.approx(GROUPS * 4096, rel=0.1)
    assert one.seconds > one.past_l2_bytes / (one.sampled.chip.hbm_bandwidth_tb * 1e12)


def test_lines_of_all_workgroups_stay_in_the_scalar_cache() -> None:
    assert bytes_a_group(timed(8, 3, 0)) == 0


@pytest.mark.slow
def test_a_table_larger_than_the_scalar_cache_comes_from_l2_each_time() -> None:
    one = timed(1024, 2, 0)
    assert bytes_a_group(one) == 2 * 65536 + 64  # and the kernel argument, which they replace
    assert one.past_l2_bytes < 0.1 * GROUPS * 65536  # L2 has it
    assert one.seconds > 5 * timed(8, 2, 0).seconds


def test_kernel_arguments_are_loaded_once() -> None:
    """They are in the scalar cache from the CU's first workgroup on."""
    assert bytes_a_group(timed(1, 1, 0)) == 0
