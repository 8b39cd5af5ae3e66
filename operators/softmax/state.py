"""What an online softmax carries along a row, and its merge operator (paper, section Online Softmax; E30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgpu.operators.tree import FINITE_FLOOR

Array = NDArray[Any]


@dataclass(frozen=True)
class SoftmaxState:
    """Running maximum m and denominator delta of rows: arrays of one shape. The merge of states is associative and commutative."""

    m: Array
    delta: Array

    @classmethod
    def empty(cls, shape: tuple[int, ...], kind: np.dtype[Any]) -> SoftmaxState:
        """The neutral element: nothing seen, m at the finite floor, so that m - m is 0 and never NaN (E30)."""
        return cls(np.full(shape, FINITE_FLOOR, kind), np.zeros(shape, kind))

    @classmethod
    def of(cls, scores: Array, keep: Array | None = None) -> SoftmaxState:
        """The state of whole rows (last axis); elements that `keep` leaves out do not count, nor does a row that has none (E30)."""
        seen = scores if keep is None else np.where(keep, scores, scores.dtype.type(FINITE_FLOOR))
        m = np.maximum(seen.max(-1), scores.dtype.type(FINITE_FLOOR))
        return cls(m, exponentials(scores, m, keep).sum(-1))

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """self ⊕ other (paper, section Online Softmax)."""
        m = np.maximum(self.m, other.m)
        return SoftmaxState(m, self.delta * np.exp(self.m - m) + other.delta * np.exp(other.m - m))


def exponentials(scores: Array, m: Array, keep: Array | None = None) -> Array:
    """exp(scores - m) by rows, 0 where `keep` leaves an element out."""
    if keep is None:
        return np.asarray(np.exp(scores - m[..., None]))
    return np.where(keep, np.exp(np.where(keep, scores - m[..., None], 0)), 0).astype(scores.dtype)


def normalise(values: Array, delta: Array) -> Array:
    """values / delta by rows; 0 in rows that saw nothing (delta = 0)."""
    return np.asarray(values / np.where(delta == 0, 1, delta)[..., None]).astype(values.dtype)
