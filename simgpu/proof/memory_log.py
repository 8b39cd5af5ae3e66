"""Memory as one lane sees it: its stores, in order, over memory of unknown content.

An address is a sum; its root is the sum without its constant, so two addresses of one root are a known distance apart. Its base is
the kernel argument in the sum. Memory of different bases does not overlap, because an access outside the buffer that a
pointer belongs to is undefined. Between barriers, a lane is assumed not to read what other lanes write; after a barrier, memory
has any content, the same for both kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, fold, negation
from simgpu.proof.roots import GLOBAL, LDS, PRIVATE, WIDTH, Address, Roots, initial_bytes
from simgpu.proof.terms import Lanes, NotModelled

Term = Any


@dataclass(frozen=True)
class Load:
    """A lane's load from global memory."""

    address: Address
    count: int  # bytes
    guard: Term  # the condition that the lane loads
    pc: int


@dataclass(frozen=True)
class LaneStore:
    """A lane's store."""

    address: Address
    data: tuple[Term, ...]  # bytes
    guard: Term  # the condition that the lane stores
    pc: int
    free: tuple[Term, ...] = ()  # of each byte, the bits that may have any value; empty if there are none


@dataclass(frozen=True)
class Atomic:
    """A lane's atomic operation."""

    operation: str
    address: Address
    data: tuple[Term, ...]
    guard: Term
    pc: int


@dataclass(frozen=True)
class Interval:
    """Accesses of a lane between two barriers."""

    events: tuple[LaneStore | Atomic, ...]
    path: Term  # the condition that the wave gets to the barrier at its end


