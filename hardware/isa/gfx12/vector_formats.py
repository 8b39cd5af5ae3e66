"""Readers of GFX12's wide vector encodings: VOP3, VOP3P with scaled matrix instructions, VOPD."""

from __future__ import annotations

from functools import cache

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.gfx12.formats import (
    BITOP3,
    BITS,
    DPP8_CODES,
    DPP16,
    VOP3,
    VOPD,
    VOPD3,
    VOPD3_NEG,
    Reading,
    read_dpp,
)
from simgpu.hardware.isa.gfx12.operands import UndefinedField, vector
from simgpu.hardware.isa.gfx12.rows import Field, RowSpec, rows
from simgpu.hardware.isa.instruction import Modifiers

FORMAT_REGISTERS = {0: 16, 1: 16, 2: 12, 3: 12, 4: 8}  # registers of A or B of v_wmma_*_f8f6f4, by format
SCALE_LOADS = {0x35: "v_wmma_scale_", 0x3A: "v_wmma_scale16_"}  # VOP3P opcodes of scales that the next instruction uses
SCALED = (0x33, 0x88)  # VOP3P opcodes of matrix instructions that scales may precede
# Modifiers of one number: letter in the table, name.
NUMBERS = {
    "s": "op_sel", "h": "op_sel_hi", "L": "neg_lo", "H": "neg_hi", "x": "scale_sel", "A": "matrix_a_fmt", "B": "matrix_b_fmt",
    "S": "matrix_a_scale", "T": "matrix_b_scale", "D": "matrix_a_scale_fmt", "E": "matrix_b_scale_fmt", "k": "index_key",
    "r": "matrix_a_reuse", "R": "matrix_b_reuse", "f": "fi", "b": "bound_ctrl", "c": "clamp", "o": "omod",
}  # fmt: skip
# Bit of the number that each bit of the word is, by letter.
PLACES = {
    "s": {11: 0, 12: 1, 13: 2, 14: 3}, "h": {59: 0, 60: 1, 14: 2}, "L": {61: 0, 62: 1, 63: 2}, "H": {8: 0, 9: 1, 10: 2},
    "x": {11: 0, 12: 1, 13: 2, 14: 3}, "A": {11: 0, 12: 1, 13: 2}, "B": {59: 0, 60: 1, 14: 2}, "D": {61: 0, 62: 1},
    "E": {8: 0, 9: 1}, "o": {59: 0, 60: 1},
}  # fmt: skip
BYTE_PLACES = {11: 1, 12: 0, 13: 0, 14: 1}


def read_vop3(spec: RowSpec, it: Reading) -> None:
    """Reads an instruction of VOP3 or VOP3P."""
    _modifiers(spec, it, it.word)
    it.form = "e64" if spec.shown.endswith("_e64") else ""
    code = it.bits(32, 9)
    dpp = code == DPP16 or code in DPP8_CODES
    formats = {"src0": it.mods.get("matrix_a_fmt"), "src1": it.mods.get("matrix_b_fmt")} if "A" in spec.bits else {}
    for one in spec.operands:
        if one.name == "src0" and dpp:
            it.args["src0"] = read_dpp(spec, it, code, 8)
            continue
        number = formats.get(one.name)
        if number is not None:
            if number not in FORMAT_REGISTERS:
                raise UndefinedField(f"a matrix has no format {number}")
            one = Field(one.name, FORMAT_REGISTERS[number], one.kind)
        it.args[one.argument] = it.operand(one, VOP3[one.name])


def _modifiers(spec: RowSpec, it: Reading, word: int) -> None:
    """Reads the modifier bits, by the meaning that the row gives to each."""
    absolute = negative = byte = 0
    for letter, bit in zip(spec.bits, BITS, strict=False):
        value = word >> bit & 1
        if not value:
            continue
        if letter == "!":
            raise UndefinedField(f"bit {bit} is not a modifier of {spec.mnemonic}")
        if letter == "a":
            absolute |= 1 << bit - 8
        elif letter == "n":
            negative |= 1 << bit - 61
        elif letter == "y":
            byte |= 1 << BYTE_PLACES[bit]
        elif letter in NUMBERS:
            place = PLACES.get(letter, {}).get(bit, 0)
            it.mods[NUMBERS[letter]] = it.mods.get(NUMBERS[letter], 0) | 1 << place
    if "y" in spec.bits:
        it.mods["byte_sel"] = byte
    if "A" in spec.bits:
        it.mods.setdefault("matrix_a_fmt", 0)
        it.mods.setdefault("matrix_b_fmt", 0)
    if "t" in spec.bits:
        it.mods["bitop3"] = sum((word >> bit & 1) << place for place, bit in enumerate(BITOP3))
    if absolute or negative:
        it.src_mods = Modifiers(neg=negative, abs=absolute)


