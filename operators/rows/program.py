"""Program of an operator on rows, as data: reductions along a row, in passes, and results for each element and each row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from simgpu.hardware.errors import LaunchError
from simgpu.operators.expressions import Value, arguments, hoist, maximum, operations, substitute, trace

# Combination of scores to a state: their maximum m, and delta, the sum of exp(score - m) (`operators.softmax.state`).
EXPONENTIALS = "exponentials"
PIVOT = "pivot"  # a number near a row's mean, as an argument


@dataclass(frozen=True)
class Step:
    """A value of each element, or of each row, and the parts of it that are computed once a row."""

    name: str
    value: Value
    of_row: tuple[Value, ...]  # parts that depend only on reductions; part number i is the argument `row_value(i)` of `rest`
    rest: Value
    combine: str = ""  # of a reduction: a key of COMBINE, or EXPONENTIALS

    @classmethod
    def of(cls, name: str, value: Value, of_row: set[str], combine: str = "") -> Step:
        """Returns the step of a value. of_row: names of its arguments that belong to a row."""
        return cls(name, value, *hoist(value, of_row, f"{name} of row"), combine)

    def row_value(self, number: int) -> str:
        """Returns the name of a part in `rest`."""
        return f"{self.name} of row {number}"


@dataclass(frozen=True)
class RowProgram:
    """Expressions of one operator on rows of one length.

    pivoted: a value of each element; PIVOT is its mean over the first chunks of the row. None if nothing uses PIVOT.
    """

    name: str
    matrices: tuple[str, ...]  # operands with an element for each element
    vectors: tuple[str, ...]  # operands with an element for each column
    tables: tuple[str, ...]  # operands with a row for several rows
    reductions: tuple[Step, ...]
    results: tuple[Step, ...]  # one for each element
    row_results: tuple[Step, ...]  # one for each row, or each group of a row
    pivoted: Value | None = None

    @cached_property
    def streamed(self) -> RowProgram:
        """Returns the program of rows that are read again for each pass: a mean and the squares around it are one pass.

        total = sum of v and squares = sum of (v - total/n)^2 become the sums of d = v - PIVOT and of d^2. Then total is
        sum(d) + n*PIVOT and squares are sum(d^2) - sum(d)^2/n. That cancels little, as PIVOT is the mean of f of the n elements:
        (mean - PIVOT)^2 is at most 1/f times the variance.
        """
        found = self._moments()
        if found is None:
            return self
        total, squares, count = found
        pivot, sum_d, sum_d2 = (Value("argument", name=name) for name in (PIVOT, total.name, squares.name))
        d, mean_d = total.value - pivot, sum_d / count
        known = {mean_d: mean_d + pivot, sum_d: sum_d + pivot * count, sum_d2: maximum(sum_d2 - sum_d * mean_d, 0.0)}
        shifted = {total.name: d, squares.name: d * d}
        names = {step.name for step in self.reductions} | {PIVOT}

        def step(old: Step) -> Step:
            if old.name in shifted:
                value = shifted[old.name]
                return Step(old.name, value, (), value, old.combine)
            return Step.of(old.name, substitute(old.value, known), names, old.combine)

        reductions, results, row_results = (tuple(map(step, old)) for old in (self.reductions, self.results, self.row_results))
        return replace(self, reductions=reductions, results=results, row_results=row_results, pivoted=total.value)

    def _moments(self) -> tuple[Step, Step, Value] | None:
        """Returns a sum of v, the sum of (v - sum/n)^2, and n; None if there are no two such reductions of matrices' elements."""
        sums = [step for step in self.reductions if step.combine == "sum"]
        for total, squares in product(sums, sums):
            d = squares.value.operands[0] if squares.value.op == "multiply" else squares.value
            count = d.operands[1].operands[-1] if d.op == "subtract" and d.operands[1].op == "divide" else d
            around = total.value - Value("argument", name=total.name) / count
            if squares.value == around * around and count.op == "constant" and arguments(total.value) <= set(self.matrices):
                return total, squares, count
        return None

    @cached_property
    def passes(self) -> tuple[tuple[Step, ...], ...]:
        """Reductions that one pass over a row can make, in order: each depends on those of earlier passes only."""
        found: list[tuple[Step, ...]] = []
        done: set[str] = set()
        left, names = list(self.reductions), {step.name for step in self.reductions}
        while left:
            names = {step.name for step in self.reductions}
            ready = tuple(step for step in left if arguments(step.value) & names <= done)
            found.append(ready)
            done |= {step.name for step in ready}
            left = [step for step in left if step not in ready]
        return tuple(found)

    def operands_of(self, steps: Sequence[Step]) -> tuple[str, ...]:
        """Returns the names of operands that the steps read."""
        names = {name for step in steps for name in arguments(step.value)}
        return tuple(name for name in (*self.matrices, *self.vectors, *self.tables) if name in names)

    @property
    def reads(self) -> int:
        """Passes over a row: those of the reductions, and one for the results if there are any."""
        return len(self.passes) + bool(self.results)

    @property
    def operations(self) -> int:
        """Operations for each element; an addition or maximum for each reduction."""
        return len(list(operations(*(step.rest for step in (*self.reductions, *self.results))))) + len(self.reductions)

    @property
    def first_operations(self) -> int:
        """Operations for each element in the first pass of reductions, which waits for no other."""
        first = self.passes[0] if self.passes else ()
        return len(list(operations(*(step.rest for step in first)))) + len(first)

    @property
    def row_values(self) -> int:
        """Values of a row that are held: reductions, and parts computed once a row."""
        steps = (*self.reductions, *self.results, *self.row_results)
        return len(self.reductions) + (self.pivoted is not None) + sum(len(step.of_row) for step in steps)

    def describe(self) -> Iterator[str]:
        """Yields lines for a tree: a step each."""
        for step in self.reductions:
            yield f"{step.name}[i] {'+=' if step.combine == 'sum' else 'max='} {step.value}"
        for step in self.results:
            yield f"{step.name}[i,j] = {step.value}"
        for step in self.row_results:
            yield f"{step.name}[i] = {step.value}"


