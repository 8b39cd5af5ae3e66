"""An instruction as the analyses see it: registers as bits, its queue, its part in control flow."""

from __future__ import annotations

from simgpu.checks.lint.registers import bits
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import effect_of

SIZES = (4, 16, 8)  # bytes of an instruction, the scaled matrix ones' before those of their first half
CALLS = frozenset((ControlKind.CALL, ControlKind.SWAPPC))


class LintStep:
    """One decoded instruction at a virtual address.

    reads: the registers that it reads by an operand or a state of its own; writes: those that it writes, at once or when its
    operation is complete; pending: those that it writes when its operation is complete; touched: read or written; plain: whether
    it neither waits, nor gives a queue an operation, nor controls the wave; lds: what it does to LDS, "read", "write", "atomic", or
    nothing.
    """

    __slots__ = ("control", "effect", "inst", "lds", "pc", "pending", "plain", "reads", "touched", "writes")

    def __init__(self, pc: int, inst: Instruction) -> None:
        self.pc, self.inst, self.control = pc, inst, inst.spec.control
        self.effect = effect = effect_of(inst)
        self.reads, self.writes, self.pending = bits(effect.access.read()), bits(effect.access.writes), bits(effect.pending)
        self.touched = self.reads | self.writes
        self.plain = effect.queue is None and effect.control is ControlKind.NONE
        memory = inst.spec.memory
        self.lds = "atomic" if effect.lds and memory is not None and memory.op == "atomic" else effect.lds

    def moved(self, pc: int) -> LintStep:
        """The same instruction at another address."""
        other = LintStep.__new__(LintStep)
        other.pc, other.inst, other.control, other.effect = pc, self.inst, self.control, self.effect
        other.reads, other.writes, other.pending = self.reads, self.writes, self.pending
        other.touched, other.plain, other.lds = self.touched, self.plain, self.lds
        return other

    @property
    def after(self) -> int:
        """The address of the next instruction."""
        return self.pc + self.inst.size

    @property
    def target(self) -> int | None:
        """The address that a direct branch or call goes to."""
        return branch_target(self.inst, self.pc)


class Decoder:
    """Decodes instructions; compilers' and generators' code repeats most of them, so each is decoded once."""

    def __init__(self, code: bytes, base: int, target: str) -> None:
        """code: the bytes from address `base` on."""
        self.code, self.base, self.target = code, base, target
        self._made: dict[bytes, LintStep] = {}

    def step(self, pc: int) -> LintStep:
        """The instruction at an address. Raises DecodeError where there is none."""
        at = pc - self.base
        if at < 0 or at >= len(self.code) or at % 4:
            raise DecodeError(f"{pc:#x} lies outside the code")
        for size in SIZES:
            made = self._made.get(self.code[at : at + size])
            if made is not None:
                return made.moved(pc)
        made = LintStep(pc, decode(self.code, at, self.target))
        if made.control is not ControlKind.LD_SCALE:  # its other half may follow elsewhere
            self._made[self.code[at : at + made.inst.size]] = made
        return made
