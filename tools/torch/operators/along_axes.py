"""PyTorch's operators along axes by Triton kernels: largest elements, sums of any type, order, running sums, moments, norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators import index_sources as sources
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.kernels import FLOATS, INTEGERS, POINTEES, Call, OnHost, serve
from simgpu.tools.torch.operators.rows import ROWS

_REAL = (*FLOATS, torch.float64)
_RUN = 1024  # most elements that are sorted by comparing each with all; longer rows are merged from such runs
_SORTED_AT_ONCE = 256  # elements of a workgroup


def _axes(values: Tensor, dims: Sequence[int] | int | None) -> list[int]:
    """Returns the axes that are reduced, none for a tensor without axes; no dims: all."""
    chosen = [dims] if isinstance(dims, int) else dims
    if chosen and any(not -max(values.dim(), 1) <= dim < max(values.dim(), 1) for dim in chosen):
        raise OnHost("of an axis that is not there")  # PyTorch's own error
    return sorted({dim % values.dim() for dim in chosen or range(values.dim())}) if values.dim() else []


def _rows(values: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns a contiguous (rows, n) tensor, n elements of these axes."""
    serve(values, *POINTEES)
    last = values.movedim(list(axes), list(range(-len(axes), 0))) if axes else values
    return last.reshape(-1, math.prod(values.shape[axis] for axis in axes)).contiguous()


def _shape_without(values: Tensor, axes: Sequence[int], keepdim: bool) -> list[int]:
    """Returns the shape of a reduction's result."""
    return [1 if axis in axes else extent for axis, extent in enumerate(values.shape) if keepdim or axis not in axes]


def _block(n: int) -> int:
    """Returns the lanes of a workgroup for a row of n: two sizes, so that few kernels are compiled."""
    return 64 if n <= 64 else 1024


def _extremes(call: Call, values: Tensor, dims: Any, keepdim: bool, largest: bool) -> tuple[Tensor, Tensor]:
    """Returns the largest or smallest elements over axes, and their indices."""
    axes = _axes(values, dims)
    rows = _rows(values, axes)
    rows = rows.view(torch.uint8) if values.dtype == torch.bool else rows
    found = rows.new_empty(len(rows)), rows.new_empty(len(rows), dtype=torch.int64)
    call.run(sources.extremes, (len(rows),), rows, *found, rows.shape[1], constants=(largest, _block(rows.shape[1])))
    shape = _shape_without(values, axes, keepdim)
    return found[0].view(values.dtype).view(shape), found[1].view(shape)


def _extreme(largest: bool, result: slice | int) -> Callable[..., Any]:
    """Returns an operator of the largest or smallest elements. result: 0: them, 1: their indices, a slice: both."""
    return lambda call, values, dims=None, keepdim=False: _extremes(call, values, dims, keepdim, largest)[result]


