"""float64 references, and how far a kernel may be from them: a bound from type and K, not a tolerance to taste."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.plan import AttentionProblem
from simgpu.operators.conv2d.execute import convolve
from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.gemm.epilogue import activation, op, stored_operands
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.softmax.plan import SoftmaxProblem
from simgpu.operators.tree import Extent

_SMALLEST_F32 = 2.0**-149


@dataclass(frozen=True)
class _Arithmetic:
    """Model of one input type's matrix arithmetic: unit roundoff of a step, relative error of an input."""

    step: float
    input_error: float = 0.0


# Steps: f32 and f64 are fused multiply-add chains; the narrow types sum exact products in f32, on gfx942 and gfx950 with terms cut
# at 2^-24 of the largest, at most 8 or 16 at a time (MMA-Sim, arXiv 2511.10909). 4 units a step cover a cut of each product, of C
# and of the sum, besides its rounding. xf32 drops 13 mantissa bits by truncation, 2^-10 of the value.
_STEPS = {
    "f32": _Arithmetic(2.0**-24),
    "f64": _Arithmetic(2.0**-53),
    "f16": _Arithmetic(4 * 2.0**-24),
    "bf16": _Arithmetic(4 * 2.0**-24),
    "fp8": _Arithmetic(4 * 2.0**-24),
    "bf8": _Arithmetic(4 * 2.0**-24),
    "xf32": _Arithmetic(4 * 2.0**-24, input_error=2.0**-10),
    "i8": _Arithmetic(0.0),
}
# gfx90a reads subnormal f16 and bf16 inputs as 0 (MMA-Sim; MIOpen, "MI200 MFMA behavior specifics").
_FLUSHED_INPUT = {"f16": 2.0**-14, "bf16": 2.0**-126}


def gemm(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, bias: ArrayLike | None = None
) -> NDArray[np.float64]:
    """activation(alpha*op(A)op(B) + beta*C + bias) in float64, (m,n); operands in their stored shapes, C read only if beta is not
    0."""
    return activation(problem.activation)(_before_activation(problem, a, b, c, bias))


