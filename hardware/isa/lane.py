"""Operations of instruction bodies: typed values of one lane, on any engine.

A body computes with `Value`s. The same body runs on numpy arrays (`NumpyOps` in `lane_numpy`, the tests' reference)
and builds LLVM IR (in the simulator). So it must not branch in Python on a value: use `where`. Integers wrap; shift counts
are masked to the width; float operations round once to their type. Engines must give NaNs the payloads of AMD's hardware.

Python numbers become constants of the other operand's type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.types import Type

Number = int | float


class Ops(Protocol):
    """Operations of an engine on its own raw values (arrays or IR values).

    * binary: add sub mul (wrapping for integers, rounded once for floats), and or xor, shl lshr ashr (count masked to the width),
      udiv (0 divisor gives 0), div (floats, rounded once), min max (integers; floats: the plain `<` select), mul_hi.

    * unary: not neg abs (floats: sign bit only), floor ceil trunc rint sqrt, ctlz cttz ctpop bitreverse, quiet (NaN made quiet).

    * compare: eq ne lt le gt ge (ordered for floats), uno (either is NaN).

    * convert: value conversion. Int to int extends by the source's sign or truncates.
      Int to float and float to float round to nearest even or by MODE. Float to int truncates toward 0, saturates, NaN gives 0.

    * bitcast: same bits, other type.

    functions: replacements of functions that bodies call, by name; see `replaceable`.
    """

    functions: Mapping[str, Callable[..., Any]]

    def const(self, type_: Type, value: Number) -> Any: ...
    def binary(self, op: str, type_: Type, a: Any, b: Any) -> Any: ...
    def unary(self, op: str, type_: Type, a: Any) -> Any: ...
    def compare(self, op: str, type_: Type, a: Any, b: Any) -> Any: ...
    def where(self, type_: Type, condition: Any, a: Any, b: Any) -> Any: ...
    def unlikely(self, type_: Type, condition: Any, usual: Any, special: Callable[[], Any]) -> Any: ...
    def fma(self, type_: Type, a: Any, b: Any, c: Any) -> Any: ...
    def convert(self, source: Type, target: Type, a: Any) -> Any: ...
    def bitcast(self, source: Type, target: Type, a: Any) -> Any: ...
    def lane_id(self) -> Any: ...
    # Whole-row operations of wave bodies; an index is masked to 6 bits.
    def read_lane(self, type_: Type, row: Any, lane: Any) -> Any: ...
    def write_lane(self, type_: Type, row: Any, lane: Any, value: Any) -> Any: ...
    def gather(self, type_: Type, row: Any, lanes: Any) -> Any: ...
    def scatter(self, type_: Type, row: Any, lanes: Any, active: Any) -> Any: ...
    def ballot(self, condition: Any) -> Any: ...
    def splat(self, type_: Type, scalar: Any) -> Any: ...


def _binary_operator(op: str) -> Callable[[Value, Value | Number], Value]:
    return lambda a, b: a._binary(op, b)


def _comparison(op: str) -> Callable[[Value, Value | Number], Value]:
    return lambda a, b: a._compare(op, b)


@dataclass(frozen=True)
class Value:
    """A typed value on an engine."""

    ops: Ops
    type: Type
    raw: Any

    def _lift(self, other: Value | Number) -> Value:
        if isinstance(other, Value):
            if other.type.bits != self.type.bits and other.type.kind != "mask":
                raise TypeError(f"{self.type} and {other.type} have different widths")
            return other
        return const(self, other)

    def _binary(self, op: str, other: Value | Number) -> Value:
        b = self._lift(other)
        return Value(self.ops, self.type, self.ops.binary(op, self.type, self.raw, b.raw))

    def _compare(self, op: str, other: Value | Number) -> Value:
        b = self._lift(other)
        return Value(self.ops, t.u1, self.ops.compare(op, self.type, self.raw, b.raw))

    __add__, __sub__, __mul__ = _binary_operator("add"), _binary_operator("sub"), _binary_operator("mul")
    __and__, __or__, __xor__ = _binary_operator("and"), _binary_operator("or"), _binary_operator("xor")
    __lt__, __le__, __gt__, __ge__ = _comparison("lt"), _comparison("le"), _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("ne")  # type: ignore[assignment]

    def __radd__(self, other: Number) -> Value:
        return self._lift(other) + self

    def __rsub__(self, other: Number) -> Value:
        return self._lift(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self._lift(other) * self

    def __invert__(self) -> Value:
        return _unary("not", self)

    def __neg__(self) -> Value:
        return _unary("neg", self)

    def __abs__(self) -> Value:
        return _unary("abs", self)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a body must not branch on a value: use where()")


Body = TypeVar("Body", bound=Callable[..., Any])


def replaceable(function: Body) -> Body:
    """Marks a function of a Value, and of more, that an engine may compute in another way: by its name in `Ops.functions`."""

    @functools.wraps(function)
    def call(first: Value, *rest: Any, **named: Any) -> Any:
        return first.ops.functions.get(function.__name__, function)(first, *rest, **named)

    return call  # type: ignore[return-value]


def const(like: Value, value: Number, type_: Type | None = None) -> Value:
    """Returns the constant `value`, of `type_` or else of the type of `like`, on its engine."""
    kind = type_ or like.type
    return Value(like.ops, kind, like.ops.const(kind, value))


def where(condition: Value, a: Value | Number, b: Value | Number) -> Value:
    """Selects `a` if the condition holds, else `b`; at least one of the two is a Value."""
    like = a if isinstance(a, Value) else b
    assert isinstance(like, Value)
    x, y = like._lift(a), like._lift(b)
    return Value(like.ops, like.type, like.ops.where(like.type, condition.raw, x.raw, y.raw))


def unlikely(condition: Value, usual: Value, special: Callable[[], Value]) -> Value:
    """Selects `special()` if the condition holds, else `usual`. An engine may skip `special` if no lane needs it."""
    return Value(usual.ops, usual.type, usual.ops.unlikely(usual.type, condition.raw, usual.raw, lambda: special().raw))


def _binary(op: str, a: Value, b: Value | Number) -> Value:
    return a._binary(op, b)


def _unary(op: str, a: Value) -> Value:
    return Value(a.ops, a.type, a.ops.unary(op, a.type, a.raw))


def shl(a: Value, count: Value | Number) -> Value:
    """Returns a << (count mod width); the count is converted to a's type."""
    return _binary("shl", a, _count(a, count))


