"""Facts about all rounds of loops, and questions to the solver as integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import every
from simgpu.proof.safety.integers import Integers
from simgpu.proof.solver import Budget, solve
from simgpu.proof.terms import Memo, conjuncts, subterms

Term = Any


@dataclass
class Advance:
    """A value that grows by the same in each round of a loop."""

    value: Term  # in this round
    start: Term  # in the first
    by: Term
    round: Term  # 64 bits
    active: Term  # the condition for a lane
    exact: bool = False  # True if it never wraps: as integers, value = start + by · round
    apart: bool = False  # True if the start is less than the step, so that values of different starts differ
    entered: Term = field(default_factory=lambda: z3.BoolVal(True))  # the condition for both, that the lane is in the loop

    @property
    def formula(self) -> Term:
        """Same value modulo 2^bits."""
        rounds = self.round if self.value.size() == 64 else z3.Extract(self.value.size() - 1, 0, self.round)
        return z3.Implies(self.active, self.value == self.start + self.by * rounds)

    def whole(self, integers: Integers) -> Term:
        """Returns the relation of the integers."""
        if not self.exact:
            return z3.Implies(integers.condition(self.active), integers.grown(self.value, self.start, self.by, self.round))
        value, start, by, rounds = self.whole_parts(integers)
        less = [start < by] if self.apart else []
        conditions = z3.And(integers.condition(self.active), integers.condition(self.entered))
        return z3.Implies(conditions, z3.And(value == start + by * rounds, *less))

    def whole_parts(self, integers: Integers) -> tuple[Term, Term, Term, Term]:
        """Returns value, start, step and round as integers. A value of 64 bits is a distance, which has a sign."""
        read = integers.signed_value if self.value.size() == 64 else integers.of
        return read(self.value), read(self.start), integers.signed_value(self.by), integers.of(self.round)

    def map_terms(self, rename: Callable[[Term], Term]) -> Advance:
        """Returns the same of another wave."""
        value, start, by, rounds, active = map(rename, (self.value, self.start, self.by, self.round, self.active))
        return Advance(value, start, by, rounds, active, self.exact, self.apart, rename(self.entered))

    def where(self, held: Set[int]) -> Advance:
        """Returns the same where conditions with these ids hold."""
        return replace(self, entered=without(self.entered, held))


@dataclass(frozen=True)
class Inside:
    """A formula that holds if a condition does: that a lane is in a loop."""

    entered: Term
    formula: Term

    @property
    def bits(self) -> Term:
        return implication([self.entered], self.formula)

    def map_terms(self, rename: Callable[[Term], Term]) -> Inside:
        """Returns the same of another wave."""
        return Inside(rename(self.entered), rename(self.formula))

    def where(self, held: Set[int]) -> Term:
        """Returns the formula where conditions with these ids hold."""
        return implication([without(self.entered, held)], self.formula)


def same_round(mine: Advance, theirs: Advance) -> Inside | None:
    """Returns what holds if a value is the same in two waves: start and round are, since quotient and remainder are unique."""
    if not (mine.exact and mine.apart and mine.by.eq(theirs.by)):
        return None
    same = every(mine.start == theirs.start, mine.round == theirs.round)
    found = z3.Implies(every(mine.active, theirs.active, mine.value == theirs.value), same)
    return Inside(every(mine.entered, theirs.entered), found)


@dataclass
class LoopFacts:
    """Facts about loops that hold wherever their symbols are used, and facts that hold only inside."""

    advances: list[Advance] = field(default_factory=list)
    formulas: list[Term] = field(default_factory=list)
    inside: list[Inside] = field(default_factory=list)

    def mark(self) -> tuple[int, int, int]:
        return len(self.advances), len(self.formulas), len(self.inside)

    def reset(self, mark: tuple[int, int, int]) -> None:
        """Forgets facts that were added after a mark."""
        del self.advances[mark[0] :], self.formulas[mark[1] :], self.inside[mark[2] :]

    def bits(self) -> list[Term]:
        """Returns all facts as formulas of bit-vectors."""
        return [*(each.formula for each in self.advances), *self.formulas, *(each.bits for each in self.inside)]

    def map_terms(self, rename: Callable[[Term], Term]) -> LoopFacts:
        """Returns the facts of another wave."""
        advances, inside = [each.map_terms(rename) for each in self.advances], [each.map_terms(rename) for each in self.inside]
        return LoopFacts(advances, list(map(rename, self.formulas)), inside)

    def where(self, held: Set[int]) -> tuple[list[Advance], list[Term]]:
        """Returns advances, and all formulas, where conditions with these ids hold."""
        return [each.where(held) for each in self.advances], [*self.formulas, *(each.where(held) for each in self.inside)]


@dataclass
class Conjunction:
    """Formulas whose conjunction may be impossible: of bit-vectors, and of their integers."""

    bits: list[Term]
    advances: Sequence[Advance] = ()
    # Formulas of integers only, as of sizes that a user gave.
    whole: Callable[[Integers], list[Term]] = lambda integers: []
    ranges: Memo = field(default_factory=Memo)  # the largest values of terms that do not wrap, if the formulas hold

    def impossible(self, budget: Budget, effort: float) -> bool:
        """True if the integers cannot be so, and so the bits cannot."""
        integers = Integers(self.ranges)
        asked = [integers.condition(each) for each in self.bits]
        asked += [each.whole(integers) for each in self.advances]
        asked += self.whole(integers)
        return bool(solve([*asked, *integers.facts], budget, effort)[0] == z3.unsat)


def relevant(
    about: Sequence[Term], asked: Sequence[Term], known: Sequence[Term], advances: Sequence[Advance]
) -> tuple[list[Term], frozenset[str], list[Advance]]:
    """Returns the query and the known formulas that may matter, without conditions of masks; the names in them; and the
    values of loops that may matter. An equation matters only if all its symbols occur.
    """
    reached = frozenset().union(*map(names_of, about), frozenset())
    parts = [(part, names_of(part)) for each in asked for part in conjuncts(each)]
    taken = [part for part, names in parts if not any(name == "exec" or name.startswith(("mask", "exec'")) for name in names)]
    reached = reached.union(*map(names_of, taken))
    left = [(formula, names_of(formula)) for formula in known]
    growing = [(each, names_of(each.value) | names_of(each.round), names_of(each.formula)) for each in advances]
    while True:
        chosen = [each for each in left if (each[1] <= reached if z3.is_eq(each[0]) else each[1] & reached)]
        grown = [each for each in growing if each[1] & reached and not each[2] <= reached]
        if not chosen and not grown:
            return taken, reached, [each for each, own, _ in growing if own & reached]
        taken += [formula for formula, _ in chosen]
        left = [each for each in left if not any(each is other for other in chosen)]
        reached = reached.union(*(symbols for _, symbols in chosen), *(symbols for _, _, symbols in grown))


def names_of(term: Term) -> frozenset[str]:
    """Returns the names of symbols and unknown functions in a term, other than the lanes that functions are of."""
    inside = subterms([term], lambda each: not (each.num_args() == 1 and each.decl().kind() == z3.Z3_OP_UNINTERPRETED))
    return frozenset(each.decl().name() for each in inside if each.decl().kind() == z3.Z3_OP_UNINTERPRETED)


def without(condition: Term, held: Set[int]) -> Term:
    """Returns a condition without the parts with these ids, which hold."""
    return every(*(part for part in conjuncts(condition) if part.get_id() not in held))


def implication(conditions: Sequence[Term], formula: Term) -> Term:
    """Returns the formula for those for whom the conditions hold."""
    guard = every(*conditions)
    return formula if z3.is_true(guard) else z3.Implies(guard, formula)
