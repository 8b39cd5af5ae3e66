"""Allocates host memory that handlers read and write, zeroed and aligned, and asks how much is left."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ALIGNMENT = 256  # bytes, as HIP's allocations
LARGE = 1 << 28  # bytes of an allocation that is worth a look at what the host has left


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
