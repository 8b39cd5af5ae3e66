"""Floating-point rules that several instructions share, in the lane operations.

Sources: AMD "Instruction Set Architecture" guides of CDNA1 to CDNA4 (V_MIN_F32, V_MED3_F32, V_LDEXP_F32, V_FREXP_*,
V_FRACT_*, V_CVT_PKRTZ_F16_F32) and LLVM's AMDGPU documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import (
    Value,
    as_unsigned,
    bits,
    both,
    cast,
    const,
    either,
    floor,
    imax,
    imin,
    isnan,
    lshr,
    negate,
    quiet,
    replaceable,
    shl,
    unlikely,
    where,
)
from simgpu.hardware.isa.types import Type


@dataclass(frozen=True)
class BinaryFormat:
    """An IEEE 754 binary format."""

    exponent: int  # bits of the exponent field
    fraction: int  # bits of the fraction field
    bias: int

    @property
    def max_field(self) -> int:
        """Exponent field of infinities and NaNs."""
        return (1 << self.exponent) - 1

    @property
    def implicit(self) -> int:
        """Hidden bit in units of the last place, which is also the bit pattern of the smallest normal number."""
        return 1 << self.fraction


_FORMATS = {"f16": BinaryFormat(5, 10, 15), "f32": BinaryFormat(8, 23, 127), "f64": BinaryFormat(11, 52, 1023)}
WORDS = {16: t.u16, 32: t.u32, 64: t.u64}


def format_of(a: Value) -> BinaryFormat:
    """Returns the format of a's type."""
    return _FORMATS[a.type.name]


def sign_mask(a: Value) -> int:
    return 1 << (a.type.bits - 1)


def magnitude(a: Value) -> Value:
    """Returns the bits without the sign, as an unsigned integer."""
    return as_unsigned(abs(a))


def exponent_field(a: Value) -> Value:
    """Returns the biased exponent, as an unsigned integer of the same width."""
    return lshr(magnitude(a), format_of(a).fraction)


def is_denormal_or_zero(a: Value) -> Value:
    return magnitude(a) < format_of(a).implicit


def is_negative(a: Value) -> Value:
    """True if the sign bit is set, also for zeros and NaNs."""
    return (as_unsigned(a) & sign_mask(a)) != 0


def is_signaling(a: Value) -> Value:
    return both(isnan(a), (as_unsigned(a) & (format_of(a).implicit >> 1)) == 0)


def is_infinite(a: Value) -> Value:
    fields = format_of(a)
    return magnitude(a) == fields.max_field << fields.fraction


def signed_zero(a: Value) -> Value:
    return bits(as_unsigned(a) & sign_mask(a), a.type)


def with_sign_of(a: Value, source: Value) -> Value:
    """Returns |a| with the sign bit of `source`."""
    return bits(magnitude(a) | (as_unsigned(source) & sign_mask(a)), a.type)


@replaceable
def flush(a: Value) -> Value:
    """Returns a, or a zero of its sign if it is denormal."""
    return where(is_denormal_or_zero(a), signed_zero(a), a)


def pattern(like: Value, type_: Type, value: int) -> Value:
    """Returns the constant of a floating type with the given bits."""
    return bits(const(like, value, WORDS[type_.bits]), type_)


def default_nan(like: Value, type_: Type) -> Value:
    fields = _FORMATS[type_.name]
    return pattern(like, type_, (fields.max_field << fields.fraction) | fields.implicit >> 1)


def invalid_nan(like: Value, type_: Type) -> Value:
    """Returns the NaN for an operand outside a function's domain: its sign is set (CDNA4 guide, functional examples)."""
    return bits(as_unsigned(default_nan(like, type_)) | 1 << (type_.bits - 1), type_)


def power_of_two(exponent: Value, type_: Type) -> Value:
    """Returns 2**exponent; exponent: an integer as wide as the type, in the range of normal numbers."""
    fields = _FORMATS[type_.name]
    return bits(as_unsigned(shl(exponent + fields.bias, fields.fraction)), type_)


def _extreme(a: Value, b: Value, numbers: Value, ieee: int) -> Value:
    """Returns `numbers`; for a NaN and a number the number.

    If `ieee`, a signaling NaN is returned, quieted, even next to a number; that of a first.
    """

    def special() -> Value:
        result = where(isnan(a), b, where(isnan(b), a, numbers))
        if ieee:
            result = where(is_signaling(b), quiet(b), result)
            result = where(is_signaling(a), quiet(a), result)
        return result

    return unlikely(either(isnan(a), isnan(b)), numbers, special)


def _unclear(a: Value, b: Value) -> Value:
    """True if neither is less but their bits differ: zeros of both signs, or one is a NaN."""
    return both(negate(either(a < b, a > b)), as_unsigned(a) != as_unsigned(b))


@replaceable
def minimum_number(a: Value, b: Value, ieee: int = 1) -> Value:
    """Returns V_MIN_F32's result: -0 < +0; a number rather than a NaN, but a signaling NaN, quieted, if MODE.IEEE is set."""
    # Both are the lesser number. For zeros, they are b and a: one sign bit is enough.
    return _extreme(a, b, bits(as_unsigned(where(a < b, a, b)) | as_unsigned(where(b < a, b, a)), a.type), ieee)


