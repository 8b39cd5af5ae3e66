"""A GEMM's operands as arrays, and its epilogue: alpha, beta * C, bias, activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape
from simgpu.operators.gemm.problem import GemmProblem

Array = NDArray[Any]


def stored_operands(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, bias: ArrayLike | None = None
) -> tuple[Array, Array, Array | None, Array | None]:
    """A, B, C (None if beta is 0) and the bias (None without one) as arrays of their stored shapes; LaunchError names the one that
    is not."""
    batch = () if problem.batch == 1 else (problem.batch,)
    shape_a, shape_b, shape_c = ((*batch, *shape) for shape in problem.stored_shapes)
    if problem.beta != 0 and c is None:
        raise LaunchError(f"beta = {problem.beta:g} reads C, but no C was given: pass C of shape {shape_c}")
    if problem.bias and bias is None:
        raise LaunchError(f"the epilogue adds a bias, but none was given: pass one of shape ({problem.n},)")
    return (
        expect_shape("A", a, shape_a),
        expect_shape("B", b, shape_b),
        None if problem.beta == 0 or c is None else expect_shape("C", c, shape_c),
        None if not problem.bias or bias is None else expect_shape("bias", bias, (problem.n,)),
    )


def op(stored: Array, trans: bool) -> Array:
    """op(X): the stored matrix or its transpose, each of a batch."""
    return np.swapaxes(stored, -1, -2) if trans else stored


def epilogue(problem: GemmProblem, product: Array, c: Array | None, bias: Array | None) -> Array:
    """activation(alpha * product + beta * C + bias) in the product's type."""
    kind = product.dtype
    if problem.alpha != 1:
        product = np.multiply(product, problem.alpha).astype(kind)
    if c is not None:
        product = np.add(product, np.multiply(c.astype(kind), problem.beta)).astype(kind)
    if bias is not None:
        product = product + bias.astype(kind)
    return activation(problem.activation)(product).astype(kind)


def activation(name: str) -> Callable[[Array], Array]:
    """The function of an activation's name, elementwise."""
    return _ACTIVATIONS[name]


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(wide * 0.5 * np.vectorize(math.erfc, otypes=[float])(-wide / math.sqrt(2)))


def _silu(x: Array) -> Array:
    return np.asarray(x * np.exp(-np.logaddexp(0.0, -x.astype(np.float64))))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": _silu,
}
