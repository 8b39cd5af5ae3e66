"""An instruction as the analyses see it: registers as bits, its queue, its part in control flow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.checks.lint.registers import bits
from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of

ENDS = frozenset((
    ControlKind.ENDPGM, ControlKind.ENDPGM_SAVED, ControlKind.ENDPGM_ORDERED_PS_DONE, ControlKind.TRAP, ControlKind.RFE,
))  # fmt: skip
FORKS = frozenset((ControlKind.CBRANCH_I_FORK, ControlKind.CBRANCH_G_FORK, ControlKind.CBRANCH_JOIN))
DIRECT = frozenset((ControlKind.BRANCH, ControlKind.CALL, *CONDITIONAL_BRANCHES)) - FORKS
CALLS = frozenset((ControlKind.CALL, ControlKind.SWAPPC))


@dataclass(frozen=True, eq=False)
class Step:
    """One decoded instruction at a virtual address."""

    pc: int
    inst: Instruction
    effect: Effect

    @classmethod
    def of(cls, pc: int, inst: Instruction) -> Step:
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
        immediate = self.inst.args.get("simm16")
        if self.control not in DIRECT or not isinstance(immediate, Imm):
            return None
        distance = immediate.value & 0xFFFF
        return self.after + 4 * (distance - (distance >> 15 << 16))

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


def lds_use(step: Step) -> str:
    """What an instruction does to LDS: "read", "write", "atomic", or nothing."""
    memory = step.inst.spec.memory
    atomic = memory is not None and memory.op == "atomic"
    return "atomic" if step.effect.lds and atomic else step.effect.lds
