"""PyTorch's element-wise operators as expressions, for simgpu's kernels of rows.

Arguments: x is an element of X; other and third are those of further tensors; number and upper are the same for all elements.
Values are f32. Quotients are off by up to 2 ulp, as x · v_rcp_f32(other), where PyTorch's kernels round once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from simgpu.operators import RowOperator
from simgpu.operators.expressions import (
    NUMPY,
    Number,
    Value,
    absolute,
    evaluate,
    exp,
    log,
    maximum,
    minimum,
    rsqrt,
    select,
    sqrt,
    trace,
)

NUMBERS = ("number", "upper")  # arguments that are the same for all elements
_SERIES = 0.25  # magnitude from which tanh is computed by an exponential
_FAR = 20.0  # standard deviations beyond which the normal distribution's tail is 0 in f32
_DENSITY = 1 / np.sqrt(2 * np.pi)  # of the normal distribution at 0
_TANH_INNER, _TANH_CUBE = np.sqrt(2 / np.pi), 0.044715  # of GELU's approximation by tanh
# erfc(a) = t exp(polynomial(t) - a^2), t = 1 / (1 + a / 2), relative error 1.2e-7 (Press et al., Numerical Recipes, 6.2, erfcc).
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def _polynomial(t: Value, coefficients: tuple[float, ...]) -> Value | Number:
    """Returns the sum of coefficients times powers of t, by Horner's rule."""
    found: Value | Number = coefficients[-1]
    for one in reversed(coefficients[:-1]):
        found = found * t + one
    return found


def _tail(x: Value) -> Value:
    """Returns the probability that a normal variable exceeds |x|."""
    a = minimum(absolute(x), _FAR) * np.sqrt(0.5)
    t = 1 / (1 + 0.5 * a)
    return 0.5 * t * exp(_polynomial(t, _ERFC) - a * a)


def _sigmoid(x: Value) -> Value:
    return 1 / (1 + exp(-x))


def _tanh(x: Value) -> Value:
    """Near 0 by its series, whose next term is 4e-7 of the result there; else by an exponential, as 1 - 2 / (exp(2x) + 1)."""
    square = x * x
    series = x * (1 + square * (-1 / 3 + square * (2 / 15 - square * (17 / 315))))
    return select(absolute(x) - _SERIES, 1 - 2 / (exp(2 * x) + 1), series)


def _gelu(x: Value) -> Value:
    tail = _tail(x)
    return select(x, x - minimum(x, _FAR) * tail, x * tail)


def _gelu_gradient(x: Value, other: Value) -> Value:
    tail, near = _tail(other), minimum(maximum(other, -_FAR), _FAR)
    return x * (select(other, 1 - tail, tail) + near * _DENSITY * exp(-0.5 * near * near))


def _gelu_tanh(x: Value) -> Value:
    """x (1 + tanh(u)) / 2 = x sigmoid(2u)."""
    return x * _sigmoid(2 * _TANH_INNER * (x + _TANH_CUBE * x * x * x))


def _gelu_tanh_gradient(x: Value, other: Value) -> Value:
    chosen = _sigmoid(2 * _TANH_INNER * (other + _TANH_CUBE * other * other * other))
    slope = 2 * _TANH_INNER * (1 + 3 * _TANH_CUBE * other * other)
    return x * (chosen + other * chosen * (1 - chosen) * slope)


def _silu_gradient(x: Value, other: Value) -> Value:
    chosen = _sigmoid(other)
    return x * (chosen * (1 + other * (1 - chosen)))


# By name. A gradient's x is the gradient of the result, as in PyTorch's operators.
_EXPRESSIONS: Mapping[str, Callable[..., Value]] = {
    "neg": lambda x: x * -1, "abs": absolute, "sqrt": sqrt, "rsqrt": rsqrt, "reciprocal": lambda x: 1 / x, "log": log, "exp": exp,
    "square": lambda x: x * x, "cube": lambda x: x * x * x,
    "relu": lambda x: maximum(x, 0), "sigmoid": _sigmoid, "tanh": _tanh, "silu": lambda x: x / (1 + exp(-x)),
    "gelu": _gelu, "gelu_tanh": _gelu_tanh,
    "add": lambda x, other: x + other, "mul": lambda x, other: x * other, "div": lambda x, other: x / other,
    "maximum": lambda x, other: maximum(x, other), "minimum": lambda x, other: minimum(x, other),
    "add_number": lambda x, number: x + number, "mul_number": lambda x, number: x * number,
    "subtract_from": lambda x, number: number - x, "divide_number": lambda x, number: number / x,
    "add_scaled": lambda x, other, number: x + number * other,
    "clamp": lambda x, number, upper: minimum(maximum(x, number), upper),
    "leaky_relu": lambda x, number: select(x, x, x * number),
    "addcmul": lambda x, other, third, number: x + number * (other * third),
    "addcdiv": lambda x, other, third, number: x + number * (other / third),
    "lerp": lambda x, other, number: x + number * (other - x),
    "lerp_back": lambda x, other, number: other - number * (other - x),  # number: 1 - weight
    "affine": lambda x, other, third: x * other + third,
    "silu_gradient": _silu_gradient, "gelu_gradient": _gelu_gradient, "gelu_tanh_gradient": _gelu_tanh_gradient,
    "sigmoid_gradient": lambda x, other: x * ((1 - other) * other), "tanh_gradient": lambda x, other: x * (1 - other * other),
    "threshold_gradient": lambda x, other, number: select(other - number, x, 0),
    "leaky_relu_gradient": lambda x, other, number: select(other, x, x * number),
}  # fmt: skip


def _form(name: str, expression: Callable[..., Value]) -> type[RowOperator]:
    """Returns the operator on rows of an expression."""
    own = list(inspect.signature(expression).parameters)

    def reference(_form: RowOperator, **arrays: Any) -> Any:
        return evaluate(trace(name, expression, own), arrays, NUMPY)

    values = {
        "name": name, "y": staticmethod(expression), "reference": reference, "__module__": __name__,
        "matrices": tuple(one for one in own[1:] if one not in NUMBERS), "vectors": tuple(one for one in own if one in NUMBERS),
    }  # fmt: skip
    return type(name, (RowOperator,), values)


# Operators on rows, by name.
ELEMENT_FORMS: Mapping[str, type[RowOperator]] = {name: _form(name, one) for name, one in _EXPRESSIONS.items()}
