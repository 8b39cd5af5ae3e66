"""Running error analysis: values in float64 with a bound on an f32 kernel's error, operation by operation.

Every operation takes operands that are within an error of the exact ones, and returns its exact result with a bound on what f32
instructions make of it (Higham, Accuracy and Stability, section 3.3). With u = 2^-24: sums, products and constants are rounded to
nearest, u. `v_rcp_f32`, `v_rsq_f32`, `v_sqrt_f32`, `v_exp_f32` and `v_log_f32` are off by 1 ulp, 2u (ISA guides), and take or
return 0 instead of subnormal numbers. An infinite bound says that nothing is known, as for a quotient by what may be 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.error_model import LARGEST_EXPONENT, SMALLEST_F32, UNIT_F32, Array, gamma
from simgpu.operators.expressions import NUMPY

ULP = 2 * UNIT_F32
SMALLEST_NORMAL = 2.0**-126
OWN = 2.0**-20  # relative to a bound: the float64 roundings of reference and analysis


@dataclass(frozen=True)
class Bounded:
    """Exact values, and a bound on a kernel's distance from them.

    >>> import numpy as np
    >>> from simgpu.operators.running_error import ARITHMETIC, Bounded
    >>> product = ARITHMETIC["multiply"](Bounded.exact(np.array([3.0])), Bounded.exact(np.array([5.0])))
    >>> product.value, bool(product.error[0] < 1e-5)
    (array([15.]), True)
    """

    value: Array  # float64
    error: Array  # float64, >= 0

    @classmethod
    def exact(cls, value: ArrayLike) -> Bounded:
        """Returns values that the kernel has exactly."""
        wide = np.asarray(value, np.float64)
        return cls(wide, np.zeros_like(wide))

    @classmethod
    def of(cls, value: Array, error: Array | float, unit: float = UNIT_F32, tiny: float = 0.0) -> Bounded:
        """Returns the result of an operation. error: from its operands. unit: its relative error; tiny: its absolute error."""
        whole = error + unit * (np.abs(value) + error) + tiny
        return cls(value, np.where(np.isnan(whole), np.inf, whole))

    @property
    def size(self) -> Array:
        """Bound on the kernel's magnitude."""
        return np.abs(self.value) + self.error

    @property
    def final_error(self) -> Array:
        """Bound with the float64 roundings of the reference and of the analysis."""
        return self.error * (1 + OWN) + OWN * UNIT_F32 * self.size

    def sum(self) -> Bounded:
        """Returns sums along the last axis, kept, for any order of additions in f32."""
        count, size = self.value.shape[-1], self.size.sum(-1, keepdims=True)
        own = gamma(count, UNIT_F32) + gamma(count, 2.0**-53)
        return Bounded(self.value.sum(-1, keepdims=True), self.error.sum(-1, keepdims=True) + own * size)

    def maximum(self) -> Bounded:
        """Returns the largest values along the last axis, kept."""
        return Bounded(np.fmax.reduce(self.value, -1, keepdims=True), self.error.max(-1, keepdims=True))


def _constant(number: float) -> Bounded:
    value = np.asarray(number, np.float64)
    return Bounded(value, np.abs(np.float32(number).astype(np.float64) - value))


def _multiply(x: Bounded, y: Bounded) -> Bounded:
    error = np.abs(x.value) * y.error + x.error * y.size
    return Bounded.of(x.value * y.value, error, tiny=SMALLEST_F32)


def _divide(x: Bounded, y: Bounded) -> Bounded:
    """x * rcp(y). A reciprocal that is subnormal may be 0."""
    least = np.abs(y.value) - y.error
    value = x.value / y.value
    error = np.where(least > 0, (x.error + np.abs(value) * y.error) / np.where(least > 0, least, 1.0), np.inf)
    return Bounded.of(value, error + SMALLEST_NORMAL * x.size, 2 * ULP, SMALLEST_F32)


def _sqrt(x: Bounded) -> Bounded:
    """A subnormal argument may count as 0."""
    least, value = np.maximum(x.value - x.error - SMALLEST_NORMAL, 0.0), np.sqrt(x.value)
    return Bounded.of(value, np.maximum(value - np.sqrt(least), np.sqrt(x.value + x.error) - value), ULP)


def _rsqrt(x: Bounded) -> Bounded:
    least, value = x.value - x.error, 1 / np.sqrt(x.value)
    far = least >= SMALLEST_NORMAL
    return Bounded.of(value, np.where(far, 1 / np.sqrt(np.where(far, least, 1.0)) - value, np.inf), ULP)


def _exp(x: Bounded) -> Bounded:
    """exp2(x * log2(e)): the factor and the product are rounded."""
    value = np.exp(np.minimum(x.value, LARGEST_EXPONENT))
    relative = np.expm1(np.minimum(x.error + 3 * UNIT_F32 * x.size, LARGEST_EXPONENT))
    return Bounded.of(value, value * relative, ULP, SMALLEST_NORMAL)


def _log(x: Bounded) -> Bounded:
    """log2(x) * log(2): the factor and the product are rounded. A subnormal argument may count as 0."""
    least, value = x.value - x.error, np.log(x.value)
    far = least >= SMALLEST_NORMAL
    return Bounded.of(value, np.where(far, value - np.log(np.where(far, least, 1.0)), np.inf), 2 * ULP)


def _binade(x: Bounded) -> Bounded:
    """Exact of an exact argument; of another one, it may be half as large or twice. A subnormal argument counts as 0."""
    value = NUMPY["binade"](x.value)
    return Bounded(value, np.where(x.error > 0, value + 2 * x.error, np.where(value < SMALLEST_NORMAL, value, 0.0)))


def _choose(function: Callable[..., Any]) -> Callable[[Bounded, Bounded], Bounded]:
    def choose(x: Bounded, y: Bounded) -> Bounded:
        return Bounded(function(x.value, y.value), np.maximum(x.error, y.error))

    return choose


def _select(condition: Bounded, yes: Bounded, no: Bounded) -> Bounded:
    """Chooses exactly, unless the condition's sign is in doubt: then the kernel may have chosen the other value."""
    value = np.where(condition.value > 0, yes.value, no.value)
    own = np.where(condition.value > 0, yes.error, no.error)
    doubt = (np.abs(condition.value) <= condition.error) & (condition.error > 0)
    other = np.where(np.isnan(yes.value - no.value), np.inf, np.abs(yes.value - no.value)) + np.maximum(yes.error, no.error)
    return Bounded(value, np.where(doubt, other, own))


ARITHMETIC: dict[str, Callable[..., Bounded]] = {
    "constant": _constant,
    "add": lambda x, y: Bounded.of(x.value + y.value, x.error + y.error),
    "subtract": lambda x, y: Bounded.of(x.value - y.value, x.error + y.error),
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _choose(np.maximum),
    "minimum": _choose(np.minimum),
    "absolute": lambda x: Bounded(np.abs(x.value), x.error),
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "exp": _exp,
    "log": _log,
    "binade": _binade,
    "select": _select,
}
