"""Proof that a workgroup accesses each element of its tile once: counts work-items; paths and rounds are the solver's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import z3

from simgpu.proof.coverage.evaluate import Evaluation
from simgpu.proof.coverage.forms import Condition, Form, at_least, both, either, of_panel
from simgpu.proof.coverage.run import PLACE, LoopPass
from simgpu.proof.safety.log import Access
from simgpu.proof.solver import Budget
from simgpu.proof.terms import NotModelled, conjuncts, flat_sum, symbol_name

Term = Any
CHUNK = 16  # bytes of a row that are together in a panel
ROUND = "round #"
OUTSIDE = "an element outside the matrix may be accessed"
LEFT_OUT = "an element of the matrix may be left out"


class Violation(Exception):
    """Raised for what a kernel does otherwise than its plan; the message says what."""


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory and the part of it that a workgroup has."""

    pointer: str  # the pointer's symbol
    argument: str  # its name
    kind: str  # "load" or "store"
    axes: tuple[str, str]  # the sizes of a column and of a row: m, n or k
    stride: str  # symbol of the elements from row to row
    batch: str  # symbol of the bytes from matrix to matrix
    element: int  # bytes
    times: np.ndarray | None = None  # how often an element of a step is accessed, [row, column]; None: each once
    columns: int = 1  # of the product for one of this matrix
    panel: int = 0  # rows of a panel of a preshuffled matrix; 0: it is not preshuffled


@dataclass(frozen=True)
class Request:
    """Request of one instruction, in all work-items: elements of a matrix."""

    pc: int
    when: Condition
    at: tuple[Form, Form]  # row and column; an element of a work-item
    fork: tuple[LoopPass, ...]  # loops that it is in
    active: np.ndarray | None = None  # work-items that do it in any launch; None: all


@dataclass
class Group:
    """Requests with the same conditions on the launch, of one step of a loop."""

    when: Condition  # of the launch
    first: tuple[Form, Form]  # row and column of the first element
    loops: tuple[LoopPass, ...]
    requests: list[Request] = field(default_factory=list)


