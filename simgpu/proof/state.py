"""View that a lane has of its wave, as terms: registers, path condition and memory; two such states become one where paths meet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import z3

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Const, Operand, Reg
from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, negation, number
from simgpu.hardware.isa.types import Type
from simgpu.machine.operands import constant_bits
from simgpu.proof.memory_log import MemoryLog
from simgpu.proof.terms import Lanes, NotModelled, wide

Term = Any
SCC = "scc"
Place = tuple[str, int]  # register file and number; ("scc", 0)


@dataclass
class WaveState:
    """State of a wave at an instruction, as the lane `lanes.lane` sees it.

    kernel: a name, for the symbols of what this kernel leaves undefined.
    """

    kernel: str
    lanes: Lanes
    pc: int  # byte offset in the code
    mode: int  # the MODE register
    memory: MemoryLog
    calls: tuple[int, ...] = ()  # offsets that functions return to
    path: list[Term] = field(default_factory=list)  # conditions that hold here
    path_ids: set[int] = field(default_factory=set)
    registers: dict[Place, Term] = field(default_factory=dict)

    def fork(self) -> WaveState:
        """Returns a copy that changes apart."""
        path, ids, registers = list(self.path), set(self.path_ids), dict(self.registers)
        return replace(self, path=path, path_ids=ids, registers=registers, memory=self.memory.fork())

    @property
    def order(self) -> tuple[int, int]:
        """States with a lower order run first, so that paths meet: those in a function, then those farther back."""
        return -len(self.calls), self.pc

    # -- conditions ----------------------------------------------------------------------------

    @property
    def exec(self) -> Term:
        """EXEC, 64 bits."""
        return self.scalar(isa.EXEC, 64)

    @property
    def active(self) -> Term:
        """Condition that EXEC has this lane's bit."""
        return self.lanes.bit(self.exec)

    def known_ids(self, active: bool = True) -> set[int]:
        """Returns the ids of conditions that hold here, or in this lane if it is active."""
        return self.path_ids | self.lanes.parts(self.active).ids if active else self.path_ids

    @property
    def guard(self) -> Term:
        """Condition that this lane gets here and is active."""
        return every(*self.path, *(part for part in self.lanes.parts(self.active).terms if part.get_id() not in self.path_ids))

    def follow(self, condition: Term) -> bool:
        """Adds a condition to the path; returns False if it contradicts the path."""
        parts = self.lanes.parts(condition)
        if z3.is_false(condition) or not parts.opposites.isdisjoint(self.path_ids):
            return False
        for part in parts.terms:
            if part.get_id() not in self.path_ids:
                self.path.append(part)
                self.path_ids.add(part.get_id())
        return True

    # -- registers -----------------------------------------------------------------------------

    def read(self, place: Place) -> Term:
        found = self.registers.get(place)
        if found is None:
            found = self.registers[place] = self._undefined_value(place)
        return found

    def _undefined_value(self, place: Place) -> Term:
        file, index = place
        name = f"{self.kernel}.{file}{index}"
        if file == SCC:
            return z3.Bool(name)
        if file == "s":
            return z3.BitVec(name, 32)
        return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(32))(self.lanes.lane)

    def scalar(self, index: int, bits: int = 32) -> Term:
        if bits == 64:
            return wide(self.read(("s", index)), self.read(("s", index + 1)))
        return concat(*(self.read(("s", index + i)) for i in range(bits // 32)))

    def set_scalar(self, index: int, value: Term) -> None:
        if value.size() < 32:
            value = concat(value, number(0, 32 - value.size()))
        for i in range(value.size() // 32):
            self.registers["s", index + i] = bits_of(value, 32 * i, 32)

    def vector(self, register: Reg, bits: int = 32, other_lanes: bool = False) -> Term:
        """Returns vector registers; other_lanes: True if other lanes' values are used, so that EXEC says nothing about them."""
        known = self.known_ids() if not other_lanes else set()
        words = [self.read((register.file, register.index + i)) for i in range(max(1, bits // 32))]
        words = [self.lanes.assume(word, known) for word in words]
        return wide(*words) if len(words) == 2 else concat(*words)

    def set_vector(self, register: Reg, value: Term, condition: Term | None = None) -> None:
        """Writes vector registers where the condition holds (default: where EXEC has the lane)."""
        condition = self.active if condition is None else condition
        known = self.known_ids(active=False)
        for i in range(max(1, value.size() // 32)):
            word = bits_of(value, 32 * i, 32) if value.size() > 32 else value
            place = register.file, register.index + i
            old = self.read(place) if not z3.is_true(condition) else word
            self.registers[place] = choose(condition, word, self.lanes.assume(old, {negation(condition).get_id(), *known}))

    def operand(self, operand: Operand, type_: Type, bits: int = 0, other_lanes: bool = False) -> Term:
        """Returns a source operand's bits, read as `type_`."""
        bits = bits or max(32, type_.bits)
        if isinstance(operand, Reg):
            if operand.file == "s":
                return self.scalar(operand.index, bits)
            return self.vector(operand, bits, other_lanes)
        if isinstance(operand, Const) and operand.code in (isa.VCCZ, isa.EXECZ, isa.SCC_SOURCE):
            state = self.read((SCC, 0))
            if operand.code != isa.SCC_SOURCE:
                state = self.lanes.empty(self.scalar(isa.VCC if operand.code == isa.VCCZ else isa.EXEC, 64))
            return choose(state, number(1, bits), number(0, bits))
        return number(constant_bits(operand, type_, bits), bits)


def merge(a: WaveState, b: WaveState) -> WaveState:
    """Returns the state where two paths meet: registers that differ are chosen by the path."""
    if a.mode != b.mode:
        raise NotModelled("paths with different MODE registers meet")
    shared = 0
    while shared < min(len(a.path), len(b.path)) and a.path[shared].eq(b.path[shared]):
        shared += 1
    whole = [every(*side.path[shared:]) for side in (a, b)]
    ours, apart = whole[0], negation(whole[0]).eq(whole[1])
    if shared < min(len(a.path), len(b.path)) and negation(a.path[shared]).eq(b.path[shared]):
        ours = a.path[shared]  # the first condition that differs tells the paths apart
    path, memory = a.path[:shared], a.memory.merge(b.memory)
    ids = {part.get_id() for part in path}
    made = replace(a, path=path, path_ids=ids, registers=dict(a.registers), memory=memory)
    if not apart:
        made.follow(negation(every(*map(negation, whole))))
    for place in sorted({*a.registers, *b.registers}):
        x, y = a.read(place), b.read(place)
        if not x.eq(y):
            made.registers[place] = _simplify_choice(a.lanes, ours, x, y)
    return made


def _simplify_choice(lanes: Lanes, condition: Term, a: Term, b: Term) -> Term:
    """Returns a choice without choices that the condition has made: a path writes a register only where it is taken."""
    opposite = negation(condition)
    return choose(condition, lanes.assume(a, lanes.parts(condition).ids), lanes.assume(b, {opposite.get_id()}))
