"""Convolution: every level against an independent loop, halo, packing, space-to-channel, counters, limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ComputeVisitor, Conv2d, Conv2dProblem, FeasibilityVisitor, pack_filter, reference, space_to_channel
from simgpu.operators.conv2d.plan import with_nest
from simgpu.operators.conv2d.problem import space_to_channel_operands
from simgpu.operators.levels import Level
from tests.support.exhaustive import examples

LEVELS = ("device", "block", "warp", "atom")
pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
problems = st.builds(
    lambda n, g, ic, oc, ih, iw, kh, kw, stride, padding, dilation: Conv2dProblem(
        n, ic * g, ih + dilation[0] * (kh - 1), iw + dilation[1] * (kw - 1), oc * g, kh, kw, stride, padding, dilation, g
    ),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 4),
    pair,
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    pair,
)


def direct(p: Conv2dProblem, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Computes one output element at a time, by the definition."""
    y = np.zeros(p.shapes[2])
    for n, oc, oh, ow in np.ndindex(*y.shape):
        first = oc // p.ocg * p.icg
        for kh, kw in product(range(p.kh), range(p.kw)):
            r, c = oh * p.stride[0] + kh * p.dilation[0] - p.padding[0], ow * p.stride[1] + kw * p.dilation[1] - p.padding[1]
            if 0 <= r < p.ih and 0 <= c < p.iw:
                y[n, oc, oh, ow] += x[n, first : first + p.icg, r, c] @ w[oc, :, kh, kw]
    return y


def operands(p: Conv2dProblem) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(p.flops)
    return rng.standard_normal(p.shapes[0]), rng.standard_normal(p.shapes[1])


@given(problems, st.sampled_from(["corrected", "published"]))
@settings(max_examples=examples(15))
def test_every_level_is_the_convolution(p: Conv2dProblem, policy: str) -> None:
    tree = Conv2d(p, "mi100", policy)
    x, w = operands(p)
    want = direct(p, x, w)
    np.testing.assert_allclose(reference.conv2d(p, x, w), want, atol=1e-11)
    if not tree.derivation.feasible:
        assert policy == "published"
        return
    seen = {}
    for level in LEVELS if p.flops < 300_000 else LEVELS[:3]:
        visitor = ComputeVisitor(level)
        np.testing.assert_allclose(visitor.visit(tree, x, w), want, atol=1e-11)
        seen[level] = visitor.counters
    assert seen["device"].hbm_bytes == seen["block"].hbm_bytes == p.bytes_once
    assert seen["block"].global_bytes == seen["warp"].global_bytes
    assert all(c.flops == p.flops for c in seen.values())


@given(problems)
@settings(max_examples=examples(10))
def test_f32_stays_in_the_bound(p: Conv2dProblem) -> None:
    x, w = (a.astype(np.float32) for a in operands(p))
    want, bound = reference.conv2d(p, x, w), reference.conv2d_error_bound(p, x, w)
    for level in ("device", "block", "warp"):
        got = ComputeVisitor(level, "problem").visit(Conv2d(p), x, w)
        assert got.dtype == np.float32 and (np.abs(got - want) <= bound).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype_c", "alpha", "bias"), [("f32", 0.3, False), ("f16", 0.25, True), ("i32", 3.0, True)])
