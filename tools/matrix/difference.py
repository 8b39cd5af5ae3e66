"""Differences of an array from a reference, and the usual mistake that explains it."""

from __future__ import annotations

import numpy as np

SHIFTS = 64  # rotations and offsets to try along each axis


def wrong_elements(got: np.ndarray, want: np.ndarray, tolerance: float) -> np.ndarray:
    """Marks where two arrays of one shape differ by more than the tolerance times the largest finite magnitude of `want`.

    NaN agrees with NaN, an infinity with itself.
    """
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        close = (np.abs(got - want) <= tolerance * scale) | (got == want)
    return ~(close | (np.isnan(got) & np.isnan(want)))


def explanation(got: np.ndarray, want: np.ndarray, tolerance: float) -> str:
    """Names the usual mistake that accounts for every difference, as a sentence with a leading blank; "" if none does."""

    def agrees(changed: np.ndarray, expected: np.ndarray = want) -> bool:
        return changed.shape == expected.shape and not wrong_elements(changed, expected, tolerance).any()

    if got.size < 2 or not np.any(want):
        return ""
    if not np.any(got):
        return " Every element is 0: nothing was written, or it was written elsewhere."
    if got.ndim == 2 and agrees(got.T):
        return " Its transpose agrees: rows and columns are exchanged."
    if got.ndim == 2 and agrees(got.reshape(got.shape[::-1]).T):
        return " Read by columns it agrees: it was stored column by column."
    for axis, name in list(enumerate(("rows", "columns")))[: got.ndim]:
        if got.ndim == 1:
            name = "elements"
        for shift in range(1, min(got.shape[axis], SHIFTS)):
            for step in (shift, -shift):
                if agrees(np.roll(got, step, axis)):
                    return f" With its {name} rotated by {step} it agrees."
            keep, drop = np.arange(got.shape[axis] - shift), np.arange(shift, got.shape[axis])
            if len(keep) >= len(drop) > 1 and shift <= len(keep) // 2:
                if agrees(got.take(drop, axis), want.take(keep, axis)):
                    return f" It is off by {shift} {name}: the one for 0 is at {shift}."
                if agrees(got.take(keep, axis), want.take(drop, axis)):
                    return f" It is off by {shift} {name}: the one for {shift} is at 0."
    if factor := _factor(got, want, tolerance):
        return f" It is {factor:.6g} times what it should be."
    if np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)):
        return " The same elements in another order."
    return _difference_span(wrong_elements(got, want, tolerance))


def _factor(got: np.ndarray, want: np.ndarray, tolerance: float) -> float:
    """Returns the factor by which everything is multiplied; 0 if there is none."""
    largest = np.unravel_index(np.argmax(np.abs(np.where(np.isfinite(want), want, 0))), want.shape)
    if not np.isfinite(got[largest]) or not got[largest]:
        return 0.0
    factor = float(got[largest] / want[largest])
    return 0.0 if wrong_elements(got / factor, want, tolerance).any() else factor


def _difference_span(wrong: np.ndarray) -> str:
    """Names the rows or columns that hold all differences, if they are a run of few."""
    for axis, name in list(enumerate(("row", "column")))[: wrong.ndim] if wrong.ndim <= 2 else []:
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        lines = np.flatnonzero(wrong.any(others))
        if wrong.ndim == 1:
            name = "element"
        if len(lines) and lines[-1] - lines[0] + 1 == len(lines) < wrong.shape[axis]:
            return f" All differences are in {name}s {lines[0]} to {lines[-1]} of {wrong.shape[axis]}."
    return ""
