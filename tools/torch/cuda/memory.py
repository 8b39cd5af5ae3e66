"""Memory of the pretended GPUs' tensors, as PyTorch's caching allocator counts it.

A storage counts from its mark as the GPU's until it is freed. Gradients that only PyTorch's C++ has seen are not marked; they
count once a program looks at them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from simgpu.tools.torch.cuda.devices import index_of
from simgpu.triton.driver import active_driver

BLOCK = 512  # bytes: c10/cuda/CUDACachingAllocator.cpp rounds a request up to it (kMinBlockSize)
SEGMENT = 2 << 20  # least bytes of its requests to the driver (kSmallBuffer)


class MemoryUse:
    """Bytes in use, and their peak."""

    def __init__(self) -> None:
        self.current = self.peak = self.blocks = 0
        self._lock = threading.RLock()  # a storage may be freed while another is counted

    def add(self, size: int) -> None:
        """Counts an allocated block, or a freed one with a negative size."""
        with self._lock:
            self.current += size
            self.blocks += 1 if size > 0 else -1
            self.peak = max(self.peak, self.current)

    def reset(self) -> None:
        """Resets the peak."""
        self.peak = self.current


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
        self._size = -(-size // BLOCK) * BLOCK
        self._total = total(index)
        if self._size:
            self._total.add(self._size)

    def __del__(self) -> None:
        if self._size:
            self._total.add(-self._size)


def _stats(device: object = None) -> dict[str, int]:
    found: dict[str, int] = {}
    of = _counted_of(device)
    for pool in ("all", "small_pool", "large_pool"):
        counted = pool == "all"
        for name, now, peak in (
            ("allocated_bytes", of.current, of.peak), ("active_bytes", of.current, of.peak),
            ("reserved_bytes", of.reserved_bytes, of.reserved_bytes), ("allocation", of.blocks, of.blocks),
        ):  # fmt: skip
            found |= {f"{name}.{pool}.current": now * counted, f"{name}.{pool}.peak": peak * counted}
    return found | {"num_alloc_retries": 0, "num_ooms": 0}


def free_and_all(device: object = None) -> tuple[int, int]:
    """Answers `torch.cuda.mem_get_info`: free bytes and all bytes of a GPU."""
    size = active_driver().session.gpu.descriptor.hbm_bytes
    return max(size - _counted_of(device).reserved_bytes, 0), size


def _summary(device: object = None, **_options: object) -> str:
    of = _counted_of(device)
    lines = (("allocated", of.current), ("peak of allocated", of.peak), ("reserved", of.reserved_bytes))
    return "\n".join(f"{name:>18}: {size:,} bytes" for name, size in lines)


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
    "reset_accumulated_memory_stats": _device_function(lambda of: None),
    "empty_cache": lambda: None,
    "get_allocator_backend": lambda: "native",
    "get_per_process_memory_fraction": lambda _device=None: 1.0,
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
    "cuda.memory._dump_snapshot": lambda *_args, **_options: None,
}
