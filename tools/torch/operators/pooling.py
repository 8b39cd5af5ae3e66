"""PyTorch's pooling in two axes, nearest interpolation and their gradients, by Triton kernels of windows.

A window is described for each axis by the indices of its elements, -1 for padding, so that one kernel serves strides, dilation,
adaptive windows and gradients: an element's gradient is the sum over the windows that it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators import index_sources as sources
from simgpu.tools.torch.operators.element_sources import BLOCK
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, serve

_Ints = Sequence[int]


def _both(given: _Ints) -> tuple[int, int]:
    """Returns the values of both axes."""
    return given[0], given[-1]


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


def _sums(call: Call, values: Tensor, windows: Sequence[Tensor], divisors: Tensor | None, kind: torch.dtype) -> Tensor:
    """Returns the sums of windows of (..., height, width), divided; divisors: (height, width) of the result, None: 1."""
    x, (height, width), (rows, columns) = values.contiguous(), values.shape[-2:], windows
    shape = [*values.shape[:-2], len(rows), len(columns)]
    out = values.new_empty(shape, dtype=kind)
    wide = torch.promote_types(values.dtype, torch.float32)
    divisors = torch.ones(shape[-2:], device="cpu") if divisors is None else divisors
    call.run(
        sources.sums_of_windows, (-(-out.numel() // BLOCK),), x, _offsets(rows, width), _offsets(columns, 1),
        divisors.to(wide).contiguous(), out, out.numel(), height * width, *shape[-2:], rows.shape[1], columns.shape[1],
        constants=(BLOCK,),
    )  # fmt: skip
    return out


def _offsets(windows: Tensor, step: int) -> Tensor:
    return torch.where(windows < 0, -1, windows * step).to(torch.int32).contiguous()


def _planes(values: Tensor) -> None:
    """Raises OnHost unless a tensor has two axes and others before them."""
    serve(values, *FLOATS, torch.float64)
    if values.dim() not in (3, 4):
        raise OnHost("of other axes")


def _result(extent: int, window: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Returns the number of windows along an axis (pooling_output_shape in ATen/native/Pool.h)."""
    room = extent + 2 * padding - dilation * (window - 1) - 1
    found = (room + (stride - 1 if ceil else 0)) // stride + 1
    return found - 1 if ceil and (found - 1) * stride >= extent + padding else found


