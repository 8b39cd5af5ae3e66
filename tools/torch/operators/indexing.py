"""PyTorch's operators by indices, by Triton kernels: embeddings, gather, scatter, index and their gradients.

Addresses are prepared on the host: indices of several axes become one, and the host reads whether all are inside.
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
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.kernels import FLOATS, POINTEES, Call, OnHost, serve
from simgpu.tools.torch.places import HOST, mark_of

_INDICES = (torch.int64, torch.int32)
_ADDED = (*FLOATS, torch.float64, torch.int64, torch.int32)  # types that atomics, or their f32, add


def _inside(index: Tensor, n: int, least: int = 0) -> Tensor:
    """Returns indices as contiguous ones. Raises OnHost if one is outside: PyTorch's own error says which."""
    serve(index, *_INDICES)
    if not (least <= int(index.min()) and int(index.max()) < n):
        raise OnHost("of an index out of range")
    return index.contiguous()


def _split(shape: Sequence[int], dim: int, count: int = 1) -> tuple[int, int, int]:
    """Returns the number of elements before, in and after an axis, or several."""
    return math.prod(shape[:dim]), math.prod(shape[dim : dim + count]), math.prod(shape[dim + count :])


def _take(call: Call, values: Tensor, index: Tensor, dim: int, count: int = 1, shared: bool = True) -> Tensor:
    """Returns elements along axes. index: one for each element of the result, or shared by all places beside the axes."""
    serve(values, *POINTEES)
    _, n, inner = _split(values.shape, dim, count)
    index = _inside(index, n, -n)
    shape = [*values.shape[:dim], *index.shape, *values.shape[dim + count :]] if shared else list(index.shape)
    length = index.numel() if shared else index.shape[dim]
    inner = inner if shared else math.prod(index.shape[dim + 1 :])
    out = values.new_empty(shape)
    groups = (-(-out.numel() // BLOCK),)
    call.run(sources.take, groups, values.contiguous(), index, out, out.numel(), n, length, inner, constants=(shared, BLOCK))
    return out


def _put(
    call: Call, target: Tensor, index: Tensor, values: Tensor, dim: int, count: int = 1, shared: bool = True, how: str = "put"
) -> Tensor:
    """Returns a copy of `target` in which values are stored along axes, or combined: `how` is sum, amax or amin. Operands are as in
    `_take`."""
    serve(target, *(POINTEES if how == "put" else _ADDED))
    serve(values, target.dtype)
    _, n, inner = _split(target.shape, dim, count)
    index = _inside(index, n, -n)
    length = index.numel() if shared else index.shape[dim]
    wide = torch.float32 if how != "put" and target.dtype in FLOATS else target.dtype
    out = target.to(wide).clone(memory_format=torch.contiguous_format)
    groups = (-(-values.numel() // BLOCK),)
    call.run(
        sources.put, groups, values.contiguous(), index, out, values.numel(), n, length, inner, constants=(shared, how, BLOCK)
    )
    return out.to(target.dtype)


def _embedding(call: Call, weight: Tensor, index: Tensor, *_options: Any) -> Tensor:
    return _take(call, weight, _inside(index, len(weight)), 0)


def _embedding_gradient(call: Call, grad: Tensor, index: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    if by_frequency:
        raise OnHost("scaled by frequency")
    columns = grad.shape[-1]
    weight = grad.new_zeros(rows, columns)
    found = _put(call, weight, _inside(index, rows).reshape(-1), grad.reshape(-1, columns), 0, how="sum")
    if padding >= 0:
        found[padding] = 0
    return found


def _axis(values: Tensor, dim: int) -> int:
    """Returns an axis's number. Raises OnHost for a tensor without axes, and for an axis that is not there."""
    if not -values.dim() <= dim < values.dim():
        raise OnHost("of an axis that is not there")
    return dim % values.dim()


def _index_select(call: Call, values: Tensor, dim: int, index: Tensor) -> Tensor:
    axis = _axis(values, dim)
    return _take(call, values, _inside(index, values.shape[axis]).reshape(-1), axis)


def _beside(values: Tensor, index: Tensor, axis: int) -> Tensor:
    """Returns the part of values whose other axes have the index's lengths. Raises OnHost if the index is longer."""
    if index.dim() != values.dim():
        raise OnHost("of an index with other axes")
    for other, extent in enumerate(index.shape):
        if other != axis:
            if extent > values.shape[other]:
                raise OnHost("of an index longer than the tensor")
            values = values.narrow(other, 0, extent)
    return values


def _gather(call: Call, values: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    axis = _axis(values, dim)
    return _take(call, _beside(values, index, axis), _inside(index, values.shape[axis]), axis, shared=False)


def _scatter_by(
    store: Callable[[Tensor, Tensor, Tensor, int], Tensor], values: Tensor, dim: int, index: Tensor, source: Any
) -> Tensor:
    """Returns a copy of values in which `store(part, index, chosen, axis)` is the part that an index reaches. source: a tensor or a
    number; chosen: its elements, as many as the index has."""
    axis = _axis(values, dim)
    index = _inside(index, values.shape[axis])
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=values.dtype, device=values.device)
    chosen = _beside(source, index, axis).narrow(axis, 0, index.shape[axis])
    out = values.clone(memory_format=torch.contiguous_format)
    part = _beside(out, index, axis)
    part.copy_(store(part, index, chosen, axis))
    return out


def _scatter(how: str) -> Callable[..., Tensor]:
    """Returns `scatter` or `scatter_add` of a tensor or a number."""

    def scatter(call: Call, values: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
        return _scatter_by(functools.partial(_put, call, shared=False, how=how), values, dim, index, source)

    return scatter


def _unit(how: str, kind: torch.dtype) -> float | int:
    """Returns the number that changes no sum, largest or smallest element."""
    if how in ("sum", "mean"):
        return 0
    if kind.is_floating_point:
        return -math.inf if how == "amax" else math.inf
    return torch.iinfo(kind).min if how == "amax" else torch.iinfo(kind).max


def _combine(
    call: Call, target: Tensor, index: Tensor, values: Tensor, axis: int, how: str, from_target: bool, shared: bool
) -> Tensor:
    """Returns a tensor with its elements, unless not `from_target`, and those of values combined: sum, mean, amax or amin."""
    if how not in ("sum", "mean", "amax", "amin") or (how == "mean" and target.dtype not in FLOATS):
        raise OnHost("by products, or means of other types than f32 and 16 bits")
    serve(target, *_ADDED)
    serve(values, target.dtype)
    if how in ("amax", "amin"):
        if target.dtype.is_floating_point and bool(values.isnan().any() | target.isnan().any()):
            raise OnHost("of NaN")
        if not target.dtype.is_floating_point and int(values.min()) < 0:  # Triton 3.9 compares those of a wave without signs
            raise OnHost("of negative integers")
    wide = target.float() if target.dtype in FLOATS else target
    if not from_target:
        wide = _put(call, wide, index, torch.full_like(values, _unit(how, wide.dtype), dtype=wide.dtype), axis, shared=shared)
    found = _put(call, wide, index, values.to(wide.dtype), axis, shared=shared, how="sum" if how == "mean" else how)
    if how == "mean":
        ones = torch.ones_like(values, dtype=torch.int32)
        count = _put(call, torch.full_like(wide, from_target, dtype=torch.int32), index, ones, axis, shared=shared, how="sum")
        found = ELEMENTS["aten::div.Tensor"](call, found, count.clamp(min=1).to(found.dtype))
    return found.to(target.dtype)


def _scatter_reduce(
    call: Call, values: Tensor, dim: int, index: Tensor, source: Tensor, how: str, *, include_self: bool = True
) -> Tensor:
    store = functools.partial(_combine, call, how=how, from_target=include_self, shared=False)
    return _scatter_by(store, values, dim, index, source)


def _index_reduce(
    call: Call, values: Tensor, dim: int, index: Tensor, source: Tensor, how: str, *, include_self: bool = True
) -> Tensor:
    axis = _axis(values, dim)
    if list(source.shape) != [*values.shape[:axis], index.numel(), *values.shape[axis + 1 :]]:
        raise OnHost("of an operand that does not fit")
    chosen = _inside(index, values.shape[axis]).reshape(-1)
    return _combine(call, values, chosen, source, axis, how, include_self, shared=True)


def _index_add(call: Call, values: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    axis = _axis(values, dim)
    shape = [*values.shape[:axis], index.numel(), *values.shape[axis + 1 :]]
    if alpha != 1 or list(source.shape) != shape:
        raise OnHost("of a scaled operand, or one that does not fit")
    return _put(call, values, _inside(index, values.shape[axis]).reshape(-1), source, axis, how="sum")


def nonzero(call: Call, values: Tensor) -> Tensor:
    """Returns the indices (n, axes) of elements that are not 0, by a running count of them."""
    serve(values, *POINTEES)
    if not values.dim():
        raise OnHost("of a tensor without axes")
    mask = values.to(torch.bool).contiguous()
    counts = mask.new_empty(mask.numel(), dtype=torch.int32)
    call.run(sources.running, (1,), mask, counts, mask.numel(), constants=(0, BLOCK))
    out = mask.new_empty(int(counts[-1]), mask.dim(), dtype=torch.int64)
    steps = torch.tensor([list(mask.shape), list(mask.stride())], dtype=torch.int32, device="cpu")
    if len(out):
        groups = (-(-mask.numel() // BLOCK),)
        call.run(sources.places_of_nonzero, groups, mask, counts, steps, out, mask.numel(), mask.dim(), constants=(BLOCK,))
    return out


def _without_masks(call: Call, values: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Returns indices in which those of its true elements replace each mask, one for each of its axes; the host reads its own."""
    found: list[Tensor | None] = []
    for one in indices:
        if one is None or one.dtype in _INDICES:
            found.append(one)
        elif one.shape != values.shape[len(found) : len(found) + one.dim()]:
            raise OnHost("by a mask of another shape")
        else:
            found.extend((one.nonzero() if mark_of(one) == HOST else nonzero(call, one)).unbind(1))
    return found


def _one_index(call: Call, values: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor, Tensor, int, int]:
    """Returns values, whose indexed axes are together, the index into these as one, the first of them, and their number."""
    given = [(axis, one) for axis, one in enumerate(_without_masks(call, values, indices)) if one is not None]
    if not given:
        raise OnHost("without an index")
    axes = [axis for axis, _ in given]
    if axes != list(range(axes[0], axes[-1] + 1)):  # apart: they come first
        values = values.movedim(axes, list(range(len(axes))))
        axes = list(range(len(axes)))
    extents = values.shape[axes[0] : axes[-1] + 1]
    found = torch.zeros((), dtype=torch.int64, device="cpu")
    for (_, one), extent in zip(given, extents):
        wide = _inside(one, extent, -extent).to(torch.int64)
        found = found * extent + torch.where(wide < 0, wide + extent, wide)
    return values, found, axes[0], len(axes)


def _index(call: Call, values: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    moved, index, first, count = _one_index(call, values, indices)
    return _take(call, moved, index, first, count)


def _index_put(
    call: Call, values: Tensor, indices: Sequence[Tensor | None], source: Tensor, accumulate: bool = False, _unsafe: bool = False
) -> Tensor:
    moved, index, first, count = _one_index(call, values, indices)
    if moved is not values:
        raise OnHost("of axes that are apart")
    shape = (*values.shape[:first], *index.shape, *values.shape[first + count :])
    return _put(call, values, index, source.expand(shape), first, count, how="sum" if accumulate else "put")


def _masked_select(call: Call, values: Tensor, mask: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(values.shape, mask.shape)
    return _index(call, values.expand(shape), [mask.expand(shape)])


def _masked_scatter(call: Call, values: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(values.shape, mask.shape)
    places = nonzero(call, mask.expand(shape))
    if len(places) > source.numel():
        raise OnHost("of too few elements")
    return _index_put(call, values.expand(shape), places.unbind(1), source.reshape(-1)[: len(places)])


# By the operator's name in PyTorch's dispatcher.
INDEXING: dict[str, Callable[..., Any]] = {
    "aten::embedding": _embedding, "aten::embedding_dense_backward": _embedding_gradient,
    "aten::index_select": _index_select, "aten::gather": _gather,
    **{f"aten::scatter.{kind}": _scatter("put") for kind in ("src", "value")}, "aten::scatter_add": _scatter("sum"),
    "aten::index_add": _index_add, "aten::scatter_reduce.two": _scatter_reduce, "aten::index_reduce": _index_reduce,
    "aten::index.Tensor": _index, "aten::_unsafe_index.Tensor": _index,
    "aten::nonzero": nonzero, "aten::masked_select": _masked_select, "aten::masked_scatter": _masked_scatter,
    **{f"aten::{name}": _index_put for name in ("index_put", "_index_put_impl", "_unsafe_index_put")},
}  # fmt: skip
