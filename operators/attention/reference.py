"""Attention in float64, and bounds on a kernel's error."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.cache import Cache, Sequence, each_sequence, sequences
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.error_model import (
    FLUSHED_INPUT,
    LARGEST_EXPONENT,
    SMALLEST_F32,
    SMALLEST_F64,
    STEPS,
    UNIT_F32,
    gamma,
    may_be_nan,
)
from simgpu.operators.softmax.reference import weights as softmax_weights
from simgpu.operators.tree import Extent

Array = NDArray[np.float64]


@may_be_nan
def attention(
    problem: AttentionProblem,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    queries: Extent | None = None,
    slopes: ArrayLike | None = None,
    cache: Cache | None = None,
) -> Array:
    """Returns softmax(scale * Q K^T) V in float64, (batch,heads,lq,dv); 0 for queries that see no key.

    queries: compute only these rows, from the whole Q, so that a large S need not be held at once. slopes: of ALiBi,
    (batch,heads). cache: for a cached problem.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionProblem, reference
    >>> x = np.eye(2)[None, None]
    >>> reference.attention(AttentionProblem(lq=2, lk=2, d=2, causal=True), x, x, x)[0, 0, 0]
    array([1., 0.])
    """
    if problem.cached:
        rows = queries or Extent.whole(problem.lq)
        return each_sequence(problem, rows, (problem.dv,), 0.0, lambda one: one.scale_v * attention(
            one.problem, one.q, one.k, one.v, rows, one.slopes), sequences(problem, q, k, v, slopes, cache))  # fmt: skip
    return expected_parts(problem, q, k, v, queries or Extent.whole(problem.lq), slopes)[0]


@may_be_nan
def attention_lse(
    problem: AttentionProblem, q: ArrayLike, k: ArrayLike, queries: Extent | None = None, slopes: ArrayLike | None = None,
    cache: Cache | None = None,
) -> Array:  # fmt: skip
    """Returns log(sum(exp(score))) of every query in float64, (batch,heads,lq); -infinity for queries that see no key.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionProblem, reference
    >>> x = np.zeros((1, 1, 2, 2))
    >>> reference.attention_lse(AttentionProblem(lq=2, lk=2, d=2), x, x).round(4)
    array([[[0.6931, 0.6931]]])
    """
    if problem.cached:
        rows = queries or Extent.whole(problem.lq)
        return each_sequence(problem, rows, (), -np.inf, lambda one: attention_lse(one.problem, one.q, one.k, rows, one.slopes),
                     sequences(replace(problem, dv=problem.d), q, k, k, slopes, cache))  # fmt: skip
    scores, keep = _scores(problem, q, k, queries or Extent.whole(problem.lq), slopes)
    seen = np.where(keep, scores, -np.inf)
    largest = seen.max(-1, keepdims=True)
    anchor = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        return np.asarray((anchor + np.log(np.exp(seen - anchor).sum(-1, keepdims=True)))[..., 0])


def given_slopes(p: AttentionProblem, slopes: ArrayLike | None) -> Array:
    """Returns ALiBi's slopes, (batch,heads); zeros if the problem has none. LaunchError if missing or of another shape."""
    if not p.alibi:
        return np.zeros(p.slopes_shape)
    return expect_shape("slopes", () if slopes is None else slopes, p.slopes_shape).astype(np.float64)


@may_be_nan
def attention_error_bound(
    problem: AttentionProblem,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    arch: str = "gfx908",
    queries: Extent | None = None,
    slopes: ArrayLike | None = None,
    cache: Cache | None = None,
) -> Array:
    """Returns an elementwise bound on |kernel - float64 reference|, for any order of keys and merges, fused or not.

    u is the roundoff of an accumulation step. A score is off by at most `gamma(d + 4, u)` times the largest scale*|Q||K| of its
    row. An exponent is off by twice that plus 8u times the row's largest |score|, and a soft cap adds 16u times the cap. exp,
    sums, rescales and products add 4u for each of lk weights, and 32u. With r the sum of these, numerator and denominator are
    each within a factor of e^r.

    P is also rounded to the operands' type. exp may return 0 below 2^-126, and a narrow P becomes 0 below its type's smallest
    value. gfx90a reads subnormal inputs, P included, as 0.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionProblem, reference
    >>> x = np.ones((1, 1, 2, 2))
    >>> bool((reference.attention_error_bound(AttentionProblem(lq=2, lk=2, d=2), x, x, x) < 1e-4).all())
    True
    """
    p, row = problem, STEPS[problem.dtype]
    rows = queries or Extent.whole(p.lq)
    if p.cached:
        return each_sequence(
            p, rows, (p.dv,), 0.0, lambda one: _scaled_bound(one, arch, rows), sequences(p, q, k, v, slopes, cache)
        )
    _, weights, scores, values = expected_parts(p, q, k, v, rows, slopes)
    # f32 and f64 keep P as it is; other types round it to the operands' significand.
    rounding = 0.0 if p.dtype in ("f32", "f64") else 2.0 ** -p.element.significand + row.input_error
    lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    r = np.minimum(_exponent_error(p, q, k, scores, arch, rows), LARGEST_EXPONENT)
    relative = np.expm1(2 * r) * (1 + rounding) + rounding
    tiny = lost or (2.0**-126 if p.dtype in ("f32", "f64", "xf32", "bf16") else _SMALLEST_WEIGHT[p.dtype])
    smallest = SMALLEST_F64 if p.dtype == "f64" else SMALLEST_F32  # subnormal sums round to its multiples
    spread = weights @ np.abs(values)
    total = np.abs(values).sum(-2, keepdims=True)
    own = (p.lk + 8) * (2.0**-52 * spread + smallest)
    return np.asarray(relative[..., None] * spread + own + (tiny + 2.0**-149) * 2 * total + lost)


