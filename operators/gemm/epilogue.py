"""A GEMM's operands as arrays, and its epilogue: scales, alpha, beta * C, bias, activation, residual, the scale of C."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.dtypes import largest_value, numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape
from simgpu.operators.gemm.problem import GATES, MX_BLOCK, MX_ROWS, PANEL_ROWS, SCALE_BLOCK, GemmProblem, panels

Array = NDArray[Any]


@dataclass(frozen=True)
class GemmArrays:
    """Arrays of a GEMM, in their stored shapes; None for arrays that the problem does not read."""

    a: Array
    b: Array
    c: Array | None = None
    bias: Array | None = None
    residual: Array | None = None
    scale_a: Array | None = None
    scale_b: Array | None = None
    group_rows: Array | None = None  # int, number of rows in each group

    @classmethod
    def of(
        cls,
        problem: GemmProblem,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        residual: ArrayLike | None = None,
        scale_a: ArrayLike | None = None,
        scale_b: ArrayLike | None = None,
        group_rows: ArrayLike | None = None,
    ) -> GemmArrays:
        """Returns the arrays that the problem reads. LaunchError names an array that is missing or has another shape."""
        p, batch = problem, () if problem.batch == 1 else (problem.batch,)
        groups = (p.groups,) if p.groups else ()
        outers = batch, batch + groups, batch
        shape_a, shape_b, shape_c = ((*outer, *shape) for outer, shape in zip(outers, p.stored_shapes, strict=True))
        scales = [(*outer, *shape) for outer, shape in zip(outers, p.scale_shapes or ((0,), (0,)), strict=False)]
        optional = (
            (p.beta != 0, "C", c, shape_c, f"beta = {p.beta:g} reads C, but no C was given"),
            (p.bias, "bias", bias, (*groups, p.n), "the epilogue adds a bias, but none was given"),
            (p.residual, "residual", residual, shape_c, "the epilogue adds a residual, but none was given"),
            (p.scales != "none", "scale_a", scale_a, scales[0], f"scales = {p.scales}, but none was given of A"),
            (p.scales != "none", "scale_b", scale_b, scales[1], f"scales = {p.scales}, but none was given of B"),
            (bool(p.groups), "group_rows", group_rows, groups, "a grouped product has so many rows a group, but none were given"),
        )
        found: list[Array | None] = []
        for wanted, name, given, shape, missing in optional:
            if wanted and given is None:
                raise LaunchError(f"{missing}: pass one of shape {shape}")
            found.append(None if not wanted or given is None else expect_shape(name, given, shape))
        rows = found[-1]
        if rows is not None and (rows.min() < 0 or rows.sum() != p.m):
            raise LaunchError(f"group_rows sum to {rows.sum()}, the least is {rows.min()}: they divide the m = {p.m} rows")
        return cls(expect_shape("A", a, shape_a), expect_shape("B", b, shape_b), *found)

    @property
    def arrays(self) -> dict[str, Any]:
        """Arrays that are given, by the names of `of`'s arguments."""
        return {name: array for name in self.__dataclass_fields__ if (array := getattr(self, name)) is not None}

    def map(self, function: Callable[[Array], Array]) -> GemmArrays:
        """Returns a copy with a function applied to each array."""
        return replace(self, **{name: function(array) for name, array in self.arrays.items()})

    @property
    def factor(self) -> Array | float:
        """Product of A's and B's scales, (..., m or 1, n or 1); 1 without scales, or with scales along k."""
        if self.scale_a is None or self.scale_b is None or self.scale_a.ndim == self.a.ndim:
            return 1.0
        return np.asarray(self.scale_a[..., :, None] * self.scale_b[..., None, :])


    def rows_of_b(self, problem: GemmProblem) -> Array:
        """Returns B as stored, or as it was before it was preshuffled."""
        return rows_of_preshuffled(self.b, problem.dtype_b) if problem.preshuffle_b else self.b

    def factors(self, problem: GemmProblem) -> tuple[Array, Array]:
        """Returns op(A) and op(B), with each element multiplied by its block's scale if there are block scales."""
        a, b = op(self.a, problem.trans_a), op(self.rows_of_b(problem), problem.trans_b)
        if not problem.scales_in_loop or self.scale_a is None or self.scale_b is None:
            return a, b
        if problem.scales == "mx":
            blocks = np.arange(problem.k) // MX_BLOCK
            of_a, of_b = self.scale_a[..., blocks, : problem.m], self.scale_b[..., blocks, : problem.n]
            return a * np.swapaxes(of_a, -1, -2).astype(a.dtype), b * of_b.astype(b.dtype)
        of_k = np.arange(problem.k) // SCALE_BLOCK
        of_b = np.swapaxes(self.scale_b[..., of_k], -1, -2)[..., np.arange(problem.n) // SCALE_BLOCK]
        return a * self.scale_a[..., of_k], b * of_b


def preshuffle(b: ArrayLike, dtype: str) -> Array:
    """Permutes B, (..., n, k), for GEMMs with `preshuffle_b`: panels of PANEL_ROWS rows, PANEL_BYTES of each row in turn.

    AITER's `shuffle_weight` gives the same bytes. dtype: of the elements, as GemmProblem's. LaunchError if n or k does not
    divide into panels, or PANEL_BYTES into elements.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> b = np.arange(16 * 32, dtype=np.uint8).reshape(16, 32)
    >>> operators.preshuffle(b, "fp8").reshape(-1, 16)[:2, :3]
    array([[ 0,  1,  2],
           [32, 33, 34]], dtype=uint8)
    """
    rows = np.asarray(b)
    count, pieces, piece = panels(rows.shape[-2], rows.shape[-1], dtype)
    return _exchange(rows, (count, PANEL_ROWS, pieces, piece))


def rows_of_preshuffled(b: ArrayLike, dtype: str) -> Array:
    """Returns the inverse of `preshuffle`."""
    stored = np.asarray(b)
    count, pieces, piece = panels(stored.shape[-2], stored.shape[-1], dtype)
    return _exchange(stored, (count, pieces, PANEL_ROWS, piece))


def _exchange(b: Array, cut: tuple[int, int, int, int]) -> Array:
    return np.swapaxes(b.reshape(*b.shape[:-2], *cut), -3, -2).reshape(b.shape)


def op(stored: Array, trans: bool) -> Array:
    """Returns op(X): the stored matrix or its transpose, for each matrix of a batch."""
    return np.swapaxes(stored, -1, -2) if trans else stored


def epilogue(problem: GemmProblem, product: Array, given: GemmArrays) -> Array:
    """Returns scale_c * (activation(alpha * scales * product + beta * C + bias) + R) in the product's type, not rounded to C's."""
    kind, p = product.dtype, problem
    if p.scales_at_end:
        product = np.multiply(product, given.factor).astype(kind)
    if p.alpha != 1:
        product = np.multiply(product, p.alpha).astype(kind)
    if given.c is not None:
        product = np.add(product, np.multiply(given.c.astype(kind), p.beta)).astype(kind)
    if given.bias is not None:
        product = product + given.bias.astype(kind)
    product = activate(p.activation, product).astype(kind)
    if given.residual is not None:
        product = product + given.residual.astype(kind)
    return product if p.scale_c == 1 else np.multiply(product, p.scale_c).astype(kind)


def activate(name: str, x: Array) -> Array:
    """Returns activation(x). The result of a gated activation has half of x's columns."""
    return activation(GATES[name])(x[..., ::2]) * x[..., 1::2] if name in GATES else activation(name)(x)


def gated_columns(gate: ArrayLike, up: ArrayLike) -> Array:
    """Interleaves the columns of `gate` and `up`, (..., n/2) each, for gated activations: (..., n).

    For weights stored (n,k), as in models' files, transpose both first, and the result afterwards.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> operators.gated_columns(np.array([[1, 2]]), np.array([[8, 9]]))
    array([[1, 8, 2, 9]])
    """
    first, second = np.asarray(gate), np.asarray(up)
    return np.stack((first, second), axis=-1).reshape(*first.shape[:-1], 2 * first.shape[-1])


def microscale(x: ArrayLike, dtype: str, pitch: int = 0) -> tuple[Array, Array]:
    """Converts x, (..., rows, k), to an MX format.

    Returns elements, (..., rows, k), and their E8M0 scales, (..., k / MX_BLOCK, pitch), with rows adjacent. pitch: as in
    `GemmProblem.mx_rows`; 0: rows padded to a multiple of MX_ROWS. A block's scale is the power of two that brings its largest
    magnitude into the elements' last binade. Values beyond their largest value become that value (OCP Microscaling Formats 1.0,
    section 6.3). `hardware.dtypes.pack` packs the elements into bytes. LaunchError if k is not a multiple of MX_BLOCK.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> elements, scales = operators.microscale(np.full((1, 32), 6.0), "fp4")
    >>> elements.shape, float(elements[0, 0]), scales.shape, float(scales[0, 0])
    ((1, 32), 6.0, (1, 16), 1.0)
    """
    wide, kind = np.asarray(x, np.float64), numpy_dtype(dtype)
    if wide.shape[-1] % MX_BLOCK:
        raise LaunchError(f"rows of {wide.shape[-1]} elements: an MX scale is of {MX_BLOCK}: pad them with zeros")
    blocks = wide.reshape(*wide.shape[:-1], -1, MX_BLOCK)
    largest = largest_value(dtype)
    exponents = np.frexp(np.abs(blocks).max(-1))[1] - np.frexp(largest)[1]
    factors = np.ldexp(1.0, np.clip(exponents, -127, 127))
    elements = np.clip(blocks / factors[..., None], -largest, largest).astype(kind)
    rows = wide.shape[-2]
    scales = np.zeros((*wide.shape[:-2], wide.shape[-1] // MX_BLOCK, pitch or -(-rows // MX_ROWS) * MX_ROWS), np.uint8)
    scales[..., :rows] = np.swapaxes(factors, -1, -2).astype(numpy_dtype("e8m0")).view(np.uint8)
    return elements.reshape(wide.shape), scales.view(numpy_dtype("e8m0"))


def activation(name: str) -> Callable[[Array], Array]:
    """Returns the elementwise function of an activation's name."""
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
