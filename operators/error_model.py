"""Errors of matrix arithmetic: bounds and typical size, from the roundoff of a step of each type.

`gamma` serves the bounds, which hold for every order of summation and every input. `TypicalError` describes a faithful kernel
instead. Roundings of random sign make an error that grows with the square root of the steps (Higham and Mary, A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019). Its standard deviation follows from the partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.dtypes import float_limits

Array = NDArray[Any]
SMALLEST_F32, SMALLEST_F64 = 2.0**-149, 2.0**-1074
UNIT = {"f64": 2.0**-53}  # unit roundoff of the accumulator; every other floating-point type has f32's
UNIT_F32 = 2.0**-24
# Decorates functions whose operands may be NaN or infinite. Results of these (inf - inf, 0 * inf) are NaN, as in the
# kernel, and affect only the elements that read them. numpy should not warn about that.
may_be_nan = np.errstate(invalid="ignore")
LARGEST_EXPONENT = 300.0  # bounds past e^300 carry no information, and must not be infinite


@dataclass(frozen=True)
class Arithmetic:
    """Model of one input type's matrix arithmetic."""

    step: float  # unit roundoff of a step
    input_error: float = 0.0  # relative error of an input


# Steps: f32 and f64 are fused multiply-add chains. The narrow types sum exact products in f32. On gfx942 and gfx950,
# terms are cut at 2^-24 of the largest, at most 8 or 16 at a time (MMA-Sim, arXiv 2511.10909). 4 units a step cover its
# rounding and a cut of each product, of C and of the sum. xf32 drops 13 mantissa bits by truncation, 2^-10 of the
# value.
STEPS = {
    "f32": Arithmetic(2.0**-24),
    "f64": Arithmetic(2.0**-53),
    "f16": Arithmetic(4 * 2.0**-24),
    "bf16": Arithmetic(4 * 2.0**-24),
    "fp8": Arithmetic(4 * 2.0**-24),
    "bf8": Arithmetic(4 * 2.0**-24),
    "fp6": Arithmetic(4 * 2.0**-24),
    "bf6": Arithmetic(4 * 2.0**-24),
    "fp4": Arithmetic(4 * 2.0**-24),
    "xf32": Arithmetic(4 * 2.0**-24, input_error=2.0**-10),
    "i8": Arithmetic(0.0),  # exact
}
# gfx90a reads subnormal f16 and bf16 inputs as 0 (MMA-Sim; MIOpen, "MI200 MFMA behavior specifics").
FLUSHED_INPUT = {"f16": 2.0**-14, "bf16": 2.0**-126}


def gamma(steps: float, unit: float) -> float:
    """Returns the largest relative error of a product of `steps` factors (1 + d)^±1, |d| <= unit: (1 - unit)^-steps - 1.

    It holds for any number of steps (Higham, Accuracy and Stability, lemma 3.1, without its simplification, which needs steps *
    unit < 1).
    """
    with np.errstate(over="ignore"):
        return float(np.expm1(-steps * np.log1p(-unit)))


def as_read(x: ArrayLike, dtype: str, arch: str) -> Array:
    """Returns elements of `dtype` as the matrix unit of `arch` reads them, in float64.

    xf32 is cut to 10 mantissa bits; gfx90a reads subnormal f16 and bf16 as 0.
    """
    wide = np.asarray(x).astype(np.float64)
    if dtype == "xf32":
        return (wide.view(np.int64) & ~np.int64((1 << 42) - 1)).view(np.float64)
    if arch == "gfx90a" and dtype in FLUSHED_INPUT:
        return np.where(np.abs(wide) < FLUSHED_INPUT[dtype], 0.0, wide)
    return wide


