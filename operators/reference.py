"""float64 references, and how far a kernel may be from them: a bound from type and K, not a tolerance to taste."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from operators.compute import stored_operands
from operators.problem import GemmProblem

_SMALLEST_F32 = 2.0**-149


@dataclass(frozen=True)
class _Arithmetic:
    """Model of one input type's matrix arithmetic: unit roundoff of a step, relative error of an input."""

    step: float
    input_error: float = 0.0


# Steps: f32 and f64 are fused multiply-add chains; the narrow types sum exact products in f32, on gfx942 and gfx950 with terms cut at
# 2^-24 of the largest, at most 8 or 16 at a time (MMA-Sim, arXiv 2511.10909). 4 units a step cover a cut of each product, of C and of
# the sum, besides its rounding. xf32 drops 13 mantissa bits by truncation, 2^-10 of the value.
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


def gemm(problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None) -> NDArray[np.float64]:
    """alpha*op(A)op(B) + beta*C in float64, (m,n); A, B, C in their stored shapes, C read only if beta is not 0."""
    op_a, op_b, stored_c = _float64(problem, a, b, c)
    product = problem.alpha * (op_a @ op_b)
    return product if stored_c is None else product + problem.beta * stored_c


def gemm_error_bound(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, arch: str = "gfx908"
) -> NDArray[np.float64]:
    """Elementwise bound, (m,n), on |kernel - float64 reference| for any order of summation, without overflow.

    |alpha| * g * |A||B| + 3u * (|alpha||A||B| + |beta C|) with g = (k+2)*u/(1-(k+2)*u) (Higham, Accuracy and Stability, section 3.1),
    u the roundoff of the accumulation step; plus the input error of xf32, the inputs that gfx90a flushes, and the subnormal spacing.
    The reference's own error is bounded by the f64 term that is added for every type but i8, which is exact (alpha and beta integers).
    """
    op_a, op_b, stored_c = (None if x is None else np.abs(x) for x in _float64(problem, a, b, c))
    assert op_a is not None and op_b is not None
    row = _STEPS[problem.dtype]
    sums = abs(problem.alpha) * (op_a @ op_b)
    extra = 0.0 if stored_c is None else abs(problem.beta) * stored_c
    own = _gamma(problem.k + 4, 2.0**-53) if row.step else 0.0
    bound = sums * (_gamma(problem.k + 2, row.step) + own + 2.1 * row.input_error) + (3 * row.step + own) * (sums + extra)
    if arch == "gfx90a" and problem.dtype in _FLUSHED_INPUT:
        lost = _FLUSHED_INPUT[problem.dtype]
        bound = bound + abs(problem.alpha) * lost * (op_a.sum(1)[:, None] + op_b.sum(0)[None, :] + problem.k * lost)
        bound = bound + abs(problem.alpha) * (problem.k + 2) * 2.0**-126
    if row.step and problem.dtype != "f64":
        bound = bound + (abs(problem.alpha) * problem.k + 2) * _SMALLEST_F32
    return np.asarray(bound)


def _gamma(steps: int, unit: float) -> float:
    return steps * unit / (1 - steps * unit)


def _float64(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    stored_a, stored_b, stored_c = stored_operands(problem, a, b, c)
    op_a = (stored_a.T if problem.trans_a else stored_a).astype(np.float64)
    op_b = (stored_b.T if problem.trans_b else stored_b).astype(np.float64)
    return op_a, op_b, None if stored_c is None else stored_c.astype(np.float64)
