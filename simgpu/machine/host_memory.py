"""Host memory for what handlers read and write: zeroed, aligned, taken where it is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ALIGNMENT = 256  # bytes, as HIP's allocations


@dataclass(frozen=True, slots=True)
class Room:
    """Host memory (uint8), and its address: to ask numpy for one takes a microsecond."""

    bytes: np.ndarray
    address: int


def aligned_bytes(nbytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """`nbytes` of zeroed host memory (uint8), aligned; the host's pages are taken where they are touched."""
    storage = np.zeros(nbytes + alignment, dtype=np.uint8)
    skip = -storage.ctypes.data % alignment
    return storage[skip : skip + nbytes]


def aligned_room(nbytes: int) -> Room:
    """The same with its address."""
    found = aligned_bytes(nbytes)
    return Room(found, int(found.ctypes.data))