@dataclass(frozen=True)
class TypicalError:
    """Distribution of a faithful kernel's result: expected + drift + noise, elementwise. Rows are the last axis."""

    expected: Array  # float64, with the roundings that are the same in every faithful kernel
    deviation: Array  # standard deviation of an element's own noise
    drift: Array  # largest distance of the error's mean from 0
    shared: Array  # relative standard deviation of a row's common factor; one a row, (..., 1)

    @classmethod
    def concatenate(cls, parts: list[TypicalError], axis: int) -> TypicalError:
        """Concatenates several parts of a result along an axis that is not the last."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis) for name in cls.__dataclass_fields__))


# Root mean square of a rounding to nearest, in units of roundoff, for mantissas m that are distributed like 1/m. An
# error uniform in ±unit/m has the variance unit²/3 · E[1/m²], and E[1/m²] = 3/(8 ln 2).
TYPICAL_ROUNDING = (1 / 3 * 3 / (8 * np.log(2))) ** 0.5


@dataclass(frozen=True)
class Rounding:
    """Rounding of results to elements of a floating-point type: to nearest even."""

    unit: float  # half a unit in the last place of 1
    smallest: float  # smallest positive value
    least_exponent: int  # of normal numbers
    largest: float  # largest finite value
    saturates: bool  # True if larger results become the largest value; False: infinite

    @classmethod
    def of(cls, dtype: str, arch: str) -> Rounding:
        """Returns the rounding to a type of `arch` (8-bit floats differ). fp8 and bf8 saturate."""
        limits = float_limits(dtype, arch)
        smallest, largest = float(limits.smallest_subnormal), float(limits.max)
        return cls(2.0 ** -(limits.nmant + 1), smallest, int(limits.minexp), largest, dtype in ("fp8", "bf8"))

    def limit(self, x: Array) -> Array:
        """Returns x limited to the type's range, as it would be stored, but not rounded."""
        if self.saturates:
            return np.clip(x, -self.largest, self.largest)
        return np.where(np.abs(x) >= self.largest * (1 + self.unit / (2 - 2 * self.unit)), np.copysign(np.inf, x), x)

    def bound(self, x: Array, error: Array) -> Array:
        """Returns a bound on the distance from `limit(x)` to the stored value, for a value within `error` of x."""
        near = np.where(np.isfinite(error), self.unit * (np.abs(x) + error) + error + self.smallest / 2, error)
        beyond = np.abs(x) + error > self.largest  # it may be infinite, or not
        return near if self.saturates else np.where(beyond & np.isfinite(self.limit(x)), np.inf, near)

    def spacing(self, x: Array) -> Array:
        """Returns the distance between the type's consecutive values in the binade of |x|; below normal numbers, `smallest`."""
        exponent = np.frexp(np.maximum(np.abs(x), 2.0**self.least_exponent))[1] - 1
        return np.asarray(2 * self.unit * np.ldexp(1.0, exponent))

    def typical(self, one: TypicalError) -> TypicalError:
        """Returns the distribution after rounding. Rounding errors are uniform over a spacing; saturated values have none."""
        stored = self.limit(one.expected)
        deviation = np.sqrt(one.deviation**2 + self.spacing(one.expected) ** 2 / 12)
        beyond = np.abs(one.expected) + one.drift + 10 * one.deviation >= self.largest
        return TypicalError(stored, np.where(beyond, 0.0, deviation), one.drift, one.shared)


@dataclass(frozen=True)
class Accumulation:
    """Rounding of a type's sums on an architecture."""

    unit: float  # roundoff of a step
    group: int  # products added in one step
    cut: float  # mean loss of a step by truncation, relative to the largest product in it; 0: everything is rounded to nearest
    cut_sum: float  # the same relative to the partial sum

    @classmethod
    def of(cls, dtype: str, arch: str) -> Accumulation:
        """Returns the accumulation of a type (MMA-Sim, arXiv 2511.10909).

        f32 and f64 are chains of fma. Before gfx942, other types add groups of 2 (bf16 on gfx908) or 4 products, rounded to
        nearest. From gfx942 on, they add groups of 4 (xf32), 8 or 16 (fp8, bf8) products, aligned at 2^-24 of the largest
        product and 2^-31 of the sum, and cut.
        """
        if dtype in ("f32", "f64"):
            return cls(UNIT.get(dtype, UNIT_F32), 1, 0.0, 0.0)
        if arch in BEFORE_GFX942:
            return cls(UNIT_F32, 2 if dtype == "bf16" and arch == "gfx908" else 4, 0.0, 0.0)
        return cls(UNIT_F32, {"xf32": 4, "fp8": 16, "bf8": 16, "fp6": 16, "bf6": 16, "fp4": 16}.get(dtype, 8), 2.0**-24, 2.0**-31)

    @property
    def smallest(self) -> float:
        """Smallest positive value of the accumulator: subnormal sums round to its multiples."""
        return SMALLEST_F64 if self.unit == UNIT["f64"] else SMALLEST_F32

    def steps(self, products: int) -> int:
        """Returns the number of roundings in a sum of `products` products."""
        return -(-products // self.group)

    def variance(self, products: int, before: Array | float, after: Array, squares: Array) -> Array:
        """Returns the variance of the error of adding `products` products to a partial sum that goes from `before` to `after`.

        squares: the sum of the products' squares. Partial sums are modelled as a straight line from `before` (b) to `after` (a)
        plus a random bridge. Averaged over the steps, their squares are (b² + ba + a²)/3 and squares/6.
        """
        mean_square = (before * before + before * after + after * after) / 3 + squares / 6
        return np.asarray((TYPICAL_ROUNDING * self.unit) ** 2 * self.steps(products) * mean_square)

    def drift(self, products: int, largest_sum: Array, largest_product: Array) -> Array:
        """Returns the largest shift that truncation gives the mean of a sum of `products` products; 0 if sums are rounded."""
        return np.asarray(self.steps(products) * (self.cut_sum * largest_sum + self.cut * largest_product))
