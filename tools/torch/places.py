"""Where a tensor lies: on the pretended GPU, in host memory, or in pinned host memory.

All of it is host memory. The place is a mark on the tensor's storage, which its views share, and PyTorch keeps the mark as
long as the storage lives. Storages without a mark, as PyTorch's own C++ makes them for gradients, count as the GPU's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from simgpu.tools.torch.cuda.memory import Block
from simgpu.triton.tensors import GPU, HOST, MARK, PINNED

__all__ = ["GPU", "HERE", "HOST", "MARK", "PINNED", "Place"]

Place = str
_COUNTED = "_simgpu_block"
HERE = torch.device("cuda", 0)  # what tensors on the GPU say of their device


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """A tensor's storage; None of those without one."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, functional or fake tensors
        return None


def marked_storage(storage: Any) -> Place | None:
    """The place that a storage is marked with."""
    return getattr(storage, MARK, None)


def marked(tensor: torch.Tensor) -> Place | None:
    """The place that a tensor's storage is marked with."""
    return marked_storage(_storage(tensor))


def place_of(tensor: torch.Tensor) -> Place:
    """Where a tensor lies."""
    return marked(tensor) or GPU


def mark_storage(storage: torch.UntypedStorage, place: Place) -> torch.UntypedStorage:
    """The storage, marked, and counted where it is the GPU's."""
    setattr(storage, MARK, place)
    counts = place == GPU and storage.device.type == "cpu"  # not what PyTorch's tracers have in place of memory
    setattr(storage, _COUNTED, Block(storage.nbytes()) if counts else None)
    return storage


def mark(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    """The tensor, its storage marked."""
    storage = _storage(tensor)
    if storage is not None and marked_storage(storage) != place:
        mark_storage(storage, place)
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
