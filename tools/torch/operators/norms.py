"""Parts of PyTorch's norms as only GPUs have them, on the host: batch norm over processes, MIOpen's, the gradients of RMS norm.

16-bit types are computed in f32 and rounded once. Names, order of arguments and results are those of PyTorch's
native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators.accumulation import NARROW


def _over_channels(values: Tensor) -> list[int]:
    """Returns the dimensions that batch norm sums over: all but the channels'."""
    return [dim for dim in range(values.dim()) if dim != 1]


def _by_channel(values: Tensor, like: Tensor) -> Tensor:
    """Shapes one value of each channel for use with `like`, in f32 if that is narrow."""
    shaped = values.view([-1 if dim == 1 else 1 for dim in range(like.dim())])
    return shaped.to(torch.float32 if like.dtype in NARROW else like.dtype)


def wide(values: Tensor) -> Tensor:
    """Returns a tensor in the type that a GPU computes it in."""
    return values.float() if values.dtype in NARROW else values


def _stats(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns mean and 1 / sqrt(variance + eps) of each channel."""
    variance, mean = torch.var_mean(wide(values), _over_channels(values), correction=0)
    return mean, (variance + eps).rsqrt()


def _elemt(values: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, _eps: float) -> Tensor:
    found = (wide(values) - _by_channel(mean, values)) * _by_channel(invstd, values)
    found = found if weight is None else found * _by_channel(weight, values)
    return (found if bias is None else found + _by_channel(bias, values)).to(values.dtype)


def _elemt_out(*args: Any, out: Tensor) -> Tensor:
    return out.copy_(_elemt(*args))


def _gather(  # type: ignore[no-untyped-def]
    _values, mean, invstd, running_mean, running_var, momentum, eps, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns mean and 1 / sqrt(variance + eps) over processes, from those of each; updates the running ones."""
    each = counts.to(mean.dtype).reshape(-1, 1)
    total = each.sum()
    most = (mean * each).sum(0) / total
    squares = ((invstd**-2 - eps + (mean - most) ** 2) * each).sum(0)
    for running, found in ((running_mean, most), (running_var, squares / (total - 1))):
        if running is not None:
            running.lerp_(found.to(running.dtype), momentum)
    return most, (squares / total + eps).rsqrt()


def _gathered_alike(  # type: ignore[no-untyped-def]
    values, mean, invstd, running_mean, running_var, momentum, eps, count: int
) -> tuple[Tensor, Tensor]:
    counts = torch.full((len(mean),), count, dtype=mean.dtype, device="cpu")
    return _gather(values, mean, invstd, running_mean, running_var, momentum, eps, counts)


def _reduce(  # type: ignore[no-untyped-def]
    grad: Tensor, values: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, of_input, of_weight, of_bias
):
    """Returns for each channel the sums of dy and of dy (x - mean), and the gradients of weight and bias."""
    dims = _over_channels(values)
    sums = wide(grad).sum(dims)
    moved = (wide(grad) * (wide(values) - _by_channel(mean, values))).sum(dims)
    kind = None if weight is None else weight.dtype
    grads = ((moved * invstd).to(kind) if of_weight else None, sums.to(kind) if of_bias else None)
    return *((sums, moved) if of_input else (None, None)), *grads


def _elemt_backward(  # type: ignore[no-untyped-def]
    grad: Tensor, values: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, sum_dy, sum_dy_xmu, count: Tensor
) -> Tensor:
    total = count.sum()
    slope = _by_channel(sum_dy_xmu / total * invstd**2, values)
    found = wide(grad) - _by_channel(sum_dy / total, values) - (wide(values) - _by_channel(mean, values)) * slope
    found = found * _by_channel(invstd, values)
    return (found if weight is None else found * _by_channel(weight, values)).to(values.dtype)


def _miopen_batch_norm_backward(values: Tensor, grad: Tensor, *others: Any) -> tuple[Tensor, ...]:
    *statistics, eps = others
    return torch.ops.aten.native_batch_norm_backward(grad, values, *statistics, True, eps, [True] * 3)  # type: ignore[no-any-return]


def rms_norm_backward(
    grad: Tensor, values: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of input and weight that the mask asks for."""
    inner = list(range(-len(shape), 0))
    outer = list(range(values.dim() - len(shape)))
    scale = rstd.reshape(*values.shape[: len(outer)], *(1 for _ in inner))
    normed = wide(values) * scale
    slope = wide(grad) if weight is None else wide(grad) * wide(weight)
    moved = normed * (slope * normed).mean(inner, keepdim=True)
    of_input = ((slope - moved) * scale).to(values.dtype)
    of_weight = None if weight is None else (wide(grad) * normed).sum_to_size(weight.shape).to(weight.dtype)
    return of_input if mask[0] else None, of_weight if mask[1] else None


# By the operator's name in PyTorch's dispatcher.
ON_GPUS: dict[str, Callable[..., Any]] = {
    "aten::batch_norm_stats": _stats,
    "aten::batch_norm_elemt": _elemt,
    "aten::batch_norm_elemt.out": _elemt_out,
    "aten::batch_norm_gather_stats": _gathered_alike,
    "aten::batch_norm_gather_stats_with_counts": _gather,
    "aten::batch_norm_backward_reduce": _reduce,
    "aten::batch_norm_backward_elemt": _elemt_backward,
    "aten::miopen_batch_norm": lambda *args: torch.native_batch_norm(*args),
    "aten::miopen_batch_norm_backward": _miopen_batch_norm_backward,
    "aten::_fused_rms_norm_backward": rms_norm_backward,
}
