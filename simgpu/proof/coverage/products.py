"""Proof that each element of C is the sum of all its products, each once: follows a workgroup's states until they repeat.

The origin of k moves with the sums: at a loop's head it is where the next product is missing. Seen from there, all rounds of a
loop are a few states, so the states of all rounds are found by running code until no new one comes. The rest of K is one
symbol, whose bounds come from branches.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import z3

from simgpu.alu.control import ENDS, NO_EFFECT
from simgpu.checks.lint.registers import FILES, VCC
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.code.text import text
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.machine import KERNARG, WORD, Machine
from simgpu.proof.coverage.masks import Guarded, Mask
from simgpu.proof.coverage.values import UNKNOWN, ZEROS, Cells, State, Sums, Value
from simgpu.proof.entry import KernelInputs, initial_state
from simgpu.proof.safety.nest import LoopNest
from simgpu.proof.solver import Budget
from simgpu.proof.state import Place
from simgpu.proof.terms import NotModelled

GROUP_X, GROUP_Y = (f"workgroup_id_{axis}" for axis in "xy")
MOST_VISITS = 60  # states at a loop's head
QUIET = (*NO_EFFECT, ControlKind.SLEEP, ControlKind.BARRIER)
HOLE = 256  # products that a sum may have after one that it lacks
PATIENCE = 3  # times that the bounds of a state at a loop's head grow before they are dropped


@dataclass
class Products:
    """States of a workgroup at the beginnings of blocks."""

    machine: Machine
    nest: LoopNest
    budget: Budget
    seen: dict[Any, list[float]] = field(default_factory=dict)  # bounds of the rest of K, and how often they grew
    pending: list[Any] = field(default_factory=list)
    visits: Counter[int] = field(default_factory=Counter)

    def follow(self, first: State) -> int:
        """Runs all paths; returns the number of states. Raises Violation, NotModelled."""
        blocks = self.nest.blocks
        order = itertools.count()
        self.live = _live(blocks)
        (entry,) = (block for block, start in enumerate(self.nest.starts) if start == self.nest.blocks.graph.steps[0].pc)
        heapq.heappush(self.pending, (entry, next(order), first))
        count = 0
        while self.pending:
            self.budget.check()
            block, _, state = heapq.heappop(self.pending)
            kept = self._new(block, state)
            if kept is None:
                continue
            count += 1
            for following, after in self._run(blocks.steps(block), kept):
                heapq.heappush(self.pending, (following, next(order), after))
        return count

    def _run(self, steps: Sequence[LintStep], state: State) -> list[tuple[int, State]]:
        """Runs a block; returns what may follow."""
        state = state.fork()
        for step in steps:
            if step.control in STATE_BRANCHES:
                return self._branches(step, state)
            if step.control is ControlKind.BRANCH:
                assert step.target is not None
                return [(self.nest.order[step.target], state)]
            if step.control in ENDS:
                self.machine.end(state)
                return []
            if step.control is ControlKind.NONE:
                self._step(state, step)
            elif step.control not in QUIET:
                raise NotModelled(f"{step.inst.mnemonic} at {step.pc:#x}")
        return [(self.nest.order[steps[-1].next_address], state)]

    def _step(self, state: State, step: LintStep) -> None:
        """Runs an instruction; a reason says where it is."""
        try:
            self.machine.step(state, step)
        except NotModelled as reason:
            raise NotModelled(f"{reason} ({text(step.inst)} at {step.pc:#x})") from None
        except Violation as reason:
            raise Violation(f"{reason} ({text(step.inst)} at {step.pc:#x})") from None

    def _branches(self, step: LintStep, state: State) -> list[tuple[int, State]]:
        name, where_set = STATE_BRANCHES[step.control]
        found = []
        assert step.target is not None
        for taken, where in ((True, step.target), (False, step.next_address)):
            if name == "exec":
                after = state.fork() if taken == where_set else None  # all lanes are active
            else:
                test = state.scc if name == "scc" else None
                after = state.where(test, taken == where_set, self.machine.unit)
            if after is not None:
                found.append((self.nest.order[where], after))
        return found

    # -- states that are the same ---------------------------------------------------------------

    def _new(self, block: int, state: State) -> State | None:
        """Returns a state to go on with; None if it was there before."""
        if state.active is not None:
            raise NotModelled("a branch, or the target of one, with lanes that are off")
        start = self.nest.starts[block]
        live = self.live[block]
        head = start in self.nest.loops
        if not head and len(self.nest.blocks.preceding[block]) < 2:
            return state
        state.registers = {place: state.registers[place] for place in live if place in state.registers}
        if head:
            state = self._from_the_next_product(state)
        key: Any = block, state.key(live)
        if not head:
            key = *key, state.least, state.most
        bounds = self.seen.get(key)
        if bounds is None:
            self.visits[start] += 1
            if head and self.visits[start] > MOST_VISITS:
                raise Violation(f"C: rounds of the loop at {start:#x} are not alike")
            self.seen[key] = [state.least, state.most, 0]
            return state
        if bounds[0] <= state.least and state.most <= bounds[1]:
            return None
        bounds[2] += 1
        wide = bounds[2] > PATIENCE
        for at, (choose, bound, end) in enumerate(((min, state.least, -math.inf), (max, state.most, math.inf))):
            grown = choose(bounds[at], bound)
            bounds[at] = end if wide and grown != bounds[at] else grown
        state.least, state.most = bounds[:2]
        return state

    def _from_the_next_product(self, state: State) -> State:
        """Moves the origin to the first product that some sum lacks."""
        done = [value.done for value in state.registers.values() if isinstance(value, Sums)]
        step = min(done, default=0) // self.machine.unit * self.machine.unit
        if any(value.more and max(value.more) - value.done > HOLE for value in state.registers.values() if isinstance(value, Sums)):
            raise Violation(f"C: the product at k = {min(done)} of a step is left out")
        if not step:
            return state
        made = {place: self._move(value, step) for place, value in state.registers.items()}
        return State(state.lds.move(step), made, None, state.least - step, state.most - step, begun=True)

    def _move(self, value: Value, step: int) -> Value:
        if isinstance(value, Form):
            return self.machine.move(value, step)
        if isinstance(value, Guarded):
            return replace(value, form=self.machine.move(value.form, step))
        if isinstance(value, Mask):
            return value if value.lanes is not None else None
        made = value.move(step) if isinstance(value, (Cells, Sums)) else None
        if isinstance(made, Cells) and np.all((made.k < 0) | (made.kind == ZEROS)):
            return None  # products of these elements are all there, so no round needs them
        return made


def _live(blocks: Any) -> list[list[Place]]:
    """Returns the registers that may be read, of each block's beginning."""
    count = len(blocks.nodes)
    before = [0] * count
    changed = True
    while changed:
        changed = False
        for block in reversed(range(count)):
            live = 0
            for other in blocks.following[block]:
                live |= before[other]
            for step in reversed(blocks.steps(block)):
                live = live & ~(step.writes | step.pending) | step.reads
            if live != before[block]:
                before[block], changed = live, True
    found = [[place for place in _PLACES if live >> FILES[place[0]] + place[1] & 1] for live in before]
    return [[*places, ("s", isa.VCC)] if live & VCC else places for places, live in zip(found, before, strict=True)]


