"""Scalar reference arithmetic on bit patterns: rationals and Python integers, no numpy.

It is independent of `simgpu.hardware.isa`: formats, rounding, NaN rules and integer helpers are written again here. It also has
the operand patterns of the tests, and `run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from simgpu.hardware.isa.instructions import vop1, vop1_cvt, vop2, vop3, vop3p, vopc
from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.isa.types import Type

MODULES = (vop1, vop1_cvt, vop2, vop3, vop3p, vopc)


@dataclass(frozen=True)
class Format:
    bits: int
    fraction: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def inf(self) -> int:
        return (2 * self.bias + 1) << self.fraction

    @property
    def quiet_bit(self) -> int:
        return 1 << (self.fraction - 1)

    @property
    def nan(self) -> int:
        return self.inf | self.quiet_bit

    def is_nan(self, x: int) -> bool:
        return x & ~self.sign > self.inf

    def is_inf(self, x: int) -> bool:
        return x & ~self.sign == self.inf

    def is_signaling(self, x: int) -> bool:
        return self.is_nan(x) and not x & self.quiet_bit

    def negative(self, x: int) -> bool:
        return bool(x & self.sign)

    def value(self, x: int) -> Fraction:
        """Returns the number of finite bits x."""
        field, fraction = x >> self.fraction & (2 * self.bias + 1), x & ((1 << self.fraction) - 1)
        if field:
            fraction |= 1 << self.fraction
        exponent = max(field, 1) - self.bias - self.fraction
        number = Fraction(fraction) * Fraction(2) ** exponent
        return -number if self.negative(x) else number

    def round(self, number: Fraction, negative_zero: bool = False, toward_zero: bool = False) -> int:
        """Returns the bits nearest to the number (ties to even), or the next ones toward zero."""
        sign = self.sign if number < 0 or (number == 0 and negative_zero) else 0
        number = abs(number)
        if number == 0:
            return sign
        exponent = number.numerator.bit_length() - number.denominator.bit_length()
        if Fraction(2) ** exponent > number:
            exponent -= 1
        quantum = Fraction(2) ** (max(exponent, 1 - self.bias) - self.fraction)
        count, rest = divmod(number, quantum)
        count = int(count)
        if not toward_zero and (rest * 2 > quantum or (rest * 2 == quantum and count & 1)):
            count += 1
        if count * quantum >= Fraction(2) ** (self.bias + 1):
            return sign | (self.inf - 1 if toward_zero else self.inf)
        if count >> self.fraction:  # normal: the hidden bit adds one to the field below
            while count >> (self.fraction + 1):
                count, quantum = count >> 1, quantum * 2
            field = (quantum.numerator.bit_length() - quantum.denominator.bit_length()) + (
                self.fraction + self.bias
            )
            return sign | ((field - 1) << self.fraction) + count
        return sign | count


F16, BF16, F32, F64 = Format(16, 10), Format(16, 7), Format(32, 23), Format(64, 52)


def first_nan(f: Format, *operands: int) -> int | None:
    for x in operands:
        if f.is_nan(x):
            return x | f.quiet_bit
    return None


def f_add(f: Format, a: int, b: int) -> int:
    nan = first_nan(f, a, b)
    if nan is not None:
        return nan
    if f.is_inf(a) or f.is_inf(b):
        if f.is_inf(a) and f.is_inf(b) and a != b:
            return f.nan
        return a if f.is_inf(a) else b
    total = f.value(a) + f.value(b)
    return f.round(total, f.negative(a) and f.negative(b))


def f_sub(f: Format, a: int, b: int) -> int:
    nan = first_nan(f, a, b)
    return f_add(f, a, b ^ f.sign) if nan is None else nan


def f_mul(f: Format, a: int, b: int) -> int:
    nan = first_nan(f, a, b)
    if nan is not None:
        return nan
    negative = f.negative(a) != f.negative(b)
    sign = f.sign if negative else 0
    if f.is_inf(a) or f.is_inf(b):
        zero = (not f.is_inf(a) and f.value(a) == 0) or (not f.is_inf(b) and f.value(b) == 0)
        return f.nan if zero else sign | f.inf
    return f.round(f.value(a) * f.value(b), negative)


def f_fma(f: Format, a: int, b: int, c: int) -> int:
    nan = first_nan(f, a, b, c)
    if nan is not None:
        return nan
    if f.is_inf(a) or f.is_inf(b):
        product = f_mul(f, a, b)
        return product if f.is_nan(product) else f_add(f, product, c)
    if f.is_inf(c):
        return c
    total = f.value(a) * f.value(b) + f.value(c)
    negative_product = f.negative(a) != f.negative(b)
    return f.round(total, negative_product and f.negative(c))


def flush(f: Format, x: int) -> int:
    return x & f.sign if x & ~f.sign < 1 << f.fraction else x


def f_mad(f: Format, a: int, b: int, c: int) -> int:
    product = flush(f, f_mul(f, flush(f, a), flush(f, b)))
    return flush(f, f_add(f, product, flush(f, c)))


def f_div(f: Format, a: int, b: int) -> int:
    nan = first_nan(f, a, b)
    if nan is not None:
        return nan
    negative = f.negative(a) != f.negative(b)
    sign = f.sign if negative else 0
    if f.is_inf(a):
        return f.nan if f.is_inf(b) else sign | f.inf
    if f.is_inf(b):
        return sign
    if f.value(b) == 0:
        return f.nan if f.value(a) == 0 else sign | f.inf
    return f.round(f.value(a) / f.value(b), negative)


def f_sqrt(f: Format, a: int) -> int:
    if f.is_nan(a):
        return a | f.quiet_bit
    if a & ~f.sign == 0 or a == f.inf:
        return a
    if f.negative(a):
        return f.nan
    number = f.value(a)
    shift = 400  # an even power of two; the remainder below it only says "inexact"
    scaled = number * (1 << (2 * shift)) * Fraction(4) ** 1100
    root = math.isqrt(int(scaled))
    sticky = 0 if root * root == scaled else 1
    return f.round(Fraction(2 * root + sticky, 2) / (1 << shift) / Fraction(2) ** 1100)


def f_convert(source: Format, target: Format, a: int, toward_zero: bool = False) -> int:
    sign = target.sign if source.negative(a) else 0
    if source.is_nan(a):
        payload = (a | source.quiet_bit) & ((1 << source.fraction) - 1)
        shift = target.fraction - source.fraction
        return sign | target.inf | (payload << shift if shift >= 0 else payload >> -shift)
    if source.is_inf(a):
        return sign | target.inf
    return target.round(source.value(a), source.negative(a), toward_zero)


def f_to_int(f: Format, a: int, low: int, high: int) -> int:
    if f.is_nan(a):
        return 0
    if f.is_inf(a):
        return low if f.negative(a) else high
    return min(max(math.trunc(f.value(a)), low), high)


def f_min(f: Format, a: int, b: int, ieee: int = 1) -> int:
    return _extreme(min, f, a, b, ieee)


def f_max(f: Format, a: int, b: int, ieee: int = 1) -> int:
    return _extreme(max, f, a, b, ieee)


def _extreme(of: Callable[..., int], f: Format, a: int, b: int, ieee: int) -> int:
    if ieee:
        for x in (a, b):
            if f.is_signaling(x):
                return x | f.quiet_bit
    if f.is_nan(a):
        return b
    if f.is_nan(b):
        return a
    return of(a, b, key=lambda x: order(f, x))


def order(f: Format, x: int) -> int:
    """Returns a key that sorts numbers, -0 before +0."""
    return -1 - (x & ~f.sign) if f.negative(x) else x


def f_round_int(f: Format, a: int, how: str) -> int:
    if f.is_nan(a):
        return a | f.quiet_bit
    if f.is_inf(a):
        return a
    number = f.value(a)
    whole = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round}[how](number)
    return f.round(Fraction(whole), f.negative(a))


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clamped(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


# Operand patterns


SPECIAL_FLOATS = {
    16: (0, 1, 2, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x3800, 0x4000, 0x4248, 0x7BFF,
         0x7C00, 0x7C01, 0x7D55, 0x7E00, 0x7FFF),
    32: (0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000,
         0x40000000, 0x40490FDB, 0x4B7FFFFF, 0x4B800000, 0x4F000000, 0x4F800000, 0x7F7FFFFF,
         0x7F800000, 0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FFFFFFF),
    64: (0, 1, 2, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000,
         0x3FF0000000000001, 0x3FE0000000000000, 0x4000000000000000, 0x400921FB54442D18,
         0x41DFFFFFFFC00000, 0x41E0000000000000, 0x41F0000000000000, 0x7FEFFFFFFFFFFFFF,
         0x7FF0000000000000, 0x7FF0000000000001, 0x7FF4000000000000, 0x7FF8000000000000),
}  # fmt: skip


def float_patterns(bits: int, count: int, rng: np.random.Generator) -> list[int]:
    """Draws specials of both signs, any bits, and numbers within a few powers of two of 1."""
    sign = 1 << (bits - 1)
    pool = [x | s for x in SPECIAL_FLOATS[bits] for s in (0, sign)]
    fmt = {16: F16, 32: F32, 64: F64}[bits]
    out = []
    for kind in rng.integers(0, 4, count):
        word = int(rng.integers(0, 1 << bits, dtype=np.uint64)) if bits < 64 else random_word(rng)
        if kind == 0:
            out.append(pool[int(rng.integers(len(pool)))])
        elif kind == 1:
            out.append(word)
        else:
            field = fmt.bias + int(rng.integers(-4, 5))
            out.append(word & (sign | ((1 << fmt.fraction) - 1)) | field << fmt.fraction)
    return out


def random_word(rng: np.random.Generator) -> int:
    return int.from_bytes(rng.bytes(8), "little")


def int_patterns(bits: int, count: int, rng: np.random.Generator) -> list[int]:
    """Draws extremes, small numbers, powers of two and their neighbours, any bits."""
    mask = (1 << bits) - 1
    out = []
    for kind in rng.integers(0, 4, count):
        if kind == 0:
            out.append((0, 1, 2, mask, mask >> 1, (mask >> 1) + 1, mask - 1)[int(rng.integers(7))])
        elif kind == 1:
            out.append(int(rng.integers(0, 80)) & mask)
        elif kind == 2:
            out.append(((1 << int(rng.integers(bits))) + int(rng.integers(-1, 2))) & mask)
        else:
            out.append(random_word(rng) & mask)
    return out


def patterns(type_: Type, count: int, rng: np.random.Generator) -> list[Any]:
    """Draws `count` raw operands of a type: ints; bools for masks; lists of ints for `pair` types."""
    if type_.kind == "mask":
        return [bool(x) for x in rng.integers(0, 2, count)]
    if type_.kind == "pair":
        assert type_.element is not None
        n = type_.bits // type_.element.bits
        columns = [patterns(type_.element, count, rng) for _ in range(n)]
        return [list(row) for row in zip(*columns, strict=True)]
    if type_.kind == "bfloat":
        return [x >> 16 for x in float_patterns(32, count, rng)]
    if type_.is_float:
        return float_patterns(type_.bits, count, rng)
    return int_patterns(type_.bits, count, rng)


def joined(type_: Type, elements: list[int]) -> int:
    assert type_.element is not None
    return sum(x << (i * type_.element.bits) for i, x in enumerate(elements))


def to_raw(type_: Type, column: list[Any]) -> np.ndarray:
    """Returns a column of operands in the layout of `lane_numpy.wrap`."""
    if type_.kind == "mask":
        return np.array(column, np.bool_)
    words = [joined(type_, x) for x in column] if type_.kind == "pair" else column
    if type_.bits <= 64:
        return np.array(words, {8: "u1", 16: "u2", 32: "u4", 64: "u8"}[type_.bits])
    rows = [[w >> (32 * i) & 0xFFFFFFFF for w in words] for i in range(type_.bits // 32)]
    return np.array(rows, np.uint32)


def from_raw(type_: Type, raw: np.ndarray, lanes: int) -> list[Any]:
    """Returns a result's column as ints (bools for masks), `pair` types joined."""
    if type_.kind == "mask":
        return [bool(x) for x in np.broadcast_to(raw, (lanes,))]
    if type_.bits <= 64:
        return [int(x) for x in np.broadcast_to(raw, (lanes,))]
    return [sum(int(w) << (32 * i) for i, w in enumerate(col)) for col in raw.T]


