"""Usual distance of a faithful convolution kernel from float64."""

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
    """Returns the typical error of a faithful kernel's Y, in its layout; None for i8 with Y in i32, which is exact.

    It is GEMM's with k = (ic/groups)*kh*kw: the larger error of two orders of the sum, by channels (like W) and by taps. matrix:
    True for matrix instructions; False: each product is added separately, in the accumulator's type.

    >>> import numpy as np
    >>> from simgpu.operators import Conv2dProblem, reference
    >>> problem = Conv2dProblem(n=1, ic=1, ih=3, iw=3, oc=1, kh=2, kw=2)
    >>> reference.conv2d_typical_error(problem, np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))).expected.shape
    (1, 1, 2, 2)
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
