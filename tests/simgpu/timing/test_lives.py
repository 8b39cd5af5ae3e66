"""Loads of a late phase, which the traced beginnings of workgroups do not reach."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.sampling import samples
from tests.support.timed_kernels import kernel_on_words

GROUPS = 304  # one on each CU of an MI300X, 38 on each XCD
SHARING = GROUPS // 8
# One wave loads `kilobytes` at `first`, then as many at `second`. Phase 1 ends before phase 2 begins.
PHASES = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 4, v0
s_mul_i32 s6, s2, {step}
{second}
s_waitcnt lgkmcnt(0)
s_movk_i32 s8, {kilobytes}
v_add_u32 v2, s6, v1
first:
global_load_dwordx4 v[4:7], v2, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 0x400, v2
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 first
s_movk_i32 s8, {kilobytes}
v_add_u32 v2, s7, v1
second:
global_load_dwordx4 v[4:7], v2, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 0x400, v2
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 second
"""
FAR = "s_add_u32 s7, s7, {after}"  # after all that phase 1 loads
# The same as one loop in another, so that one instruction loads in both phases.
NESTED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 4, v0
s_mul_i32 s6, s2, {step}
{second}
s_waitcnt lgkmcnt(0)
s_movk_i32 s9, 2
v_add_u32 v2, s6, v1
phase:
s_movk_i32 s8, {kilobytes}
next:
global_load_dwordx4 v[4:7], v2, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 0x400, v2
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 next
v_add_u32 v2, s7, v1
s_sub_u32 s9, s9, 1
s_cmp_lg_u32 s9, 0
s_cbranch_scc1 phase
"""
AGAIN = "s_mov_b32 s7, s6"
SHARED = "s_mov_b32 s7, 0\n" + FAR
THREE_TIMES_AS_FAR = "s_mul_i32 s7, s6, 3\n" + FAR
IN_PAIRS = "s_lshr_b32 s7, s2, 4\ns_mul_i32 s7, s7, {step}\n" + FAR  # no load of phase 1 moves like this


def last_load(
    phases: str, second: str, kilobytes: int, monkeypatch: pytest.MonkeyPatch, target: str = "mi300x"
) -> tuple[float, float]:
    """Returns the bytes that L2 passes on, for each requested byte, and the fraction of these that memory serves."""
    monkeypatch.setattr(samples, "LEAST_STEPS", 48)
    monkeypatch.setattr(samples, "BEGINNING_STEPS", 0)
    monkeypatch.setattr(samples, "FRONT_STEPS", 0)
    step = kilobytes << 10
    text = phases.format(kilobytes=kilobytes, step=hex(step), second=second.format(step=hex(step), after=hex(GROUPS * step)))
    kernel, buffer = kernel_on_words(text, 4 * GROUPS * step, target)
    found = kernel.time(GROUPS, 64, [buffer])
    loads = np.flatnonzero((found.code.lane_bytes == 16) & (found.result.hits > 0))
    near, far = found.traffic.past[:, loads[-1]]
    return float(near), float(far)


@pytest.mark.parametrize(
    ("second", "kilobytes", "near", "far"),
    [
        pytest.param(SHARED, 64, 1 / SHARING, 1 / 8, id="a table of all workgroups"),
        pytest.param(AGAIN, 64, 0.0, None, id="own data that fit L2"),
        pytest.param(AGAIN, 256, 1.0, 0.0, id="own data that fit the Infinity Cache only"),
        pytest.param(THREE_TIMES_AS_FAR, 64, 1.0, 1.0, id="other data, three times as far apart"),
        pytest.param(IN_PAIRS, 64, 1.0, 1.0, id="it is not known where: the mean of the other loads"),
    ],
)  # fmt: skip
def test_a_load_that_no_beginning_reaches(
    second: str, kilobytes: int, near: float, far: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = last_load(PHASES, second, kilobytes, monkeypatch)
    assert found[0] == pytest.approx(near, abs=0.06)
    assert far is None or found[1] == pytest.approx(far, abs=0.02)


def test_own_data_of_a_gpu_without_an_infinity_cache_come_from_memory_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_load(PHASES, AGAIN, 256, monkeypatch, "mi210") == pytest.approx((1.0, 1.0), abs=0.02)


@pytest.mark.parametrize(
    ("second", "kilobytes", "near", "far"),
    [
        pytest.param(SHARED, 64, (1 + 1 / SHARING) / 2, 1.0, id="a table of all workgroups"),
        pytest.param(AGAIN, 64, 0.5, 1.0, id="own data that fit L2"),
        pytest.param(AGAIN, 256, 1.0, 0.5, id="own data that fit the Infinity Cache only"),
    ],
)  # fmt: skip
def test_a_load_whose_later_executions_no_beginning_reaches(
    second: str, kilobytes: int, near: float, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the mean of both phases."""
    assert last_load(NESTED, second, kilobytes, monkeypatch) == pytest.approx((near, far), abs=0.04)
