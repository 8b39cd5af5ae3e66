"""Arrays in device memory by name: converts elements to addresses, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.errors import LaunchError

# Types that may follow an address, as in `0x1000020840:f16`, and numpy's names.
TYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "u32": "u4", "u16": "u2", "u8": "u1"}
_ADDRESS = re.compile(rf"(0x[0-9a-fA-F]+)(?::({'|'.join(TYPES)}))?")
_ELEMENT = re.compile(r"\s*(\w+)\s*\[([\d\s,]+)\]\s*")


@dataclass(frozen=True)
class NamedArray:
    """An array in device memory."""

    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes between elements along each axis

    @classmethod
    def row_major(cls, address: int, dtype: np.dtype, shape: Sequence[int]) -> NamedArray:
        """Makes a row-major array."""
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) * dtype.itemsize for axis in range(len(shape)))
        return cls(address, dtype, tuple(shape), strides)

    def element(self, index: Sequence[int]) -> int:
        """Returns the address of an element. Raises LaunchError for an index out of range."""
        if len(index) != len(self.shape) or any(not 0 <= i < extent for i, extent in zip(index, self.shape, strict=True)):
            extents = "x".join(map(str, self.shape))
            raise LaunchError(f"[{','.join(map(str, index))}] is no element: the array is {self.dtype} {extents}")
        return self.address + sum(i * stride for i, stride in zip(index, self.strides, strict=True))

    def index_at(self, address: int) -> tuple[tuple[int, ...], int] | None:
        """Returns the element that holds a byte, and the byte's position in it; None if none does."""
        left, index = address - self.address, [0] * len(self.shape)
        if left < 0:
            return None
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            index[axis] = min(left // self.strides[axis], self.shape[axis] - 1) if self.strides[axis] else 0
            left -= index[axis] * self.strides[axis]
        return (tuple(index), left) if 0 <= left < self.dtype.itemsize and all(self.shape) else None


def named_buffers(arguments: Sequence[Any], args: Sequence[object]) -> dict[str, NamedArray]:
    """Returns the buffers with a type and shape, by the names of their arguments."""
    found: dict[str, NamedArray] = {}
    for argument, value in zip(arguments, args, strict=False):
        form, address = getattr(value, "form", None), getattr(value, "address", None)
        if form is not None and isinstance(address, int):
            found[argument.name] = NamedArray.row_major(address, form.dtype, form.shape)
    return found


def element(names: Mapping[str, NamedArray], text: str) -> tuple[int, np.dtype]:
    """Returns address and type of the element that `C[404,622]` names, or `0x1000020840` (an f32) or `0x1000020840:f16`.

    Raises LaunchError for an unknown element.
    """
    if bare := _ADDRESS.fullmatch(text.strip()):
        return int(bare[1], 16), np.dtype(TYPES[bare[2] or "f32"])
    match = _ELEMENT.fullmatch(text)
    if not match or match[1] not in names:
        raise LaunchError(f"{text!r} is no element of an array: give NAME[i,j] of {', '.join(names) or 'one with type and shape'}")
    array = names[match[1]]
    try:
        index = tuple(int(part) for part in match[2].split(","))
    except ValueError:
        raise LaunchError(f"{text!r}: give a number for each axis, as {match[1]}[{','.join('0' * len(array.shape))}]") from None
    try:
        return array.element(index), array.dtype
    except LaunchError as error:
        raise LaunchError(f"{match[1]}{error}") from None


def name_of(names: Mapping[str, NamedArray], address: int) -> str:
    """Returns the element that holds a byte: `A[404,17]`, with ` byte 1` if it is not its first; "" if no array has it."""
    for name, array in names.items():
        if found := array.index_at(address):
            index, byte = found
            return f"{name}[{','.join(map(str, index))}]" + (f" byte {byte}" if byte else "")
    return ""