@may_be_nan
def attention_lse_error_bound(
    problem: AttentionProblem,
    q: ArrayLike,
    k: ArrayLike,
    arch: str = "gfx908",
    queries: Extent | None = None,
    slopes: ArrayLike | None = None,
    cache: Cache | None = None,
) -> Array:
    """Returns a bound on |kernel - `attention_lse`|, (batch,heads,lq): the exponents' error, and units of result and ln(lk).

    >>> import numpy as np
    >>> from simgpu.operators import AttentionProblem, reference
    >>> x = np.ones((1, 1, 2, 2))
    >>> bool((reference.attention_lse_error_bound(AttentionProblem(lq=2, lk=2, d=2), x, x) < 1e-4).all())
    True
    """
    p, rows = problem, queries or Extent.whole(problem.lq)
    if p.cached:
        return each_sequence(p, rows, (), 0.0, lambda one: attention_lse_error_bound(one.problem, one.q, one.k, arch, rows,
                     one.slopes), sequences(replace(p, dv=p.d), q, k, k, slopes, cache))  # fmt: skip
    scores, _ = _scores(p, q, k, rows, slopes)
    size = np.abs(attention_lse(p, q, k, rows, slopes))
    size = np.where(np.isfinite(size), size, 0.0)
    unit = max(STEPS[p.dtype].step, 2.0**-53)
    return np.asarray(_exponent_error(p, q, k, scores, arch, rows) + (8 * size + 16 + 2 * math.log(p.lk)) * unit)


def _scaled_bound(one: Sequence, arch: str, rows: Extent) -> Array:
    """Returns the bound of a sequence's heads, whose result is multiplied by a scale, with one more rounding."""
    given = (one.problem, one.q, one.k, one.v)
    bound = attention_error_bound(*given, arch, rows, one.slopes)
    size = np.abs(attention(*given, rows, one.slopes)) + bound
    return np.asarray(abs(one.scale_v) * (bound + 2 * UNIT_F32 * size) + 2.0**-149)


def _exponent_error(p: AttentionProblem, q: ArrayLike, k: ArrayLike, scores: Array, arch: str, rows: Extent) -> Array:
    """Returns r of `attention_error_bound`, (batch,heads,queries): error of an exponent, and of the sums and rescales after it."""
    assert p.scale is not None
    row, unit = STEPS[p.dtype], max(STEPS[p.dtype].step, 2.0**-53)
    size_q, size_k = (np.abs(np.asarray(x).astype(np.float64)) for x in (q, k))
    absolute = abs(p.scale) * _products(p, size_q, size_k, rows)
    largest, terms = np.where(p.keep(rows, Extent.whole(p.lk)), absolute, 0.0).max(-1), np.abs(scores).max(-1)
    lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    of_q, of_k = size_q.sum(-1)[:, :, rows.slice], size_k.sum(-1).max(-1, initial=0.0)
    flushed = abs(p.scale) * lost * (of_q + np.repeat(of_k, p.heads // p.kv_heads, axis=1)[..., None] + p.d * lost)
    rounded = (8 * terms + 4 * p.lk + 32 + 16 * (p.softcap or 0.0)) * unit
    return np.asarray(2 * flushed + 2 * largest * (gamma(p.d + 4, unit) + 2.1 * row.input_error) + rounded)


# Smallest positive value of the type; smaller weights may be rounded to 0 [IEEE 754; OCP OFP8 E4M3 and E5M2; those of FNUZ are
# half as large].
_SMALLEST_WEIGHT = {"f16": 2.0**-24, "fp8": 2.0**-9, "bf8": 2.0**-16}


def _products(p: AttentionProblem, q: ArrayLike, k: ArrayLike, queries: Extent) -> Array:
    """Returns Q K^T of these queries."""
    q, k = (expect_shape(name, x, shape).astype(np.float64) for name, x, shape in (("Q", q, p.q_shape), ("K", k, p.k_shape)))
    return np.asarray(q[:, :, queries.slice] @ np.swapaxes(np.repeat(k, p.heads // p.kv_heads, axis=1), -1, -2))


def _scores(
    p: AttentionProblem, q: ArrayLike, k: ArrayLike, queries: Extent, slopes: ArrayLike | None
) -> tuple[Array, NDArray[np.bool_]]:
    """Returns scores of these queries (scaled, capped and biased, masked ones 0), and a mask of the kept ones."""
    keys = Extent.whole(p.lk)
    keep = p.keep(queries, keys)
    assert p.scale is not None
    scores = p.scale * _products(p, q, k, queries)
    if p.softcap is not None:
        scores = p.softcap * np.tanh(scores / p.softcap)
    if p.alibi:
        scores = scores - given_slopes(p, slopes)[..., None, None] * p.distance(queries, keys)
    return np.where(keep, scores, 0.0), np.broadcast_to(keep, scores.shape)


def expected_parts(
    p: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, queries: Extent, slopes: ArrayLike | None = None
) -> tuple[Array, Array, Array, Array]:
    """Returns R, P, scores (scaled, capped, biased; masked ones 0) of these queries, and V of each query head."""
    scores, keep = _scores(p, q, k, queries, slopes)
    v = np.repeat(expect_shape("V", v, p.v_shape).astype(np.float64), p.heads // p.kv_heads, axis=1)
    weights = softmax_weights(scores, keep)
    return weights @ v, weights, scores, v
