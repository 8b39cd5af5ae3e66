"""Proves that a kernel accesses only its buffers and has no races, in all launches; or finds a launch in which it does not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import z3

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.code.text import text
from simgpu.proof.entry import KernelInputs
from simgpu.proof.roots import GLOBAL, POINTER, Roots
from simgpu.proof.safety.claims import OUT_OF_BOUNDS, RACE, Claims, UnprovedClaim
from simgpu.proof.safety.launches import Assumptions, Launches, plain
from simgpu.proof.safety.log import Access
from simgpu.proof.safety.nest import LoopNest
from simgpu.proof.safety.prover import Prover
from simgpu.proof.safety.rounds import MOST_ROUNDS
from simgpu.proof.safety.run import ForgottenFloats, SafetyRun
from simgpu.proof.safety.search import UnsafeLaunch, find
from simgpu.proof.safety.sizes import BadAssumption
from simgpu.proof.solver import DEFAULT, Budget, Limits, own_terms
from simgpu.proof.terms import WHOLE_WAVES, Lanes, NotModelled

Term = Any
MOST_DOUBTS = 4  # for which a launch is sought


@dataclass(frozen=True)
class SafetyVerdict:
    """Result for a kernel."""

    kind: Literal["proved", "counterexample", "unknown"]
    reason: str = ""  # of unknown, a line each; of a counterexample, what goes wrong
    seconds: float = 0.0
    accesses: int = 0  # instructions that access memory of a launch
    proved: int = 0  # claims
    assumed: tuple[str, ...] = ()
    counterexample: UnsafeLaunch | None = None


@dataclass
class SafetyJudge:
    """A kernel, claims about it, and assumptions."""

    code: CodeObject
    kernel: str
    properties: Sequence[str]  # OUT_OF_BOUNDS, RACE
    assumptions: Assumptions
    limits: Limits

    def verdict(self) -> SafetyVerdict:
        """Judges the kernel."""
        begun = time.monotonic()
        budget = Budget(self.limits)
        claims: Claims | None = None
        reason, shown, late = "", None, ""
        try:
            claims = self._claims(budget)
            if claims.prover.no_launch():
                raise BadAssumption("no launch has all that is stated: look at conditions, sizes and the workgroup")
            reason, shown = self._judge(claims, budget)
        except NotModelled as error:
            late = str(error)
        except RecursionError:
            late = "terms too deep for the solver's interface"
        except z3.Z3Exception as error:
            late = f"the solver: {error}"
        kind: Any = "counterexample" if shown else "unknown" if reason or late else "proved"
        assumed = tuple(self._assumptions(claims)) if claims is not None and kind == "proved" else ()
        count = len({access.pc for access in claims.accesses}) if claims else 0
        proved = claims.proved if claims else 0
        return SafetyVerdict(kind, late or reason, time.monotonic() - begun, count, proved, assumed, shown)

    def _claims(self, budget: Budget) -> Claims:
        info, lanes = self.code.kernels[self.kernel], Lanes()
        read_only = frozenset(f"pointer{at}" for at, arg in enumerate(info.explicit_arguments) if arg.access == "read_only")
        roots = Roots(lanes, budget, list, compares=False)
        inputs = KernelInputs("k", self.code, info, lanes, roots, read_only)
        launches = Launches(inputs, self.assumptions)
        prover = Prover(launches, budget)
        run = SafetyRun(inputs, ForgottenFloats(lanes), self.limits, budget, nest=LoopNest(self.code, info), prover=prover)
        accesses = [access for access in run.accesses() if not self._is_own(inputs, access)]
        return Claims(inputs, prover, run.facts, accesses)

    @staticmethod
    def _is_own(inputs: KernelInputs, access: Access) -> bool:
        """True for the code object's constants."""
        return access.address.space == GLOBAL and not access.address.base and access.address.offset >= inputs.code_base

    def _judge(self, claims: Claims, budget: Budget) -> tuple[str, UnsafeLaunch | None]:
        doubts: list[UnprovedClaim] = []
        reasons: list[str] = []
        if OUT_OF_BOUNDS in self.properties:
            reasons += self._without_size(claims)
            if not reasons:
                doubts += claims.in_bounds()
        if RACE in self.properties and len(doubts) < MOST_DOUBTS:
            for doubt in claims.no_races():
                doubts.append(doubt)
                if len(doubts) >= MOST_DOUBTS:
                    break
        for doubt in doubts[:MOST_DOUBTS]:
            found = find(self.code, claims, doubt, budget)
            if found is not None:
                return self._describe(doubt), found
            reasons.append(f"{self._describe(doubt)}; no launch was found that shows it")
        return "\n".join(dict.fromkeys(reasons)), None

    def _without_size(self, claims: Claims) -> list[str]:
        """Returns a line for each buffer whose size nobody stated, and for addresses in no known buffer."""
        found = []
        names = {f"pointer{index}": name for name, index in claims.launches.pointers.items()}
        for access in claims.accesses:
            if access.address.space != GLOBAL:
                continue
            if not access.address.base:
                found.append(f"{self._instruction(access.pc)} accesses an address that is in no argument's buffer")
            elif claims.launches.size(access.address.base) is None:
                name = names.get(access.address.base, access.address.base)
                found.append(f"the size of buffer {name} is not stated: --buffer {name}=BYTES, as {name}='4*n'")
        return list(dict.fromkeys(found))

    def _describe(self, doubt: UnprovedClaim) -> str:
        if doubt.kind == RACE:
            one, two = doubt.accesses
            both = f"{self._instruction(one.pc)} and {self._instruction(two.pc)}"
            return f"two waves may access the same bytes of {self._memory(one)} by {both}"
        (one,) = doubt.accesses
        return f"{self._instruction(one.pc)} may leave {self._memory(one)}"

    def _memory(self, access: Access) -> str:
        """Returns the memory of an access for people."""
        base = access.address.base
        if access.address.space != GLOBAL or not base:
            return access.address.space
        return f"buffer {plain(self.code.kernels[self.kernel].named_arguments[int(base.removeprefix(POINTER))].name)}"

    def _instruction(self, pc: int) -> str:
        segment = next(s for s in self.code.segments if s.executable and s.address <= pc < s.end)
        return f"{text(decode(segment.data, pc - segment.address, self.code.target))} at {pc:#x}"

    def _assumptions(self, claims: Claims) -> list[str]:
        assumptions, launches = self.assumptions, claims.launches
        found = [f"buffer {name} has {size.text.strip()} bytes" for name, size in assumptions.buffers.items()]
        found += [each.text.strip() for each in assumptions.conditions]
        if launches.stated:
            found.append(f"{', '.join(launches.stated)}: below 2**30 in size, 2**40 for 64 bits")
        found.append(f"a buffer has fewer than {assumptions.most_bytes:,} bytes, a launch fewer than 2**30 work-items in an axis")
        block = launches.block
        most = claims.inputs.info.max_flat_workgroup_size
        shape = ",".join(map(str, block)) if block else f"up to {most}"
        found.append(f"workgroups of {shape} work-items, all whole")
        unused = [axis for axis, used in zip("xyz", launches.used, strict=True) if not used]
        if unused:
            what = "the grid has" if block else "grid and workgroups have"
            found.append(f"{what} an extent of 1 in {' and '.join(unused)}, which the kernel does not ask for")
        found.append("pointer arguments are buffers apart from each other")
        rounds = MOST_ROUNDS.bit_length() - 1
        found.append(f"the launch passes all arguments, addresses have 48 bits, loops fewer than 2**{rounds} rounds")
        if claims.inputs.lanes.crossed:
            found.append(WHOLE_WAVES)
        if RACE in self.properties:
            found.append("waits, fences and caches are right; only barriers order waves of a workgroup")
            found.append("lanes of one wave do not race with each other, nor do atomic operations")
            if OUT_OF_BOUNDS not in self.properties:
                found.append("each access stays in its buffer, in LDS or in private memory")
        return found


def judge(
    code: CodeObject, kernel: str, properties: Sequence[str], assumptions: Assumptions | None = None,
    limits: Limits = DEFAULT,
) -> SafetyVerdict:  # fmt: skip
    """Judges a kernel in all launches that the assumptions allow. properties: of "out-of-bounds" and "race"."""
    with own_terms():
        return SafetyJudge(code, kernel, properties, assumptions or Assumptions(), limits).verdict()
