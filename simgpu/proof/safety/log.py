"""Accesses of a lane, all of them, for questions about bounds and races. A loaded value is unknown, each load's its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import z3

from simgpu.hardware.isa.lane_smt import number
from simgpu.proof.memory_log import MemoryLog
from simgpu.proof.roots import PRIVATE, Address, initial_bytes

Term = Any
LOADED = "loaded"  # names of loaded values begin so


@dataclass(frozen=True)
class Access:
    """A lane's access to memory of the launch, or to its own."""

    kind: str  # load, store or atomic
    address: Address
    size: int  # bytes
    guard: Term  # the condition that the lane does it
    barriers: Term  # number of barriers before it
    pc: int
    value: Term | None = None  # of a load

    @property
    def writes(self) -> bool:
        return self.kind != "load"


@dataclass
class AccessLog(MemoryLog):
    """A lane's accesses, as the log's events. Private memory is as in a `MemoryLog`."""

    events: list[Any] = field(default_factory=list)
    barriers: Term = field(default_factory=lambda: number(0, 32))  # passed so far
    numbers: Iterator[int] = field(default_factory=itertools.count)  # for names of unknown values, shared by all paths
    knows_operands: ClassVar[bool] = False
    forgotten: int = 0  # a number for private memory of unknown content

    def merge(self, other: MemoryLog) -> MemoryLog:
        assert isinstance(other, AccessLog)
        made = super().merge(other)
        assert isinstance(made, AccessLog)
        if self.forgotten != other.forgotten:
            made.forget_private()
        return made

    def forget_private(self) -> None:
        """Gives private memory an unknown content."""
        self.private, self.forgotten = [], next(self.numbers) + 1

    def barrier(self, path: Term) -> None:
        """A register of the state counts barriers."""

    def store(self, address: Address, data: Term, guard: Term, pc: int) -> None:
        if address.space == PRIVATE:
            super().store(address, data, guard, pc)
        self._add("store", address, data.size() // 8, guard, pc)

    def atomic(self, operation: str, address: Address, data: tuple[Term, ...], guard: Term, pc: int) -> Term:
        self._add("atomic", address, 8 if any(mark in operation for mark in ("x2", "64")) else 4, guard, pc)
        return self.unknown(8, everywhere=False)

    def load(self, address: Address, count: int, known: set[int], guard: Term, pc: int) -> Term:
        if address.space == PRIVATE:
            self._add("load", address, count, guard, pc)
            return super().load(address, count, known, guard, pc)
        if address.base in self.read_only:
            value = initial_bytes("", address.root, address.offset, count)
        else:
            value = self.unknown(count, everywhere=not self.lanes.varies(address.root))
        self._add("load", address, count, guard, pc, value)
        return value

    def unknown(self, count: int, everywhere: bool) -> Term:
        """Returns an unknown value; everywhere: the same in all lanes."""
        name = f"{LOADED} #{next(self.numbers)}"
        if everywhere:
            return z3.BitVec(name, 8 * count)
        return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(8 * count))(self.lanes.lane)

    def _add(self, kind: str, address: Address, size: int, guard: Term, pc: int, value: Term | None = None) -> None:
        if not z3.is_false(guard):
            self.events.append(Access(kind, address, size, guard, self.barriers, pc, value))

    def _initial(self, address: Address, byte: int) -> Term:
        if address.space != PRIVATE:
            return super()._initial(address, byte)
        name = f"private #{self.forgotten}"
        return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(32), z3.BitVecSort(8))(self.lanes.lane, address.at(byte))
