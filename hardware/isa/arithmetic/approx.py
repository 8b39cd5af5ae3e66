"""Transcendental instructions in the lane operations: polynomials, without library calls.

AMD documents error bounds for these, not exact results. Each function states its own bound; tests check it against mpmath.
An operand outside a function's domain gives a NaN with its sign set. f32 forms flush denormals, read and written
(LLVM's AMDGPU lowering rescales operands for that reason); f16 forms keep them.

Coefficients: Chebyshev interpolation in 40 digits, rounded to f32.
"""

from __future__ import annotations

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.floats import flush, invalid_nan, is_infinite
from simgpu.hardware.isa.lane import (
    Value,
    as_signed,
    as_unsigned,
    ashr,
    bits,
    both,
    cast,
    const,
    div,
    either,
    fma,
    isnan,
    negate,
    quiet,
    replaceable,
    rint,
    shl,
    sqrt,
    unlikely,
    where,
)

# (2**f - 1) / f on [-1/2, 1/2]
EXP2 = (
    0.6931471824645996,
    0.24022650718688965,
    0.055503569543361664,
    0.009618083015084267,
    0.0013390863314270973,
    0.00015453163359779865,
)
# log2(e) in two parts, and (log2(1 + f) - f·log2(e)) / f**2 on [sqrt(1/2) - 1, sqrt(2) - 1]
LOG2E, LOG2E_LOW = 1.4426950216293335, 1.925963033500011e-08
LOG2 = (
    -0.7213475108146667,
    0.4808982014656067,
    -0.3606739044189453,
    0.2885598838329315,
    -0.24046172201633453,
    0.20532894134521484,
    -0.17919448018074036,
    0.17041310667991638,
    -0.1667364239692688,
    0.09765637665987015,
)
# 2π in two parts, (sin(2πr)/r - 2π) / r**2 and (cos(2πr) - 1) / r**2 in r**2 on [0, 1/64]
TAU, TAU_LOW = 6.2831854820251465, -1.7484555314695172e-07
SIN = (-41.34170150756836, 81.60523223876953, -76.70128631591797, 41.589542388916016)
COS = (
    -19.739208221435547,
    64.93939208984375,
    -85.45679473876953,
    60.24045181274414,
    -26.119218826293945,
)
SQRT_HALF_BITS = 0x3F3504F3
SMALLEST_NORMAL = 2.0**-126
TRIG_RANGE = 256.0  # revolutions; beyond it V_SIN gives 0 and V_COS 1 (CDNA1 and CDNA2 guides, V_SIN_F32)


def _polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """Returns a polynomial's value, by Horner's scheme; coefficients from the constant term up."""
    result = const(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, const(x, c))
    return result


@replaceable
def exp2_f32(x: Value) -> Value:
    """Returns 2**x within 1 ulp; results below 2**-126 are 0."""
    whole = rint(x)
    f = x - whole
    power = as_unsigned(shl(cast(whole, t.i32), 23))
    value = bits(as_unsigned(fma(f, _polynomial(f, EXP2), const(x, 1.0))) + power, t.f32)

    def out_of_range() -> Value:
        return where(isnan(x), quiet(x), where(x < 0.0, const(x, 0.0), float("inf")))

    return unlikely(negate(both(x >= -126.0, x < 128.0)), value, out_of_range)


@replaceable
def log2_f32(x: Value) -> Value:
    """Returns log2(x) within 1 ulp; a denormal counts as zero."""
    word = as_unsigned(x) - SQRT_HALF_BITS
    whole = ashr(as_signed(word), 23)  # the exponent that leaves a significand in [sqrt(½), sqrt(2))
    m = bits((word & 0x007FFFFF) + SQRT_HALF_BITS, t.f32)
    f = m - 1.0
    tail = fma(f, const(x, LOG2E_LOW), f * f * _polynomial(f, LOG2))
    value = cast(whole, t.f32) + fma(f, const(x, LOG2E), tail)

    def out_of_range() -> Value:
        zeroed = flush(x)
        special = where(zeroed == 0.0, float("-inf"), where(zeroed < 0.0, invalid_nan(x, t.f32), x))
        return where(isnan(x), quiet(x), special)

    return unlikely(negate(both(x >= SMALLEST_NORMAL, x < float("inf"))), value, out_of_range)


@replaceable
def rcp_f32(x: Value) -> Value:
    """Returns 1/x, correctly rounded (documented: 1 ulp); denormal operands and results count as zero."""
    return flush(div(const(x, 1.0), flush(x)))