def find(mnemonic: str, target: str = "") -> Spec:
    for spec in REGISTRY.specs:
        if spec.mnemonic == mnemonic and (not target or target in spec.opcodes):
            return spec
    raise KeyError(mnemonic)


def run(spec: Spec, columns: list[list[Any]], **modifiers: int) -> list[Any]:
    """Returns the results of a body, one for each lane; a tuple each if the instruction has several."""
    operands = [p.type for p in spec.params if p.type.state != "modifier"]
    raw = [to_raw(t, column) for t, column in zip(operands, columns, strict=True)]
    result = evaluate(spec, *raw, **modifiers)
    lanes = len(columns[0])
    if len(spec.results) == 1:
        return from_raw(spec.results[0], result, lanes)
    parts = [from_raw(t, r, lanes) for t, r in zip(spec.results, result, strict=True)]
    return list(zip(*parts, strict=True))


def check(spec: Spec, reference: Any, lanes: int = 300, seed: int = 0, **modifiers: int) -> None:
    """Runs the body over patterns and compares each lane with `reference(*operands)`.

    The reference takes ints (tuples for `pair` types, bools for masks) and returns the raw result, signed or not.
    """
    rng = np.random.default_rng(abs(hash_name(spec.mnemonic)) + seed)
    types = [p.type for p in spec.params if p.type.state != "modifier"]
    columns = [patterns(t, lanes, rng) for t in types]
    got = run(spec, columns, **modifiers)
    for row, result in zip(zip(*columns, strict=True), got, strict=True):
        want = normal(spec, reference(*row))
        assert result == want, f"{spec.mnemonic}{show(row)}: {show(result)}, not {show(want)}"


def hash_name(name: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(name)) % (1 << 30)


def show(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(show(v) for v in value) + ")"
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def normal(spec: Spec, want: Any) -> Any:
    """Returns a reference's answer in the form of `run`: masked to the result's width, tuples joined."""
    if len(spec.results) > 1:
        return tuple(_normal(t, w) for t, w in zip(spec.results, want, strict=True))
    return _normal(spec.results[0], want)


def _normal(type_: Type, want: Any) -> Any:
    if type_.kind == "mask":
        return bool(want)
    if type_.kind == "pair" and isinstance(want, (tuple, list)):
        assert type_.element is not None
        mask = (1 << type_.element.bits) - 1
        return joined(type_, [w & mask for w in want])
    return want & ((1 << type_.bits) - 1)
