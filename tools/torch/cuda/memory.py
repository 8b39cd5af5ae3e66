"""Memory of the pretended GPUs' tensors, as PyTorch's caching allocator counts it.

A storage counts from its mark as the GPU's until it is freed. Gradients that only PyTorch's C++ has seen are not marked; they
count once a program looks at them.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import Any

import torch

from simgpu.machine.host_memory import LARGE, free_bytes
from simgpu.tools.torch.cuda.devices import index_of
from simgpu.triton.driver import active_driver

BLOCK = 512  # bytes: c10/cuda/CUDACachingAllocator.cpp rounds a request up to it (kMinBlockSize)
_REFUSED = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")  # by the host's allocator
SEGMENT = 2 << 20  # least bytes of its requests to the driver (kSmallBuffer)


class MemoryUse:
    """Bytes and blocks in use, their peaks, and the sums of all allocated ones; fraction: part of the GPU that may be in use."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = 0
        self.blocks = self.most_blocks = self.all_blocks = 0
        self.fraction = 1.0
        self._lock = threading.RLock()  # a storage may be freed while another is counted

    def add(self, size: int) -> None:
        """Counts an allocated block, or a freed one with a negative size."""
        with self._lock:
            self.current += size
            self.blocks += 1 if size > 0 else -1
            self.allocated, self.all_blocks = self.allocated + max(size, 0), self.all_blocks + (size > 0)
            self.peak, self.most_blocks = max(self.peak, self.current), max(self.most_blocks, self.blocks)

    def reset(self) -> None:
        """Resets the peaks."""
        self.peak, self.most_blocks = self.current, self.blocks

    def forget(self) -> None:
        """Resets the sums of all allocated bytes and blocks."""
        self.allocated, self.all_blocks = self.current, self.blocks

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the segments that hold the peak."""
        return -(-self.peak // SEGMENT) * SEGMENT


@functools.cache
def total(index: int) -> MemoryUse:
    """Returns the count of the GPU of this number; it lives as long as the process."""
    return MemoryUse()


def _counted_of(device: object) -> MemoryUse:
    """Returns a GPU's count; by default this thread's."""
    return total(index_of(device))


class CountedStorage:
    """A storage's part in the count; it lives as long as the storage."""

    def __init__(self, size: int, index: int) -> None:
        self._size = 0  # until it is counted
        self._total = total(index)
        if rounded := _whole_blocks(size):
            _check_gpu(size, index)
            self._total.add(rounded)
            self._size = rounded

    def __del__(self) -> None:
        if self._size:
            self._total.add(-self._size)


def _capacity() -> int:
    """Returns the bytes of a GPU's memory."""
    return active_driver().session.gpu.descriptor.hbm_bytes


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _check_gpu(size: int, index: int) -> None:
    """Raises torch.OutOfMemoryError if a GPU cannot hold this number of further bytes."""
    of = total(index)
    if of.current + _whole_blocks(size) > of.fraction * _capacity():
        raise out_of_memory(size, index)


def check_room(size: int, index: int) -> None:
    """Raises torch.OutOfMemoryError if a GPU, or the host, has no memory for an allocation: the host would end the process."""
    if size >= LARGE:
        _check_gpu(size, index)
        if size > free_bytes():
            raise out_of_memory(size, index)


def out_of_memory(size: int, index: int) -> torch.OutOfMemoryError:
    """Returns PyTorch's error for an allocation of this size on the GPU of this number."""
    of, gib = total(index), 1 << 30
    return torch.OutOfMemoryError(
        f"HIP out of memory. Tried to allocate {size / gib:.2f} GiB. GPU {index} has a total capacity of "
        f"{_capacity() / gib:.2f} GiB of which {(_capacity() - of.current) / gib:.2f} GiB is free. "
        "simgpu keeps it in the host's memory."
    )


def shortage(error: RuntimeError, index: int) -> torch.OutOfMemoryError | None:
    """Returns PyTorch's error for a GPU without memory if the host had none for a tensor; None for any other error."""
    asked = _REFUSED.search(str(error))
    return out_of_memory(int(asked[1]), index) if asked else None