def test_fractions_in_the_epilogue_of_integers(level: str, dtype_c: str, alpha: float, bias: bool) -> None:
    p = Conv2dProblem(1, 4, 5, 6, 3, 2, 2, dtype="i8", dtype_c=dtype_c, alpha=alpha, bias=bias)
    rng = np.random.default_rng(7)
    x, w = (rng.integers(-9, 10, shape).astype(np.int8) for shape in p.shapes[:2])
    row = np.array([4.5, -2.0, 0.25]) if dtype_c != "i32" else np.array([4, -2, 7])
    want = alpha * direct(p, x.astype(float), w.astype(float)) + bias * row[:, None, None]
    got = ComputeVisitor(level, "problem").visit(Conv2d(p), x, w, row if bias else None)
    assert got.dtype == (np.int32 if dtype_c == "i32" else np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@given(problems, st.integers(1, 4))
@settings(max_examples=examples(25))
def test_space_to_channel_is_the_same_convolution(p: Conv2dProblem, factor: int) -> None:
    after = space_to_channel(p, factor)
    x, w = operands(p)
    assert after.shapes[2] == p.shapes[2] and after.kh == -(-p.kh // factor)
    np.testing.assert_allclose(
        reference.conv2d(after, *space_to_channel_operands(p, factor, x, w)), reference.conv2d(p, x, w), atol=1e-11
    )


def test_e28_taps_that_are_left() -> None:
    rgb = Conv2dProblem(1, 3, 32, 32, 64, 3, 3, padding=(1, 1))
    by_two, by_three = space_to_channel(rgb, 2), space_to_channel(rgb, 3)
    assert (by_two.ic, by_two.kh * by_two.kw) == (12, 4)
    assert (by_three.ic, by_three.kh * by_three.kw) == (27, 1)
    assert space_to_channel(Conv2dProblem(1, 3, 32, 32, 64, 2, 2), 2).kh == 1


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_packed_filter(oc: int, ic: int, tile_oc: int, tile_ic: int) -> None:
    w = np.random.default_rng(oc).standard_normal((oc, ic, 3, 2))
    packed = pack_filter(w, tile_oc, tile_ic)
    assert packed.shape == (-(-oc // tile_oc), -(-ic // tile_ic), 3, 2, tile_oc, tile_ic) and packed.flags.c_contiguous
    for o, i in np.ndindex(oc, ic):
        assert (packed[o // tile_oc, i // tile_ic, :, :, o % tile_oc, i % tile_ic] == w[o, i]).all()
    assert np.abs(packed).sum() == pytest.approx(np.abs(w).sum())


@given(problems, st.sampled_from([(t, k) for t in hardware.targets() for k in hardware.target(t).dtypes()]))
@settings(max_examples=examples(150))
def test_independent_accounting(p: Conv2dProblem, where: tuple[str, str]) -> None:
    from dataclasses import replace

    d = hardware.target(where[0])
    plan = Conv2d(replace(p, dtype=where[1], dtype_c=""), d).plan
    e = plan.problem.element.bytes
    cut = plan.tiled_problem
    rows = len({oh * cut.stride[0] + kh * cut.dilation[0] for oh in range(plan.tile_oh) for kh in range(cut.kh)})
    high, wide = cut.halo(plan.tile_oh, plan.tile_ow)
    assert rows <= high
    slots = high * -(-wide // cut.stride[1]) * cut.stride[1]
    assert slots <= plan.halo.slots <= slots + d.lds_banks
    apart = 1 if plan.tile_ic * e > 4 * 16 else 0  # half a line after each 64 bytes of a channel, a channel's worth a tap
    lds = plan.tile_ic * e * (plan.halo.slots + 2 * (plan.tile_oc + apart))
    assert lds == plan.resources.lds_bytes and -(-lds // d.lds_granule) * d.lds_granule * plan.blocks_wanted <= d.lds_bytes
    acc = plan.pixels * plan.tile_oc * max(4, {"f64": 8}.get(plan.problem.dtype_c, 4)) // (4 * 256)
    assert acc == plan.resources.acc_vgprs <= 256 and plan.resources.blocks_per_cu >= 1
    assert plan.pixels % (2 * plan.atom.m) == plan.tile_oc % (2 * plan.atom.n) == plan.tile_ic % plan.atom.k == 0
    assert 0 < plan.fill <= 1 and 0 < plan.eta <= 1
    report = FeasibilityVisitor().visit(Conv2d(plan.problem, d))
    assert report.feasible and [node.level for node in report.nodes] == ["device", "block", "warp", "atom"]


def test_a_filter_that_lds_cannot_hold_is_cut_into_windows() -> None:
    huge = Conv2dProblem(1, 64, 4000, 4000, 64, 64, 64, dilation=(8, 8))
    plan = Conv2d(huge).plan
    assert plan.window == (1, 32) and plan.windows == (64, 2) and plan.feasible
    assert "windows of 1x32 taps as channels" in " ".join(Conv2d(huge).tree().split())


@pytest.mark.parametrize("sizes", [(64, 12, 64, 16), (2048, 4, 32, 2)], ids=["taps as channels", "split"])
def test_groups_are_merged_in_no_plan_with_other_reductions(sizes: tuple[int, ...]) -> None:
    ic, edge, oc, groups = sizes
    plan = Conv2d(Conv2dProblem(1, ic, edge, edge, oc, 3, 3, groups=groups, padding=(1, 1)), "mi300x").derivation
    assert plan.groups == 1 and (plan.factor > 1 or plan.split_ic > 1)
    loops = tuple(replace(loop, tile=2) if loop.axis == "group" else loop for loop in plan.nest[Level.DEVICE])
    assert with_nest(plan, {**plan.nest, Level.DEVICE: loops}).groups == 1


def test_what_cannot_be_says_so() -> None:
    for bad, message in ((dict(ic=3, groups=2), "ic = 3"), (dict(kh=40), "pad it by more"), (dict(padding=(-1, 0)), "negative")):
        with pytest.raises(LaunchError, match=message):
            Conv2dProblem(**{**dict(n=1, ic=4, ih=8, iw=8, oc=4, kh=3, kw=3), **bad})  # type: ignore[arg-type]


def test_tree_shows_policies() -> None:
    text = Conv2d(Conv2dProblem(8, 64, 56, 56, 64, 3, 3, padding=(1, 1))).tree()
    for part in ("boundary: views are clipped; X reads 0", "tiling: corrected for mi100", "halo re-read factor R", "W packed ("):
        assert part in text
