"""AMDGPU's intrinsics for buffers: raw and structured, formatted, atomic, scalar loads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, fold, number, some
from simgpu.proof import buffers
from simgpu.proof.buffers import BufferPlace
from simgpu.proof.ir.atomics import operation
from simgpu.proof.ir.memory import IrHeap
from simgpu.proof.ir.syntax import IrType
from simgpu.proof.ir.values import SymbolicValue, known_value
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled, is_number

Term = Any
NAME = re.compile(r"amdgcn\.(raw|struct)\.(?:ptr\.)?(t?)buffer\.(load|store|atomic\.(\w+))(\.format)?\b")
SCALAR = re.compile(r"amdgcn\.s\.buffer\.load\.")
ATOMICS = {"smax": "max", "smin": "min", "swap": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap", "cmpswap": "cmpxchg"}


def is_buffer(name: str) -> bool:
    """True for an intrinsic that accesses a buffer.

    >>> is_buffer("amdgcn.raw.ptr.buffer.load.v2i32"), is_buffer("amdgcn.raw.buffer.load.lds")
    (True, False)
    """
    return bool(SCALAR.match(name) or NAME.match(name)) and ".lds" not in name


def access(
    heap: IrHeap, state: WaveState, name: str, type_: IrType, values: Sequence[SymbolicValue]
) -> tuple[SymbolicValue | None, Term]:
    """Does an access; returns its result, and the condition that its behaviour is undefined."""
    undefined = some(z3.BoolVal(False), *(each.poison for value in values for each in value.scalars))
    if SCALAR.match(name):
        place = BufferPlace(_words(values[0]), None, values[1].bits, number(0, 32))
        return _load(heap, state, place, type_, constant=True), undefined
    found = NAME.match(name)
    assert found is not None
    count = 0 if found[3] == "load" else 2 if found[4] == "cmpswap" else 1
    data, (resource, *rest) = values[:count], values[count:]
    index = rest.pop(0).bits if found[1] == "struct" else None
    form = z3.simplify(rest[2].bits).as_long() if found[2] else 0 if found[5] else None
    place = BufferPlace(_words(resource), index, rest[0].bits, rest[1].bits, form)
    if found[3] == "load":
        return _load(heap, state, place, type_), undefined
    if found[3] == "store":
        _store(heap, state, place, data[0])
        return None, undefined
    return _atomic(heap, state, place, found[4], data), undefined


def resource(values: Sequence[SymbolicValue]) -> Term:
    """Returns make.buffer.rsrc's 128 bits, of an address of 48 bits, the stride, the number of records and flags."""
    base, stride, records, flags = (value.bits for value in values)
    low = base if is_number(stride, 0) else concat(bits_of(base, 0, 48), stride)
    return concat(low, bits_of(records, 0, 32), flags)


def _words(value: SymbolicValue) -> tuple[Term, Term, Term, Term]:
    if value.bits.size() != 128:
        raise NotModelled(f"a buffer's resource of {value.bits.size()} bits")
    return tuple(bits_of(value.bits, low, 32) for low in (0, 32, 64, 96))  # type: ignore[return-value]


def _load(heap: IrHeap, state: WaveState, place: BufferPlace, type_: IrType, constant: bool = False) -> SymbolicValue:
    found = place.linear(state.memory.roots, type_.width // 8)
    if found is None:
        components = type_.count if type_.kind == "vector" else 1
        return known_value(type_, buffers.load(state.memory, place, type_.width, components, constant))
    address, inside = found
    data, free = heap.read(state, address, type_.width // 8)
    if not (z3.is_bv_value(free) and not free.as_long()):
        raise NotModelled("a buffer's load of poison")
    return known_value(type_, choose(inside, data, number(0, type_.width)))


def _store(heap: IrHeap, state: WaveState, place: BufferPlace, data: SymbolicValue) -> None:
    found = place.linear(state.memory.roots, data.type.width // 8)
    if found is None:
        components = data.type.count if data.type.kind == "vector" else 1
        buffers.store(state.memory, place, data.bits, components, every(*state.path), 0)
        return
    heap.write(state, found[0], data.bits, number(0, data.type.width), found[1])


def _atomic(heap: IrHeap, state: WaveState, place: BufferPlace, name: str, data: Sequence[SymbolicValue]) -> SymbolicValue:
    type_ = data[0].type
    what = ATOMICS.get(name, name)
    said = operation(what, type_, 1)
    operands = [concat(*(each.bits for each in data))]
    found = place.linear(state.memory.roots, type_.width // 8)
    if found is None:
        old = buffers.atomic(state.memory, place, said, operands, every(*state.path), 0)
    else:
        old = state.memory.atomic(said, found[0], tuple(operands), every(*state.path, found[1]), 0)
        old = choose(found[1], old, number(0, 64))
    return known_value(type_, fold(bits_of(old, 0, type_.width)))
