"""PyTorch's activations with branches or parameters, and their gradients, by Triton kernels, in f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators.activation_sources import activate, activation_gradients
from simgpu.tools.torch.operators.element_sources import BLOCK
from simgpu.tools.torch.operators.elements import lay_out
from simgpu.tools.torch.operators.kernels import FLOATS, Call, serve

# Parameters of `aten::selu`: alpha and scale (ATen/native/Activation.cpp).
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _compute(call: Call, name: str, x: Tensor, *numbers: float) -> Tensor:
    """Returns an activation by its parameters."""
    serve(x, *FLOATS)
    (flat,), out, into = lay_out([x], torch.float32, x.dtype)
    call.run(activate, (-(-len(into) // BLOCK),), flat, into, len(into), *_three(numbers), constants=(name, BLOCK))
    return out


def _gradient(call: Call, name: str, grad: Tensor, x: Tensor, *numbers: float) -> Tensor:
    """Returns the gradient of an activation by its parameters; x: its argument, or for `elu_result` its result."""
    serve(grad, x.dtype)
    serve(x, *FLOATS)
    flat, out, into = lay_out([grad, x], torch.float32, x.dtype)
    groups = (-(-len(into) // BLOCK),)
    call.run(activation_gradients, groups, *flat, into, len(into), *_three(numbers), constants=(name, BLOCK))
    return out


def _three(numbers: tuple[float, ...]) -> list[float]:
    return [*map(float, numbers), *[0.0] * (3 - len(numbers))]


def _elu(call: Call, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return _compute(call, "elu", x, alpha, scale, input_scale)


def _elu_gradient(
    call: Call, grad: Tensor, alpha: float, scale: float, input_scale: float, of_result: bool, x: Tensor
) -> Tensor:
    return _gradient(call, "elu_result" if of_result else "elu", grad, x, alpha, scale, input_scale)


def _log_sigmoid(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the result, and the buffer, which only the CPU's gradient reads."""
    return _compute(call, "log_sigmoid", x), x.new_empty(0)


# Default values of an activation's parameters, which its gradient has without them.
_PARAMETERS: dict[str, tuple[float, ...]] = {
    "softplus": (1, 20), "hardsigmoid": (), "hardswish": (), "mish": (), "hardshrink": (0.5,), "softshrink": (0.5,),
}  # fmt: skip


def _by_name(name: str) -> Callable[..., Tensor]:
    """Returns an activation that takes its parameters in order."""
    default = _PARAMETERS[name]
    return lambda call, x, *numbers: _compute(call, name, x, *numbers, *default[len(numbers) :])


def _gradient_by_name(name: str) -> Callable[..., Tensor]:
    """Returns the gradient of an activation."""
    return lambda call, grad, x, *numbers: _gradient(call, name, grad, x, *numbers)


# By the operator's name in PyTorch's dispatcher.
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": _by_name(name) for name in _PARAMETERS},
    **{f"aten::{name}_backward": _gradient_by_name(name) for name in (*_PARAMETERS, "hardtanh")},
    "aten::elu": _elu, "aten::elu_backward": _elu_gradient, "aten::selu": lambda call, x: _elu(call, x, *_SELU),
    "aten::celu": lambda call, x, alpha=1.0: _elu(call, x, alpha, 1, 1 / alpha),
    "aten::log_sigmoid_forward": _log_sigmoid,
    "aten::log_sigmoid_backward": lambda call, grad, x, _buffer: _gradient(call, "log_sigmoid", grad, x),
    "aten::threshold": lambda call, x, limit, value: _compute(call, "threshold", x, limit, value),
}  # fmt: skip
