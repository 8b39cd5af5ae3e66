"""Ranges of the result types of conversions from floats to integers and small floats.

The ISA names them `v_cvt_[how_]RESULT_SOURCE`. Normalising ones (pknorm, norm) clamp to [-1, 1] by design and have no range here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type
from simgpu.hardware.mfma.numbers import FORMATS, NumberFormat

NAME = re.compile(r"v_cvt_(?:\w+_)?([a-z]+\d+)_[a-z]+\d+")
INTEGER = re.compile(r"([iu])(8|16|32)")
SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
NUMPY: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32}


@dataclass(frozen=True)
class NumberRange:
    """Numbers that a conversion can represent after rounding, and the ends of its result's type."""

    low: float
    high: float
    low_is_held: bool  # True if `low` itself is in range
    high_is_held: bool  # True if `high` itself is in range
    least: float  # lowest finite number of the result's type
    most: float  # highest finite number of the result's type
    small: str = ""  # the small float, "" for integers
    saturates: bool = True  # True if numbers out of range become the nearest result; False if they become infinity or NaN


def largest(form: NumberFormat) -> tuple[float, float, bool]:
    """Returns the largest finite number of a small float, the distance to its lower neighbour, and True if its code is even."""
    top = (1 << form.exponent) - 1
    fraction = (1 << form.mantissa) - 1
    if form.special == "ieee":
        top -= 1
    elif form.special == "e4m3":  # all ones is the NaN
        fraction -= 1
    unit = 2.0 ** (top - form.bias - form.mantissa)
    return math.ldexp((1 << form.mantissa) + fraction, top - form.bias - form.mantissa), unit, fraction % 2 == 0


def range_of(spec: Spec, target: str, source: Type) -> NumberRange | None:
    """Returns the range of a conversion from `source`, None for other instructions and for results of 16 bits or more that are
    floats."""
    named = NAME.fullmatch(spec.mnemonic)
    if not named or "norm" in spec.mnemonic:
        return None
    result = named[1]
    if result in SMALL:
        name = f"{result}_fnuz" if target == "gfx942" and result in ("fp8", "bf8") else result
        form = FORMATS[name]
        most, unit, even = largest(form)
        edge = most + unit / 2  # rounds to the largest number if that is even
        if "_sr_" in spec.mnemonic:  # random bits may round any number above the largest up
            edge, even = most, True
        return NumberRange(-edge, edge, even, even, -most, most, name, saturates=form.special == "finite")
    integer = INTEGER.fullmatch(result)
    if not integer or not source.is_float:
        return None
    bits = int(integer[2])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if integer[1] == "i" else (0, (1 << bits) - 1)
    # Conversion rounds toward 0, so all numbers between least - 1 and most + 1 are in range. If the source type cannot hold
    # least - 1, the range begins with `least`.
    holds = float(NUMPY[source.name](least - 1)) == least - 1
    return NumberRange(float(least - 1 if holds else least), float(most + 1), not holds, False, float(least), float(most))