def is_scale_load(word: int) -> bool:
    """True for a load of scales that a matrix instruction follows directly; both are one instruction."""
    second = word >> 64
    return word >> 16 & 0xFF in SCALE_LOADS and second >> 24 & 0xFF == 0xCC and second >> 16 & 0xFF in SCALED


@cache
def scaled_spec(load: int, matrix: int) -> RowSpec:
    """Returns the spec of a matrix instruction with scales, by the VOP3P opcodes of both halves."""
    first, second = rows()["vop3p", load], rows()["vop3p", matrix]
    shown = second.mnemonic.replace("v_wmma_", SCALE_LOADS[load], 1)
    scales = tuple(Field(f"scale_{one.name}", one.count, one.kind) for one in first.operands)
    return RowSpec(
        mnemonic=shown, encoding="vop3p", opcodes=second.opcodes, params=(), results=(), kind="matrix", shown=shown,
        operands=second.operands + scales, bits=second.bits,
    )  # fmt: skip


def read_scaled(it: Reading) -> RowSpec:
    """Reads a load of scales and the matrix instruction after it, 16 bytes. Returns the spec of both together."""
    load, second = it.bits(16, 8), Reading(it.word >> 64, 8)
    matrix = second.bits(16, 8)
    spec, scales, product = scaled_spec(load, matrix), rows()["vop3p", load], rows()["vop3p", matrix]
    _modifiers(scales, it, it.word)
    # LLVM sets op_sel_hi's last bit here, AMD's assembler does not; f8f6f4 has a format in it.
    second.word &= ~(1 << 14) if "A" not in product.bits else -1
    read_vop3(product, second)
    it.args |= second.args
    for one, scale in zip(scales.operands, spec.operands[-2:], strict=True):
        it.args[scale.name] = it.operand(one, VOP3[one.name])
    it.mods |= second.mods
    it.src_mods = second.src_mods
    it.size = 16
    return spec


@cache
def dual_spec(x: RowSpec, y: RowSpec) -> RowSpec:
    """Returns the spec of two instructions in one word; the operands of the second are named with a y at the end."""
    operands = x.operands + tuple(Field(one.name + "y", one.count, one.kind) for one in y.operands)
    shown = f"{x.shown} :: {y.shown}"
    return RowSpec(
        mnemonic=shown, encoding="vopd", opcodes=x.opcodes, params=(), results=(), kind="lane", shown=shown, operands=operands
    )


def read_dual(it: Reading, three: bool) -> RowSpec:
    """Reads an instruction of VOPD, or with `three` of VOPD3. Returns the spec of both halves."""
    names = ("vopd3x", "vopd3y") if three else ("vopdx", "vopdy")
    codes = (it.bits(18, 6), it.bits(12, 6)) if three else (it.bits(22, 4), it.bits(17, 5))
    halves = [rows().get((name, code)) for name, code in zip(names, codes, strict=True)]
    x, y = halves
    if x is None or y is None:
        raise UndefinedField("no such pair of opcodes")
    it.size = 12 if three else 8
    for half, (spec, positions) in enumerate(zip((x, y), VOPD3 if three else VOPD, strict=True)):
        for one in spec.operands:
            name = one.name + "y" * half
            if one.name == "k":
                it.args[name] = it.literal(isa.LITERAL)
            elif one.name == "vdst" and half and not three:
                it.args[name] = vector(it.bits(49, 7) << 1 | ~it.bits(56, 1) & 1, one.count)
            else:
                it.args[name] = it.operand(one, positions[one.name])
        if three:
            it.mods["neg" + "y" * half] = it.bits(VOPD3_NEG[half], 3)
    if three and "bitop2" in y.mnemonic:
        it.mods["bitop3"] = it.bits(80, 8)
    return dual_spec(x, y)
