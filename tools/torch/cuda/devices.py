"""Current GPU of each thread, functions that choose it, and copies to several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from simgpu.triton.driver import active_driver


def count() -> int:
    """Answers `torch.cuda.device_count`."""
    return len(active_driver().session.gpus)


def current() -> int:
    """Answers `torch.cuda.current_device`: the number of this thread's GPU."""
    return active_driver().session.current


def index_of(device: Any = None) -> int:
    """Returns a GPU's number, from a device, a string or the number; by default this thread's. Raises AssertionError if there
    is none."""
    found = _number_or_current(device)
    if not 0 <= found < count():
        raise AssertionError(f"Invalid device id: {device}, of {count()} GPU(s) of {active_driver().session.name}")
    return found


def _number(device: Any) -> int | None:
    """Returns the number that a GPU's name, device or number has, None if it has none. Raises ValueError for the CPU."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu":
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        device = device.index
    return device if isinstance(device, int) else None


def _number_or_current(device: Any) -> int:
    """Returns the number of `_number`, by default this thread's GPU."""
    found = _number(device)
    return current() if found is None else found


def choose(device: Any) -> None:
    """Answers `torch.cuda.set_device`, for this thread; a negative number chooses nothing."""
    found = _number(device)
    if found is None:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    exchange(found)


def exchange(index: int | None) -> int:
    """Chooses this thread's GPU and returns the previous one; for None or a negative number, chooses nothing and returns -1."""
    session = active_driver().session
    if index is None or index < 0:
        return -1
    if index >= count():
        raise RuntimeError(f"CUDA error: invalid device ordinal: {index}, of {count()} GPU(s) of {session.name}")
    before = session.current
    session.use(index)
    return before


def peers(device: Any, other: Any) -> bool:
    """Answers `torch.cuda.can_device_access_peer`: no, kernels reach only their own GPU's memory. AssertionError for an unknown
    device."""
    index_of(device), index_of(other)
    return False


class Guard:
    """Replaces `torch.cuda.device`: a GPU is this thread's for the block; None or a negative number changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = _number_or_current(device)
        self.prev_idx = -1

    def __enter__(self) -> Guard:
        self.prev_idx = exchange(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        exchange(self.prev_idx)


class IndexGuard(Guard):
    """Replaces `torch.accelerator.device_index`: the same; Dynamo needs two classes."""


class GuardOf(Guard):
    """Replaces `torch.cuda.device_of`: a tensor's GPU is this thread's for the block; a host tensor changes nothing."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(tensor.get_device() if tensor.is_cuda else -1)


def _device_at(index: int) -> torch.device:
    """Returns the device that `torch.cuda.comm` means by a number: a GPU, or the host for -1."""
    return torch.device("cpu") if index < 0 else torch.device("cuda", index)


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], sizes: Sequence[int] | None, dim: int, _streams: object
) -> list[torch.Tensor]:  # fmt: skip
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
    return [part.to(_device_at(index)) for part, index in zip(parts, devices)]


def _gather(tensors: Sequence[torch.Tensor], dim: int, index: int | None) -> torch.Tensor:
    return torch.cat([tensor.to(_device_at(current() if index is None else index)) for tensor in tensors], dim)


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to(_device_at(index)) for index in devices]


def _all_broadcast(tensors: Sequence[torch.Tensor], devices: Sequence[int], _buffer: int) -> list[list[torch.Tensor]]:
    return [[tensor.to(_device_at(index)) for tensor in tensors] for index in devices]


# `torch.cuda.comm` and `torch.nn.DataParallel` copy by the functions of `torch._C`, and programs call some themselves.
ANSWERS: dict[str, Any] = {
    "cuda.device_count": count, "cuda.current_device": current, "cuda.set_device": choose,
    "cuda.device": Guard, "cuda.device_of": GuardOf, "cuda._exchange_device": exchange, "cuda._maybe_exchange_device": exchange,
    "cuda.can_device_access_peer": peers,
    "_C._cuda_getDeviceCount": count, "_C._cuda_getDevice": current, "_C._cuda_setDevice": choose,
    "_C._scatter": _scatter, "_C._gather": _gather, "_C._broadcast": _broadcast, "_C._broadcast_coalesced": _all_broadcast,
    "_C._accelerator_exchangeDevice": exchange, "_C._accelerator_maybeExchangeDevice": exchange,
    "accelerator.device_count": count, "accelerator.current_device_index": current, "accelerator.current_device_idx": current,
    "accelerator.set_device_index": choose, "accelerator.set_device_idx": choose, "accelerator.device_index": IndexGuard,
}  # fmt: skip
