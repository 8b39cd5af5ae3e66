"""Facts about terms: terms that are the same in all lanes, sums of 64 bits, lane masks, and what an active lane may assume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import reduce
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, fold, negation, number

Term = Any
ONES = (1 << 64) - 1
WHOLE_WAVES = "all 64 lanes of a wave are active when it starts, since lanes read each other"  # assumed by `Lanes.facts`


class NotModelled(Exception):
    """Raised for what a proof would need and the model lacks; the message is the reason of an unknown verdict."""


class Memo:
    """Results by term. The terms are kept, so that z3 gives their numbers to no other terms."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Term, Any]] = {}

    def get(self, term: Term) -> Any:
        found = self._found.get(term.get_id())
        return None if found is None else found[1]

    def items(self) -> Iterator[tuple[Term, Any]]:
        """Yields terms and their results."""
        yield from self._found.values()

    def put(self, term: Term, value: Any) -> Any:
        self._found[term.get_id()] = term, value
        return value


def tested_mask(condition: Term) -> Term | None:
    """Returns the 64 bits that a condition compares with 0; None for other conditions."""
    if not z3.is_eq(condition) or not z3.is_bv(condition.arg(0)) or condition.arg(0).size() != 64:
        return None
    sides = condition.children()
    return next((sides[1 - at] for at in (1, 0) if is_number(sides[at], 0)), None)


class Parts:
    """Parts of a conjunction, and their ids."""

    def __init__(self, condition: Term) -> None:
        self.terms = conjuncts(condition)
        self.ids = frozenset(part.get_id() for part in self.terms)
        self._opposites = [negation(part) for part in self.terms]  # kept, so that their ids stay theirs
        self.opposites = frozenset(part.get_id() for part in self._opposites)


def conjuncts(condition: Term) -> list[Term]:
    """Returns the parts of a conjunction."""
    if z3.is_and(condition):
        return [part for child in condition.children() for part in conjuncts(child)]
    return [] if z3.is_true(condition) else [condition]


def flat_sum(term: Term) -> list[Term]:
    """Returns the terms of a sum."""
    if term.decl().kind() == z3.Z3_OP_BADD:
        return [part for child in term.children() for part in flat_sum(child)]
    return [term]


def is_number(term: Term, value: int) -> bool:
    """True for a constant of this value."""
    return bool(z3.is_bv_value(term)) and term.as_long() == value


BITWISE: dict[int, Callable[[list[Term]], Term]] = {
    z3.Z3_OP_BAND: lambda parts: reduce(lambda a, b: a & b, parts),
    z3.Z3_OP_BOR: lambda parts: reduce(lambda a, b: a | b, parts),
    z3.Z3_OP_BXOR: lambda parts: reduce(lambda a, b: a ^ b, parts),
    z3.Z3_OP_BNOT: lambda parts: ~parts[0],
}


def wide(low: Term, high: Term) -> Term:
    """Returns 64 bits by their halves. Halves of one term become that term, and a sum made by halves with a carry one sum.

    >>> a, b = z3.BitVecs("a b", 64)
    >>> wide(z3.Extract(31, 0, a), z3.Extract(63, 32, a))
    a
    """
    if low.decl().kind() == z3.Z3_OP_ITE == high.decl().kind() and low.arg(0).eq(high.arg(0)):
        return choose(low.arg(0), *(wide(low.arg(way), high.arg(way)) for way in (1, 2)))
    if high.decl().kind() == z3.Z3_OP_BASHR and high.arg(0).eq(low) and is_number(high.arg(1), 31):
        return z3.SignExt(32, low)
    whole = concat(low, high)
    if not z3.is_app_of(whole, z3.Z3_OP_CONCAT) or z3.is_bv_value(low):
        return whole
    kind = low.decl().kind()
    if kind in BITWISE and kind == high.decl().kind() and low.num_args() == high.num_args():
        parts = [wide(*pair) for pair in zip(low.children(), high.children(), strict=True)]
        return BITWISE[kind](parts)
    lesser = _difference(low, high)
    if lesser is not None:
        return lesser
    highs = flat_sum(high)
    for at, part in enumerate(highs):
        addends = _addends_of_carry(part, low)
        if addends:
            rest = highs[:at] + highs[at + 1 :]
            return _joined_sum([lone for addend in addends for lone in _split(addend, rest)], rest)
    return whole


