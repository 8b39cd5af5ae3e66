"""Instructions of the division sequence: V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP.

The sequence for n/d: V_DIV_SCALE scales d and n; V_RCP approximates 1/d; fused multiply-adds refine the quotient; V_DIV_FMAS is
the last of them and undoes the scaling; V_DIV_FIXUP handles special cases. Sources: CDNA3 and CDNA4 ISA guides.

Three places differ from the guides' text, since a correctly rounded division requires it (tests run the whole sequence):

* V_DIV_SCALE divides (not multiplies) a huge denominator by 2**64 (2**128), because the product overflows.
* V_DIV_FMAS scales by 2**±64 (2**±128), up if the addend's exponent is above the bias; the text has one factor 2**32 (2**64).
* V_DIV_FIXUP treats an infinite or NaN quotient of finite operands as an overflow; the text requires an exponent of 255 in the
  denominator.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.floats import (
    default_nan,
    exponent_field,
    format_of,
    invalid_nan,
    is_denormal_or_zero,
    is_infinite,
    is_negative,
    ldexp,
    magnitude,
    with_sign_of,
)
from simgpu.hardware.isa.lane import (
    Value,
    as_signed,
    as_unsigned,
    bits,
    both,
    const,
    differ,
    div,
    either,
    fma,
    isnan,
    negate,
    quiet,
    replaceable,
    unlikely,
    where,
)


@dataclass(frozen=True)
class Scaling:
    """Constants of V_DIV_SCALE for a type; limits are exponent fields or their differences."""

    factor: int  # exponent of the scale factor
    spread: int  # n/d counts as near overflow from this difference on
    tiny: int  # the numerator counts as tiny up to this field
    underflow: int  # V_DIV_FIXUP: n/d is zero below this difference


SCALINGS = {"f32": Scaling(64, 96, 23, -150), "f64": Scaling(128, 768, 53, -1075)}


def _spread(n: Value, d: Value) -> Value:
    """Returns n's exponent field minus d's, signed."""
    return as_signed(exponent_field(n)) - as_signed(exponent_field(d))


@replaceable
def scale(a: Value, d: Value, n: Value) -> tuple[Value, Value]:
    """Returns V_DIV_SCALE(a, denominator, numerator), where a is one of the two.

    That is a, scaled so that the refinement neither over- nor underflows, and True if V_DIV_FMAS must undo a scaling.
    """
    rule, fields = SCALINGS[a.type.name], format_of(a)
    of_n, of_d, spread = exponent_field(n), exponent_field(d), _spread(n, d)
    # If neither n/d nor 1/d is near a denormal number or an overflow, nothing is scaled.
    usual_n = both(of_n > rule.tiny, of_n < fields.max_field)
    usual_d = both(of_d > 0, of_d < 2 * fields.bias - 2)
    unusual = negate(both(both(usual_n, usual_d), both(spread < rule.spread, spread > 4 - fields.bias)))
    result = unlikely(either(unusual, isnan(a)), a, lambda: _scale(a, d, n)[0])
    return result, unlikely(unusual, const(unusual, 0), lambda: _scale(a, d, n)[1])


def _scale(a: Value, d: Value, n: Value) -> tuple[Value, Value]:
    """Returns the result of `scale` for any operands."""
    rule = SCALINGS[a.type.name]
    i32 = const(a, 0, t.i32)
    up, down = ldexp(a, i32 + rule.factor), ldexp(a, i32 - rule.factor)
    is_d, is_n = a == d, a == n
    near_overflow = _spread(n, d) >= rule.spread
    d_denormal = is_denormal_or_zero(d)
    reciprocal_denormal = is_denormal_or_zero(div(const(d, 1.0), d))
    # The smallest normal also counts: n/d may be a denormal that rounds up to it.
    quotient_denormal = magnitude(div(n, d)) <= format_of(a).implicit
    numerator_tiny = exponent_field(n) <= rule.tiny

    result = where(numerator_tiny, up, a)
    result = where(quotient_denormal, where(is_n, up, a), result)
    result = where(reciprocal_denormal, down, result)
    both_denormal = both(reciprocal_denormal, quotient_denormal)
    result = where(both_denormal, where(is_d, down, a), result)
    result = where(d_denormal, up, result)
    result = where(near_overflow, where(is_d, up, a), result)
    invalid = either(n == 0.0, d == 0.0)
    result = where(invalid, default_nan(a, a.type), result)

    undo = either(near_overflow, both(quotient_denormal, negate(d_denormal)))
    return where(isnan(a), quiet(a), result), both(undo, negate(invalid))


def _rounded_to_odd(a: Value, b: Value, c: Value) -> Value:
    """Returns a·b + c rounded to odd: truncated, with the last bit set if that is inexact.

    The residual's sign tells on which side of the rounded sum the exact sum is.
    """
    rounded = fma(a, b, c)
    residual = fma(a, b, c - rounded)
    word = as_unsigned(rounded)
    outward = negate(differ(residual < 0.0, rounded < 0.0))
    nudged = where(outward, word + 1, word - 1)
    return bits(where(both(residual != 0.0, (word & 1) == 0), nudged, word), a.type)


def _rounded_to_denormal(a: Value, b: Value, c: Value, smallest_normal: float) -> Value:
    """Returns a·b + c rounded once to multiples of smallest_normal · 2**-fraction.

    The sum is below smallest_normal, and a·b is small compared with c.
    """
    shifter = with_sign_of(const(c, smallest_normal), c)  # its last bit is the wanted quantum
    shifted = c + shifter
    rest = c - (shifted - shifter)  # exact
    return with_sign_of((shifted + _rounded_to_odd(a, b, rest)) - shifter, c)


@replaceable
def fmas(a: Value, b: Value, c: Value, undo: Value) -> Value:
    """Returns V_DIV_FMAS: a·b + c; if `undo`, times 2**±factor, rounded once."""
    factor, bias = SCALINGS[a.type.name].factor, format_of(a).bias
    rounded = fma(a, b, c)

    def scale_result() -> Value:
        smallest_normal = 2.0 ** (1 - bias + factor)  # the smallest number that stays normal when scaled down
        fine = _rounded_to_denormal(a, b, c, smallest_normal)
        down = where(abs(rounded) < smallest_normal, fine, rounded) * 2.0**-factor
        return where(exponent_field(c) > bias, rounded * 2.0**factor, down)

    return unlikely(undo, rounded, scale_result)


@replaceable
def fixup(a: Value, d: Value, n: Value) -> Value:
    """Returns V_DIV_FIXUP(quotient, denominator, numerator): |a| with the sign of n/d, or the result for special n and d.

    0/0 and inf/inf give the default NaN with its sign set, as in the guides.
    """
    negative = differ(is_negative(d), is_negative(n))
    sign = where(negative, const(a, -1.0), 1.0)
    fields = format_of(a)
    unusual = exponent_field(a) == fields.max_field
    for operand in (d, n):
        unusual = either(unusual, either(magnitude(operand) == 0, exponent_field(operand) == fields.max_field))
    if a.type is not t.f16:
        unusual = either(unusual, _spread(n, d) < SCALINGS[a.type.name].underflow)
    return unlikely(unusual, with_sign_of(a, sign), lambda: _special_quotient(a, d, n, sign))


def _special_quotient(a: Value, d: Value, n: Value, sign: Value) -> Value:
    infinity = with_sign_of(const(a, float("inf")), sign)
    zero = with_sign_of(const(a, 0.0), sign)
    result = with_sign_of(a, sign)
    if a.type is not t.f16:
        overflown = magnitude(a) >= magnitude(infinity)
        result = where(overflown, infinity, result)
        result = where(_spread(n, d) < SCALINGS[a.type.name].underflow, zero, result)
    d_zero, n_zero = magnitude(d) == 0, magnitude(n) == 0
    d_inf, n_inf = is_infinite(d), is_infinite(n)
    result = where(either(d_inf, n_zero), zero, result)
    result = where(either(d_zero, n_inf), infinity, result)
    invalid = either(both(d_zero, n_zero), both(d_inf, n_inf))
    result = where(invalid, invalid_nan(a, a.type), result)
    return where(isnan(n), quiet(n), where(isnan(d), quiet(d), result))
