"""Arrays and the bytes that a device holds of them, for the simulator and for the real GPU alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from simgpu.hardware.errors import LaunchError


def as_bytes(array: Any) -> np.ndarray:
    """The bytes of an array in C order, as a contiguous uint8 array."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.reshape(-1).view(np.uint8)


def extents_of(
    nbytes: int, dtype: DTypeLike, shape: int | Sequence[int] | None
) -> tuple[np.dtype, tuple[int, ...]]:
    """The type and shape of a download from a buffer of `nbytes`; without a shape, of all of it.

    Raises LaunchError where the buffer is smaller than that.
    """
    kind = np.dtype(dtype)
    if shape is None:
        shape = (nbytes // kind.itemsize,)
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    wanted = int(np.prod(extents, dtype=np.int64)) * kind.itemsize
    if any(extent < 0 for extent in extents) or wanted > nbytes:
        raise LaunchError(f"download of {kind} {extents} needs {wanted} bytes; the buffer has {nbytes}")
    return kind, extents
