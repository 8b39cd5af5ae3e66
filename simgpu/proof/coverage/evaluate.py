"""Terms of the solver as forms: what an address and a condition are in each work-item of a workgroup."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import z3

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.proof.coverage.forms import ALWAYS, NEVER, Condition, Form, Product, at_least, both, either
from simgpu.proof.coverage.run import NO_NAME, of_item
from simgpu.proof.safety.facts import Advance
from simgpu.proof.terms import Lanes, Memo, NotModelled, symbol_name, symbols_of, tested_mask

Term = Any
Case = tuple[Condition, Form]  # where the condition holds, a term is this
ITEM = "workitem_id_x"


@dataclass
class Evaluation:
    """Work-items of a workgroup, and facts about a launch's numbers."""

    items: int
    multiples: dict[str, int]  # of symbols, by name: a form has the symbol divided by this number
    ranges: dict[str, tuple[int, int]]  # of what forms have
    advances: Mapping[str, Advance]  # symbols of loops, by their names
    lanes: Lanes
    high: dict[str, str] = field(default_factory=dict)  # names of high halves, by what they are of
    parts: dict[str, Form] = field(default_factory=dict)  # names that are a part of another place, such as half of it
    named: Memo = field(default_factory=Memo)  # names of conditions that are no comparisons of sums
    _known: Memo = field(default_factory=Memo)

    # -- numbers -------------------------------------------------------------------------------

    def cases(self, term: Term) -> list[Case]:
        """Returns a bit-vector as sums, each with a condition; they are equal to it modulo 2**bits."""
        found = self._known.get(term)
        if found is None:
            found = self._known.put(term, [(when, form.modulo(term.size())) for when, form in self._cases(term)])
        return list(found)

    def _cases(self, term: Term) -> list[Case]:
        if z3.is_bv_value(term):
            return [(ALWAYS, Form.of(_signed_value(term)))]
        kind, size = term.decl().kind(), term.size()
        if kind == z3.Z3_OP_UNINTERPRETED:
            return self._symbol(term)
        if kind == z3.Z3_OP_ITE:
            return self._choice(term)
        parts = [self.cases(child) for child in term.children()]
        if kind in SUMS:
            return _each(parts, SUMS[kind])
        if kind == z3.Z3_OP_BMUL:
            return _each(parts, _product)
        if kind == z3.Z3_OP_CONCAT:
            return self._concat(term)
        if kind == z3.Z3_OP_ZERO_EXT:
            return [(when, self._as_unsigned(form, term.arg(0).size())) for when, form in parts[0]]
        if kind == z3.Z3_OP_SIGN_EXT:
            return [(when, self._exact(form, term.arg(0).size(), True)) for when, form in parts[0]]
        if kind == z3.Z3_OP_EXTRACT:
            high, low = term.params()
            return [(when, self._extract(form, low, high + 1 - low, term.arg(0).size())) for when, form in parts[0]]
        if kind == z3.Z3_OP_BSHL and z3.is_bv_value(term.arg(1)):
            return [(when, form.times(1 << term.arg(1).as_long())) for when, form in parts[0]]
        if kind == z3.Z3_OP_BLSHR and z3.is_bv_value(term.arg(1)):
            low = term.arg(1).as_long()
            return [(when, self._extract(form, low, size - low, size)) for when, form in parts[0]]
        return _each(parts, lambda *forms: self._concrete(term, forms))

    def _symbol(self, term: Term) -> list[Case]:
        name = str(term.decl().name())
        if name == ITEM:
            lane = term.arg(0)
            first = np.arange(self.items, dtype=np.int64)
            if z3.is_bv_value(lane):
                first = first // WAVEFRONT * WAVEFRONT + lane.as_long()
            return [(ALWAYS, Form.of(first))]
        advance = self.advances.get(name)
        if advance is not None:
            ((_, start),), ((_, by),) = self.cases(advance.start), self.cases(advance.by)
            return [(ALWAYS, start + by.product(Form.name(str(advance.round))))]
        if name in self.parts:
            return [(ALWAYS, self.parts[name])]
        if name not in self.ranges:
            raise NotModelled(f"an address that depends on {name}")
        form = Form.name(name, self.multiples.get(name, 1))
        return [(ALWAYS, form if term.size() <= 32 else form + Form.name(f"{name} high", 1 << 32))]

    def in_symbols(self, form: Form) -> dict[Product, Any]:
        """Returns a sum's factors of the symbols themselves."""
        return {product: each / math.prod(self.multiples.get(name, 1) for name in product) for product, each in form.parts.items()}

    def define(self, name: str, term: Term, usual: tuple[int, int] | None) -> list[Case]:
        """Takes the scalar that a name denotes; returns its cases. usual: the range of a name that denotes no sum."""
        try:
            cases = self.cases(term)
        except NotModelled:
            cases = []
        factors = [int(factor) for _, form in cases for each in form.parts.values() for factor in np.ravel(each)]
        self.multiples[name] = factor = math.gcd(1 << 32, *factors) if cases else 1
        try:
            bounds = [self._exact(form, 32, True).bounds(self.ranges) for _, form in cases]
        except NotModelled:
            cases, bounds = [], []
        ends = usual or ((min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None)
        if ends is not None:
            self.ranges[name] = ends[0] // factor, -(-ends[1] // factor)
        return cases

    def _choice(self, term: Term) -> list[Case]:
        least = self._least(term)
        if least is not None:
            return least
        condition = self.condition(term.arg(0))
        known = condition.form.constant if condition.kind == "at least" else None
        if known is not None:
            (yes, *others), (no, *more) = (self.cases(term.arg(at)) for at in (1, 2))
            if yes[0].always and no[0].always and not others and not more:
                return [(ALWAYS, yes[1].times(known >= 0) + no[1].times(known < 0))]
        ways = (condition, self.cases(term.arg(1))), (condition.negation(), self.cases(term.arg(2)))
        return [(there, form) for where, cases in ways for when, form in cases if not (there := both(where, when)).never]

    def _least(self, term: Term) -> list[Case] | None:
        """Returns min(a, x) of numbers a and x, if x is at most 0, a, or so large that a is less. None for another choice."""
        test = self.condition(term.arg(0))
        ways = [self.cases(term.arg(at)) for at in (1, 2)]
        if test.kind != "at least" or any(len(way) > 1 or not way[0][0].always for way in ways):
            return None
        (yes, no), sign = (way[0][1] for way in ways), 1
        if yes.constant is None:
            yes, no, sign = no, yes, -1
        value, other = yes.constant, no
        limit = (other.times(sign) - test.form).constant
        if value is None or np.ndim(value) or value <= 0 or limit is None or other.constant is not None:
            return None
        below = limit if sign > 0 else 1 - limit  # x is chosen if it is less
        factor = math.gcd(*(int(each) for names, array in other.parts.items() if names for each in np.ravel(array)))
        first = (other.lanes - 1) % factor + 1  # the least x above 0; the next ones follow in steps of the factor
        if np.any(first - factor >= below) or np.any((first < below) & ((first != value) | (first + factor < below))):
            return None
        return [(at_least(other - Form.of(1)), Form.of(value)), (at_least(-other), other)]

    def _concat(self, term: Term) -> list[Case]:
        total: list[Case] = [(ALWAYS, Form())]
        low = 0
        for part in reversed(term.children()):
            bits = part.size()
            last = low + bits == term.size()
            cases = [(when, form if last else self._as_unsigned(form, bits)) for when, form in self.cases(part)]
            total = _each([total, cases], lambda a, b, low=low: a + b.times(1 << low))
            low += bits
        return total

    def _extract(self, form: Form, low: int, bits: int, size: int) -> Form:
        """Returns bits of a number."""
        if not low:
            return form
        value = form.constant
        if value is not None:
            return Form.of(_modulo(value, size) >> low)
        if low == 32 and size == 64:
            return self._high_half(form)
        least, most = form.bounds(self.ranges)
        if least >= 0 and most < 1 << low:
            return Form()
        whole = self._exact(form, size, False)
        rest = whole.quotient(1 << low)
        if rest is None:
            raise NotModelled("bits from the middle of a number that depends on the launch")
        return rest

    def _high_half(self, form: Form) -> Form:
        """Returns a sum divided by 2**32: a multiple of it divides exactly."""
        whole = {product: each >> 32 for product, each in form.parts.items() if not np.any(each % (1 << 32))}
        rest = Form({product: each for product, each in form.parts.items() if product not in whole})
        low, high = rest.bounds(self.ranges)
        return Form(whole) if low >= 0 and high < 1 << 32 else Form(whole) + Form.name(self._high_of(rest))

    def _as_unsigned(self, form: Form, bits: int) -> Form:
        """Returns the value of a number of `bits` bits."""
        value = form.constant
        if value is not None:
            return Form.of(_modulo(value, bits))
        low, high = form.bounds(self.ranges)
        if low >= 0 and high < 1 << bits:
            return form
        if bits != 32:
            raise NotModelled("a number that may wrap")
        return form - Form.name(self._high_of(form), 1 << 32)

    def _high_of(self, form: Form) -> str:
        """Returns the name of a sum divided by 2**32."""
        key = f"high {form.key()}"
        name = self.high.setdefault(key, f"high #{len(self.high)}")
        self.ranges.setdefault(name, (-(1 << 32), 1 << 32))
        return name

    def _exact(self, form: Form, bits: int, signed: bool) -> Form:
        """Returns a number's value if it wraps equally often in all launches."""
        value = form.constant
        if value is not None:
            value = _modulo(value, bits)
            return Form.of(np.where(signed & (value >= 1 << bits - 1), value - (1 << bits), value))
        low, high = form.bounds(self.ranges)
        least = -(1 << bits - 1) if signed else 0
        wraps = (low - least) >> bits
        if (high - least) >> bits != wraps:
            raise NotModelled(f"a number that may wrap: {_names(form)}")
        return form - Form.of(wraps << bits)

    def _concrete(self, term: Term, forms: tuple[Form, ...]) -> Form:
        """Returns the result of an operation on numbers of work-items."""
        kind, bits = term.decl().kind(), term.size()
        if kind == z3.Z3_OP_BAND and len(forms) == 2:
            for form, mask in (forms, forms[::-1]):
                value = mask.constant
                if value is not None and not np.ndim(value) and value > 0 and not value & value + 1:
                    rest = form.modulo(value.bit_length())
                    if rest.constant is not None:
                        return Form.of(np.asarray(rest.constant) & value)
        values = [form.constant for form in forms]
        if kind not in BITWISE or any(value is None for value in values):
            raise NotModelled(f"{term.decl().name()} of a number that depends on the launch")
        return Form.of(BITWISE[kind]([_modulo(value, bits) for value in values], bits))

    # -- conditions ----------------------------------------------------------------------------

    def condition(self, term: Term) -> Condition:
        """Returns a condition of each work-item."""
        found = self._known.get(term)
        if found is not None:
            return found
        try:
            return self._known.put(term, self._condition(term))
        except NotModelled:
            of_waves = any(symbol_name(each).startswith(NO_NAME) for each in symbols_of([term])) or of_item(term)
            if of_waves or self.lanes.varies(term):
                raise
        return self._known.put(term, Condition("named", name=self._name_of(term)))

    def _name_of(self, term: Term) -> str:
        whole = z3.simplify(term)
        found = self.named.get(whole)
        return str(found if found is not None else self.named.put(whole, f"condition #{sum(1 for _ in self.named.items())}"))

    def _condition(self, term: Term) -> Condition:
        if z3.is_true(term) or z3.is_false(term):
            return ALWAYS if z3.is_true(term) else NEVER
        if z3.is_not(term):
            return self.condition(term.arg(0)).negation()
        if z3.is_and(term) or z3.is_or(term):
            return (both if z3.is_and(term) else either)(*map(self.condition, term.children()))
        if z3.is_app_of(term, z3.Z3_OP_ITE):
            test, yes, no = map(self.condition, term.children())
            return either(both(test, yes), both(test.negation(), no))
        mask = tested_mask(term)
        if mask is not None:
            found_in = self.condition(self.lanes.bit(mask))
            if found_in.never or found_in.always:
                return ALWAYS if found_in.never else NEVER
            raise NotModelled("a branch of some waves")
        kind = term.decl().kind()
        if kind not in COMPARISONS or not z3.is_bv(term.arg(0)):
            raise NotModelled(f"a condition: {str(term)[:60]}")
        compared, signed = COMPARISONS[kind]
        sides = [self.cases(child) for child in term.children()]
        found = []
        for when, a in sides[0]:
            for where, b in sides[1]:
                holds = both(when, where)
                if not holds.never:
                    found.append(both(holds, self._compare(compared, a, b, term.arg(0).size(), signed)))
        return either(*found)

    def _compare(self, compared: str, a: Form, b: Form, bits: int, signed: bool | None) -> Condition:
        if signed is None:
            try:
                a, b = (self._exact(each, bits, False) for each in (a, b))
            except NotModelled:
                a, b = (self._exact(each, bits, True) for each in (a, b))
            return both(at_least(a - b), at_least(b - a))
        a, b = (self._exact(each, bits, signed) for each in (a, b))
        one = Form.of(1)
        left = {"lt": b - a - one, "le": b - a, "gt": a - b - one, "ge": a - b}[compared]
        low, high = left.bounds(self.ranges)
        return ALWAYS if low >= 0 else NEVER if high < 0 else at_least(left)


def _each(parts: list[list[Case]], operation: Callable[..., Form]) -> list[Case]:
    """Returns an operation's results in all cases of its operands."""
    found: list[tuple[Condition, tuple[Form, ...]]] = [(ALWAYS, ())]
    for cases in parts:
        found = [
            (there, (*forms, form))
            for when, forms in found
            for where, form in cases
            if not (there := both(when, where)).never
        ]  # fmt: skip
    return [(when, operation(*forms)) for when, forms in found]


def _modulo(value: Any, bits: int) -> Any:
    """Returns numbers modulo 2**bits."""
    if bits >= 63:
        if np.any(np.asarray(value) < 0):
            raise NotModelled("a number of 64 bits that may wrap")
        return np.asarray(value)
    return np.asarray(value) % (1 << bits)


def _product(*forms: Form) -> Form:
    total = forms[0]
    for form in forms[1:]:
        total = total.product(form)
    return total


def _signed_value(term: Term) -> int:
    value, bits = term.as_long(), term.size()
    return int(value - (1 << bits) if value >> bits - 1 else value)


def _names(form: Form) -> str:
    return ", ".join(sorted({name for product in form.parts for name in product}))


def _sum(*forms: Form) -> Form:
    total = Form()
    for form in forms:
        total = total + form
    return total


SUMS: dict[int, Callable[..., Form]] = {
    z3.Z3_OP_BADD: _sum,
    z3.Z3_OP_BSUB: lambda first, *others: first - _sum(*others),
    z3.Z3_OP_BNEG: lambda form: -form,
    z3.Z3_OP_BNOT: lambda form: -form - Form.of(1),
}
BITWISE: dict[int, Callable[[list[Any], int], Any]] = {
    z3.Z3_OP_BAND: lambda values, bits: np.bitwise_and.reduce(np.broadcast_arrays(*values)),
    z3.Z3_OP_BOR: lambda values, bits: np.bitwise_or.reduce(np.broadcast_arrays(*values)),
    z3.Z3_OP_BXOR: lambda values, bits: np.bitwise_xor.reduce(np.broadcast_arrays(*values)),
    z3.Z3_OP_BLSHR: lambda values, bits: np.where(values[1] < bits, values[0] >> np.minimum(values[1], 63), 0),
    z3.Z3_OP_BSHL: lambda values, bits: np.where(values[1] < bits, values[0] << np.minimum(values[1], 63), 0),
    z3.Z3_OP_BUDIV: lambda values, bits: values[0] // np.maximum(values[1], 1),
}
COMPARISONS: dict[int, tuple[str, bool | None]] = {
    z3.Z3_OP_EQ: ("eq", None),
    z3.Z3_OP_SLT: ("lt", True), z3.Z3_OP_SLEQ: ("le", True), z3.Z3_OP_SGT: ("gt", True), z3.Z3_OP_SGEQ: ("ge", True),
    z3.Z3_OP_ULT: ("lt", False), z3.Z3_OP_ULEQ: ("le", False), z3.Z3_OP_UGT: ("gt", False), z3.Z3_OP_UGEQ: ("ge", False),
}  # fmt: skip
