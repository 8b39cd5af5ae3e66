"""PyTorch's pooling in two and three axes, nearest interpolation and their gradients, by Triton kernels of windows.

A window is described for each axis by the indices of its elements, -1 for padding, so that one kernel serves strides, dilation,
adaptive windows and gradients: an element's gradient is the sum over the windows that it is in.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators import index_sources as sources
from simgpu.tools.torch.operators.element_sources import BLOCK
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, serve

_Ints = Sequence[int]


def _each(given: _Ints, axes: int) -> _Ints:
    """Returns the values of all axes, of which one may stand for all."""
    return [given[0]] * axes if len(given) == 1 else given


def _steps(extent: int, result: int, window: int, stride: int, padding: int, dilation: int) -> Tensor:
    """Returns the windows (result, window) of pooling along an axis."""
    first = torch.arange(result, device="cpu")[:, None] * stride - padding
    found = first + torch.arange(window, device="cpu")[None] * dilation
    return torch.where((found >= 0) & (found < extent), found, -1)


def _ranges(first: Tensor, last: Tensor) -> Tensor:
    """Returns windows of consecutive elements, from the first up to, not including, the last."""
    found = first[:, None] + torch.arange(max(1, int((last - first).max())), device="cpu")[None]
    return torch.where(found < last[:, None], found, -1)


def _adaptive(extent: int, result: int) -> Tensor:
    """Returns the windows of adaptive pooling, floor(i n / m) to ceil((i + 1) n / m) (ATen/native/AdaptivePooling.h)."""
    at = torch.arange(result, device="cpu")
    return _ranges(at * extent // result, -(-(at + 1) * extent // result))


def _holders(windows: Tensor, extent: int) -> Tensor:
    """Returns, for each element of an axis, the windows that it is in."""
    holds = [(windows == at).any(1).nonzero().view(-1).tolist() for at in range(extent)]
    longest = max(1, *map(len, holds))
    return torch.tensor([held + [-1] * (longest - len(held)) for held in holds], device="cpu")


def _tables(values: Tensor, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the offsets of the windows' elements, one axis after another, and the shapes of the result and of a window; of
    three axes."""
    of_three = [*[torch.zeros(1, 1, dtype=torch.int64, device="cpu")] * (3 - len(windows)), *windows]
    extents = [*[1] * (3 - len(windows)), *values.shape[-len(windows) :]]
    steps = (extents[1] * extents[2], extents[2], 1)
    flat = [torch.where(one < 0, -1, one * step).reshape(-1) for one, step in zip(of_three, steps)]
    shape = [*(len(one) for one in of_three), *(one.shape[1] for one in of_three)]
    return torch.cat(flat).to(torch.int32), torch.tensor(shape, dtype=torch.int32, device="cpu")


def _shape(values: Tensor, windows: Sequence[Tensor]) -> list[int]:
    return [*values.shape[: -len(windows)], *map(len, windows)]


def _volume(values: Tensor, axes: int) -> int:
    return math.prod(values.shape[-axes:])