@replaceable
def rsq_f32(x: Value) -> Value:
    """Returns 1/sqrt(x) within little more than ½ ulp (documented: 1): two roundings in f64, one to f32."""
    wide = cast(flush(x), t.f64)
    return cast(div(const(wide, 1.0), root(wide)), t.f32)


@replaceable
def root(x: Value) -> Value:
    """Returns sqrt(x), correctly rounded (documented: 1 ulp, 2**29 ulp for f64)."""
    return where(x < 0.0, invalid_nan(x, x.type), sqrt(x))


@replaceable
def sqrt_f32(x: Value) -> Value:
    """Returns sqrt(x), correctly rounded (documented: 1 ulp); a denormal counts as zero."""
    return root(flush(x))


@replaceable
def rcp_f64(x: Value) -> Value:
    """Returns 1/x, correctly rounded; the hardware's is within 2**29 ulp, a seed for Newton steps (ISA guide)."""
    return div(const(x, 1.0), x)


@replaceable
def rsq_f64(x: Value) -> Value:
    """Returns 1/sqrt(x) within 2 ulp; the hardware's is within 2**29 ulp, a seed for Newton steps (ISA guide)."""
    return div(const(x, 1.0), root(x))


def _octant(x: Value) -> tuple[Value, Value, Value]:
    """Returns the number of quarter turns nearest to x revolutions (i32), and the sine and cosine of the rest."""
    r = x - rint(x)
    quarter = rint(r * 4.0)
    r = r - quarter * 0.25  # exact, within [-1/8, 1/8]
    z = r * r
    sine = fma(r, const(x, TAU), r * fma(z, _polynomial(z, SIN), const(x, TAU_LOW)))
    cosine = fma(z, _polynomial(z, COS), const(x, 1.0))
    return cast(quarter, t.i32), sine, cosine


def _pick_by_quarter(quarter: Value, even: Value, odd: Value) -> Value:
    """Selects `even` or `odd` by the parity of the quarter turns, and negates it in the second half turn."""
    value = where((quarter & 1) == 0, even, odd)
    value = where((quarter & 2) == 0, value, -value)
    return where(value == 0.0, 0.0, value)  # +0 at every zero crossing


def _trig_specials(x: Value, value: Value) -> Value:
    return where(either(isnan(x), is_infinite(x)), where(isnan(x), quiet(x), invalid_nan(x, x.type)), value)


@replaceable
def sin_f32(x: Value) -> Value:
    """Returns sin(2πx) for x in revolutions, within 1 ulp; NaN for infinities."""
    quarter, sine, cosine = _octant(x)
    return _trig_specials(x, where(x == 0.0, x, _pick_by_quarter(quarter, sine, cosine)))


@replaceable
def cos_f32(x: Value) -> Value:
    """Returns cos(2πx) for x in revolutions, within 1 ulp; NaN for infinities."""
    quarter, sine, cosine = _octant(x)
    return _trig_specials(x, _pick_by_quarter(quarter + 1, sine, cosine))


@replaceable
def within_trig_range(x: Value, value: Value, beyond: float) -> Value:
    """Returns `value`, the sine or cosine of x; `beyond` for finite |x| > 256, as on CDNA1 and CDNA2."""
    return where(both(abs(x) > TRIG_RANGE, negate(is_infinite(x))), beyond, value)


@replaceable
def exp2_f16(x: Value) -> Value:
    """Returns 2**x within 1 ulp, denormals kept."""
    return cast(exp2_f32(cast(x, t.f32)), t.f16)


@replaceable
def log2_f16(x: Value) -> Value:
    """Returns log2(x) within 1 ulp, denormals kept."""
    return cast(log2_f32(cast(x, t.f32)), t.f16)


@replaceable
def rcp_f16(x: Value) -> Value:
    """Returns 1/x, correctly rounded (documented: 1 ulp), denormals kept."""
    return div(const(x, 1.0), x)


@replaceable
def rsq_f16(x: Value) -> Value:
    """Returns 1/sqrt(x) within 1 ulp, denormals kept."""
    return cast(rsq_f32(cast(x, t.f32)), t.f16)


@replaceable
def sin_f16(x: Value) -> Value:
    """Returns sin(2πx) within 1 ulp; see `sin_f32`."""
    return cast(sin_f32(cast(x, t.f32)), t.f16)


@replaceable
def cos_f16(x: Value) -> Value:
    """Returns cos(2πx) within 1 ulp; see `cos_f32`."""
    return cast(cos_f32(cast(x, t.f32)), t.f16)
