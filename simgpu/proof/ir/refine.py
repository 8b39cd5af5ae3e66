"""Proves that a kernel's machine code does what its LLVM IR says, or finds a launch for which it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa.lane_smt import SmtOps, every
from simgpu.proof.counterexample import Counterexample, Question, SimulatedKernel
from simgpu.proof.effects import Obligation, obligations
from simgpu.proof.entry import CODE_BASE, KernelInputs
from simgpu.proof.equal import Comparison, Verdict
from simgpu.proof.execute import execute
from simgpu.proof.ir.evaluate import IrReference
from simgpu.proof.ir.execute import IrRun
from simgpu.proof.ir.memory import FIXED, UNDEFINED
from simgpu.proof.ir.syntax import IrModule
from simgpu.proof.solver import DEFAULT, Budget, Limits, own_terms, solve
from simgpu.proof.state import WaveState
from simgpu.proof.terms import Lanes, symbols_of

Term = Any
LDS_SPACE = 3
CHOICE_EFFORT = 5.0  # of the solver, to find a value of what IR leaves undefined
IR_ASSUMED = "each access of IR is as aligned as it says, and memory has zeros beside the bits of an iN"


@dataclass
class Refinement(Comparison):
    """A kernel's machine code, and its IR."""

    module: IrModule = field(default_factory=lambda: IrModule(""))
    loose: str = ""
    aligned: list[Term] = field(default_factory=list)
    variables: bool = False  # True if global variables are met, whose content in a launch is not drawn

    def verdict(self) -> Verdict:
        made = super().verdict()
        if made.kind == "equal":
            return Verdict(made.kind, made.reason, made.seconds, made.proved, (*made.assumed, IR_ASSUMED))
        if made.kind == "unknown" and self.loose and "may differ" in made.reason:
            reason = f"{made.reason}; flags allow other results of {self.loose}"
            return Verdict(made.kind, reason, made.seconds, made.proved)
        return made

    def _compare(self, uninterpreted: bool) -> tuple[str, str, Counterexample | None]:
        if not uninterpreted and self.loose:  # numbers would show nothing
            return "unknown", "floats may differ, but no launch was found that shows it", None
        return super()._compare(uninterpreted)

    def _execute(self, inputs: Sequence[KernelInputs], ops: SmtOps) -> list[WaveState]:
        run = self._ir_run(inputs[1], ops)
        source = run.run()  # first, so that what is undefined in IR is known when addresses are compared
        self.loose, self.aligned, self.variables = run.loose, run.heap.aligned, run.heap.variables
        return [execute(inputs[0], ops, self.limits, self.budget), source]

    def _inputs(self, lanes: Lanes) -> list[KernelInputs]:
        """Returns both inputs, with the global variables whose content is unknown."""
        made = super()._inputs(lanes)
        symbols = self.codes[0].symbols
        names = [each.title for each in self.module.variables.values() if not each.known and each.space != LDS_SPACE]
        found = [each for name in names if (each := symbols.get(name)) is not None]
        end = max((each.address + each.size for each in found), default=0)
        made[0].roots.code = range(CODE_BASE, CODE_BASE + end)
        ranges = tuple(range(each.address, each.address + each.size) for each in found)
        return [replace(each, variables=ranges) for each in made]

    def _find(self, question: Question) -> Counterexample | None:
        return None if self.variables else super()._find(question)

    def _ir_run(self, inputs: KernelInputs, ops: SmtOps, start: int = 0) -> IrRun:
        return IrRun(inputs, ops, self.limits, self.budget, module=self.module, function=self.kernel[1], private_start=start)

    def _obligations(self, ends: Sequence[WaveState]) -> Iterable[Obligation]:
        """Yields what must hold; what depends on a fixed unknown value is one obligation, as its value is chosen once."""
        together = []
        for one in obligations(ends[0], ends[1], refines=True):
            if any(str(each).startswith(FIXED) for each in symbols_of([one.holds])):
                together.append(one)
            else:
                yield one
        if together:
            yield replace(together[0], holds=every(*(one.holds for one in together)), seen=None)

    def _decide(self, one: Obligation, ends: Sequence[WaveState], inputs: Sequence[KernelInputs]) -> Any:
        result = super()._decide(one, ends, inputs)
        if result == z3.unsat:
            return result
        lanes = ends[0].lanes
        lanes.known += self.aligned
        self.aligned = []
        result = super()._decide(one, ends, inputs)
        choices = [each for each in symbols_of([one.holds]) if str(each).startswith((UNDEFINED, FIXED))]
        if result == z3.unsat or not choices:
            return result
        wrong = z3.Not(z3.Exists(choices, one.holds))
        known = [fact for each in inputs for fact in each.facts()]
        found = solve([wrong, *known, *lanes.facts([one.holds, *known])], self.budget, CHOICE_EFFORT)[0]
        return found if found == z3.unsat else result

    def _question(
        self, one: Obligation, ends: Sequence[WaveState], inputs: Sequence[KernelInputs], payloads: bool
    ) -> Question:  # fmt: skip
        def run(inputs: KernelInputs, ops: SmtOps, start: int) -> tuple[IrRun, WaveState]:
            made = self._ir_run(inputs, ops, start)
            return made, made.run()

        reference = IrReference(inputs[1], run)
        return Question(one, ends, inputs, self.budget, payloads, (SimulatedKernel(inputs[0]), reference))


def refines(code: CodeObject, kernel: str, module: IrModule, limits: Limits = DEFAULT) -> Verdict:
    """Compares a kernel of a code object with the function of the same name in the IR that it was compiled from."""
    with own_terms():
        return Refinement((code, code), (kernel, kernel), limits, Budget(limits), module=module).verdict()
