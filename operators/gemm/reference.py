"""GEMM in float64, and a bound on a kernel's error from type and K."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.error_model import (
    FLUSHED_INPUT,
    SMALLEST_F32,
    SMALLEST_F64,
    STEPS,
    UNIT_F32,
    Rounding,
    gamma,
    may_be_nan,
)
from simgpu.operators.gemm.epilogue import Array, GemmArrays, epilogue, op
from simgpu.operators.gemm.groups import parts
from simgpu.operators.gemm.problem import GATES, SCALE_BLOCK, GemmProblem

# Largest |derivative|: gelu 1.129 at x = 1.414, silu 1.0999 at x = 2.40 (both from setting the second derivative to 0).
SLOPES = {"gelu": 1.13, "silu": 1.1}


@may_be_nan
def gemm(
    problem: GemmProblem,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    group_rows: ArrayLike | None = None,
    arch: str = "gfx908",
) -> NDArray[np.float64]:
    """Returns the product with its epilogue in float64, (m,columns of C) or (batch,m,columns of C).

    It is not rounded to C's type, but limited to the type's range on `arch`. Operands are in their stored shapes; C is read only
    if beta is not 0.

    >>> import numpy as np
    >>> from simgpu.operators import GemmProblem, reference
    >>> reference.gemm(GemmProblem(2, 2, 2, alpha=2.0), np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[2., 4.],
           [6., 8.]])
    """
    given = GemmArrays.of(problem, a, b, c, bias, residual, scale_a, scale_b, group_rows)
    if problem.groups:
        return np.concatenate([gemm(one, **its.arrays, arch=arch) for one, its in parts(problem, given)])
    given = given.map(_wide)
    product = np.matmul(*given.factors(problem))
    return limit(problem, epilogue(problem, product, given), arch)


@may_be_nan
def gemm_error_bound(
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
) -> NDArray[np.float64]:
    """Returns an elementwise bound, (m,columns of C), on |kernel - float64 reference|.

    It holds for any order of summation without overflow. With u the roundoff of an accumulation step and g = (1-u)^-(k+2) - 1
    (`error_model.gamma`; Higham, Accuracy and Stability, section 3.1), it is g*|alpha||A||B| + 4u*(|alpha||A||B| + |beta C| +
    |bias|), plus the input error of xf32, the inputs that gfx90a flushes, and the subnormal spacing.

    Scales multiply |A||B| and add 4u*|alpha||A||B|, except MX scales, which are powers of two. Block scales add one rounding for
    each block, and the subnormal spacing of their products. An activation multiplies an error by its largest slope and adds 16
    roundoffs of f32 (f64: 2^-53) of its argument. The error of a gate's product contains those of both factors. The residual,
    scale_c and the rounding to C's type come last.

    Roundings of the float64 reference are also covered, except for i8, whose sums are exact. With C in i32 everything is exact
    (alpha and beta integers), and the bound is 0.

    >>> import numpy as np
    >>> from simgpu.operators import GemmProblem, reference
    >>> bound = reference.gemm_error_bound(GemmProblem(2, 2, 64), np.ones((2, 64)), np.ones((64, 2)))
    >>> bound.shape, bool((bound < 1e-3).all())
    ((2, 2), True)
    """
    given = GemmArrays.of(problem, a, b, c, bias, residual, scale_a, scale_b, group_rows)
    if problem.groups:
        return np.concatenate([gemm_error_bound(one, **its.arrays, arch=arch) for one, its in parts(problem, given)])
    p, given = problem, given.map(_wide)
    sizes = given.map(np.abs)
    op_a, op_b = sizes.factors(p)
    row = STEPS[p.dtype]
    step = row.step or (0.0 if p.epilogue_type == "i32" else UNIT_F32)  # roundoff of the epilogue
    factor = abs(p.alpha) * np.asarray(sizes.factor)
    sums = factor * (op_a @ op_b)
    extra = (0.0 if sizes.c is None else abs(p.beta) * sizes.c) + (0.0 if sizes.bias is None else sizes.bias)
    own = gamma(p.k + 4, 2.0**-53) if row.step else 0.0
    bound = sums * (gamma(p.k + 2, row.step) + own + 2.1 * row.input_error) + (4 * step + own) * (sums + extra)
    if p.scales not in ("none", "mx"):  # MX scales are powers of two
        bound = bound + 4 * step * sums
    if p.scales == "block":
        blocks = -(-p.k // SCALE_BLOCK)
        bare = op(sizes.a, p.trans_a) @ op(sizes.rows_of_b(p), p.trans_b)
        bound = bound + gamma(blocks, step) * sums + abs(p.alpha) * SMALLEST_F32 * (bare + blocks)
    if arch == "gfx90a" and p.dtype in FLUSHED_INPUT:
        lost = FLUSHED_INPUT[p.dtype]
        bound = bound + factor * (lost * (op_a.sum(-1)[..., :, None] + op_b.sum(-2)[..., None, :] + p.k * lost))
        bound = bound + factor * (p.k + 2) * 2.0**-126
    if step:
        bound = bound + (factor * p.k + 8) * (SMALLEST_F64 if p.dtype == "f64" else SMALLEST_F32)
    product = None if p.dtype_c == p.epilogue_type else np.matmul(*given.factors(p))
    return bound_after_activation(p, given, product, np.asarray(bound), sums + extra, step, arch)


def bound_after_activation(
    p: GemmProblem, given: GemmArrays, product: Array | None, bound: Array, size: Array, step: float, arch: str
) -> NDArray[np.float64]:
    """Returns the bound after activation, residual, scale and rounding to C's type.

    product: what the epilogue takes, in float64; None if C is not rounded. bound, size: bounds on the error and on the magnitude of
    the activation's argument. step: roundoff of the epilogue.
    """
    kind = GATES.get(p.activation, p.activation)
    unit, slope = (2.0**-53 if p.dtype == "f64" else UNIT_F32), SLOPES.get(kind, 1.0)
    size = np.asarray(np.broadcast_to(size, bound.shape))
    if p.activation in GATES:
        gate, up = bound[..., ::2] * slope + (16 * unit if kind in SLOPES else 0.0) * size[..., ::2], bound[..., 1::2]
        sizes = size[..., ::2], size[..., 1::2]
        bound, size = gate * (sizes[1] + up) + sizes[0] * up + step * sizes[0] * sizes[1] + SMALLEST_F32, sizes[0] * sizes[1]
    elif kind in SLOPES:
        bound = bound * slope + 16 * unit * size
    if given.residual is not None:
        size = size + np.abs(given.residual)
        bound = bound + 2 * step * size
    if p.scale_c != 1:
        bound = (bound + 2 * step * size) * abs(p.scale_c)
    if product is None or p.dtype_c == p.epilogue_type:
        return np.asarray(bound)
    value = epilogue(p, product, given)
    return np.asarray(Rounding.of(p.dtype_c, arch).bound(value, bound))


def _wide(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64)


def limit(p: GemmProblem, x: Array, arch: str) -> NDArray[np.float64]:
    """Returns x limited to the range of C's type."""
    return np.asarray(x if p.dtype_c == p.epilogue_type else Rounding.of(p.dtype_c, arch).limit(x))