def _difference(low: Term, high: Term) -> Term | None:
    """Returns the difference of 64 bits that was made by halves with a borrow; None if the halves are something else."""
    if low.decl().kind() != z3.Z3_OP_BSUB or high.decl().kind() != z3.Z3_OP_BSUB:
        return None
    (a, b), (c, borrow) = low.children(), high.children()
    if not (z3.is_app_of(borrow, z3.Z3_OP_ITE) and is_number(borrow.arg(1), 1) and is_number(borrow.arg(2), 0)):
        return None
    test = borrow.arg(0)
    if not z3.is_app_of(test, z3.Z3_OP_ULT) or not test.arg(0).eq(a) or not test.arg(1).eq(b):
        return None
    c, d = c.children() if c.decl().kind() == z3.Z3_OP_BSUB else (c, number(0, 32))
    return wide(a, c) - wide(b, d)


def _addends_of_carry(part: Term, low: Term) -> tuple[Term, Term] | None:
    """Returns the addends of `low` if the other term is the carry of their sum."""
    if not (z3.is_app_of(part, z3.Z3_OP_ITE) and is_number(part.arg(1), 1) and is_number(part.arg(2), 0)):
        return None
    test = part.arg(0)
    if not z3.is_app_of(test, z3.Z3_OP_ULT) or not test.arg(0).eq(low):
        return None
    if low.decl().kind() != z3.Z3_OP_BADD or low.num_args() != 2:
        return None
    a, b = low.children()
    return (a, b) if test.arg(1).eq(a) or test.arg(1).eq(b) else None


def _split(addend: Term, highs: list[Term]) -> list[Term]:
    """Returns the addends of a low half that was itself a sum with a carry in `highs`, which loses it."""
    for at, part in enumerate(highs):
        inner = _addends_of_carry(part, addend)
        if inner:
            del highs[at]
            return [lone for each in inner for lone in _split(each, highs)]
    return [addend]


def _joined_sum(lows: list[Term], highs: list[Term]) -> Term:
    """Returns the sum of low halves and high halves as one of 64 bits: a pair of halves of one term is that term."""
    total: list[Term] = []
    constant = 0
    for low in lows:
        if z3.is_bv_value(low):
            constant += low.as_long()
            continue
        mate = next((at for at, high in enumerate(highs) if _is_pair(low, high)), None)
        total.append(wide(low, highs.pop(mate)) if mate is not None else _extension(low, highs))
    for high in highs:
        if z3.is_bv_value(high):
            constant += high.as_long() << 32
        else:
            total.append(z3.Concat(high, number(0, 32)))
    if constant & ONES:
        total.append(number(constant, 64))
    return fold(sum(total[1:], total[0])) if total else number(constant, 64)


def _is_pair(low: Term, high: Term) -> bool:
    together = _difference(low, high) is None and z3.is_app_of(concat(low, high), z3.Z3_OP_CONCAT)
    return not together or low.decl().kind() == z3.Z3_OP_CONCAT == high.decl().kind()


def _extension(low: Term, highs: list[Term]) -> Term:
    """Returns a low half with its sign or zeros above: the sign's copies are taken from `highs`."""
    for at, high in enumerate(highs):
        if high.decl().kind() == z3.Z3_OP_BASHR and high.arg(0).eq(low) and is_number(high.arg(1), 31):
            del highs[at]
            return z3.SignExt(32, low)
    return z3.ZeroExt(32, low)


