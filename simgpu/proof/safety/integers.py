"""Bit-vectors as integers, for the solver's arithmetic: it decides products of symbols, which bits hide.

A term of n bits becomes an integer from 0 to 2^n - 1. A sum or product that may wrap is x = value + 2^n · q with an unknown q.
An operation without a rule becomes an unknown integer, so a proof about the integers holds for the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.proof.terms import Memo

Term = Any
COMPARED = {
    z3.Z3_OP_ULEQ: (False, "le"), z3.Z3_OP_ULT: (False, "lt"), z3.Z3_OP_UGEQ: (False, "ge"), z3.Z3_OP_UGT: (False, "gt"),
    z3.Z3_OP_SLEQ: (True, "le"), z3.Z3_OP_SLT: (True, "lt"), z3.Z3_OP_SGEQ: (True, "ge"), z3.Z3_OP_SGT: (True, "gt"),
}  # fmt: skip
RELATION: dict[str, Callable[[Term, Term], Term]] = {
    "le": lambda a, b: a <= b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b,
}  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """An integer and numbers that it is between."""

    term: Term
    low: int
    high: int


class Integers:
    """Translates terms. `facts` are what holds of the integers, whatever the inputs are.

    ranges: for sums, products and symbols that are known not to wrap, their largest values.
    """

    def __init__(self, ranges: Memo | None = None) -> None:
        self.facts: list[Term] = []
        self._ranges = Memo() if ranges is None else ranges
        self._known, self._conditions, self._congruent = Memo(), Memo(), Memo()
        self._count = 0

    def of(self, term: Term) -> Term:
        """Returns a bit-vector's unsigned value.

        >>> x = z3.BitVec("x", 32)
        >>> Integers().of(z3.LShR(x, 1) + 3).sort()
        Int
        """
        return self._whole(term).term

    def signed_value(self, term: Term) -> Term:
        """Returns a bit-vector's value in two's complement."""
        return self._signed_whole(term).term

    def highest(self, term: Term) -> int:
        """Returns a number that a bit-vector's unsigned value is at most."""
        return self._whole(term).high

    # -- values --------------------------------------------------------------------------------

    def _fresh(self, low: int, high: int) -> Whole:
        self._count += 1
        made = z3.Int(f"i{self._count}")
        self.facts += [made >= low, made <= high]
        return Whole(made, low, high)

    def _whole(self, term: Term) -> Whole:
        found = self._known.get(term)
        if found is None:
            left = [term]
            while left:  # operands first, so that deep terms need no deep recursion
                each = left[-1]
                missing = [c for c in each.children() if z3.is_bv(c) and self._known.get(c) is None]
                left += missing
                if not missing:
                    left.pop()
                    if self._known.get(each) is None:
                        self._known.put(each, self._make(each))
            found = self._known.get(term)
        assert isinstance(found, Whole)
        return found

    def _signed_whole(self, term: Term) -> Whole:
        kind, bits = term.decl().kind(), term.size()
        if z3.is_bv_value(term):
            value = term.as_signed_long()
            return Whole(z3.IntVal(value), value, value)
        if kind == z3.Z3_OP_SIGN_EXT:
            return self._signed_whole(term.arg(0))
        if kind == z3.Z3_OP_BASHR and z3.is_bv_value(term.arg(1)):
            shift = min(term.arg(1).as_long(), bits - 1)
            return self._quotient(self._signed_whole(term.arg(0)), 1 << shift)
        if kind in SIGNED and self._ranges.get(term) is None:
            made = SIGNED[kind](self, term)
            if made is not None and -(1 << bits - 1) <= made.low and made.high < 1 << bits - 1:
                return made
        whole, half = self._whole(term), 1 << bits - 1
        if whole.high < half:
            return whole
        return Whole(z3.If(whole.term < half, whole.term, whole.term - 2 * half), -half, half - 1)

    def _reduce(self, exact: Whole, bits: int) -> Whole:
        """Returns an integer modulo 2^bits."""
        size = 1 << bits
        if exact.low >= 0 and exact.high < size:
            return exact
        made, turns = self._fresh(0, size - 1), self._fresh(exact.low >> bits, exact.high >> bits)
        self.facts.append(exact.term == made.term + size * turns.term)
        return made

    def _quotient(self, exact: Whole, divisor: int) -> Whole:
        if divisor == 1:
            return exact
        made, rest = self._fresh(exact.low // divisor, exact.high // divisor), self._fresh(0, divisor - 1)
        self.facts.append(exact.term == divisor * made.term + rest.term)
        return made

    def _make(self, term: Term) -> Whole:
        bits = term.size()
        if z3.is_bv_value(term):
            return Whole(z3.IntVal(term.as_long()), term.as_long(), term.as_long())
        high = self._ranges.get(term)
        if high is not None:
            exact = self.exact(term)
            if exact is None:
                return self._fresh(0, high)
            named = self._fresh(max(0, exact.low), min(high, exact.high))  # a name, so that products of it have a low degree
            self.facts.append(named.term == exact.term)
            return named
        rule = RULES.get(term.decl().kind())
        made = rule(self, term) if rule is not None else None
        return made if made is not None else self._fresh(0, (1 << bits) - 1)

    def small(self, term: Term) -> Whole:
        """Returns a value modulo 2^bits that is nearer to 0 for large constants: -1 for all ones."""
        return self._signed_whole(term) if z3.is_bv_value(term) else self._whole(term)

    def sum_of(self, parts: Sequence[Whole]) -> Whole:
        return Whole(z3.Sum(*(part.term for part in parts)), sum(p.low for p in parts), sum(p.high for p in parts))

    # -- rules ---------------------------------------------------------------------------------

    def exact(self, term: Term) -> Whole | None:
        """Returns a sum or product before it wraps; None for other terms."""
        kind = term.decl().kind()
        if kind not in (z3.Z3_OP_BADD, z3.Z3_OP_BMUL):
            return None
        parts = list(map(self.congruent, term.children()))
        return self.sum_of(parts) if kind == z3.Z3_OP_BADD else self.product(parts)

    def congruent(self, term: Term) -> Whole:
        """Returns an integer that is equal to a term modulo 2^bits, without reductions inside of sums and products."""
        found = self._congruent.get(term)
        return found if found is not None else self._congruent.put(term, self._made_congruent(term))

    def _made_congruent(self, term: Term) -> Whole:
        kind = term.decl().kind()
        if self._ranges.get(term) is not None:
            return self._whole(term)
        exact = self.exact(term)
        if exact is not None:
            return exact
        if kind == z3.Z3_OP_EXTRACT and term.params()[1] == 0:
            return self.congruent(term.arg(0))
        if kind == z3.Z3_OP_CONCAT and term.num_args() == 2 and z3.is_bv_value(term.arg(1)) and not term.arg(1).as_long():
            above, scale = self.congruent(term.arg(0)), 1 << term.arg(1).size()
            return Whole(above.term * scale, above.low * scale, above.high * scale)
        return self.small(term)

    def grown(self, value: Term, start: Term, by: Term, rounds: Term) -> Term:
        """Returns the relation value = start + by · rounds, modulo 2^bits."""
        bits, turns = value.size(), self._whole(rounds)
        exact = self.sum_of([self.congruent(start), self.product([self.congruent(by), turns])])
        wraps = self._fresh(exact.low >> bits, exact.high >> bits)
        return self.of(value) + (1 << bits) * wraps.term == exact.term

    def _sum_or_product(self, term: Term) -> Whole | None:
        exact = self.exact(term)
        return exact and self._reduce(exact, term.size())

    def _subtract(self, term: Term) -> Whole:
        a, b = map(self._whole, term.children())
        return self._reduce(Whole(a.term - b.term, a.low - b.high, a.high - b.low), term.size())

    def _negate(self, term: Term) -> Whole:
        a = self._whole(term.arg(0))
        return self._reduce(Whole(-a.term, -a.high, -a.low), term.size())

    def _invert(self, term: Term) -> Whole:
        a, most = self._whole(term.arg(0)), (1 << term.size()) - 1
        return Whole(most - a.term, most - a.high, most - a.low)

    def product(self, parts: Sequence[Whole]) -> Whole:
        total = parts[0]
        for part in parts[1:]:
            ends = [a * b for a in (total.low, total.high) for b in (part.low, part.high)]
            total = Whole(total.term * part.term, min(ends), max(ends))
        return total

    def _concat(self, term: Term) -> Whole:
        parts, shift = [], 0
        for part in reversed(term.children()):
            whole, scale = self._whole(part), 1 << shift
            parts.append(Whole(whole.term * scale if scale > 1 else whole.term, whole.low * scale, whole.high * scale))
            shift += part.size()
        return self.sum_of([part for part in parts if part.high] or parts[:1])

    def _extract(self, term: Term) -> Whole:
        high, low = term.params()
        return self._reduce(self._quotient(self._whole(term.arg(0)), 1 << low), high - low + 1)

    def _extend(self, term: Term) -> Whole:
        return self._whole(term.arg(0))

    def _extend_sign(self, term: Term) -> Whole:
        return self._reduce(self._signed_whole(term.arg(0)), term.size())

    def _shift_left(self, term: Term) -> Whole | None:
        if not z3.is_bv_value(term.arg(1)):
            return None
        scale = 1 << min(term.arg(1).as_long(), term.size())
        whole = self._whole(term.arg(0))
        return self._reduce(Whole(whole.term * scale, whole.low * scale, whole.high * scale), term.size())

    def _shift_right(self, term: Term) -> Whole:
        whole = self._whole(term.arg(0))
        if not z3.is_bv_value(term.arg(1)):
            made = self._fresh(0, whole.high)
            self.facts.append(made.term <= whole.term)
            return made
        return self._quotient(whole, 1 << min(term.arg(1).as_long(), term.size()))

    def _shift_right_signed(self, term: Term) -> Whole:
        return self._reduce(self._signed_whole(term), term.size())

    def _and(self, term: Term) -> Whole | None:
        if term.num_args() != 2:
            return None
        at = next((at for at in (0, 1) if z3.is_bv_value(term.arg(at))), None)
        if at is not None:
            mask, whole = term.arg(at).as_long(), self._whole(term.arg(1 - at))
            if mask & mask + 1 == 0:
                return self._reduce(whole, mask.bit_length())
            below = (mask & -mask) - 1
            if mask + below == (1 << term.size()) - 1:
                rest = self._reduce(whole, below.bit_length())
                return Whole(whole.term - rest.term, 0, whole.high)
        wholes = [self._whole(part) for part in term.children()]
        made = self._fresh(0, min(whole.high for whole in wholes))
        self.facts += [made.term <= whole.term for whole in wholes]
        return made

    def _or(self, term: Term) -> Whole:
        wholes = [self._whole(part) for part in term.children()]
        for at in (0, 1) if len(wholes) == 2 else ():
            if wholes[1 - at].high < 1 << _trailing_zeros(term.arg(at)):
                return self.sum_of(wholes)
        made = self._fresh(0, (1 << term.size()) - 1)
        self.facts += [made.term >= whole.term for whole in wholes]
        self.facts.append(made.term <= z3.Sum(*(whole.term for whole in wholes)))
        return made

    def _xor(self, term: Term) -> Whole:
        wholes = [self._whole(part) for part in term.children()]
        made = self._fresh(0, (1 << max(whole.high for whole in wholes).bit_length()) - 1)
        self.facts.append(made.term <= z3.Sum(*(whole.term for whole in wholes)))
        return made

    def _divide(self, term: Term) -> Whole:
        a, b = map(self._whole, term.children())
        if b.low == b.high and b.low:
            return self._quotient(a, b.low)
        made = self._fresh(0, (1 << term.size()) - 1)
        inside = z3.And(made.term * b.term <= a.term, a.term < (made.term + 1) * b.term, made.term <= a.term)
        self.facts.append(z3.Implies(b.term > 0, inside))
        return made

    def _remainder(self, term: Term) -> Whole:
        a, b = map(self._whole, term.children())
        if b.low == b.high and b.low:
            return Whole(a.term - b.low * self._quotient(a, b.low).term, 0, b.low - 1)
        made, times = self._fresh(0, a.high), self._fresh(0, a.high)
        inside = z3.And(made.term < b.term, a.term == times.term * b.term + made.term)
        self.facts.append(z3.Implies(b.term > 0, inside))
        return made

    def _choose(self, term: Term) -> Whole:
        a, b = (self._whole(term.arg(way)) for way in (1, 2))
        return Whole(z3.If(self.condition(term.arg(0)), a.term, b.term), min(a.low, b.low), max(a.high, b.high))

    # Values in two's complement, if they do not wrap.

    def _signed_sum(self, term: Term) -> Whole:
        return self.sum_of([self._signed_whole(part) for part in term.children()])

    def _signed_product(self, term: Term) -> Whole:
        return self.product([self._signed_whole(part) for part in term.children()])

    def _signed_concat(self, term: Term) -> Whole:
        """Reads a concatenation whose first part has the sign; the solver writes a sign's copies as parts of their own."""
        parts = term.children()
        copies = next((at for at in range(len(parts) - 1) if not _is_sign(parts[at], parts[at + 1])), len(parts) - 1)
        if copies:
            return self._signed_whole(z3.Concat(*parts[copies:]) if copies < len(parts) - 1 else parts[-1])
        below = term.size() - term.arg(0).size()
        rest = z3.Concat(*term.children()[1:]) if term.num_args() > 2 else term.arg(1)
        top, low = self._signed_whole(term.arg(0)), self._whole(rest)
        return self.sum_of([Whole(top.term * (1 << below), top.low << below, top.high << below), low])

    def _signed_extract(self, term: Term) -> Whole | None:
        return self._signed_whole(term.arg(0)) if term.params()[1] == 0 else None

    def _signed_choice(self, term: Term) -> Whole:
        a, b = (self._signed_whole(term.arg(way)) for way in (1, 2))
        return Whole(z3.If(self.condition(term.arg(0)), a.term, b.term), min(a.low, b.low), max(a.high, b.high))

    # -- conditions ----------------------------------------------------------------------------

    def condition(self, term: Term) -> Term:
        """Returns a condition of bit-vectors as one of integers."""
        found = self._conditions.get(term)
        return found if found is not None else self._conditions.put(term, self._condition(term))

    def _condition(self, term: Term) -> Term:
        kind = term.decl().kind()
        if z3.is_true(term) or z3.is_false(term):
            return term
        if kind in COMPARED:
            signed, relation = COMPARED[kind]
            value = self.signed_value if signed else self.of
            return RELATION[relation](*map(value, term.children()))
        if kind in (z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT, z3.Z3_OP_ITE) or kind in CONNECTIVES:
            children = [self.of(child) if z3.is_bv(child) else self.condition(child) for child in term.children()]
            if kind in CONNECTIVES:
                return CONNECTIVES[kind](children)
            if kind == z3.Z3_OP_ITE:
                return z3.If(*children)
            return children[0] == children[1] if kind == z3.Z3_OP_EQ else z3.Distinct(*children)
        self._count += 1
        return z3.Bool(f"b{self._count}")


CONNECTIVES: dict[int, Callable[[list[Term]], Term]] = {
    z3.Z3_OP_AND: z3.And,
    z3.Z3_OP_OR: z3.Or,
    z3.Z3_OP_NOT: lambda parts: z3.Not(parts[0]),
    z3.Z3_OP_XOR: lambda parts: z3.Xor(*parts),
    z3.Z3_OP_IMPLIES: lambda parts: z3.Implies(*parts),
    z3.Z3_OP_IFF: lambda parts: parts[0] == parts[1],
}
SIGNED: dict[int, Callable[[Integers, Term], Whole | None]] = {
    z3.Z3_OP_BADD: Integers._signed_sum, z3.Z3_OP_BMUL: Integers._signed_product, z3.Z3_OP_CONCAT: Integers._signed_concat,
    z3.Z3_OP_EXTRACT: Integers._signed_extract, z3.Z3_OP_ITE: Integers._signed_choice,
}  # fmt: skip
# Rules by the solver's kinds of operations.
RULES: dict[int, Callable[[Integers, Term], Whole | None]] = {
    z3.Z3_OP_BADD: Integers._sum_or_product, z3.Z3_OP_BSUB: Integers._subtract, z3.Z3_OP_BNEG: Integers._negate,
    z3.Z3_OP_BNOT: Integers._invert, z3.Z3_OP_BMUL: Integers._sum_or_product, z3.Z3_OP_CONCAT: Integers._concat,
    z3.Z3_OP_EXTRACT: Integers._extract, z3.Z3_OP_ZERO_EXT: Integers._extend, z3.Z3_OP_SIGN_EXT: Integers._extend_sign,
    z3.Z3_OP_BSHL: Integers._shift_left, z3.Z3_OP_BLSHR: Integers._shift_right, z3.Z3_OP_BASHR: Integers._shift_right_signed,
    z3.Z3_OP_BAND: Integers._and, z3.Z3_OP_BOR: Integers._or, z3.Z3_OP_BXOR: Integers._xor,
    z3.Z3_OP_BUDIV: Integers._divide, z3.Z3_OP_BUDIV_I: Integers._divide, z3.Z3_OP_BUREM: Integers._remainder,
    z3.Z3_OP_BUREM_I: Integers._remainder, z3.Z3_OP_ITE: Integers._choose,
}  # fmt: skip


def _is_sign(part: Term, following: Term) -> bool:
    """True for a copy of the next part's highest bit."""
    if part.size() != 1 or not z3.is_app_of(part, z3.Z3_OP_EXTRACT):
        return part.size() == 1 and z3.is_bv_value(part) and z3.is_bv_value(following) and (
            following.as_long() >> following.size() - 1 == part.as_long()
        )
    of, bit = part.arg(0), part.params()[0]
    if z3.is_app_of(following, z3.Z3_OP_EXTRACT) and following.arg(0).eq(of):
        return bool(following.params()[0] == bit)
    return bool(of.eq(following) and bit == following.size() - 1)


def _trailing_zeros(term: Term) -> int:
    """Returns a number of low bits that are known to be 0."""
    kind = term.decl().kind()
    if z3.is_bv_value(term):
        value = term.as_long()
        return (value & -value).bit_length() - 1 if value else term.size()
    if kind == z3.Z3_OP_BSHL and z3.is_bv_value(term.arg(1)):
        return min(term.size(), term.arg(1).as_long() + _trailing_zeros(term.arg(0)))
    if kind == z3.Z3_OP_BMUL:
        return min(term.size(), sum(map(_trailing_zeros, term.children())))
    if kind in (z3.Z3_OP_BADD, z3.Z3_OP_BOR):
        return min(map(_trailing_zeros, term.children()))
    if kind == z3.Z3_OP_CONCAT:
        low = term.arg(term.num_args() - 1)
        zeros = _trailing_zeros(low)
        if zeros < low.size() or term.num_args() > 2:
            return zeros
        return zeros + _trailing_zeros(term.arg(0))
    if kind == z3.Z3_OP_BAND:
        return max(map(_trailing_zeros, term.children()))
    return 0
