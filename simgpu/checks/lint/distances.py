"""Wait states that lie between instructions, and rules of the hazard tables that ask for more.

At each place, on all paths to it: of each instruction that a rule may still bind, the fewest wait states since. Rules ask for at
least as many, so the fewest decides for all paths. The few rules about a third instruction between the two are told apart by
the classes that lay between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache

from simgpu.checks.lint.flow import PathAnalysis, fewest
from simgpu.checks.lint.registers import bits
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.clauses import continued
from simgpu.hardware.timing_rules.hazards import RULES, HazardRule, clash, reach
from simgpu.hardware.timing_rules.register_use import Register, RegisterUse

BETWEEN = frozenset(word for rule in RULES for word in rule.between.split("|") if word)
BINDING = frozenset({"valu"})  # the earlier instructions of these rules
NO_CLASSES: frozenset[str] = frozenset()
NO_REGISTERS: frozenset[Register] = frozenset()
# An instruction's address, the classes of BETWEEN behind it, and what of a matrix instruction's results another one wrote anew.
Key = tuple[int, frozenset[str], frozenset[Register]]


@dataclass(frozen=True)
class TooClose:
    """Two instructions with fewer wait states between them than a rule asks for."""

    step: LintStep
    earlier: LintStep
    rule: HazardRule
    registers: int
    needed: int
    found: int


class Distances:
    """since: wait states behind each instruction; clause: the open clause of memory instructions (`clauses.Clause`)."""

    __slots__ = ("clause", "since")

    def __init__(self) -> None:
        self.since: dict[Key, int] = {}
        self.clause: dict[int, int] = {}

    def copy(self) -> Distances:
        other = Distances()
        other.since, other.clause = self.since.copy(), self.clause.copy()
        return other

    def joined(self, other: Distances) -> Distances | None:
        """The fewest by either way; None if that is this."""
        result = self.copy()
        fewest(result.since, other.since)
        fewest(result.clause, other.clause)
        return None if (self.since, self.clause) == (result.since, result.clause) else result


class Hazards(PathAnalysis[Distances, TooClose]):
    """The data flow over the steps of a kernel, by address.

    xnack: the code object's setting; unwaited: where an s_waitcnt is missing on every path, which would be a wait state and
    break a clause.
    """

    def __init__(self, steps: Mapping[int, LintStep], target: str, xnack: str, unwaited: Collection[int] = ()) -> None:
        self.steps = steps
        self.target = target
        self.xnack = xnack
        self.unwaited = frozenset(unwaited)
        self._reach: dict[int, int] = {}
        self._pairs: dict[tuple[Key, int], tuple[HazardRule | None, int]] = {}

    def begin(self, step: LintStep) -> Distances:
        return Distances()

    def forget(self, state: Distances) -> Distances:
        return Distances()

    def copy(self, state: Distances) -> Distances:
        return state.copy()

    def size(self, state: Distances) -> int:
        return len(state.since) + len(state.clause)

    def join(self, state: Distances, other: Distances) -> Distances | None:
        return state.joined(other)

    def pass_by(self, state: Distances, step: LintStep, tell: Callable[[TooClose], None] | None) -> Distances:
        """Changes the state by one instruction; what it lacks is told, and taken for mended."""
        if step.pc in self.unwaited:
            state.since = {key: since + 1 for key, since in state.since.items()}
            state.clause = {}
        later = step.effect.access
        worst: TooClose | None = None
        touched = step.reads | step.writes
        for key, since in state.since.items():
            earlier = self.steps[key[0]]
            if not earlier.effect.ordered and not touched & (earlier.reads | earlier.writes):
                continue
            rule, needed = self._rule(key, step)
            if rule is not None and needed > since and (worst is None or needed - since > worst.needed - worst.found):
                shared = bits(rule.shared(earlier.effect.access, later))
                worst = TooClose(step, earlier, rule, shared, needed, since)
        if worst is not None and tell is not None:
            tell(worst)
        self._age(state, step, later.states + (worst.needed - worst.found if worst else 0))
        state.clause, overwrite = continued(state.clause, step.pc, self._use, self.target, self.xnack)
        if overwrite is not None and tell is not None:
            earlier, rule = self.steps[overwrite.earlier], overwrite.rule
            shared = bits(rule.shared(earlier.effect.access, later))
            tell(TooClose(step, earlier, rule, shared, overwrite.needed, overwrite.found))
        return state

    def _use(self, pc: int) -> RegisterUse:
        return self.steps[pc].effect.access

    def _rule(self, key: Key, later: LintStep) -> tuple[HazardRule | None, int]:
        pair = key, later.pc
        if pair not in self._pairs:
            pc, classes, anew = key
            between = [_something(classes)] if classes else []
            if anew:
                between.append(RegisterUse("", frozenset({"mfma"}), writes=anew))
            self._pairs[pair] = clash(self.steps[pc].effect.access, later.effect.access, self.target, between)
        return self._pairs[pair]

    def reach(self, step: LintStep) -> int:
        """The most wait states that any rule asks behind an instruction."""
        if step.pc not in self._reach:
            self._reach[step.pc] = reach(step.effect.access, self.target)
        return self._reach[step.pc]

    def _age(self, state: Distances, step: LintStep, states: int) -> None:
        access = step.effect.access
        classes, matrix = access.classes & BETWEEN, "mfma" in access.classes
        aged: dict[Key, int] = {}
        for (pc, seen, anew), since in state.since.items():
            if since + states < self._reach[pc]:
                earlier = self.steps[pc].effect.access
                marked = seen | classes if classes and earlier.classes & BINDING else seen
                rewritten = anew | earlier.writes & access.writes if matrix and "mfma" in earlier.classes else anew
                key = pc, marked, rewritten
                aged[key] = min(since + states, aged.get(key, since + states))
        if self.reach(step):
            aged[step.pc, NO_CLASSES, NO_REGISTERS] = 0
        state.since = aged


@cache
def _something(classes: frozenset[str]) -> RegisterUse:
    """An instruction of these classes that touches nothing."""
    return RegisterUse("", classes)