def lshr(a: Value, count: Value | Number) -> Value:
    """Returns a >> (count mod width), filled with zeros."""
    return _binary("lshr", a, _count(a, count))


def ashr(a: Value, count: Value | Number) -> Value:
    """Returns a >> (count mod width), filled with the sign."""
    return _binary("ashr", a, _count(a, count))


def _count(a: Value, count: Value | Number) -> Value | Number:
    if isinstance(count, Value) and count.type.bits != a.type.bits:
        unsigned = t.u64 if a.type.bits == 64 else t.u32 if a.type.bits == 32 else t.u16
        return cast(count, unsigned)
    return count


def cast(a: Value, type_: Type) -> Value:
    """Returns the value converted to a type (see `Ops`)."""
    if a.type is type_:
        return a
    return Value(a.ops, type_, a.ops.convert(a.type, type_, a.raw))


def bits(a: Value, type_: Type) -> Value:
    """Returns the same bits as another type of the same width."""
    if a.type is type_:
        return a
    return Value(a.ops, type_, a.ops.bitcast(a.type, type_, a.raw))


def as_signed(a: Value) -> Value:
    return bits(a, {8: t.i8, 16: t.i16, 32: t.i32, 64: t.i64}[a.type.bits])


def as_unsigned(a: Value) -> Value:
    return bits(a, {8: t.u8, 16: t.u16, 32: t.u32, 64: t.u64}[a.type.bits])


def fma(a: Value, b: Value, c: Value) -> Value:
    """Returns a·b + c, rounded once."""
    return Value(a.ops, a.type, a.ops.fma(a.type, a.raw, b.raw, c.raw))


