"""Conversions to and from 8-, 6- and 4-bit floats, in the lane operations.

Sources: CDNA3 and CDNA4 ISA guides (V_CVT_PK_FP8_F32, V_CVT_SR_*, V_CVT_SCALEF32_*), OCP 8-bit float and microscaling
specifications, and the host emulation in ROCm's amd_hip_ocp_host.hpp for the alignment of the random bits. Formats: fp8
is e4m3 and bf8 e5m2. On gfx942 they have no infinities and no negative zero (FNUZ); on gfx950 they are OCP's.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.floats import ldexp
from simgpu.hardware.isa.lane import (
    Value,
    as_signed,
    as_unsigned,
    bits,
    cast,
    const,
    either,
    imax,
    imin,
    isnan,
    lshr,
    replaceable,
    shl,
    where,
)
from simgpu.hardware.isa.types import Type


@dataclass(frozen=True)
class SmallFloat:
    """A float format of at most 8 bits, with the sign in the top bit. Codes are those of magnitudes."""

    name: str
    exponent: int  # bits of the exponent field
    fraction: int  # bits of the fraction field
    bias: int
    largest: int  # code of the largest finite number
    overflow: int  # code that larger finite numbers become
    infinite: int  # code of an infinity
    nan: int  # code of a NaN
    unsigned_specials: bool = False  # zero and NaN have one code each (FNUZ), so their sign is dropped

    @property
    def width(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent + self.fraction


FP8 = SmallFloat("fp8", 4, 3, 7, 0x7E, overflow=0x7F, infinite=0x7F, nan=0x7F)
BF8 = SmallFloat("bf8", 5, 2, 15, 0x7B, overflow=0x7C, infinite=0x7C, nan=0x7E)
FP8_FNUZ = SmallFloat("fp8", 4, 3, 8, 0x7F, 0x80, 0x80, 0x80, unsigned_specials=True)
BF8_FNUZ = SmallFloat("bf8", 5, 2, 16, 0x7F, 0x80, 0x80, 0x80, unsigned_specials=True)
# These microscaling formats have neither infinities nor NaNs; the largest magnitude replaces them.
FP6 = SmallFloat("fp6", 2, 3, 1, 0x1F, 0x1F, 0x1F, 0x1F)
BF6 = SmallFloat("bf6", 3, 2, 3, 0x1F, 0x1F, 0x1F, 0x1F)
FP4 = SmallFloat("fp4", 2, 1, 1, 0x7, 0x7, 0x7, 0x7)

SCALE_NAN = 0xFF  # E8M0


def scale_exponent(scale: Value) -> Value:
    """Returns the exponent field of an f32 scale operand, as i32; sign and fraction are ignored."""
    return as_signed(lshr(as_unsigned(scale), 23) & 0xFF)


def _fields(a: Value) -> tuple[Value, Value]:
    """Returns exponent e (i32) and 24-bit significand m (u32) of a normal f32 |a| = m · 2**(e - 23)."""
    word = as_unsigned(a)
    return as_signed(lshr(word, 23) & 0xFF) - 127, (word & 0x7FFFFF) | 0x800000


def _unpack(a: Value) -> tuple[Value, Value]:
    """Returns exponent e (i32) and 24-bit significand m (u32) of an f32 |a| = m · 2**(e - 23), m >= 2**23.

    Zero has e = -400, below the range of every format.
    """
    small = (as_unsigned(a) & 0x7F800000) == 0
    e, m = _fields(where(small, a * float(1 << 24), a))
    e = where(small, e - 24, e)
    return where((as_unsigned(a) & 0x7FFFFFFF) == 0, const(e, -400), e), m


@replaceable
def encode(
    a: Value,
    form: SmallFloat,
    *,
    scale: Value | None = None,
    seed: Value | None = None,
    fp16_ovfl: int = 0,
) -> Value:
    """Returns the code of f32 a in `form`, in the low bits of a u32.

    scale: a is divided by 2**(scale - 127), an i32; 255 gives NaN.
    seed: random u32 for stochastic rounding. Its top bits are added below the last kept bit, then the sum is truncated.
    Without a seed, rounding is to nearest even. fp16_ovfl: MODE's bit; if set, large finite numbers saturate.
    """
    # Without a scale, f32's denormal numbers are far below the least number of every format, whatever their exponent.
    e, m = _fields(a) if scale is None else _unpack(a)
    if scale is not None:
        e = e - (scale - 127)
    lowest = 1 - form.bias
    above = imax(e - lowest, 0)
    below = as_unsigned(imin(imax(lowest - e, 0), 31))  # bits that a denormal result loses in addition
    drop = 23 - form.fraction
    if seed is None:
        count = imin(below + drop, 31)  # of the 24 bits of m
        unit = shl(const(m, 1), count)
        kept = lshr(m + lshr(unit, 1) - 1 + (lshr(m, count) & 1), count)  # to nearest even
    else:
        kept = lshr(lshr(m, below) + lshr(seed, 32 - drop), drop)
    code = shl(as_unsigned(above), form.fraction) + kept
    too_large = form.largest if fp16_ovfl else form.overflow
    code = where(code > form.largest, const(code, too_large), code)
    if form.infinite != too_large:
        code = where(abs(a) == float("inf"), const(code, form.infinite), code)
    if scale is not None or form.nan != too_large:
        invalid = isnan(a) if scale is None else either(isnan(a), scale == SCALE_NAN)
        code = where(invalid, const(code, form.nan), code)
    sign = shl(lshr(as_unsigned(a), 31), form.width - 1)
    if form.unsigned_specials:
        sign = where(code == 0, const(sign, 0), sign)  # a NaN's code is the sign bit
    return code | sign


@replaceable
def decode(code: Value, form: SmallFloat) -> Value:
    """Returns the value of the code in the low bits of a u32 as f32, exactly."""
    sign = shl(lshr(code, form.width - 1) & 1, 31)
    magnitude = code & ((1 << (form.width - 1)) - 1)
    normal = shl(magnitude, 23 - form.fraction) + ((127 - form.bias) << 23)
    small = cast(magnitude, t.f32) * 2.0 ** (1 - form.bias - form.fraction)
    value = where(magnitude < 1 << form.fraction, as_unsigned(small), normal)
    if form is FP8:
        value = where(magnitude == form.nan, const(value, 0x7FC00000), value)
    elif form is BF8:
        value = where(magnitude == form.infinite, const(value, 0x7F800000), value)
        value = where(magnitude > form.infinite, const(value, 0x7FC00000), value)
    value = value | sign
    if form.unsigned_specials:
        value = where((code & 0xFF) == form.nan, const(value, 0x7FC00000), value)
    return bits(value, t.f32)


@replaceable
def decode_scaled(code: Value, form: SmallFloat, scale: Value, type_: Type) -> Value:
    """Returns the code's value times 2**(scale - 127), rounded to f32, f16 or bf16; NaN for scale 255."""
    value = cast(ldexp(decode(code, form), scale - 127), type_)
    return where(scale == SCALE_NAN, _nan(value), value)


