"""Usual distance of a faithful GEMM kernel from float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.error_model import (
    TYPICAL_ROUNDING,
    UNIT,
    UNIT_F32,
    Accumulation,
    Array,
    Rounding,
    TypicalError,
    as_read,
    may_be_nan,
)
from simgpu.operators.gemm.epilogue import GemmArrays, activation
from simgpu.operators.gemm.groups import parts
from simgpu.operators.gemm.problem import GATES, SCALE_BLOCK, GemmProblem
from simgpu.operators.gemm.reference import SLOPES

PARTS = 8  # parts of K whose partial sums are examined
# An activation's own error relative to its argument: gelu's erfc is off by 1.5e-7 (Abramowitz and Stegun, 7.1.26),
# silu's exponential and reciprocal by some units of f32. In f64 both are off by 4 units.
ACTIVATION_DRIFT = {"gelu": 3e-7, "silu": 8 * UNIT_F32}


@may_be_nan
def gemm_typical_error(
    problem: GemmProblem,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    arch: str = "gfx908",
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    group_rows: ArrayLike | None = None,
) -> TypicalError | None:
    """Returns the typical error of a faithful kernel's C, (m,columns) or (batch,m,columns); operands in their stored shapes.

    None for i8 with C in i32, which is exact. Partial sums are sampled at PARTS points along K; each epilogue step rounds once.

    >>> gemm_typical_error(GemmProblem(1, 1, 2), [[1.0, 2.0]], [[3.0], [4.0]]).expected
    array([[11.]])
    """
    p = problem
    if p.epilogue_type == "i32":
        return None
    given = GemmArrays.of(p, a, b, c, bias, residual, scale_a, scale_b, group_rows)
    if p.groups:
        found = [gemm_typical_error(one, **its.arrays, arch=arch) for one, its in parts(p, given)]
        return TypicalError.concatenate([one for one in found if one is not None], 0)
    read = replace(given, a=as_read(given.a, p.dtype, arch), b=as_read(given.b, p.dtype, arch))
    op_a, op_b = read.factors(p)
    unit = UNIT.get(p.dtype, UNIT_F32)
    if p.dtype == "i8":  # exact sums, rounded once
        out = op_a @ op_b
        variance, drift = (TYPICAL_ROUNDING * unit * out) ** 2, np.zeros_like(out)
    else:
        out, variance, drift = _product(Accumulation.of(p.dtype, arch), op_a, op_b)
        if p.scales == "block":
            variance, drift = _scaled_blocks(op_a, op_b, unit, variance, drift)
    given = given.map(lambda array: array.astype(np.float64))
    if p.scales_at_end:  # their product is rounded, and the product with it
        factor = np.asarray(given.factor)
        out, variance, drift = out * factor, variance * factor**2, drift * np.abs(factor)
        # A row's scale with alpha's is rounded once for all of its elements, and likewise for columns.
        variance, drift = variance + 2 * (TYPICAL_ROUNDING * unit * out) ** 2, drift + unit * np.abs(out)
    out, variance, drift = p.alpha * out, p.alpha**2 * variance, abs(p.alpha) * drift
    if p.alpha != 1:  # alpha is rounded to the accumulator's type, and so is its product
        drift = drift + unit * np.abs(out)
        variance = variance + (unit * out) ** 2
    for term in (None if given.c is None else p.beta * given.c, given.bias):
        if term is not None:
            out = out + term
            variance = variance + (TYPICAL_ROUNDING * unit) ** 2 * (2 * term**2 + out * out)
            drift = drift + unit * np.abs(term)
    out, variance, drift = _activate(p, out, variance, drift, unit)
    if given.residual is not None:
        out = out + given.residual
        variance = variance + (TYPICAL_ROUNDING * unit * out) ** 2
    if p.scale_c != 1:
        out = p.scale_c * out
        variance, drift = p.scale_c**2 * variance + (unit * out) ** 2, abs(p.scale_c) * drift + unit * np.abs(out)
    made = TypicalError(out, np.sqrt(variance), drift, np.zeros((*out.shape[:-1], 1)))
    return made if p.dtype_c == p.epilogue_type else Rounding.of(p.dtype_c, arch).typical(made)


def _scaled_blocks(a: Array, b: Array, unit: float, variance: Array, drift: Array) -> tuple[Array, Array]:
    """Returns variance and drift after each block is scaled and added: two roundings, and a scale's, which a row shares."""
    sums = np.zeros_like(variance)
    for first in range(0, a.shape[-1], SCALE_BLOCK):
        part = slice(first, first + SCALE_BLOCK)
        product = a[..., part] @ b[..., part, :]
        sums = sums + product
        variance = variance + (TYPICAL_ROUNDING * unit) ** 2 * (sums**2 + product**2)
        drift = drift + unit * np.abs(product)
    return variance, drift


def _activate(p: GemmProblem, out: Array, variance: Array, drift: Array, unit: float) -> tuple[Array, Array, Array]:
    """Returns the result of the activation, its error's variance and drift."""
    kind = GATES.get(p.activation, p.activation)
    gated = slice(None, None, 2 if p.activation in GATES else None)
    x, spread, lean = out[..., gated], variance[..., gated], drift[..., gated]
    if kind in SLOPES:
        slope, own = SLOPES[kind], ACTIVATION_DRIFT[kind] if p.dtype != "f64" else 4 * unit
        spread, lean = slope**2 * spread, slope * lean + own * np.abs(x)
    value = activation(kind)(x)
    if p.activation not in GATES:
        return value, spread, lean
    up, spread_up, lean_up = out[..., 1::2], variance[..., 1::2], drift[..., 1::2]
    product = value * up
    spread = spread * up**2 + spread_up * value**2 + spread * spread_up + (TYPICAL_ROUNDING * unit * product) ** 2
    return product, spread, lean * np.abs(up) + lean_up * np.abs(value)


def _product(kind: Accumulation, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Returns A B in float64, the variance of a kernel's error, and the largest distance of its mean from 0."""
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
    # float64's own error, and a few additions of partial sums if K is split.
    variance += (2 * kind.unit * largest) ** 2
    if kind.unit == UNIT["f64"]:
        variance *= 2
    product = np.abs(a).max(-1)[..., :, None] * np.abs(b).max(-2)[..., None, :]
    return sums, variance, kind.drift(k, largest, product) + (k + 8) * kind.smallest