def imin(a: Value, b: Value | Number) -> Value:
    """Returns the smaller integer, by the signedness of a's type."""
    return _binary("min", a, b)


def imax(a: Value, b: Value | Number) -> Value:
    """Returns the larger integer, by the signedness of a's type."""
    return _binary("max", a, b)


def mul_hi(a: Value, b: Value | Number) -> Value:
    """Returns the high half of the double-width integer product."""
    return _binary("mul_hi", a, b)


def div(a: Value, b: Value | Number) -> Value:
    """Returns a / b of floats, rounded once."""
    return _binary("div", a, b)


def _unary_operation(op: str) -> Callable[[Value], Value]:
    return lambda a: _unary(op, a)


floor, ceil, trunc = _unary_operation("floor"), _unary_operation("ceil"), _unary_operation("trunc")
ctpop, bitreverse = _unary_operation("ctpop"), _unary_operation("bitreverse")


def rint(a: Value) -> Value:
    """Returns the nearest integral value, ties to even."""
    return _unary("rint", a)


def sqrt(a: Value) -> Value:
    """Returns the square root, correctly rounded."""
    return _unary("sqrt", a)


def ctlz(a: Value) -> Value:
    """Returns the number of leading zero bits; the width for 0."""
    return _unary("ctlz", a)


def cttz(a: Value) -> Value:
    """Returns the number of trailing zero bits; the width for 0."""
    return _unary("cttz", a)


def quiet(a: Value) -> Value:
    """Returns the value, with its quiet bit set if it is a NaN."""
    return _unary("quiet", a)


def isnan(a: Value) -> Value:
    return a._compare("uno", a)


def both(a: Value, b: Value) -> Value:
    """True if both conditions hold."""
    return Value(a.ops, t.u1, a.ops.binary("and", t.u1, a.raw, b.raw))


def either(a: Value, b: Value) -> Value:
    """True if one of the conditions holds, or both."""
    return Value(a.ops, t.u1, a.ops.binary("or", t.u1, a.raw, b.raw))


def differ(a: Value, b: Value) -> Value:
    """True if exactly one of the conditions holds."""
    return Value(a.ops, t.u1, a.ops.binary("xor", t.u1, a.raw, b.raw))


def negate(a: Value) -> Value:
    """True if the condition does not hold."""
    return Value(a.ops, t.u1, a.ops.unary("not", t.u1, a.raw))


def lane_id(like: Value) -> Value:
    """Returns the lane's number, 0..63, as u32."""
    return Value(like.ops, t.u32, like.ops.lane_id())


def read_lane(row: Value, lane: Value) -> Value:
    """Returns the scalar in lane `lane` (scalar, mod 64) of `row`."""
    return Value(row.ops, t.s32, row.ops.read_lane(row.type, row.raw, lane.raw))


def write_lane(row: Value, lane: Value, value: Value) -> Value:
    """Returns `row` with lane `lane` (scalar, mod 64) replaced by the scalar `value`."""
    return Value(row.ops, row.type, row.ops.write_lane(row.type, row.raw, lane.raw, value.raw))


def gather(row: Value, lanes: Value) -> Value:
    """Returns the row whose lane i is row[lanes[i] mod 64]."""
    return Value(row.ops, row.type, row.ops.gather(row.type, row.raw, lanes.raw))


def scatter(row: Value, lanes: Value, active: Value) -> Value:
    """Returns the row with row[i] in lane lanes[i] mod 64 for each active i, of several the highest; 0 in other lanes."""
    return Value(row.ops, row.type, row.ops.scatter(row.type, row.raw, lanes.raw, active.raw))


def ballot(condition: Value) -> Value:
    """Returns the scalar u64 whose bit i is the condition of lane i."""
    return Value(condition.ops, t.s64, condition.ops.ballot(condition.raw))


def splat(scalar: Value, type_: Type) -> Value:
    """Returns the row that has the scalar in every lane."""
    return Value(scalar.ops, type_, scalar.ops.splat(type_, scalar.raw))
