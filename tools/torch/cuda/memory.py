"""How much memory the pretended GPU's tensors take, as PyTorch's caching allocator counts it.

A storage is counted from when it is marked as the GPU's until it is gone; gradients that only PyTorch's C++ has seen are not
marked, and are counted once a program looks at them.
"""

from __future__ import annotations

import threading
from typing import Any

from simgpu.triton.driver import active_driver

BLOCK = 512  # bytes: what c10/cuda/CUDACachingAllocator.cpp rounds a request up to (kMinBlockSize)
SEGMENT = 2 << 20  # and what it asks the driver for at least (kSmallBuffer)


class Counted:
    """Bytes that are in use, and the most that were."""

    def __init__(self) -> None:
        self.current = self.peak = self.blocks = 0
        self._lock = threading.RLock()  # a storage may go while another is counted

    def add(self, size: int) -> None:
        """Counts a block that is allocated, or one of negative size that is freed."""
        with self._lock:
            self.current += size
            self.blocks += 1 if size > 0 else -1
            self.peak = max(self.peak, self.current)

    def reset(self) -> None:
        """The peak begins anew."""
        self.peak = self.current


TOTAL = Counted()


class Block:
    """A storage's part in the count, which lives as long as it."""

    def __init__(self, size: int) -> None:
        self._size = -(-size // BLOCK) * BLOCK
        if self._size:
            TOTAL.add(self._size)

    def __del__(self) -> None:
        if self._size:
            TOTAL.add(-self._size)


def _reserved() -> int:
    """The segments that hold the peak."""
    return -(-TOTAL.peak // SEGMENT) * SEGMENT


def _stats(_device: object = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for pool in ("all", "small_pool", "large_pool"):
        counted = pool == "all"
        for name, now, peak in (
            ("allocated_bytes", TOTAL.current, TOTAL.peak), ("active_bytes", TOTAL.current, TOTAL.peak),
            ("reserved_bytes", _reserved(), _reserved()), ("allocation", TOTAL.blocks, TOTAL.blocks),
        ):  # fmt: skip
            found |= {f"{name}.{pool}.current": now * counted, f"{name}.{pool}.peak": peak * counted}
    return found | {"num_alloc_retries": 0, "num_ooms": 0}


def _free_and_all(_device: object = None) -> tuple[int, int]:
    size = active_driver().session.gpu.descriptor.hbm_bytes
    return max(size - _reserved(), 0), size


def _summary(_device: object = None, **_options: object) -> str:
    lines = (("allocated", TOTAL.current), ("peak of allocated", TOTAL.peak), ("reserved", _reserved()))
    return "\n".join(f"{name:>18}: {size:,} bytes" for name, size in lines)


_BY_NAME: dict[str, Any] = {
    "memory_allocated": lambda _device=None: TOTAL.current,
    "max_memory_allocated": lambda _device=None: TOTAL.peak,
    "memory_reserved": lambda _device=None: _reserved(),
    "max_memory_reserved": lambda _device=None: _reserved(),
    "memory_cached": lambda _device=None: _reserved(),
    "reset_peak_memory_stats": lambda _device=None: TOTAL.reset(),
    "reset_max_memory_allocated": lambda _device=None: TOTAL.reset(),
    "reset_accumulated_memory_stats": lambda _device=None: None,
    "empty_cache": lambda: None,
    "memory_stats": _stats,
    "mem_get_info": _free_and_all,
    "memory_summary": _summary,
}
# `torch.accelerator` says less.
_OF_ACCELERATOR = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats",
    "reset_accumulated_memory_stats", "empty_cache", "memory_stats")  # fmt: skip
ANSWERS: dict[str, Any] = {
    **{f"{module}.{name}": answer for name, answer in _BY_NAME.items() for module in ("cuda", "cuda.memory")},
    **{f"accelerator.{name}": _BY_NAME[name] for name in _OF_ACCELERATOR},
}
