"""PyTorch's operators that only GPUs have, or that the CPU refuses or computes differently; 16-bit types in f32, rounded once.

Names, order of arguments and results are those of PyTorch's native_functions.yaml. Operators that only cuDNN has are absent, as
on ROCm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.environment import simulates
from simgpu.tools.torch.operators import attention
from simgpu.tools.torch.operators.accumulation import NARROW
from simgpu.tools.torch.operators.choices import CHOICES
from simgpu.tools.torch.places import on_gpu, place_of
from simgpu.triton.tensors import plain_torch

_Ints = Sequence[int]


def _over_channels(values: Tensor) -> list[int]:
    """Returns the dimensions that batch norm sums over: all but the channels'."""
    return [dim for dim in range(values.dim()) if dim != 1]


def _by_channel(values: Tensor, like: Tensor) -> Tensor:
    """Shapes one value of each channel for use with `like`, in f32 if that is narrow."""
    shaped = values.view([-1 if dim == 1 else 1 for dim in range(like.dim())])
    return shaped.to(torch.float32 if like.dtype in NARROW else like.dtype)


def _wide(values: Tensor) -> Tensor:
    """Returns a tensor in the type that a GPU computes it in."""
    return values.float() if values.dtype in NARROW else values


def _stats(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns mean and 1 / sqrt(variance + eps) of each channel."""
    variance, mean = torch.var_mean(_wide(values), _over_channels(values), correction=0)
    return mean, (variance + eps).rsqrt()


def _elemt(values: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, _eps: float) -> Tensor:
    found = (_wide(values) - _by_channel(mean, values)) * _by_channel(invstd, values)
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
    sums = _wide(grad).sum(dims)
    moved = (_wide(grad) * (_wide(values) - _by_channel(mean, values))).sum(dims)
    kind = None if weight is None else weight.dtype
    grads = ((moved * invstd).to(kind) if of_weight else None, sums.to(kind) if of_bias else None)
    return *((sums, moved) if of_input else (None, None)), *grads


def _elemt_backward(  # type: ignore[no-untyped-def]
    grad: Tensor, values: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, sum_dy, sum_dy_xmu, count: Tensor
) -> Tensor:
    total = count.sum()
    slope = _by_channel(sum_dy_xmu / total * invstd**2, values)
    found = _wide(grad) - _by_channel(sum_dy / total, values) - (_wide(values) - _by_channel(mean, values)) * slope
    found = found * _by_channel(invstd, values)
    return (found if weight is None else found * _by_channel(weight, values)).to(values.dtype)


def _masked_scale(values: Tensor, mask: Tensor, scale: float) -> Tensor:
    return (_wide(values) * mask * scale).to(values.dtype)


def _depthwise(  # type: ignore[no-untyped-def]
    values, weight, _kernel_size: _Ints, bias, stride: _Ints, padding: _Ints, dilation: _Ints
) -> Tensor:
    return _convolution(values, weight, bias, padding, stride, dilation, values.shape[1])


def _convolution(  # type: ignore[no-untyped-def]
    values, weight, bias, padding: _Ints, stride: _Ints, dilation: _Ints, groups: int, *_choices: bool
) -> Tensor:
    return torch.convolution(values, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def _transpose(  # type: ignore[no-untyped-def]
    values, weight, bias, padding: _Ints, output_padding: _Ints, stride: _Ints, dilation: _Ints, groups: int, *_choices: bool
) -> Tensor:
    return torch.convolution(values, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _lu_factor(values: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """Returns LU, pivots and info of batches of (m, n); the CPU's refuses to work without pivots."""
    if pivot:
        options = {} if out is None else dict(zip(("LU", "pivots", "info"), out))
        return torch.ops.aten.linalg_lu_factor_ex(values, pivot=True, check_errors=check_errors, **options)
    factors = values.clone(memory_format=torch.contiguous_format)
    order = min(values.shape[-2:])
    info = torch.zeros(values.shape[:-2], dtype=torch.int32, device="cpu")
    for step in range(order):
        corner = factors[..., step, step]
        info = torch.where((corner == 0) & (info == 0), step + 1, info)
        factors[..., step + 1 :, step] /= corner[..., None]
        factors[..., step + 1 :, step + 1 :] -= factors[..., step + 1 :, step, None] * factors[..., None, step, step + 1 :]
    if check_errors and info.any():
        raise torch.linalg.LinAlgError(f"torch.linalg.lu_factor: U[{info.max() - 1},{info.max() - 1}] is zero")
    pivots = torch.arange(1, order + 1, dtype=torch.int32, device="cpu").expand(*values.shape[:-2], order).contiguous()
    return _store_results((factors, pivots, info), out)


def _lu(values: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """Returns P, L and U; without pivots P is empty."""
    if pivot:
        options = {} if out is None else dict(zip("PLU", out))
        return torch.ops.aten.linalg_lu(values, pivot=True, **options)
    factors, order = _lu_factor(values, pivot=False)[0], min(values.shape[-2:])
    lower = factors[..., :, :order].tril(-1)
    lower.diagonal(dim1=-2, dim2=-1).fill_(1)
    return _store_results((values.new_empty(0), lower, factors[..., :order, :].triu()), out)


def _svd(values: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """Returns U, S and V; V is contiguous, as PyTorch's tracers expect it of a GPU."""
    if not compute_uv:
        return values.new_empty(0), torch.linalg.svdvals(values), values.new_empty(0)
    u, s, v = torch.linalg.svd(values, full_matrices)
    return u, s, v.contiguous()


def _store_results(found: Sequence[Tensor], out: Any) -> Any:
    """Returns results, in the tensors passed for them, if any."""
    return tuple(found) if out is None else tuple(into.resize_(one.shape).copy_(one) for into, one in zip(out, found))


def _named_out(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Returns an operator whose output tensors have these names."""
    return lambda *args, **options: function(*args, out=[options.pop(name) for name in names], **options)


def _miopen_batch_norm_backward(values: Tensor, grad: Tensor, *others: Any) -> tuple[Tensor, ...]:
    *statistics, eps = others
    return torch.ops.aten.native_batch_norm_backward(grad, values, *statistics, True, eps, [True] * 3)  # type: ignore[no-any-return]


def _rms_norm_backward(
    grad: Tensor, values: Tensor, shape: _Ints, rstd: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of input and weight that the mask asks for."""
    inner = list(range(-len(shape), 0))
    outer = list(range(values.dim() - len(shape)))
    scale = rstd.reshape(*values.shape[: len(outer)], *(1 for _ in inner))
    normed = _wide(values) * scale
    slope = _wide(grad) if weight is None else _wide(grad) * _wide(weight)
    moved = normed * (slope * normed).mean(inner, keepdim=True)
    of_input = ((slope - moved) * scale).to(values.dtype)
    of_weight = None if weight is None else (_wide(grad) * normed).sum(outer).to(weight.dtype)
    return of_input if mask[0] else None, of_weight if mask[1] else None


def _fused_dropout(values: Tensor, kept: float, generator: Any = None) -> tuple[Tensor, Tensor]:
    """Keeps each element with a probability; returns the result, and 1 as a byte for each kept element."""
    wide = _wide(values)
    mask = torch.empty_like(wide).uniform_(generator=generator) < kept
    return (wide * mask * (1 / kept)).to(values.dtype), mask.to(torch.uint8)


# By the operator's name in PyTorch's dispatcher.
ON_GPUS: dict[str, Callable[..., Any]] = {
    **attention.ON_GPUS, **CHOICES,
    "aten::batch_norm_stats": _stats,
    "aten::batch_norm_elemt": _elemt,
    "aten::batch_norm_elemt.out": _elemt_out,
    "aten::batch_norm_gather_stats": _gathered_alike,
    "aten::batch_norm_gather_stats_with_counts": _gather,
    "aten::batch_norm_backward_reduce": _reduce,
    "aten::batch_norm_backward_elemt": _elemt_backward,
    "aten::miopen_batch_norm": lambda *args: torch.native_batch_norm(*args),
    "aten::miopen_batch_norm_backward": _miopen_batch_norm_backward,
    "aten::_fused_rms_norm_backward": _rms_norm_backward,
    "aten::_fused_dropout": _fused_dropout,
    "aten::_masked_scale": _masked_scale,
    "aten::_conv_depthwise2d": _depthwise,
    "aten::conv_depthwise3d": _depthwise,
    "aten::miopen_convolution": _convolution,
    "aten::miopen_depthwise_convolution": _convolution,
    "aten::miopen_convolution_transpose": _transpose,
    "aten::linalg_lu_factor_ex": _lu_factor,
    "aten::linalg_lu_factor_ex.out": _named_out(_lu_factor, "LU", "pivots", "info"),
    "aten::_linalg_svd": _svd,
    "aten::linalg_lu": _lu,
    "aten::linalg_lu.out": _named_out(_lu, "P", "L", "U"),
}


def _rms_norm(
    own: Callable[..., Tensor], input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Calls `torch.rms_norm`, which PyTorch decomposes for the CPU's tensors before a dispatch mode sees it."""
    with plain_torch():
        if simulates() and on_gpu(place_of(input)):
            from simgpu.tools.torch.operators import simulated  # half a second of imports

            with contextlib.suppress(simulated.OnHost):  # then its parts are counted
                return simulated.rms_norm(input, normalized_shape, weight, eps)
    return own(input, normalized_shape, weight, eps)


def _histc(own: Callable[..., Tensor], values: Tensor, *args: Any, **options: Any) -> Tensor:
    """Calls `histc` for integers, which a GPU counts and the CPU does not."""
    if values.is_floating_point() or not on_gpu(place_of(values)):
        return own(values, *args, **options)
    return own(values.double(), *args, **options).to(values.dtype)


# By PyTorch's function: a function that is called with it and its arguments instead.
INSTEAD: dict[Any, Callable[..., Any]] = {
    **attention.INSTEAD, torch.rms_norm: _rms_norm, torch.nn.functional.rms_norm: _rms_norm,
    torch.histc: _histc, torch.Tensor.histc: _histc,
}  # fmt: skip
# By the names of functions that call them, such as `torch.batch_norm_stats.__name__`; `linalg_lu_factor` calls another one.
NAMES = frozenset(name.removeprefix("aten::").partition(".")[0] for name in ON_GPUS) | {"linalg_lu_factor"}
