"""The operations on memory that translated functions are made of. An address is a host's, an int."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.runtime import places
from simgpu.machine.runtime.functions import part
from simgpu.machine.runtime.places import Array, Record, builtin
from simgpu.machine.values import I1, I8, Builder, Value


@builtin
def words(build: Builder, address: Value, count: Value) -> Array:
    """`count` i64."""
    return Array(np.dtype(np.int64), address.pointer(), count)


@builtin
def octets(build: Builder, address: Value, count: Value) -> Array:
    """`count` bytes."""
    return Array(np.dtype(np.uint8), address.pointer(), count)


@builtin
def records(build: Builder, address: Value, count: Value, kind: np.dtype) -> Array:
    """`count` structures of a dtype."""
    return Array(kind, address.pointer(), count)


@builtin
def structure(build: Builder, address: Value, kind: np.dtype) -> Record:
    """The structure of a dtype, whose fields are read and written by name."""
    return Record(kind, address.pointer())


@builtin
def address_of(build: Builder, place: Record | Array) -> Value:
    """Where a structure or an array lies."""
    return place.pointer.address()


def _loading(kind: Any) -> Callable[..., Any]:
    def load(build: Builder, address: Value) -> Value:
        """The integer at an address."""
        loaded: Value = places.load(np.dtype(kind), address.pointer())
        return loaded

    return load


def _storing(kind: Any) -> Callable[..., Any]:
    def store(build: Builder, address: Value, value: Value) -> None:
        """Store the low bits of an integer at an address."""
        places.store(np.dtype(kind), address.pointer(), value)

    return store



load8, load32, load64 = (builtin(_loading(kind)) for kind in (np.uint8, np.int32, np.int64))
store8, store32, store64 = (builtin(_storing(kind)) for kind in (np.uint8, np.int32, np.int64))


@builtin
def fill(build: Builder, address: Value, count: Value, value: Value) -> None:
    """Set `count` bytes to `value`."""
    arguments = [address.pointer(), value.trunc(I8), count, ir.Constant(I1, 0)]
    intrinsics.call(build, "llvm.memset.p0.i64", ir.VoidType(), arguments)


@builtin
def copy(build: Builder, target: Value, source: Value, count: Value) -> None:
    """Copy `count` bytes."""
    arguments = [target.pointer(), source.pointer(), count, ir.Constant(I1, 0)]
    intrinsics.call(build, "llvm.memcpy.p0.p0.i64", ir.VoidType(), arguments)


@part
def clear(address: int, count: int) -> None:
    """Zero `count` bytes."""
    fill(address, count, 0)