def gemm_error_bound(
    problem: GemmProblem,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    arch: str = "gfx908",
    bias: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Elementwise bound, (m,n), on |kernel - float64 reference| for any order of summation, without overflow.

    |alpha| * g * |A||B| + 3u * (|alpha||A||B| + |beta C|) with g = (k+2)*u/(1-(k+2)*u) (Higham, Accuracy and Stability, section
    3.1), u the roundoff of the accumulation step; plus the input error of xf32, the inputs that gfx90a flushes, and the subnormal
    spacing. A bias is one more addition; an activation passes an error on with its largest slope and adds 16 roundoffs of f32 (f64:
    2^-53) of its own. The reference's own error is bounded by the f64 term that is added for every type but i8, which is exact
    (alpha and beta integers).
    """
    operands = stored_operands(problem, a, b, c, bias)
    stored_a, stored_b, stored_c, stored_bias = (None if x is None else np.abs(x.astype(np.float64)) for x in operands)
    assert stored_a is not None and stored_b is not None
    op_a, op_b = op(stored_a, problem.trans_a), op(stored_b, problem.trans_b)
    row = _STEPS[problem.dtype]
    sums = abs(problem.alpha) * (op_a @ op_b)
    extra = (0.0 if stored_c is None else abs(problem.beta) * stored_c) + (0.0 if stored_bias is None else stored_bias)
    own = _gamma(problem.k + 4, 2.0**-53) if row.step else 0.0
    bound = sums * (_gamma(problem.k + 2, row.step) + own + 2.1 * row.input_error) + (4 * row.step + own) * (sums + extra)
    if arch == "gfx90a" and problem.dtype in _FLUSHED_INPUT:
        lost = _FLUSHED_INPUT[problem.dtype]
        bound = bound + abs(problem.alpha) * lost * (op_a.sum(-1)[..., :, None] + op_b.sum(-2)[..., None, :] + problem.k * lost)
        bound = bound + abs(problem.alpha) * (problem.k + 2) * 2.0**-126
    if row.step and problem.dtype != "f64":
        bound = bound + (abs(problem.alpha) * problem.k + 2) * _SMALLEST_F32
    if problem.activation in _SLOPES:
        unit = 2.0**-53 if problem.dtype == "f64" else 2.0**-24
        bound = bound * _SLOPES[problem.activation] + 16 * unit * (sums + extra)
    return np.asarray(bound)


# Largest |derivative|: gelu 1.129 at x = 1.414, silu 1.0999 at x = 2.40 (both from setting the second derivative to 0).
_SLOPES = {"gelu": 1.13, "silu": 1.1}


def _gamma(steps: int, unit: float) -> float:
    return steps * unit / (1 - steps * unit)


def _before_activation(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None, bias: ArrayLike | None
) -> NDArray[np.float64]:
    stored_a, stored_b, stored_c, stored_bias = stored_operands(problem, a, b, c, bias)
    product = op(stored_a, problem.trans_a).astype(np.float64) @ op(stored_b, problem.trans_b).astype(np.float64)
    out: NDArray[np.float64] = problem.alpha * product
    if stored_c is not None:
        out = out + problem.beta * stored_c.astype(np.float64)
    return out if stored_bias is None else out + stored_bias.astype(np.float64)


def conv2d(problem: Conv2dProblem, x: ArrayLike, w: ArrayLike) -> NDArray[np.float64]:
    """Y (n,oc,oh,ow) in float64, tap by tap over whole arrays."""
    return convolve(problem, np.asarray(x).astype(np.float64), np.asarray(w).astype(np.float64))


def conv2d_error_bound(problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, arch: str = "gfx908") -> NDArray[np.float64]:
    """Elementwise bound on |kernel - float64 reference|: GEMM's, with k = (ic/groups)*kh*kw."""
    p, row = problem, _STEPS[problem.dtype]
    sizes = np.abs(np.asarray(x).astype(np.float64)), np.abs(np.asarray(w).astype(np.float64))
    sums = conv2d(p, *sizes)
    terms = p.icg * p.kh * p.kw
    own = _gamma(terms + 4, 2.0**-53) if row.step else 0.0
    subnormal = np.asarray((terms + 2) * _SMALLEST_F32 if row.step and p.dtype != "f64" else 0.0)
    if arch == "gfx90a" and p.dtype in _FLUSHED_INPUT:
        lost = _FLUSHED_INPUT[p.dtype]
        ones = np.ones(p.shapes[0]), np.ones(p.shapes[1])
        subnormal = lost * (conv2d(p, sizes[0], ones[1]) + conv2d(p, ones[0], sizes[1]) + terms * lost) + (terms + 2) * 2.0**-126
    return np.asarray(sums * (_gamma(terms + 2, row.step) + own + 2.1 * row.input_error) + subnormal)


def softmax(problem: SoftmaxProblem, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
    """gain * softmax of the rows of scale * X in float64; what the mask leaves out, and rows that it leaves out whole, give 0."""
    scores = problem.scale * np.asarray(x).astype(np.float64)
    return problem.gain * _weights(scores, problem.keep(mask))


def softmax_error_bound(problem: SoftmaxProblem, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
    """Elementwise bound on |kernel - float64 reference|, for any order of merges.

    Scores and their distance from the maximum carry 4u of their largest size, an exp 4u, each of at most n merges or additions 4u;
    a relative error r of numerator and denominator makes 2r/(1-r) of the quotient. exp may flush below 2^-126. Infinite scores give
    0, 1 or NaN without an error, and what is left out does not count. Y is rounded to its type: half a unit of its last place.
    """
    unit = 2.0**-53 if problem.dtype == "f64" else 2.0**-24
    scores = np.abs(problem.scale * np.asarray(x).astype(np.float64))
    scores = np.where(problem.keep(mask) & np.isfinite(scores), scores, 0.0)
    largest = scores.max(-1, initial=0.0)[:, None]
    r = np.expm1((8 * largest + 4 * problem.n + 16) * unit)
    own = (problem.n + 8) * 2.0**-52
    rounding, tiny = _ROUNDING.get(problem.element_y.name, (0.0, 0.0))
    return np.asarray(softmax(problem, x, mask) * (2 * r / (1 - r) + own + rounding) + problem.gain * 2.0**-126 + tiny)


# Half a unit in the last place of 1, and half the smallest subnormal (IEEE 754; bfloat16).
_ROUNDING = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}


def _weights(scores: NDArray[np.float64], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    shifted = np.where(keep, scores, -np.inf)
    largest = shifted.max(-1, keepdims=True)
    e = np.exp(shifted - np.where(np.isfinite(largest), largest, 0.0))
    total = e.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinity over infinity, NaN
        return np.asarray(e / np.where(total == 0, 1, total))


def attention(
    problem: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, queries: Extent | None = None
) -> NDArray[np.float64]:
    """softmax(scale * Q K^T) V in float64, (batch,heads,lq,d); 0 for queries that see no key. queries: these rows of it alone, from
    the whole Q, so that a large S need not be held at once."""
    return _attention(problem, q, k, v, queries or Extent.whole(problem.lq))[0]


def attention_error_bound(
    problem: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, arch: str = "gfx908", queries: Extent | None = None
) -> NDArray[np.float64]:
    """Elementwise bound on |kernel - float64 reference|, for any order of keys and merges, fused or not.

    A score is off by g(d+4) * scale|Q||K| of its row's largest, u the roundoff of the accumulation step; an exponent by twice that
    and 4u of the largest score. Each of lk weights adds 4u for exp, sums, rescales and products, and its rounding to the operands'
    type. A relative error r in numerator and denominator makes 2r/(1-r) of P|V|. exp may flush below 2^-126, a narrow P below its
    own smallest. gfx90a reads subnormal inputs as 0, P's as well.
    """
    p, row = problem, _STEPS[problem.dtype]
    assert p.scale is not None
    rows = queries or Extent.whole(p.lq)
    _, weights, scores, values = _attention(p, q, k, v, rows)
    size_q, size_k = (np.abs(np.asarray(x).astype(np.float64)) for x in (q, k))
    absolute = _scores(p, size_q, size_k, rows)[0]
    unit = max(row.step, 2.0**-53)
    largest, terms = absolute.max(-1), np.abs(scores).max(-1)
    lost = _FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    of_q, of_k = size_q.sum(-1)[:, :, rows.slice], size_k.sum(-1).max(-1, initial=0.0)
    flushed = p.scale * lost * (of_q + np.repeat(of_k, p.heads // p.kv_heads, axis=1)[..., None] + p.d * lost)
    # f32 and f64 keep P as it is; the others round it to the operands' significand.
    rounding = 0.0 if p.dtype in ("f32", "f64") else 2.0 ** -p.element.significand + row.input_error
    exponent = 2 * flushed + 2 * largest * (_gamma(p.d + 4, unit) + 2.1 * row.input_error) + (8 * terms + 4 * p.lk + 32) * unit
    r = np.expm1(exponent) + rounding
    tiny = lost or (2.0**-126 if p.dtype in ("f32", "f64", "xf32", "bf16") else _SMALLEST_WEIGHT[p.dtype])
    spread = weights @ np.abs(values)
    total = np.abs(values).sum(-2, keepdims=True)
    return np.asarray(
        (2 * r / (1 - r))[..., None] * spread + (tiny + 2.0**-149) * 2 * total + lost + (p.lk + 8) * 2.0**-52 * spread
    )


# Smallest positive value: below it, a weight that is rounded to the type is 0 [IEEE 754; OCP OFP8 E4M3 and E5M2, FNUZ one lower].
_SMALLEST_WEIGHT = {"f16": 2.0**-24, "fp8": 2.0**-9, "bf8": 2.0**-16}


def _scores(p: AttentionProblem, q: ArrayLike, k: ArrayLike, queries: Extent) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scaled scores of these queries, masked ones 0, and which are kept."""
    q, k = (expect_shape(name, x, shape).astype(np.float64) for name, x, shape in (("Q", q, p.q_shape), ("K", k, p.kv_shape)))
    keep = p.keep(queries, Extent.whole(p.lk))
    assert p.scale is not None
    scores = p.scale * (q[:, :, queries.slice] @ np.swapaxes(np.repeat(k, p.heads // p.kv_heads, axis=1), -1, -2))
    return np.where(keep, scores, 0.0), np.broadcast_to(keep, scores.shape)


def _attention(
    p: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, queries: Extent
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """R, P, scaled scores (masked ones 0) of these queries and V of each query head."""
    scores, keep = _scores(p, q, k, queries)
    v = np.repeat(expect_shape("V", v, p.kv_shape).astype(np.float64), p.heads // p.kv_heads, axis=1)
    weights = _weights(scores, keep)
    return weights @ v, weights, scores, v
