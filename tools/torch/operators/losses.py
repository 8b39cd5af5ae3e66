"""PyTorch's losses and their gradients: negative log-likelihood by Triton kernels, squared errors by element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators import index_sources as sources
from simgpu.tools.torch.operators.activations import ACTIVATIONS
from simgpu.tools.torch.operators.element_sources import BLOCK
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, serve
from simgpu.tools.torch.operators.rows import ROWS

_NONE, _MEAN = 0, 1  # reductions, as PyTorch's at::Reduction numbers them


def _by_class(values: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Returns values (rows, classes) of (classes,), (rows, classes) or (rows, classes, ...), and a row's target."""
    serve(values, *FLOATS)
    serve(target, torch.int64)
    last = values.movedim(1, -1) if values.dim() > 1 else values
    return last.reshape(-1, last.shape[-1]).contiguous(), target.reshape(-1).contiguous()


def _weights(weight: Tensor | None, classes: int, device: Any) -> Tensor:
    if weight is None:
        return torch.ones(classes, dtype=torch.float32, device=device)
    return weight.float().contiguous()


def _check(target: Tensor, rows: int, classes: int, ignored: int) -> None:
    """Raises OnHost for a target out of range: PyTorch's own error says which."""
    counted = target[target != ignored]
    if len(target) != rows or (len(counted) and not (int(counted.min()) >= 0 and int(counted.max()) < classes)):
        raise OnHost("of a target out of range")


def _likelihood(  # type: ignore[no-untyped-def]
    call: Call, values: Tensor, target: Tensor, weight, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Returns the loss and the sum of its rows' weights, which is 0 without a reduction, as PyTorch's kernel has it."""
    x, chosen = _by_class(values, target)
    rows, classes = x.shape
    _check(chosen, rows, classes, ignored)
    found, counted = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    weights = _weights(weight, classes, x.device)
    groups = (-(-rows // BLOCK),)
    call.run(sources.likelihoods, groups, x, chosen, weights, found, counted, rows, classes, ignored, constants=(BLOCK,))
    if reduction == _NONE:
        return found.to(values.dtype).view(target.shape), values.new_zeros(())
    total, divisor = (ROWS["aten::sum"](call, one) for one in (found, counted))
    loss = ELEMENTS["aten::div.Tensor"](call, total.view(1), divisor.view(1)).view(()) if reduction == _MEAN else total
    return loss.to(values.dtype), divisor.to(values.dtype)


def _likelihood_gradient(  # type: ignore[no-untyped-def]
    call: Call, grad: Tensor, values: Tensor, target: Tensor, weight, reduction: int, ignored: int, divisor: Tensor
) -> Tensor:
    x, chosen = _by_class(values, target)
    rows, classes = x.shape
    _check(chosen, rows, classes, ignored)
    serve(grad, *FLOATS)
    slope = grad.float().reshape(-1).contiguous()
    if reduction == _MEAN:
        slope = ELEMENTS["aten::div.Tensor"](call, slope, divisor.float().view(1))
    out = torch.empty_like(x)
    groups, constants = (-(-x.numel() // BLOCK),), (int(reduction == _NONE), BLOCK)
    weights = _weights(weight, classes, x.device)
    call.run(sources.likelihood_gradients, groups, slope, chosen, weights, out, x.numel(), classes, ignored, constants=constants)
    shape = [values.shape[axis] for axis in range(values.dim()) if axis != 1]
    return out.view(*shape, classes).movedim(-1, 1).contiguous() if values.dim() > 1 else out.view(values.shape)


def _squared_error(call: Call, values: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    found: Tensor = ELEMENTS["aten::square"](call, ELEMENTS["aten::sub.Tensor"](call, values, target))
    if reduction != _NONE:
        found = ROWS["aten::mean" if reduction == _MEAN else "aten::sum"](call, found)
    return found


def _squared_error_gradient(call: Call, grad: Tensor, values: Tensor, target: Tensor, reduction: int) -> Tensor:
    distance = ELEMENTS["aten::sub.Tensor"](call, values, target)
    scaled = ELEMENTS["aten::mul.Scalar"](call, distance, 2 / (distance.numel() if reduction == _MEAN else 1))
    return ELEMENTS["aten::mul.Tensor"](call, scaled, grad)  # type: ignore[no-any-return]


def _logistic_loss(
    call: Call, values: Tensor, target: Tensor, weight: Tensor | None = None, positive: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """Computes binary cross entropy of logits (ATen/native/Loss.cpp); positive: weights of the positive examples."""
    subtract, multiply = ELEMENTS["aten::sub.Tensor"], ELEMENTS["aten::mul.Tensor"]
    chance = ACTIVATIONS["aten::log_sigmoid_forward"](call, values)[0]
    if positive is not None:
        more = multiply(call, ELEMENTS["aten::add.Scalar"](call, positive, -1), target)
        chance = multiply(call, chance, ELEMENTS["aten::add.Scalar"](call, more, 1))
    found: Tensor = subtract(call, multiply(call, ELEMENTS["aten::rsub.Scalar"](call, target, 1), values), chance)
    found = found if weight is None else multiply(call, found, weight)
    return found if reduction == _NONE else ROWS["aten::mean" if reduction == _MEAN else "aten::sum"](call, found)


# By the operator's name in PyTorch's dispatcher.
LOSSES: dict[str, Callable[..., Any]] = {
    "aten::nll_loss_forward": _likelihood, "aten::nll_loss2d_forward": _likelihood,
    "aten::nll_loss_backward": _likelihood_gradient, "aten::nll_loss2d_backward": _likelihood_gradient,
    "aten::binary_cross_entropy_with_logits": _logistic_loss,
    "aten::mse_loss": _squared_error, "aten::mse_loss_backward": _squared_error_gradient,
}  # fmt: skip
