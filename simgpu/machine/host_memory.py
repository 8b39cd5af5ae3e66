"""Allocates host memory that handlers read and write, zeroed and aligned, and asks how much is left."""

from __future__ import annotations

import contextlib
import math
import mmap
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ALIGNMENT = 256  # bytes, as HIP's allocations
LARGE = 1 << 28  # bytes of an allocation that is worth a look at what the host has left
# Flag of mappings that may be larger than what the host has left. Python names it since 3.13; the number is Linux's
# (include/uapi/asm-generic/mman.h).
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


@dataclass(frozen=True, slots=True)
class Room:
    """Host memory (uint8), and its address: getting that from numpy takes a microsecond."""

    bytes: np.ndarray
    address: int


def aligned_bytes(nbytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """Returns `nbytes` of zeroed host memory (uint8), aligned; the host allocates a page when it is first touched."""
    storage = np.zeros(nbytes + alignment, dtype=np.uint8)
    skip = -storage.ctypes.data % alignment
    return storage[skip : skip + nbytes]


def aligned_room(nbytes: int) -> Room:
    """Returns aligned memory with its address."""
    found = aligned_bytes(nbytes)
    return Room(found, int(found.ctypes.data))


def free_bytes() -> float:
    """Returns the bytes that the host could give a process; infinity on systems without Linux's /proc."""
    with contextlib.suppress(OSError):
        if found := re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text()):
            return 1024 * int(found[1])
    return math.inf
