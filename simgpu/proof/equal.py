"""Proves that two kernels do the same to memory for all inputs, finds inputs for which they do not, or names the obstacle."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from ctypes import ArgumentError
from dataclasses import dataclass, field
from typing import Any, Literal

import z3

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.code.text import text
from simgpu.hardware.isa.lane_smt import FLOAT_NAME, SmtOps, UninterpretedFloats
from simgpu.proof.counterexample import Counterexample, Question, SimulatedKernel, find
from simgpu.proof.effects import Obligation, obligations
from simgpu.proof.entry import KernelInputs
from simgpu.proof.execute import execute
from simgpu.proof.roots import Roots
from simgpu.proof.solver import DEFAULT, Budget, Limits, own_terms, solve
from simgpu.proof.state import WaveState
from simgpu.proof.terms import WHOLE_WAVES, Lanes, NotModelled, subterms

Term = Any
ALWAYS = (
    "pointer arguments are buffers apart from each other, and no access leaves its buffer",
    "between barriers, no lane reads what another lane writes (no data race); waits, fences and caches are not compared",
)
NANS = "the payload of a NaN that arithmetic makes is not compared"


@dataclass(frozen=True)
class Verdict:
    """Result of a proof."""

    kind: Literal["equal", "different", "unknown"]
    reason: str = ""  # of unknown; of different, what differs
    seconds: float = 0.0
    proved: int = 0  # obligations that hold
    assumed: tuple[str, ...] = ()
    counterexample: Counterexample | None = None


@dataclass
class Comparison:
    """Two kernels of the same arguments on the same lane."""

    codes: tuple[CodeObject, CodeObject]
    kernel: tuple[str, str]  # its name in each code object
    limits: Limits
    budget: Budget
    proved: int = 0
    assumed: list[str] = field(default_factory=list)

    def verdict(self) -> Verdict:
        """Compares the kernels, with floats as unknown functions first, then as IEEE 754's."""
        begun = time.monotonic()
        try:
            kind, reason, shown = self._compare(uninterpreted=True)
            if kind == "unknown" and reason == FLOATS:
                kind, reason, shown = self._compare(uninterpreted=False)
        except NotModelled as error:
            kind, reason, shown = "unknown", str(error), None
        except (RecursionError, ArgumentError):  # the latter in z3's calls
            kind, reason, shown = "unknown", "terms too deep for the solver's interface", None
        except z3.Z3Exception as error:
            kind, reason, shown = "unknown", f"the solver: {error}", None
        assumed = (*ALWAYS, *self.assumed) if kind == "equal" else ()
        return Verdict(kind, reason, time.monotonic() - begun, self.proved, assumed, shown)  # type: ignore[arg-type]

    def _compare(self, uninterpreted: bool) -> tuple[str, str, Counterexample | None]:
        lanes = Lanes()
        ops: SmtOps = UninterpretedFloats(lanes.lane) if uninterpreted else SmtOps(lanes.lane, payloads=False)
        ops.at = lanes.at  # type: ignore[method-assign]
        inputs = self._inputs(lanes)
        ends = self._execute(inputs, ops)
        self.proved, floats = 0, False
        self.assumed.clear()  # of an earlier try
        todo = list(self._obligations(ends))
        late, payloads = "", any(_has_floats(one.holds) for one in todo)
        for one in todo:
            holds = self._decide(one, ends, inputs)
            if holds == z3.unsat:
                self.proved += 1
                continue
            if holds == z3.unknown:
                late = late or f"{self.budget.reason}, at {one.what}"
                continue
            found = self._find(self._question(one, ends, inputs, payloads))
            if found is not None:
                return "different", self._describe(one), found
            if uninterpreted and _has_floats(one.holds):
                floats = True
                continue
            return "unknown", f"{self._describe(one)} may differ, but no launch was found that shows it", None
        self._assume(lanes, todo)
        if late:
            return "unknown", late, None
        return ("unknown", FLOATS, None) if floats else ("equal", "", None)

    def _find(self, question: Question) -> Counterexample | None:
        """Returns a launch that shows a difference."""
        return find(question)

    def _execute(self, inputs: Sequence[KernelInputs], ops: SmtOps) -> list[WaveState]:
        """Returns both kernels' states at their ends."""
        return [execute(each, ops, self.limits, self.budget) for each in inputs]

    def _obligations(self, ends: Sequence[WaveState]) -> Iterable[Obligation]:
        return obligations(ends[0], ends[1])

    def _question(
        self, one: Obligation, ends: Sequence[WaveState], inputs: Sequence[KernelInputs], payloads: bool
    ) -> Question:  # fmt: skip
        return Question(one, ends, inputs, self.budget, payloads, tuple(SimulatedKernel(each) for each in inputs))

    def _inputs(self, lanes: Lanes) -> list[KernelInputs]:
        infos = [code.kernels[name] for code, name in zip(self.codes, self.kernel, strict=True)]
        taken = [[(arg.offset, arg.size, arg.is_pointer) for arg in info.explicit_arguments] for info in infos]
        if taken[0] != taken[1]:
            raise NotModelled("the kernels take different arguments")
        names = [(f"pointer{at}", arg.access) for info in infos for at, arg in enumerate(info.explicit_arguments)]
        read_only = frozenset(name for name, access in names if access == "read_only")
        made: list[KernelInputs] = []
        roots = Roots(lanes, self.budget, lambda: [fact for each in made for fact in each.facts()])
        for name, code, info in zip("ab", self.codes, infos, strict=True):
            made.append(KernelInputs(name, code, info, lanes, roots, read_only))
        return made

    def _decide(self, one: Obligation, ends: Sequence[WaveState], inputs: Sequence[KernelInputs]) -> Any:
        wrong = z3.simplify(z3.Not(one.holds))
        if z3.is_false(wrong):
            return z3.unsat
        self.budget.check()
        known = [fact for each in inputs for fact in each.facts()]
        return solve([wrong, *known, *ends[0].lanes.facts([wrong, *known])], self.budget)[0]

    def _describe(self, one: Obligation) -> str:
        """Returns what an obligation is about, with the instructions of both kernels."""
        found = []
        for code, pc in zip(self.codes, one.pc, strict=False):
            segment = next((s for s in code.segments if s.executable and s.address <= pc < s.end), None)
            if segment is not None:
                found.append(f"{text(decode(segment.data, pc - segment.address, code.target))} at {pc:#x}")
        return f"{one.what} by {' and '.join(found)}" if found else one.what

    def _assume(self, lanes: Lanes, todo: Sequence[Obligation]) -> None:
        if lanes.crossed:
            self.assumed.append(WHOLE_WAVES)
        if any(_has_floats(one.holds) for one in todo):
            self.assumed.append(NANS)


FLOATS = "floats"  # the reason for another try, with IEEE 754's floats


def _has_floats(term: Term) -> bool:
    """True if a term has arithmetic of floats."""
    return any(z3.is_fp(each) or each.decl().name().startswith(FLOAT_NAME) for each in subterms([term]))


def compare(
    a: CodeObject, b: CodeObject, kernel: str, other: str = "", limits: Limits = DEFAULT
) -> Verdict:
    """Compares a kernel of two code objects, or two kernels of the names `kernel` and `other`.

    Kernels must take the same arguments.
    """
    with own_terms():
        return Comparison((a, b), (kernel, other or kernel), limits, Budget(limits)).verdict()
