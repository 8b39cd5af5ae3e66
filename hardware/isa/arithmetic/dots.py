"""Dot products of packed operands (V_DOT2, V_DOT4, V_DOT8), in the lane operations.

Integer sums are exact and then wrapped, or saturated if `clamp`. Float sums add one product after another to the
accumulator and round each time (ISA guide, V_DOT2_F32_F16; no public evidence shows if the hardware rounds in
between).
"""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.integers import clamp_to, signed_field, unsigned_field
from simgpu.hardware.isa.lane import Value, cast, fma

Pair = tuple[Value, Value]


def _widened_chain(a: Pair, b: Pair, c: Value) -> Value:
    for x, y in zip(a, b, strict=True):
        c = fma(cast(x, t.f32), cast(y, t.f32), c)
    return c


def dot_f16(a: Pair, b: Pair, c: Value) -> Value:
    """Returns c + a.lo·b.lo + a.hi·b.hi, low product first."""
    return _widened_chain(a, b, c)


def dot_bf16(a: Pair, b: Pair, c: Value) -> Value:
    """Returns c + a.lo·b.lo + a.hi·b.hi, low product first (the order of V_DOT2C_F32_BF16's text)."""
    return _widened_chain(a, b, c)


def _integer_dot(a: Sequence[Value], b: Sequence[Value], c: Value, clamp: int) -> Value:
    """Returns c + Σ a[i]·b[i] in c's type, i32 or u32; elements have that type too."""
    total = cast(c, t.i64) if clamp else c
    for x, y in zip(a, b, strict=True):
        total = total + (cast(x, t.i64) * cast(y, t.i64) if clamp else x * y)
    return clamp_to(total, c.type) if clamp else total


def dot_i16(a: Pair, b: Pair, c: Value, clamp: int) -> Value:
    """Returns c plus two products of 16-bit halves, signed if c is i32."""
    return _integer_dot([cast(x, c.type) for x in a], [cast(y, c.type) for y in b], c, clamp)


def _fields(a: Value, c: Value, width: int) -> list[Value]:
    field = signed_field if c.type is t.i32 else unsigned_field
    return [field(a, i, width) for i in range(32 // width)]


def dot_bytes(a: Value, b: Value, c: Value, clamp: int) -> Value:
    """Returns c plus four products of bytes, signed if c is i32."""
    return _integer_dot(_fields(a, c, 8), _fields(b, c, 8), c, clamp)


def dot_nibbles(a: Value, b: Value, c: Value, clamp: int) -> Value:
    """Returns c plus eight products of 4-bit fields, signed if c is i32."""
    return _integer_dot(_fields(a, c, 4), _fields(b, c, 4), c, clamp)
