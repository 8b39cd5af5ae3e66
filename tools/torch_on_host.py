"""PyTorch's GPU devices as the CPU, for test suites that ask for "cuda" or "hip"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GPU = ("cuda", "hip")


def on_host(value: Any) -> Any:
    """A device, or a string that names one, on the CPU; anything else as it is."""
    if isinstance(value, str) and value.partition(":")[0] in _GPU:
        return "cpu"
    if isinstance(value, torch.device) and value.type in _GPU:
        return torch.device("cpu")
    return value


class CudaOnHost(TorchFunctionMode):
    """Tensors that are made on, or moved to, a GPU stay on the CPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*(on_host(arg) for arg in args), **{name: on_host(arg) for name, arg in (kwargs or {}).items()})


def pretend(patch: Any, session: Any) -> None:
    """What suites ask of `torch.cuda` before they run, answered for the simulated device (patch: pytest's MonkeyPatch)."""
    arch = session.gpu.arch
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _device: None,
        "synchronize": lambda _device=None: None,
        "get_device_name": lambda _device=None: f"simgpu {session.name}",
        "get_device_capability": lambda _device=None: (int(arch[3]), int(arch[4], 16)),
    }
    for name, answer in answers.items():
        patch.setattr(torch.cuda, name, answer)
