"""The convolution in float64, and how far a kernel may be from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.conv2d.execute import convolve
from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.error_model import FLUSHED_INPUT, SMALLEST_F32, SMALLEST_F64, STEPS, gamma, may_be_nan


@may_be_nan
def conv2d(problem: Conv2dProblem, x: ArrayLike, w: ArrayLike) -> NDArray[np.float64]:
    """Y (n,oc,oh,ow) in float64, tap by tap over whole arrays."""
    return convolve(problem, np.asarray(x).astype(np.float64), np.asarray(w).astype(np.float64))


@may_be_nan
def conv2d_error_bound(problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, arch: str = "gfx908") -> NDArray[np.float64]:
    """Elementwise bound on |kernel - float64 reference|: GEMM's, with k = (ic/groups)*kh*kw."""
    p, row = problem, STEPS[problem.dtype]
    sizes = np.abs(np.asarray(x).astype(np.float64)), np.abs(np.asarray(w).astype(np.float64))
    sums = conv2d(p, *sizes)
    terms = p.icg * p.kh * p.kw
    own = gamma(terms + 4, 2.0**-53) if row.step else 0.0
    subnormal = np.asarray((terms + 2) * (SMALLEST_F64 if p.dtype == "f64" else SMALLEST_F32) if row.step else 0.0)
    if arch == "gfx90a" and p.dtype in FLUSHED_INPUT:
        lost = FLUSHED_INPUT[p.dtype]
        ones = np.ones(p.shapes[0]), np.ones(p.shapes[1])
        subnormal = lost * (conv2d(p, sizes[0], ones[1]) + conv2d(p, ones[0], sizes[1]) + terms * lost) + (terms + 2) * 2.0**-126
    return np.asarray(sums * (gamma(terms + 2, row.step) + own + 2.1 * row.input_error) + subnormal)
