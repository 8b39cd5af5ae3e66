"""PyTorch's batch and group norms, and their gradients, by the kernels of layer norms.

A row is normalised together: a channel of all images, or a group of channels of one image. Weights and biases of channels are
element-wise operators. Values between the kernels are f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.operators import RowSum
from simgpu.tools.torch.operators.elements import affine, product
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, type_of
from simgpu.tools.torch.operators.row_forms import LayerNormGradient, LayerNormStatistics
from simgpu.tools.torch.operators.rows import form_of_rows, norm_gradient


def _by_channel(values: Tensor) -> Tensor:
    """Returns the elements (channels, all others) of (images, channels, ...)."""
    return values.transpose(0, 1).reshape(values.shape[1], -1).contiguous()


def _back(found: Tensor, like: Tensor) -> Tensor:
    """Returns the elements of `_by_channel` in the shape, layout and type of its argument."""
    images, channels, *inner = like.shape
    return torch.empty_like(like).copy_(found.view(channels, images, *inner).transpose(0, 1))


def _column(values: Tensor | None, count: int, constant: float, device: Any) -> Tensor:
    """Returns a weight or bias of rows as a f32 column, or a constant one."""
    if values is None:
        return torch.full((count, 1), constant, dtype=torch.float32, device=device)
    return values.float().reshape(-1, 1)


def _normalise(call: Call, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns x (rows, n) less each row's mean, times 1 / sqrt(variance + eps), and these two, all f32."""
    ones, zeros = (torch.full(x.shape[1:], value, dtype=x.dtype, device=x.device) for value in (1, 0))
    found = form_of_rows(call, LayerNormStatistics, x, torch.float32, gamma=ones, beta=zeros, eps=eps)
    return found["Y"], found["mean"].view(-1), found["scale"].view(-1)


def _row_sums(call: Call, x: Tensor, like: Tensor) -> Tensor:
    """Returns the sums of the rows of x (rows, n) in the type of a parameter."""
    return form_of_rows(call, RowSum, x.contiguous(), torch.float32)["total"].view(-1).to(like.dtype)


def _batch_norm(  # type: ignore[no-untyped-def]
    call: Call, values: Tensor, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises each channel, by its own statistics in training, which then move the running ones."""
    type_of(values, *FLOATS)
    channels = values.shape[1]
    scale, shift = (_column(one, channels, constant, values.device) for one, constant in ((weight, 1), (bias, 0)))
    if not training:
        factor = scale * (running_var.float() + eps).rsqrt()[:, None]
        found = affine(call, _by_channel(values).float(), factor, shift - running_mean.float()[:, None] * factor)
        none = torch.empty(0, dtype=torch.float32, device=values.device)
        return _back(found, values), none, none
    x = _by_channel(values)
    normal, mean, inverse = _normalise(call, x, eps)
    out = _back(affine(call, normal, scale, shift), values)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        variance = (inverse**-2 - eps) * (x.shape[1] / (x.shape[1] - 1))
        running_var.lerp_(variance.to(running_var.dtype), momentum)
    return out, mean, inverse


def _batch_norm_gradient(  # type: ignore[no-untyped-def]
    call: Call, grad: Tensor, values: Tensor, weight, _mean, _var, _saved_mean, inverse, training: bool, _eps: float,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    type_of(values, *FLOATS)
    type_of(grad, *FLOATS)
    if not training:
        raise OnHost("of running statistics")
    x, slope = _by_channel(values).float(), _by_channel(grad).float()
    of_x, summands = norm_gradient(call, LayerNormGradient, slope, x, x.shape[1:], inverse, None)
    like = inverse if weight is None else weight
    scaled = product(call, of_x, _column(weight, len(x), 1, x.device)) if wanted[0] else None
    return (
        None if scaled is None else _back(scaled, values),
        _row_sums(call, summands, like) if wanted[1] else None, _row_sums(call, slope, like) if wanted[2] else None,
    )  # fmt: skip


def _group_norm(  # type: ignore[no-untyped-def]
    call: Call, values: Tensor, weight, bias, images: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises each group of channels of an image. Statistics have the input's type, as on a GPU."""
    type_of(values, *FLOATS)
    normal, *statistics = _normalise(call, values.reshape(images * groups, -1).contiguous(), eps)
    scale, shift = (_column(one, channels, constant, values.device) for one, constant in ((weight, 1), (bias, 0)))
    found = affine(call, normal.view(images, channels, inner), scale, shift).to(values.dtype)
    mean, inverse = (one.view(images, groups).to(values.dtype) for one in statistics)
    return found.view(values.shape), mean, inverse


def _group_norm_gradient(  # type: ignore[no-untyped-def]
    call: Call, grad: Tensor, values: Tensor, _mean, inverse, weight, images: int, channels: int, inner: int, groups: int,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    for one in (values, grad):
        type_of(one, *FLOATS)
    x = values.reshape(images * groups, -1).contiguous().float()
    slope = grad.reshape(images, channels, inner).contiguous().float()

    def gradient(of_result: Tensor) -> tuple[Tensor, Tensor]:
        return norm_gradient(call, LayerNormGradient, of_result.view(x.shape), x, x.shape[1:], inverse, None)

    like = inverse if weight is None else weight
    of_x = gradient(product(call, slope, _column(weight, channels, 1, x.device)))[0] if wanted[0] else None
    of_weight = gradient(slope)[1].view(images, channels, inner) if wanted[1] else None
    return (
        None if of_x is None else of_x.to(values.dtype).view(values.shape),
        None if of_weight is None else _row_sums(call, _by_channel(of_weight), like),
        _row_sums(call, _by_channel(slope), like) if wanted[2] else None,
    )


# By the operator's name in PyTorch's dispatcher.
CHANNEL_NORMS: dict[str, Callable[..., Any]] = {
    "aten::native_batch_norm": _batch_norm, "aten::_native_batch_norm_legit": _batch_norm,
    "aten::_native_batch_norm_legit.no_stats":
        lambda call, values, weight, bias, *options: _batch_norm(call, values, weight, bias, None, None, *options),
    "aten::native_batch_norm_backward": _batch_norm_gradient,
    "aten::native_group_norm": _group_norm, "aten::native_group_norm_backward": _group_norm_gradient,
}  # fmt: skip
