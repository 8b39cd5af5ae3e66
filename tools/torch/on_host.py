"""PyTorch's GPU as the CPU, for test suites that ask for "cuda" or "hip".

Tensors that are made on a GPU or moved to one stay where simulated kernels find them, in host memory, and all of them say that
they are on "cuda:0". What `torch.cuda` is asked is answered for the simulated device in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._device as default_device
from torch.overrides import TorchFunctionMode

from simgpu.tools.torch import cuda
from simgpu.triton.driver import SimDriver

_GPU = ("cuda", "hip")
HERE = torch.device("cuda", 0)
_CPU = torch.device("cpu")


def on_host(value: Any) -> Any:
    """A device, or a string that names one, on the CPU; anything else as it is."""
    if isinstance(value, str) and value.partition(":")[0] in _GPU:
        return "cpu"
    if isinstance(value, torch.device) and value.type in _GPU:
        return _CPU
    return value


def _shown(device: torch.device) -> torch.device:
    return HERE if device == _CPU else device


# What a tensor says of its place, from the truth.
_ANSWERS: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.device.__get__: _shown,
    torch.Tensor.is_cuda.__get__: lambda _truth: True,
    torch.Tensor.is_cpu.__get__: lambda _truth: False,
    torch.Tensor.get_device: lambda _truth: HERE.index,
}
_SAME = (torch.Tensor.cuda, torch.Tensor.pin_memory)  # the tensor itself


class CudaOnHost(TorchFunctionMode):
    """Tensors that are made on, or moved to, a GPU stay on the CPU and say otherwise."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        given = {name: on_host(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if func in _SAME:
            return args[0]
        if func in _ANSWERS:
            return _ANSWERS[func](func(*args, **given))
        positions = [on_host(arg) for arg in args]
        if type(given.get("device")) is int:
            given["device"] = _CPU
        if func is torch.Tensor.to and len(positions) > 1 and type(positions[1]) is int:
            positions[1] = _CPU
        if func in default_device._device_constructors() and given.get("device") is None and _default_is_gpu():
            given["device"] = _CPU
        return func(*positions, **given)


def _default_is_gpu() -> bool:
    """Whether `torch.set_default_device` or `with torch.device(...)` chose a GPU."""
    chosen = default_device.CURRENT_DEVICE
    return chosen is not None and chosen.type in _GPU


class _Generators(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch._C.Generator)


class HostGenerator(torch._C.Generator, metaclass=_Generators):
    """`torch.Generator`, on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(_CPU if type(device) is int else on_host(device))


_load = torch.load


def _load_on_host(source: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
    """`torch.load`, to the CPU where a GPU is asked for or was saved from."""
    place = "cpu" if map_location is None else on_host(map_location)
    return _load(source, place, *args, **options)


def pretend(patch: Any) -> None:
    """PyTorch has one GPU, the simulated one in use, until the patch (pytest's MonkeyPatch) is undone."""
    for name, answer in cuda.ANSWERS.items():
        module, _, attribute = name.rpartition(".")
        patch.setattr(f"torch.{module}.{attribute}" if module else f"torch.{attribute}", answer)
    patch.setattr(torch, "Generator", HostGenerator)
    patch.setattr(torch, "load", _load_on_host)
    patch.setattr(SimDriver, "get_active_torch_device", lambda _driver: HERE)
