"""Buffer arguments after a launch: changes, and the comparison with expected arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from simgpu.tools.matrix.difference import explanation, wrong_elements
from simgpu.tools.shared.errors import UsageError


@dataclass(frozen=True)
class BufferResult:
    """A buffer argument after the launch."""

    index: int  # the argument's number, from 0
    spec: str  # text of --arg, or the value of a captured argument
    before: np.ndarray
    after: np.ndarray
    path: str | None  # file of --save, if any

    def document(self) -> dict[str, Any]:
        """Returns a JSON document. min and max leave NaN out, and are None if no element is left."""
        flat = self.after.reshape(-1)
        same = _raw(self.before) == _raw(flat)
        low = high = None
        nan, infinite = _not_finite(flat)
        if flat.dtype.kind != "V" and flat.size:
            wide = flat.astype(np.float64)
            wide = wide[~np.isnan(wide)]
            low, high = (float(wide.min()), float(wide.max())) if wide.size else (None, None)
        return {
            "argument": self.index, "spec": self.spec, "type": str(flat.dtype),
            "shape": list(self.after.shape),
            "changed": int(np.count_nonzero(~same.all(1))), "min": low, "max": high, "nan": nan, "infinite": infinite,
            "saved": self.path,
        }  # fmt: skip


    @property
    def nonfinite_note(self) -> str:
        """NaN and infinite elements that the launch added, in words; "" if none."""
        after, before = (_not_finite(array) for array in (self.after, self.before))
        kinds = [f"{late:,} {word}" for late, early, word in zip(after, before, ("NaN", "infinite")) if late > early]
        return f"argument {self.index} has {' and '.join(kinds)} of {self.after.size:,} elements" if kinds else ""


def _not_finite(array: np.ndarray) -> tuple[int, int]:
    """Counts NaN and infinite elements."""
    if array.dtype.kind == "V" or not array.size:
        return 0, 0
    wide = array.astype(np.float64)
    return int(np.isnan(wide).sum()), int(np.isinf(wide).sum())


def _raw(array: np.ndarray) -> np.ndarray:
    """Returns an array's bytes as (elements, bytes of an element)."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(array.size, array.itemsize)


@dataclass(frozen=True)
class Expectation:
    """A buffer argument compared with the array that it should hold."""

    argument: int  # its number, from 0
    file: str  # of the expected array
    elements: int
    tolerance: float  # relative to the largest expected element
    differing: int = 0  # elements outside the tolerance
    worst: tuple[int, ...] = ()  # index of the element that differs most, if any differs
    got: float = 0.0  # value of the worst element
    want: float = 0.0  # its expected value
    explanation: str = ""  # likely cause, "" if unknown

    @classmethod
    def of(cls, index: int, path: str, got: np.ndarray, want: np.ndarray, tolerance: float | None) -> Expectation:
        """Compares the buffer, read in the file's shape. Raises UsageError for arrays of different sizes."""
        if got.size != want.size:
            raise UsageError(f"--expect {index}={path}: {want.size} elements, argument {index} has {got.size}")
        kind = got.dtype
        if tolerance is None:
            tolerance = 0.0 if kind.kind in "biu" else math.sqrt(float(ml_dtypes.finfo(kind).eps))
        shaped = got.reshape(want.shape)
        wrong = wrong_elements(shaped, want, tolerance)
        if not wrong.any():
            return cls(index, path, want.size, tolerance)
        with np.errstate(invalid="ignore"):
            off = np.nan_to_num(np.abs(shaped.astype(np.float64) - want.astype(np.float64)), nan=np.inf)
        worst = tuple(map(int, np.unravel_index(np.argmax(np.where(wrong, off, -1.0)), want.shape)))
        reason = explanation(shaped, want, tolerance).strip()
        return cls(index, path, want.size, tolerance, int(wrong.sum()), worst, float(shaped[worst]), float(want[worst]), reason)

    def line(self) -> str:
        """Returns a line for people."""
        what = f"argument {self.argument} against {self.file}"
        if not self.differing:
            return f"{what}: all {self.elements:,} elements agree within {self.tolerance:.3g} of the largest"
        where = f"worst {list(self.worst)}: {self.got:.6g}, want {self.want:.6g}"
        return f"{what}: {self.differing:,} of {self.elements:,} elements differ ({where}). {self.explanation}".rstrip()
