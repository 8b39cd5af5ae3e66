"""State that an online softmax carries along a row, and its merge operator (paper, section Online Softmax; E30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Decorates functions that compute with infinities and the largest numbers as kernels do: inf - inf, 0/0, log(0), overflow.
with_infinities = np.errstate(invalid="ignore", divide="ignore", over="ignore")


@dataclass(frozen=True)
class SoftmaxState:
    """Running maximum and denominator of rows: arrays of one shape. The merge of states is associative and commutative.

    >>> import numpy as np
    >>> from simgpu.operators import SoftmaxState
    >>> scores = np.array([[0.0, 1.0, 2.0, 3.0]])
    >>> merged = SoftmaxState.of(scores[:, :2]).merge(SoftmaxState.of(scores[:, 2:]))
    >>> np.allclose(merged.delta, SoftmaxState.of(scores).delta), merged.m
    (True, array([3.]))
    """

    m: Array  # maximum
    delta: Array  # denominator

    @classmethod
    def empty(cls, shape: tuple[int, ...], kind: np.dtype[Any]) -> SoftmaxState:
        """Returns the neutral element: m is the least finite number, so that m - m is 0 and never NaN (E30)."""
        return cls(np.full(shape, np.finfo(kind).min, kind), np.zeros(shape, kind))

    @classmethod
    def of(cls, scores: Array, keep: Array | None = None) -> SoftmaxState:
        """Returns the state of the rows of `scores` (last axis), without elements for which `keep` is False.

        A row without elements gives the neutral element (E30).
        """
        floor = np.finfo(scores.dtype).min
        seen = scores if keep is None else np.where(keep, scores, floor)
        m = np.maximum(seen.max(-1), floor)
        return cls(m, exponentials(scores, m, keep).sum(-1))

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """Returns self ⊕ other (paper, section Online Softmax)."""
        m = np.maximum(self.m, other.m)
        return SoftmaxState(m, self.delta * np.exp(self.m - m) + other.delta * np.exp(other.m - m))


def exponentials(scores: Array, m: Array, keep: Array | None = None) -> Array:
    """Returns exp(scores - m) by rows, 0 where `keep` is False."""
    if keep is None:
        return np.asarray(np.exp(scores - m[..., None]))
    return np.where(keep, np.exp(np.where(keep, scores - m[..., None], 0)), 0).astype(scores.dtype)


def normalise(values: Array, delta: Array) -> Array:
    """Returns values / delta by rows; 0 in rows without elements (delta = 0)."""
    return np.asarray(values / np.where(delta == 0, 1, delta)[..., None]).astype(values.dtype)
