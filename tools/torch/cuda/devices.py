"""Current GPU of each thread, and functions that choose it."""

from __future__ import annotations

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


ANSWERS: dict[str, Any] = {
    "cuda.device_count": count, "cuda.current_device": current, "cuda.set_device": choose,
    "cuda.device": Guard, "cuda.device_of": GuardOf, "cuda._exchange_device": exchange, "cuda._maybe_exchange_device": exchange,
    "cuda.can_device_access_peer": peers,
    "_C._cuda_getDevice": current, "_C._cuda_setDevice": exchange,
    "_C._accelerator_exchangeDevice": exchange, "_C._accelerator_maybeExchangeDevice": exchange,
    "accelerator.device_count": count, "accelerator.current_device_index": current, "accelerator.current_device_idx": current,
    "accelerator.set_device_index": choose, "accelerator.set_device_idx": choose, "accelerator.device_index": IndexGuard,
}  # fmt: skip
