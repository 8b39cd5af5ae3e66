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
from simgpu.tools.torch.operators import attention, norms
from simgpu.tools.torch.operators.choices import CHOICES
from simgpu.tools.torch.operators.norms import wide
from simgpu.tools.torch.places import on_gpu, place_of
from simgpu.triton.tensors import plain_torch

_Ints = Sequence[int]


def _masked_scale(values: Tensor, mask: Tensor, scale: float) -> Tensor:
    return (wide(values) * mask * scale).to(values.dtype)


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


def _fused_dropout(values: Tensor, kept: float, generator: Any = None) -> tuple[Tensor, Tensor]:
    """Keeps each element with a probability; returns the result, and 1 as a byte for each kept element."""
    scaled = wide(values)
    mask = torch.empty_like(scaled).uniform_(generator=generator) < kept
    return (scaled * mask * (1 / kept)).to(values.dtype), mask.to(torch.uint8)


# By the operator's name in PyTorch's dispatcher.
ON_GPUS: dict[str, Callable[..., Any]] = {
    **attention.ON_GPUS, **CHOICES, **norms.ON_GPUS,
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


def _lstm(own: Callable[..., Any], values: Tensor, *args: Any) -> Any:
    """Calls `torch.lstm`. If products are simulated it is made of these, not computed whole by a library of the CPU."""
    whole = not (simulates() and on_gpu(place_of(values)))
    with contextlib.nullcontext() if whole else torch.backends.mkldnn.flags(enabled=False):
        return own(values, *args)


def _histc(own: Callable[..., Tensor], values: Tensor, *args: Any, **options: Any) -> Tensor:
    """Calls `histc` for integers, which a GPU counts and the CPU does not."""
    if values.is_floating_point() or not on_gpu(place_of(values)):
        return own(values, *args, **options)
    return own(values.double(), *args, **options).to(values.dtype)


# By PyTorch's function: a function that is called with it and its arguments instead.
INSTEAD: dict[Any, Callable[..., Any]] = {
    **attention.INSTEAD, torch.rms_norm: _rms_norm, torch.nn.functional.rms_norm: _rms_norm,
    torch.histc: _histc, torch.Tensor.histc: _histc, torch.lstm: _lstm,
}  # fmt: skip
# By the names of functions that call them, such as `torch.batch_norm_stats.__name__`; `linalg_lu_factor` calls another one.
NAMES = frozenset(name.removeprefix("aten::").partition(".")[0] for name in ON_GPUS) | {"linalg_lu_factor"}
