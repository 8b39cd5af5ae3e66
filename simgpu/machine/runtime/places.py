"""Integers, structures and arrays in memory, as translated functions see them, and operations on them that are emitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.values import I1, I64, Builder, IrValue

PTR = ir.PointerType()


class NotTranslated(TypeError):
    """A function says what has no translation."""


@dataclass(frozen=True)
class StructRecord:
    """A structure: its dtype, and where it lies."""

    kind: np.dtype
    pointer: IrValue

    def field(self, name: str) -> tuple[np.dtype, IrValue]:
        """The dtype and the place of a field."""
        fields: Any = self.kind.fields or {}
        if name not in fields:
            raise NotTranslated(f"a structure with {', '.join(fields)} has no field {name}")
        return fields[name][0], self.pointer.at(fields[name][1])


@dataclass(frozen=True)
class Array:
    """What follows each other in memory: the dtype of one, where the first lies, how many there are."""

    kind: np.dtype
    pointer: IrValue
    size: Any

    def at(self, index: Any) -> tuple[np.dtype, IrValue]:
        """The dtype and the place of an element."""
        return self.kind, self.pointer.at(number(self.pointer.build, index) * self.kind.itemsize)

    def part(self, first: Any, end: Any) -> Array:
        """The elements from `first` on before `end`."""
        return Array(self.kind, self.at(first)[1], number(self.pointer.build, end) - first)

    def view(self, kind: Any) -> Array:
        """The same bytes as elements of another kind."""
        other = np.dtype(kind)
        build = self.pointer.build
        nbytes = number(build, self.size) * self.kind.itemsize
        return Array(other, self.pointer, build.udiv(nbytes, number(build, other.itemsize)))


def number(build: Builder, value: Any) -> IrValue:
    """An integer or truth as i64."""
    if isinstance(value, (int, np.integer)):
        return IrValue(build, ir.Constant(I64, int(value)))
    if not isinstance(value, IrValue) or value.type not in (I1, I64):
        raise NotTranslated(f"{value} is no integer")
    return value.zext(I64) if value.type == I1 else value


def truth(build: Builder, value: Any) -> Any:
    """Whether it is not 0: i1, or a bool where that is known."""
    if isinstance(value, (int, np.integer)):
        return bool(value)
    return value if isinstance(value, IrValue) and value.type == I1 else number(build, value) != 0


def load(kind: np.dtype, pointer: IrValue) -> Any:
    """What lies at a place: an integer as i64, or a structure or an array there."""
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        return Array(base, pointer, math.prod(shape))
    if kind.fields is not None:
        return StructRecord(kind, pointer)
    found = pointer.load(ir.IntType(8 * kind.itemsize), kind.alignment)
    if kind.itemsize == 8:
        return found
    return found.sext(I64) if kind.kind == "i" else found.zext(I64)


def store(kind: np.dtype, pointer: IrValue, value: Any) -> None:
    """Have an integer lie at a place, of which the low bits count."""
    if kind.kind not in "iu":
        raise NotTranslated(f"only integers are stored, not {kind}")
    whole = number(pointer.build, value)
    pointer.store(whole if kind.itemsize == 8 else whole.trunc(ir.IntType(8 * kind.itemsize)), kind.alignment)


# -- values as what LLVM's functions take ----------------------------------------------------------


def pieces(build: Builder, value: Any) -> list[IrValue]:
    """A value's i64 and pointers; none of what is known when a function is translated, but for integers."""
    if isinstance(value, (int, np.integer, IrValue)):
        return [number(build, value)]
    if isinstance(value, StructRecord):
        return [value.pointer]
    if isinstance(value, Array):
        return [value.pointer, number(build, value.size)]
    if isinstance(value, tuple):
        return [piece for one in value for piece in pieces(build, one)]
    return []


def shape(value: Any) -> Any:
    """What a value is without its pieces."""
    if isinstance(value, (int, np.integer, IrValue)):
        return int
    if isinstance(value, (StructRecord, Array)):
        return type(value), value.kind
    return (type(value), *map(shape, value)) if isinstance(value, tuple) else ("known", value)


def _is_tuple(form: Any) -> bool:
    return isinstance(form[0], type) and issubclass(form[0], tuple)


def together(kind: type[tuple[Any, ...]], values: Iterable[Any]) -> Any:
    """A tuple or a NamedTuple of values."""
    return tuple(values) if kind is tuple else kind(*values)


def types(form: Any) -> list[ir.Type]:
    """Of the pieces of a value of that shape."""
    if form is int:
        return [I64]
    if _is_tuple(form):
        return [one for each in form[1:] for one in types(each)]
    return {StructRecord: [PTR], Array: [PTR, I64]}.get(form[0], [])


def whole(form: Any, parts: Iterator[IrValue]) -> Any:
    """The value of that shape with the next of the pieces."""
    if form is int:
        return next(parts)
    if form[0] is StructRecord:
        return StructRecord(form[1], next(parts))
    if form[0] is Array:
        return Array(form[1], next(parts), next(parts))
    return together(form[0], (whole(each, parts) for each in form[1:])) if _is_tuple(form) else form[1]


@dataclass(frozen=True)
class Builtin:
    """What translated functions call, and `emit(build, *arguments)` emits; integers come as i64."""

    emit: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.emit.__name__} is for functions that become machine code")


def builtin(emit: Callable[..., Any]) -> Any:
    """Decorator: `emit` as an operation of translated functions."""
    return Builtin(emit)
