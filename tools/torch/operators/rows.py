"""PyTorch's softmaxes, layer and RMS norms by simgpu's kernels of rows, and their gradients.

Rows are the last axes of contiguous operands; others are copied first, so that the reduced axes come last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simgpu.operators import ColumnProblem, RowOperator, SoftmaxProblem
from simgpu.tools.torch.operators.kernels import FLOATS, TYPES, Call, OnHost, pose, type_of
from simgpu.tools.torch.operators.row_forms import (
    LayerNormGradient,
    LayerNormStatistics,
    LogSoftmaxGradient,
    RmsNormGradient,
    RmsNormStatistics,
    SoftmaxGradient,
)

_LANES = 64  # of a wave


def _along(values: Tensor, dim: int) -> Tensor:
    """Returns a contiguous (rows, n) tensor of the elements along an axis."""
    type_of(values, *FLOATS)
    if not values.dim():
        raise OnHost("of a scalar")
    moved = values.movedim(dim, -1)
    return moved.reshape(-1, moved.shape[-1]).contiguous()


def _back(found: Tensor, like: Tensor, dim: int) -> Tensor:
    """Returns the rows of `_along` in the shape of its argument."""
    moved = like.movedim(dim, -1)
    return found.view(moved.shape).movedim(-1, dim).contiguous()


def form_of_rows(call: Call, form: type[RowOperator], x: Tensor, kind: torch.dtype, **more: Any) -> dict[str, Tensor]:
    """Computes a form of X (rows, n) and other operands, tensors among `more`; returns what it writes, by name."""
    operands = {name: value for name, value in more.items() if isinstance(value, Tensor)}
    options = {name: value for name, value in more.items() if name not in operands}
    if any(operand.dtype != x.dtype for operand in operands.values()):
        raise OnHost("of two types")
    p = pose(form, *x.shape, TYPES[x.dtype], TYPES[kind], **options)
    kinds = {name: torch.float32 if name in p.row_results else kind for name in p.written}
    written = {name: torch.empty(shape, dtype=kinds[name], device=x.device) for name, shape in p.written.items()}
    call.launch(p, X=x, **operands, **written)
    return written


def _softmax(call: Call, values: Tensor, dim: int, half_to_float: bool, log: bool = False) -> Tensor:
    x = _along(values, dim)
    y = torch.empty_like(x, dtype=torch.float32 if half_to_float else x.dtype)
    call.launch(pose(SoftmaxProblem, *x.shape, TYPES[x.dtype], dtype_y=TYPES[y.dtype], log=log), X=x, Y=y)
    return _back(y, values, dim)


def _safe_softmax(call: Call, values: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Computes a softmax whose rows of minus infinities become 0."""
    values = values if dtype is None else values.to(dtype)
    found = _softmax(call, values, dim, False)
    return found.masked_fill_((values == -math.inf).all(dim, keepdim=True), 0.0)


def _gradient(form: type[RowOperator]) -> Callable[..., Tensor]:
    """Returns the operator of a softmax's gradient."""

    def gradient(call: Call, grad: Tensor, output: Tensor, dim: int, kind: torch.dtype) -> Tensor:
        x = _along(output, dim)
        found = form_of_rows(call, form, x, kind, grad=_along(grad, dim))["Y"]
        return _back(found, output, dim)

    return gradient


def _normal(values: Tensor, shape: Sequence[int], *vectors: Tensor | None) -> Tensor:
    """Returns a contiguous (rows, n) tensor of the elements that are normalised together.

    vectors: weight and bias. Raises OnHost if shapes do not fit: PyTorch's own error says how.
    """
    type_of(values, *FLOATS)
    if tuple(values.shape[-len(shape) :]) != tuple(shape) or any(v is not None and v.shape != tuple(shape) for v in vectors):
        raise OnHost("of operands that do not fit each other")
    return values.reshape(-1, math.prod(shape)).contiguous()


def _vector(given: Tensor | None, x: Tensor, value: float) -> Tensor:
    """Returns a norm's weight or bias, or a constant one."""
    if given is None:
        return torch.full(x.shape[1:], value, dtype=x.dtype, device=x.device)
    return given.reshape(-1).contiguous()


