"""Attention in float64, and how far a kernel may be from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.error_model import FLUSHED_INPUT, LARGEST_EXPONENT, SMALLEST_F32, SMALLEST_F64, STEPS, gamma, may_be_nan
from simgpu.operators.softmax.reference import weights as softmax_weights
from simgpu.operators.tree import Extent


@may_be_nan
def attention(
    problem: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, queries: Extent | None = None
) -> NDArray[np.float64]:
    """softmax(scale * Q K^T) V in float64, (batch,heads,lq,d); 0 for queries that see no key. queries: these rows of it alone, from
    the whole Q, so that a large S need not be held at once."""
    return expected_parts(problem, q, k, v, queries or Extent.whole(problem.lq))[0]


@may_be_nan
def attention_error_bound(
    problem: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, arch: str = "gfx908", queries: Extent | None = None
) -> NDArray[np.float64]:
    """Elementwise bound on |kernel - float64 reference|, for any order of keys and merges, fused or not.

    A score is off by g(d+4) * scale|Q||K| of its row's largest, u the roundoff of the accumulation step; an exponent by twice that
    and 4u of the largest score. Each of lk weights adds 4u for exp, sums, rescales and products, so that numerator and denominator
    lie within a factor of e^r; the numerator's weights are rounded to the operands' type besides. exp may flush below 2^-126, a
    narrow P below its own smallest. gfx90a reads subnormal inputs as 0, P's as well.
    """
    p, row = problem, STEPS[problem.dtype]
    assert p.scale is not None
    rows = queries or Extent.whole(p.lq)
    _, weights, scores, values = expected_parts(p, q, k, v, rows)
    size_q, size_k = (np.abs(np.asarray(x).astype(np.float64)) for x in (q, k))
    absolute = _scores(p, size_q, size_k, rows)[0]
    unit = max(row.step, 2.0**-53)
    largest, terms = absolute.max(-1), np.abs(scores).max(-1)
    lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    of_q, of_k = size_q.sum(-1)[:, :, rows.slice], size_k.sum(-1).max(-1, initial=0.0)
    flushed = p.scale * lost * (of_q + np.repeat(of_k, p.heads // p.kv_heads, axis=1)[..., None] + p.d * lost)
    # f32 and f64 keep P as it is; the others round it to the operands' significand.
    rounding = 0.0 if p.dtype in ("f32", "f64") else 2.0 ** -p.element.significand + row.input_error
    exponent = 2 * flushed + 2 * largest * (gamma(p.d + 4, unit) + 2.1 * row.input_error) + (8 * terms + 4 * p.lk + 32) * unit
    r = np.minimum(exponent, LARGEST_EXPONENT)
    relative = np.expm1(2 * r) * (1 + rounding) + rounding
    tiny = lost or (2.0**-126 if p.dtype in ("f32", "f64", "xf32", "bf16") else _SMALLEST_WEIGHT[p.dtype])
    smallest = SMALLEST_F64 if p.dtype == "f64" else SMALLEST_F32  # subnormal sums round to its multiples
    spread = weights @ np.abs(values)
    total = np.abs(values).sum(-2, keepdims=True)
    own = (p.lk + 8) * (2.0**-52 * spread + smallest)
    return np.asarray(relative[..., None] * spread + own + (tiny + 2.0**-149) * 2 * total + lost)


# Smallest positive value: below it, a weight that is rounded to the type is 0 [IEEE 754; OCP OFP8 E4M3 and E5M2, FNUZ one lower].
_SMALLEST_WEIGHT = {"f16": 2.0**-24, "fp8": 2.0**-9, "bf8": 2.0**-16}


def _scores(p: AttentionProblem, q: ArrayLike, k: ArrayLike, queries: Extent) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scaled scores of these queries, masked ones 0, and which are kept."""
    q, k = (expect_shape(name, x, shape).astype(np.float64) for name, x, shape in (("Q", q, p.q_shape), ("K", k, p.kv_shape)))
    keep = p.keep(queries, Extent.whole(p.lk))
    assert p.scale is not None
    scores = p.scale * (q[:, :, queries.slice] @ np.swapaxes(np.repeat(k, p.heads // p.kv_heads, axis=1), -1, -2))
    return np.where(keep, scores, 0.0), np.broadcast_to(keep, scores.shape)


def expected_parts(
    p: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, queries: Extent
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """R, P, scaled scores (masked ones 0) of these queries and V of each query head."""
    scores, keep = _scores(p, q, k, queries)
    v = np.repeat(expect_shape("V", v, p.kv_shape).astype(np.float64), p.heads // p.kv_heads, axis=1)
    weights = softmax_weights(scores, keep)
    return weights @ v, weights, scores, v
