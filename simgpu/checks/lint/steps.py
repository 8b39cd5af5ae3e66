"""An instruction as the analyses see it: registers as bits, its queue, its part in control flow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.checks.lint.registers import bits
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of

CALLS = frozenset((ControlKind.CALL, ControlKind.SWAPPC))


@dataclass(frozen=True, eq=False)
class LintStep:
    """One decoded instruction at a virtual address."""

    pc: int
    inst: Instruction
    effect: Effect

    @classmethod
    def of(cls, pc: int, inst: Instruction) -> LintStep:
        return cls(pc, inst, effect_of(inst))

    @property
    def control(self) -> ControlKind:
        return self.inst.spec.control

    @cached_property
    def after(self) -> int:
        """The address of the next instruction."""
        return self.pc + self.inst.size

    @cached_property
    def target(self) -> int | None:
        """The address that a direct branch or call goes to."""
        return branch_target(self.inst, self.pc)

    @cached_property
    def reads(self) -> int:
        """The registers that it reads by an operand or a state of its own."""
        return bits(self.effect.access.read())

    @cached_property
    def writes(self) -> int:
        """The registers that it writes, at once or when its operation is complete."""
        return bits(self.effect.access.writes)

    @cached_property
    def pending(self) -> int:
        """Those that it writes when its operation is complete."""
        return bits(self.effect.pending)


def lds_use(step: LintStep) -> str:
    """What an instruction does to LDS: "read", "write", "atomic", or nothing."""
    memory = step.inst.spec.memory
    atomic = memory is not None and memory.op == "atomic"
    return "atomic" if step.effect.lds and atomic else step.effect.lds
