"""PyTorch's operators that a call used: the computing ones, with bytes, FLOPs and time at the roofline."""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from simgpu import hardware
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.tools.torch.operators import products

# Operators that make tensors without reading others, and operators that only move elements. Views are known by themselves. All
# others compute.
UNWRITTEN = frozenset("empty empty_like empty_strided new_empty new_empty_strided empty_permuted".split())
MAKES = UNWRITTEN | frozenset(
    """zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ zero_ arange scalar_tensor eye tril_indices
    triu_indices lift lift_fresh""".split()
)
MOVES = frozenset(
    """clone copy copy_ _to_copy contiguous resize_ cat stack constant_pad_nd repeat set_ detach _local_scalar_dense is_same_size
    _reshape_alias _unsafe_view""".split()
)
GATHERS = frozenset("embedding index gather index_select take".split())  # read as much as they write, not the whole table
POISON = 0xFF  # bytes of memory that nobody wrote
_MATRIX_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}


@dataclass
class ComputingOperators:
    """Operators of a block that compute.

    flops: of matrix products, convolutions and attention. other_bytes: that the other operators read and write.
    seconds: each operator a kernel, at the roofline.
    """

    calls: Counter[str] = field(default_factory=Counter)
    flops: int = 0
    other_bytes: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"calls": dict(self.calls), "flops": self.flops, "other_bytes": self.other_bytes, "seconds": self.seconds}


class WatchOperators(TorchDispatchMode):
    """Notes operators that compute, and fills memory that nobody wrote with NaN, or -1.

    traced: addresses of storages with data that a kernel wrote, directly or through operators.
    """

    def __init__(self, target: str) -> None:
        super().__init__()
        self.work = ComputingOperators()
        self.traced: set[int] = set()
        self._target = target
        self._held: list[torch.Tensor] = []  # keeps storages alive, so that no address is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        made = list(tensors_of(result))
        self._held += made
        if name in UNWRITTEN:
            poison(result)
        if name in MAKES or func.is_view:
            return result
        inputs = list(tensors_of((args, kwargs or {})))
        if any(address_of(one) in self.traced for one in inputs):
            self.traced |= {address_of(one) for one in made}
        if name not in MOVES and made:
            self._note(func, name, (args, kwargs or {}), result, inputs, made)
        return result

    @contextlib.contextmanager
    def counting_products(self) -> Iterator[None]:
        """Also notes products of 16-bit matrices, which the pretended GPU computes by a kernel of its own."""
        product = products.product

        def count(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            result = product(a, b)
            if a.dim() == 3:  # one of two axes is counted when it comes back with three
                flops = 2 * a.shape[0] * a.shape[1] * a.shape[2] * b.shape[2]
                moved = sum(one.numel() * one.element_size() for one in (a, b)) + result.numel() * a.element_size()
                self._add("mm", a.dtype, moved, flops)
                if {address_of(a), address_of(b)} & self.traced:
                    self.traced.add(address_of(result))
                self._held.append(result)
            return result

        with mock.patch.object(products, "product", count):
            yield

    def _add(self, name: str, kind: torch.dtype, moved: int, flops: int) -> None:
        """Counts a call. flops: 0 if they are not counted for this operator."""
        self.work.calls[name] += 1
        self.work.flops += flops
        self.work.other_bytes += 0 if flops else moved
        self.work.seconds += self._roofline(kind, moved, flops)

    def _note(self, func: Any, name: str, given: Any, result: Any, inputs: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        counted = func.overloadpacket in flop_registry
        flops = int(flop_registry[func.overloadpacket](*given[0], **given[1], out_val=result)) if counted else 0
        touched = [*(one for one in inputs if name not in GATHERS), *made, *(made if name in GATHERS else ())]
        moved = sum(one.numel() * one.element_size() for one in touched)
        self._add(name, made[0].dtype, moved, flops)

    def _roofline(self, kind: torch.dtype, moved: int, flops: int) -> float:
        """Returns seconds of a kernel that moves these bytes at HBM's rate, and does its FLOPs at the matrix units' peak."""
        chip = hardware.target(self._target)
        rates, name = sustained_rates(chip), _MATRIX_TYPES.get(kind, "f32")
        peak = chip.matrix_tflops(name if name in chip.dtypes() else "f32")
        return rates.launch + max(moved / rates.hbm, flops / (peak * 1e12))


def address_of(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's memory; 0 if it has none."""
    return int(tensor.untyped_storage().data_ptr())


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors among nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Returns the bytes of a tensor's storage, which are not copied."""
    storage = tensor.untyped_storage()
    return np.frombuffer((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()), np.uint8)


def poison(tensor: torch.Tensor) -> None:
    """Fills a tensor's memory with NaN, or -1."""
    if tensor.device.type == "cpu" and address_of(tensor):
        bytes_of(tensor)[:] = POISON