class Tracer:
    """Makes the steps of an operator from its methods. A method's arguments name what it uses.

    known: constants and operands' elements by name. absent: why a name is not known.
    """

    def __init__(self, owner: object, known: dict[str, float | None], absent: dict[str, str]) -> None:
        self.owner, self.known, self.absent = owner, dict(known), absent
        self.reductions: list[str] = []

    def step(self, name: str, combine: str = "", of_row: bool = False) -> Step:
        """Traces a method. LaunchError if it uses a name that there is none of, or returns no expression."""
        where = f"{type(self.owner).__name__}.{name}"
        method: Callable[..., Any] | None = getattr(self.owner, name, None)
        if not callable(method):
            raise LaunchError(f"{where} is no method: define it, with what it uses as arguments")
        given = list(inspect.signature(method).parameters)
        known = [one for one in self.known if not of_row or self.known[one] is not None or one in self.reductions]
        if unknown := [one for one in given if one not in known]:
            why = "".join(f"; {self.absent[one]}" for one in unknown if one in self.absent)
            raise LaunchError(f"{where} uses {', '.join(unknown)}: there are {', '.join(known)}{why}")
        value = trace(where, method, given)
        if not isinstance(value, Value):
            raise LaunchError(f"{where} is {value!r}: return an expression of the arguments")
        constants = {argument: Value("constant", constant=number) for argument, number in self.known.items() if number is not None}
        value = substitute(value, {Value("argument", name=argument): number for argument, number in constants.items()})
        found = Step.of(name, value, set(self.reductions), combine)
        if combine:
            self.known[name] = None
            self.reductions.append(name)
        return found

