"""Allocates host memory that handlers read and write: zeroed and aligned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ALIGNMENT = 256  # bytes, as HIP's allocations


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
