"""Forms of operators on rows: normalisations, rotary positions, quantisation, reductions, activations, each as its expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import nonnegative, positive_dimension
from simgpu.operators.expressions import Value, absolute, binade, exp, maximum, rsqrt
from simgpu.operators.rows.problem import RowOperator

EPS = field(default=1e-5, metadata={"help": "added to the mean of the squares"})
SMALLEST = 2.0**-100  # divisor of a group of zeros


@dataclass(frozen=True)
class RmsNorm(RowOperator):
    """Y = X / sqrt(mean(X^2) + eps) * gamma of each row (Zhang and Sennrich, 2019).

    >>> from simgpu.operators import RmsNorm
    >>> print(*RmsNorm(2, 64).program("gfx942").describe(), sep="; ")
    squares[i] += x * x; y[i,j] = x * rsqrt(squares / 64 + 1e-05) * gamma
    """

    name = "rmsnorm"
    vectors, sums = ("gamma",), ("squares",)

    eps: float = EPS

    def __post_init__(self) -> None:
        nonnegative("eps", self.eps)
        super().__post_init__()

    def squares(self, x: Value) -> Value:
        return x * x

    def y(self, x: Value, squares: Value, count: Value, gamma: Value) -> Value:
        return x * rsqrt(squares / count + self.eps) * gamma

    def reference(self, x: Any, gamma: Any) -> Any:  # type: ignore[override]
        return x / np.sqrt((x * x).mean(1, keepdims=True) + self.eps) * gamma


@dataclass(frozen=True)
class AddRmsNorm(RmsNorm):
    """stream = X + residual, and Y = rmsnorm(stream) * gamma: the step between two layers of a transformer.

    >>> from simgpu.operators import AddRmsNorm
    >>> AddRmsNorm(2, 64).written
    {'Y': (2, 64), 'stream': (2, 64)}
    """

    name = "add_rmsnorm"
    matrices, results = ("residual",), ("y", "stream")

    def squares(self, x: Value, residual: Value) -> Value:  # type: ignore[override]
        return (x + residual) * (x + residual)

    def y(self, x: Value, residual: Value, squares: Value, count: Value, gamma: Value) -> Value:  # type: ignore[override]
        return (x + residual) * rsqrt(squares / count + self.eps) * gamma

    def stream(self, x: Value, residual: Value) -> Value:
        return x + residual

    def reference(self, x: Any, residual: Any, gamma: Any) -> Any:  # type: ignore[override]
        return {"Y": RmsNorm.reference(self, x + residual, gamma), "stream": x + residual}


@dataclass(frozen=True)
class LayerNorm(RowOperator):
    """Y = (X - mean) / sqrt(variance + eps) * gamma + beta of each row (Ba et al., 2016).

    Two passes over registers. Rows that do not fit are read twice: a mean and squares are one pass (`RowProgram.streamed`).

    >>> from simgpu.operators import LayerNorm
    >>> [[step.name for step in steps] for steps in LayerNorm(2, 64).program("gfx942").passes]
    [['total'], ['squares']]
    """

    name = "layernorm"
    vectors, sums = ("gamma", "beta"), ("total", "squares")

    eps: float = EPS

    def __post_init__(self) -> None:
        nonnegative("eps", self.eps)
        super().__post_init__()

    def total(self, x: Value) -> Value:
        return x

    def squares(self, x: Value, total: Value, count: Value) -> Value:
        return (x - total / count) ** 2

    def y(self, x: Value, total: Value, squares: Value, count: Value, gamma: Value, beta: Value) -> Value:
        return (x - total / count) * rsqrt(squares / count + self.eps) * gamma + beta

    def reference(self, x: Any, gamma: Any, beta: Any) -> Any:  # type: ignore[override]
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + self.eps) * gamma + beta


@dataclass(frozen=True)
class Rope(RowOperator):
    """Rotary positions: the halves of each row of X turn by the angles of its token; `heads` rows a token (Su et al., 2021).

    cos and sin have a row for each token and a column for each pair (j, n/2 + j).

    >>> from simgpu.operators import Rope
    >>> Rope(rows=64, n=128, heads=8).read
    {'X': (64, 128), 'cos': (8, 64), 'sin': (8, 64)}
    """

    name = "rope"
    halves, tables, results = True, ("cos", "sin"), ("y0", "y1")

    heads: int = field(default=1, metadata={"help": "consecutive rows that belong to one token"})

    def __post_init__(self) -> None:
        positive_dimension("heads", self.heads)
        super().__post_init__()

    @property
    def repeat(self) -> int:
        """Rows of a token."""
        return self.heads

    def y0(self, x0: Value, x1: Value, cos: Value, sin: Value) -> Value:
        return x0 * cos - x1 * sin

    def y1(self, x0: Value, x1: Value, cos: Value, sin: Value) -> Value:
        return x1 * cos + x0 * sin

    def reference(self, x: Any, cos: Any, sin: Any) -> Any:  # type: ignore[override]
        low, high = np.split(x, 2, 1)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], 1)


@dataclass(frozen=True)
class Quantise(RowOperator):
    """Y = X / scale rounded to Y's type, scale = max |X| / the type's largest value: of each row, or each `group` of a row.

    >>> from simgpu.operators import Quantise
    >>> Quantise(rows=64, n=1000, group=128).written
    {'Y': (64, 1000), 'scale': (64, 8)}
    """

    name = "quantise"
    maxima, row_results = ("peak",), ("scale",)

    dtype_y: str = "i8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.element_y.bits > 8:
            raise LaunchError(f"quantise to {self.dtype_y}: give a type of 8 bits, i8, fp8 or bf8")

    def peak(self, x: Value) -> Value:
        return absolute(x)

    def y(self, x: Value, peak: Value, limit: Value) -> Value:
        return x * (limit / maximum(peak, SMALLEST))

    def scale(self, peak: Value, limit: Value) -> Value:
        return maximum(peak, SMALLEST) / limit

    def reference(self, x: Any, limit: Any) -> Any:  # type: ignore[override]
        scale = np.maximum(np.abs(x).max(1, keepdims=True), SMALLEST) / limit
        return {"Y": x / scale, "scale": scale}


@dataclass(frozen=True)
class MxQuantise(Quantise):
    """Quantises groups of 32 with scales that are powers of two, E8M0 (OCP Microscaling Formats 1.0, section 6.3).

    A scale brings the group's largest magnitude into the last binade of Y's type; larger values than its largest saturate.

    >>> from simgpu.operators import MxQuantise
    >>> MxQuantise(rows=64, n=128).written, MxQuantise(rows=64, n=128).type_of("scale")
    ({'Y': (64, 128), 'scale': (64, 4)}, 'e8m0')
    """

    name, row_type = "mx_quantise", "e8m0"

    dtype_y: str = "fp8"
    group: int = 32

    def y(self, x: Value, peak: Value, limit: Value) -> Value:
        return x * (binade(limit) / binade(maximum(peak, SMALLEST)))

    def scale(self, peak: Value, limit: Value) -> Value:
        return binade(maximum(peak, SMALLEST)) / binade(limit)

    def reference(self, x: Any, limit: Any) -> Any:  # type: ignore[override]
        peak = np.maximum(np.abs(x).max(1, keepdims=True), SMALLEST)
        scale = np.exp2(np.floor(np.log2(peak)) - np.floor(np.log2(limit)))
        return {"Y": x / scale, "scale": scale}


@dataclass(frozen=True)
class SiluMul(RowOperator):
    """Y = silu(x0) * x1, the halves of each row of X: the gate of a transformer's MLP (Shazeer, 2020).

    >>> from simgpu.operators import SiluMul
    >>> print(*SiluMul(2, 64).program("gfx942").describe())
    y[i,j] = x0 / (1 + exp(0 - x0)) * x1
    """

    name = "silu_mul"
    halves = True

    def y(self, x0: Value, x1: Value) -> Value:
        return x0 / (1 + exp(-x0)) * x1

    def reference(self, x: Any) -> Any:  # type: ignore[override]
        low, high = np.split(x, 2, 1)
        return low / (1 + np.exp(-low)) * high


@dataclass(frozen=True)
class RowSum(RowOperator):
    """total = the sum of each row, or of each `group` of a row, in f32.

    >>> from simgpu.operators import RowSum
    >>> RowSum(rows=64, n=1000).written
    {'total': (64, 1)}
    """

    name = "row_sum"
    sums, results, row_results = ("added",), (), ("total",)

    def added(self, x: Value) -> Value:
        return x

    def total(self, added: Value) -> Value:
        return added

    def reference(self, x: Any) -> Any:  # type: ignore[override]
        return x.sum(1, keepdims=True)


@dataclass(frozen=True)
class RowMax(RowOperator):
    """largest = the largest element of each row, or of each `group` of a row, in f32; NaNs do not count.

    >>> from simgpu.operators import RowMax
    >>> RowMax(rows=64, n=1024, group=32).written
    {'largest': (64, 32)}
    """

    name = "row_max"
    maxima, results, row_results = ("found",), (), ("largest",)

    def found(self, x: Value) -> Value:
        return x

    def largest(self, found: Value) -> Value:
        return found

    def reference(self, x: Any) -> Any:  # type: ignore[override]
        return np.fmax.reduce(x, 1, keepdims=True)


OPERATORS = (RmsNorm, AddRmsNorm, LayerNorm, Rope, Quantise, MxQuantise, SiluMul, RowSum, RowMax)
