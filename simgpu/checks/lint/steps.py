"""Describes an instruction as the analyses see it: registers as bits, its queue, its part in control flow."""

from __future__ import annotations

from simgpu.checks.lint.registers import bits
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.effects import effect_of

SIZES = (4, 16, 12, 8)  # bytes of an instruction, in the order of look-up: scaled matrix ones (16) before their first half (8)
CALLS = frozenset((ControlKind.CALL, ControlKind.SWAPPC))


class LintStep:
    """Decoded instruction at a virtual address.

    reads: registers that it reads by an operand or as state
    writes: registers that it writes, at once or when its operation completes
    pending: registers that it writes only when its operation completes
    touched: registers read or written
    plain: True if it neither waits, nor issues an operation to a queue, nor controls the wave
    lds: its use of LDS: "read", "write", "atomic" or ""
    """

    __slots__ = ("control", "effect", "inst", "lds", "pc", "pending", "plain", "reads", "touched", "writes")

    def __init__(self, pc: int, inst: Instruction, effect: Effect | None = None) -> None:
        """Takes an instruction. effect: its effect, if another instruction changes it."""
        self.pc, self.inst, self.control = pc, inst, inst.spec.control
        self.effect = effect = effect_of(inst) if effect is None else effect
        self.reads, self.writes, self.pending = bits(effect.access.read()), bits(effect.access.writes), bits(effect.pending)
        self.touched = self.reads | self.writes
        self.plain = effect.queue is None and effect.control is ControlKind.NONE
        memory = inst.spec.memory
        self.lds = "atomic" if effect.lds and memory is not None and memory.op == "atomic" else effect.lds

    def at_address(self, pc: int) -> LintStep:
        """Returns the same instruction at another address."""
        other = LintStep.__new__(LintStep)
        other.pc, other.inst, other.control, other.effect = pc, self.inst, self.control, self.effect
        other.reads, other.writes, other.pending = self.reads, self.writes, self.pending
        other.touched, other.plain, other.lds = self.touched, self.plain, self.lds
        return other

    @property
    def next_address(self) -> int:
        """Address of the next instruction."""
        return self.pc + self.inst.size

    @property
    def target(self) -> int | None:
        """Target address of a direct branch or call."""
        return branch_target(self.inst, self.pc)


class Decoder:
    """Decodes instructions. Compilers and generators repeat most of them, so each is decoded once."""

    def __init__(self, code: bytes, base: int, target: str) -> None:
        """Takes the bytes from address `base` on."""
        self.code, self.base, self.target = code, base, target
        self._made: dict[bytes, LintStep] = {}

    def step(self, pc: int) -> LintStep:
        """Returns the instruction at an address. Raises DecodeError if there is none."""
        at = pc - self.base
        if at < 0 or at >= len(self.code) or at % 4:
            raise DecodeError(f"{pc:#x} lies outside the code")
        for size in SIZES:
            made = self._made.get(self.code[at : at + size])
            if made is not None:
                return made.at_address(pc)
        made = LintStep(pc, decode(self.code, at, self.target))
        if "ld_scale" not in made.inst.mnemonic:  # elsewhere, its other half may follow
            self._made[self.code[at : at + made.inst.size]] = made
        return made
