"""Compares a result with float64, with the error that its promised type allows.

The allowance of an element is a multiple of one unit of error, which has four parts:

* a rounding of the element, and of the result's root mean square, to the promised type;
* the change of the float64 result if every input moves by a rounding: the problem's condition;
* a tenth of the root mean square of this change;
* the error of the reference in the promised type.

A faithful sum of 8,192 terms in any order has a root mean square of some 45 units in f32. A sum whose inputs were rounded to f16
has 1,200. The limit of 256 is between them. Narrow types accumulate in f32, so their limit is 4.

Errors of rounded inputs average out in a long sum of positive terms. But they are known: the reference in float64 of rounded
inputs has them. A result with the same errors, element by element, was computed of rounded inputs.

A kernel that executes xf32 matrix instructions, as `tl.dot` does by default on gfx942, has errors of 10 bits by its products. Its
limits are 32 times as wide, and its results are noted as xf32's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

WIDE_MANTISSA = 20  # bits; narrower types accumulate in f32
LIMITS = {True: (256.0, 4096.0), False: (4.0, 64.0)}  # wide type: root mean square and largest, in units
# Types that a candidate may compute in instead, with the bits of their mantissas, and how far their errors may be from one unit.
NARROWER = {"f32": 23, "f16 or xf32": 10, "bf16": 7}
LIKE = 16.0
XF32, WIDER = "xf32", 32.0  # times the limits of a kernel that executes xf32 instructions
NARROW = {"f16": 10, "xf32": 10, "bf16": 7, "fp8": 3}  # types to which a candidate may round inputs, with bits of mantissa
SAME, SAME_OF_FEW = 0.5, 0.1  # distance of errors from those of rounded inputs, relative to these: the same if below
FEW, SEEN, SEEN_OF_FEW = 16, 4.0, 16.0  # elements; root mean squares of errors, in units, that can be told from noise


@dataclass(frozen=True)
class Expected:
    """Result of the reference for one output."""

    want: np.ndarray  # float64, or integers
    promised: np.ndarray  # computed in the promised type, which is its dtype
    spread: np.ndarray  # change of `want` if inputs move by a rounding
    narrowed: Mapping[str, np.ndarray] = field(default_factory=dict)  # `want` of rounded inputs, by type


@dataclass(frozen=True)
class OutputComparison:
    """Output of a candidate compared with the reference."""

    name: str
    total: int  # elements
    compared: int  # elements that float64 and the promised type can hold
    rms: float  # of the errors, in units
    largest: float  # error, in units
    limits: tuple[float, float]  # of rms and largest
    worst: tuple[int, ...] = ()  # index of the largest error
    got: float = 0.0
    expected: float = 0.0
    unwritten: int = 0  # elements that still hold what the judge filled them with
    special: int = 0  # elements whose NaN or infinity differs from the reference's
    like: str = ""  # the narrower type whose errors these are
    reduced: bool = False  # the errors are those of xf32, by instructions of that type

    @property
    def right(self) -> bool:
        """True if the errors are within the limits and everything was written."""
        return self.rms <= self.limits[0] and self.largest <= self.limits[1] and not self.unwritten and not self.like

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"right": self.right}

    def line(self) -> str:
        """Returns what is wrong, in words."""
        place = f"{self.name}{list(self.worst)}" if self.worst else self.name
        if self.unwritten:
            return f"{self.unwritten:,} of {self.total:,} elements of {self.name} were not written, {place} among them"
        size = f"root mean square {self.rms:.3g} of {self.limits[0]:g} allowed, largest {self.largest:.3g} of {self.limits[1]:g}"
        return f"{place} = {self.got:.9g}, want {self.expected:.9g}; errors in units: {size}"


def unit_of(kind: np.dtype) -> float:
    """Returns the unit roundoff of a floating-point type.

    >>> unit_of(np.dtype("f4")) == 2.0**-24
    True
    """
    return float(2.0 ** -(ml_dtypes.finfo(kind).nmant + 1))


def narrower(kind: np.dtype) -> list[str]:
    """Returns the types of NARROW with fewer bits than a type.

    >>> narrower(np.dtype("f2"))
    ['bf16', 'fp8']
    """
    return [name for name, bits in NARROW.items() if is_float(kind) and bits < ml_dtypes.finfo(kind).nmant]


def narrow(x: np.ndarray, name: str) -> np.ndarray:
    """Rounds float64 elements to a type of NARROW; elements outside its range stay.

    >>> narrow(np.array([1 / 3]), "bf16")
    array([0.33398438])
    """
    if name == "xf32":  # the matrix unit drops bits
        return (x.view(np.int64) & ~np.int64((1 << 42) - 1)).view(np.float64)
    kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn}
    with np.errstate(all="ignore"):
        rounded = x.astype(kinds[name]).astype(np.float64)
    return np.where(np.isfinite(rounded), rounded, x)


def is_float(kind: np.dtype) -> bool:
    """True for numpy's floating-point types and those of ml_dtypes.

    >>> is_float(np.dtype(ml_dtypes.bfloat16)), is_float(np.dtype("i4"))
    (True, False)
    """
    return kind.kind == "f" or (kind.kind == "V" and kind.name.startswith(("float", "bfloat")))


def compare(
    name: str, got: np.ndarray, expected: Expected, poison: np.ndarray | None = None, special: bool = False, xf32: bool = False
) -> OutputComparison:
    """Compares a result with the reference, element by element.

    poison: what the judge filled the result with before the call; None if unknown. special: True if NaN and infinities must be
    where float64 has them; otherwise such elements are not compared. xf32: True if the kernel executed instructions of that type.

    >>> want = np.array([1.0, 2.0])
    >>> expected = Expected(want, want.astype("f4"), np.zeros(2))
    >>> compare("y", np.array([1, 2.0001], "f4"), expected).right
    False
    """
    unwritten = _unwritten(got, expected, poison)
    if not is_float(got.dtype):
        wrong = got != expected.want
        at = _first(wrong)
        values = (float(got[at]), float(expected.want[at])) if wrong.any() else (0.0, 0.0)
        error = float(np.inf) if wrong.any() else 0.0
        return OutputComparison(name, got.size, got.size, error, error, (0.0, 0.0), at if wrong.any() else (), *values, unwritten)
    with np.errstate(all="ignore"):
        return _compare_floats(name, got.astype(np.float64), expected, unwritten, special, xf32)


def _compare_floats(name: str, got: np.ndarray, expected: Expected, unwritten: int, special: bool, xf32: bool) -> OutputComparison:
    want, promised = expected.want.astype(np.float64), expected.promised.astype(np.float64)
    kind = expected.promised.dtype
    wide = bool(ml_dtypes.finfo(kind).nmant >= WIDE_MANTISSA)
    counts = np.isfinite(want) & np.isfinite(promised)
    scale = _error_scale(want, promised, np.nan_to_num(expected.spread, nan=0.0, posinf=0.0), counts, unit_of(kind))
    unit = scale + float(ml_dtypes.finfo(kind).tiny)
    error = np.where(counts, np.nan_to_num(np.abs(got - want), nan=np.inf), 0.0) / unit
    other = ~counts & ~((got == want) | (np.isnan(got) & np.isnan(want)) | (got == promised))
    rms = float(np.sqrt(np.mean(error[counts] ** 2))) if counts.any() else 0.0
    at = _first(error == error.max()) if error.size else ()
    usual, largest = LIMITS[wide], float(error.max(initial=0.0))
    limits = (WIDER * usual[0], WIDER * usual[1]) if xf32 else usual
    wrong = rms > limits[0] or largest > limits[1]
    like = _rounded_inputs(got, want, unit, counts, expected.narrowed)
    reduced = xf32 and (like == XF32 or (not like and (rms > usual[0] or largest > usual[1])))
    like = "" if reduced else f"inputs rounded to {like}" if like else _like(rms, kind) if wrong and counts.sum() >= FEW else ""
    return OutputComparison(
        name, got.size, int(counts.sum()), rms, largest, limits, at if wrong or unwritten or like else (),
        float(got[at]) if got.size else 0.0, float(want[at]) if got.size else 0.0, unwritten, int(other.sum()) if special else 0,
        like, bool(reduced and not wrong),
    )  # fmt: skip


def _error_scale(want: np.ndarray, promised: np.ndarray, spread: np.ndarray, counts: np.ndarray, unit: float) -> np.ndarray:
    """Returns one unit of error for each element."""
    if not counts.any():
        return np.ones(want.shape)
    size, moved = (float(np.sqrt(np.mean(x[counts] ** 2))) for x in (want, spread))
    return np.where(counts, unit * (np.abs(want) + size) + spread + 0.1 * moved + np.abs(promised - want), 1.0)


def _rounded_inputs(
    got: np.ndarray, want: np.ndarray, unit: np.ndarray, counts: np.ndarray, narrowed: Mapping[str, np.ndarray]
) -> str:
    """Returns the type of inputs that explains the errors; "" if none does."""
    for name, result in narrowed.items():
        known = counts & np.isfinite(result) & np.isfinite(got)
        few = np.count_nonzero(known) < FEW
        error, theirs = (got[known] - want[known]) / unit[known], (result[known] - want[known]) / unit[known]
        size = float(np.sqrt(np.mean(theirs**2))) if theirs.size else 0.0
        distance = float(np.sqrt(np.mean((error - theirs) ** 2))) if theirs.size else 0.0
        if size > (SEEN_OF_FEW if few else SEEN) and distance < (SAME_OF_FEW if few else SAME) * size:
            return name.partition(":")[0]
    return ""


def _like(rms: float, kind: np.dtype) -> str:
    """Returns the type, narrower than `kind`, whose rounding errors have this size; "" if none has."""
    own = int(ml_dtypes.finfo(kind).nmant)
    sizes = {name: 2.0 ** (own - bits) / 4 for name, bits in NARROWER.items() if bits < own}
    near = [name for name, size in sizes.items() if size / LIKE <= rms <= size * LIKE]
    return min(near, key=lambda name: abs(np.log2(rms / sizes[name])), default="")


def _unwritten(got: np.ndarray, expected: Expected, poison: np.ndarray | None) -> int:
    """Counts elements that have the poison's bits, though the reference's result does not."""
    if poison is None:
        return 0
    raw = [np.ascontiguousarray(x).view(np.uint8).reshape(got.size, got.itemsize) for x in (got, poison)]
    same = (raw[0] == raw[1]).all(1).reshape(got.shape)
    if is_float(got.dtype):
        return int((same & ~np.isnan(expected.want.astype(np.float64))).sum())
    return int((same & (got != expected.want)).sum())


def _first(where: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(where)), where.shape)) if where.size else ()


@dataclass(frozen=True)
class CallOutcome:
    """All outputs of one call compared with the reference's."""

    comparisons: Sequence[OutputComparison] = field(default_factory=tuple)

    @property
    def right(self) -> bool:
        return all(one.right for one in self.comparisons)

    @property
    def special(self) -> int:
        """Elements whose NaN or infinity differs."""
        return sum(one.special for one in self.comparisons)

    @property
    def reduced(self) -> bool:
        """True if a result has xf32's errors."""
        return any(one.reduced for one in self.comparisons)

    def worst(self) -> OutputComparison:
        """Returns the comparison that is furthest from right."""
        return max(self.comparisons, key=lambda one: (one.unwritten > 0, one.rms / max(one.limits[0], 1e-9)))


def reason_of(outcome: CallOutcome, earlier: Mapping[str, CallOutcome]) -> tuple[str, str]:
    """Returns kind and message of a wrong outcome. earlier: the same result compared with earlier calls' references, by name."""
    worst = outcome.worst()
    same = next((name for name, other in earlier.items() if other.right and any(one.compared for one in other.comparisons)), None)
    if same is not None:
        return "cached", f"the result is right for {same}, not for this call: {worst.line()}"
    if worst.unwritten:
        return "unwritten", worst.line()
    if worst.like:
        return "precision", f"the errors are those of {worst.like}: {worst.line()}"
    return "wrong", worst.line()
