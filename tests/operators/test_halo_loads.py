"""Closed clocks of a halo's loads against the coalescer's, and the pieces into which a halo's pixels are cut."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from simgpu import asm
from simgpu.checks.path_trace.patterns import group_clocks
from simgpu.hardware import target
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators import Conv2d, Conv2dProblem, plan_conv2d
from simgpu.operators.conv2d.cost import conv2d_cost, halo_clocks, step_clocks
from simgpu.operators.conv2d.loads import lane_clocks
from simgpu.operators.conv2d.plan import with_tile
from simgpu.tools.cost.emitted import drawn_cases

ALL = (1 << 64) - 1


def traced(starts, size, line):
    """Returns the coalescer's clocks a lane, for whole waves of lanes that load `size` bytes from `starts`."""
    shift = line.bit_length() - 1
    every = 16 if size <= 4 else 4
    waves = np.split(starts[: len(starts) // 64 * 64], len(starts) // 64)
    return sum(group_clocks(wave, ALL, at, every, size, shift) for wave in waves for at in range(0, 64, every)) / 64 / len(waves)


def drawn_halo(source, layout):
    """Returns (addresses of lanes, arguments of `lane_clocks`) of a halo of random size, type, stride and image."""
    e, taps, stride = (int(source.choice(values)) for values in ((1, 2, 4, 8), (1, 3, 5), (1, 1, 2)))
    rows, columns, width = int(source.choice((2, 4, 8, 14))), 16, int(source.integers(24, 90))
    high, run = (rows - 1) * stride + taps, -(-((columns - 1) * stride + taps) // stride)
    slot = np.arange(high * run * stride)
    row, (phase, place) = slot // (run * stride), np.divmod(slot % (run * stride), run)
    pixel = row * width + place * stride + phase
    if layout == "nchw":
        return pixel * e, (e, stride * e, run, math.gcd(width * e, 128))
    ic, pieces = 8 * int(source.integers(4, 40)), int(source.choice((1, 2, 4)))
    at_once = int(source.choice((1, 16 // e)))
    piece = max(at_once, 32 // pieces)
    pieces = 32 // piece
    number, part = np.divmod(np.arange(len(slot) * pieces), pieces)
    if pieces > 1:
        apart, run = piece * e, pieces * (run if stride * ic == 32 else 1)
    else:
        apart = stride * ic * e
    return (pixel[number] * ic + part * piece) * e, (at_once * e, apart, run, math.gcd(ic * e, 128))


@pytest.mark.parametrize("line", [64, 128])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_closed_clocks_are_those_of_the_coalescer_in_the_mean(layout, line):
    """Rows of a halo meet banks by chance: a single halo differs by a factor of up to 3, their mean by less than 0.15."""
    source, ratios = np.random.default_rng(7), []
    for _ in range(300):
        starts, arguments = drawn_halo(source, layout)
        if len(starts) >= 64:
            ratios.append(math.log(lane_clocks(*arguments, line) / traced(starts, arguments[0], line)))
    assert len(ratios) > 200 and abs(np.mean(ratios)) < 0.15 and np.std(ratios) < 0.45 and np.abs(ratios).max() < math.log(3.2)


def test_pixels_are_cut_into_pieces_where_work_items_would_idle():
    """Pieces cost no clocks, leave few positions, and the kernel's loads are those that the plan counts."""
    cut = 0
    for _, board, problem in drawn_cases("conv2d", 5, 24):
        tree = Conv2d(problem, board)
        plan = tree.plan
        pieces, places = plan.pieces, -(-plan.halo.slots // plan.threads)
        assert plan.halo.chunks % pieces == 0 and plan.positions <= max(places, 8)
        assert plan._clocks_of_loads(pieces) <= plan._clocks_of_loads(1)
        assert pieces == 1 or plan.positions / pieces < places or plan._clocks_of_loads(pieces) < plan._clocks_of_loads(1)
        if pieces > 1:
            cut += 1
            text = asm.emit(tree).text
            first = [line for line in text.splitlines() if re.search(r"buffer_load.*X pixel \d+, channel", line)]
            loads = min(plan.positions, plan.batch) * plan.channels_of_piece // plan.channels_at_once
            assert len(first) >= 2 * loads - 1 and f"{plan.positions} piece(s) a work-item" in text
    assert cut > 8


def test_the_last_step_loads_no_halo():
    """A block of one step loads its halo before the step: nothing of the halo is in the step's clocks."""
    plan = plan_conv2d(Conv2dProblem(n=8, ic=256, ih=28, iw=28, oc=64, kh=1, kw=1, dtype="f16"), target("mi210"))
    clocks, halo = step_clocks(plan), halo_clocks(plan, sustained_rates(plan.descriptor).rates.cache)
    for split, each in ((plan.ic_steps, 1), (2, plan.ic_steps // 2), (1, plan.ic_steps)):
        cost = conv2d_cost(plan, split)
        assert cost.units == pytest.approx(max(clocks["LDS"], clocks["cache"] - halo / each))
        assert cost.burst == pytest.approx(clocks["cache"])
    assert clocks["LDS"] < clocks["cache"] - halo / plan.ic_steps


def test_channels_that_a_step_lacks_cost_nothing():
    """A halo of 55 channels costs 55/128 of one with 128, in the same step."""
    costs = []
    for channels in (55, 128):
        plan = plan_conv2d(Conv2dProblem(n=3, ic=channels, ih=85, iw=85, oc=49, kh=3, kw=3, dtype="bf8"), target("mi355x"))
        plan = with_tile(plan, 4, 64)
        assert plan is not None and plan.ic_steps == 1 and plan.tile_ic == 128
        costs.append(halo_clocks(plan, sustained_rates(plan.descriptor).rates.cache))
    assert costs[0] == pytest.approx(costs[1] * 55 / 128)
