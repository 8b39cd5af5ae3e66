"""Compares a result's error with a faithful kernel's: by element, by row, in the mean.

A faithful kernel never exceeds the bound, which grows with the number of terms. Its usual error grows only with their square
root, and its mean hardly at all. `likeness` compares an error with the usual one (`simgpu.operators.reference`, the functions
called _typical_error).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.operators.error_model import TypicalError

# Limits, in standard deviations. The largest of 10^8 normal deviates is 6, and an element's partial sums may be larger than its
# variance says. One mean in 10^7 is past 5.5.
ELEMENT_LIMIT, MEAN_LIMIT = 10.0, 5.5
ROW_LIMIT = 2.0  # of a row's root mean square: if all roundings are ties, it is sqrt(3) times the usual one
# A row's mean square is past 1 + 2·sqrt(x/n) + 2·x/n once in e^x (Laurent and Massart, Ann. Stat. 28, 2000, lemma 1).
ROW_TAIL = 25.0


@dataclass(frozen=True)
class Likeness:
    """An error relative to a faithful kernel's. Each figure is a fraction of its limit; 1 or less passes."""

    element: float  # the largest element's error
    row: float  # the largest root mean square of a row's errors, without their common part
    scale: float  # a common factor's distance from 1
    offset: float  # the mean of the errors, each relative to its deviation
    index: tuple[int, ...]  # of the worst element
    row_index: tuple[int, ...]

    @property
    def passed(self) -> bool:
        return max(self.element, self.row, self.scale, self.offset) <= 1

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"pass": self.passed}

    def lines(self, name: str) -> list[str]:
        """Returns lines for people; name: the result's."""
        figures = (("element", self.element), ("row", self.row), ("factor", self.scale), ("mean", self.offset))
        shares = ", ".join(f"{what} {share:.0%}" for what, share in figures)
        said = [f"Errors in percent of the limits for a faithful kernel: {shares}"]
        place = f"{name}{list(self.index)}", f"row {list(self.row_index)} of {name}", name, name
        reasons = (
            "is further from float64 than roundings make it",
            "has errors that are larger than roundings make them",
            "is off by a common factor",
            "has errors that lean to one side",
        )
        for (_, share), where, reason in zip(figures, place, reasons, strict=True):
            if not share <= 1:
                said.append(f"{where} {reason}: {share:.3g} times the limit")
        return said


def likeness(got: np.ndarray, typical: TypicalError) -> Likeness:
    """Computes the likeness of a result, float64; rows are its last axis. Elements that are not finite count as right: the
    bound judges them."""
    shape = got.shape
    want, deviation, drift = (_rows(x, shape) for x in (typical.expected, typical.deviation, typical.drift))
    shared = np.broadcast_to(typical.shared, (*shape[:-1], 1)).reshape(-1, 1)
    given = got.reshape(want.shape)
    counts = np.isfinite(given) & (deviation > 0)
    for x in (want, deviation, drift, shared):
        counts &= np.isfinite(x)
    shared = np.where(np.isfinite(shared), shared, 0.0)
    want, drift = np.where(counts, want, 0.0), np.where(counts, drift, 0.0)
    error = np.where(counts, given - want, 0.0)
    deviation, n = np.where(counts, deviation, 1.0), counts.sum(-1, keepdims=True)
    beyond = np.maximum(np.abs(error) - drift, 0.0) / np.hypot(deviation, shared * want)
    worst = int(np.argmax(beyond))
    weight = _unique_weights(given, counts)

    # Fits weigh an element by all its uncertainty; `own` is the fraction of it that is noise.
    total = np.hypot(deviation, drift)
    own, z_error, z_want, z_drift = deviation / total, error / total, want / total, drift / total
    power = (z_want**2).sum(-1, keepdims=True)
    factor = _ratio((z_error * z_want).sum(-1, keepdims=True), power)
    factor_drift = _ratio((z_drift * np.abs(z_want)).sum(-1, keepdims=True), power)
    most = ELEMENT_LIMIT * shared  # error that a row may have in common
    unsure = drift + np.minimum(factor_drift, most) * np.abs(want)
    rest = np.maximum(np.abs(error - np.clip(factor, -most, most) * want) - unsure, 0.0) / deviation
    tail = ROW_TAIL / np.maximum(_distinct(given, counts), 1)
    rows = np.sqrt(_ratio((rest**2).sum(-1, keepdims=True), n) / (1 + 2 * np.sqrt(tail) + 2 * tail)) / ROW_LIMIT
    worst_row = int(np.argmax(rows))

    n, power = weight.sum(-1, keepdims=True), (weight * z_want**2).sum(-1, keepdims=True)
    factor = _ratio((weight * z_error * z_want).sum(-1, keepdims=True), power)
    factor_drift = _ratio((weight * z_drift * np.abs(z_want)).sum(-1, keepdims=True), power)
    noise = _ratio((weight * (own * z_want) ** 2).sum(-1, keepdims=True), power**2)
    scale = _mean_excess(factor, factor_drift, noise + shared**2, power > 0)
    mean, mean_drift, mean_want, noise = (
        _ratio((weight * x).sum(-1, keepdims=True), n) for x in (z_error, z_drift, z_want, own**2)
    )
    offset = _mean_excess(mean, mean_drift, _ratio(noise, n) + (shared * mean_want) ** 2, n > 0)
    return Likeness(
        float(beyond.flat[worst]) / ELEMENT_LIMIT, float(rows.flat[worst_row]), scale, offset,
        tuple(int(i) for i in np.unravel_index(worst, shape)),
        tuple(int(i) for i in np.unravel_index(worst_row, shape[:-1])) if len(shape) > 1 else (),
    )  # fmt: skip


def _unique_weights(given: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns weights that count elements of one size once, since they have equal errors; 0 outside `counts`."""
    weights = counts.astype(np.float64)
    _, place, number = np.unique(np.abs(given[counts]), return_inverse=True, return_counts=True)
    weights[counts] = 1.0 / number[place]
    return weights


def _mean_excess(values: np.ndarray, drift: np.ndarray, variance: np.ndarray, has: np.ndarray) -> float:
    """Returns how far the weighted mean of values exceeds the drifts', as a fraction of MEAN_LIMIT deviations."""
    trust = _ratio(has.astype(np.float64), variance)
    total = float(trust.sum())
    if not total:
        return 0.0
    mean, allowed = float((values * trust).sum() / total), float((drift * trust).sum() / total)
    return max(abs(mean) - allowed, 0.0) / (MEAN_LIMIT * total**-0.5)


def _ratio(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns x / y, 0 where y is 0."""
    return np.divide(x, y, out=np.zeros(np.broadcast_shapes(x.shape, y.shape)), where=y > 0)


def _rows(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.broadcast_to(x, shape), np.float64).reshape(-1, shape[-1])


def _distinct(given: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts the different sizes of elements in each row, (rows,1)."""
    held = np.sort(np.where(counts, np.abs(given), np.inf), axis=-1)
    return (held[:, 1:] > held[:, :-1]).sum(-1, keepdims=True) + np.isfinite(held[:, :1])
