"""CDNA instruction set. Importing the package registers all instructions.

    types.py         operand types: the meaning of a register's bits
    kinds.py         encodings, control kinds and flags: closed lists
    spec.py          Spec, the description of an instruction, and its registration
    constants.py     the bits of an inline constant, by operand type
    encodings.py     one decorator per encoding
    swizzle.py       text of ds_swizzle_b32's pattern
    lane.py          operations of instruction bodies on typed values of a lane
    lane_numpy.py    the same on numpy arrays: the tests' reference
    lane_smt.py      the same on terms of the solver z3: proofs
    arithmetic/      functions that bodies share
    ring/            floats as elements of a ring of integers
    instructions/    the instructions, a file an encoding
    instruction.py   Instruction: a spec with its operands and modifiers
    gfx12/           GFX12 (gfx1250): its instructions as a table, decoder, disassembler
    code/            decoder, disassembler, control flow
    fidelity.py      agreement of results with the hardware, and the evidence
"""

from __future__ import annotations

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa import instructions  # noqa: F401  (registers them)
from simgpu.hardware.isa.code.decode import decode, decode_all, decode_around, table
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
    "decode_around",
    "disassemble",
    "table",
    "text",
]
