"""Integer rules that several instructions share, in the lane operations.

`clamp` is the instruction's modifier: results saturate to their type instead of wrapping.
"""

from __future__ import annotations

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import (
    Value,
    as_signed,
    as_unsigned,
    ashr,
    both,
    cast,
    const,
    either,
    imax,
    imin,
    lshr,
    replaceable,
    shl,
    where,
)
from simgpu.hardware.isa.types import Type


def limits(type_: Type) -> tuple[int, int]:
    """Returns the smallest and largest value of an integer type."""
    if type_.kind == "signed":
        return -(1 << (type_.bits - 1)), (1 << (type_.bits - 1)) - 1
    return 0, (1 << type_.bits) - 1


def clamp_to(exact: Value, type_: Type) -> Value:
    """Returns `exact`, a wider signed integer, saturated to the type."""
    low, high = limits(type_)
    return cast(imax(imin(exact, high), low), type_)


def saturate(exact: Value, type_: Type, clamp: int) -> Value:
    """Returns `exact`, a wider signed integer, converted to the type: saturated if `clamp`, else wrapped."""
    return clamp_to(exact, type_) if clamp else cast(exact, type_)


def low24_signed(a: Value) -> Value:
    """Returns the low 24 bits, sign-extended."""
    return ashr(shl(as_signed(a), 8), 8)


def low24_unsigned(a: Value) -> Value:
    return a & 0xFFFFFF


def multiply(a: Value, b: Value, clamp: int) -> Value:
    """Returns a·b in a's 32-bit type, saturated if `clamp`, else wrapped."""
    return clamp_to(cast(a, t.i64) * cast(b, t.i64), a.type) if clamp else a * b


def multiply_add(a: Value, b: Value, c: Value, clamp: int) -> Value:
    """Returns a·b + c in c's 32-bit type, saturated if `clamp`, else wrapped; a and b have at most 24 bits."""
    if not clamp:
        return a * b + c
    return clamp_to(cast(a, t.i64) * cast(b, t.i64) + cast(c, t.i64), c.type)


def byte(a: Value, i: int) -> Value:
    """Returns byte i of a u32, as u32."""
    return lshr(a, 8 * i) & 0xFF


def signed_field(a: Value, i: int, width: int) -> Value:
    """Returns field i of `width` bits of a 32-bit word, sign-extended to i32."""
    return ashr(shl(as_signed(a), 32 - width * (i + 1)), 32 - width)


def unsigned_field(a: Value, i: int, width: int) -> Value:
    """Returns field i of `width` bits of a 32-bit word, as u32."""
    return lshr(as_unsigned(a), width * i) & ((1 << width) - 1)


def add_carry(a: Value, b: Value, carry: Value | None, clamp: int) -> tuple[Value, Value]:
    """Returns a + b (+ carry), unsigned, saturated if `clamp`, and the carry out."""
    total = a + b
    out = total < a
    if carry is not None:
        total = total + where(carry, const(a, 1), 0)
        out = either(out, both(carry, total == 0))
    return (where(out, const(a, -1), total) if clamp else total), out


def sub_borrow(a: Value, b: Value, borrow: Value | None, clamp: int) -> tuple[Value, Value]:
    """Returns a - b (- borrow), unsigned, 0 for a borrow out if `clamp`, and the borrow out."""
    total, out = a - b, a < b
    if borrow is not None:
        total = total - where(borrow, const(a, 1), 0)
        out = either(out, both(borrow, a == b))
    return (where(out, const(a, 0), total) if clamp else total), out


def absolute_difference(a: Value, b: Value) -> Value:
    """Returns |a - b| of integers of the same signedness."""
    return imax(a, b) - imin(a, b)


@replaceable
def add(a: Value, b: Value, clamp: int) -> Value:
    """Returns a + b of unsigned integers, saturated if `clamp`."""
    return add_carry(a, b, None, clamp)[0]


@replaceable
def add3(a: Value, b: Value, c: Value) -> Value:
    """Returns a + b + c of integers."""
    return a + b + c
