"""A loop's registers in any round: unchanged, grown by the same in each round, or unknown.

A first guess is that nothing changes. The body, run once from a state with the guess, shows which registers differ after it; the
guess is weakened until it holds after the body. It then holds in all rounds, by induction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import z3

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.lane_smt import bits_of, choose, every, fold, negation, number
from simgpu.proof.safety.facts import Advance, Inside, LoopFacts, implication
from simgpu.proof.safety.integers import COMPARED, Integers
from simgpu.proof.safety.log import AccessLog
from simgpu.proof.safety.prover import Prover
from simgpu.proof.solver import solve
from simgpu.proof.state import SCC, Place, WaveState
from simgpu.proof.terms import Memo, NotModelled, conjuncts, subterms, wide

Term = Any
EXEC = ("s", isa.EXEC), ("s", isa.EXEC + 1)
INVARIANT_EFFORT = 5.0  # of the solver, for a fact about all rounds
MOST_ROUNDS = 1 << 40  # of a loop; more take years
MOST_GUESSES = 12
FORMS = ("single", "pair", "toggle", "unknown")


@dataclass(frozen=True)
class RegisterChange:
    """Change of a register, or of a pair by its low register, from round to round."""

    kind: str  # one of FORMS
    by: Term = None
    high: Place = ("", 0)  # the other register of a pair


@dataclass
class Rounds:
    """Guess about a loop that a state enters."""

    entry: WaveState
    facts: LoopFacts
    prover: Prover
    forms: dict[Place, RegisterChange] = field(default_factory=dict)
    lanes_leave: bool = False  # True if EXEC loses lanes from round to round
    guesses: int = 0
    private: bool = False  # True if the body stores to private memory
    first: int = 0  # the number of the first symbol of this guess
    advances: dict[Place, Advance] = field(default_factory=dict)
    round: Term = None

    # -- the state in any round ----------------------------------------------------------------

    def head(self) -> WaveState:
        """Returns the state at the loop's head, in any round."""
        self.guesses += 1
        if self.guesses > MOST_GUESSES:
            raise NotModelled(f"the loop at {self.entry.pc:#x} is too intricate")
        state = self.entry.fork()
        memory = state.memory
        assert isinstance(memory, AccessLog)
        if self.private:
            memory.forget_private()
        self.first = next(memory.numbers)
        self.round = z3.BitVec(f"round #{self.first}", 64)
        self.facts.formulas.append(z3.ULT(self.round, MOST_ROUNDS))
        self.advances = {}
        if self.lanes_leave:
            stays = z3.Function(f"active #{next(memory.numbers)}", z3.BitVecSort(32), z3.BoolSort())(state.lanes.lane)
            state.set_scalar(isa.EXEC, self.entry.exec & state.lanes.mask(stays))
        for place, form in sorted(self.forms.items()):
            self._set(state, place, form, memory.numbers)
        return state

    def _set(self, state: WaveState, place: Place, form: RegisterChange, numbers: Iterator[int]) -> None:
        file = place[0]
        active = state.active if file in "va" else z3.BoolVal(True)
        if form.kind == "pair":
            start, again = self._pair(self.entry, place, form.high), form.high
            distance = self._symbol("distance", 64, [form.by], numbers)
            self._advance(place, Advance(distance, number(0, 64), form.by, self.round, active, exact=z3.is_bv_value(form.by)))
            whole = start + distance
            for at, low in ((place, 0), (again, 32)):
                value = bits_of(whole, low, 32)
                state.registers[at] = value if z3.is_true(active) else choose(active, value, self._unknown(at, numbers))
            return
        start = self._read(self.entry, place)
        if form.kind == "unknown":
            state.registers[place] = self._unknown(place, numbers)
            return
        if form.kind == "toggle":
            odd = bits_of(self.round, 0, 1) == 1
            value = fold(start ^ choose(odd, form.by, number(0, 32)))
        elif z3.is_bv_value(form.by) and not form.by.as_long():
            value = start
        else:
            value = self._symbol("value", 32, [start, form.by], numbers)
            self._advance(place, Advance(value, start, form.by, self.round, active, exact=file == "barriers"))
        state.registers[place] = value if z3.is_true(active) else choose(active, value, self._unknown(place, numbers))

    def _advance(self, place: Place, made: Advance) -> None:
        self.advances[place] = made
        self.facts.advances.append(made)

    def _symbol(self, name: str, bits: int, of: list[Term], numbers: Iterator[int]) -> Term:
        """Returns a new symbol, of each lane if one of the terms is."""
        name = f"{name} #{next(numbers)}"
        lanes = self.entry.lanes
        if any(map(lanes.varies, of)):
            return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(bits))(lanes.lane)
        return z3.BitVec(name, bits)

    def _unknown(self, place: Place, numbers: Iterator[int]) -> Term:
        file, _ = place
        name = f"unknown #{next(numbers)}"
        if file == SCC:
            return z3.Bool(name)
        if file in "va":
            return z3.Function(name, z3.BitVecSort(32), z3.BitVecSort(32))(self.entry.lanes.lane)
        return z3.BitVec(name, 32)

    # -- after the body ------------------------------------------------------------------------

    def holds(self, head: WaveState, again: WaveState) -> bool:
        """Returns if the guess holds after the body; weakens it if not."""
        right = True
        ours, theirs = head.memory, again.memory
        assert isinstance(ours, AccessLog) and isinstance(theirs, AccessLog)
        if ours.forgotten != theirs.forgotten or len(ours.private) != len(theirs.private):
            right, self.private = self.private, True
        if head.mode != again.mode:
            raise NotModelled("a MODE that changes in a loop")
        if not self.lanes_leave and not self._never(again, head.active != again.active):
            right, self.lanes_leave = False, True
        if self.lanes_leave and not self._never(again, again.active, negation(head.active)):
            raise NotModelled(f"lanes that come back in the loop at {head.pc:#x}")
        done: set[Place] = set(EXEC)
        for place in sorted({*head.registers, *again.registers}):
            if place not in done and not self._stays(head, again, place, done):
                right = False
        return right

    def _never(self, again: WaveState, *conditions: Term) -> bool:
        """True if the conditions cannot hold together after the body."""
        formulas = [z3.simplify(every(*again.path, *conditions))]
        return bool(z3.is_false(formulas[0]) or solve(formulas, self.prover.budget, INVARIANT_EFFORT)[0] == z3.unsat)

    def _stays(self, head: WaveState, again: WaveState, place: Place, done: set[Place]) -> bool:
        """Returns if a register is after the body what the guess says; weakens the guess if not."""
        if head.read(place).eq(again.read(place)):
            return True
        form = self.forms.get(place)
        if form is not None and form.kind == "unknown":
            return True
        if place[0] == SCC:
            self.forms[place] = RegisterChange("unknown")
            return False
        if form is not None and form.kind == "pair":
            done.add(form.high)
            by = self._difference(head, again, place, partial(self._pair, high=form.high))
            if by is not None and by.eq(form.by):
                return True
            self.forms[place] = self.forms[form.high] = RegisterChange("unknown")
            return False
        if form is None and self._is_low_half(head, again, place):
            done.add(self.forms[place].high)
            return False
        by = self._difference(head, again, place, self._read)
        if form is not None and form.kind == "toggle":
            by = self._toggled_bits(head, again, place)
        if form is not None:
            if by is not None and by.eq(form.by):
                return True
            self.forms[place] = RegisterChange("unknown")
            return False
        toggled = self._toggled_bits(head, again, place) if by is None else None
        if by is not None:
            self.forms[place] = RegisterChange("single", by)
        else:
            self.forms[place] = RegisterChange("toggle", toggled) if toggled is not None else RegisterChange("unknown")
        return False

    def _is_low_half(self, head: WaveState, again: WaveState, place: Place) -> bool:
        """True if a register and another one, mostly the next, grow as 64 bits by the same; the form then says so."""
        file, index = place
        after = file, index + 1
        others = [other for other in sorted(again.registers) if other[0] == file and other not in (place, after)]
        for high in (after, *(others if self._difference(head, again, place, self._read) is not None else ())):
            if high in self.forms or high in EXEC or again.read(high).eq(head.read(high)):
                continue
            by = self._difference(head, again, place, partial(self._pair, high=high))
            constant = by is not None and z3.is_bv_value(by)
            if constant or (by is not None and high == after and self._difference(head, again, high, self._read) is None):
                self.forms[place] = RegisterChange("pair", by, high)
                return True
        return False

    def _difference(
        self, head: WaveState, again: WaveState, place: Place, read: Callable[[WaveState, Place], Term]
    ) -> Term | None:
        """Returns the body's increment of a register; None if it is not the same in each round."""
        known = again.known_ids() | head.known_ids()
        ids = known if place[0] in "va" else again.path_ids | head.path_ids
        before, after = (self._assume(read(state, place), ids) for state in (head, again))
        by, simpler = z3.simplify(after - before), z3.simplify(before)
        if any(each.eq(before) or each.eq(simpler) for each in subterms([by]) if not z3.is_bv_value(each)):
            return None  # a register that the body writes before it reads it
        return by if self._is_constant(by) and not (place[0] not in "va" and self.entry.lanes.varies(by)) else None

    def _toggled_bits(self, head: WaveState, again: WaveState, place: Place) -> Term | None:
        ids = (again.known_ids() | head.known_ids()) if place[0] in "va" else again.path_ids | head.path_ids
        before, after = (self._assume(self._read(state, place), ids) for state in (head, again))
        by = z3.simplify(after ^ before)
        return by if z3.is_bv_value(by) else None

    def _assume(self, term: Term, ids: set[int]) -> Term:
        return self.entry.lanes.assume(term, ids)

    def _is_constant(self, term: Term) -> bool:
        """True if a term is the same in each round, and no choice."""
        return all(not self._is_local(each) and not z3.is_app_of(each, z3.Z3_OP_ITE) for each in subterms([term]))

    def _is_local(self, term: Term) -> bool:
        """True for a symbol that was made for this loop or in it."""
        return _number(term) >= self.first

    def _read(self, state: WaveState, place: Place) -> Term:
        value = state.read(place)
        return self._assume(value, state.known_ids() if place[0] in "va" else state.path_ids)

    def _pair(self, state: WaveState, place: Place, high: Place) -> Term:
        return wide(self._read(state, place), self._read(state, high))

    # -- facts about rounds --------------------------------------------------------------------

    def irregular(self, head: WaveState, again: WaveState) -> bool:
        """True if the condition of a next round depends on registers of unknown value."""
        paths, lanes = self._conditions(head, again)
        return not any(self._is_regular(part) for part in (*paths, *lanes))

    def close(self, head: WaveState, again: WaveState) -> None:
        """Adds facts: in a round after the first, the condition of a next round held in the one before."""
        paths, lanes = self._conditions(head, again)
        guesses: list[tuple[Term, Term]] = []  # in this round, and in the next
        for parts, active in ((paths, z3.BoolVal(True)), (lanes, head.active)):
            for part in filter(self._is_regular, parts):
                before = self._before(part)
                self.facts.formulas.append(implication([self.round != 0, active], before))
                orders = zip(_orders(before), _orders(part), strict=False)
                guesses += [(implication([active], now), implication([active], then)) for now, then in orders]
        self._prove(head, again, guesses)

    def _conditions(self, head: WaveState, again: WaveState) -> tuple[list[Term], list[Term]]:
        paths = [part for part in again.path if part.get_id() not in head.path_ids]
        known = head.lanes.parts(head.active).ids
        lanes = [_without(part, known) for part in head.lanes.parts(again.active).terms if part.get_id() not in known]
        return paths, [part for part in lanes if part.get_id() not in again.path_ids]

    def _is_regular(self, part: Term) -> bool:
        """True if a condition's only symbols from this loop are the round and values that grow."""
        own = {self.round.get_id(), *(made.value.get_id() for made in self.advances.values())}
        inside = subterms([part], lambda each: each.get_id() not in own)
        return not any(self._is_local(each) for each in inside if each.get_id() not in own)

    def _before(self, term: Term) -> Term:
        """Returns a condition as it was one round before."""
        pairs = [(made.value, made.value - made.by) for made in self.advances.values()]
        return z3.simplify(z3.substitute(term, *pairs, (self.round, self.round - 1)))

    def _prove(self, head: WaveState, again: WaveState, guesses: list[tuple[Term, Term]]) -> None:
        """Keeps those guesses that hold in all rounds: orders of compared values, and growth without wrapping."""
        settled = self.prover.settle
        facts = self.facts.map_terms(settled)
        growing = [(made, made.map_terms(settled)) for made in self.advances.values() if not made.exact]
        pairs = [(before, settled(before), settled(after)) for before, after in guesses]
        entry = [settled(every(*self.entry.path, self.entry.active)), self.round == 0]
        growing = [each for each in growing if self._follows(entry, facts, [], partial(_in_range, made=each[1], later=0))]
        pairs = [each for each in pairs if self._follows(entry, facts, [], partial(Integers.condition, term=each[1]))]
        going = settled(every(*again.path, again.active))
        while growing or pairs:
            tried = [replace(made, exact=True) for _, made in growing]
            known = LoopFacts([*facts.advances, *tried], [*facts.formulas, *(each[1] for each in pairs)], facts.inside)
            kept = [each for each in growing if self._follows([going], known, tried, partial(_in_range, made=each[1], later=1))]
            held = [each for each in pairs if self._follows([going], known, tried, partial(Integers.condition, term=each[2]))]
            if len(kept) == len(growing) and len(held) == len(pairs):
                break
            growing, pairs = kept, held
        entered = every(*self.entry.path, head.active)  # elsewhere the symbols mean nothing, and the facts could exclude a launch
        for made, settled_made in growing:
            made.exact, made.entered = True, entered
            made.apart = self._follows(entry, facts, [], partial(_starts_below_step, made=settled_made))
        self.facts.inside += [Inside(entered, before) for before, _, _ in pairs]

    def _follows(
        self, bits: list[Term], facts: LoopFacts, tried: list[Advance], goal: Callable[[Integers], Term]
    ) -> bool:
        """True if the goal, of integers, follows from the formulas and from values that grow without wrapping."""
        names = [made.value for made in self.advances.values()]
        ranges = self.prover.range_of(bits[0], bits[0], facts) if not tried else Memo()

        def whole(integers: Integers) -> list[Term]:
            return [*(_in_range(integers, made, 0) for made in tried), z3.Not(goal(integers))]

        return self.prover.impossible([*bits, *names], bits, facts, whole, ranges, INVARIANT_EFFORT)