def _per_row(found: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Shapes a statistic of each row as PyTorch does."""
    outer = values.shape[: values.dim() - len(shape)]
    return found.view(*outer, *[1] * len(shape))


def _layer_norm(call: Call, values: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    x = _normal(values, shape, weight, bias)
    found = form_of_rows(call, LayerNormStatistics, x, x.dtype, gamma=_vector(weight, x, 1), beta=_vector(bias, x, 0), eps=eps)
    return found["Y"].view(values.shape), *(_per_row(found[name], values, shape) for name in ("mean", "scale"))


def _rms_norm(call: Call, values: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float) -> Any:
    x = _normal(values, shape, weight)
    found = form_of_rows(call, RmsNormStatistics, x, x.dtype, gamma=_vector(weight, x, 1), eps=eps)
    return found["Y"].view(values.shape), _per_row(found["scale"], values, shape)


def norm_gradient(
    call: Call, form: type[RowOperator], grad: Tensor, values: Tensor, shape: Sequence[int], scale: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns the gradient of a norm's argument, and the summands of its weight's in f32, (rows, n)."""
    x = _normal(values, shape).float()
    of_rows = scale.float().reshape(-1, 1).expand(x.shape).contiguous()
    gamma = _vector(weight, x, 1).float()
    found = form_of_rows(call, form, x, torch.float32, grad=_normal(grad, shape).float(), scale=of_rows, gamma=gamma)
    return found["Y"].to(values.dtype).view(values.shape), found["of_gamma"]


def _layer_norm_gradient(
    call: Call, grad: Tensor, values: Tensor, shape: Sequence[int], mean: Tensor, scale: Tensor, weight: Tensor | None,
    bias: Tensor | None, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    of_x, summands = norm_gradient(call, LayerNormGradient, grad, values, shape, scale, weight)
    of_weight = column_sums(call, summands, weight) if wanted[1] and weight is not None else None
    of_bias = column_sums(call, _normal(grad, shape), bias) if wanted[2] and bias is not None else None
    return of_x if wanted[0] else None, of_weight, of_bias


def _rms_norm_gradient(
    call: Call, grad: Tensor, values: Tensor, shape: Sequence[int], scale: Tensor, weight: Tensor | None, wanted: Sequence[bool]
) -> Any:
    of_x, summands = norm_gradient(call, RmsNormGradient, grad, values, shape, scale, weight)
    return of_x if wanted[0] else None, column_sums(call, summands, weight) if wanted[1] and weight is not None else None


def column_sums(call: Call, x: Tensor, like: Tensor) -> Tensor:
    """Returns the sums of the columns of x (rows, n), in the shape and type of a parameter."""
    y = torch.empty(x.shape[1], dtype=torch.float32, device=x.device)
    call.launch(pose(ColumnProblem, *x.shape, TYPES[x.dtype]), X=x, Y=y)
    return y.to(like.dtype).view(like.shape)


def _sum(call: Call, values: Tensor, dims: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None) -> tuple[Tensor, int]:
    """Returns the sums of a tensor over axes (None, or no axis: all) in a type, and the number of elements of each."""
    type_of(values, *FLOATS)
    kind = values.dtype if dtype is None else dtype
    if kind not in FLOATS:
        raise OnHost(f"to {str(kind).removeprefix('torch.')}")
    axes = sorted({dim % values.dim() for dim in dims or range(values.dim())}) if values.dim() else []
    kept = [values.shape[axis] for axis in range(values.dim()) if axis not in axes]
    shape = [1 if axis in axes else extent for axis, extent in enumerate(values.shape)] if keepdim else kept
    columns = values.movedim(axes, list(range(len(axes)))).reshape(-1, math.prod(kept)).contiguous()
    count = len(columns)
    if columns.shape[1] == 1:  # all elements: as a matrix first, so that more than one lane adds
        width = next(width for width in range(_LANES, 0, -1) if count % width == 0)
        rows = columns.view(-1, width)
        columns = column_sums(call, rows, rows.new_empty(width, dtype=torch.float32)).view(-1, 1)
    return column_sums(call, columns, columns.new_empty(shape, dtype=kind)), count


def _sum_over(call: Call, values: Tensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return _sum(call, values, dims, keepdim, dtype)[0]


def _mean_over(call: Call, values: Tensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    found, count = _sum(call, values, dims, keepdim, torch.float32)
    return (found / count).to(values.dtype if dtype is None else dtype)


# By the operator's name in PyTorch's dispatcher.
ROWS: dict[str, Callable[..., Any]] = {
    "aten::_softmax": _softmax, "aten::_log_softmax": partial(_softmax, log=True), "aten::_safe_softmax": _safe_softmax,
    "aten::_softmax_backward_data": _gradient(SoftmaxGradient),
    "aten::_log_softmax_backward_data": _gradient(LogSoftmaxGradient),
    "aten::native_layer_norm": _layer_norm, "aten::native_layer_norm_backward": _layer_norm_gradient,
    "aten::sum.dim_IntList": _sum_over, "aten::sum": lambda call, values, *, dtype=None: _sum_over(call, values, None, dtype=dtype),
    "aten::mean.dim": _mean_over, "aten::mean": lambda call, values, *, dtype=None: _mean_over(call, values, None, dtype=dtype),
    "aten::_fused_rms_norm": _rms_norm, "aten::_fused_rms_norm_backward": _rms_norm_gradient,
}  # fmt: skip
