"""PyTorch's storages at the places of their tensors: made by a program, in files, and sent to other processes."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from simgpu.tools.torch.on_host import gpu_named, is_pretended
from simgpu.tools.torch.places import GPU, HOST, Place, device_at, mark_storage, marked_storage, on_gpu
from simgpu.triton.tensors import plain_torch

_new, _true_device = torch.UntypedStorage.__new__, torch.UntypedStorage.device.__get__
_cloned = torch.UntypedStorage.clone  # all three are PyTorch's own


def _make(cls: type, *args: Any, device: Any = None, **options: Any) -> Any:
    """Replaces `torch.UntypedStorage.__new__`: marks the storage with the requested device."""
    place = gpu_named(device)
    made = _new(cls, *args, device="cpu" if place else device, **options)
    return made if not is_pretended() or _true_device(made).type != "cpu" else mark_storage(made, place or HOST)


def _device(storage: torch.UntypedStorage) -> torch.device:
    """Device that a storage reports: its mark's, where PyTorch's functions see the pretended GPU."""
    truth: torch.device = _true_device(storage)
    place = marked_storage(storage) or GPU
    return device_at(place) if truth.type == "cpu" and on_gpu(place) and is_pretended() else truth


def _clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Replaces `torch.UntypedStorage.clone`: a copy, as `copy.deepcopy` of a tensor makes, is where the original is."""
    copy, place = _cloned(storage), marked_storage(storage)
    return copy if place is None else mark_storage(copy, place)


def _in_use() -> bool:
    """True if this process has the pretended GPU."""
    return torch.UntypedStorage.__new__ is _make


def _place_tag(storage: Any) -> str | None:
    """Place of a storage, as `torch.save` notes it."""
    place = marked_storage(storage) if _in_use() else None
    return str(device_at(place)) if place is not None and on_gpu(place) else None


def _restore(storage: Any, location: str) -> Any:
    """Marks a file's storage with the place that it was saved from or is loaded to; None for an unknown place, and without the
    pretended GPU."""
    if not _in_use():
        return None
    place = gpu_named(location) or (HOST if location.partition(":")[0] == "cpu" else None)
    return None if place is None else mark_storage(storage, place)


def _send(tensor: torch.Tensor) -> Any:
    """Replaces `reduce_tensor`, by which a tensor is sent to another process: in host memory, as all tensors are."""
    with plain_torch():
        return reductions.reduce_tensor(tensor)


def _send_storage(storage: torch.UntypedStorage) -> Any:
    """Replaces `reduce_storage`: another process gets the mark, too."""
    with plain_torch():
        return _receive_storage, (marked_storage(storage), *reductions.reduce_storage(storage))


def _receive_storage(place: Place | None, rebuild: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Returns the storage that another process sent."""
    storage = rebuild(*args)
    return mark_storage(storage, place) if place is not None and _in_use() else storage


torch.serialization.register_package(0, _place_tag, _restore)  # ahead of PyTorch's own devices
for _kind in (torch.Tensor, torch.nn.Parameter):
    ForkingPickler.register(_kind, _send)
ForkingPickler.register(torch.UntypedStorage, _send_storage)

# Attributes of `torch.UntypedStorage`.
ANSWERS: dict[str, Any] = {"__new__": _make, "device": property(_device), "clone": _clone}
