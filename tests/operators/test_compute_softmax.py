"""Softmax: every level against float64, masks, the merge operator's algebra, finite floor, split-N."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ComputeVisitor, FeasibilityVisitor, Softmax, SoftmaxProblem, SoftmaxState, reference
from tests.support.exhaustive import examples

LEVELS = ("device", "block", "warp", "atom")


def plain(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for row, (values, mask) in enumerate(zip(x, keep)):
        if mask.any():
            e = np.exp(values[mask] - values[mask].max())
            out[row, mask] = e / e.sum()
    return out


@given(
    st.integers(1, 20),
    st.integers(1, 5000),
    st.floats(0, 1),
    st.sampled_from(["corrected", "published"]),
    st.sampled_from(["mi100", "mi355x"]),
    st.sampled_from([1.0, 30.0]),
    st.sampled_from(["f32", "f16"]),
)
@settings(max_examples=examples(25))
def test_every_level_with_masks(rows: int, n: int, density: float, policy: str, target: str, spread: float, y: str) -> None:
    rng = np.random.default_rng(rows * n)
    x, keep = rng.standard_normal((rows, n)) * spread, rng.random((rows, n)) < density
    keep[rng.integers(rows)] = False
    tree = Softmax(SoftmaxProblem(rows, n, scale=0.5, dtype_y=y), target, policy)
    want = plain(0.5 * x, keep)
    np.testing.assert_allclose(reference.softmax(tree.problem, x, keep), want, atol=1e-14)
    for level in LEVELS:
        visitor = ComputeVisitor(level)
        got = visitor.visit(tree, x, keep)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
        reads = 1 if level == "device" else tree.plan.reads
        partial = 0 if level == "device" or tree.plan.split_n == 1 else 16 * rows * -(-tree.plan.steps // tree.plan.steps_per_block)
        assert visitor.counters.global_bytes == rows * n * (4 * reads + {"f32": 4, "f16": 2}[y]) + partial
        assert visitor.counters.hbm_bytes == tree.problem.bytes_once
    x32 = x.astype("f4")
    want, bound = reference.softmax(tree.problem, x32, keep), reference.softmax_error_bound(tree.problem, x32, keep)
    for level in LEVELS:
        got = ComputeVisitor(level, "problem").visit(tree, x32, keep)
        assert got.dtype == np.float32 and (np.abs(got - want) <= bound).all()


finite = st.floats(-50, 50)
states = st.builds(lambda m, d: SoftmaxState(np.array([m]), np.array([d])), finite, st.floats(0, 10))


@given(states, states, states)
def test_merge_is_associative_and_commutative_with_a_neutral_element(a: SoftmaxState, b: SoftmaxState, c: SoftmaxState) -> None:
    def same(x: SoftmaxState, y: SoftmaxState) -> None:
        np.testing.assert_allclose([x.m, x.delta], [y.m, y.delta], rtol=1e-12, atol=1e-300)

    same(a.merge(b).merge(c), a.merge(b.merge(c)))
    same(a.merge(b), b.merge(a))
    empty = SoftmaxState.empty((1,), np.dtype(np.float64))
    same(a.merge(empty), a)
    same(empty.merge(empty), empty)


def test_e30_fully_padded_tiles_count_nothing() -> None:
    """With m = -inf a padded tile gives exp(-inf + inf) = NaN; zero padding adds exp(0 - m)."""
    empty = SoftmaxState.empty((1,), np.dtype(np.float32))
    padded = SoftmaxState.of(np.full((1, 8), -1e38, np.float32), np.zeros((1, 8), bool))
    both = empty.merge(padded)
    assert both.delta == 0 and np.isfinite(both.m).all()
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.exp(-np.inf - -np.inf))
    x = np.full((1, 3), -5.0)
    assert ComputeVisitor("atom").visit(Softmax(SoftmaxProblem(1, 3)), x) == pytest.approx(1 / 3)


def test_e29_flops_a_byte() -> None:
    problem = SoftmaxProblem(512, 512)
    assert problem.intensity(2) == pytest.approx(0.42, abs=0.005) and problem.intensity(1) == pytest.approx(0.625)
    narrow = SoftmaxProblem(512, 512, dtype_y="f16")  # 5 FLOP for 4 bytes read and 2 written
    assert narrow.intensity(1) == pytest.approx(5 / 6) == narrow.flops / narrow.bytes_once


@given(st.integers(1, 3000), st.integers(1, 200000), st.sampled_from(hardware.targets()), st.sampled_from(["f32", "f16"]))
@settings(max_examples=examples(100))
def test_limits(rows: int, n: int, target: str, dtype: str) -> None:
    if dtype not in hardware.target(target).dtypes():
        return
    tree = Softmax(SoftmaxProblem(rows, n, dtype), target)
    plan, d = tree.plan, tree.descriptor
    assert plan.resources.arch_vgprs * 2 <= (512 if d.unified_vgprs else 256)
    assert 1 <= plan.split_n <= plan.steps and (plan.split_n == 1 or plan.blocks <= 4 * d.num_cus), "at most four full rounds"
    assert sum(len(block.views[0].cols) for block in tree.children() if block.views[0].rows.min_ == 0) == n
    assert FeasibilityVisitor(hardware.target("mi300x")).visit(tree).feasible


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_infinities_nan_and_the_least_number(level: str, log: bool) -> None:
    x = np.random.default_rng(1).standard_normal((8, 300)).astype("f4")
    x[0, 9], x[1, 0], x[2], x[3, 1:], x[4], x[6] = np.inf, np.nan, -np.inf, -np.inf, np.finfo("f4").min, -np.inf
    keep = np.ones((8, 300), bool)
    keep[5], keep[6, :299] = False, False
    tree, nothing = Softmax(SoftmaxProblem(8, 300, mask=True, log=log)), -np.inf if log else 0
    for accumulate in ("f64", "problem"):
        got = ComputeVisitor(level, accumulate).visit(tree, x, keep)
        assert np.isnan(got[[0, 1, 2, 6]]).all() and (got[5] == nothing).all() and (got[3, 1:] == nothing).all()
        assert got[4] == pytest.approx(-np.log(300) if log else 1 / 300)
        np.testing.assert_allclose(got, reference.softmax(tree.problem, x, keep), rtol=1e-5, atol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(LaunchError, match="floating-point"):
        SoftmaxProblem(3, 4, "i8")
    with pytest.raises(LaunchError, match="mask has shape"):
        ComputeVisitor().visit(Softmax(SoftmaxProblem(3, 4)), np.zeros((3, 4)), np.ones((4, 3), bool))
    assert "finite floor -1e+38" in Softmax(SoftmaxProblem(3, 4)).tree()
