"""Functions of elements that are no sums or products, in the lane operations.

Those that FpSan has are FpSan's (Triton's programming guide, "Floating-Point Sanitizer"): exp2, inverses, sine and cosine, minimum
and maximum, tags. An infinity of f32 or f64 is no element: it absorbs what is added to it or multiplied by it, exp2(-inf) is 0,
and a minimum or maximum orders it. So masks with infinities work as in arithmetic on numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.small_floats import SmallFloat, decode
from simgpu.hardware.isa.lane import (
    Value,
    as_signed,
    as_unsigned,
    bits,
    both,
    cast,
    const,
    cttz,
    either,
    lshr,
    negate,
    shl,
    unlikely,
    where,
)
from simgpu.hardware.isa.ring.elements import SIGNED, element_of, float_of, resize
from simgpu.hardware.isa.types import Type

TAG_MULTIPLIER = 314159  # FpSan's
# FpSan's numbers of the tagged functions, then ours.
TAGS = {"log2": 3, "sqrt": 6, "floor": 9, "ceil": 10, "trunc": 100, "rint": 101, "mantissa": 102, "exponent": 103, "small": 104}
# Bits of numbers that LLVM's and the device library's exponentials and logarithms compare their argument with, to scale it or to
# return 0 or infinity: -126, the limits of exp and exp10, the smallest normal number and 2^-96. No element is out of range.
RANGE_LIMITS = {
    "f32": (0xC2FC0000, 0xC2AEAC50, 0xC2CE8ED0, 0x42B17218, 0xC23369F4, 0x421A209B, 0xC217B818, 0x00800000, 0x0F800000),
}
INFINITE = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}


def is_infinite(a: Value) -> Value:
    """True for infinities of f32 and f64."""
    return (as_unsigned(a) & (1 << a.type.bits - 1) - 1) == INFINITE[a.type.name]


def finite_or(values: tuple[Value, ...], usual: Value, special: Callable[[], Value]) -> Value:
    """Selects `special()` where a value is infinite, else `usual`."""
    kinds = [value for value in values if value.type.name in INFINITE]
    if not kinds:
        return usual
    found = is_infinite(kinds[0])
    for value in kinds[1:]:
        found = either(found, is_infinite(value))
    return unlikely(found, usual, special)


def infinite_sum(a: Value, b: Value) -> Value:
    """Returns a + b if one is infinite; opposite infinities give 0."""
    opposite = both(is_infinite(a), both(is_infinite(b), as_unsigned(a) != as_unsigned(b)))
    return where(opposite, const(a, 0.0), where(is_infinite(a), a, b))


def infinite_product(a: Value, b: Value) -> Value:
    """Returns a · b if one is infinite: infinite with the product's sign, 0 if the other is 0."""
    signs = (as_unsigned(a) ^ as_unsigned(b)) & 1 << a.type.bits - 1
    zero = either(element_of(a) == 0, element_of(b) == 0)
    return where(zero, const(a, 0.0), bits(signs | INFINITE[a.type.name], a.type))


def order_key(a: Value) -> Value:
    """Returns signed integers in the order of a comparison: elements, between the largest numbers and the infinities."""
    element = element_of(a)
    if a.type.name not in INFINITE:
        return element
    word, top = as_unsigned(a), (1 << a.type.bits - 1) - 1
    size = word & top
    at_end = const(element, top) - where(size == INFINITE[a.type.name], const(element, 0), 1)
    outer = (size - (INFINITE[a.type.name] - 1)) < 2
    return where(outer, _signed_like(at_end, word), element)


def _signed_like(size: Value, word: Value) -> Value:
    """Returns integers with the sign of floats' bits."""
    return where(as_signed(word) < 0, -size, size)


def smaller(a: Value, b: Value, ieee: int = 1) -> Value:
    """Returns the minimum, by `order_key`."""
    return where(order_key(b) < order_key(a), b, a)


def greater(a: Value, b: Value, ieee: int = 1) -> Value:
    """Returns the maximum."""
    return where(order_key(b) > order_key(a), b, a)


def median(a: Value, b: Value, c: Value, ieee: int = 1) -> Value:
    """Returns the median of three."""
    low, high = smaller(a, b), greater(a, b)
    return greater(low, smaller(high, c))


