"""Splits an instruction's operands into their kinds, which its handler is compiled for, and data in its record.

A handler is compiled for a *kind* of each operand (a vector row, a scalar register, a constant). Register numbers and constants
are data in the record's slots, so one handler serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simgpu.hardware.errors import DecodeError, UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import inline_bits, is_inline
from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Literal, Off, Operand, Reg
from simgpu.hardware.isa.types import Type
from simgpu.machine import layout

# Apertures of flat addressing: the high 32 bits of addresses in LDS or private memory.
SHARED_APERTURE = 0x0001_0000
PRIVATE_APERTURE = 0x0002_0000
APERTURE_LIMIT = 0xFFFF_FFFF



@dataclass(frozen=True)
class OperandPlace:
    """An operand as the handler sees it."""

    kind: str  # row (vector registers), sgpr, imm, or a special source: scc, vccz, execz
    slot: int  # the record slot with its byte offset in the wave, or its value
    bits: int  # width of the operand

    @property
    def key(self) -> str:
        return f"{self.kind}{self.bits}@{self.slot}"


class BadRegister(DecodeError):
    """A register tuple that runs past its file."""


@dataclass
class Plan:
    """Record of one instruction under construction: slots, and the key of its handler."""

    instruction: Instruction
    slots: list[int] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    places: list[OperandPlace] = field(default_factory=list)  # all operands, for checked mode
    operands: Any = None  # the emitter's operands, for checked mode
    indexed: bool = False  # True if M0 may move the vector registers

    def word(self, value: int) -> int:
        """Appends a 32-bit slot; returns its index."""
        if len(self.slots) >= layout.SLOT_HINT - 2:
            raise UnsupportedInstruction(f"{self.instruction.mnemonic}: too many operands")
        self.slots.append(value & 0xFFFFFFFF)
        return len(self.slots) + 1

    def place(self, kind: str, bits: int, *words: int) -> OperandPlace:
        slot = self.word(words[0]) if words else 0
        for word in words[1:]:
            self.word(word)
        place = OperandPlace(kind, slot, bits)
        self.parts.append(place.key)
        self.places.append(place)
        return place

    def register(self, reg: Reg, bits: int) -> OperandPlace:
        """Plans a register operand, source or destination."""
        count = max(1, bits // 32)
        if reg.file == "s":
            if reg.index + count > 128:
                raise BadRegister(f"s{reg.index} with {count} registers runs past the file")
            return self.place("sgpr", bits, layout.SGPR + 4 * reg.index)
        if reg.index + count > 256:
            raise BadRegister(f"{reg.file}{reg.index} with {count} registers runs past the file")
        return self.place("row", bits, layout.vector_register(reg.file, reg.index))

    def source(self, operand: Operand, type_: Type, bits: int = 0) -> OperandPlace:
        """Plans a source operand read as `type_`, `bits` wide (default: the type's width)."""
        bits = bits or max(32, type_.bits)
        if isinstance(operand, Reg):
            return self.register(operand, bits)
        if isinstance(operand, Const) and operand.code in (isa.VCCZ, isa.EXECZ, isa.SCC_SOURCE):
            kind = {isa.VCCZ: "vccz", isa.EXECZ: "execz", isa.SCC_SOURCE: "scc"}[operand.code]
            return self.place(kind, bits)
        value = constant_bits(operand, type_, bits)
        if bits == 64:
            return self.place("imm", 64, value, value >> 32)
        return self.place("imm", 32, value)

    def immediate(self, value: int) -> OperandPlace:
        return self.place("imm", 32, value)

    def note(self, *parts: object) -> None:
        """Adds other properties that the handler is compiled for to its key."""
        self.parts.append(",".join(str(part) for part in parts))


def constant_bits(operand: Operand, type_: Type, bits: int) -> int:
    """Returns the bits of an inline constant, special source, literal or immediate, read as `type_` of `bits` (32 or 64)."""
    wide = type_.bits == 64 and type_.kind != "pair"
    if isinstance(operand, Literal):
        if not wide:
            return operand.value
        if type_.kind == "float":
            return operand.value << 32
        if type_.kind == "signed":
            return _extend(operand.value)
        return operand.value
    if isinstance(operand, Imm):
        return operand.value & 0xFFFFFFFFFFFFFFFF
    if isinstance(operand, Off):
        return 0
    assert isinstance(operand, Const)
    code = operand.code
    if is_inline(code):
        return inline_bits(code, type_, bits)
    apertures = {
        isa.SHARED_BASE: SHARED_APERTURE << 32,
        isa.SHARED_LIMIT: SHARED_APERTURE << 32 | APERTURE_LIMIT,
        isa.PRIVATE_BASE: PRIVATE_APERTURE << 32,
        isa.PRIVATE_LIMIT: PRIVATE_APERTURE << 32 | APERTURE_LIMIT,
    }
    if code in apertures:
        # A 32-bit read of an aperture gives 0 on GFX9 (LLVM, getSegmentAperture).
        return apertures[code] if wide else 0
    raise UnsupportedInstruction(f"source operand {code} has no meaning in a compute kernel")


def _extend(value: int) -> int:
    return value | 0xFFFFFFFF00000000 if value & 0x80000000 else value
