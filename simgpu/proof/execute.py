"""A kernel's code run on terms: every path, joined where paths meet, loops up to a number of rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.alu.control import ENDS, NO_EFFECT
from simgpu.alu.hwreg import MODE, fields
from simgpu.hardware.isa import decode
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.code.text import text
from simgpu.hardware.isa.instruction import Imm, Instruction, Literal, Reg
from simgpu.hardware.isa.kinds import DEBUGGER_BRANCHES, STATE_BRANCHES
from simgpu.hardware.isa.kinds import ControlKind as Kind
from simgpu.hardware.isa.lane_smt import SmtOps, every, negation, number
from simgpu.hardware.isa.types import u32
from simgpu.machine import mode
from simgpu.proof.access import run_memory
from simgpu.proof.entry import KernelInputs, initial_state
from simgpu.proof.matrix import run_matrix
from simgpu.proof.scalar import run_scalar
from simgpu.proof.solver import Budget, Limits, solve
from simgpu.proof.state import SCC, WaveState, merge
from simgpu.proof.terms import NotModelled, tested_mask
from simgpu.proof.vector import VectorInstruction

Term = Any
MOST_INSTRUCTIONS = 100_000  # executed by a symbolic run, over all paths
ASKED = {1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65}  # rounds after which a query asks if a loop may go on
FEASIBLE_EFFORT = 1.0  # of the solver, to find out if a loop may go on
QUIET = (*NO_EFFECT, Kind.SLEEP)


@dataclass
class SymbolicRun:
    """A kernel's run on terms."""

    inputs: KernelInputs
    ops: SmtOps
    limits: Limits
    budget: Budget
    pending: list[WaveState] = field(default_factory=list)
    rounds: dict[tuple[int, ...], int] = field(default_factory=dict)  # of loops whose end depends on inputs, by backward branch
    decoded: dict[int, Instruction] = field(default_factory=dict)

    def run(self) -> WaveState:
        """Returns the state at the kernel's end. Raises NotModelled."""
        state: WaveState | None = self.begin()
        ended: WaveState | None = None
        executed = 0
        while state is not None or self.pending:
            state = self.next_state(state)
            executed += 1
            if executed > MOST_INSTRUCTIONS:
                raise NotModelled(f"more than {MOST_INSTRUCTIONS:,} instructions executed")
            self.budget.check()
            inst, pc = self.instruction(state.pc), state.pc
            if self.ends(state, inst):
                ended = state if ended is None else self.merge(ended, state)
                state = None
                continue
            try:
                state = self.step(state, inst)
            except NotModelled as reason:
                raise NotModelled(f"{reason} ({self.text_of(inst, pc)})") from None
        if ended is None:
            raise NotModelled("the kernel does not end")
        return ended

    def begin(self) -> WaveState:
        """Returns the state in which the kernel begins."""
        return initial_state(self.inputs)

    def ends(self, state: WaveState, inst: Any) -> bool:
        """True if the kernel ends with an instruction."""
        return inst.spec.control in ENDS

    def text_of(self, inst: Any, pc: int) -> str:
        """Returns an instruction and its place, for messages."""
        return f"{text(inst)} at {pc:#x}"

    def next_state(self, state: WaveState | None) -> WaveState:
        """Returns the state to go on with: the first in the order, joined with others at the same place."""
        if state is not None:
            if not self.pending:
                return state
            self.pending.append(state)
        first = min(self.pending, key=lambda each: each.order)
        here = [each for each in self.pending if each.pc == first.pc and each.calls == first.calls]
        self.pending = [each for each in self.pending if not any(each is other for other in here)]
        first, *others = sorted(here, key=lambda each: -len(each.path))  # the paths that parted last meet first
        for other in others:
            first = self.merge(first, other)
        return first

    def merge(self, a: WaveState, b: WaveState) -> WaveState:
        """Returns the state where two paths meet."""
        return merge(a, b)

    def instruction(self, pc: int) -> Instruction:
        """Returns the instruction at an address of the file."""
        found = self.decoded.get(pc)
        if found is None:
            segment = next((s for s in self.inputs.code.segments if s.executable and s.address <= pc < s.end), None)
            if segment is None:
                raise NotModelled(f"a jump out of the code, to {pc:#x}")
            found = self.decoded[pc] = decode(segment.data, pc - segment.address, self.inputs.info.target)
        return found

    # -- one instruction -----------------------------------------------------------------------

    def step(self, state: WaveState, inst: Instruction) -> WaveState | None:
        """Runs an instruction; returns the state after it, or None if no path goes on. Branches may add pending states."""
        kind = inst.spec.kind
        if kind == "control":
            return self._control(state, inst)
        if kind == "memory":
            run_memory(state, inst, self.inputs)
        elif kind == "matrix":
            run_matrix(state, inst, self.inputs.info.target, exact=not self.ops.forgets)
        elif inst.spec.encoding in ("sop1", "sop2", "sopk", "sopc", "sopp"):
            run_scalar(state, inst, self.ops)
        else:
            VectorInstruction(state, inst, self.ops).run()
        state.pc += inst.size
        return state

    def _control(self, state: WaveState, inst: Instruction) -> WaveState | None:
        control, following = inst.spec.control, state.pc + inst.size
        target = branch_target(inst, state.pc)
        if control in STATE_BRANCHES:
            assert target is not None
            return self._branch(state, self._condition(state, control), target, following)
        if control in QUIET or control in DEBUGGER_BRANCHES:
            state.pc = following
        elif control is Kind.BARRIER:
            state.memory.barrier(every(*state.path))
            state.pc = following
        elif control is Kind.BRANCH:
            assert target is not None
            state.pc = target
        elif control is Kind.GETPC:
            self._link(state, inst, following)
            state.pc = following
        elif control in (Kind.CALL, Kind.SWAPPC):
            where = target if target is not None else self._jump_address(state, inst)
            self._link(state, inst, following)
            state.calls, state.pc = (*state.calls, following), where
        elif control is Kind.SETPC:
            state.pc = self._jump_address(state, inst)
            if state.calls and state.calls[-1] == state.pc:
                state.calls = state.calls[:-1]
        elif control is Kind.SETREG:
            self._set_mode(state, inst)
            state.pc = following
        else:
            raise NotModelled(inst.mnemonic)
        return state

    @staticmethod
    def _condition(state: WaveState, control: Kind) -> Term:
        name, where_set = STATE_BRANCHES[control]
        if name == SCC:
            condition = state.lanes.decide(state.read((SCC, 0)))
        else:
            condition = negation(state.lanes.empty(state.scalar(isa.VCC if name == "vcc" else isa.EXEC, 64)))
        return condition if where_set else negation(condition)

    def _branch(self, state: WaveState, condition: Term, target: int, following: int) -> WaveState | None:
        condition = z3.simplify(condition) if condition.num_args() < 3 and not z3.is_const(condition) else condition
        ways = []
        for taken, where in ((condition, target), (negation(condition), following)):
            if z3.is_false(taken):
                continue
            one = state.fork()
            if one.follow(taken):
                one.pc = where
                ways.append(one)
        if len(ways) == 2 and target <= state.pc and not self.goes_on(ways[0], state, condition):
            state.lanes.known.append(z3.Implies(every(*state.path), negation(condition)))
            state.pc = following  # its path needs no condition that always holds
            return state
        self.pending += ways[1:]
        return ways[0] if ways else None

    def goes_on(self, again: WaveState, state: WaveState, condition: Term) -> bool:
        """True if a loop may have another round. Raises NotModelled after too many.

        If the condition is that a mask is not 0, and this lane, which may be any, cannot be in the mask, then the mask is 0.
        """
        key = (*state.calls, state.pc)
        self.rounds[key] = self.rounds.get(key, 0) + 1
        if self.rounds[key] in ASKED:
            formulas = [*again.path, *self.inputs.facts()]
            mask = tested_mask(condition.arg(0)) if z3.is_not(condition) else None
            if mask is not None and not any(map(state.lanes.varies, again.path)):
                formulas.append(state.lanes.bit(mask))
            formulas += again.lanes.facts(formulas)
            if solve(formulas, self.budget, FEASIBLE_EFFORT)[0] == z3.unsat:
                return False
        if self.rounds[key] > self.limits.rounds:
            raise NotModelled(f"a loop of more than {self.limits.rounds} rounds")
        return True

    # -- addresses and modes -------------------------------------------------------------------

    def _link(self, state: WaveState, inst: Instruction, following: int) -> None:
        register = inst.args["sdst"]
        assert isinstance(register, Reg)
        state.set_scalar(register.index, number(self.inputs.code_base + following, 64))

    def _jump_address(self, state: WaveState, inst: Instruction) -> int:
        register = inst.args["src0"]
        assert isinstance(register, Reg)
        where = z3.simplify(state.scalar(register.index, 64))
        if not z3.is_bv_value(where):
            raise NotModelled("a jump to a computed address")
        return int(where.as_long()) - self.inputs.code_base

    @staticmethod
    def _set_mode(state: WaveState, inst: Instruction) -> None:
        selector = inst.args["simm16"]
        assert isinstance(selector, (Imm, Literal))
        register, offset, width = fields(selector.value)
        if register != MODE:
            raise NotModelled("a write of a hardware register other than MODE")
        source = inst.args.get("src0") or inst.args.get("sdst")
        value = state.operand(source, u32) if source is not None else number(0, 32)
        if not z3.is_bv_value(value):
            raise NotModelled("a MODE that depends on inputs")
        field_ = ((1 << width) - 1) << offset
        changed = state.mode & ~field_ | value.as_long() << offset & field_
        if (changed ^ state.mode) & (1 << mode.GPR_IDX_EN | 1 << mode.VSKIP):
            raise NotModelled("VGPR indexing and VSKIP")
        state.mode = changed


def execute(inputs: KernelInputs, ops: SmtOps, limits: Limits, budget: Budget) -> WaveState:
    """Runs a kernel on terms to its end. Raises NotModelled."""
    return SymbolicRun(inputs, ops, limits, budget).run()


