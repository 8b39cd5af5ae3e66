"""How far a faithful convolution kernel usually is from float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.conv2d.reference import Matrix, of_products
from simgpu.operators.error_model import TypicalError, may_be_nan
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.typical_error import gemm_typical_error


@may_be_nan
def conv2d_typical_error(
    problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, arch: str = "gfx908", matrix: bool = True, bias: ArrayLike | None = None
) -> TypicalError | None:
    """What a faithful kernel's Y looks like, in its layout; None for i8 with Y in i32, which is exact. GEMM's, with k =
    (ic/groups)*kh*kw, of two orders of the sum the larger: by channels, as W has them, and by taps.

    matrix: by matrix instructions; else each product is added by itself, in the accumulator's type.
    """
    p = problem
    if p.gemm.epilogue_type == "i32":
        return None
    by_taps = np.arange(p.icg * p.kh * p.kw).reshape(p.icg, -1).T.ravel()

    def typical(gemm: GemmProblem, a: Matrix, b: Matrix, row: Matrix | None) -> list[Matrix]:
        gemm = gemm if matrix else replace(gemm, dtype=p.accumulator, dtype_b=p.accumulator)
        orders = (a, b), (a[:, by_taps], b[by_taps])
        one, other = (gemm_typical_error(gemm, *operands, arch=arch, bias=row) for operands in orders)
        assert one is not None and other is not None
        return [one.expected, np.maximum(one.deviation, other.deviation), np.maximum(one.drift, other.drift)]

    expected, deviation, drift = of_products(p, x, w, bias, typical)
    return TypicalError(expected, deviation, drift, np.zeros((*expected.shape[:-1], 1)))
