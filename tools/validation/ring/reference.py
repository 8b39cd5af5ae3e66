"""Matrix products in the ring, by numpy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simgpu.hardware.isa.ring.arrays import elements, floats
from simgpu.tools.cases.same import Side


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the elements of A (m, k) B (k, n), modulo 2^32; of integers, the sums modulo 2^32.

    >>> product(np.float16([[1, 2]]), np.float16([[-1], [2]]))
    array([[3]], dtype=uint32)
    """
    if a.dtype.kind in "iu":
        return a.astype(np.int32).view(np.uint32) @ b.astype(np.int32).view(np.uint32)
    summed: np.ndarray = elements(np.ascontiguousarray(a)) @ elements(np.ascontiguousarray(b))
    return summed


def as_type(summed: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns elements as floats of a type, cut to its width; or 32-bit integers, cut to a type of integers."""
    return summed.astype(dtype) if dtype.kind in "iu" else floats(summed, dtype)


def reference(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Side:
    """Returns the side of a comparison that no kernel computed: arrays before a launch, and the results."""
    return Side("numpy", dict(before), {**before, **after}, [])
