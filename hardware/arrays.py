"""Conversion between arrays and bytes of a device's buffers, for the simulator and for the real GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from simgpu.hardware.errors import LaunchError


def as_bytes(array: Any) -> np.ndarray:
    """Returns the bytes of an array in C order, as a contiguous uint8 array."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class ArrayForm:
    """Type and shape of the array for which a buffer was allocated."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, shape: int | Sequence[int], dtype: DTypeLike) -> ArrayForm:
        """Returns the form of a shape (an int for one dimension) and a dtype. LaunchError for a negative extent."""
        extents = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in extents):
            raise LaunchError(f"an array of shape {extents}: no extent may be negative")
        return cls(np.dtype(dtype), extents)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'}"


def extents_of(
    nbytes: int, form: ArrayForm | None, dtype: DTypeLike | None, shape: int | Sequence[int] | None
) -> tuple[np.dtype, tuple[int, ...]]:
    """Returns the type and shape of a download from a buffer of `nbytes`.

    Without a dtype, they are the form's (with `shape`, only the type is). With a dtype and no shape, the array has all of the
    buffer. LaunchError if the buffer is too small, or if neither dtype nor form is given.
    """
    if dtype is None:
        if form is None:
            raise LaunchError(f"a buffer of {nbytes} bytes without a type: give download a dtype, or make it by empty or upload")
        dtype, shape = form.dtype, form.shape if shape is None else shape
    kind = np.dtype(dtype)
    if shape is None:
        shape = (nbytes // kind.itemsize,)
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    wanted = int(np.prod(extents, dtype=np.int64)) * kind.itemsize
    if any(extent < 0 for extent in extents) or wanted > nbytes:
        raise LaunchError(f"download of {kind} {extents} needs {wanted} bytes; the buffer has {nbytes}")
    return kind, extents


class ArrayBuffer(Protocol):
    """A buffer that remembers the array that it was made for."""

    form: ArrayForm | None

    def write(self, array: np.ndarray) -> None: ...


AnyBuffer = TypeVar("AnyBuffer", bound=ArrayBuffer)


class ArrayDevice(Generic[AnyBuffer]):
    """Arrays in a device's memory, by its `alloc`; `download` of their buffers returns their dtype and shape."""

    def alloc(self, nbytes: int) -> AnyBuffer:
        """Allocates `nbytes` of device memory."""
        raise NotImplementedError

    def upload(self, array: Any) -> AnyBuffer:
        """Returns device memory with a copy of the array's bytes, in C order."""
        given = np.asarray(array)
        buffer = self.empty(given.shape, given.dtype)
        buffer.write(given)
        return buffer

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> AnyBuffer:
        """Returns device memory for an array. The simulator's is zero, but checked mode counts its bytes as undefined."""
        form = ArrayForm.of(shape, dtype)
        buffer = self.alloc(form.nbytes)
        buffer.form = form
        return buffer

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> AnyBuffer:
        """Returns device memory with an array of zeros."""
        return self.upload(np.zeros(shape, dtype))
