"""Atomics of many workgroups on one line of memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.band import LAUNCH_SECONDS
from simgpu.timing.predict import Prediction, predict
from tests.support.timed_kernels import kernel_on_words

# Each wave adds once, at its workgroup's number times `apart` bytes.
COUNTER = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mul_i32 s6, s2, {apart}
v_mov_b32 v1, s6
v_mov_b32 v2, 1
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
global_atomic_add v1, v2, s[4:5]
"""
GROUPS = 8192


@cache
def timed(apart: int, groups: int = GROUPS) -> Prediction:
    kernel, buffer = kernel_on_words(COUNTER.format(apart=apart), max(64, apart * groups))
    found: Prediction = kernel.time(groups, 64, [buffer])
    return found


def test_atomics_on_one_counter_take_a_clock_each_at_least() -> None:
    one, other = timed(0), timed(64)
    assert one.sampled.atomics == GROUPS and other.sampled.atomics == 1
    assert one.cycles >= GROUPS
    assert any("on one line of memory" in note for note in one.notes)
    assert not any("atomics" in note for note in other.notes)
    assert one.high / one.seconds >= 1 + one.clock.band + 0.25 > other.high / other.seconds


def test_a_longer_wait_for_each_limits_the_launch() -> None:
    one = predict(timed(0).sampled, row=replace(pipelines("gfx90a"), atomic_clocks=100))
    assert one.limit == "atomics on one line" and one.cycles > 100 * GROUPS


def test_few_atomics_widen_the_band_less() -> None:
    one = timed(0, 500)
    assert one.sampled.atomics == 500 and any("atomics on the same lines" in note for note in one.notes)
    assert one.high / one.seconds == pytest.approx(1 + one.clock.band + 0.08 + LAUNCH_SECONDS / one.seconds)
