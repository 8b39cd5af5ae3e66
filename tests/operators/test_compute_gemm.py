"""ComputeVisitor at every level against an independent float64 product, its counters against the closed form, and the error
bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ComputeVisitor, GemmProblem, TiledComputation, gemm_counters, reference
from tests.support.exhaustive import examples

LEVELS = ("device", "block", "warp", "atom")


def operands(tree: TiledComputation, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    p, arch = tree.problem, tree.descriptor.arch
    kinds = (p.dtype, p.dtype, p.dtype_c)
    if p.dtype == "i8":
        return [rng.integers(-128, 128, s).astype(numpy_dtype(k)) for s, k in zip(p.stored_shapes, kinds)]
    return [rng.standard_normal(s).astype(numpy_dtype(k, arch)) for s, k in zip(p.stored_shapes, kinds)]


def expected(p: GemmProblem, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    product = np.einsum(
        "km,kn->mn" if p.trans_a else "mk,kn->mn", a.astype("f8"), b.astype("f8").T if p.trans_b else b.astype("f8")
    )
    return p.alpha * product + (p.beta * c.astype("f8") if p.beta else 0)


dimension = st.integers(1, 80)
targets = st.sampled_from([("mi100", "f32"), ("mi210", "f64"), ("mi300x", "fp8"), ("mi355x", "bf16"), ("mi100", "i8")])


@pytest.mark.parametrize("level", LEVELS)
@given(dimension, dimension, dimension, st.booleans(), st.booleans(), st.sampled_from([(1.0, 0.0), (-0.5, 2.0)]),
       st.sampled_from(["corrected", "published"]), targets)
@settings(max_examples=examples(12))
def test_every_level_is_the_product(
    level: str, m: int, n: int, k: int, ta: bool, tb: bool, scale: tuple[float, float], policy: str, where: tuple[str, str]
) -> None:
    tree = TiledComputation(m, n, k, where[0], policy, where[1], ta, tb, *scale)
    if not tree.derivation.feasible:
        assert policy == "published"
        return
    a, b, c = operands(tree, m * n + k)
    visitor = ComputeVisitor(level)
    got, want = visitor.visit(tree, a, b, c), expected(tree.problem, a, b, c)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * (1 + np.abs(want).max()) * k)
    np.testing.assert_allclose(reference.gemm(tree.problem, a, b, c), want, rtol=0, atol=1e-12 * (1 + np.abs(want).max()) * k)
    closed, seen = gemm_counters(tree.plan), visitor.counters
    assert (seen.flops, seen.hbm_bytes) == (closed.flops, closed.hbm_bytes)
    if level != "device":
        assert (seen.global_bytes, seen.lds_write_bytes) == (closed.global_bytes, closed.lds_write_bytes)
    if level in ("warp", "atom"):
        assert seen.lds_read_bytes == closed.lds_read_bytes
    if level == "atom":
        assert seen.atoms == closed.atoms


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("target", "kind"), [("mi100", "f32"), ("mi100", "f16"), ("mi300x", "bf16"), ("mi100", "i8"), ("mi210", "f64")]
)
def test_accumulating_in_the_problem_type_stays_in_the_bound(level: str, target: str, kind: str) -> None:
    tree = TiledComputation(50, 37, 101, target, dtype=kind, alpha=1.5 if kind != "i8" else 3.0, beta=-2.0)
    a, b, c = operands(tree, 7)
    got = ComputeVisitor(level, accumulate="problem").visit(tree, a, b, c)
    assert got.dtype == numpy_dtype(tree.problem.dtype_c)
    error = np.abs(got.astype("f8") - reference.gemm(tree.problem, a, b, c))
    bound = reference.gemm_error_bound(tree.problem, a, b, c, hardware.target(target).arch)
    assert (error <= bound).all()
    if kind == "i8":
        assert not bound.any()


def test_the_bound_catches_one_lost_product() -> None:
    tree = TiledComputation(32, 32, 64)
    a, b, _ = operands(tree, 1)
    wrong = reference.gemm(tree.problem, np.where(np.arange(64) == 13, 0, a), b)
    bound = reference.gemm_error_bound(tree.problem, a, b)
    assert (np.abs(wrong - reference.gemm(tree.problem, a, b)) > bound).mean() > 0.9


def test_c_is_not_read_when_beta_is_zero() -> None:
    tree = TiledComputation(20, 20, 20)
    a, b, c = operands(tree, 3)
    assert np.isfinite(ComputeVisitor("block").visit(tree, a, b, np.full_like(c, np.nan))).all()
    assert np.isfinite(reference.gemm(tree.problem, a, b, np.full_like(c, np.nan))).all()


def test_wrong_shapes_and_levels() -> None:
    tree = TiledComputation(20, 30, 40, beta=1.0)
    a, b, c = operands(tree, 3)
    for bad in ((a.T, b, c), (a, b[:-1], c), (a, b, c.T), (a, b)):
        with pytest.raises(LaunchError, match="C was given" if len(bad) == 2 else "has shape"):
            ComputeVisitor().visit(tree, *bad)
    with pytest.raises(LaunchError, match="device, block, warp, atom"):
        ComputeVisitor("wave")
    with pytest.raises(LaunchError, match="f64, problem"):
        ComputeVisitor(accumulate="f16")


epilogues = st.tuples(st.integers(1, 3), st.booleans(), st.sampled_from(["none", "relu", "gelu", "silu"]))


@pytest.mark.parametrize("level", LEVELS)
@given(dimension, dimension, st.integers(1, 400), st.booleans(), epilogues)
@settings(max_examples=examples(10))
def test_batch_bias_activation(level: str, m: int, n: int, k: int, tb: bool, more: tuple[int, bool, str]) -> None:
    batch, bias, activation = more
    tree = TiledComputation(m, n, k, trans_b=tb, alpha=0.5, beta=-1.0, batch=batch, bias=bias, activation=activation)
    rng = np.random.default_rng(m + n * k)
    lead = () if batch == 1 else (batch,)
    a, b, c = (rng.standard_normal((*lead, *shape)).astype("f4") for shape in tree.problem.stored_shapes)
    row = rng.standard_normal(n).astype("f4") if bias else None
    x = 0.5 * (a.astype("f8") @ (np.swapaxes(b, -1, -2) if tb else b).astype("f8")) - c + (0 if row is None else row)
    tanh = np.tanh(x / 2) / 2 + 0.5
    erf = np.vectorize(math.erf)
    want = {"none": x, "relu": np.maximum(x, 0), "gelu": x * (1 + erf(x / math.sqrt(2))) / 2, "silu": x * tanh}[activation]
    visitor = ComputeVisitor(level)
    np.testing.assert_allclose(visitor.visit(tree, a, b, c, row), want, atol=1e-11 * k)
    np.testing.assert_allclose(reference.gemm(tree.problem, a, b, c, row), want, atol=1e-11 * k)
    closed = gemm_counters(tree.plan)
    assert visitor.counters.flops == closed.flops == 2 * batch * m * n * k and visitor.counters.hbm_bytes == closed.hbm_bytes
    if level != "device":
        assert visitor.counters.global_bytes == closed.global_bytes
    narrow = ComputeVisitor(level, "problem").visit(tree, a, b, c, row)
    bound = reference.gemm_error_bound(tree.problem, a, b, c, bias=row)
    assert narrow.dtype == np.float32 and (np.abs(narrow - want) <= bound).all()


def test_a_split_k_covers_k_once() -> None:
    tree = TiledComputation(100, 90, 3001)
    plan = tree.plan
    assert plan.split_k > 1 and "split K" in tree.tree()
    seen = np.zeros((100, 90, 3001), np.int8)
    for block in tree.children():
        a, _, c = block.views
        seen[c.rows.slice, c.cols.slice, a.cols.slice] += 1
        assert len(list(block.steps())) <= plan.k_steps_per_block
    assert (seen == 1).all() and sum(1 for _ in tree.children()) == plan.blocks


def test_missing_bias_and_unknown_activation() -> None:
    tree = TiledComputation(4, 5, 6, bias=True)
    with pytest.raises(LaunchError, match=r"none was given: pass one of shape \(5,\)"):
        ComputeVisitor().visit(tree, np.zeros((4, 6)), np.zeros((6, 5)))
    with pytest.raises(LaunchError, match="none, relu, gelu, silu"):
        TiledComputation(4, 5, 6, activation="tanh")
    with pytest.raises(LaunchError, match="batch = 0"):
        TiledComputation(4, 5, 6, batch=0)