def _truth(largest: bool) -> Callable[..., Tensor]:
    """Returns `any` or `all`."""

    def truth(call: Call, values: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        kind = torch.uint8 if values.dtype == torch.uint8 else torch.bool
        return _extremes(call, values.to(torch.bool), dims, keepdim, largest)[0].to(kind)

    return truth


def _combine(call: Call, unit: int, values: Tensor, axes: Sequence[int], kind: torch.dtype, shape: Any) -> Tensor:
    """Returns sums over axes (unit 0) or products (1) in a type; those of 16-bit floats are computed in f32."""
    rows = _rows(values, axes)
    out = rows.new_empty(len(rows), dtype=torch.float32 if kind in FLOATS else kind)
    call.run(sources.totals, (len(rows),), rows, out, rows.shape[1], constants=(unit, _block(rows.shape[1])))
    return out.to(kind).view(shape)


def _sum(call: Call, values: Tensor, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    kind = dtype or (torch.int64 if values.dtype in INTEGERS else values.dtype)
    if values.dtype in FLOATS and kind in FLOATS:
        return ROWS["aten::sum.dim_IntList"](call, values, dims, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    if kind not in (*_REAL, torch.int64, torch.int32):
        raise OnHost(f"to {str(kind).removeprefix('torch.')}")
    axes = _axes(values, dims)
    return _combine(call, 0, values, axes, kind, _shape_without(values, axes, keepdim))


def _product(call: Call, values: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    kind = dtype or (torch.int64 if values.dtype in INTEGERS else values.dtype)
    if kind not in (*_REAL, torch.int64):
        raise OnHost(f"to {str(kind).removeprefix('torch.')}")
    axes = _axes(values, dim)
    return _combine(call, 1, values, axes, kind, _shape_without(values, axes, keepdim))


def _running(unit: int) -> Callable[..., Tensor]:
    """Returns `cumsum` (unit 0) or `cumprod` (1)."""

    def running(call: Call, values: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        kind = dtype or (torch.int64 if values.dtype in INTEGERS else values.dtype)
        if kind not in (*_REAL, torch.int64, torch.int32):
            raise OnHost(f"to {str(kind).removeprefix('torch.')}")
        axes = _axes(values, dim)
        rows = _rows(values.to(kind), axes)
        out = torch.empty_like(rows, dtype=torch.float32 if kind in FLOATS else kind)
        call.run(sources.running, (len(rows),), rows, out, rows.shape[1], constants=(unit, _block(rows.shape[1])))
        return _move_back(out.to(kind), values, axes)

    return running


def _running_extreme(largest: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns `cummax` or `cummin`."""

    def running_extreme(call: Call, values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        axes = _axes(values, dim)
        rows = _rows(values, axes)
        rows = rows.view(torch.uint8) if values.dtype == torch.bool else rows
        found = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.int64)
        call.run(sources.running_extremes, (len(rows),), rows, *found, rows.shape[1], constants=(largest, _block(rows.shape[1])))
        return _move_back(found[0].view(values.dtype), values, axes), _move_back(found[1], values, axes)

    return running_extreme


def _running_log_sums(call: Call, values: Tensor, dim: int) -> Tensor:
    serve(values, *_REAL)
    axes = _axes(values, dim)
    rows = _rows(values, axes)
    out = torch.empty_like(rows, dtype=torch.float32 if values.dtype in FLOATS else values.dtype)
    call.run(sources.running_log_sums, (len(rows),), rows, out, rows.shape[1], constants=(_block(rows.shape[1]),))
    return _move_back(out.to(values.dtype), values, axes)


def _move_back(rows: Tensor, like: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns the rows of `_rows`, whatever their length, in the order of axes of their argument."""
    if not axes:
        return rows.view(like.shape)
    outer = [extent for axis, extent in enumerate(like.shape) if axis not in axes]
    return rows.view(*outer, rows.shape[1]).movedim(-1, axes[0]).contiguous()


def _log_sums(call: Call, values: Tensor, dims: Any, keepdim: bool = False) -> Tensor:
    serve(values, *_REAL)
    axes = _axes(values, dims)
    rows = _rows(values, axes)
    out = rows.new_empty(len(rows), dtype=torch.float32 if values.dtype in FLOATS else values.dtype)
    call.run(sources.log_sums, (len(rows),), rows, out, rows.shape[1], constants=(_block(rows.shape[1]),))
    return out.to(values.dtype).view(_shape_without(values, axes, keepdim))


def _moments(call: Call, values: Tensor, dims: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns variances and means over axes, in f32 or f64. Raises OnHost if a variance has no divisor."""
    serve(values, *_REAL)
    axes = _axes(values, dims)
    rows = _rows(values, axes)
    count = rows.shape[1] - (1 if correction is None else correction)
    if count <= 0:
        raise OnHost("of too few elements")
    means, variances = (rows.new_empty(len(rows), dtype=torch.promote_types(values.dtype, torch.float32)) for _ in range(2))
    divisor = torch.tensor([count], dtype=means.dtype, device="cpu")
    call.run(sources.moments, (len(rows),), rows, means, variances, rows.shape[1], divisor, constants=(_block(rows.shape[1]),))
    shape = _shape_without(values, axes, keepdim)
    return variances.view(shape), means.view(shape)


def _variance(call: Call, values: Tensor, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _moments(call, values, dims, correction, keepdim)[0].to(values.dtype)


def _deviation(call: Call, values: Tensor, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    serve(values, *FLOATS)
    found = _moments(call, values, dims, correction, keepdim)[0]
    return ELEMENTS["aten::sqrt"](call, found).to(values.dtype)  # type: ignore[no-any-return]


def _variance_and_mean(
    call: Call, values: Tensor, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance, mean = _moments(call, values, dims, correction, keepdim)
    return variance.to(values.dtype), mean.to(values.dtype)


def _norm(
    call: Call, values: Tensor, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Computes norms of order 1, 2 and infinity, in f32."""
    serve(values, *FLOATS)
    kind = dtype or values.dtype
    if kind not in FLOATS or order not in (1, 2, math.inf, -math.inf):
        raise OnHost("of another order than 1, 2 and infinity, or another type")
    wide = values.float()
    if order == 2:
        squares = ROWS["aten::sum.dim_IntList"](call, ELEMENTS["aten::square"](call, wide), dims, keepdim)
        return ELEMENTS["aten::sqrt"](call, squares).to(kind)  # type: ignore[no-any-return]
    sizes = ELEMENTS["aten::abs"](call, wide)
    if order == 1:
        return ROWS["aten::sum.dim_IntList"](call, sizes, dims, keepdim).to(kind)  # type: ignore[no-any-return]
    return _extremes(call, sizes, dims, keepdim, order > 0)[0].to(kind)


def _norms(call: Call, tensors: Sequence[Tensor], order: Any = 2, dtype: Any = None) -> list[Tensor]:
    """Computes the norm of each tensor of a list."""
    return [_norm(call, one, order, dtype=dtype) for one in tensors]


def _empty_pair(rows: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Returns new tensors for the first elements of each row in order, and for their indices."""
    return rows.new_empty(len(rows), kept), rows.new_empty(len(rows), kept, dtype=torch.int64)


def _in_order(call: Call, rows: Tensor, kept: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Returns the first elements of each row of at most _RUN in order, and their indices."""
    found, n = _empty_pair(rows, kept), rows.shape[1]
    block = min(_block(n), _SORTED_AT_ONCE)
    call.run(sources.sort_rows, (len(rows), -(-n // block)), rows, *found, n, kept, constants=(descending, block))
    return found


def _runs(call: Call, rows: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Returns rows whose runs of _RUN elements are in order, and the elements' places in their rows."""
    whole = rows.shape[1] // _RUN * _RUN
    first = torch.arange(0, whole, _RUN, device="cpu")[None, :, None]
    values, at = _in_order(call, rows[:, :whole].contiguous().view(-1, _RUN), _RUN, descending)
    values, at = values.view(len(rows), whole), (at.view(len(rows), -1, _RUN) + first).view(len(rows), whole)
    if whole == rows.shape[1]:
        return values, at
    last, at_last = _in_order(call, rows[:, whole:].contiguous(), rows.shape[1] - whole, descending)
    return torch.cat([values, last], 1), torch.cat([at, at_last + whole], 1)


def _sort(
    call: Call, values: Tensor, dim: int = -1, descending: bool = False, kept: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns elements along an axis in order, and their indices; equal ones keep their order. kept: only the first ones."""
    axes = _axes(values, dim)
    rows = _rows(values, axes)
    rows, n = rows.view(torch.uint8) if values.dtype == torch.bool else rows, rows.shape[1]
    kept = n if kept is None else kept
    if n <= _RUN:
        found, indices = _in_order(call, rows, kept, descending)
    else:
        runs, places = _runs(call, rows, descending)
        found, indices = _empty_pair(rows, kept)
        call.run(
            sources.merge_runs, (len(rows), -(-n // _SORTED_AT_ONCE)), runs, places, found, indices, n, kept,
            constants=(_RUN, _RUN.bit_length(), descending, _SORTED_AT_ONCE),
        )  # fmt: skip
    return _move_back(found.view(values.dtype), values, axes), _move_back(indices, values, axes)


def _sort_stable(
    call: Call, values: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return _sort(call, values, dim, descending)


def _topk(call: Call, values: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    axes = _axes(values, dim)
    if not 0 < k <= math.prod(values.shape[axis] for axis in axes):
        raise OnHost("of too many elements")
    return _sort(call, values, dim, largest, kept=k)


# By the operator's name in PyTorch's dispatcher.
ALONG_AXES: dict[str, Callable[..., Any]] = {
    "aten::amax": _extreme(True, 0), "aten::amin": _extreme(False, 0),
    "aten::argmax": _extreme(True, 1), "aten::argmin": _extreme(False, 1),
    "aten::max": _extreme(True, 0), "aten::min": _extreme(False, 0),
    "aten::max.dim": _extreme(True, slice(2)), "aten::min.dim": _extreme(False, slice(2)),
    **{f"aten::any{way}": _truth(True) for way in ("", ".dim", ".dims")},
    **{f"aten::all{way}": _truth(False) for way in ("", ".dim", ".dims")},
    "aten::sum": _sum, "aten::sum.dim_IntList": _sum, "aten::prod": _product, "aten::prod.dim_int": _product,
    "aten::cumsum": _running(0), "aten::cumprod": _running(1), "aten::logsumexp": _log_sums,
    "aten::var.correction": _variance, "aten::std.correction": _deviation, "aten::var_mean.correction": _variance_and_mean,
    "aten::linalg_vector_norm": _norm, "aten::_foreach_norm.Scalar": _norms,
    "aten::cummax": _running_extreme(True), "aten::cummin": _running_extreme(False), "aten::logcumsumexp": _running_log_sums,
    "aten::sort": _sort, "aten::sort.stable": _sort_stable, "aten::topk": _topk,
}  # fmt: skip
