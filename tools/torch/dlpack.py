"""Places of tensors that travel by DLPack: through objects with `__dlpack__`, and through capsules.

A capsule that PyTorch makes here has the place as its context, a pointer that DLPack leaves free. One without is another
library's, in host memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from simgpu.tools.torch.places import GPU, HOST, PINNED, Place, current_place, device_at, gpu, mark, on_gpu, place_of

_from_dlpack, _to_dlpack = torch.from_dlpack, torch.utils.dlpack.to_dlpack  # PyTorch's own
_PLACES = (HOST, PINNED)  # a capsule's context is the place's number here plus 1, or for GPUs what follows
_GPUS = (DLDeviceType.kDLROCM, 2)  # the other is kDLCUDA in dlpack.h; older releases of PyTorch name it otherwise
_set_context, _get_context = ctypes.pythonapi.PyCapsule_SetContext, ctypes.pythonapi.PyCapsule_GetContext
_set_context.argtypes, _set_context.restype = (ctypes.py_object, ctypes.c_void_p), ctypes.c_int
_get_context.argtypes, _get_context.restype = (ctypes.py_object,), ctypes.c_void_p


def _tag(capsule: Any, place: Place) -> Any:
    """Notes its tensor's place in a capsule, and returns it."""
    known = device_at(place).index + len(_PLACES) if on_gpu(place) else _PLACES.index(place)
    _set_context(capsule, known + 1)
    return capsule


def _place_of_capsule(capsule: Any) -> Place:
    known = (_get_context(capsule) or 1) - 1
    return _PLACES[known] if known < len(_PLACES) else gpu(known - len(_PLACES))


def capsule_of(tensor: torch.Tensor, stream: Any = None, *, dl_device: Any = None, **options: Any) -> Any:
    """Replaces `Tensor.__dlpack__`. stream: of a GPU, which has nothing to wait for. dl_device: the CPU, for a copy there."""
    place = place_of(tensor)
    if on_gpu(place) and dl_device is not None and dl_device[0] == DLDeviceType.kDLCPU:
        if options.pop("copy", None) is False:
            raise BufferError("a tensor of a GPU reaches the CPU by a copy only: leave out copy=False")
        return _tag(tensor.clone().__dlpack__(**options), HOST)
    stream = None if on_gpu(place) else stream
    asked = {} if on_gpu(place) or dl_device is None else {"dl_device": dl_device}
    return _tag(tensor.__dlpack__(stream=stream, **asked, **options), place)


def device_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """Replaces `Tensor.__dlpack_device__`: ROCm's device for a GPU's tensor."""
    place = place_of(tensor)
    return (DLDeviceType.kDLROCM, device_at(place).index) if on_gpu(place) else tensor.__dlpack_device__()


def _send(tensor: torch.Tensor, **options: Any) -> Any:
    """Replaces `torch.utils.dlpack.to_dlpack`."""
    return _tag(_to_dlpack(tensor, **options), place_of(tensor))


def _receive(source: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
    """Replaces `torch.from_dlpack`: the tensor is where its source is, or on the requested device."""
    if not hasattr(source, "__dlpack__"):
        made, place = _from_dlpack(source, **options), _place_of_capsule(source)
    elif isinstance(source, torch.Tensor):
        made, place = _from_dlpack(source, **options), place_of(source)
    elif (there := source.__dlpack_device__())[0] in _GPUS:
        made, place = _from_dlpack(source.__dlpack__(**options)), gpu(there[1])
    else:
        made, place = _from_dlpack(source, **options), HOST
    mark(made, current_place() if place == GPU else place)
    return made if device is None else made.to(device)


# (owner, name, replacement)
REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = tuple(
    (owner, name, answer)
    for owner in (torch, torch.utils.dlpack) for name, answer in (("from_dlpack", _receive), ("to_dlpack", _send))
)
