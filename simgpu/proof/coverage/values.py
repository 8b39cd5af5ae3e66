"""Contents of a workgroup's registers and LDS while products are followed: numbers, elements of matrices, sums of products."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from simgpu.proof.coverage.forms import Form
from simgpu.proof.state import Place
from simgpu.proof.terms import NotModelled

Array = np.ndarray
# Kinds of pieces: elements, a sum for C, the sum of no products, bits that are 0, an element that the epilogue takes.
UNKNOWN, A, B, RESULT, NOTHING, ZEROS, BESIDE = range(7)
PART, OUTER, K = 3, 8, 32  # first bits of a code's fields
MOST_OUTER = 1 << K - OUTER
COLUMN = 16  # bits of a result's column in the field of k; above them are the operands that it has
ANY_ROW, ANY_COLUMN = MOST_OUTER - 1, (1 << COLUMN) - 1  # of an element that belongs to all rows or columns
NONZERO = "factor"  # a number that is not 0
LEFT = "k left"  # elements of K from the current origin to the end of the workgroup's part


@dataclass(frozen=True)
class Cells:
    """Pieces of words: [work-item, piece] of a register, [piece] of LDS. Each piece belongs to one element.

    A code has the kind, the number of the piece in its element, the row or column in the tile, and k from the origin on. A
    result's code has its row and column instead, the number of the word, and a bit for each operand of the epilogue that it has.
    """

    code: Array  # int64

    @classmethod
    def of(cls, kind: int, part: Any, outer: Any, k: Any) -> Cells:
        """Returns cells of one kind. Raises NotModelled."""
        if np.any((np.asarray(outer) < 0) | (np.asarray(outer) >= MOST_OUTER)):
            raise NotModelled("an element far outside the tile")
        part, outer, k = (np.asarray(each, np.int64) for each in (part, outer, k))
        return cls(kind + (part << PART) + (outer << OUTER) + (k << K))

    @property
    def kind(self) -> Array:
        return self.code & (1 << PART) - 1

    @property
    def part(self) -> Array:
        return self.code >> PART & (1 << OUTER - PART) - 1

    @property
    def outer(self) -> Array:
        return self.code >> OUTER & MOST_OUTER - 1

    @property
    def k(self) -> Array:
        return self.code >> K

    @property
    def column(self) -> Array:
        return self.k & ANY_COLUMN

    @property
    def operands(self) -> Array:
        return self.k >> COLUMN

    def move(self, step: int) -> Cells:
        """Returns the same with a later origin."""
        return Cells(np.where((self.kind == A) | (self.kind == B), self.code - (step << K), self.code)) if step else self

    def key(self) -> bytes:
        return self._key

    @cached_property
    def _key(self) -> bytes:
        return self.code.tobytes()


@dataclass(frozen=True)
class Sums:
    """A sum of products in each work-item: for row `outer` and column `inner`, each k below `done` once, and those of `more`.

    part: the number of the word in a sum of several words.
    """

    outer: Array
    inner: Array
    done: int
    more: frozenset[int] = frozenset()
    part: int = 0

    def move(self, step: int) -> Sums:
        """Returns the same with a later origin."""
        return replace(self, done=self.done - step, more=frozenset(k - step for k in self.more))

    def key(self) -> tuple[Any, ...]:
        return self._key

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.outer.tobytes(), self.inner.tobytes(), self.done, self.more, self.part


class Kept(Protocol):
    """Other content of a register: it has a key."""

    def key(self) -> tuple[Any, ...]: ...


Value = Form | Cells | Sums | Kept | None  # None: unknown


def zero(value: Value) -> bool:
    """True for the number 0 in all work-items."""
    return isinstance(value, Form) and not value.parts


def same(values: Iterable[Array]) -> bool:
    """True if arrays are equal."""
    first, *others = values
    return all(first is other or np.array_equal(first, other) for other in others)


@dataclass(frozen=True)
class Test:
    """A condition of SCC: a sum is at least 0, or is 0; perhaps negated."""

    form: Form
    equal: bool = False
    negated: bool = False

    @property
    def known(self) -> bool | None:
        """Its value, if it is the same in all launches."""
        value = self.form.constant
        if value is None:
            return self.negated if self.equal and self.form.key() == Form.name(NONZERO).key() else None
        found = np.unique((np.asarray(value) == 0 if self.equal else np.asarray(value) >= 0) != self.negated)
        if len(found) > 1:
            raise NotModelled("a branch of some waves")
        return bool(found[0])


@dataclass
class State:
    """A workgroup at an instruction, all waves at once."""

    lds: Cells
    registers: dict[Place, Value] = field(default_factory=dict)
    scc: Test | None = None
    least: float = -math.inf  # of `LEFT`
    most: float = math.inf
    begun: bool = False  # True if the origin has moved
    active: Array | None = None  # work-items that EXEC enables; None: all

    def fork(self) -> State:
        return replace(self, registers=dict(self.registers))

    def where(self, test: Test | None, taken: bool, unit: int) -> State | None:
        """Returns the state in which SCC's condition is so, None if there is none. unit: what `LEFT` is a multiple of."""
        if test is None:
            return self.fork()
        known = test.known
        if known is not None:
            return self.fork() if known == taken else None
        made = self.fork()
        form = test.form
        factor, constant = form.coefficient(LEFT), form.lanes
        plain = not test.equal and set(form.parts) <= {(LEFT,), ()} and not np.ndim(factor) and not np.ndim(constant) and factor
        if not plain:
            return made
        factor = factor // unit
        if taken == test.negated:  # factor · left + constant <= -1
            factor, constant = -factor, -constant - 1
        if factor > 0:
            made.least = max(made.least, unit * math.ceil(-constant / (factor * unit)))
        else:
            made.most = min(made.most, unit * math.floor(constant / (-factor * unit)))
        return made if made.least <= made.most else None

    def key(self, live: Iterable[Place]) -> tuple[Any, ...]:
        """Returns what equal states have in common, apart from the bounds of `LEFT`."""
        values = tuple((place, _key(self.registers.get(place))) for place in live)
        return values, self.lds.key(), self.begun


def _key(value: Value) -> Any:
    return None if value is None else (type(value).__name__, value.key())