@replaceable
def maximum_number(a: Value, b: Value, ieee: int = 1) -> Value:
    """Returns V_MAX_F32's result; see `minimum_number`."""
    return _extreme(a, b, bits(as_unsigned(where(a > b, a, b)) & as_unsigned(where(b > a, b, a)), a.type), ieee)


@replaceable
def median(a: Value, b: Value, c: Value, ieee: int = 1) -> Value:
    """Returns V_MED3_F32's result: the median, or the `minimum_number` of the three if one is a NaN."""
    def special() -> Value:
        least = minimum_number(minimum_number(a, b, ieee), c, ieee)
        most = maximum_number(maximum_number(a, b, ieee), c, ieee)
        middle = where(
            most == a,
            maximum_number(b, c, ieee),
            where(most == b, maximum_number(a, c, ieee), maximum_number(a, b, ieee)),
        )
        return where(either(isnan(a), either(isnan(b), isnan(c))), least, middle)

    low, high = where(a < b, a, b), where(a < b, b, a)
    upper = where(high < c, high, c)
    unclear = either(either(_unclear(a, b), _unclear(b, c)), either(_unclear(a, c), isnan(a)))
    return unlikely(unclear, where(low > upper, low, upper), special)


@replaceable
def minimum(a: Value, b: Value) -> Value:
    """Returns the IEEE 754-2019 minimum: the first NaN, quieted, if there is one; -0 < +0."""
    zeros = bits(as_unsigned(a) | as_unsigned(b), a.type)
    least = where(a == b, zeros, where(a < b, a, b))
    return where(isnan(a), quiet(a), where(isnan(b), quiet(b), least))


@replaceable
def maximum(a: Value, b: Value) -> Value:
    """Returns the IEEE 754-2019 maximum; see `minimum`."""
    zeros = bits(as_unsigned(a) & as_unsigned(b), a.type)
    most = where(a == b, zeros, where(a > b, a, b))
    return where(isnan(a), quiet(a), where(isnan(b), quiet(b), most))


@replaceable
def ldexp(a: Value, exponent: Value) -> Value:
    """Returns a · 2**exponent, rounded once; exponent: i32 (i16 for f16), any value.

    It multiplies by three factors; the first two are chosen so that only the last product can round (the scheme of C's
    scalbn). A step down leaves the significand's width above the smallest normal exponent.
    """
    if a.type is t.f16:
        power = power_of_two(cast(imax(imin(exponent, 64), -64), t.i32), t.f32)
        return cast(cast(a, t.f32) * power, t.f16)
    fields = format_of(a)
    up, down = fields.bias, fields.fraction + 2 - fields.bias
    n = imax(imin(exponent, 3 * up), 2 * down - up + 1)
    for _ in range(2):
        step = where(n > up, const(n, up), where(n < 1 - up, const(n, down), const(n, 0)))
        a = a * power_of_two(_as_wide(step, a.type), a.type)
        n = n - step
    return a * power_of_two(_as_wide(n, a.type), a.type)


def _as_wide(n: Value, type_: Type) -> Value:
    return cast(n, t.i64) if type_ is t.f64 else n


def _normalize(a: Value) -> tuple[Value, Value]:
    """Returns a, scaled up by 2**(fraction + 1) if it is denormal, and True if it is."""
    small = is_denormal_or_zero(a)
    return where(small, a * float(2 << format_of(a).fraction), a), small


@replaceable
def frexp_mantissa(a: Value) -> Value:
    """Returns V_FREXP_MANT's result: the significand in [0.5, 1) with a's sign; zeros, infinities and (quieted) NaNs unchanged."""
    fields = format_of(a)
    scaled, _ = _normalize(a)
    word = as_unsigned(scaled) & (sign_mask(a) | (fields.implicit - 1))
    half = bits(word | ((fields.bias - 1) << fields.fraction), a.type)
    special = either(a == 0.0, magnitude(a) >= fields.max_field << fields.fraction)
    return where(special, quiet(a), half)


@replaceable
def frexp_exponent(a: Value) -> Value:
    """Returns V_FREXP_EXP's result: e of a = m · 2**e, |m| in [0.5, 1), as an unsigned word of a's width (two's complement).

    Zero, infinity and NaN give 0.
    """
    fields = format_of(a)
    scaled, small = _normalize(a)
    bias = where(small, const(magnitude(a), fields.bias + fields.fraction), fields.bias - 1)
    special = either(a == 0.0, magnitude(a) >= fields.max_field << fields.fraction)
    return where(special, 0, exponent_field(scaled) - bias)


@replaceable
def fract(a: Value) -> Value:
    """Returns V_FRACT's result: a - floor(a), at most the largest number below 1 (llvm.amdgcn.fract)."""
    fields = format_of(a)
    below_one = pattern(a, a.type, (fields.bias << fields.fraction) - 1)
    result = a - floor(a)
    return where(result >= below_one, below_one, result)


@replaceable
def to_f16_toward_zero(a: Value) -> Value:
    """Returns f32 rounded to f16 toward zero; a finite value never becomes infinite."""
    rounded = cast(a, t.f16)
    word = as_unsigned(rounded)
    return bits(where(abs(cast(rounded, t.f32)) > abs(a), word - 1, word), t.f16)


def multiply_add(a: Value, b: Value, c: Value) -> Value:
    """Returns V_MAD_F32's result: a·b + c with two roundings, denormals flushed at each step independently of MODE."""
    return flush(flush(flush(a) * flush(b)) + flush(c))
