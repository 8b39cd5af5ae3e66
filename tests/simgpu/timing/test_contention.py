"""Atomics of many workgroups on one line of memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.band import LAUNCH_SECONDS
from simgpu.timing.contention import _share
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
GROUPS = 4096


@cache
def timed(apart: int, groups: int = GROUPS) -> Prediction:
    kernel, buffer = kernel_on_words(COUNTER.format(apart=apart), max(64, apart * groups))
    found: Prediction = kernel.time(groups, 64, [buffer])
    return found


@pytest.mark.slow
def test_atomics_on_one_counter_take_a_clock_each_at_least() -> None:
    one, other = timed(0), timed(128)
    assert one.sampled.atomics.requests == GROUPS and other.sampled.atomics.requests == 1
    assert one.cycles >= GROUPS
    assert any("on one line of memory" in note for note in one.notes)
    assert not any("atomics" in note for note in other.notes)
    assert one.high / one.seconds >= 1 + one.clock.band + 0.25 > other.high / other.seconds


def test_a_longer_wait_for_each_limits_the_launch() -> None:
    one = predict(timed(0).sampled, row=replace(pipelines("gfx90a"), atomic_clocks=100))
    assert one.limit == "atomics on one line" and one.cycles > 100 * GROUPS


def test_few_atomics_widen_the_band_less() -> None:
    one = timed(0, 500)
    assert one.sampled.atomics.requests == 500 and any("atomics on the same lines" in note for note in one.notes)
    assert one.high / one.seconds == pytest.approx(1 + one.clock.band + 0.08 + LAUNCH_SECONDS / one.seconds)


# Each wave decrements a counter by a scalar atomic, a workgroup's `apart` bytes from the next one's, and ends.
SCALAR = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mul_i32 s6, s2, {apart}
s_mov_b32 s7, 0x10000
s_waitcnt lgkmcnt(0)
s_atomic_dec s7, s[4:5], s6
"""


def test_a_launch_ends_after_its_scalar_atomics() -> None:
    """Launches one round of workgroups, so each has a CU to itself; 100 clocks for each on one line."""
    slow = replace(pipelines("gfx90a"), atomic_clocks=100)
    cycles = {}
    for apart in (0, 4096):
        kernel, buffer = kernel_on_words(SCALAR.format(apart=apart), 4096 * 100)
        cycles[apart] = predict(kernel.time(100, 64, [buffer]).sampled, row=slow).cycles
    assert cycles[0] - cycles[4096] == pytest.approx(99 * 100, rel=0.1)


@pytest.mark.parametrize("shared", [1, 4, 32])
def test_workgroups_that_share_a_line_are_estimated_by_pairs_of_samples(shared: int) -> None:
    """Gives `shared` neighbours of 64 workgroups a line of their own; 16 workgroups are samples."""
    lines = [np.array([group // shared], np.uint32) for group in range(0, 64, 4 if shared > 4 else 1)]
    (found, apart), true = _share(lines, np.ones(len(lines)), np.arange(len(lines)) % 8), (shared - 1) / 63
    assert apart == (0 if shared == 1 else 1)
    assert max(0.0, true - 0.1) <= found <= true


def test_samples_that_meet_once_show_no_contention() -> None:
    lines = [np.array([line], np.uint32) for line in (0, 0, 2, 3)]
    assert _share(lines, np.ones(4), np.zeros(4, np.int64))[0] < 0.02


@pytest.mark.parametrize("xcds", [1, 2, 4])
def test_a_line_moves_only_between_workgroups_of_different_xcds(xcds: int) -> None:
    lines = [np.zeros(1, np.uint32)] * 16
    _, apart = _share(lines, np.ones(16), np.arange(16) % xcds)
    assert apart == pytest.approx((16 - 16 / xcds) / 15)


@pytest.mark.parametrize("apart", [0, 4096])
def test_a_line_that_moves_between_xcds_delays_the_atomics_on_it(apart: int) -> None:
    """80 workgroups of a round, ten on each of eight XCDs: each adds once, to one line or to lines of their own."""
    kernel, buffer = kernel_on_words(COUNTER.format(apart=apart), 4096 * 80, target="mi300x")
    sampled = kernel.time(80, 64, [buffer]).sampled
    moving, still = (predict(sampled, row=replace(pipelines("gfx942"), line_move_ns=ns)) for ns in (1000, 0))
    assert sampled.atomics.moves == pytest.approx(0 if apart else 80 * 70 / 79)
    assert 1e6 * (moving.seconds - still.seconds) == pytest.approx(0 if apart else 70, rel=0.1)


# Each workgroup waits until the one before it has stored its flag, and decrements its counter. 32 counters are in a line.
IN_ORDER = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_lshl_b32 s6, s2, 2
v_mov_b32 v1, s6
v_mov_b32 v6, 1
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5] sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s7, v2
s_cmp_eq_u32 s7, 0
s_cbranch_scc1 again
global_store_dword v1, v6, s[4:5] offset:4
s_mov_b32 s7, 0x10000
s_add_u32 s6, s6, 4096
s_atomic_dec s7, s[4:5], s6
"""


def test_all_workgroups_that_ran_in_order_show_how_their_atomics_meet() -> None:
    """Only the first, middle and last of them are samples, each with a line of its own."""
    kernel, _ = kernel_on_words(IN_ORDER, 64, target="mi300x")
    words = np.zeros(2048, np.uint32)
    words[0] = 1  # the first one need not wait
    sampled = kernel.time(160, 64, [kernel.module.device.upload(words)]).sampled
    assert len(sampled.whole) == 3
    assert sampled.atomics.requests == pytest.approx(160 * 31 / 159, rel=0.1)
    assert sampled.atomics.moves == pytest.approx(160 * 28 / 159, rel=0.1)
