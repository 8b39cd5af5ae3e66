"""Sums of products of a launch's numbers, with a coefficient for each work-item: what an address is once a kernel is on terms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import z3

from simgpu.proof.terms import NotModelled

Term = Any
Array = Any  # integers, one for each work-item, or one for all
Product = tuple[str, ...]  # names of numbers, sorted; () for 1


@dataclass(frozen=True)
class Form:
    """A sum: a coefficient for each product of names.

    >>> x = Form({("m",): 4, (): np.arange(3)})
    >>> (x + x.times(2)).coefficient("m")
    12
    """

    parts: Mapping[Product, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Array) -> Form:
        value = _one(value)
        return cls({} if _is_zero(value) else {(): value})

    @classmethod
    def name(cls, name: str, factor: int = 1) -> Form:
        return _sum_of([((name,), factor)])

    def __add__(self, other: Form) -> Form:
        if not self.parts or not other.parts:
            return self if self.parts else other
        made = dict(self.parts)
        for product, factor in other.parts.items():
            found = _one(made[product] + factor) if product in made else factor
            if _is_zero(found):
                del made[product]
            else:
                made[product] = found
        return Form(made)

    def __neg__(self) -> Form:
        return self._negative

    @cached_property
    def _negative(self) -> Form:
        return self.times(-1)

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def times(self, factor: Array) -> Form:
        """Returns the sum times a number of each work-item."""
        return _sum_of((product, each * factor) for product, each in self.parts.items())

    def product(self, other: Form) -> Form:
        """Returns the product of two sums."""
        total = Form()
        for names, factor in other.parts.items():
            moved = {tuple(sorted((*product, *names))): each for product, each in self.times(factor).parts.items()}
            total = total + Form(moved)
        return total

    def modulo(self, bits: int) -> Form:
        """Returns an equal sum modulo 2**bits, whose coefficients are the nearest to 0."""
        if bits >= 64:
            return self
        half = 1 << bits - 1
        return _sum_of((product, (each + half) % (2 * half) - half) for product, each in self.parts.items())

    @property
    def constant(self) -> Array | None:
        """Its value, if it has no names."""
        return self.parts.get((), 0) if all(not product for product in self.parts) else None

    @property
    def lanes(self) -> Array:
        """Summand of each work-item."""
        return self.parts.get((), 0)

    def coefficient(self, name: str) -> Array:
        """Returns the factor of a name."""
        return self.parts.get((name,), 0)

    def split(self, name: str) -> tuple[Form, Form]:
        """Returns the factor of a name, and the rest."""
        inside, rest = {}, {}
        for product, each in self.parts.items():
            if name in product:
                left = list(product)
                left.remove(name)
                inside[tuple(left)] = each
            else:
                rest[product] = each
        return Form(inside), Form(rest)

    def quotient(self, divisor: int) -> Form | None:
        """Returns the sum divided by a number, None if it is no multiple of it."""
        if any(np.any(each % divisor) for each in self.parts.values()):
            return None
        return Form({product: _one(each // divisor) for product, each in self.parts.items()})

    def key(self) -> tuple[Any, ...]:
        """Returns what equal sums have in common."""
        return self._key

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(sorted((product, each.tobytes() if np.ndim(each) else int(each)) for product, each in self.parts.items()))

    @cached_property
    def without_lanes(self) -> Form:
        """Its summands that have names."""
        return Form({product: each for product, each in self.parts.items() if product}) if () in self.parts else self

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Returns the least and largest value, by those of the names."""
        low = high = 0
        for product, each in self.parts.items():
            least = most = 1
            for name in product:
                ends = [least * end for end in ranges[name]] + [most * end for end in ranges[name]]
                least, most = min(ends), max(ends)
            ends = [int(factor) * end for factor in (np.min(each), np.max(each)) for end in (least, most)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def whole(self) -> Term:
        """Returns it as an integer of the solver, if it is the same in all work-items."""
        parts = []
        for product, each in self.parts.items():
            if np.ndim(each):
                raise NotModelled("a condition that differs between work-items where one for all is needed")
            parts.append(math.prod((z3.Int(name) for name in product), start=z3.IntVal(int(each))))
        return z3.Sum(*parts) if parts else z3.IntVal(0)


def of_panel(row: Form, column: Form, panel: int, chunk: int) -> tuple[Form, Form] | None:
    """Returns row and column of an element whose place in a preshuffled matrix is given; None if it is no place of one.

    A panel of rows holds `chunk` elements of each row in turn, so `panel` times as many elements of k are a chunk apart.

    >>> of_panel(Form.of(32), Form.of(128 + 8 + 3), 16, 8) == (Form.of(33), Form.of(11))
    True
    """
    names, lanes = column.without_lanes, column.lanes
    parts = names.quotient(panel * chunk)
    if parts is None or row.quotient(panel) is None:
        return None
    high, low = lanes // (panel * chunk), lanes % (panel * chunk)
    return row + Form.of(low // chunk), parts.times(chunk) + Form.of(high * chunk + low % chunk)


def _one(values: Array) -> Array:
    """Returns one number if all work-items have the same."""
    if type(values) is int:
        return values
    if not np.ndim(values):
        return int(values)
    return int(values[0]) if values[0] == values[-1] and (values == values[0]).all() else values


def _is_zero(value: Array) -> bool:
    """True for 0. A number for each work-item is not 0 in all of them: `_one` made it."""
    return type(value) is int and not value


def _sum_of(parts: Iterable[tuple[Product, Array]]) -> Form:
    """Returns a sum of different products, without those whose coefficient is 0."""
    made = ((product, _one(factor)) for product, factor in parts)
    return Form({product: factor for product, factor in made if not _is_zero(factor)})


@dataclass(frozen=True)
class Condition:
    """A condition of each work-item.

    kind: "at least" (the sum is at least 0), "all" or "any" of other conditions, "named" (a condition of the launch that is no
    comparison of sums) or "not named".
    """

    kind: str
    form: Form = field(default_factory=Form)
    parts: tuple[Condition, ...] = ()
    name: str = ""

    def negation(self) -> Condition:
        """Returns the opposite."""
        return self._negation

    @cached_property
    def _negation(self) -> Condition:
        if self.kind == "at least":
            return at_least(-self.form - Form.of(1))
        if self.kind in OPPOSITE:
            return Condition(OPPOSITE[self.kind], name=self.name)
        return (either if self.kind == "all" else both)(*(part.negation() for part in self.parts))

    @property
    def always(self) -> bool:
        return self.kind == "all" and not self.parts

    @property
    def never(self) -> bool:
        return self.kind == "any" and not self.parts

    @property
    def varies(self) -> bool:
        """True if it differs between work-items."""
        if self.kind == "at least":
            return any(np.ndim(each) for each in self.form.parts.values())
        return any(part.varies for part in self.parts)

    @cached_property
    def _formula(self) -> Term:
        if self.kind == "at least":
            return self.form.whole() >= 0
        if self.kind in OPPOSITE:
            return z3.Bool(self.name) if self.kind == "named" else z3.Not(z3.Bool(self.name))
        parts = [part.formula() for part in self.parts]
        return z3.And(*parts) if self.kind == "all" else z3.Or(*parts)

    def formula(self) -> Term:
        """Returns it as a formula of integers, if it is the same in all work-items."""
        if self.always or self.never:
            return z3.BoolVal(self.always)  # not kept: `ALWAYS` and `NEVER` outlive a proof's terms
        return self._formula

    def conjuncts(self) -> tuple[Condition, ...]:
        """Returns conditions that hold together."""
        return self.parts if self.kind == "all" else (self,)

    def alternatives(self) -> tuple[Condition, ...]:
        """Returns conditions; one of them holds."""
        return self.parts if self.kind == "any" else (self,)

    def key(self) -> tuple[Any, ...]:
        """Returns what equal conditions have in common."""
        return self._key

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.name, self.form.key(), tuple(part.key() for part in self.parts)


OPPOSITE = {"named": "not named", "not named": "named"}
ALWAYS, NEVER = Condition("all"), Condition("any")


def at_least(form: Form) -> Condition:
    """Returns the condition that a sum is at least 0. A sum of multiples of g is at least the next multiple of g.

    >>> at_least(Form({("k",): 4, (): -1})).form
    Form(parts={('k',): 4, (): -4})
    """
    named = form.without_lanes.parts
    lanes = form.lanes
    if not named:
        return ALWAYS if np.all(lanes >= 0) else NEVER if np.all(lanes < 0) else Condition("at least", form)
    factor = math.gcd(*(0 if np.ndim(each) else int(each) for each in named.values()))
    if factor > 1 and not any(np.ndim(each) for each in named.values()):
        form = form.without_lanes + Form.of(lanes // factor * factor)
    return Condition("at least", form)


def both(*conditions: Condition) -> Condition:
    """Returns the conjunction: of comparisons of one sum the strictest, nothing if two contradict each other."""
    if any(each.never for each in conditions):
        return NEVER
    made: dict[Any, Condition] = {}
    for part in (part for each in conditions for part in each.conjuncts()):
        if part.kind != "at least":
            made[part.key()] = part
            continue
        rest = part.form.without_lanes
        key, opposite = rest.key(), (-rest).key()
        other = made.get(key)
        if other is not None:
            part = Condition("at least", rest + Form.of(np.minimum(part.form.lanes, other.form.lanes)))
        against = made.get(opposite) if rest.parts else ALWAYS
        if against is not None and np.all(part.form.lanes + against.form.lanes < 0):
            return NEVER
        made[key] = part
    parts = tuple(made.values())
    return parts[0] if len(parts) == 1 else Condition("all", parts=parts)


def either(*conditions: Condition) -> Condition:
    """Returns the disjunction: always true if it has a condition and its opposite."""
    if any(each.always for each in conditions):
        return ALWAYS
    made = {part.key(): part for each in conditions for part in each.alternatives()}
    opposites = ([other.key() for other in part.negation().alternatives()] for part in made.values())
    if any(all(key in made for key in keys) for keys in opposites):
        return ALWAYS
    parts = tuple(made.values())
    return parts[0] if len(parts) == 1 else Condition("any", parts=parts)
