"""Hostile inputs: functions of single elements, so that triangles stay triangles and symmetric matrices stay symmetric.

A number's bits decide its sign or whether it becomes 0, so equal numbers stay equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from simgpu.tools.judge.tolerance import WIDE_MANTISSA, is_float

FEW = 64  # different numbers
SPARSE = 509  # one number of this many is NaN, one infinite, one the negative infinity
_ODD = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing: 2^64 over the golden ratio


def hashes(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """Returns a number from 0 to 2^16 - 1 for each element, the same for equal elements.

    >>> hashes(np.array([1.0, 2.0, 1.0])).tolist()
    [17877, 56232, 17877]
    """
    bits = np.ascontiguousarray(x.astype(np.float64)).view(np.uint64) + np.uint64(seed)
    mixed = (bits ^ (bits >> np.uint64(29))) * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _ODD
    return (mixed >> np.uint64(48)).reshape(x.shape).astype(np.int64)


def _random_signs(x: np.ndarray, wide: bool) -> np.ndarray:
    return np.where(hashes(x) & 1, x, -x)


def _sparse(x: np.ndarray, wide: bool) -> np.ndarray:
    return np.where(hashes(x, 1) & 15, 0.0, _random_signs(x, wide))


def _large(x: np.ndarray, wide: bool) -> np.ndarray:
    return x * (256.0 if wide else 16.0)


def _special(x: np.ndarray, wide: bool) -> np.ndarray:
    """Makes some numbers NaN and infinite, at least one of each if there are many. 0 stays, and so do short vectors: a NaN there
    would hide the others."""
    drawn, counts = hashes(x, 2), x != 0
    numbers = np.unique(drawn[counts])
    if numbers.size < FEW:
        return x
    least = numbers[:3].tolist()
    which = [counts & ((drawn == least[at]) | (drawn % SPARSE == at)) for at in range(3)]
    return np.select(which, [np.nan, np.inf, -np.inf], x)


@dataclass(frozen=True)
class Style:
    """A row of STYLES."""

    summary: str  # for documentation
    change: Callable[[np.ndarray, bool], np.ndarray]  # of float64 elements; True: of a type that is no narrower than f32
    special: bool = False  # NaN and infinities must end where the reference has them


STYLES = {
    "own": Style("as the reference draws them", lambda x, wide: x),
    "signed": Style("with random signs, so that sums cancel", _random_signs),
    "sparse": Style("one in 16, with random signs, the others 0: errors of single products show", _sparse),
    "large": Style("256 times as large (16-bit types: 16)", _large),
    "small": Style("a 64th as large", lambda x, wide: x / 64.0),
    "zeros": Style("all 0", lambda x, wide: np.zeros_like(x)),
    "special": Style("one in 170 NaN or infinite", _special, True),
}


def change(array: np.ndarray, style: str) -> np.ndarray:
    """Returns inputs in a style; integers and booleans unchanged.

    >>> change(np.array([1.5, 2.5], "f4"), "small")
    array([0.0234375, 0.0390625], dtype=float32)
    """
    if style == "own" or not is_float(array.dtype):
        return array
    limits = ml_dtypes.finfo(array.dtype)
    with np.errstate(all="ignore"):
        made = STYLES[style].change(array.astype(np.float64), bool(limits.nmant >= WIDE_MANTISSA))
        return np.where(np.isfinite(made), np.clip(made, float(limits.min), float(limits.max)), made).astype(array.dtype)
