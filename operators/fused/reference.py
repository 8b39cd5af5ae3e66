"""A FusedGemm in float64, and a bound on a kernel's error that follows from its expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.errors import LaunchError
from simgpu.operators.error_model import UNIT_F32, Rounding, may_be_nan
from simgpu.operators.expressions import evaluate
from simgpu.operators.fused.problem import FusedGemm
from simgpu.operators.gemm.epilogue import GemmArrays, epilogue, op
from simgpu.operators.gemm.leaves import ELEMENT, PRODUCT
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.reference import bound_after_activation, gemm_error_bound, limit
from simgpu.operators.running_error import ARITHMETIC, OWN, Bounded


@may_be_nan
def fused(problem: FusedGemm, a: ArrayLike, b: ArrayLike, arch: str = "gfx908", **more: ArrayLike) -> NDArray[np.float64]:
    """Returns the problem's own definition, then the epilogue, in float64, limited to the range of C's type on `arch`.

    more: matrices, vectors, columns, bias and residual by name. LaunchError if the definition returns another shape.

    >>> from simgpu.operators import RmsNormGemm, reference
    >>> reference.fused(RmsNormGemm(1, 2, 2, eps=0.0), np.full((1, 2), 5.0), np.eye(2), gamma=np.array([1.0, 3.0]))
    array([[1., 3.]])
    """
    given = _wide(problem, a, b, more)
    named = {name: array.astype(np.float64) for name, array in problem.own_arrays(**more).items()}
    try:
        found = np.asarray(problem.reference(a=given.a, b=op(given.b, problem.trans_b), **named))
        found = found.astype(np.float64, casting="same_kind")
    except Exception as error:  # whatever a user's function raises
        raise LaunchError(f"{type(problem).__name__}.reference({', '.join(('a', 'b', *named))}): {error}") from None
    if found.shape != (problem.m, problem.n):
        raise LaunchError(f"{type(problem).__name__}.reference returns shape {found.shape}: return ({problem.m}, {problem.n})")
    return limit(problem.gemm, epilogue(problem.gemm, found, given), arch)


@may_be_nan
def fused_error_bound(
    problem: FusedGemm, a: ArrayLike, b: ArrayLike, arch: str = "gfx908", **more: ArrayLike
) -> NDArray[np.float64]:
    """Returns an elementwise bound on |kernel - float64 reference|, for any order of summation without overflow.

    The leaves are computed with running errors (`running_error`). Factors are off by their leaf's error and by the
    rounding to A's type, which the product multiplies by |B|; the product's own error is a GEMM's, of operands that are as large
    as they can be. The result's leaf takes product and sums with their errors. Then the GEMM's epilogue follows.

    >>> from simgpu.operators import RmsNormGemm, reference
    >>> ones = dict(a=np.ones((2, 64)), b=np.ones((64, 2)), gamma=np.ones(64))
    >>> bool((reference.fused_error_bound(RmsNormGemm(2, 2, 64), **ones) < 1e-3).all())
    True
    """
    p, leaves, gemm = problem, problem.leaves, problem.gemm
    given = _wide(p, a, b, more)
    named = {name: Bounded.exact(array.astype(np.float64)) for name, array in p.own_arrays(**more).items()}
    elements = {ELEMENT: Bounded.exact(given.a), **{name: named[name] for name in leaves.of_element[1:]}}
    sums = {name: _all(evaluate(value, elements, ARITHMETIC), given.a).sum() for name, value in leaves.sums}
    factor = _all(evaluate(leaves.left_operand, elements, ARITHMETIC), given.a)
    if leaves.maps and p.dtype != "f32":
        rounded = Rounding.of(p.dtype, arch).bound(factor.value, factor.error)
        factor = Bounded(factor.value, rounded)
    of_b = op(given.b, p.trans_b)
    plain = GemmProblem(p.m, p.n, p.k, p.dtype)
    own = gemm_error_bound(plain, factor.size, np.abs(of_b), arch=arch)
    product = Bounded(factor.value @ of_b, own + factor.error @ np.abs(of_b))
    columns = {name: named[name] for name in leaves.columns}
    found = _all(evaluate(leaves.result, {PRODUCT: product, **sums, **columns}, ARITHMETIC), product.value)
    return _after_epilogue(gemm, found, given, arch)


def _after_epilogue(gemm: GemmProblem, found: Bounded, given: GemmArrays, arch: str) -> NDArray[np.float64]:
    """Returns the bound of C. alpha is 1, which is exact."""
    size = found.size if given.bias is None else found.size + np.abs(given.bias)
    bound = found.error * (1 + OWN) + OWN * UNIT_F32 * size + (0.0 if given.bias is None else 2 * UNIT_F32 * size)
    return bound_after_activation(gemm, given, found.value, bound, size, UNIT_F32, arch)


def _wide(problem: FusedGemm, a: ArrayLike, b: ArrayLike, more: dict[str, Any]) -> GemmArrays:
    given = GemmArrays.of(problem.gemm, a, b, None, more.get("bias"), more.get("residual"))
    return given.map(lambda array: array.astype(np.float64))


def _all(found: Bounded, like: NDArray[Any]) -> Bounded:
    """Returns a result in the shape of `like`."""
    return Bounded(*(np.broadcast_to(part, like.shape) for part in (found.value, found.error)))
