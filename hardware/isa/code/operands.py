"""Operand fields: from numbers in encodings to registers and constants, and their names.

The numbering is that of `simgpu.hardware.isa.instruction`; 256 and up are VGPRs.
"""

from __future__ import annotations

from functools import cache

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import FLOATS, INTEGERS
from simgpu.hardware.isa.instruction import Const, Literal, Operand, Reg
from simgpu.hardware.isa.types import Type

VGPR_BASE = 256
VCC_PAIR = Reg("s", isa.VCC, 2)
LAST_SGPR = 101
LAST_IN_TUPLE = 105  # LLVM lets a tuple continue into flat_scratch and xnack_mask
LAST_TTMP = 123

# Two-register specials by the number of their low half.
PAIRS = {
    isa.FLAT_SCRATCH: "flat_scratch",
    isa.XNACK_MASK: "xnack_mask",
    isa.VCC: "vcc",
    isa.EXEC: "exec",
}
CONSTANTS = {
    **{code: str(value) for code, value in INTEGERS.items()},
    isa.SHARED_BASE: "src_shared_base",
    isa.SHARED_LIMIT: "src_shared_limit",
    isa.PRIVATE_BASE: "src_private_base",
    isa.PRIVATE_LIMIT: "src_private_limit",
    isa.POPS_WAVE_ID: "src_pops_exiting_wave_id",
    240: "0.5",
    241: "-0.5",
    242: "1.0",
    243: "-1.0",
    244: "2.0",
    245: "-2.0",
    246: "4.0",
    247: "-4.0",
    248: "0.15915494",
    isa.VCCZ: "src_vccz",
    isa.EXECZ: "src_execz",
    isa.SCC_SOURCE: "src_scc",
    isa.LDS_DIRECT: "src_lds_direct",
}
# Other destinations of a lane mask that LLVM accepts. The first three are not sources on GFX9.
MASK_NAMES = {
    125: "null",
    230: "src_flat_scratch_base_lo",
    231: "src_flat_scratch_base_hi",
    **{code: name for code, name in CONSTANTS.items() if name.startswith("src_")},
}
INVERSE_TWO_PI_F64 = "0.15915494309189532"


class UndefinedBits(Exception):
    """Raised for bits that no instruction of the target has; `decode` turns it into a DecodeError with the offset."""


@cache
def vector(index: int, count: int, file: str = "v") -> Reg:
    """Returns the `count` VGPRs or AccVGPRs from `index` on. Raises UndefinedBits if they pass register 255."""
    if index + count > 256:
        raise UndefinedBits(f"{file}{index} has no {count} registers after it")
    return Reg(file, index, count)


@cache
def scalar(code: int, count: int) -> Reg:
    """Returns the `count` scalar registers (SGPRs, special registers, ttmp) from number `code` on.

    Pairs start at an even number, larger tuples at a multiple of four. Raises UndefinedBits for other numbers.
    """
    last = code + count - 1
    if code % min(count, 4):
        raise UndefinedBits(f"{count} scalar registers cannot start at number {code}")
    if code <= LAST_SGPR:
        known = last <= (LAST_IN_TUPLE if count > 2 else LAST_SGPR)
    elif isa.TTMP <= code <= LAST_TTMP:
        known = last <= LAST_TTMP
    elif count == 1:
        known = code == isa.M0 or code & ~1 in PAIRS
    else:
        known = count == 2 and code in PAIRS
    if not known:
        raise UndefinedBits(f"no scalar operand of {count} registers has number {code}")
    return Reg("s", code, count)


@cache
def source(code: int, count: int) -> Operand:
    """Returns the operand of a source field that cannot be a literal: VGPRs, scalar registers or a constant."""
    if code >= VGPR_BASE:
        return vector(code - VGPR_BASE, count)
    if code in CONSTANTS:
        return Const(code)
    return scalar(code, count)


def source_or_literal(code: int, count: int, word: int) -> Operand:
    """Returns the operand of a source field; 255 is the 32-bit literal in the high half of the 64-bit `word`."""
    return Literal(word >> 32) if code == isa.LITERAL else source(code, count)


def mask_destination(code: int) -> Operand:
    """Returns the operand that a lane mask is written to: an SGPR pair, or one of `MASK_NAMES`."""
    return Const(code) if code in MASK_NAMES else scalar(code, 2)


@cache
def register_text(reg: Reg) -> str:
    """Returns the text of a register operand, as LLVM prints it."""
    if reg.file == "s" and reg.index > LAST_SGPR:
        if isa.TTMP <= reg.index <= LAST_TTMP:
            return _range("ttmp", reg.index - isa.TTMP, reg.count)
        if reg.index == isa.M0:
            return "m0"
        name = PAIRS[reg.index & ~1]
        return name if reg.count == 2 else f"{name}_{'hi' if reg.index & 1 else 'lo'}"
    return _range(reg.file, reg.index, reg.count)


def _constant_text(code: int, type_: Type | None) -> str:
    if type_ and code in FLOATS:
        # LLVM 22 prints the constant's f16 bits, although the operand reads other bits (see `constants`).
        if type_.bits == 16 and type_.is_int:
            return f"0x{FLOATS[code].f16:x}"
        if type_.bits == 64 and type_.kind != "pair" and code == 248:
            return INVERSE_TWO_PI_F64
    return CONSTANTS[code] if code in CONSTANTS else MASK_NAMES[code]


def _range(prefix: str, index: int, count: int) -> str:
    return f"{prefix}{index}" if count == 1 else f"{prefix}[{index}:{index + count - 1}]"


def operand_text(operand: Operand, type_: Type | None = None) -> str:
    """Returns the text of an operand, as LLVM prints it. type_: decides how inline floats are printed."""
    if isinstance(operand, Reg):
        return register_text(operand)
    if isinstance(operand, Const):
        return _constant_text(operand.code, type_)
    if isinstance(operand, Literal):
        return f"0x{operand.value:x}"
    if isinstance(operand, isa.Imm):
        return f"0x{operand.value:x}" if operand.value >= 0 else f"-0x{-operand.value:x}"
    return "off"
