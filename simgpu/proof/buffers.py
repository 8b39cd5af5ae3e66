"""Buffer accesses: through a resource that is known to be linear, or by operands only, in memory apart from all else.

What a resource of unknown content does to an address is the same for the same operands. So a load is an unknown function of
resource, index and offsets, and a store is an event with these operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, concat, fold, number
from simgpu.proof.memory_log import Atomic, MemoryLog
from simgpu.proof.roots import GLOBAL, Address, Roots, has_pointer
from simgpu.proof.terms import is_number, wide

Term = Any
BUFFER = "a buffer"
ADD_TID = 23  # bit of a resource's last word: the lane's number is added to the index


@dataclass(frozen=True)
class BufferPlace:
    """Operands of a buffer access. index: None without one; form: of a formatted access, its format's number or 0."""

    resource: tuple[Term, Term, Term, Term]  # words
    index: Term | None
    offset: Term  # 32 bits
    soffset: Term  # 32 bits
    form: int | None = None

    def linear(self, roots: Roots, size: int) -> tuple[Address, Term] | None:
        """Returns the address of a raw buffer's bytes and the condition that they are in its range (`memory.buffers`).

        None if more has to be known about the resource.
        """
        words = self.resource
        flags = z3.simplify(words[3])
        if self.index is not None or self.form is not None or not z3.is_bv_value(flags) or flags.as_long() >> ADD_TID & 1:
            return None
        base, without_stride = _base(words[0], words[1])
        if not without_stride:
            return None
        distance = fold(z3.ZeroExt(32, self.offset)) + fold(z3.ZeroExt(32, self.soffset))
        inside = z3.simplify(z3.ULE(distance + size, z3.ZeroExt(32, words[2])))
        return roots.place(GLOBAL, base + distance), inside

    def operands(self, byte: int) -> tuple[Term, ...]:
        """Returns what says where a byte of the access is."""
        index = () if self.index is None else (self.index,)
        return (concat(*self.resource), *index, z3.simplify(self.offset + byte), z3.simplify(self.soffset))

    def name_of(self, what: str, part: int) -> str:
        """Returns the name of an access: of formatted ones, with the component."""
        kind = "raw" if self.index is None else "structured"
        return f"{kind} buffer {what}{'' if self.form is None else f' format {self.form}.{part}'}"


def load(memory: MemoryLog, place: BufferPlace, bits: int, components: int = 1, constant: bool = False) -> Term:
    """Returns what a load reads. components: of a formatted one; constant: True for a scalar load, as nothing writes there."""
    stores = sum(isinstance(event, Atomic) and event.address.space == BUFFER for event in memory.events)
    epoch = f" {len(memory.intervals)}.{stores}" if not constant and (memory.intervals or stores) else ""
    made = []
    for part, unit, byte in _parts(place, bits, components):
        operands = place.operands(byte)
        name = f"{place.name_of('load', part)} {unit}{epoch}"
        made.append(z3.Function(name, *(each.sort() for each in operands), z3.BitVecSort(unit))(*operands))
    return concat(*made)


def store(memory: MemoryLog, place: BufferPlace, data: Term, components: int, guard: Term, pc: int) -> None:
    """Notes a store. components: of a formatted one."""
    low = 0
    for part, unit, byte in _parts(place, data.size(), components):
        name = place.name_of("store", part)
        memory.atomic(name, _nowhere(), (bits_of(data, low, unit), *place.operands(byte)), guard, pc)
        low += unit


def atomic(memory: MemoryLog, place: BufferPlace, operation: str, data: Sequence[Term], guard: Term, pc: int) -> Term:
    """Notes an atomic operation; returns memory's value before it, 64 bits."""
    return memory.atomic(place.name_of(operation, 0), _nowhere(), (*data, *place.operands(0)), guard, pc)


def _nowhere() -> Address:
    return Address(BUFFER, number(0, 64), 0, "")


def _parts(place: BufferPlace, bits: int, components: int) -> list[tuple[int, int, int]]:
    """Returns of each part of an access the number, the bits, and the bytes before it."""
    if place.form is not None:
        return [(at, bits // components, 0) for at in range(components)]
    unit = 32 if bits % 32 == 0 else bits
    return [(at, unit, at * unit // 8) for at in range(bits // unit)]


def _base(low: Term, high: Term) -> tuple[Term, bool]:
    """Returns the 48 bits of a resource's address, and if its other 16 bits are known to be 0. Addresses have 48 bits."""
    masked = high.decl().kind() == z3.Z3_OP_BAND and any(is_number(part, 0xFFFF) for part in high.children())
    if masked:
        (high,) = (part for part in high.children() if not is_number(part, 0xFFFF))
    whole = wide(low, high)
    return whole, masked or has_pointer(whole)
