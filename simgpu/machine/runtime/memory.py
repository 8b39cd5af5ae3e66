"""Memory operations of translated functions. An address is a host's, an int."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.runtime import places
from simgpu.machine.runtime.functions import part
from simgpu.machine.runtime.places import Array, StructRecord, builtin
from simgpu.machine.values import I1, I8, Builder, IrValue


@builtin
def words(build: Builder, address: IrValue, count: IrValue) -> Array:
    """Returns an array of `count` i64."""
    return Array(np.dtype(np.int64), address.pointer(), (count,))


@builtin
def octets(build: Builder, address: IrValue, count: IrValue) -> Array:
    """Returns an array of `count` bytes."""
    return Array(np.dtype(np.uint8), address.pointer(), (count,))


@builtin
def records(build: Builder, address: IrValue, count: IrValue, kind: np.dtype) -> Array:
    """Returns an array of `count` structures of a dtype."""
    return Array(kind, address.pointer(), (count,))


@builtin
def structure(build: Builder, address: IrValue, kind: np.dtype) -> StructRecord:
    """Returns the structure of a dtype at an address; its fields are read and written by name."""
    return StructRecord(kind, address.pointer())


@builtin
def address_of(build: Builder, place: StructRecord | Array) -> IrValue:
    """Returns the address of a structure or an array."""
    return place.pointer.address()


def _loading(kind: Any) -> Callable[..., Any]:
    def load(build: Builder, address: IrValue) -> IrValue:
        """Loads the integer at an address."""
        loaded: IrValue = places.load(np.dtype(kind), address.pointer())
        return loaded

    return load


def _storing(kind: Any) -> Callable[..., Any]:
    def store(build: Builder, address: IrValue, value: IrValue) -> None:
        """Stores the low bits of an integer at an address."""
        places.store(np.dtype(kind), address.pointer(), value)

    return store



load8, load32, load64 = (builtin(_loading(kind)) for kind in (np.uint8, np.int32, np.int64))
store8, store32, store64 = (builtin(_storing(kind)) for kind in (np.uint8, np.int32, np.int64))


@builtin
def shift_in_zeros(build: Builder, value: IrValue, by: IrValue) -> IrValue:
    """Shifts an integer's 64 bits to the right, without copies of its sign; by: 0 to 63."""
    return value >> by


@builtin
def fill(build: Builder, address: IrValue, count: IrValue, value: IrValue) -> None:
    """Sets `count` bytes to `value`."""
    arguments = [address.pointer(), value.trunc(I8), count, ir.Constant(I1, 0)]
    intrinsics.call(build, "llvm.memset.p0.i64", ir.VoidType(), arguments)


@builtin
def copy(build: Builder, target: IrValue, source: IrValue, count: IrValue) -> None:
    """Copies `count` bytes."""
    arguments = [target.pointer(), source.pointer(), count, ir.Constant(I1, 0)]
    intrinsics.call(build, "llvm.memcpy.p0.p0.i64", ir.VoidType(), arguments)


@part
def draw(state: int) -> int:
    """Returns 31 random bits, and advances the generator whose i64 state is at an address (Knuth's MMIX, its high bits)."""
    following = load64(state) * 6364136223846793005 + 1442695040888963407
    store64(state, following)
    return following >> 33 & 0x7FFFFFFF


@part
def clear(address: int, count: int) -> None:
    """Zeroes `count` bytes."""
    fill(address, count, 0)

