"""Convolution in float64, and bounds on a kernel's error, by way of its matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.arguments import expect_shape
from simgpu.operators.conv2d.execute import by_channels, convolve, finish, laid_out
from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.error_model import Rounding, may_be_nan
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.reference import gemm_error_bound
from simgpu.operators.tree import ZERO

MOST_ELEMENTS = 1 << 22  # most elements of an image's patches that are held at once


@may_be_nan
def conv2d(
    problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, bias: ArrayLike | None = None, arch: str = "gfx908"
) -> NDArray[np.float64]:
    """Returns Y in float64 and the problem's layout, not rounded to `dtype_c` but limited to its range on `arch`.

    >>> import numpy as np
    >>> from simgpu.operators import Conv2dProblem, reference
    >>> problem = Conv2dProblem(n=1, ic=1, ih=3, iw=3, oc=1, kh=2, kw=2)
    >>> reference.conv2d(problem, np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)))[0, 0]
    array([[4., 4.],
           [4., 4.]])
    """
    wide = None if bias is None else np.asarray(bias).astype(np.float64)
    sums = convolve(problem, by_channels(problem, x).astype(np.float64), np.asarray(w).astype(np.float64))
    y = finish(problem, sums, wide)
    return y if problem.dtype_c == problem.gemm.epilogue_type else np.asarray(Rounding.of(problem.dtype_c, arch).limit(y))


@may_be_nan
def conv2d_error_bound(
    problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, arch: str = "gfx908", bias: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Returns an elementwise bound on |kernel - float64 reference|, in Y's layout: GEMM's, with k = (ic/groups)*kh*kw.

    >>> import numpy as np
    >>> from simgpu.operators import Conv2dProblem, reference
    >>> problem = Conv2dProblem(n=1, ic=1, ih=3, iw=3, oc=1, kh=2, kw=2)
    >>> bool((reference.conv2d_error_bound(problem, np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))) < 1e-4).all())
    True
    """
    return of_products(problem, x, w, bias, lambda p, a, b, row: [gemm_error_bound(p, a, b, arch=arch, bias=row)])[0]


Matrix = NDArray[Any]


def of_products(
    problem: Conv2dProblem, x: ArrayLike, w: ArrayLike, bias: ArrayLike | None,
    function: Callable[[GemmProblem, Matrix, Matrix, Matrix | None], list[Matrix]],
) -> list[Matrix]:  # fmt: skip
    """Applies `function` to the convolution as matrix products, and returns its (m,n) results in Y's layout.

    function: takes problem, A, B and bias of a GEMM whose rows are pixels. Its k runs over input channels, then taps, like W.
    """
    found: list[Matrix] = []
    w, row = expect_shape("W", w, problem.shapes[1]), None if bias is None or not problem.bias else np.asarray(bias)
    for image, group, rows, patches in _patches(problem, by_channels(problem, x)):
        channels = slice(group * problem.ocg, (group + 1) * problem.ocg)
        filters = np.ascontiguousarray(w[channels].reshape(problem.ocg, -1).T)
        product = replace(problem.gemm, m=len(patches), batch=1, lda=None, ldb=None, ldc=None)
        made = function(product, patches, filters, None if row is None else row[channels])
        found = found or [np.zeros(problem.by_channels[2]) for _ in made]
        for y, values in zip(found, made, strict=True):
            y[image, channels, rows] = values.T.reshape(problem.ocg, -1, problem.ow)
    return [laid_out(problem, y) for y in found]


def _patches(p: Conv2dProblem, x: NDArray[np.generic]) -> Iterator[tuple[int, int, slice, NDArray[np.generic]]]:
    """Yields image, group, some rows of Y, and the patches of X that their pixels read.

    A patch is (pixels, ic/groups * kh * kw), in W's order.
    """
    (sh, sw), (ph, pw), (dh, dw), terms = p.stride, p.padding, p.dilation, p.icg * p.kh * p.kw
    each = max(1, MOST_ELEMENTS // (p.ow * terms))
    wide = (p.ow - 1) * sw + 1
    for image in range(p.n):
        for group in range(p.groups):
            channels = group * p.icg, (group + 1) * p.icg
            for first in range(0, p.oh, each):
                rows = slice(first, min(p.oh, first + each))
                count, taps = rows.stop - first, []
                for top, left in ((y * dh - ph + first * sh, x * dw - pw) for y in range(p.kh) for x in range(p.kw)):
                    down, across = (top, top + (count - 1) * sh + 1), (left, left + wide)
                    taps.append(ZERO.read(x, (image, image + 1), channels, down, across)[0, :, ::sh, ::sw])
                yield image, group, rows, np.stack(taps, 1).reshape(terms, -1).T