@dataclass
class MemoryLog:
    """A lane's stores since the last barrier, and intervals before it."""

    kernel: str
    lanes: Lanes
    roots: Roots
    read_only: frozenset[str] = frozenset()  # bases of memory that nothing writes
    events: list[LaneStore | Atomic] = field(default_factory=list)
    private: list[LaneStore] = field(default_factory=list)  # never visible to other lanes
    intervals: list[Interval] = field(default_factory=list)
    read: list[Load] = field(default_factory=list)  # of global memory
    knows_operands: ClassVar[bool] = True  # False if an access has to have an address

    def fork(self) -> MemoryLog:
        return replace(
            self, events=list(self.events), private=list(self.private), intervals=list(self.intervals), read=list(self.read)
        )  # fmt: skip

    def merge(self, other: MemoryLog) -> MemoryLog:
        """Returns the log where two paths meet; the conditions of events tell the paths apart."""
        if [id(each) for each in self.intervals] != [id(each) for each in other.intervals]:
            raise NotModelled("paths with different barriers meet")
        made = self.fork()
        for name in ("events", "private", "read"):
            mine, theirs = getattr(self, name), getattr(other, name)
            pairs = enumerate(zip(mine, theirs, strict=False))
            shared = next((at for at, (a, b) in pairs if a is not b), min(len(mine), len(theirs)))
            setattr(made, name, [*mine, *theirs[shared:]])
        return made

    def barrier(self, path: Term) -> None:
        self.intervals.append(Interval(tuple(self.events), path))
        self.events = []

    def store(self, address: Address, data: Term, guard: Term, pc: int) -> None:
        if not z3.is_false(guard):
            self.add(LaneStore(address, bytes_of(data), guard, pc))

    def add(self, store: LaneStore) -> None:
        """Adds a store."""
        (self.private if store.address.space == PRIVATE else self.events).append(store)

    def atomic(self, operation: str, address: Address, data: tuple[Term, ...], guard: Term, pc: int) -> Term:
        """Adds an atomic operation and returns memory's value before it, 64 bits: unknown, but the same for the same operations."""
        count = sum(isinstance(event, Atomic) for event in self.events)
        self.events.append(Atomic(operation, address, data, guard, pc))
        name = f"atomic {len(self.intervals)}.{count}"
        return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(64))(self.lanes.lane)

    def load(self, address: Address, count: int, known: set[int], guard: Term, pc: int) -> Term:
        """Returns `count` bytes of memory. known: ids of conditions that hold; guard: of the load."""
        pieces, done = self.pieces(address, count, known, lambda event: event.data)
        if address.space == LDS and not all(done) and any(event.address.space == LDS for event in self.events):
            raise NotModelled("LDS is read that another lane may have written since the last barrier")
        if address.space == GLOBAL and not all(done):
            self.read.append(Load(address, count, guard, pc))
        return compose(pieces, [self._initial(address, byte) for byte in range(count)])

    def pieces(
        self, address: Address, count: int, known: set[int], content: Callable[[LaneStore], Sequence[Term]]
    ) -> tuple[list[list[tuple[Term, Term]]], list[bool]]:
        """Returns for each byte of a load what stores may have put there, with their conditions, and if it is one of them."""
        pieces: list[list[tuple[Term, Term]]] = [[] for _ in range(count)]
        done = [False] * count
        events = self.private if address.space == PRIVATE else self.events
        for event in reversed(events):
            if all(done):
                break
            if event.address.space == address.space:
                self._cover(event, address, known, pieces, done, content)
        return pieces, done

    def _cover(
        self, event: LaneStore | Atomic, address: Address, known: set[int], pieces: list[list[tuple[Term, Term]]], done: list[bool],
        content: Callable[[LaneStore], Sequence[Term]],
    ) -> None:  # fmt: skip
        """Adds an event's bytes that a load may read."""
        same = event.address.root.eq(address.root)
        if not same and event.address.base and address.base and event.address.base != address.base:
            return
        guard = self.lanes.assume(event.guard, known)
        if negation(guard).get_id() in known:
            return
        if isinstance(event, Atomic):
            raise NotModelled("a plain load may read what an atomic operation wrote")
        for at, byte in enumerate(content(event)):
            if same:
                place = event.address.offset + at - address.offset
                if 0 <= place < len(pieces) and not done[place]:
                    pieces[place].append((guard, byte))
                    done[place] = bool(z3.is_true(guard))
                continue
            for place in range(len(pieces)):
                if not done[place]:
                    equal = z3.simplify(event.address.at(at) == address.at(place))
                    if not z3.is_false(equal):
                        pieces[place].append((every(guard, equal), byte))

    def _initial(self, address: Address, byte: int) -> Term:
        """Returns a byte from before this lane's stores."""
        place, width = address.at(byte), z3.BitVecSort(WIDTH[address.space])
        if address.space == PRIVATE:
            return z3.Function(f"{self.kernel}.private", z3.BitVecSort(32), width, z3.BitVecSort(8))(self.lanes.lane, place)
        epoch = "" if address.base in self.read_only else str(len(self.intervals))
        if address.space == GLOBAL:
            return initial_bytes(epoch, address.root, address.offset + byte, 1)
        return z3.Function(f"{address.space} {epoch}", width, z3.BitVecSort(8))(place)


def bytes_of(term: Term) -> tuple[Term, ...]:
    """Returns a term's bytes, the lowest first."""
    return tuple(bits_of(term, low, 8) for low in range(0, term.size(), 8))


def compose(pieces: list[list[tuple[Term, Term]]], initial: list[Term]) -> Term:
    """Returns the bytes of a load as one term: of whole words, if all bytes have the same conditions."""
    first = pieces[0]
    alike = all(
        len(piece) == len(first) and all(a.eq(b) for (a, _), (b, _) in zip(piece, first, strict=True)) for piece in pieces
    )  # fmt: skip
    if alike:
        total = concat(*initial) if not (first and z3.is_true(first[-1][0])) else concat(*(piece[-1][1] for piece in pieces))
        for number_, (condition, _) in reversed(list(enumerate(first))):
            total = choose(condition, concat(*(piece[number_][1] for piece in pieces)), total)
        return total
    made = []
    for piece, byte in zip(pieces, initial, strict=True):
        for condition, value in reversed(piece):
            byte = fold(choose(condition, value, byte))
        made.append(byte)
    return concat(*made)
