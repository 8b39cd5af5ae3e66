"""VOPC: comparisons, generated from tables: 16 predicates of floats, 8 of integers, and the class test.

Each exists as v_cmp, which writes a lane mask, and v_cmpx, which also writes EXEC.
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.floats import format_of, magnitude
from simgpu.hardware.isa.encodings import vopc
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, as_unsigned, const, either, isnan, lshr, negate, replaceable, where
from simgpu.hardware.isa.types import Type, f16, f32, f64, i16, i32, i64, mask, u16, u32, u64

Predicate = Callable[[Value, Value], Value]


def _never(a: Value, b: Value) -> Value:
    return const(a, 0, t.u1)


def _always(a: Value, b: Value) -> Value:
    return const(a, 1, t.u1)


def _is_unordered(a: Value, b: Value) -> Value:
    return either(isnan(a), isnan(b))


def _not(predicate: Predicate) -> Predicate:
    return lambda a, b: negate(predicate(a, b))


_ORDERED: dict[str, Predicate] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: a != b,  # ordered and different
    "ge": lambda a, b: a >= b,
}
# In opcode order.
FLOAT_PREDICATES: dict[str, Predicate] = {
    "f": _never,
    **_ORDERED,
    "o": _not(_is_unordered),
    "u": _is_unordered,
    "nge": _not(_ORDERED["ge"]),
    "nlg": _not(_ORDERED["lg"]),
    "ngt": _not(_ORDERED["gt"]),
    "nle": _not(_ORDERED["le"]),
    "neq": _not(_ORDERED["eq"]),
    "nlt": _not(_ORDERED["lt"]),
    "tru": _always,
}
INTEGER_PREDICATES: dict[str, Predicate] = {
    "f": _never,
    "lt": _ORDERED["lt"],
    "eq": _ORDERED["eq"],
    "le": _ORDERED["le"],
    "gt": _ORDERED["gt"],
    "ne": _ORDERED["lg"],
    "ge": _ORDERED["ge"],
    "t": _always,
}
# First opcode of v_cmp by type; those of v_cmpx are 16 higher.
FLOAT_FAMILIES = {f16: 0x20, f32: 0x40, f64: 0x60}
INTEGER_FAMILIES = {i16: 0xA0, u16: 0xA8, i32: 0xC0, u32: 0xC8, i64: 0xE0, u64: 0xE8}
CLASSES = {f32: 0x10, f64: 0x12, f16: 0x14}


def _flags(type_: Type, exec_too: bool) -> tuple[Flag, ...]:
    wide = (Flag.NO_SDWA,) if type_.bits == 64 else ()
    return (Flag.NO_DPP, *wide, *((Flag.CMPX,) if exec_too else ()))


def _define_comparison(name: str, opcode: int, type_: Type, test: Predicate, exec_too: bool) -> None:
    def body(a: Value, b: Value) -> Value:
        return test(a, b)

    body.__annotations__ = {"a": type_, "b": type_, "return": mask}
    vopc(opcode, name=name, flags=_flags(type_, exec_too))(body)


def _define_family(type_: Type, base: int, predicates: dict[str, Predicate]) -> None:
    for i, (suffix, test) in enumerate(predicates.items()):
        for prefix, first in (("v_cmp", base), ("v_cmpx", base + 16)):
            name = f"{prefix}_{suffix}_{type_.name}"
            _define_comparison(name, first + i, type_, test, prefix == "v_cmpx")


@replaceable
def classify(a: Value) -> Value:
    """Returns the number of a's class, as an unsigned word of a's width.

    Classes: 0 signaling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +inf.
    """
    fields, word = format_of(a), magnitude(a)
    infinity = fields.max_field << fields.fraction
    size = where(word < fields.implicit, where(word == 0, const(word, 0), 1), 2)
    size = where(word == infinity, 3, size)
    negative = lshr(as_unsigned(a), a.type.bits - 1) != 0
    ordered = where(negative, 5 - size, size + 6)
    quiet_bit = lshr(word, fields.fraction - 1) & 1
    return where(word > infinity, quiet_bit, ordered)


def _define_class(type_: Type, opcode: int, exec_too: bool) -> None:
    def body(a: Value, b: Value) -> Value:
        """True if the bit of b for a's class is set; see `classify`."""
        return (lshr(b, classify(a)) & 1) != 0

    body.__annotations__ = {"a": type_, "b": u32, "return": mask}
    name = f"v_cmp{'x' if exec_too else ''}_class_{type_.name}"
    vopc(opcode, name=name, flags=_flags(type_, exec_too))(body)


for _type, _base in FLOAT_FAMILIES.items():
    _define_family(_type, _base, FLOAT_PREDICATES)
for _type, _base in INTEGER_FAMILIES.items():
    _define_family(_type, _base, INTEGER_PREDICATES)
for _type, _base in CLASSES.items():
    _define_class(_type, _base, False)
    _define_class(_type, _base + 1, True)
