"""How far a faithful convolution kernel usually is from float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.conv2d.reference import conv2d
from simgpu.operators.error_model import Accumulation, TypicalError, as_read, may_be_nan


@may_be_nan
def conv2d_typical_error(
    problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, arch: str = "gfx908", matrix: bool = True
) -> TypicalError | None:
    """What a faithful kernel's Y looks like, (n,oc,oh,ow); None for i8, which is exact. GEMM's, with k = (ic/groups)*kh*kw.

    matrix: by matrix instructions; else each product is added by itself, in the accumulator's type.
    """
    p = problem
    if p.dtype == "i8":
        return None
    read_as = p.dtype if matrix else p.dtype_c
    x, w = as_read(x, read_as, arch), as_read(w, read_as, arch)
    kind, terms = Accumulation.of(read_as, arch), p.icg * p.kh * p.kw
    y, squares = conv2d(p, x, w), conv2d(p, x * x, w * w)
    # 3: partial sums are not looked at, so they count as a random walk's that may end anywhere, not as a bridge's.
    variance = kind.variance(terms, 0.0, y, 3 * squares) + (2 * kind.unit) ** 2 * y * y
    if p.dtype == "f64":  # the reference's own error is of the same size
        variance = 2 * variance
    product = np.abs(x).max(where=np.isfinite(x), initial=0.0) * np.abs(w).reshape(p.oc, -1).max(-1)[:, None, None]
    drift = kind.drift(terms, np.sqrt(squares) + np.abs(y), np.broadcast_to(product, y.shape)) + terms * kind.smallest
    return TypicalError(y, np.sqrt(variance), drift, np.zeros((*y.shape[:-1], 1)))
