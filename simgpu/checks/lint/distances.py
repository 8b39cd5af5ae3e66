"""Counts wait states between instructions and applies the rules of the hazard tables.

The state of a place holds the earlier instructions that may still be too close for a rule: that bind. With each it holds the
fewest wait states since it on any path; rules ask for a minimum, so the fewest decide. A few rules depend on a third instruction
between the two; for these the state also holds the classes of the instructions in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from simgpu.checks.lint.flow import PathAnalysis
from simgpu.checks.lint.gaps import ClauseGap, StatesGap
from simgpu.checks.lint.registers import bits
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.clauses import KINDS, LONGEST, continue_clause
from simgpu.hardware.timing_rules.hazards import RULES, HazardRule, clash, max_states, reach
from simgpu.hardware.timing_rules.register_use import Register, RegisterUse

BETWEEN = frozenset(word for rule in RULES for word in rule.between.split("|") if word)
BINDING = frozenset({"valu"})  # classes of the earlier instructions of rules with classes in BETWEEN
CROWD = 32  # a walk with more instructions drops those that no longer bind
NO_CLASSES: frozenset[str] = frozenset()
NO_REGISTERS: frozenset[Register] = frozenset()
# An instruction's address, the classes of BETWEEN after it, and the registers of a matrix instruction's result that another one
# wrote anew.
Key = tuple[int, frozenset[str], frozenset[Register]]


@dataclass(frozen=True)
class TooClose:
    """Two instructions with fewer wait states between them than a rule asks for."""

    step: LintStep
    earlier: LintStep
    rule: HazardRule
    registers: int  # registers that both touch, as bits
    needed: int  # wait states that the rule asks for
    found: int  # wait states on the worst path

    @property
    def gap(self) -> StatesGap | ClauseGap:
        """Gap between the two while it is too small."""
        return ClauseGap() if self.rule.relation == "clause" else StatesGap(self.needed)


class Distances:
    """Instructions that may still bind at one place.

    born: clock at the end of each instruction; the clock counts wait states, and is 0 at this place
    clause: the open clause of memory instructions (`clauses.Clause`)
    """

    __slots__ = ("born", "clause")

    def __init__(self, born: dict[Key, int], clause: dict[int, int]) -> None:
        self.born, self.clause = born, clause

    def join(self, other: Distances) -> Distances | None:
        """Returns the fewest wait states by either path, None if that is this state."""
        born = self.born | {key: at for key, at in other.born.items() if at > self.born.get(key, at - 1)}
        clause = self.clause | {pc: n for pc, n in other.clause.items() if n < self.clause.get(pc, n + 1)}
        return None if (born, clause) == (self.born, self.clause) else Distances(born, clause)


class HazardWindow:
    """Instructions that may still bind, during a walk over a block.

    clock: wait states so far
    touched: registers that any of them touches, or more
    ordered: True if one may bind an instruction that shares no register with it
    """

    __slots__ = ("born", "clause", "clock", "ordered", "touched")

    def __init__(self, state: Distances) -> None:
        self.born, self.clause, self.clock = dict(state.born), state.clause, 0
        self.touched, self.ordered = -1, True  # until the first prune


class Hazards(PathAnalysis[Distances, TooClose]):
    """Data flow over the steps of a kernel, by address.

    xnack: the code object's setting
    unwaited: addresses where an s_waitcnt is missing on every path; it would be a wait state and break a clause
    apart: pairs of addresses, earlier and later, that no path joins
    """

    def __init__(
        self, steps: Mapping[int, LintStep], target: str, xnack: str = "off", unwaited: Collection[int] = (),
        apart: Collection[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.steps, self.target, self.xnack = steps, target, xnack
        self.unwaited, self.apart = frozenset(unwaited), frozenset(apart)
        self.longest = max_states(target)
        self._reach: dict[int, int] = {}  # by the `id` of an effect, like the rules
        self._rules: dict[tuple[int, frozenset[str], frozenset[Register], int], tuple[HazardRule | None, int]] = {}
        self._ends: dict[tuple[int, int], tuple[list[TooClose], Distances]] = {}

    def begin(self, step: LintStep) -> Distances:
        return Distances({}, {})

    def forget(self, state: Distances) -> Distances:
        return Distances({}, {})

    def size(self, state: Distances) -> int:
        return len(state.born) + len(state.clause)

    def join(self, state: Distances, other: Distances) -> Distances | None:
        return state.join(other)

    def transfer(self, state: Distances, steps: Sequence[LintStep], tell: Callable[[TooClose], None]) -> Distances:
        """Passes a block. Its part far from the start is examined once, because it does not depend on the code before the block."""
        far = self._far_count(steps)
        window = HazardWindow(state)
        for step in steps[:far]:
            self._pass_by(window, step, tell)
        if far == len(steps):
            return self._state(window)
        place = steps[far].pc, len(steps) - far
        if place not in self._ends:
            found: list[TooClose] = []
            for step in steps[far:]:
                self._pass_by(window, step, found.append)
            self._ends[place] = found, self._state(window)
        found, end = self._ends[place]
        for seen in found:
            tell(seen)
        return end

    def _far_count(self, steps: Sequence[LintStep]) -> int:
        """Returns the number of a block's first instructions whose result depends on the code before the block.

        Instructions before the block bind for at most the longest rule. Missing wait states count as inserted, which ages the
        block's own instructions; these bind as long again. A clause ends at an instruction of another kind.
        """
        if len(steps) <= self.longest:
            return len(steps)
        states, broken = 0, self.xnack not in LONGEST
        for at, step in enumerate(steps):
            if states >= 2 * self.longest and broken:
                return at
            states += step.effect.access.states
            broken |= not KINDS & step.effect.access.classes
        return len(steps)

    def _state(self, window: HazardWindow) -> Distances:
        self._prune(window)
        return Distances({key: at - window.clock for key, at in window.born.items()}, window.clause)

    def _prune(self, window: HazardWindow) -> None:
        """Drops instructions that no longer bind."""
        window.born = {key: at for key, at in window.born.items() if window.clock - at < self.reach(self.steps[key[0]])}
        window.touched, window.ordered = 0, False
        for pc, _, _ in window.born:
            window.touched |= self.steps[pc].touched
            window.ordered |= self.steps[pc].effect.ordered

    def _pass_by(self, window: HazardWindow, step: LintStep, tell: Callable[[TooClose], None]) -> None:
        """Passes one instruction. Lacking wait states are reported, then counted as inserted."""
        later = step.effect.access
        if step.pc in self.unwaited:
            window.clock += 1
            window.clause = {}
        if window.born and (window.ordered or window.touched & step.touched or len(window.born) > CROWD):
            self._prune(window)
            worst = self._worst(window, step)
            if worst is not None:
                tell(worst)
                window.clock += worst.needed - worst.found
        if later.classes & BETWEEN or "mfma" in later.classes:
            self._mark(window, step)
        window.clock += later.states
        if self.reach(step):
            window.born[step.pc, NO_CLASSES, NO_REGISTERS] = window.clock
            window.touched |= step.touched
            window.ordered |= step.effect.ordered
        if self.xnack not in LONGEST:
            return
        window.clause, overwrite = continue_clause(window.clause, step.pc, self._use, self.target, self.xnack)
        if overwrite is not None and (overwrite.earlier, step.pc) not in self.apart:
            earlier, rule = self.steps[overwrite.earlier], overwrite.rule
            tell(
                TooClose(
                    step,
                    earlier,
                    rule,
                    bits(rule.shared_registers(earlier.effect.access, later)),
                    overwrite.needed,
                    overwrite.found,
                )
            )

    def _worst(self, window: HazardWindow, step: LintStep) -> TooClose | None:
        """Returns the rule with the most lacking wait states before an instruction."""
        most, found = 0, None
        for key, at in window.born.items():
            earlier = self.steps[key[0]]
            if earlier.effect.ordered or step.touched & earlier.touched:
                rule, needed = self._rule(key, step)
                if rule is not None and needed - (window.clock - at) > most and (earlier.pc, step.pc) not in self.apart:
                    most, found = needed - (window.clock - at), (earlier, rule, needed)
        if found is None:
            return None
        earlier, rule, needed = found
        shared = bits(rule.shared_registers(earlier.effect.access, step.effect.access))
        return TooClose(step, earlier, rule, shared, needed, needed - most)

    def _use(self, pc: int) -> RegisterUse:
        return self.steps[pc].effect.access

    def _rule(self, key: Key, later: LintStep) -> tuple[HazardRule | None, int]:
        pc, classes, anew = key
        effect = self.steps[pc].effect
        pair = id(effect), classes, anew, id(later.effect)
        if pair not in self._rules:
            between = [_any_instruction(classes)] if classes else []
            if anew:
                between.append(RegisterUse("", frozenset({"mfma"}), writes=anew))
            self._rules[pair] = clash(effect.access, later.effect.access, self.target, between)
        return self._rules[pair]

    def reach(self, step: LintStep) -> int:
        """Returns the most wait states that any rule asks for after an instruction."""
        number = id(step.effect)
        if number not in self._reach:
            self._reach[number] = reach(step.effect.access, self.target)
        return self._reach[number]

    def _mark(self, window: HazardWindow, step: LintStep) -> None:
        """Marks the instructions that may bind with this instruction's classes and the registers it writes anew."""
        access = step.effect.access
        classes, matrix = access.classes & BETWEEN, "mfma" in access.classes
        marked: dict[Key, int] = {}
        for (pc, between, anew), at in window.born.items():
            earlier = self.steps[pc].effect.access
            after = between | classes if classes and earlier.classes & BINDING else between
            rewritten = anew | earlier.writes & access.writes if matrix and "mfma" in earlier.classes else anew
            key = pc, after, rewritten
            marked[key] = max(at, marked.get(key, at))
        window.born = marked


@cache
def _any_instruction(classes: frozenset[str]) -> RegisterUse:
    """Returns an instruction of these classes that touches nothing."""
    return RegisterUse("", classes)
