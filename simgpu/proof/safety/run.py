"""A kernel run on terms with loops of any number of rounds: the state in each round of a loop is one state with a symbol."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.alu.control import ENDS
from simgpu.hardware.isa.code.text import text
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind as Kind
from simgpu.hardware.isa.lane_smt import UninterpretedFloats, fold, negation, number
from simgpu.proof.entry import initial_state
from simgpu.proof.execute import SymbolicRun
from simgpu.proof.safety.facts import LoopFacts
from simgpu.proof.safety.log import AccessLog
from simgpu.proof.safety.nest import Loop, LoopNest
from simgpu.proof.safety.prover import Prover
from simgpu.proof.safety.rounds import Rounds
from simgpu.proof.solver import solve
from simgpu.proof.state import WaveState, merge
from simgpu.proof.terms import Lanes, NotModelled, tested_mask

Term = Any
BARRIERS = "barriers", 0  # the place of a state that counts barriers
EXACT_ROUNDS = 12  # most rounds of a loop that are executed one by one although its end depends on inputs
FEASIBLE_EFFORT = 1.0  # of the solver, to find out if a launch gets to a place


class ForgottenFloats(UninterpretedFloats):
    """Floats of unknown value: addresses hardly depend on them."""

    forgets = True

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(lanes.lane)
        self.lanes, self.numbers = lanes, itertools.count()
        self.at = lanes.at  # type: ignore[method-assign]

    def forgotten(self, result: Term) -> Term:
        name = f"result #{next(self.numbers)}"
        if not self.lanes.varies(result):
            return z3.BitVec(name, result.size())
        return z3.Function(name, z3.BitVecSort(32), result.sort())(self.lanes.lane)


@dataclass
class SafetyRun(SymbolicRun):
    """A kernel's run on terms, to its accesses."""

    nest: LoopNest = field(kw_only=True)
    prover: Prover = field(kw_only=True)
    facts: LoopFacts = field(default_factory=LoopFacts)
    ended: list[WaveState] = field(default_factory=list)

    def accesses(self) -> list[Any]:
        """Returns the accesses of a lane on all paths. Raises NotModelled."""
        state = self._begin()
        self._region(state, None)
        if not self.ended:
            raise NotModelled("the kernel does not end")
        return _join(self.ended).memory.events

    def _begin(self) -> WaveState:
        """Returns the state that a wave begins with."""
        state = initial_state(self.inputs)
        base = state.memory
        assert isinstance(self.ops, ForgottenFloats)
        state.memory = AccessLog(base.kernel, base.lanes, base.roots, base.read_only, numbers=self.ops.numbers)
        state.registers[BARRIERS] = number(0, 32)
        return state

    # -- blocks --------------------------------------------------------------------------------

    def _region(self, start: WaveState, loop: Loop | None) -> tuple[list[WaveState], list[WaveState]]:
        """Runs a loop's body once, or the whole kernel; returns the states that reach the loop's head, and the ones that leave."""
        again: list[WaveState] = []
        left: list[WaveState] = []
        waiting: dict[int, list[WaveState]] = {}
        after = self._block(start)
        while True:
            for state in after:
                if loop is not None and state.pc == loop.head:
                    again.append(state)
                elif loop is not None and state.pc not in loop.blocks:
                    left.append(state)
                else:
                    waiting.setdefault(state.pc, []).append(state)
            if not waiting:
                return again, left
            pc = min(waiting, key=self.nest.order.__getitem__)
            inner, after = self.nest.loops.get(pc), []
            for state in self._join_states(waiting.pop(pc)):
                after += self._loop(inner, state) if inner is not None else self._block(state)

    def _join_states(self, states: Sequence[WaveState]) -> list[WaveState]:
        """Returns the states to go on with from one place: one."""
        return [_join(states)]

    def _block(self, state: WaveState) -> list[WaveState]:
        """Runs the instructions of a block; returns the states at the beginnings of the next."""
        following: WaveState | None = state
        self.pending = []
        while following is not None:
            self.budget.check()
            inst, pc = self.instruction(following.pc), following.pc
            if inst.spec.control in ENDS:
                self.ended.append(following)
                return []
            try:
                following = self.step(following, inst)
            except NotModelled as reason:
                raise NotModelled(f"{reason} ({text(inst)} at {pc:#x})") from None
            if self.pending or (following is not None and following.pc in self.nest.order):
                break
        return [each for each in (following, *self.pending) if each is not None]

    def step(self, state: WaveState, inst: Instruction) -> WaveState | None:
        assert isinstance(state.memory, AccessLog)
        state.memory.barriers = state.registers[BARRIERS]
        if inst.spec.control is Kind.BARRIER:
            state.registers[BARRIERS] = fold(state.registers[BARRIERS] + 1)
        return super().step(state, inst)

    def _branch(self, state: WaveState, condition: Term, target: int, following: int) -> WaveState | None:
        ways = []
        for taken, where in ((condition, target), (negation(condition), following)):
            one = state.fork()
            if one.follow(taken):
                one.pc = where
                ways.append(one)
        self.pending += ways[1:]
        return ways[0] if ways else None

    # -- loops ---------------------------------------------------------------------------------

    def _loop(self, loop: Loop, entry: WaveState) -> list[WaveState]:
        """Returns the states that leave a loop."""
        found = self._run_rounds(loop, entry, self.limits.rounds, certain=True)
        if found is not None:
            return found
        rounds = Rounds(entry, self.facts, self.prover)
        while True:
            ended, mark = len(self.ended), self.facts.mark()
            head = rounds.head()
            again, left = self._region(head.fork(), loop)
            if not again or rounds.holds(head, _join(again)):
                break
            del self.ended[ended:]  # of a wrong guess
            self.facts.reset(mark)
        if again and rounds.irregular(head, _join(again)):
            count = len(self.ended)
            found = self._run_rounds(loop, entry, EXACT_ROUNDS, certain=False)
            if found is not None:
                del self.ended[ended:count]
                return found
            del self.ended[count:]
        if again:
            rounds.close(head, _join(again))
        return left

    def _run_rounds(self, loop: Loop, entry: WaveState, most: int, certain: bool) -> list[WaveState] | None:
        """Runs a loop round by round; returns the states that leave it, None if it has too many rounds.

        certain: each round but the last is known to have a next one.
        """
        state, before = entry, len(self.ended)
        found: list[WaveState] = []
        for _ in range(most):
            again, left = self._region(state.fork(), loop)
            found += left
            if not again:
                return found
            state = _join(again)
            if left and not self._feasible(state):
                return found
            if left and certain:
                break
        del self.ended[before:]
        return None

    def _feasible(self, state: WaveState) -> bool:
        """False if no launch gets here. If a branch went where a mask is not 0, some lane, which may be any, is in the mask."""
        formulas = [*state.path, *self.inputs.facts()]
        masks = [tested_mask(part.arg(0)) for part in state.path if z3.is_not(part)]
        found = [mask for mask in masks if mask is not None]
        if found and not any(map(state.lanes.varies, state.path)):
            formulas.append(state.lanes.bit(found[-1]))
        formulas += state.lanes.facts(formulas)
        return bool(solve(formulas, self.budget, FEASIBLE_EFFORT)[0] != z3.unsat)


def _join(states: Sequence[WaveState]) -> WaveState:
    """Returns the states at one place as one."""
    first, *others = sorted(states, key=lambda each: -len(each.path))
    for other in others:
        first = merge(first, other)
    return first
