"""Values of translated functions: integers, floats, structures and arrays in memory, and the operations on them."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.values import F32, F64, I1, I64, Builder, IrValue

PTR = ir.PointerType()


class NotTranslated(TypeError):
    """Raised for Python code that has no translation."""


@dataclass(frozen=True)
class StructRecord:
    """A structure in memory."""

    kind: np.dtype  # its dtype
    pointer: IrValue  # its address

    def field(self, name: str) -> tuple[np.dtype, IrValue]:
        """Returns the dtype and the address of a field."""
        fields: Any = self.kind.fields or {}
        if name not in fields:
            raise NotTranslated(f"a structure with {', '.join(fields)} has no field {name}")
        return fields[name][0], self.pointer.at(fields[name][1])


@dataclass(frozen=True)
class Array:
    """An array in memory, row by row."""

    kind: np.dtype  # dtype of an element
    pointer: IrValue  # address of the first
    shape: tuple[Any, ...]  # number of elements along each axis

    @property
    def size(self) -> Any:
        """Number of elements."""
        return functools.reduce(operator.mul, self.shape)

    def row(self, index: Any) -> Array:
        """Returns what one index, or several, leave: an array of fewer axes, of none for an element."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            raise NotTranslated(f"{len(indices)} indices for {len(self.shape)} axes")
        build, rest = self.pointer.build, self.shape[len(indices) :]
        place = number(build, indices[0])
        for following, extent in zip((*indices[1:], *[0] * len(rest)), self.shape[1:], strict=True):
            place = place * number(build, extent) + number(build, following)
        return Array(self.kind, self.pointer.at(place * self.kind.itemsize), rest)

    def at(self, index: Any) -> tuple[np.dtype, IrValue]:
        """Returns the dtype and the address of an element."""
        element = self.row(index)
        if element.shape:
            raise NotTranslated(f"an element of {len(self.shape)} axes has as many indices")
        return self.kind, element.pointer

    def part(self, first: Any, end: Any) -> Array:
        """Returns the rows from `first` on before `end`."""
        return Array(self.kind, self.row(first).pointer, (number(self.pointer.build, end) - first, *self.shape[1:]))

    def view(self, kind: Any) -> Array:
        """Returns the same bytes as elements of another type."""
        other = np.dtype(kind)
        build = self.pointer.build
        nbytes = number(build, self.size) * self.kind.itemsize
        return Array(other, self.pointer, (build.udiv(nbytes, number(build, other.itemsize)),))


def number(build: Builder, value: Any) -> IrValue:
    """Converts an integer or truth to i64."""
    if isinstance(value, (int, np.integer)):
        return IrValue(build, ir.Constant(I64, int(value)))
    if not isinstance(value, IrValue) or value.type not in (I1, I64):
        raise NotTranslated(f"{value} is no integer")
    return value.zext(I64) if value.type == I1 else value


def is_real(value: Any) -> bool:
    """True for a float, known or not."""
    return isinstance(value, (float, np.floating)) or (isinstance(value, IrValue) and value.type == F64)


def real(build: Builder, value: Any) -> IrValue:
    """Converts a float or an integer to f64."""
    if isinstance(value, IrValue) and value.type == F64:
        return value
    if isinstance(value, (int, float, np.integer, np.floating)):
        return IrValue(build, ir.Constant(F64, float(value)))
    return number(build, value).sitofp(F64)


def truth(build: Builder, value: Any) -> Any:
    """True if a value is not 0: i1, or a bool if that is known."""
    if isinstance(value, (int, float, np.integer, np.floating)):
        return bool(value)
    if is_real(value):
        return value != 0.0
    return value if isinstance(value, IrValue) and value.type == I1 else number(build, value) != 0


def load(kind: np.dtype, pointer: IrValue) -> Any:
    """Loads the number at an address as i64 or f64, or returns the structure or array there."""
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        return Array(base, pointer, shape)
    if kind.fields is not None:
        return StructRecord(kind, pointer)
    if kind.kind == "f":
        return pointer.load(F64, kind.alignment) if kind.itemsize == 8 else pointer.load(F32, kind.alignment).fpext(F64)
    found = pointer.load(ir.IntType(8 * kind.itemsize), kind.alignment)
    if kind.itemsize == 8:
        return found
    return found.sext(I64) if kind.kind == "i" else found.zext(I64)


def store(kind: np.dtype, pointer: IrValue, value: Any) -> None:
    """Stores a number at an address: a float, or the low bits of an integer."""
    if kind == np.float64:
        pointer.store(real(pointer.build, value), kind.alignment)
        return
    if kind.kind not in "iub":
        raise NotTranslated(f"only integers and float64 are stored, not {kind}")
    whole = number(pointer.build, value)
    pointer.store(whole if kind.itemsize == 8 else whole.trunc(ir.IntType(8 * kind.itemsize)), kind.alignment)


# -- values as parameters of LLVM functions --------------------------------------------------------


def pieces(build: Builder, value: Any) -> list[IrValue]:
    """Returns the LLVM i64, f64 and pointers of a value. Compile-time constants have none, except numbers."""
    if is_real(value):
        return [real(build, value)]
    if isinstance(value, (int, np.integer, IrValue)):
        return [number(build, value)]
    if isinstance(value, StructRecord):
        return [value.pointer]
    if isinstance(value, Array):
        return [value.pointer, *(number(build, extent) for extent in value.shape)]
    if isinstance(value, tuple):
        return [piece for one in value for piece in pieces(build, one)]
    return []


def shape(value: Any) -> Any:
    """Returns the form of a value: its type without its pieces, and the value of a compile-time constant."""
    if is_real(value):
        return float
    if isinstance(value, (int, np.integer, IrValue)):
        return int
    if isinstance(value, StructRecord):
        return StructRecord, value.kind
    if isinstance(value, Array):
        return Array, value.kind, len(value.shape)
    return (type(value), *map(shape, value)) if isinstance(value, tuple) else ("known", value)


def _is_tuple(form: Any) -> bool:
    return isinstance(form[0], type) and issubclass(form[0], tuple)


def make_tuple(kind: type[tuple[Any, ...]], values: Iterable[Any]) -> Any:
    """Returns a tuple or a NamedTuple of values."""
    return tuple(values) if kind is tuple else kind(*values)


def types(form: Any) -> list[ir.Type]:
    """Returns the LLVM types of the pieces of a value with this form."""
    if form in (int, float):
        return [I64 if form is int else F64]
    if _is_tuple(form):
        return [one for each in form[1:] for one in types(each)]
    if form[0] is Array:
        return [PTR, *[I64] * form[2]]
    return [PTR] if form[0] is StructRecord else []


def assemble(form: Any, parts: Iterator[IrValue]) -> Any:
    """Builds a value with this form from the next pieces."""
    if form in (int, float):
        return next(parts)
    if form[0] is StructRecord:
        return StructRecord(form[1], next(parts))
    if form[0] is Array:
        return Array(form[1], next(parts), tuple(itertools.islice(parts, form[2])))
    return make_tuple(form[0], (assemble(each, parts) for each in form[1:])) if _is_tuple(form) else form[1]


@dataclass(frozen=True)
class Builtin:
    """An operation that translated functions call and `emit(build, *arguments)` emits; integers come as i64."""

    emit: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.emit.__name__} is for functions that become machine code")


def builtin(emit: Callable[..., Any]) -> Any:
    """Decorates `emit` as an operation of translated functions."""
    return Builtin(emit)
