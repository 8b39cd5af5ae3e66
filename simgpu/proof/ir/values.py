"""Values of IR as terms: bits, and for each scalar in a value if it is poison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, negation, number, some
from simgpu.proof.ir.syntax import IrType
from simgpu.proof.terms import NotModelled

Term = Any


@dataclass(frozen=True)
class Scalar:
    """An integer, a float or a pointer."""

    type: IrType
    bits: Term
    poison: Term  # a condition


@dataclass(frozen=True)
class SymbolicValue:
    """A value of any type. bits: of all its scalars, the first lowest; poison: a bit for each scalar."""

    type: IrType
    bits: Term
    poison: Term

    @property
    def scalars(self) -> list[Scalar]:
        """Scalars, the first element's first."""
        found, low = [], 0
        for at, type_ in enumerate(scalar_types(self.type)):
            found.append(Scalar(type_, bits_of(self.bits, low, type_.bits), is_set(bits_of(self.poison, at, 1))))
            low += type_.bits
        return found

    @property
    def one(self) -> Scalar:
        """Scalar of a value that is one."""
        return Scalar(self.type, self.bits, is_set(self.poison))

    def part(self, index: int) -> SymbolicValue:
        """Returns an element of a vector, an array or a struct."""
        low, leaf = (sum(getattr(each, name) for each in self.type.parts[:index]) for name in ("width", "leaves"))
        type_ = self.type.parts[index]
        if not type_.width:
            raise NotModelled(f"a value of {type_}")
        return SymbolicValue(type_, bits_of(self.bits, low, type_.width), bits_of(self.poison, leaf, type_.leaves))

    def with_part(self, index: int, part: SymbolicValue) -> SymbolicValue:
        """Returns the value with another element."""
        return compose(self.type, [part if at == index else self.part(at) for at in range(len(self.type.parts))])


def flag(condition: Term) -> Term:
    """Returns a condition as a bit."""
    return choose(condition, number(1, 1), number(0, 1))


def is_set(bit: Term) -> Term:
    """Returns a bit as a condition.

    >>> is_set(flag(z3.Bool("a")))
    a
    """
    if z3.is_bv_value(bit):
        return z3.BoolVal(bool(bit.as_long()))
    if z3.is_app_of(bit, z3.Z3_OP_ITE) and all(map(z3.is_bv_value, bit.children()[1:])):
        first, second = (bool(way.as_long()) for way in bit.children()[1:])
        return z3.BoolVal(first) if first == second else bit.arg(0) if first else negation(bit.arg(0))
    return bit == 1


def scalar_types(type_: IrType) -> list[IrType]:
    """Returns the types of a value's scalars."""
    if type_.kind in ("int", "float", "ptr"):
        return [type_]
    return [inner for part in type_.parts for inner in scalar_types(part)]


def compose(type_: IrType, parts: Sequence[SymbolicValue]) -> SymbolicValue:
    """Returns the vector, array or struct of these elements."""
    return SymbolicValue(type_, concat(*(part.bits for part in parts)), concat(*(part.poison for part in parts)))


def of_scalars(type_: IrType, scalars: Sequence[Scalar]) -> SymbolicValue:
    """Returns the value that has these scalars."""
    return SymbolicValue(type_, concat(*(each.bits for each in scalars)), concat(*(flag(each.poison) for each in scalars)))


def known_value(type_: IrType, bits: Term) -> SymbolicValue:
    """Returns a value that is not poison."""
    return SymbolicValue(type_, bits, number(0, type_.leaves))


def each_scalar(type_: IrType, function: Callable[..., Scalar], *values: SymbolicValue) -> SymbolicValue:
    """Returns what a function of scalars makes of each element."""
    return of_scalars(type_, [function(*row) for row in zip(*(value.scalars for value in values), strict=True)])


def any_poison(*scalars: Scalar) -> Term:
    """Returns the condition that one of the scalars is poison."""
    return some(*(each.poison for each in scalars))