def _sums(call: Call, values: Tensor, windows: Sequence[Tensor], divisors: Tensor | None, kind: torch.dtype) -> Tensor:
    """Returns the sums of windows of the last axes, divided; divisors: of the result's last axes, None: 1."""
    out = values.new_empty(_shape(values, windows), dtype=kind)
    wide = torch.promote_types(values.dtype, torch.float32)
    divisors = torch.ones(out.shape[-len(windows) :], device="cpu") if divisors is None else divisors
    call.run(
        sources.sums_of_windows, (-(-out.numel() // BLOCK),), values.contiguous(), *_tables(values, windows),
        divisors.to(wide).contiguous(), out, out.numel(), _volume(values, len(windows)), constants=(BLOCK,),
    )  # fmt: skip
    return out


def _check(values: Tensor, axes: int) -> None:
    """Raises OnHost unless a tensor has these axes and one or two before them."""
    serve(values, *FLOATS, torch.float64)
    if values.dim() not in (axes + 1, axes + 2):
        raise OnHost("of other axes")


def _result(extent: int, window: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Returns the number of windows along an axis (pooling_output_shape in ATen/native/Pool.h)."""
    room = extent + 2 * padding - dilation * (window - 1) - 1
    found = (room + (stride - 1 if ceil else 0)) // stride + 1
    return found - 1 if ceil and (found - 1) * stride >= extent + padding else found


def _windows_of(
    axes: int, values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil: bool
) -> list[Tensor]:
    """Returns the windows of the last axes. Raises OnHost for arguments that PyTorch refuses."""
    _check(values, axes)
    found = []
    given = zip(values.shape[-axes:], *(_each(one, axes) for one in (kernel, stride or kernel, padding, dilation)))
    for extent, window, step, pad, apart in given:
        count = _result(extent, window, step, pad, apart, ceil) if step > 0 else 0
        if not (count > 0 and 0 <= pad <= window // 2 and apart > 0):
            raise OnHost("of windows that do not fit")
        found.append(_steps(extent, count, window, step, pad, apart))
    return found


def _max_pool(
    axes: int, call: Call, values: Tensor, kernel: _Ints, stride: _Ints = (), padding: _Ints = (0,), dilation: _Ints = (1,),
    ceil: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return _largest(call, values, _windows_of(axes, values, kernel, stride, padding, dilation, ceil))


def _largest(call: Call, values: Tensor, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window, and its place."""
    out = values.new_empty(_shape(values, windows))
    indices = torch.empty_like(out, dtype=torch.int64)
    call.run(
        sources.largest_in_windows, (-(-out.numel() // BLOCK),), values.contiguous(), *_tables(values, windows), out, indices,
        out.numel(), _volume(values, len(windows)), constants=(BLOCK,),
    )  # fmt: skip
    return in_layout(out, values), in_layout(indices, values)


def _adaptive_max_pool(axes: int, call: Call, values: Tensor, size: _Ints) -> tuple[Tensor, Tensor]:
    return _largest(call, values, _adaptive_windows(axes, values, size)[0])


def in_layout(found: Tensor, like: Tensor) -> Tensor:
    """Returns a result in the order of axes that pooling keeps: channels last, if its argument is so."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(like.dim(), torch.contiguous_format)
    return found.contiguous(memory_format=last) if like.is_contiguous(memory_format=last) and not like.is_contiguous() else found


def _max_pool_gradient(axes: int, call: Call, grad: Tensor, values: Tensor, *options: Any) -> Tensor:
    """Adds each gradient to the element that its window chose. options: those of the pooling, then its indices."""
    indices = options[-1]
    _check(values, axes)
    serve(grad, values.dtype)
    volume, length = _volume(values, axes), _volume(grad, axes)
    out = values.new_zeros(values.shape, dtype=torch.promote_types(values.dtype, torch.float32))
    call.run(
        sources.put, (-(-grad.numel() // BLOCK),), grad.contiguous(), indices.contiguous(), out, grad.numel(), volume, length, 1,
        constants=(False, "sum", BLOCK),
    )  # fmt: skip
    return in_layout(out.to(values.dtype), values)


def _divisors(windows: Sequence[Tensor], values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, *how: Any) -> Tensor:
    """Returns the divisor of each window: a given one, else its elements inside, or also those of the padding.

    how: whether padding counts, and the given divisor.
    """
    counts_padding, given = how
    sides = []
    axes = len(windows)
    steps = zip(windows, values.shape[-axes:], *(_each(one, axes) for one in (kernel, stride or kernel, padding)))
    for of_axis, extent, window, step, pad in steps:
        first = torch.arange(len(of_axis), device="cpu") * step - pad
        inside = (of_axis >= 0).sum(1)
        sides.append((first + window).clamp(max=extent + pad) - first if counts_padding else inside)
    found = _products(sides)
    return torch.full_like(found, given) if given else found


def _products(sides: Sequence[Tensor]) -> Tensor:
    """Returns the products of one number of each axis, in as many axes."""
    return functools.reduce(lambda found, side: found[..., None] * side, sides)


def _average_pool(
    axes: int, call: Call, values: Tensor, kernel: _Ints, stride: _Ints = (), padding: _Ints = (0,), ceil: bool = False,
    counts_padding: bool = True, divisor: int | None = None,
) -> Tensor:  # fmt: skip
    windows = _windows_of(axes, values, kernel, stride, padding, (1,), ceil)
    divisors = _divisors(windows, values, kernel, stride, padding, counts_padding, divisor)
    return in_layout(_sums(call, values, windows, divisors, values.dtype), values)


def _gradient(call: Call, grad: Tensor, values: Tensor, windows: Sequence[Tensor], divisors: Tensor | None) -> Tensor:
    """Returns the sum of each element's windows' gradients, these divided first."""
    serve(grad, values.dtype)
    wide = torch.promote_types(grad.dtype, torch.float32)
    alone = [torch.arange(extent, device="cpu")[:, None] for extent in grad.shape[-len(windows) :]]
    divided = grad if divisors is None else _sums(call, grad, alone, divisors, wide)
    back = [_holders(of_axis, extent) for of_axis, extent in zip(windows, values.shape[-len(windows) :])]
    return in_layout(_sums(call, divided, back, None, values.dtype), values)


def _average_pool_gradient(
    axes: int, call: Call, grad: Tensor, values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, ceil: bool,
    counts_padding: bool, divisor: int | None,
) -> Tensor:  # fmt: skip
    windows = _windows_of(axes, values, kernel, stride, padding, (1,), ceil)
    return _gradient(call, grad, values, windows, _divisors(windows, values, kernel, stride, padding, counts_padding, divisor))


def _adaptive_windows(axes: int, values: Tensor, size: _Ints) -> tuple[list[Tensor], Tensor]:
    """Returns the windows of the last axes, and their numbers of elements."""
    _check(values, axes)
    if 0 in size:
        raise OnHost("of no windows")
    windows = [_adaptive(extent, count) for extent, count in zip(values.shape[-axes:], size)]
    return windows, _products([(of_axis >= 0).sum(1) for of_axis in windows])


def _adaptive_pool(axes: int, call: Call, values: Tensor, size: _Ints) -> Tensor:
    windows, divisors = _adaptive_windows(axes, values, size)
    return in_layout(_sums(call, values, windows, divisors, values.dtype), values)


def _adaptive_pool_gradient(axes: int, call: Call, grad: Tensor, values: Tensor) -> Tensor:
    return _gradient(call, grad, values, *_adaptive_windows(axes, values, grad.shape[-axes:]))


def _nearest(extent: int, result: int, scale: float | None) -> Tensor:
    """Returns the element that each of the result's is, as windows of one (nearest_neighbor_compute_source_index in
    ATen/native/UpSample.h)."""
    step = torch.tensor(1 / scale if scale else extent / result, dtype=torch.float32, device="cpu")
    at = torch.arange(result, dtype=torch.float32, device="cpu") * step
    return at.floor().to(torch.int64).clamp(max=extent - 1)[:, None]


def _upsample(axes: int, call: Call, values: Tensor, size: _Ints, *scales: float | None) -> Tensor:
    _check(values, axes)
    windows = [_nearest(*each) for each in zip(values.shape[-axes:], size, scales or [None] * axes)]
    return in_layout(_sums(call, values, windows, None, values.dtype), values)


def _upsample_gradient(axes: int, call: Call, grad: Tensor, size: _Ints, shape: _Ints, *scales: float | None) -> Tensor:
    _check(grad, axes)
    windows = [_nearest(*each) for each in zip(shape[-axes:], size, scales or [None] * axes)]
    return _gradient(call, grad, grad.new_empty(shape), windows, None)


# By the operator's name in PyTorch's dispatcher, but for the number of axes.
_BY_AXES: dict[str, Callable[..., Any]] = {
    "max_pool{}d_with_indices": _max_pool, "max_pool{}d_with_indices_backward": _max_pool_gradient,
    "adaptive_max_pool{}d": _adaptive_max_pool, "adaptive_max_pool{}d_backward": _max_pool_gradient,
    "avg_pool{}d": _average_pool, "avg_pool{}d_backward": _average_pool_gradient,
    "_adaptive_avg_pool{}d": _adaptive_pool, "_adaptive_avg_pool{}d_backward": _adaptive_pool_gradient,
    "upsample_nearest{}d": _upsample, "upsample_nearest{}d_backward": _upsample_gradient,
}  # fmt: skip
POOLING: dict[str, Callable[..., Any]] = {
    f"aten::{name.format(axes)}": functools.partial(function, axes) for name, function in _BY_AXES.items() for axes in (1, 2, 3)
}
