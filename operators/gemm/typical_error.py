"""How far a faithful GEMM kernel usually is from float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.error_model import (
    TYPICAL_ROUNDING,
    UNIT,
    UNIT_F32,
    Accumulation,
    Array,
    TypicalError,
    as_read,
    may_be_nan,
)
from simgpu.operators.gemm.epilogue import activation, op, stored_operands
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.reference import SLOPES

PARTS = 8  # of K, whose partial sums are looked at
# An activation's own error relative to its argument: gelu's erfc is off by 1.5e-7 (Abramowitz and Stegun, 7.1.26), silu's
# exponential and reciprocal by some units of f32. In f64 both are off by 4 units.
ACTIVATION_DRIFT = {"gelu": 3e-7, "silu": 8 * UNIT_F32}


@may_be_nan
def gemm_typical_error(
    problem: GemmProblem,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    arch: str = "gfx908",
    bias: ArrayLike | None = None,
) -> TypicalError | None:
    """What a faithful kernel's C looks like, (m,n) or (batch,m,n); operands in their stored shapes. None for i8, which is exact.

    The partial sums of op(A) op(B) are taken along K, in PARTS parts; alpha, beta, bias and the activation round once each.
    """
    p = problem
    if p.dtype == "i8":
        return None
    stored_a, stored_b, stored_c, stored_bias = stored_operands(p, a, b, c, bias)
    op_a, op_b = op(as_read(stored_a, p.dtype, arch), p.trans_a), op(as_read(stored_b, p.dtype, arch), p.trans_b)
    sums, variance, drift = _product(Accumulation.of(p.dtype, arch), op_a, op_b)
    unit = UNIT.get(p.dtype, UNIT_F32)
    scaled = p.alpha * sums
    variance, drift = p.alpha**2 * variance, abs(p.alpha) * drift
    if p.alpha != 1:  # rounded to the accumulator's type itself, and its product
        drift = drift + unit * np.abs(scaled)
        variance = variance + (unit * scaled) ** 2
    out = scaled
    for term in (None if stored_c is None else p.beta * stored_c.astype(np.float64), stored_bias):
        if term is not None:
            out = out + term
            variance = variance + (TYPICAL_ROUNDING * unit) ** 2 * (2 * term.astype(np.float64) ** 2 + out * out)
            drift = drift + unit * np.abs(term)
    if p.activation in SLOPES:
        slope, own = SLOPES[p.activation], ACTIVATION_DRIFT[p.activation] if p.dtype != "f64" else 4 * unit
        variance, drift = slope**2 * variance, slope * drift + own * np.abs(out)
    deviation = np.sqrt(variance)
    return TypicalError(activation(p.activation)(out), deviation, drift, np.zeros((*out.shape[:-1], 1)))


def _product(kind: Accumulation, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """A B in float64, the variance of a kernel's error, and how far its mean may be from 0."""
    k = a.shape[-1]
    squares = (a * a) @ (b * b)
    sums, variance, largest = np.zeros_like(squares), np.zeros_like(squares), np.zeros_like(squares)
    size = -(-k // PARTS)
    for first in range(0, k, size):
        part = slice(first, min(first + size, k))
        after = sums + a[..., part] @ b[..., part, :]
        variance += kind.variance(part.stop - first, sums, after, squares)
        sums = after
        np.maximum(largest, np.abs(sums), out=largest)
    # float64's own error, and a few additions of partial sums where K is split.
    variance += (2 * kind.unit * largest) ** 2
    if kind.unit == UNIT["f64"]:
        variance *= 2
    product = np.abs(a).max(-1)[..., :, None] * np.abs(b).max(-2)[..., None, :]
    return sums, variance, kind.drift(k, largest, product) + (k + 8) * kind.smallest