_PLACES: list[Place] = [(file, index) for file, count in (("v", 512), ("a", 256), ("s", isa.VCC)) for index in range(count)]


def arguments_of(inputs: KernelInputs, multiples: Mapping[str, int]) -> dict[int, Form]:
    """Returns the dwords of a kernel's arguments, by offset."""
    arguments: dict[int, Form] = {}
    for argument in inputs.info.arguments:
        name = argument.name or f"argument at {argument.offset}"
        for at in range(0, argument.size, 4):
            part = name if not at else f"{name} high"
            arguments[argument.offset + at] = Form.name(part, multiples.get(part, 1))
    return arguments


def first_state(inputs: KernelInputs, shape: tuple[int, int]) -> State:
    """Returns a workgroup's first state. shape: work-items, and pieces of a word."""
    state = State(Cells(np.full(inputs.info.group_segment_size // WORD * shape[1], UNKNOWN)))
    for place, term in initial_state(inputs).registers.items():
        if place[0] == "s":
            value = z3.simplify(term)
            known = z3.is_bv_value(value)
            name = str(value)
            if "kernarg" in name and "31, 0" in name:
                name = KERNARG
            elif name not in (GROUP_X, GROUP_Y):
                name = f"{place[0]}{place[1]} of the launch"
            state.registers[place] = Form.of(value.as_long()).modulo(32) if known else Form.name(name)
    state.registers["v", 0] = Form.of(np.arange(shape[0], dtype=np.int64))
    return state
