"""Operators on rows that PyTorch's autograd needs besides simgpu's own forms: statistics and gradients.

X is the operand that PyTorch saved, a result of the forward or its input; `grad` is the gradient of Y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.operators import LayerNorm, RmsNorm, RowOperator
from simgpu.operators.expressions import Value, exp, rsqrt


@dataclass(frozen=True)
class SoftmaxGradient(RowOperator):
    """Gradient of a softmax's argument, from its result X."""

    name = "softmax_gradient"
    matrices, sums = ("grad",), ("inner",)

    def inner(self, x: Value, grad: Value) -> Value:
        return x * grad

    def y(self, x: Value, grad: Value, inner: Value) -> Value:
        return x * (grad - inner)

    def reference(self, x: Any, grad: Any) -> Any:  # type: ignore[override]
        return x * (grad - (x * grad).sum(1, keepdims=True))


@dataclass(frozen=True)
class LogSoftmaxGradient(RowOperator):
    """Gradient of a log_softmax's argument, from its result X."""

    name = "log_softmax_gradient"
    matrices, sums = ("grad",), ("total",)

    def total(self, grad: Value) -> Value:
        return grad

    def y(self, x: Value, grad: Value, total: Value) -> Value:
        return grad - exp(x) * total

    def reference(self, x: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad - np.exp(x) * grad.sum(1, keepdims=True)


@dataclass(frozen=True)
class LayerNormStatistics(LayerNorm):
    """LayerNorm, and each row's mean and 1 / sqrt(variance + eps)."""

    name, row_results = "layernorm_statistics", ("mean", "scale")

    def mean(self, total: Value, count: Value) -> Value:
        return total / count

    def scale(self, squares: Value, count: Value) -> Value:
        return rsqrt(squares / count + self.eps)

    def reference(self, x: Any, gamma: Any, beta: Any) -> Any:  # type: ignore[override]
        scale = 1 / np.sqrt(x.var(1, keepdims=True) + self.eps)
        return {"Y": LayerNorm.reference(self, x, gamma, beta), "mean": x.mean(1, keepdims=True), "scale": scale}


@dataclass(frozen=True)
class LayerNormGradient(RowOperator):
    """Gradient of a layer norm's argument X, and the summands of gamma's: grad times the normalised X.

    scale: 1 / sqrt(variance + eps) of each row, in all of its columns.
    """

    name = "layernorm_gradient"
    matrices, vectors = ("grad", "scale"), ("gamma",)
    sums, results = ("total", "added", "inner"), ("y", "of_gamma")

    def total(self, x: Value) -> Value:
        return x

    def added(self, grad: Value, gamma: Value) -> Value:
        return grad * gamma

    def inner(self, x: Value, total: Value, count: Value, grad: Value, gamma: Value, scale: Value) -> Value:
        return grad * gamma * ((x - total / count) * scale)

    def y(
        self, x: Value, total: Value, added: Value, inner: Value, count: Value, grad: Value, gamma: Value, scale: Value
    ) -> Value:
        return (grad * gamma - added / count - (x - total / count) * scale * (inner / count)) * scale

    def of_gamma(self, x: Value, total: Value, count: Value, grad: Value, scale: Value) -> Value:
        return grad * ((x - total / count) * scale)

    def reference(self, x: Any, grad: Any, scale: Any, gamma: Any) -> Any:  # type: ignore[override]
        normal, scaled = (x - x.mean(1, keepdims=True)) * scale, grad * gamma
        inner = (scaled * normal).mean(1, keepdims=True)
        return {"Y": (scaled - scaled.mean(1, keepdims=True) - normal * inner) * scale, "of_gamma": grad * normal}


@dataclass(frozen=True)
class RmsNormStatistics(RmsNorm):
    """RmsNorm, and each row's 1 / sqrt(mean(X^2) + eps)."""

    name, row_results = "rmsnorm_statistics", ("scale",)

    def scale(self, squares: Value, count: Value) -> Value:
        return rsqrt(squares / count + self.eps)

    def reference(self, x: Any, gamma: Any) -> Any:  # type: ignore[override]
        scale = 1 / np.sqrt((x * x).mean(1, keepdims=True) + self.eps)
        return {"Y": RmsNorm.reference(self, x, gamma), "scale": scale}


@dataclass(frozen=True)
class RmsNormGradient(RowOperator):
    """Gradient of an RMS norm's argument X, and the summands of gamma's: grad times the normalised X.

    scale: 1 / sqrt(mean(X^2) + eps) of each row, in all of its columns.
    """

    name = "rmsnorm_gradient"
    matrices, vectors = ("grad", "scale"), ("gamma",)
    sums, results = ("inner",), ("y", "of_gamma")

    def inner(self, x: Value, grad: Value, gamma: Value, scale: Value) -> Value:
        return grad * gamma * (x * scale)

    def y(self, x: Value, inner: Value, count: Value, grad: Value, gamma: Value, scale: Value) -> Value:
        return (grad * gamma - x * scale * (inner / count)) * scale

    def of_gamma(self, x: Value, grad: Value, scale: Value) -> Value:
        return grad * (x * scale)

    def reference(self, x: Any, grad: Any, scale: Any, gamma: Any) -> Any:  # type: ignore[override]
        inner = (grad * gamma * x * scale).mean(1, keepdims=True)
        return {"Y": (grad * gamma - x * scale * inner) * scale, "of_gamma": grad * x * scale}


FORMS = (SoftmaxGradient, LogSoftmaxGradient, LayerNormStatistics, LayerNormGradient, RmsNormStatistics, RmsNormGradient)