def _windows_of(values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil: bool) -> list[Tensor]:
    """Returns the windows of both axes. Raises OnHost for arguments that PyTorch refuses."""
    _planes(values)
    found = []
    given = zip(values.shape[-2:], _both(kernel), _both(stride or kernel), _both(padding), _both(dilation))
    for extent, window, step, pad, apart in given:
        count = _result(extent, window, step, pad, apart, ceil) if step > 0 else 0
        if not (count > 0 and 0 <= pad <= window // 2 and apart > 0):
            raise OnHost("of windows that do not fit")
        found.append(_steps(extent, count, window, step, pad, apart))
    return found


def _max_pool(
    call: Call, values: Tensor, kernel: _Ints, stride: _Ints = (), padding: _Ints = (0,), dilation: _Ints = (1,), ceil: bool = False
) -> tuple[Tensor, Tensor]:
    rows, columns = _windows_of(values, kernel, stride, padding, dilation, ceil)
    out = values.new_empty([*values.shape[:-2], len(rows), len(columns)])
    indices = torch.empty_like(out, dtype=torch.int64)
    height, width = values.shape[-2:]
    call.run(
        sources.largest_in_windows, (-(-out.numel() // BLOCK),), values.contiguous(), _offsets(rows, width), _offsets(columns, 1),
        out, indices, out.numel(), height * width, *out.shape[-2:], rows.shape[1], columns.shape[1], constants=(BLOCK,),
    )  # fmt: skip
    return tuple(in_layout(one, values) for one in (out, indices))  # type: ignore[return-value]


def in_layout(found: Tensor, like: Tensor) -> Tensor:
    """Returns a result in the order of axes that pooling keeps: channels last, if its argument is so."""
    last = like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    return found.contiguous(memory_format=torch.channels_last) if last else found


def _max_pool_gradient(call: Call, grad: Tensor, values: Tensor, *options: Any) -> Tensor:
    """Adds each gradient to the element that its window chose. options: those of the pooling, then its indices."""
    indices = options[-1]
    _planes(values)
    serve(grad, values.dtype)
    area, length = values.shape[-2] * values.shape[-1], grad.shape[-2] * grad.shape[-1]
    out = values.new_zeros(values.shape, dtype=torch.promote_types(values.dtype, torch.float32))
    call.run(
        sources.put, (-(-grad.numel() // BLOCK),), grad.contiguous(), indices.contiguous(), out, grad.numel(), area, length, 1,
        constants=(False, True, BLOCK),
    )  # fmt: skip
    return in_layout(out.to(values.dtype), values)


def _divisors(windows: Sequence[Tensor], values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, *how: Any) -> Tensor:
    """Returns the divisor of each window: a given one, else its elements inside, or also those of the padding.

    how: whether padding counts, and the given divisor.
    """
    counts_padding, given = how
    sides = []
    steps = zip(windows, values.shape[-2:], _both(kernel), _both(stride or kernel), _both(padding))
    for of_axis, extent, window, step, pad in steps:
        first = torch.arange(len(of_axis), device="cpu") * step - pad
        inside = (of_axis >= 0).sum(1)
        sides.append((first + window).clamp(max=extent + pad) - first if counts_padding else inside)
    both = sides[0][:, None] * sides[1][None]
    return torch.full_like(both, given) if given else both


def _average_pool(
    call: Call, values: Tensor, kernel: _Ints, stride: _Ints = (), padding: _Ints = (0,), ceil: bool = False,
    counts_padding: bool = True, divisor: int | None = None,
) -> Tensor:  # fmt: skip
    windows = _windows_of(values, kernel, stride, padding, (1,), ceil)
    divisors = _divisors(windows, values, kernel, stride, padding, counts_padding, divisor)
    return in_layout(_sums(call, values, windows, divisors, values.dtype), values)


def _gradient(call: Call, grad: Tensor, values: Tensor, windows: Sequence[Tensor], divisors: Tensor | None) -> Tensor:
    """Returns the sum of each element's windows' gradients, these divided first."""
    serve(grad, values.dtype)
    wide = torch.promote_types(grad.dtype, torch.float32)
    alone = [torch.arange(extent, device="cpu")[:, None] for extent in grad.shape[-2:]]
    divided = grad if divisors is None else _sums(call, grad, alone, divisors, wide)
    back = [_holders(of_axis, extent) for of_axis, extent in zip(windows, values.shape[-2:])]
    return in_layout(_sums(call, divided, back, None, values.dtype), values)


def _average_pool_gradient(
    call: Call, grad: Tensor, values: Tensor, kernel: _Ints, stride: _Ints, padding: _Ints, ceil: bool, counts_padding: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    windows = _windows_of(values, kernel, stride, padding, (1,), ceil)
    return _gradient(call, grad, values, windows, _divisors(windows, values, kernel, stride, padding, counts_padding, divisor))


def _adaptive_windows(values: Tensor, size: _Ints) -> tuple[list[Tensor], Tensor]:
    """Returns the windows of both axes, and their numbers of elements."""
    _planes(values)
    windows = [_adaptive(extent, count) for extent, count in zip(values.shape[-2:], size)]
    rows, columns = ((of_axis >= 0).sum(1) for of_axis in windows)
    return windows, rows[:, None] * columns[None]


def _adaptive_pool(call: Call, values: Tensor, size: _Ints) -> Tensor:
    if 0 in size:
        raise OnHost("of no windows")
    windows, divisors = _adaptive_windows(values, size)
    return in_layout(_sums(call, values, windows, divisors, values.dtype), values)


def _adaptive_pool_gradient(call: Call, grad: Tensor, values: Tensor) -> Tensor:
    return _gradient(call, grad, values, *_adaptive_windows(values, grad.shape[-2:]))


def _nearest(extent: int, result: int, scale: float | None) -> Tensor:
    """Returns the element that each of the result's is, as windows of one (nearest_neighbor_compute_source_index in
    ATen/native/UpSample.h)."""
    step = torch.tensor(1 / scale if scale else extent / result, dtype=torch.float32, device="cpu")
    at = torch.arange(result, dtype=torch.float32, device="cpu") * step
    return at.floor().to(torch.int64).clamp(max=extent - 1)[:, None]


def _upsample(call: Call, values: Tensor, size: _Ints, *scales: float | None) -> Tensor:
    _planes(values)
    windows = [_nearest(*each) for each in zip(values.shape[-2:], size, scales or (None, None))]
    return in_layout(_sums(call, values, windows, None, values.dtype), values)


def _upsample_gradient(call: Call, grad: Tensor, size: _Ints, shape: _Ints, *scales: float | None) -> Tensor:
    _planes(grad)
    windows = [_nearest(*each) for each in zip(shape[-2:], size, scales or (None, None))]
    return _gradient(call, grad, grad.new_empty(shape), windows, None)


# By the operator's name in PyTorch's dispatcher.
POOLING: dict[str, Callable[..., Any]] = {
    "aten::max_pool2d_with_indices": _max_pool, "aten::max_pool2d_with_indices_backward": _max_pool_gradient,
    "aten::avg_pool2d": _average_pool, "aten::avg_pool2d_backward": _average_pool_gradient,
    "aten::_adaptive_avg_pool2d": _adaptive_pool, "aten::_adaptive_avg_pool2d_backward": _adaptive_pool_gradient,
    "aten::upsample_nearest2d": _upsample, "aten::upsample_nearest2d_backward": _upsample_gradient,
}  # fmt: skip
