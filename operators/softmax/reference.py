"""Softmax in float64, and bounds on a kernel's error."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.error_model import LARGEST_EXPONENT, Rounding
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.operators.softmax.state import with_infinities


@with_infinities
def softmax(problem: SoftmaxProblem, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
    """Returns gain * softmax of the rows of scale * X in float64, or its logarithm, as `SoftmaxProblem` defines it.

    A logarithm below the numbers of Y's type is -infinity.

    >>> import numpy as np
    >>> from simgpu.operators import SoftmaxProblem, reference
    >>> reference.softmax(SoftmaxProblem(rows=1, n=4), np.zeros((1, 4)))
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    keep, values = problem.keep(mask), np.asarray(x).astype(np.float64)
    scores = problem.scale * values
    # A difference of elements is rounded relative to itself, one of scores relative to the scores, which may be far larger.
    shifted = np.where(keep, scores, -np.inf)
    apart = problem.scale * (values - np.take_along_axis(values, shifted.argmax(-1, keepdims=True), -1))
    below = np.where(keep & np.isfinite(apart), apart, _below(shifted))
    e = np.exp(below)
    total = np.where(keep.any(-1, keepdims=True), e.sum(-1, keepdims=True), 1.0)
    if not problem.log:
        return np.asarray(problem.gain * (e / total))
    y = below - np.log(total)
    rounding = _rounding(problem)
    return rounding.limit(y) if rounding else y


@with_infinities
def softmax_error_bound(problem: SoftmaxProblem, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
    """Returns an elementwise bound on |kernel - float64 reference|, for any order of merges.

    With u the unit roundoff (2^-24, or 2^-53 in f64), a score and its distance from the maximum are each off by 4u times the
    row's largest |score|. exp, and each of at most n merges or additions, add 4u. Numerator and denominator are then within a
    factor of e^r, r = (8*|score| + 4*n + 16)*u, and their quotient within e^2r. exp may return 0 below 2^-126. Infinite scores
    give 0, 1 or NaN without an error. A logarithm is off by 2r, and by 4u of itself and its summands. Rounding to Y's type adds
    half a unit in the last place.

    >>> import numpy as np
    >>> from simgpu.operators import SoftmaxProblem, reference
    >>> bool((reference.softmax_error_bound(SoftmaxProblem(rows=1, n=4), np.zeros((1, 4))) < 1e-4).all())
    True
    """
    unit = 2.0**-53 if problem.dtype == "f64" else 2.0**-24
    scores = np.abs(problem.scale * np.asarray(x).astype(np.float64))
    scores = np.where(problem.keep(mask) & np.isfinite(scores), scores, 0.0)
    largest = scores.max(-1, initial=0.0)[:, None]
    r = np.minimum((8 * largest + 4 * problem.n + 16) * unit, LARGEST_EXPONENT)
    own = (problem.n + 8) * 2.0**-52
    narrow = _rounding(problem)
    rounding, tiny = (narrow.unit, narrow.smallest / 2) if narrow else (0.0, 0.0)
    if problem.log:
        y = softmax(problem, x, mask)
        size = np.where(np.isfinite(y), np.abs(y), 0.0) + 2 * largest + math.log(problem.n)
        bound = np.asarray(2 * r + (4 * unit + own + rounding) * size + tiny)
        beyond = np.isfinite(y) & (np.abs(y) + bound > (narrow.largest if narrow else np.inf))
        return np.where(beyond, np.inf, bound)  # it may be infinite, or not
    return np.asarray(softmax(problem, x, mask) * (np.expm1(2 * r) + own + rounding) + problem.gain * 2.0**-126 + tiny)


def _rounding(problem: SoftmaxProblem) -> Rounding | None:
    """Returns the rounding of results to 16-bit floats, which all architectures have alike; None for other types."""
    return Rounding.of(problem.element_y.name, "gfx950") if problem.element_y.name in ("f16", "bf16") else None


def weights(scores: NDArray[np.float64], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns the softmax of the rows of `scores`, 0 where `keep` is False, and in rows of -infinities."""
    e = np.exp(_below(np.where(keep, scores, -np.inf)))
    total = e.sum(-1, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total))


def _below(shifted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the distances from each row's maximum, for scores that are -infinity where an element does not count."""
    largest = shifted.max(-1, keepdims=True)
    return np.asarray(shifted - np.where(largest == -np.inf, 0.0, largest))
