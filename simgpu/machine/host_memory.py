"""Host memory for what handlers read and write: zeroed, aligned, taken where it is touched."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 256  # bytes, as HIP's allocations


def aligned_bytes(nbytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """`nbytes` of zeroed host memory (uint8), aligned; the host's pages are taken where they are touched."""
    storage = np.zeros(nbytes + alignment, dtype=np.uint8)
    skip = -storage.ctypes.data % alignment
    return storage[skip : skip + nbytes]
