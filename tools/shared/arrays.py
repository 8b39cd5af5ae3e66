"""Arrays that verbs generate: types by name, fills by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import TargetError
from simgpu.tools.shared.errors import UsageError

# Types of GPU arguments other than the matrix unit's.
_PLAIN = {"u8": "uint8", "i16": "int16", "u16": "uint16", "u32": "uint32", "i64": "int64", "u64": "uint64"}
MATRIX_TYPES = ("f64", "f32", "f16", "bf16", "fp8", "bf8", "i32", "i8")
TYPES = (*MATRIX_TYPES, *_PLAIN)
PIECE = 1 << 16  # elements that are drawn at a time
INTEGERS_UP_TO = 100  # random and counted integers stay small enough to add and multiply


def array_type(name: str, arch: str = "gfx950") -> np.dtype:
    """Returns the numpy dtype of a type's name on `arch` (8-bit floats differ). UsageError lists the names."""
    if name in _PLAIN:
        return np.dtype(_PLAIN[name])
    try:
        return numpy_dtype(name, arch)
    except TargetError:
        raise UsageError(f"unknown type {name!r}: use one of {', '.join(TYPES)}") from None


def random_array(rng: Generator, kind: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Draws an array as `fill_random` does."""
    made = np.empty(shape, kind)
    fill_random(rng, made)
    return made


def fill_random(rng: Generator, made: np.ndarray) -> None:
    """Fills a contiguous array with floats uniform in [-1, 1), integers uniform in [-100, 100] or unsigned ones in [0, 100]."""
    kind = made.dtype
    if kind.kind in "iu":
        made[...] = rng.integers(0 if kind.kind == "u" else -INTEGERS_UP_TO, INTEGERS_UP_TO, made.shape, endpoint=True)
        return
    if kind.itemsize >= 8:
        made[...] = rng.uniform(-1, 1, made.shape)
        return
    flat = made.reshape(-1)
    for first in range(0, flat.size, PIECE):  # in pieces that fit the host's cache
        piece = flat[first : first + PIECE]
        values = rng.random(len(piece), np.float32)
        values *= 2
        values -= 1
        piece[:] = values


def _counting_array(rng: Generator, kind: np.dtype, shape: Sequence[int]) -> np.ndarray:
    total = int(np.prod(shape, dtype=np.int64))
    return (np.arange(total) % (INTEGERS_UP_TO + 1)).astype(kind).reshape(shape)


FILLS: dict[str, Callable[[Generator, np.dtype, Sequence[int]], np.ndarray]] = {
    "zeros": lambda rng, kind, shape: np.zeros(shape, kind),
    "ones": lambda rng, kind, shape: np.ones(shape, kind),
    "count": _counting_array,
    "random": random_array,
}


def require_memory(nbytes: int, what: str) -> None:
    """Raises UsageError if `nbytes` are more than this host's physical memory."""
    try:
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system that does not say: the allocation will
        return
    if nbytes > present:
        raise UsageError(
            f"{what} needs {nbytes / 1e9:.1f} GB, this host has {present / 1e9:.1f} GB: choose smaller sizes"
        )