def _in_range(integers: Integers, made: Advance, later: int) -> Term:
    """Returns the condition that a value is not negative and does not wrap, some rounds later."""
    value, _, by, _ = made.whole_parts(integers)
    ahead = value + later * by
    return z3.Implies(integers.condition(made.active), z3.And(ahead >= 0, ahead < 1 << made.value.size() - 1))


def _starts_below_step(integers: Integers, made: Advance) -> Term:
    _, start, by, _ = made.whole_parts(integers)
    return z3.Implies(integers.condition(made.active), start < by)


def _without(part: Term, known: Set[int]) -> Term:
    """Returns a condition without known ones in it: not (known and other) is not other."""
    if not (z3.is_not(part) and z3.is_and(part.arg(0))):
        return part
    return negation(every(*(each for each in conjuncts(part.arg(0)) if each.get_id() not in known)))


def _orders(part: Term) -> list[Term]:
    """Returns the ways in which the values of a comparison may be ordered: at most, at least."""
    if z3.is_not(part):
        part = part.arg(0)
    if not (z3.is_eq(part) or part.decl().kind() in COMPARED) or not z3.is_bv(part.arg(0)):
        return []
    a, b = part.children()
    return [z3.ULE(a, b), z3.ULE(b, a)]


def _number(term: Term) -> int:
    """Returns the number of a symbol or unknown function; masks have a high one, since a loop may have made them."""
    if term.decl().kind() != z3.Z3_OP_UNINTERPRETED:
        return -1
    name = term.decl().name()
    found = re.search(r"#(\d+)$", name)
    return int(found[1]) if found else 1 << 62 if name.startswith("mask") else -1