class Lanes:
    """Terms that both kernels share: the lane's number, symbols of masks, and facts about these symbols.

    A lane mask in scalar registers is a term of 64 bits. Only the bit of the lane that a proof is about is known: a condition's
    mask is a symbol, and a fact says what its bit for that lane is. So the other lanes may do anything, but the same in both
    kernels where their conditions are the same.
    """

    def __init__(self) -> None:
        self.lane = z3.BitVec("lane", 32)
        self.started = z3.BitVec("exec", 64)  # EXEC at the start
        self.places: list[Term] = [self.lane]  # lanes that a term was read in
        self.known: list[Term] = []  # facts about masks that were proved on the way
        self.crossed = False  # True if a lane's result depends on another lane
        self._varies, self._masks, self._bits = Memo(), Memo(), Memo()
        self._of_mask, self._numbers, self._parts = Memo(), Memo(), Memo()
        self._reads: dict[int, Memo] = {}
        self._kept: list[Term] = []
        self._symbols: dict[int, Term] = {self.started.get_id(): self.started}  # of masks, by id
        self._names = 0

    def number_of(self, row: Term) -> int:
        """Returns a number that the same rows of both kernels have in common."""
        found = self._numbers.get(row)
        if found is None:
            self._names += 1
            found = self._numbers.put(row, self._names)
        return int(found)

    def varies(self, term: Term) -> bool:
        """True if the term may differ between lanes."""
        return self._contains(term)[0]

    def _contains(self, term: Term) -> tuple[bool, frozenset[int]]:
        """Returns if a term has the lane's number in it, and the numbers of its masks' symbols."""
        found = self._varies.get(term)
        left = [term] if found is None else []
        while left:
            each = left[-1]
            children = each.children()
            missing = [child for child in children if self._varies.get(child) is None]
            if missing:
                left += missing
                continue
            left.pop()
            inside = [self._varies.get(child) for child in children]
            masks = frozenset().union(*(part[1] for part in inside))
            if not children and each.get_id() in self._symbols:
                masks = frozenset((each.get_id(),))
            varies = any(part[0] for part in inside) or (not children and each.eq(self.lane))
            found = self._varies.put(each, (varies, masks))
        assert found is not None
        return found

    def parts(self, condition: Term) -> Parts:
        """Returns the parts of a conjunction."""
        found = self._parts.get(condition)
        return found if found is not None else self._parts.put(condition, Parts(condition))

    def assume(self, term: Term, known: Set[int]) -> Term:
        """Returns the term where conditions with these ids hold: the outermost choices are made."""
        while z3.is_app_of(term, z3.Z3_OP_ITE):
            parts = self.parts(term.arg(0))
            if parts.ids <= known:
                term = term.arg(1)
            elif not parts.opposites.isdisjoint(known):
                term = term.arg(2)
            else:
                break
        if not known or not z3.is_bool(term):
            return term
        parts = self.parts(term)
        if not parts.opposites.isdisjoint(known):
            return z3.BoolVal(False)
        if parts.ids.isdisjoint(known):
            return term
        return every(*(part for part in parts.terms if part.get_id() not in known))

    def mask(self, condition: Term) -> Term:
        """Returns the 64 bits of a condition, one of each lane."""
        if not self.varies(condition):
            return choose(condition, number(-1, 64), number(0, 64))
        found = self._masks.get(condition)
        if found is None:
            found = self._masks.put(condition, self._mask(condition))
        return found

    def _mask(self, condition: Term) -> Term:
        parts = [self.mask(part) for part in condition.children()] if z3.is_and(condition) or z3.is_or(condition) else []
        if z3.is_not(condition):
            return fold(~self.mask(condition.arg(0)))
        if parts:
            total = parts[0]
            for part in parts[1:]:
                total = total & part if z3.is_and(condition) else total | part
            return total
        self._names += 1
        symbol = z3.BitVec(f"mask{self._names}", 64)
        self._of_mask.put(symbol, condition)
        self._symbols[symbol.get_id()] = symbol
        return symbol

    def bit(self, mask: Term) -> Term:
        """Returns this lane's bit of a mask, as a condition."""
        found = self._bits.get(mask)
        return found if found is not None else self._bits.put(mask, self._bit(mask))

    def _bit(self, mask: Term) -> Term:
        if mask.eq(self.started):
            return z3.BoolVal(True)
        known = self._of_mask.get(mask)
        if known is not None:
            return known
        kind = mask.decl().kind()
        if kind == z3.Z3_OP_BAND:
            return every(*map(self.bit, mask.children()))
        if kind == z3.Z3_OP_BOR:
            return negation(every(*(negation(self.bit(part)) for part in mask.children())))
        if kind == z3.Z3_OP_BNOT:
            return negation(self.bit(mask.arg(0)))
        if kind == z3.Z3_OP_BXOR and mask.num_args() == 2:
            a, b = map(self.bit, mask.children())
            return choose(a, negation(b), b)
        if kind == z3.Z3_OP_ITE:
            return choose(mask.arg(0), self.bit(mask.arg(1)), self.bit(mask.arg(2)))
        if z3.is_bv_value(mask) and mask.as_long() in (0, ONES):
            return z3.BoolVal(mask.as_long() != 0)
        return self._raw_bit(mask, self.lane)

    @staticmethod
    def _raw_bit(mask: Term, lane: Term) -> Term:
        return fold(bits_of(fold(z3.LShR(mask, z3.ZeroExt(32, lane))), 0, 1) == 1)

    def at(self, row: Term, lane: Term) -> Term:
        """Returns a row's value in another lane."""
        if not self.varies(row):
            return row
        read = self._reads.setdefault(lane.get_id(), Memo())
        found = read.get(row)
        return found if found is not None else read.put(row, self._at(row, lane))

    def _at(self, row: Term, lane: Term) -> Term:
        self._kept.append(lane)  # so that its id stays its own
        if z3.is_app_of(row, z3.Z3_OP_ITE):
            condition = row.arg(0)
            if z3.is_bv_value(lane) and self._names_lane(condition):  # v_writelane_b32, which needs no active lane
                return self.at(row.arg(1 if any(side.eq(lane) for side in condition.children()) else 2), lane)
            return choose(self.at(condition, lane), self.at(row.arg(1), lane), self.at(row.arg(2), lane))
        self.crossed = True
        if not any(lane.eq(place) for place in self.places):
            self.places.append(lane)
        return z3.simplify(z3.substitute(row, (self.lane, lane)))

    def _names_lane(self, condition: Term) -> bool:
        sides = condition.children() if z3.is_eq(condition) else []
        return any(side.eq(self.lane) for side in sides) and any(map(z3.is_bv_value, sides))

    def empty(self, mask: Term) -> Term:
        """Returns the condition that no lane's bit is set."""
        if z3.is_app_of(mask, z3.Z3_OP_ITE):
            return choose(mask.arg(0), self.empty(mask.arg(1)), self.empty(mask.arg(2)))
        if z3.is_bv_value(mask):
            return z3.BoolVal(mask.as_long() == 0)
        if z3.is_true(self.bit(mask)):
            return z3.BoolVal(False)
        if mask.decl().kind() == z3.Z3_OP_BAND:
            for at, part in enumerate(mask.children()):
                if z3.is_app_of(part, z3.Z3_OP_ITE):
                    rest = [other for number_, other in enumerate(mask.children()) if number_ != at]
                    ways = [self.empty(_all_of([part.arg(way), *rest])) for way in (1, 2)]
                    return choose(part.arg(0), *ways)
        return mask == 0

    def decide(self, condition: Term) -> Term:
        """Returns a branch's condition, a comparison of a mask with 0 by facts about the mask."""
        if z3.is_not(condition):
            return negation(self.decide(condition.arg(0)))
        mask = tested_mask(condition)
        return condition if mask is None else self.empty(mask)

    def facts(self, terms: Iterable[Term]) -> list[Term]:
        """Returns facts about the symbols of masks in the terms, and about the lane's number."""
        known = [z3.ULT(self.lane, 64)]
        if self.crossed:
            known.append(self.started == ONES)
        known += self.known
        left = [*terms, *self.known]
        met: frozenset[int] = frozenset()
        while left:
            new = frozenset().union(*(self._contains(term)[1] for term in left)) - met
            met |= new
            left = []
            for symbol in (self._symbols[each] for each in sorted(new)):
                started = symbol.eq(self.started)
                condition = z3.BoolVal(True) if started else self._of_mask.get(symbol)
                for place in self.places[:1] if started else self.places:
                    there = condition if place.eq(self.lane) else z3.substitute(condition, (self.lane, place))
                    known.append(self._raw_bit(symbol, place) == there)
                    left += [there, place]
        return known


def _all_of(masks: list[Term]) -> Term:
    """Returns the intersection of masks."""
    total = number(-1, 64)
    for mask in masks:
        if is_number(mask, 0):
            return mask
        if not (z3.is_bv_value(mask) and mask.as_long() == ONES):
            total = mask if z3.is_bv_value(total) else total & mask
    return total


def subterms(terms: Iterable[Term], into: Callable[[Term], bool] = lambda term: True) -> Iterator[Term]:
    """Yields the terms and all in them, each once. into: tells whether to yield a term's operands, too."""
    left = list(terms)
    met: set[int] = set()
    while left:
        term = left.pop()
        if term.get_id() in met:
            continue
        met.add(term.get_id())
        yield term
        if into(term):
            left += term.children()


def symbols_of(terms: Iterable[Term]) -> Iterator[Term]:
    """Yields the variables of the terms, each once."""
    return (term for term in subterms(terms) if symbol_name(term))


def symbol_name(term: Term) -> str:
    """Returns a variable's name; "" for another term. Unlike `str`, it prints no large sums."""
    made = term.decl() if z3.is_const(term) else None
    return str(made.name()) if made is not None and made.kind() == z3.Z3_OP_UNINTERPRETED else ""
