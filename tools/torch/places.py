"""Where a tensor lies: on the pretended GPU, in host memory, or in pinned host memory.

All of it is host memory. The place is a mark on the tensor's storage, which its views share, and PyTorch keeps the mark as
long as the storage lives. Storages without a mark, as PyTorch's own C++ makes them for gradients, count as the GPU's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from simgpu.triton.tensors import GPU, HOST, MARK, PINNED

__all__ = ["GPU", "HERE", "HOST", "MARK", "PINNED", "Place"]

Place = str
HERE = torch.device("cuda", 0)  # what tensors on the GPU say of their device


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """A tensor's storage; None of those without one."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, functional or fake tensors
        return None


def marked(tensor: torch.Tensor) -> Place | None:
    """The place that a tensor's storage is marked with."""
    return getattr(_storage(tensor), MARK, None)


def place_of(tensor: torch.Tensor) -> Place:
    """Where a tensor lies."""
    return marked(tensor) or GPU


def mark(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    """The tensor, its storage marked."""
    storage = _storage(tensor)
    if storage is not None:
        setattr(storage, MARK, place)
    return tensor


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in tuples, lists and dictionaries among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
