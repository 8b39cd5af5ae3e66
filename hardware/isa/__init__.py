"""The CDNA instruction set: specs, decoder and disassembler.

Importing the package loads every encoding's file, which registers its instructions.
"""

from __future__ import annotations

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa import instructions  # noqa: F401  (registers them)
from simgpu.hardware.isa.code.decode import decode, decode_all, table
from simgpu.hardware.isa.code.text import disassemble, text
from simgpu.hardware.isa.instruction import (
    Const,
    Imm,
    Instruction,
    Literal,
    Modifiers,
    Off,
    Operand,
    Reg,
)
from simgpu.hardware.isa.spec import REGISTRY, Memory, Param, Spec

__all__ = [
    "REGISTRY",
    "TARGETS",
    "Const",
    "Imm",
    "Instruction",
    "Literal",
    "Memory",
    "Modifiers",
    "Off",
    "Operand",
    "Param",
    "Reg",
    "Spec",
    "decode",
    "decode_all",
    "disassemble",
    "table",
    "text",
]
