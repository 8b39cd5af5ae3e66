"""Elements of numpy arrays of floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.lane_numpy import NumpyOps
from simgpu.hardware.isa.ring.elements import element_of, float_of, resize
from simgpu.hardware.isa.ring.ops import RingOps

TYPES = {
    np.dtype(np.float16): t.f16, np.dtype(ml_dtypes.bfloat16): t.bf16, np.dtype(np.float32): t.f32, np.dtype(np.float64): t.f64,
}  # fmt: skip
WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {4: t.i32, 8: t.i64}


class ElementOps(RingOps, NumpyOps):
    """Operations of bodies on arrays of floats' bits, as elements."""

    plain = NumpyOps()


OPS = ElementOps()


def value_of(array: np.ndarray) -> Value:
    """Returns an array of f16, bf16, f32 or f64 as a Value whose operations are the ring's.

    >>> x = value_of(np.float32([0.7, 1e6]))
    >>> bool((x + x == x * 2.0).raw.all())
    True
    """
    type_ = TYPES[array.dtype]
    return Value(OPS, type_, np.ascontiguousarray(array).view(WORDS[type_.bits]).reshape(array.shape))


def elements(array: np.ndarray) -> np.ndarray:
    """Returns the elements of floats as uint32, sign-extended, or as uint64 for f64. Formats of 8 bits and less have f32's.

    >>> elements(np.float32([0, 1, 2, -1]))
    array([         0,          1,          2, 4294967295], dtype=uint32)
    """
    given = value_of(array if array.dtype in TYPES else array.astype(np.float32))
    return np.asarray(resize(element_of(given), t.f64 if given.type is t.f64 else t.f32).raw)


def floats(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Returns the floats of a type (f16, bf16, f32, f64) whose elements are these, of uint32 or uint64, cut to its width.

    >>> floats(np.uint32([2, 0xFFFFFFFF]), np.dtype(np.float16))
    array([ 2., -1.], dtype=float16)
    """
    type_ = TYPES[np.dtype(kind)]
    signed = Value(OPS, SIGNED[array.dtype.itemsize], array)
    return np.asarray(float_of(resize(signed, type_), type_).raw).view(kind)


def words(array: np.ndarray) -> np.ndarray:
    """Returns the bits of floats, with 0 for -0: equal elements have equal words."""
    raw = np.ascontiguousarray(array).view(WORDS[8 * array.itemsize]).reshape(array.shape)
    return np.where(raw == 1 << 8 * array.itemsize - 1, raw.dtype.type(0), raw) if array.dtype.kind not in "iub" else raw
