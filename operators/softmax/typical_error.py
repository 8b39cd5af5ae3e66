"""Usual distance of a faithful softmax kernel from float64."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.error_model import TYPICAL_ROUNDING, UNIT, UNIT_F32, Rounding, TypicalError
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.operators.softmax.reference import softmax
from simgpu.operators.softmax.state import with_infinities

SINGLE = 4  # bytes of an f32
LANES = 64  # least number of lanes that share a row's sum


@with_infinities
def softmax_typical_error(
    problem: SoftmaxProblem, x: ArrayLike, mask: ArrayLike | None = None, arch: str = "gfx908"
) -> TypicalError:
    """Returns the typical error of a faithful kernel's Y, (rows,n).

    Exponents are rounded relative to their own size and to the maximum's. All elements of a row share the error of its sum.
    log2(e) * scale is rounded once for the whole kernel, so its error is a drift. To a logarithm, the error of the sum is added,
    and exponents are differences, rounded relative to their own size. Its roundings to a narrow type are alike in a row, if X has
    that type: they are a drift.

    >>> import numpy as np
    >>> from simgpu.operators import SoftmaxProblem, reference
    >>> reference.softmax_typical_error(SoftmaxProblem(rows=1, n=4), np.zeros((1, 4))).expected
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    p = problem
    y = softmax(p, x, mask)
    unit = UNIT.get(p.dtype, UNIT_F32)
    scores = p.scale * np.asarray(x).astype(np.float64)
    scores = np.where(p.keep(mask) & np.isfinite(scores), scores, 0.0)
    seen = np.where(p.keep(mask) & np.isfinite(scores), scores, -np.inf).max(-1, keepdims=True)
    largest = np.where(np.isfinite(seen), seen, 0.0)
    below = np.abs(scores - largest)
    rounded = TYPICAL_ROUNDING * unit
    deviation = rounded * (2 + 2 * below + np.abs(y) if p.log else y * (2 + 2 * np.abs(scores) + 2 * below))
    # A sum of positive terms: its partial sums grow evenly, so the mean of their squares is a third of the last one's.
    shared = np.full_like(largest, rounded * (4 + math.sqrt(p.n / LANES / 3 + 16)))
    drift = np.abs(y) * (constant_error(p.scale, unit) * below + 2 * unit) + p.gain * 2.0**-126
    if p.log:
        deviation, shared, drift = np.hypot(deviation, shared), np.zeros_like(shared), drift + 2 * unit
    if p.element_y.bytes < SINGLE:
        apart = Rounding.of(p.element_y.name, arch).spacing(y)
        deviation, drift = np.sqrt(deviation**2 + apart**2 / 12), drift + apart / 2 * p.log
    return TypicalError(y, deviation, drift, np.broadcast_to(shared, (*y.shape[:-1], 1)))


def constant_error(scale: float, unit: float) -> float:
    """Returns the relative error of scale * log2(e) in the accumulator's type."""
    exact = scale * math.log2(math.e)
    return unit if unit < UNIT_F32 or not exact else abs(float(np.float32(exact)) / exact - 1)
