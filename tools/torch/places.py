"""Places of tensors: one of the pretended GPUs, host memory, or pinned host memory.

All of them are host memory. The place is a mark on the tensor's storage, which its views share; PyTorch keeps the mark as long
as the storage lives. A storage without a mark, as PyTorch's C++ makes for gradients, counts as a GPU's: the current one, if
there are several.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.func import debug_unwrap

from simgpu.tools.torch.cuda.memory import CountedStorage
from simgpu.triton.driver import active_driver
from simgpu.triton.tensors import GPU, HOST, MARK, PINNED, plain_torch

__all__ = ["GPU", "HOST", "MARK", "PINNED", "Place"]

Place = str  # HOST, PINNED, a GPU by its number such as "cuda:1", or GPU for any of them
_COUNTED = "_simgpu_block"
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def on_gpu(place: Place | None) -> bool:
    """True if a place is a GPU's memory."""
    return place is not None and place.startswith(GPU)


def gpu(index: int) -> Place:
    """Returns the memory of the GPU of this number."""
    return f"{GPU}:{index}"


def current_place() -> Place:
    """Returns the memory of this thread's GPU."""
    return gpu(active_driver().session.current)


def has_several_gpus() -> bool:
    """True if there is more than one GPU."""
    return len(active_driver().session.gpus) > 1


@functools.cache
def _device_of(place: Place) -> torch.device:
    return torch.device(place)


def device_at(place: Place) -> torch.device:
    """Device that tensors at a GPU's place report."""
    return _device_of(current_place() if place == GPU else place)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Returns a tensor's storage, for a sparse one its values' storage, within a transform of `torch.func` that of the tensor
    below; None for tensors without one."""
    try:
        return tensor.untyped_storage()
    except ValueError:  # a lazy module's parameter, before it has a shape
        with plain_torch():
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, functional, fake or transformed tensors
        if (below := debug_unwrap(tensor)) is not tensor:
            return storage_of(below)
        if tensor.layout is torch.sparse_coo:
            return storage_of(tensor._values())
        return storage_of(tensor.values()) if tensor.layout in _COMPRESSED else None


def marked_storage(storage: Any) -> Place | None:
    """Place that a storage is marked with."""
    return getattr(storage, MARK, None)


def mark_of(tensor: torch.Tensor) -> Place | None:
    """Place that a tensor's storage is marked with; for a tracer's tensor, its own."""
    if isinstance(tensor, FunctionalTensor):
        return mark_of(tensor.from_functional())
    if isinstance(tensor, FakeTensor):
        return HOST if tensor.fake_device.type == "cpu" else str(tensor.fake_device)
    return marked_storage(storage_of(tensor))


def place_of(tensor: torch.Tensor) -> Place:
    """Place of a tensor."""
    return mark_of(tensor) or GPU


def common(values: Iterable[Any]) -> Place:
    """Place of a function's result: the GPU of the first argument that is on one."""
    places = [place for place in map(place_of, tensors_in(values)) if on_gpu(place)]
    return next((place for place in places if place != GPU), current_place()) if places else HOST


def has_memory(storage: torch.UntypedStorage) -> bool:
    """False for the substitutes that PyTorch's tracers have for a storage."""
    try:
        return storage.data_ptr() != 0
    except RuntimeError:  # an invalid one
        return False


def mark_storage(storage: torch.UntypedStorage, place: Place) -> torch.UntypedStorage:
    """Marks a storage and returns it; counts it if it is a GPU's, whose number is in the place."""
    setattr(storage, MARK, place)
    counts = on_gpu(place) and has_memory(storage)
    setattr(storage, _COUNTED, CountedStorage(storage.nbytes(), device_at(place).index) if counts else None)
    return storage


def mark(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    """Marks a tensor's storage and returns the tensor; a tracer's tensor knows its own place."""
    storage = None if isinstance(tensor, FakeTensor) else storage_of(tensor)
    if storage is not None and marked_storage(storage) != place:
        mark_storage(storage, place)
    return tensor


def mark_new(values: Iterable[Any], place: Place) -> None:
    """Marks the tensors among values that have no mark."""
    for tensor in tensors_in(values):
        if mark_of(tensor) is None:
            mark(tensor, place)


def wraps(tensor: torch.Tensor) -> bool:
    """True for a tensor of a class that computes its operators itself, on tensors that it holds."""
    kind = type(tensor)
    return kind is not torch.Tensor and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yields the tensors among values, and in tuples, lists and dictionaries among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
