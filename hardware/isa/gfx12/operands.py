"""Operand fields of GFX12: from numbers in encodings to registers, constants and literals, and their text.

The numbers in `Reg` are those of `simgpu.hardware.isa.instruction`, which are GFX9's. GFX12 exchanges M0 and null, and has
s102 to s105 where GFX9 has flat_scratch and xnack_mask (CDNA5 ISA guide, "Scalar operands"; LLVM, AMDGPUAsmUtils).
"""

from __future__ import annotations

from functools import cache

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import FLOATS, INTEGERS, is_inline
from simgpu.hardware.isa.instruction import Const, Imm, Literal, Off, Operand, Reg

VGPR_BASE, LAST_SGPR, LAST_TTMP = 256, 105, 123
NULL, M0 = 124, 125  # in encodings
LITERAL64 = 254
NULL_CODE = 125  # `Const` of the null register; GFX9's number of it
PAIRS = {isa.VCC: "vcc", isa.EXEC: "exec"}
NAMES = {
    NULL_CODE: "null", 230: "src_flat_scratch_base_lo", 231: "src_flat_scratch_base_hi", isa.SHARED_BASE: "src_shared_base",
    isa.SHARED_LIMIT: "src_shared_limit", isa.PRIVATE_BASE: "src_private_base", isa.PRIVATE_LIMIT: "src_private_limit",
    isa.POPS_WAVE_ID: "src_pops_exiting_wave_id", isa.VCCZ: "src_vccz", isa.EXECZ: "src_execz", isa.SCC_SOURCE: "src_scc",
}  # fmt: skip
FLOAT_NAMES = {
    240: "0.5", 241: "-0.5", 242: "1.0", 243: "-1.0", 244: "2.0", 245: "-2.0", 246: "4.0", 247: "-4.0", 248: "0.15915494",
}  # fmt: skip
INVERSE_TWO_PI, INVERSE_TWO_PI_F64 = 248, "0.15915494309189532"


class UndefinedField(Exception):
    """Raised for fields that no instruction has; the decoder turns it into a DecodeError with the offset."""


@cache
def vector(index: int, count: int) -> Reg:
    """Returns the `count` VGPRs from `index` on. Tuples start at even numbers. Raises UndefinedField for others.

    A tuple may pass v255: registers above it belong to the same wave.
    """
    if count > 1 and index % 2:
        raise UndefinedField(f"{count} VGPRs cannot start at v{index}")
    return Reg("v", index, count)


@cache
def scalar(code: int, count: int) -> Operand:
    """Returns the `count` scalar registers of a number, or the null register. Raises UndefinedField for other numbers."""
    if code == NULL:
        return Const(NULL_CODE)
    if code % min(1 << (count - 1).bit_length(), 4):
        raise UndefinedField(f"{count} scalar registers cannot start at number {code}")
    last = code + count - 1
    if code == M0 and count == 1:
        return Reg("s", isa.M0)
    known = last <= LAST_SGPR or (code >= isa.TTMP and last <= LAST_TTMP)
    if not known and not (code & ~1 in PAIRS and count <= 2):
        raise UndefinedField(f"no scalar operand of {count} registers has number {code}")
    return Reg("s", code, count)


@cache
def source(code: int, count: int) -> Operand:
    """Returns the operand of a source field that is not a literal."""
    if code >= VGPR_BASE:
        return vector(code - VGPR_BASE, count)
    if is_inline(code) or (code in NAMES and code != NULL_CODE and (code != 231 or count == 1)):
        return Const(code)
    if code > isa.EXEC + 1:
        raise UndefinedField(f"no operand has number {code}")
    return scalar(code, count)


def _range(prefix: str, index: int, count: int) -> str:
    return f"{prefix}{index}" if count == 1 else f"{prefix}[{index}:{index + count - 1}]"


@cache
def register_text(reg: Reg) -> str:
    """Returns the text of a register operand, as LLVM prints it."""
    if reg.file != "s" or reg.index <= LAST_SGPR:
        return _range(reg.file, reg.index, reg.count)
    if isa.TTMP <= reg.index <= LAST_TTMP:
        return _range("ttmp", reg.index - isa.TTMP, reg.count)
    if reg.index == isa.M0:
        return "m0"
    name = PAIRS[reg.index & ~1]
    return name if reg.count == 2 else f"{name}_{'hi' if reg.index & 1 else 'lo'}"


def _constant(code: int, kind: str) -> str:
    if code in INTEGERS:
        return str(INTEGERS[code])
    if code in FLOATS and kind == "i":
        return f"0x{FLOATS[code].f16:x}"
    if code in FLOATS and kind == "w":
        return f"0x{FLOATS[code].f32:x}"
    if code == INVERSE_TWO_PI and kind == "d":
        return INVERSE_TWO_PI_F64
    return FLOAT_NAMES.get(code) or NAMES[code]


def literal_text(value: int, kind: str, wide: bool = False) -> str:
    """Returns the text of a literal. `lit(...)` marks a number that an assembler would encode without a literal.

    kind: the source's type, as in `rows.Field`. wide: True for a literal of 64 bits.
    """
    if kind in "hi":
        value &= 0xFFFF
    elif kind != "d":
        value &= 0xFFFFFFFF
    bits = 64 if kind == "d" else 16 if kind in "hi" else 32
    signed = value - (value >> bits - 1 << bits)
    floats = {getattr(row, {64: "f64", 32: "f32", 16: "f16"}[bits]) for row in FLOATS.values()}
    inline = -16 <= signed <= 64 or value in floats
    if wide:
        return f"lit64(0x{value:x})" if inline or (kind == "d" and value < 1 << 32) else f"0x{value:x}"
    return f"lit(0x{value:x})" if inline else f"0x{value:x}"


def operand_text(operand: Operand, kind: str = "b", wide: bool = False) -> str:
    """Returns the text of an operand, as LLVM prints it.

    >>> operand_text(Const(248), "d"), operand_text(Reg("s", 104)), operand_text(Literal(1))
    ('0.15915494309189532', 's104', 'lit(0x1)')
    """
    match operand:
        case Reg():
            return register_text(operand)
        case Const():
            return _constant(operand.code, kind)
        case Literal():
            return literal_text(operand.value, kind, wide)
        case Imm():
            return f"0x{operand.value:x}" if operand.value >= 0 else f"-0x{-operand.value:x}"
        case Off():
            return "off"
