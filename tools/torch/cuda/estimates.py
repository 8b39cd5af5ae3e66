"""Bytes of a function's result, found before the host allocates them.

Numbers and shapes give a bound. Only if it is large does the function run on the device "meta", whose tensors have no memory.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.node import map_aggregate

from simgpu.machine.host_memory import LARGE
from simgpu.tools.torch.places import storage_of, tensors_in, wraps
from simgpu.triton.tensors import plain_torch

_WIDEST = 16  # bytes of an element of complex128
# Classes of PyTorch's functions in C++, which have no effects but on their arguments; not those of a property's `__get__`.
_IN_CPP = (type(torch.matmul), type(torch.Tensor.matmul), type(torch.Tensor.__getitem__))
_nn = torch.nn.functional
# Functions whose results may be larger than all their tensors broadcast together.
_GROWING = {
    torch.outer, torch.Tensor.outer, torch.ger, torch.Tensor.ger, torch.kron, torch.Tensor.kron, torch.cdist, torch.einsum,
    torch.tensordot, torch.cartesian_prod, _nn.embedding, torch.index_select, torch.Tensor.index_select,
    torch.Tensor.repeat, torch.Tensor.tile, torch.tile, torch.repeat_interleave, torch.Tensor.repeat_interleave, _nn.one_hot,
    torch.Tensor.new_empty, torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full,
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
}  # fmt: skip


def bytes_to_make(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> int:
    """Returns the bytes of the tensor that a function will make from numbers; 0 if that is unknown or not large."""
    if func is torch.tensor or _WIDEST * _product_of_numbers((*args, *given.values())) < LARGE or given.get("out") is not None:
        return 0
    return _on_meta(func, args, {**given, "device": "meta"}, ())


def bytes_to_compute(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> int:
    """Returns the bytes of the new tensors that a function will return for tensors; 0 if that is unknown or not large."""
    values = (*args, *given.values())
    tensors = list(tensors_in(values))
    grows = func in _GROWING
    if not tensors or not (grows or isinstance(func, _IN_CPP)) or any(map(wraps, tensors)):
        return 0
    with contextlib.suppress(RuntimeError):  # tensors without sizes or strides
        if not grows and _WIDEST * math.prod(tensor.nbytes + 1 for tensor in tensors) < LARGE:
            return 0  # as most: no tensors broadcast to more than the product of all sizes
        if max(sum(tensor.nbytes for tensor in tensors), _WIDEST * _most_elements(func, tensors, values)) >= LARGE:
            named = {"device": "meta"} if given.get("device") is not None else {}
            return _on_meta(func, args, {**given, **named}, tensors)
    return 0


def _product_of_numbers(values: Sequence[Any]) -> int:
    """Product of the integers but 0 among values, and in lists among them."""
    numbers = [one for value in values for one in (value if isinstance(value, (tuple, list)) else (value,))]
    return math.prod(abs(number) for number in numbers if type(number) is int and number)


def _most_elements(func: Callable[..., Any], tensors: Sequence[torch.Tensor], values: Sequence[Any]) -> int:
    """Bound of the elements of a function's result; 0 if it is no larger than the function's only tensor."""
    if func in _GROWING:
        return math.prod(tensor.numel() for tensor in tensors) * _product_of_numbers(values)
    if len(tensors) == 1:
        return 0
    if func is _nn.linear:  # the second tensor's rows become columns
        return tensors[0].numel() * tensors[1].shape[0]
    sizes = itertools.zip_longest(*(reversed(tensor.shape) for tensor in tensors), fillvalue=1)
    return math.prod(map(max, sizes))


def _on_meta(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> int:
    """Returns the bytes of a function's new results, for these tensors among its arguments; 0 if PyTorch cannot tell."""
    found = 0
    with contextlib.suppress(RuntimeError, TypeError, ValueError, IndexError), plain_torch(), torch.no_grad():
        shapes = {id(t): torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="meta") for t in tensors}

        def without_memory(value: Any) -> Any:
            return shapes.get(id(value), value)

        options = {name: map_aggregate(value, without_memory) for name, value in given.items() if name != "generator"}
        result = func(*map_aggregate(tuple(args), without_memory), **options)
        old = [storage_of(tensor) for tensor in shapes.values()]
        new = [storage_of(tensor) for tensor in tensors_in((result,))]
        found = sum(storage.nbytes() for storage in new if storage is not None and not any(storage is one for one in old))
    return int(found)
