"""Readers of GFX12's encodings: from the bits of an instruction to its operands and modifiers.

Field positions: CDNA5 ISA guide, "Microcode formats"; checked against LLVM 22 (tests/hardware/isa/gfx12). LLVM sets some bits
that other assemblers leave at 0; such bits are ignored here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import is_inline
from simgpu.hardware.isa.gfx12.operands import LITERAL64, NULL, VGPR_BASE, UndefinedField, scalar, source, vector
from simgpu.hardware.isa.gfx12.rows import Field, RowSpec
from simgpu.hardware.isa.instruction import Const, Imm, Literal, Modifiers, Off, Operand, Reg

# Position of each field: first bit, width.
Positions = dict[str, tuple[int, int]]
NO_MODIFIERS = Modifiers()
SOP: Positions = {"sdst": (16, 7), "src0": (0, 8), "src1": (8, 8)}
VOP: Positions = {"vdst": (17, 8), "dst": (17, 8), "src0": (0, 9), "vsrc1": (9, 8)}
VOP3: Positions = {"vdst": (0, 8), "dst": (0, 8), "sdst": (8, 7), "src0": (32, 9), "src1": (41, 9), "src2": (50, 9)}
DS: Positions = {"addr": (32, 8), "data0": (40, 8), "data1": (48, 8), "vdst": (56, 8)}
SMEM: Positions = {"sdst": (6, 7), "soffset": (57, 7)}
FLAT: Positions = {"vdst": (32, 8), "vdata": (55, 8), "vaddr": (64, 8), "saddr": (0, 7), "saddr1": (0, 7)}
BUFFER: Positions = {"vdata": (32, 8), "vaddr": (64, 8), "soffset": (0, 7), "srsrc": (41, 9)}
IMAGE: Positions = {"d0": (64, 8), "d1": (72, 8), "d2": (80, 8), "d3": (88, 8)}
VOPD: tuple[Positions, Positions] = (
    {"vdst": (56, 8), "src0": (0, 9), "vsrc1": (9, 8)},
    {"vdst": (49, 7), "src0": (32, 9), "vsrc1": (41, 8)},
)
VOPD3: tuple[Positions, Positions] = (
    {"vdst": (64, 8), "src0": (0, 9), "vsrc1": (48, 8), "vsrc2": (56, 8), "mask": (56, 8)},
    {"vdst": (88, 8), "src0": (32, 9), "vsrc1": (72, 8), "vsrc2": (80, 8), "mask": (80, 8)},
)
VOPD3_NEG = (41, 44)  # first of three bits of each half
POSITIONS = {"sop1": SOP, "sop2": SOP, "sopc": SOP, "sopk": SOP, "vop1": VOP, "vop2": VOP, "vopc": VOP, "vop3": VOP3, "vop3p": VOP3}
SCALAR = ("sdst", "dst", "saddr1", "soffset", "d0", "d1", "d2", "d3", "mask")
BITS = (8, 9, 10, 11, 12, 13, 14, 15, 59, 60, 61, 62, 63)  # modifiers of VOP3 and VOP3P, in the table's order
DPP16, DPP8, DPP8_FI = 250, 233, 234  # in the field of src0
DPP8_CODES = (DPP8, DPP8_FI)
VCC = Reg("s", isa.VCC)
# Bits of bitop3's truth table, from bit 0 on.
BITOP3 = (61, 62, 63, 8, 9, 10, 59, 60)


@dataclass
class Reading:
    """An instruction while its fields are read. size: bytes so far."""

    word: int  # the bits from its start on, 24 bytes
    size: int
    form: str = ""
    args: dict[str, Operand] = field(default_factory=dict)
    mods: dict[str, Any] = field(default_factory=dict)
    src_mods: Modifiers = NO_MODIFIERS

    def bits(self, first: int, count: int) -> int:
        return self.word >> first & (1 << count) - 1

    def literal(self, code: int) -> Literal:
        """Returns the literal that follows the instruction; all its literal sources share one."""
        size = 64 if code == LITERAL64 else 32
        if "literal" in self.mods and self.mods["literal"] != size:
            raise UndefinedField("it has literals of two sizes")
        if "literal" not in self.mods:
            self.mods["literal"] = size
            self.size += size // 8
        return Literal(self.bits(8 * self.size - size, size))

    def operand(self, one: Field, position: tuple[int, int]) -> Operand:
        """Returns the operand of a plain field."""
        code = self.bits(*position)
        if one.name in SCALAR:
            return scalar(code, one.count)
        if one.name[:3] != "src":
            return vector(code, one.count)
        if code in (isa.LITERAL, LITERAL64):
            if one.kind in "vsc":
                raise UndefinedField(f"{one.name} cannot be a literal")
            return self.literal(code)
        operand = source(code, one.count)
        vgpr = code >= VGPR_BASE
        number = isinstance(operand, Const) and is_inline(operand.code)
        if not {"v": vgpr, "c": vgpr or number, "B": not vgpr, "s": not vgpr and not number}.get(one.kind, True):
            raise UndefinedField(f"{one.name} cannot have number {code}")
        return operand


def read_plain(spec: RowSpec, it: Reading) -> None:
    """Reads an instruction of SOP1, SOP2, SOPC, VOP1, VOP2 or VOPC."""
    positions = POSITIONS[spec.encoding]
    for one in spec.operands:
        if one.name in ("k", "k64"):
            it.args["k"] = it.literal(isa.LITERAL if one.name == "k" else LITERAL64)
        elif one.name == "msg":
            it.args["simm16"] = Imm(it.bits(0, 8))
        elif one.name == "vcc":
            it.args["vcc_in" if "vcc" in it.args else "vcc"] = VCC
        elif one.name == "src0" and spec.encoding[0] == "v" and _is_dpp(it.bits(0, 9)):
            it.args["src0"] = read_dpp(spec, it, it.bits(0, 9), 4)
        else:
            it.args[one.argument] = it.operand(one, positions[one.name])
    it.form = it.form or ("e32" if spec.shown.endswith("_e32") else "")


def _is_dpp(code: int) -> bool:
    return code == DPP16 or code in DPP8_CODES


def read_dpp(spec: RowSpec, it: Reading, code: int, at: int) -> Operand:
    """Reads the dword of DPP at byte `at`, and returns the source in it."""
    if ("p" if code == DPP16 else "q") not in spec.forms:
        raise UndefinedField("it has no DPP form")
    it.size = at + 4
    word = it.bits(8 * at, 32)
    it.form = "dpp" if spec.encoding in ("vop1", "vop2", "vopc") else "e64_dpp"
    if code != DPP16:
        it.mods["dpp8"] = word >> 8
        it.mods["fi"] = code == DPP8_FI
        return vector(word & 255, spec.sources[0].count)
    control = word >> 8 & 0x1FF
    known = control <= 0xFF or control in (0x140, 0x141) or (control >> 4 in (0x10, 0x11, 0x12) and control & 15)
    if not known and control >> 4 not in (0x15, 0x16):
        raise UndefinedField(f"DPP has no control {control:#x}")
    it.mods |= {"dpp_ctrl": control, "row_mask": word >> 28, "bank_mask": word >> 24 & 15}
    it.mods |= {"fi": bool(word >> 18 & 1), "bound_ctrl": bool(word >> 19 & 1)}
    if it.form == "dpp":
        it.src_mods = Modifiers(neg=word >> 20 & 1 | word >> 21 & 2, abs=word >> 21 & 1 | word >> 22 & 2)
    return vector(word & 255, spec.sources[0].count)


def read_sopk(spec: RowSpec, it: Reading) -> None:
    for one in spec.operands:
        if one.name == "simm16":
            it.args["simm16"] = Imm(it.bits(0, 16))
        elif one.name == "k":
            it.args["k"] = it.literal(isa.LITERAL)
        else:
            it.args["sdst"] = it.operand(one, SOP["sdst"])


def read_sopp(spec: RowSpec, it: Reading) -> None:
    if spec.operands:
        it.args["simm16"] = Imm(it.bits(0, 16))
    elif it.bits(0, 16):
        raise UndefinedField("its immediate must be 0")


def read_smem(spec: RowSpec, it: Reading) -> None:
    offset = it.bits(32, 24)
    prefetch = "prefetch" in spec.mnemonic
    by_register = it.bits(57, 7) != NULL
    for one in spec.operands:
        if one.name == "sbase":
            it.args["sbase"] = scalar(it.bits(0, 6) << 1, one.count)
        elif one.name == "sdata":
            it.args["sdata"] = Imm(it.bits(6, 5 if prefetch else 7))
        elif one.name == "ioffset" and by_register and not prefetch:
            it.args["soffset"] = scalar(it.bits(57, 7), 1)
            it.mods["offset"] = offset - (offset >> 23 << 24)
        elif one.name == "ioffset":
            it.args["ioffset"] = Imm(offset - (offset >> 23 << 24))
        else:
            it.args[one.name] = it.operand(one, SMEM[one.name])
    if spec.memory:
        it.mods |= {"scale_offset": it.bits(56, 1), "nv": it.bits(20, 1), "scope": it.bits(21, 2), "th": it.bits(23, 2)}


def read_ds(spec: RowSpec, it: Reading) -> None:
    for one in spec.operands:
        it.args[one.name] = it.operand(one, DS[one.name])
    if "2addr" in spec.mnemonic:
        it.mods |= {"offset0": it.bits(0, 8), "offset1": it.bits(8, 8)}
    else:
        it.mods["offset"] = it.bits(0, 16)


def _cache_policy(it: Reading) -> None:
    it.mods |= {"nv": it.bits(7, 1), "scope": it.bits(50, 2), "th": it.bits(52, 3)}


def read_flat(spec: RowSpec, it: Reading) -> None:
    """Reads an instruction of FLAT, GLOBAL or SCRATCH."""
    segment = spec.memory.space if spec.memory else "global"
    segment = "flat" if spec.mnemonic.startswith("flat_") else segment
    based = it.bits(0, 7) != NULL
    if it.bits(49, 1) and segment != "scratch":
        raise UndefinedField("SVE is for SCRATCH")
    if spec.returned and it.bits(52, 1):
        it.args["vdst"] = it.operand(Field("vdst", spec.returned), FLAT["vdst"])
    for one in spec.operands:
        if one.name == "vaddr" and segment == "scratch" and not it.bits(49, 1):
            it.args["vaddr"] = Off()
        elif one.name == "vaddr":
            it.args["vaddr"] = vector(it.bits(64, 8), 1 if based or segment == "scratch" else 2)
        elif one.name == "saddr":
            it.args["saddr"] = scalar(it.bits(0, 7), 1 if segment == "scratch" else 2) if based else Off()
        elif one.name == "saddr1":
            it.args["saddr"] = scalar(it.bits(0, 7), 2)
        else:
            it.args[one.name] = it.operand(one, FLAT[one.name])
    if segment == "flat" and based:
        it.args["saddr"] = scalar(it.bits(0, 7), 2)
    offset = it.bits(72, 24) if spec.operands and spec.mnemonic != "tensor_stop" else 0
    it.mods |= {"offset": offset - (offset >> 23 << 24), "scale_offset": it.bits(48, 1)}
    _cache_policy(it)


def read_buffer(spec: RowSpec, it: Reading) -> None:
    idxen, offen = it.bits(63, 1), it.bits(62, 1)
    for one in spec.operands:
        if one.name == "vaddr":
            it.args["vaddr"] = vector(it.bits(64, 8), idxen + offen) if idxen or offen else Off()
        elif one.name == "srsrc":
            it.args["srsrc"] = scalar(it.bits(*BUFFER["srsrc"]), 4)
        elif one.name == "vdata":
            it.args["vdata"] = vector(it.bits(*BUFFER["vdata"]), one.count + it.bits(22, 1))
        else:
            it.args[one.name] = it.operand(one, BUFFER[one.name])
    offset = it.bits(72, 24)
    if offset >> 23:
        raise UndefinedField("a buffer's offset is not negative")
    it.mods |= {"idxen": idxen, "offen": offen, "offset": offset, "tfe": it.bits(22, 1)}
    _cache_policy(it)


def read_image(spec: RowSpec, it: Reading) -> None:
    """Reads a tensor instruction. LLVM sets DIM and DMASK to 1 and the unused VADDR4 to null; AMD's assembler leaves them at 0."""
    more = (it.bits(*IMAGE["d2"]) != NULL) or (it.bits(*IMAGE["d3"]) != NULL)
    for name, count in (("d0", 4), ("d1", 8), ("d2", 4), ("d3", 4))[: 4 if more else 2]:
        it.args[name] = scalar(it.bits(*IMAGE[name]), count)
    it.mods["r128"] = it.bits(4, 1)
    _cache_policy(it)
