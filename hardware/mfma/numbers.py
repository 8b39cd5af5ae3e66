"""Number formats of matrix operands, as raw bits: fields, infinities and NaNs.

Sources: IEEE 754 for f16, f32, f64 (bf16: f32's upper half); OCP 8-bit floating point 1.0 for fp8 (e4m3) and bf8
(e5m2); FNUZ, one zero and one NaN 0x80, CDNA3 ISA guide; OCP microscaling 1.0 for fp6 (e2m3), bf6 (e3m2), fp4 (e2m1),
which have neither, and for E8M0 scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format."""

    exponent: int  # bits of the field
    mantissa: int  # bits of the field
    bias: int
    # ieee: the top exponent is Inf and NaN; e4m3: only all ones is NaN; fnuz: only minus zero is NaN; finite: neither.
    special: Literal["ieee", "e4m3", "fnuz", "finite"]


FORMATS = {
    "f32": NumberFormat(8, 23, 127, "ieee"), "f16": NumberFormat(5, 10, 15, "ieee"), "bf16": NumberFormat(8, 7, 127, "ieee"),
    "fp8": NumberFormat(4, 3, 7, "e4m3"), "bf8": NumberFormat(5, 2, 15, "ieee"),
    "fp8_fnuz": NumberFormat(4, 3, 8, "fnuz"), "bf8_fnuz": NumberFormat(5, 2, 16, "fnuz"),
    "fp6": NumberFormat(2, 3, 1, "finite"), "bf6": NumberFormat(3, 2, 3, "finite"), "fp4": NumberFormat(2, 1, 1, "finite"),
}  # fmt: skip


@dataclass(frozen=True)
class NumberFields:
    """Decoded numbers, in arrays of one shape: value = significand · 2^(exponent − mantissa)."""

    significand: np.ndarray  # int64, signed; undefined if nan or inf is set
    exponent: np.ndarray  # int64; for subnormals and zeros the format's least
    negative: np.ndarray  # bool, also of zeros and NaNs
    nan: np.ndarray  # bool
    inf: np.ndarray  # bool
    mantissa: int  # bits of the format's field

    @property
    def zero(self) -> np.ndarray:
        """Mask of numbers whose significand is 0."""
        return self.significand == 0


def decode(bits: np.ndarray, name: str) -> NumberFields:
    """Returns the fields of raw bits of the format `name`."""
    form = FORMATS[name]
    raw = bits.astype(np.int64)
    fraction = raw & ((1 << form.mantissa) - 1)
    biased = raw >> form.mantissa & ((1 << form.exponent) - 1)
    negative = (raw >> (form.mantissa + form.exponent) & 1).astype(bool)
    top = biased == (1 << form.exponent) - 1
    nan = inf = np.zeros(raw.shape, bool)
    if form.special == "ieee":
        nan, inf = top & (fraction != 0), top & (fraction == 0)
    elif form.special == "e4m3":
        nan = top & (fraction == (1 << form.mantissa) - 1)
    elif form.special == "fnuz":
        nan = (biased == 0) & (fraction == 0) & negative
    magnitude = fraction + ((biased > 0).astype(np.int64) << form.mantissa)
    magnitude[nan | inf] = 0
    return NumberFields(
        np.where(negative, -magnitude, magnitude),
        np.maximum(biased, 1) - form.bias,
        negative,
        nan,
        inf,
        form.mantissa,
    )


def to_f32(bits: np.ndarray, name: str) -> np.ndarray:
    """Returns the same numbers as float32, exactly; NaN payloads are lost."""
    x = decode(bits, name)
    value = np.ldexp(x.significand.astype(np.float64), x.exponent - x.mantissa).astype(np.float32)
    value = np.where(x.negative, -abs(value), value)
    return np.where(x.nan, np.float32("nan"), np.where(x.inf, np.copysign(np.float32("inf"), value), value))
