"""Proofs about a kernel's launches: what holds of all of them, and which terms never wrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import z3

from simgpu.proof.roots import has_pointer
from simgpu.proof.safety.facts import Conjunction, LoopFacts, relevant
from simgpu.proof.safety.integers import Integers
from simgpu.proof.safety.launches import Launches
from simgpu.proof.solver import Budget
from simgpu.proof.terms import Memo, conjuncts

Term = Any
RANGE_EFFORT = 3.0  # of the solver, to show that a term does not wrap
MOST_CANDIDATES = 40  # terms of a question whose ranges are sought


@dataclass
class Prover:
    """Answers questions about all launches."""

    launches: Launches
    budget: Budget
    _ranges: Memo = field(default_factory=Memo)  # by guard
    _always: Memo = field(default_factory=Memo)  # ranges that need no guard
    _tried: Memo = field(default_factory=Memo)  # attempts for them

    @cached_property
    def _constants(self) -> list[tuple[Term, Term]]:
        known = [each for each in (*self.launches.facts(), *self.launches.wave_facts()) if z3.is_eq(each)]
        return [(each.arg(0), each.arg(1)) for each in known if z3.is_bv_value(each.arg(1))]

    def settle(self, term: Term) -> Term:
        """Returns a term with what the launch fixes put in."""
        return z3.simplify(z3.substitute(term, *self._constants))

    def _substitute(self, term: Term) -> Term:
        """Returns a fact with what the launch fixes put in, if that does not settle it; the solver's simpler forms hide orders."""
        made = z3.substitute(term, *self._constants)
        return z3.BoolVal(True) if not made.eq(term) and z3.is_true(z3.simplify(made)) else made

    def formulas_of(self, facts: LoopFacts) -> list[Term]:
        """Returns facts about a wave, as formulas of bit-vectors."""
        return [*self._of_waves, *facts.bits()]

    @cached_property
    def _of_waves(self) -> list[Term]:
        return [*self.launches.facts(), *self.launches.wave_facts()]

    def no_launch(self) -> bool:
        """True if the assumptions contradict each other, so that anything would follow from them."""
        symbols = [term for term, _ in self.launches.names.values()]
        return self.impossible(symbols, [], LoopFacts(), lambda integers: [], Memo(), RANGE_EFFORT)

    def impossible(
        self, about: Sequence[Term], bits: Sequence[Term], facts: LoopFacts, whole: Callable[[Integers], list[Term]], ranges: Memo,
        effort: float,
    ) -> bool:  # fmt: skip
        """True if the formulas cannot all hold, as integers.

        about: what the question is about, to find relevant facts; bits: formulas of bit-vectors, settled; whole: of integers.
        """
        grown, formulas = facts.where({part.get_id() for each in bits for part in conjuncts(each)})
        known = [each for each in map(self._substitute, [*self._of_waves, *formulas]) if not z3.is_true(each)]
        asked, names, advances = relevant(about, bits, known, grown)

        def all_whole(integers: Integers) -> list[Term]:
            return [*whole(integers), *self.launches.whole_facts(integers, names)]

        return Conjunction(asked, advances, all_whole, ranges).impossible(self.budget, effort)

    def range_of(self, guard: Term, term: Term, facts: LoopFacts) -> Memo:
        """Returns the largest values of the guard's and the term's parts, where the guard holds and they do not wrap."""
        found = self._ranges.get(guard)
        found = self._ranges.put(guard, Memo()) if found is None else found
        tried = 0
        grown = [each for each in facts.advances if each.exact]
        for each in grown:
            if each.value.size() == 32:
                found.put(each.value, (1 << 31) - 1)  # shown with its exactness; it has no meaning for lanes that are not active
        for each in _operands_first([guard, term, *(part for made in grown for part in (made.start, made.by))]):
            if not _may_wrap(each) or found.get(each) is not None or tried >= MOST_CANDIDATES:
                continue
            if Integers(found).highest(each) < 1 << each.size() - 1:
                continue
            tried += 1
            for high in ((1 << each.size() - 1) - 1, (1 << each.size()) - 1):
                if self._stays_below(guard, each, high, found, facts):
                    found.put(each, high)
                    break
        return found

    def _stays_below(self, guard: Term, term: Term, high: int, ranges: Memo, facts: LoopFacts) -> bool:
        def outside(integers: Integers) -> list[Term]:
            exact = integers.exact(term)
            value = exact.term if exact is not None else integers.of(term)
            return [z3.Or(value < 0, value > high)]

        if not z3.is_const(term):
            tried = self._tried.get(term)
            tried = self._tried.put(term, {}) if tried is None else tried
            if high not in tried:
                tried[high] = self.impossible([term], [], LoopFacts(), outside, self._always, RANGE_EFFORT)
                if tried[high]:
                    self._always.put(term, high)
            if tried[high]:
                return True
        return self.impossible([term], [guard], facts, outside, ranges, RANGE_EFFORT)


def _may_wrap(term: Term) -> bool:
    """True for a sum, a product or an argument."""
    if not z3.is_bv(term) or term.size() > 64 or has_pointer(term):
        return False
    kind = term.decl().kind()
    return kind in (z3.Z3_OP_BADD, z3.Z3_OP_BMUL) or (z3.is_const(term) and str(term).startswith("arg"))


def _operands_first(terms: Sequence[Term]) -> list[Term]:
    """Returns all parts of the terms, operands before their results."""
    found: dict[int, Term] = {}
    left = list(terms)
    while left:
        each = left.pop()
        missing = [child for child in each.children() if child.get_id() not in found]
        if missing:
            left += [each, *missing]
        else:
            found.setdefault(each.get_id(), each)
    return list(found.values())