def _nan(like: Value) -> Value:
    patterns = {"f32": (0x7FC00000, t.u32), "f16": (0x7E00, t.u16), "bf16": (0x7FC0, t.u16)}
    pattern, word = patterns[like.type.name]
    return bits(const(like, pattern, word), like.type)


@replaceable
def stochastic_f16(a: Value, seed: Value) -> Value:
    """Returns f32 rounded to f16: the seed's top 13 bits are added below the last kept bit, then the sum is truncated.

    A finite number beyond f16's range becomes infinite; a NaN is quieted.
    """
    e, m = _unpack(a)
    below = as_unsigned(imin(imax(-14 - e, 0), 31))
    kept = lshr(lshr(m, below) + lshr(seed, 19), 13)
    code = shl(as_unsigned(imax(e + 14, 0)), 10) + kept
    code = imin(code, 0x7C00)
    word = cast(code | shl(lshr(as_unsigned(a), 31), 15), t.u16)
    return where(abs(a) < float("inf"), bits(word, t.f16), cast(a, t.f16))


@replaceable
def stochastic_bf16(a: Value, seed: Value) -> Value:
    """Returns f32 rounded to bf16: the seed's top 16 bits are added below the last kept bit, then the sum is truncated."""
    word = cast(lshr(as_unsigned(a) + lshr(seed, 16), 16), t.u16)
    return where(abs(a) < float("inf"), bits(word, t.bf16), cast(a, t.bf16))
