"""Effects of two kernels on memory, as formulas that hold if they did the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import choose, concat, every, fold, negation, number
from simgpu.proof.memory_log import Atomic, Interval, LaneStore
from simgpu.proof.roots import GLOBAL, LDS, POINTER, WIDTH, initial_bytes
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled

Term = Any
CHUNK = 8  # most bytes of an obligation
MOST_BYTES = 600  # stored at addresses that may overlap, when the kernels store in different orders


@dataclass(frozen=True)
class Obligation:
    """A formula that must hold for all inputs, if the kernels are equal."""

    what: str
    holds: Term
    seen: Term | None = None  # the same of memory afterwards: a store of the value before is not seen
    pc: tuple[int, ...] = ()  # addresses of the instructions that it is about, of each kernel; 0 for none


@dataclass(frozen=True)
class Cell:
    """A byte that was stored, perhaps several times."""

    # (condition, byte, its bits that may have any value), the last first; those before one without a condition are left out
    writes: tuple[tuple[Term, Term, Term], ...]
    pc: int

    def after(self, store: LaneStore, at: int) -> Cell:
        """Returns the cell after byte `at` of a store."""
        free = store.free[at] if store.free else number(0, 8)
        return Cell(((store.guard, store.data[at], free), *(() if z3.is_true(store.guard) else self.writes)), store.pc)

    @property
    def written(self) -> Term:
        return negation(every(*(negation(guard) for guard, _, _ in self.writes)))

    @property
    def value(self) -> Term:
        return self._last(1)

    @property
    def free(self) -> Term:
        return self._last(2)

    def _last(self, part: int) -> Term:
        value = self.writes[-1][part]
        for write in reversed(self.writes[:-1]):
            value = choose(write[0], write[part], value)
        return value

    def like(self, other: Cell) -> bool:
        """True if the conditions are the same."""
        return len(self.writes) == len(other.writes) and all(
            a[0].eq(b[0]) for a, b in zip(self.writes, other.writes, strict=True)
        )


@dataclass
class StoreRun:
    """Stores in a row to addresses that are a known distance apart."""

    root: Term
    cells: dict[int, Cell]


def obligations(a: WaveState, b: WaveState, refines: bool = False) -> Iterator[Obligation]:
    """Yields what must hold. Raises NotModelled if the kernels' memory operations cannot be paired.

    refines: True if b is a source that a is compiled from: a may leave out stores that change nothing, and any bits are right that
    b leaves free.
    """
    ours, theirs = (_intervals(state) for state in (a, b))
    if len(ours) != len(theirs):
        raise NotModelled(f"{len(ours) - 1} and {len(theirs) - 1} barriers")
    for number_, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if number_ < len(ours) - 1:
            yield Obligation(f"barrier {number_} is reached", mine.path == other.path)
        yield from _atomics(mine, other)
        last = refines and number_ == len(ours) - 1  # no lane reads LDS after that
        yield from _stores(mine, other, number_, Rules(refines, last))


def _intervals(state: WaveState) -> list[Interval]:
    return [*state.memory.intervals, Interval(tuple(state.memory.events), every(*state.path))]


def _atomics(a: Interval, b: Interval) -> Iterator[Obligation]:
    mine, other = ([event for event in side.events if isinstance(event, Atomic)] for side in (a, b))
    if [event.operation for event in mine] != [event.operation for event in other]:
        raise NotModelled("different atomic operations, or another order of them")
    for x, y in zip(mine, other, strict=True):
        if x.address.space != y.address.space or [d.size() for d in x.data] != [d.size() for d in y.data]:
            raise NotModelled("different atomic operations, or another order of them")
        same = every(x.address.at() == y.address.at(), *(p == q for p, q in zip(x.data, y.data, strict=True)))
        holds = every(x.guard == y.guard, z3.Implies(x.guard, same))
        yield Obligation(f"atomic {x.operation}", holds, pc=(x.pc, y.pc))


def _stores(a: Interval, b: Interval, epoch: int, rules: Rules) -> Iterator[Obligation]:
    mine, other = (
        [event for event in side.events if isinstance(event, LaneStore) and not (rules.last and event.address.space == LDS)]
        for side in (a, b)
    )
    apart = all(event.address.base for event in (*mine, *other))

    def group(event: LaneStore) -> str:
        pointer = event.address.base if apart and event.address.space == GLOBAL else ""
        return f"{event.address.space} {pointer and f'of argument {pointer.removeprefix(POINTER)}'}"

    for name in dict.fromkeys(map(group, (*mine, *other))):
        sides = [[event for event in side if group(event) == name] for side in (mine, other)]
        runs = [_runs(side) for side in sides]
        alike = len(runs[0]) == len(runs[1]) and all(x.root.eq(y.root) for x, y in zip(*runs, strict=True))
        if alike and (len(runs[0]) == 1 or all(x.cells.keys() == y.cells.keys() for x, y in zip(*runs, strict=True))):
            for x, y in zip(*runs, strict=True):
                yield from _cells(name, x, y, epoch, rules)
        else:
            yield _any_address(name, sides, epoch, rules)


def _runs(events: Sequence[LaneStore]) -> list[StoreRun]:
    runs: list[StoreRun] = []
    for event in events:
        if not runs or not runs[-1].root.eq(event.address.root):
            runs.append(StoreRun(event.address.root, {}))
        cells = runs[-1].cells
        for at in range(len(event.data)):
            place = event.address.offset + at
            cells[place] = cells.get(place, Cell((), 0)).after(event, at)
    return runs


def _cells(name: str, a: StoreRun, b: StoreRun, epoch: int, rules: Rules) -> Iterator[Obligation]:
    """Yields an obligation for each few bytes that were stored under the same conditions."""
    offsets = sorted({*a.cells, *b.cells})
    nothing = Cell(((z3.BoolVal(False), z3.BitVecVal(0, 8), number(0, 8)),), 0)
    at = 0
    while at < len(offsets):
        first = [run.cells.get(offsets[at], nothing) for run in (a, b)]
        end = at + 1
        while end < len(offsets) and end - at < CHUNK and offsets[end] == offsets[end - 1] + 1:
            following = [run.cells.get(offsets[end], nothing) for run in (a, b)]
            if not all(x.like(y) for x, y in zip(first, following, strict=True)):
                break
            end += 1
        mine, other = (_block([run.cells.get(offset, nothing) for offset in offsets[at:end]]) for run in (a, b))
        before = initial_bytes(str(epoch), a.root, offsets[at], end - at) if name.startswith(GLOBAL) else None
        holds, seen = rules.same(mine, other, before)
        yield Obligation(f"{end - at} bytes stored to {name.strip()}", holds, seen, (first[0].pc, first[1].pc))
        at = end


@dataclass(frozen=True)
class Rules:
    """Allowed differences between two kernels.

    refines: as in `obligations`; last: True after the last barrier.
    """

    refines: bool
    last: bool

    def same(self, mine: Cell, other: Cell, before: Term | None) -> tuple[Term, Term | None]:
        """Returns the condition that cells are the same, and that memory is the same afterwards. before: its bytes, if known."""
        seen = None
        if before is not None:
            free = choose(other.written, other.free, number(0, before.size()))
            seen = _or(choose(mine.written, mine.value, before), free) == _or(choose(other.written, other.value, before), free)
        if self.refines and seen is not None and not (mine.written.eq(other.written)):
            return seen, seen
        value = z3.Implies(mine.written, fold(_or(mine.value, other.free) == _or(other.value, other.free)))
        return every(fold(mine.written == other.written), value), seen


def _or(bits: Term, free: Term) -> Term:
    """Returns bits with ones where any value is right."""
    return bits if z3.is_bv_value(free) and not free.as_long() else fold(bits | free)


def _block(cells: Sequence[Cell]) -> Cell:
    """Returns cells with the same conditions as one."""
    first = cells[0]
    writes = tuple(
        (write[0], *(concat(*(cell.writes[number_][part] for cell in cells)) for part in (1, 2)))
        for number_, write in enumerate(first.writes)
    )
    return Cell(writes, first.pc)  # type: ignore[arg-type]


def _any_address(name: str, sides: Sequence[Sequence[LaneStore]], epoch: int, rules: Rules) -> Obligation:
    """Returns the obligation that memory is the same at every address."""
    if sum(len(event.data) for side in sides for event in side) > MOST_BYTES:
        raise NotModelled(f"stores in different orders to addresses in {name.strip()} that may overlap")
    space = next(event.address.space for side in sides for event in side)
    address = z3.BitVec("any address", WIDTH[space])
    cells = []
    for side in sides:
        cell = Cell(((z3.BoolVal(False), z3.BitVecVal(0, 8), number(0, 8)),), 0)
        for event in side:
            for at in range(len(event.data)):
                here = every(event.guard, event.address.at(at) == address)
                cell = cell.after(replace(event, guard=here), at)
        cells.append(cell)
    before = initial_bytes(str(epoch), address, 0, 1) if space == GLOBAL and rules.refines else None
    return Obligation(f"stores to {name.strip()}", rules.same(cells[0], cells[1], before)[0])