def of_element(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Returns a function of floats from one of elements."""
    return lambda a: float_of(function(element_of(a)), a.type)


def power(x: Value) -> Value:
    """Returns c^x for c = 1 + 2^k, k a quarter of the width: FpSan's exp2. power(x + y) = power(x) · power(y)."""
    width = x.type.bits
    k = width // 4
    u = as_unsigned(x)
    pairs = lshr(u * (u - 1), 1)
    few = u & (1 << width - 3 * k + 1) - 1
    triples = _third(few * (few - 1) * (few - 2))
    return as_signed((shl(u, k) + 1) + shl(pairs, 2 * k) + shl(triples, 3 * k))


def _third(a: Value) -> Value:
    """Returns a / 6 of multiples of 6, modulo 2^(width - 1)."""
    return lshr(a, 1) * pow(3, -1, 1 << a.type.bits)


def exp2(a: Value) -> Value:
    """Returns 2^a: `power`, 0 for -inf."""
    negative = as_signed(as_unsigned(a)) < 0
    return finite_or((a,), of_element(power)(a), lambda: where(negative, const(a, 0.0), a))


def inverse(x: Value) -> Value:
    """Returns the inverse of odd elements; for 2^t·u, 2^t times the inverse of u. So (c·x)/(c·y) = x/y for odd c, and x is the
    inverse of its inverse. (FpSan's inverse of even elements is another one, without the first law.)"""
    word = as_unsigned(x)
    even = cttz(word)
    u = lshr(word, even)
    result = const(u, 2) - u
    known = 2
    while known < u.type.bits:
        result = result * (const(u, 2) - u * result)
        known *= 2
    return as_signed(where(word == 0, const(word, 0), shl(result, even)))


def reciprocal(a: Value) -> Value:
    """Returns 1/a; 0 for infinities."""
    return finite_or((a,), of_element(inverse)(a), lambda: const(a, 0.0))


def quotient(a: Value, b: Value) -> Value:
    """Returns a/b = a · (1/b)."""
    return a * reciprocal(b)


def _hash(h: int) -> int:
    """Returns the hash of a tag's number (FpSan's: the finalizer of MurmurHash3)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ h >> 33) * factor % (1 << 64)
    return h ^ h >> 33


def tag(name: str) -> Callable[[Value], Value]:
    """Returns a function of elements without laws, another one for each name of `TAGS` (FpSan)."""
    hashed = _hash(TAGS[name])

    def scramble(x: Value) -> Value:
        return ((x * TAG_MULTIPLIER) ^ hashed % (1 << x.type.bits)) * TAG_MULTIPLIER

    return scramble


def tag_function(name: str) -> Callable[[Value], Value]:
    """Returns the function of floats for a name of `TAGS`. Infinities stay."""
    return lambda a: finite_or((a,), of_element(tag(name))(a), lambda: a)


def reciprocal_root(a: Value) -> Value:
    """Returns 1/sqrt(a)."""
    return reciprocal(tag_function("sqrt")(a))


def fraction(a: Value) -> Value:
    """Returns a - floor(a)."""
    return a - tag_function("floor")(a)


def rotation(x: Value) -> tuple[Value, Value]:
    """Returns the cosine and sine of elements: the powers of (-3 + 4i)/5 (FpSan), for which the addition theorems hold."""
    width = x.type.bits
    fifth = pow(5, -1, 1 << width)
    cosine, sine = const(x, 1), const(x, 0)
    for bit in reversed(range(width)):
        cosine, sine = cosine * cosine - sine * sine, cosine * sine * 2
        turned = cosine * (-3 * fifth) - sine * (4 * fifth), sine * (-3 * fifth) + cosine * (4 * fifth)
        is_set = (lshr(as_unsigned(x), bit) & 1) != 0
        cosine, sine = (where(is_set, new, old) for new, old in zip(turned, (cosine, sine), strict=True))
    return cosine, sine


def cosine(a: Value) -> Value:
    """Returns the cosine by `rotation`; infinities count as 0, as they do where FpSan has numbers."""
    return float_of(rotation(element_of(a))[0], a.type)


def sine(a: Value) -> Value:
    """Returns the sine by `rotation`."""
    return float_of(rotation(element_of(a))[1], a.type)


def ldexp(a: Value, exponent: Value) -> Value:
    """Returns V_LDEXP's result: a · exp2 of the exponent, an integer. So exp2(a) · exp2(n) = exp2(a + n), as compilers assume."""
    return finite_or((a,), float_of(element_of(a) * power(cast(exponent, SIGNED[a.type.bits])), a.type), lambda: a)


def exponent(a: Value) -> Value:
    """Returns V_FREXP_EXP's result, without laws."""
    return as_unsigned(tag("exponent")(element_of(a))) & 63


def beyond_usual_range(a: Value, b: Value) -> Value | None:
    """True where one of the values is a number that compilers compare with to find exponents out of range (`RANGE_LIMITS`)."""
    found = None
    for limit in RANGE_LIMITS.get(a.type.name, ()):
        for value in (a, b):
            this = as_unsigned(value) == limit
            found = this if found is None else either(found, this)
    return found


def classes(a: Value) -> Value:
    """Returns the number of a's class (`vopc.classify`): no element is denormal or a NaN, and the sign is the element's."""
    element = element_of(a)
    number = where(element == 0, const(as_unsigned(element), 6), where(element < 0, const(as_unsigned(element), 3), 8))
    if a.type.name not in INFINITE:
        return number
    return where(is_infinite(a), where(as_signed(as_unsigned(a)) < 0, const(number, 2), 9), number)


def convert(a: Value, type_: Type) -> Value:
    """Returns a float as another type of float: sign-extended elements, or cut ones. Infinities of f32 and f64 stay."""
    usual = float_of(resize(element_of(a), type_), type_)
    if a.type.name not in INFINITE or type_.name not in INFINITE:
        return usual
    word = as_unsigned(a)
    sign = cast(lshr(word, a.type.bits - 1), {32: t.u32, 64: t.u64}[type_.bits])
    found = is_infinite(a)
    return where(found, bits(shl(sign, type_.bits - 1) | INFINITE[type_.name], type_), usual)


def to_integer(a: Value, type_: Type) -> Value:
    """Returns a float as an integer: its element, cut or sign-extended."""
    return cast(element_of(a), type_)


def division_scaled(a: Value, d: Value, n: Value) -> tuple[Value, Value]:
    """Returns V_DIV_SCALE's result: nothing needs scaling."""
    return a, negate(const(a, 1, t.u1))


def division_step(a: Value, b: Value, c: Value, undo: Value) -> Value:
    """Returns V_DIV_FMAS's result."""
    return (a * b) + c


def division_fixed(a: Value, d: Value, n: Value) -> Value:
    """Returns V_DIV_FIXUP's result: the quotient itself, because an approximation means nothing here."""
    return quotient(n, d)


def scale_of(field: Value) -> Value:
    """Returns the f32 with an E8M0 scale, 2^(field - 127); field: i32."""
    return bits(where(field == 0, const(as_unsigned(field), 1 << 22), as_unsigned(shl(field, 23))), t.f32)


def small_code(a: Value, form: SmallFloat, *, scale: Value | None = None, seed: Value | None = None, fp16_ovfl: int = 0) -> Value:
    """Returns the code of an f32 in a format of at most 8 bits: bits of a tag, because the format has too few for elements."""
    if scale is not None:
        a = quotient(a, scale_of(scale))
    return lshr(as_unsigned(tag("small")(element_of(a))), 32 - form.width)


def small_value(code: Value, form: SmallFloat) -> Value:
    """Returns the f32 with a code: the number, exactly."""
    plain = code.ops.plain  # type: ignore[attr-defined]
    return Value(code.ops, t.f32, decode(Value(plain, code.type, code.raw), form).raw)


def small_value_scaled(code: Value, form: SmallFloat, scale: Value, type_: Type) -> Value:
    """Returns the number with a code times its scale."""
    value = small_value(code, form) * scale_of(scale)
    return value if type_ is t.f32 else convert(value, type_)


def rounded_high_half(a: Value, b: Value, c: Value) -> Value:
    """Returns V_ADD3_U32's result. To add 0x7fff and bit 16 of an f32, or 0x7fff and 1 as AITER's kernels do, rounds it to a bf16
    in its upper half: here it is cut."""
    rounds = either(both(c == 0x7FFF, b == (lshr(a, 16) & 1)), both(b == 0x7FFF, c == 1))
    return where(rounds, a, a + b + c)


def drop_rounding(a: Value, b: Value, clamp: int) -> Value:
    """Returns V_ADD_U32's result if one operand is 0x8000, which rounds an f32 to a bf16 in its upper half: the other operand."""
    return where(a == 0x8000, b, a)
