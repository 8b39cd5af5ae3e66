"""GEMM in float64, and how far a kernel may be from it: a bound from type and K, not a tolerance to taste."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.error_model import FLUSHED_INPUT, SMALLEST_F32, SMALLEST_F64, STEPS, gamma, may_be_nan
from simgpu.operators.gemm.epilogue import activation, op, stored_operands
from simgpu.operators.gemm.problem import GemmProblem


@may_be_nan
def gemm(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, bias: ArrayLike | None = None
) -> NDArray[np.float64]:
    """activation(alpha*op(A)op(B) + beta*C + bias) in float64, (m,n); operands in their stored shapes, C read only if beta is not
    0."""
    return activation(problem.activation)(_before_activation(problem, a, b, c, bias))


@may_be_nan
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
    row = STEPS[problem.dtype]
    sums = abs(problem.alpha) * (op_a @ op_b)
    extra = (0.0 if stored_c is None else abs(problem.beta) * stored_c) + (0.0 if stored_bias is None else stored_bias)
    own = gamma(problem.k + 4, 2.0**-53) if row.step else 0.0
    bound = sums * (gamma(problem.k + 2, row.step) + own + 2.1 * row.input_error) + (4 * row.step + own) * (sums + extra)
    if arch == "gfx90a" and problem.dtype in FLUSHED_INPUT:
        lost = FLUSHED_INPUT[problem.dtype]
        bound = bound + abs(problem.alpha) * lost * (op_a.sum(-1)[..., :, None] + op_b.sum(-2)[..., None, :] + problem.k * lost)
        bound = bound + abs(problem.alpha) * (problem.k + 2) * 2.0**-126
    if row.step:
        bound = bound + (abs(problem.alpha) * problem.k + 8) * (SMALLEST_F64 if problem.dtype == "f64" else SMALLEST_F32)
    if problem.activation in SLOPES:
        unit = 2.0**-53 if problem.dtype == "f64" else 2.0**-24
        bound = bound * SLOPES[problem.activation] + 16 * unit * (sums + extra)
    return np.asarray(bound)


# Largest |derivative|: gelu 1.129 at x = 1.414, silu 1.0999 at x = 2.40 (both from setting the second derivative to 0).
SLOPES = {"gelu": 1.13, "silu": 1.1}


def _before_activation(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None, bias: ArrayLike | None
) -> NDArray[np.float64]:
    stored_a, stored_b, stored_c, stored_bias = stored_operands(problem, a, b, c, bias)
    product = op(stored_a, problem.trans_a).astype(np.float64) @ op(stored_b, problem.trans_b).astype(np.float64)
    out: NDArray[np.float64] = problem.alpha * product
    if stored_c is not None:
        out = out + problem.beta * stored_c.astype(np.float64)
    return out if stored_bias is None else out + stored_bias.astype(np.float64)