@dataclass
class Coverage:
    """Questions about one matrix."""

    matrix: Matrix
    tile: dict[str, int]  # elements of each axis
    extents: dict[str, Form]  # end of each axis: elements of the matrix, of K those of the workgroup's part
    evaluation: Evaluation
    passes: Sequence[LoopPass]
    facts: list[Term]
    budget: Budget
    starts: dict[int, int]  # first address of the block of an instruction
    numbers: dict[Any, Form] = field(default_factory=dict)  # of the matrix in its batch: one, by its key
    _again_of: dict[str, Term] = field(default_factory=dict)  # conditions of a next round, by the round's name

    def places(self, accesses: Sequence[Access]) -> tuple[Form, Form, Form]:
        """Shows that the accesses are each element of a workgroup's tile once; returns its first row, column and matrix's number.

        Raises Violation, NotModelled.
        """
        self._few_rounds()
        requests = [each for access in accesses for each in self._requests(access)]
        if not requests:
            raise Violation(f"no {self.matrix.kind} of {self.matrix.argument}")
        groups = self._groups(requests)
        for group in groups:
            self._check_counts(group)
        self._once(groups)
        self._always(groups)
        first = {tuple(_of_place(form).key() for form in group.first): group for group in groups}
        if len(first) > 1:
            raise Violation(f"{self.matrix.argument}: tiles at different places")
        if len(self.numbers) > 1:
            raise Violation(f"{self.matrix.argument}: tiles of several matrices of a batch")
        row, column = map(_of_place, groups[0].first)
        return row, column, *self.numbers.values()  # type: ignore[return-value]

    # -- what an instruction asks for ----------------------------------------------------------

    def _requests(self, access: Access) -> list[Request]:
        """Returns the elements that an instruction accesses, each in its cases."""
        evaluation, matrix = self.evaluation, self.matrix
        if access.size % matrix.element:
            raise NotModelled(f"an access of {access.size} bytes at {access.pc:#x}")
        parts = [part for part in flat_sum(access.address.root) if symbol_name(part) != matrix.pointer]
        when = both(*(evaluation.condition(part) for part in conjuncts(access.guard)))
        total = [(when, Form.of(access.address.offset))]
        for part in parts:
            total = [
                (where, form + more)
                for so_far, form in total
                for there, more in evaluation.cases(part)
                if not (where := _settle(both(so_far, there))).never
            ]  # fmt: skip
        loops = tuple(each for each in self.passes if self.starts[access.pc] in each.blocks)
        found = []
        for condition, form in total:
            condition, active = _constant_lanes(condition)
            row, column = (_only(part, active) for part in self._element(form, access.pc))
            loops_of = tuple(each for each in loops if str(each.round) in _names(condition, row, column))
            if bool(loops) != bool(loops_of):
                raise NotModelled(f"a round of a loop without its number, at {access.pc:#x}")
            for number in range(access.size // matrix.element):
                found.append(Request(access.pc, condition, self._unshuffle(row, column, number, access.pc), loops_of, active))
        return found

    def _unshuffle(self, row: Form, column: Form, number: int, pc: int) -> tuple[Form, Form]:
        """Returns row and column of one of the elements from a place in memory on."""
        matrix = self.matrix
        column = column + Form.of(number * matrix.columns)
        found = of_panel(row, column, matrix.panel, CHUNK // matrix.element) if matrix.panel else (row, column)
        if found is None:
            raise Violation(f"{matrix.argument}: an address that is not that of an element of a panel ({pc:#x})")
        return found

    def _element(self, form: Form, pc: int) -> tuple[Form, Form]:
        """Returns row and column of the element at a distance from the pointer."""
        matrix = self.matrix
        rows, rest = form.split(matrix.stride)
        low, rest = rest.split(matrix.batch)
        high, rest = rest.split(f"{matrix.batch} high")
        if (low.times(1 << 32) - high).parts or not all(product and product[0].startswith(PLACE) for product in low.parts):
            raise Violation(f"{matrix.argument}: the matrix of a batch is at another place than its number says ({pc:#x})")
        self.numbers[low.key()] = low
        found = [part.quotient(matrix.element) for part in (rows, rest)]
        if found[0] is None or found[1] is None:
            raise Violation(f"{matrix.argument}: an address is not that of an element ({pc:#x})")
        for part in found:
            assert part is not None
            strange = [name for product in part.parts for name in product if not name.startswith((PLACE, ROUND))]
            if strange or any(len(product) > 1 for product in part.parts):
                raise Violation(f"{matrix.argument}: a row or column depends on {', '.join(strange) or 'a product'} ({pc:#x})")
        return found[0], found[1].times(matrix.columns)

    # -- a step --------------------------------------------------------------------------------

    def _groups(self, requests: Sequence[Request]) -> list[Group]:
        found: dict[Any, Group] = {}
        for request in requests:
            of_launch = [part for part in request.when.conjuncts() if not part.varies]
            when = both(*of_launch)
            bases = tuple(form.without_lanes for form in request.at)
            key = tuple(sorted(part.key() for part in of_launch)), tuple(base.key() for base in bases)
            if key not in found:
                if not self._possible([when.formula()]):
                    continue
                found[key] = Group(when, bases, request.fork)  # type: ignore[arg-type]
            found[key].requests.append(request)
        for group in found.values():
            least = [min(int(np.min(request.at[way].lanes)) for request in group.requests) for way in (0, 1)]
            group.first = tuple(base + Form.of(number) for base, number in zip(group.first, least, strict=True))  # type: ignore[assignment]
        return list(found.values())

    def _check_counts(self, group: Group) -> None:
        """Shows that each element of a step is accessed as often as planned if it is in the matrix, and never otherwise."""
        height, width = (self.tile[axis] for axis in self.matrix.axes)
        counts = np.zeros((height, width), np.int64)
        for request in group.requests:
            row, column = (
                np.broadcast_to(form.lanes - first.lanes, self.evaluation.items)
                for form, first in zip(request.at, group.first, strict=True)
            )  # fmt: skip
            if request.active is not None:
                row, column = row[request.active], column[request.active]
            if np.any((row >= height) | (column >= width)):
                raise Violation(f"{self.matrix.argument}: an element outside the tile of {height} x {width} ({request.pc:#x})")
            self._compare(group, request)
            np.add.at(counts, (row, column), 1)
        planned = np.broadcast_to(1 if self.matrix.times is None else self.matrix.times, counts.shape)
        if np.any(counts != planned):
            place = tuple(map(int, np.argwhere(counts != planned)[0]))
            where = f"row {place[0]}, column {place[1]} of a tile"
            how = f"{_times(int(counts[place]))}, not {_times(int(planned[place]))} (from {group.requests[0].pc:#x} on)"
            raise Violation(f"{self.matrix.argument}: {where} is accessed {how}")

    def _compare(self, group: Group, request: Request) -> None:
        """Shows that a request is done exactly if its element is in the matrix."""
        masks = [part for part in request.when.conjuncts() if part.varies]
        bounds = {part.form.without_lanes.key(): part for part in masks if part.kind == "at least"}
        if len(bounds) < len(masks):
            raise NotModelled(f"a mask at {request.pc:#x}")
        for axis, form in zip(self.matrix.axes, request.at, strict=True):
            needed = at_least(self.extents[axis] - form - Form.of(1))
            done = bounds.pop(needed.form.without_lanes.key(), None)
            for part, other, wrong in ((needed, done, OUTSIDE), (done, needed, LEFT_OUT)):
                stricter = None if part is None else _stricter(part, other)
                if stricter is not None and not self._implies(group, stricter):
                    raise Violation(f"{self.matrix.argument}: {wrong} ({request.pc:#x})")
        for part in bounds.values():
            if not self._implies(group, part.form):
                raise Violation(f"{self.matrix.argument}: {LEFT_OUT} ({request.pc:#x})")

    def _implies(self, group: Group, form: Form) -> bool:
        """True if a sum is at least 0 in all work-items wherever the group's requests are done."""
        least = form.without_lanes + Form.of(int(np.min(form.lanes)))
        formulas = [group.when.formula(), least.whole() < 0]
        for loop in group.loops:  # in a round, which follows another one unless it is the first
            last = z3.Int(str(loop.round))
            formulas += [last >= 0, z3.Implies(last > 0, z3.substitute(self._again(loop), (last, last - 1)))]
        return not self._possible(formulas)

    # -- all steps -----------------------------------------------------------------------------

    def _once(self, groups: Sequence[Group]) -> None:
        """Shows that no two steps are the same."""
        instances = {name: [self._instance(group, name) for group in groups] for name in ("one", "two")}
        for at, one in enumerate(groups):
            for other, two in enumerate(groups[:at]):
                formulas = [*instances["one"][at], *instances["two"][other]]
                formulas += [self._first(one, way, "one") == self._first(two, way, "two") for way in (0, 1)]
                if self._possible([*formulas, *self._last_rounds]):
                    places = f"{one.requests[0].pc:#x} and {two.requests[0].pc:#x}"
                    raise Violation(f"{self.matrix.argument}: elements may be accessed twice, at {places}")

    def _always(self, groups: Sequence[Group]) -> None:
        """Shows that each step is done."""
        axes = self.matrix.axes
        step = next((at for at, axis in enumerate(axes) if axis == "k"), None)
        if step is None:
            if any(group.loops for group in groups):
                raise NotModelled(f"{self.matrix.argument} is accessed in a loop")
            done = [z3.And(*self._instance(group, "one")) for group in groups]
            if self._possible([z3.Not(z3.Or(*done))]):
                raise Violation(f"{self.matrix.argument}: a tile may be left out")
            return
        number, size = z3.Int("step"), self.tile["k"]
        start = _of_place(groups[0].first[step])
        left = self.extents["k"] - start
        formulas = [number >= 0, number * size < left.whole()]
        facts: list[Term] = []
        for group in groups:
            moved = group.first[step] - start
            conditions = [group.when.formula()]
            if not group.loops:
                formulas.append(z3.Not(z3.And(moved.whole() == number * size, *conditions)))
                continue
            ((loop,),) = (group.loops,)
            last = z3.Int(str(loop.round))
            if moved.coefficient(str(loop.round)) != size:
                raise Violation(f"{self.matrix.argument}: a round does not advance by a step of {size}")
            _, others = moved.split(str(loop.round))
            rest = others.quotient(size)
            if rest is None:
                raise Violation(f"{self.matrix.argument}: a loop does not begin at a multiple of {size}")
            round_ = number - rest.whole()
            there = [round_ >= 0, round_ <= last, *(z3.substitute(each, (last, round_)) for each in conditions)]
            formulas.append(z3.Not(z3.And(*there)))
            facts += [self._goes_on(loop, round_), self._goes_on(loop, round_ - 1)]
        if self._possible([*formulas, *facts, *self._last_rounds]):
            raise Violation(f"{self.matrix.argument}: a step of {size} may be left out")

    def _instance(self, group: Group, name: str) -> list[Term]:
        """Returns the conditions that a group's requests are done; in a loop, in a round of this name."""
        formulas = [group.when.formula()]
        for loop in group.loops:
            last, round_ = z3.Int(str(loop.round)), z3.Int(f"{name} {loop.round}")
            formulas = [z3.substitute(each, (last, round_)) for each in formulas]
            formulas += [round_ >= 0, round_ <= last, self._goes_on(loop, round_), self._goes_on(loop, round_ - 1)]
        return formulas

    def _first(self, group: Group, way: int, name: str) -> Term:
        whole = group.first[way].whole()
        return z3.substitute(whole, *((z3.Int(str(loop.round)), z3.Int(f"{name} {loop.round}")) for loop in group.loops))

    def _goes_on(self, loop: LoopPass, round_: Term) -> Term:
        """Returns that a round before the last is followed by another one."""
        last = z3.Int(str(loop.round))
        return z3.Implies(z3.And(round_ >= 0, round_ < last), z3.substitute(self._again(loop), (last, round_)))

    def _again(self, loop: LoopPass) -> Term:
        """Returns the condition of a next round."""
        name = str(loop.round)
        if name not in self._again_of:
            self._again_of[name] = self._formula(loop.again)
        return self._again_of[name]

    def _formula(self, path: Sequence[Term]) -> Term:
        return both(*(self.evaluation.condition(part) for part in path)).formula()

    @cached_property
    def _last_rounds(self) -> list[Term]:
        """Returns facts about the last rounds of loops."""
        found = []
        for loop in self.passes:
            last = z3.Int(str(loop.round))
            found.append(z3.Implies(self._formula(loop.entry), z3.And(last >= 0, z3.Not(self._again(loop)))))
            found.append(self._goes_on(loop, last - 1))
        return found

    def _few_rounds(self) -> None:
        """Shows that rounds stay in the range for which counters are known not to wrap: if one is, so is the next."""
        for loop in self.passes:
            last, (_, most) = z3.Int(str(loop.round)), self.evaluation.ranges[str(loop.round)]
            if self._possible([self._again(loop), last >= 0, last + 1 > most]):
                raise NotModelled("a loop without an end")

    @cached_property
    def _solver(self) -> Any:
        """A solver that knows the facts."""
        solver = z3.Solver()
        solver.add(*self.facts)
        return solver

    def _possible(self, formulas: Sequence[Term]) -> bool:
        self.budget.check()
        solver = self._solver
        self.budget.limit(solver)
        solver.push()
        solver.add(*formulas)
        result = solver.check()
        solver.pop()
        if result == z3.unknown:
            raise NotModelled(f"{self.matrix.argument}: the solver's {self.budget.reason}")
        return bool(result == z3.sat)


def _settle(condition: Condition) -> Condition:
    """Returns a conjunction whose alternatives lack what contradicts, or repeats, the rest of it."""
    parts = condition.conjuncts()
    if not any(part.kind == "any" for part in parts):
        return condition
    plain = both(*(part for part in parts if part.kind != "any"))
    kept = [either(*(_beside(plain, each) for each in part.parts)) for part in parts if part.kind == "any"]
    return both(plain, *kept)


def _beside(plain: Condition, condition: Condition) -> Condition:
    """Returns what a condition adds to a conjunction; NEVER if they contradict each other."""
    settled, known = _settle(both(plain, condition)), {part.key() for part in plain.conjuncts()}
    return settled if settled.never else both(*(part for part in settled.conjuncts() if part.key() not in known))


def _constant_lanes(condition: Condition) -> tuple[Condition, np.ndarray | None]:
    """Returns a condition without what is the same in all launches, and the work-items for which that holds."""
    parts = condition.conjuncts()
    constant = [part.form.lanes >= 0 for part in parts if part.kind == "at least" and part.form.constant is not None]
    if not constant or not np.any(active := np.logical_and.reduce(constant)):
        return condition, None
    rest = [part for part in parts if part.kind != "at least" or part.form.constant is None]
    return both(*(_among(part, active) for part in rest)), active


def _among(condition: Condition, active: np.ndarray) -> Condition:
    """Returns a condition as it is in work-items that are on."""
    if condition.kind in ("all", "any"):
        return (both if condition.kind == "all" else either)(*(_among(part, active) for part in condition.parts))
    return Condition(condition.kind, _only(condition.form, active), name=condition.name)


def _only(form: Form, active: np.ndarray | None) -> Form:
    """Returns a sum whose work-items that are off have the number of one that is on."""
    lanes = form.lanes
    if active is None or not np.ndim(lanes):
        return form
    return form.without_lanes + Form.of(np.where(active, lanes, lanes[np.argmax(active)]))


def _names(condition: Condition, *forms: Form) -> set[str]:
    found = {name for form in (condition.form, *forms) for product in form.parts for name in product}
    return found.union(*(_names(part) for part in condition.parts))


def _of_place(form: Form) -> Form:
    return Form({product: each for product, each in form.parts.items() if product and product[0].startswith(PLACE)})


def _stricter(part: Condition, other: Condition | None) -> Form | None:
    """Returns the sum of a comparison in those work-items in which it is stricter than another one of the same names."""
    if other is None:
        return part.form
    lanes, theirs = np.broadcast_arrays(part.form.lanes, other.form.lanes)
    where = lanes < theirs
    return part.form.without_lanes + Form.of(int(np.min(lanes[where]))) if np.any(where) else None


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