# Of PyTorch's statistics ("memory_stats" in its documentation): each is, in three pools, current, peak, allocated and freed.
def _stats(device: object = None) -> dict[str, int]:
    of = _counted_of(device)
    used, blocks = (of.current, of.peak, of.allocated), (of.blocks, of.most_blocks, of.all_blocks)
    reserved, segments = (of.reserved_bytes,) * 3, (of.reserved_bytes // SEGMENT,) * 3
    found: dict[str, int] = {}
    for pool in ("all", "small_pool", "large_pool"):
        for name, (now, most, ever) in (
            ("allocated_bytes", used), ("active_bytes", used), ("requested_bytes", used), ("reserved_bytes", reserved),
            ("allocation", blocks), ("active", blocks), ("segment", segments),
            ("inactive_split", (0, 0, 0)), ("inactive_split_bytes", (0, 0, 0)),
        ):  # fmt: skip
            values = {"current": now, "peak": most, "allocated": ever, "freed": ever - now}
            found |= {f"{name}.{pool}.{kind}": value * (pool == "all") for kind, value in values.items()}
    return found | {"num_alloc_retries": 0, "num_ooms": 0}


def free_and_all(device: object = None) -> tuple[int, int]:
    """Answers `torch.cuda.mem_get_info`: free bytes and all bytes of a GPU."""
    return max(_capacity() - _counted_of(device).reserved_bytes, 0), _capacity()


def _summary(device: object = None, **_options: object) -> str:
    of = _counted_of(device)
    lines = (("allocated", of.current), ("peak of allocated", of.peak), ("reserved", of.reserved_bytes))
    return "\n".join(f"{name:>18}: {size:,} bytes" for name, size in lines)


def _allow(fraction: float, device: object = None) -> None:
    """Answers `torch.cuda.set_per_process_memory_fraction`. Raises TypeError or ValueError for anything but 0.0 to 1.0."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _counted_of(device).fraction = fraction


def _device_function(answer: Callable[[MemoryUse], Any]) -> Callable[..., Any]:
    """Turns a function of a GPU's count into a function of the device."""
    return lambda device=None: answer(_counted_of(device))


_BY_NAME: dict[str, Any] = {
    "memory_allocated": _device_function(lambda of: of.current),
    "max_memory_allocated": _device_function(lambda of: of.peak),
    **{
        name: _device_function(lambda of: of.reserved_bytes) for name in ("memory_reserved", "max_memory_reserved", "memory_cached")
    },
    **{name: _device_function(lambda of: of.reset()) for name in ("reset_peak_memory_stats", "reset_max_memory_allocated")},
    "reset_accumulated_memory_stats": _device_function(lambda of: of.forget()),
    "empty_cache": lambda: None,
    "get_allocator_backend": lambda: "native",
    "set_per_process_memory_fraction": _allow,
    "get_per_process_memory_fraction": _device_function(lambda of: of.fraction),
    "memory_stats": _stats,
    "mem_get_info": free_and_all,
    "memory_summary": _summary,
    "memory_snapshot": lambda *_args, **_options: [],  # no segments: the host's allocator reports none
}
# `torch.accelerator` has fewer functions.
_OF_ACCELERATOR = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats",
    "reset_accumulated_memory_stats", "empty_cache", "memory_stats")  # fmt: skip
# Statistics of an allocator of pinned memory, which does not exist here.
_OF_PINNED = ("host_memory_stats", "host_memory_stats_as_nested_dict", "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats")  # fmt: skip
ANSWERS: dict[str, Any] = {
    **{f"{module}.{name}": answer for name, answer in _BY_NAME.items() for module in ("cuda", "cuda.memory")},
    **{f"accelerator.{name}": _BY_NAME[name] for name in _OF_ACCELERATOR},
    "accelerator.get_memory_info": lambda device=None: free_and_all(device),
    "accelerator.empty_host_cache": lambda: None,  # of pinned memory
    **{f"{module}.{name}": lambda: {} for name in _OF_PINNED for module in ("cuda", "cuda.memory")},
    "cuda.memory._snapshot": lambda *_args, **_options: {"segments": [], "device_traces": []},
}
