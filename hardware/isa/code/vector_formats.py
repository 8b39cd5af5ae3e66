"""Readers (see `formats`) of vector encodings: VOP1, VOP2 and VOPC with literals, SDWA and DPP; VOP3, VOP3P, MAI.

Field positions: ISA guides, "Microcode formats".
"""

from __future__ import annotations

from functools import cache
from typing import Any

from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.code.formats import UNIFIED, DecodedFields, operand_types
from simgpu.hardware.isa.code.operands import VCC_PAIR, UndefinedBits, mask_destination, scalar, source, source_or_literal, vector
from simgpu.hardware.isa.constants import is_inline
from simgpu.hardware.isa.instruction import Imm, Literal, Modifiers, Operand
from simgpu.hardware.isa.instructions.mai import FORMAT_REGISTERS
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type

SDWA, DPP = 0xF9, 0xFA
SDWA_DWORD = 6
# Mnemonics whose SDWA form only selects a source.
SDWA_WHOLE_RESULT = ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
ROW_NEWBCAST = range(0x150, 0x160)
LAST_CONSTANT = 248
WITHOUT_OP_SEL = ("v_cvt_pk_bf16_f32",)


@cache
def signed_sources(spec: Spec) -> int:
    """Returns a bit mask of the sources that neg and abs apply to: floats, and the values of v_cndmask_b32."""
    chosen = 0
    for i, type_ in enumerate(operand_types(spec).sources):
        value = type_.element or type_
        if value.is_float or (spec.mnemonic == "v_cndmask_b32" and type_.name != "mask"):
            chosen |= 1 << i
    return chosen


def _result(spec: Spec, code: int) -> dict[str, Operand]:
    """Returns the result operand in an 8-bit field: vdst, or sdst if it is scalar; none if there is no result."""
    type_ = operand_types(spec).result
    if type_ is None:
        return {}
    if type_.state == "sgpr":
        return {"sdst": scalar(code, type_.dwords)}
    return {"vdst": vector(code, type_.dwords, "a" if Flag.ACC in spec.flags else "v")}


def _named_sources(spec: Spec, sources: list[Operand], literal: Operand | None) -> dict[str, Operand]:
    """Returns the sources by name, src0 to src2, with the literal k in its position among them."""
    args: dict[str, Operand] = {}
    at = operand_types(spec).literal
    for i, operand in enumerate(sources):
        if i == at and literal:
            args["k"] = literal
        args[f"src{i}"] = operand
    if literal and at == len(sources):
        args["k"] = literal
    return args


def _vector_sources(spec: Spec, first: Operand, word: int) -> list[Operand]:
    """Returns the sources: `first`, then src1 from the VGPR field of VOP2 and VOPC; VCC for a lane mask."""
    sources: list[Operand] = []
    for i, type_ in enumerate(operand_types(spec).sources):
        if type_.name == "mask":
            sources.append(VCC_PAIR)
        else:
            sources.append(vector(word >> 9 & 255, type_.dwords) if i else first)
    return sources


def read_vop(spec: Spec, word: int, target: str) -> DecodedFields:
    """Reads VOP1, VOP2 or VOPC: 32 bits, with a literal, or with an SDWA or DPP dword."""
    shape = operand_types(spec)
    code = word & 511
    if shape.sources:
        if code == SDWA:
            return _sdwa(spec, word, target)
        if code == DPP:
            return _dpp(spec, word, target)
    args: dict[str, Operand] = {}
    if spec.encoding != "vopc":
        args = _result(spec, word >> 17 & 255)
    if shape.mask:
        args["sdst"] = VCC_PAIR
    literal = Literal(word >> 32) if shape.literal >= 0 else None
    if shape.sources:
        first = _first(spec, code, shape.sources[0], word)
        args |= _named_sources(spec, _vector_sources(spec, first, word), literal)
    size = 8 if literal or (code == isa.LITERAL and shape.sources) else 4
    return DecodedFields("e32", args, {}, Modifiers(), size)


def _first(spec: Spec, code: int, type_: Type, word: int) -> Operand:
    if code < 256:
        if spec.flags & {Flag.ACC, Flag.SWAP} or _reads_row(spec):
            raise UndefinedBits(f"{spec.mnemonic} takes registers only")
        return source_or_literal(code, type_.dwords, word)
    return vector(code - 256, type_.dwords, "a" if Flag.ACC in spec.flags else "v")


def _sdwa(spec: Spec, word: int, target: str) -> DecodedFields:
    if Flag.NO_SDWA in spec.flags:
        raise UndefinedBits(f"{spec.mnemonic} has no SDWA form")
    shape = operand_types(spec)
    mods: dict[str, Any] = {}
    args: dict[str, Operand] = {}
    if spec.encoding == "vopc":
        explicit = word >> 47 & 1
        args["sdst"] = mask_destination(word >> 40 & 127) if explicit else VCC_PAIR
    else:
        args = _result(spec, word >> 17 & 255)
        if shape.mask:
            args["sdst"] = VCC_PAIR
        mods = _output(word >> 45 & 1, word >> 46 & 3)
        if spec.mnemonic not in SDWA_WHOLE_RESULT:
            mods["dst_sel"] = word >> 40 & 7
            mods["dst_unused"] = word >> 43 & 3
            if mods["dst_sel"] > SDWA_DWORD or mods["dst_unused"] > 2:
                raise UndefinedBits("no such SDWA destination")
    sources: list[Operand] = []
    neg = absolute = sext = 0
    for i, type_ in enumerate(shape.sources):
        if type_.name == "mask":
            sources.append(VCC_PAIR)
            continue
        control = word >> (48 + 8 * i)
        code = (word >> 9 if i else word >> 32) & 255
        sources.append(source(code if control >> 7 & 1 else code + 256, 1))
        mods[f"src{i}_sel"] = control & 7
        if control & 7 > SDWA_DWORD:
            raise UndefinedBits("no such SDWA source")
        sext |= (control >> 3 & 1) << i
        neg |= (control >> 4 & 1) << i
        absolute |= (control >> 5 & 1) << i
    args |= _named_sources(spec, sources, None)
    floats = signed_sources(spec)
    if any(type_.kind == "pair" for type_ in shape.sources):
        floats = 0
    return DecodedFields("sdwa", args, mods, Modifiers(neg & floats, absolute & floats, sext), 8)


def _dpp(spec: Spec, word: int, target: str) -> DecodedFields:
    if Flag.NO_DPP in spec.flags or spec.encoding == "vopc":
        raise UndefinedBits(f"{spec.mnemonic} has no DPP form")
    shape = operand_types(spec)
    control = word >> 40 & 0x1FF
    _check_control(spec, control, target)
    args = _result(spec, word >> 17 & 255)
    if shape.mask:
        args["sdst"] = VCC_PAIR
    first = vector(word >> 32 & 255, shape.sources[0].dwords)
    args |= _named_sources(spec, _vector_sources(spec, first, word), None)
    mods: dict[str, Any] = {
        "dpp_ctrl": control,
        "row_mask": word >> 60,
        "bank_mask": word >> 56 & 15,
    }
    if word >> 51 & 1:
        mods["bound_ctrl"] = 1
    neg = word >> 52 & 1 | (word >> 54 & 1) << 1
    absolute = word >> 53 & 1 | (word >> 55 & 1) << 1
    floats = signed_sources(spec)
    return DecodedFields("dpp", args, mods, Modifiers(neg & floats, absolute & floats), 8)


def _check_control(spec: Spec, control: int, target: str) -> None:
    if control in ROW_NEWBCAST:
        if target not in UNIFIED:
            raise UndefinedBits("row_newbcast needs gfx90a or later")
        return
    row = 0x100 < control < 0x130 and control & 15
    if control > 0xFF and not row and control not in WHOLE_WAVE:
        raise UndefinedBits(f"no dpp_ctrl has the number 0x{control:x}")
    shape = operand_types(spec)
    types = (*shape.sources, *filter(None, (shape.result,)))
    if target in UNIFIED and any(t.bits == 64 and t.name != "mask" for t in types):
        raise UndefinedBits("a 64-bit DPP operation takes row_newbcast only")


# dpp_ctrl without a count: wave shifts and rotations, mirrors, broadcasts.
WHOLE_WAVE = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}


def _output(clamp: int, omod: int) -> dict[str, Any]:
    mods: dict[str, Any] = {}
    if clamp:
        mods["clamp"] = True
    if omod:
        mods["omod"] = omod
    return mods


def read_vop3(spec: Spec, word: int, target: str) -> DecodedFields:
    """Reads VOP3 and the e64 forms of VOP1, VOP2 and VOPC; the layout is VOP3B if a mask is written in addition to vdst."""
    if Flag.INTERP in spec.flags:
        return _interpolation(word)
    shape = operand_types(spec)
    args: dict[str, Operand] = {}
    beside = shape.mask and shape.result is not None
    if shape.result is None and shape.mask:
        args["sdst"] = mask_destination(word & 255)
    else:
        args = _result(spec, word & 255)
        if beside:
            args["sdst"] = mask_destination(word >> 8 & 127)
    for i, type_ in enumerate(shape.sources):
        code = word >> (32 + 9 * i) & 511
        _check_file(spec, type_, code, i)
        args[f"src{i}"] = source(code, type_.dwords)
    floats = signed_sources(spec)
    mods = _output(word >> 15 & 1, word >> 59 & 3)
    absolute = word >> 8 & floats
    neg = word >> 61 & floats
    if beside:
        absolute = 0
    elif any(p.name == "bitop3" for p in spec.params):
        # The truth table uses the fields of abs, neg and omod.
        mods.pop("omod", None)
        mods["bitop3"] = word >> 61 | (word >> 8 & 7) << 3 | (word >> 59 & 3) << 6
    if Flag.SWAP in spec.flags:
        mods |= {name: 1 for name, bit in (("bound_ctrl", 12), ("fi", 11)) if word >> bit & 1}
    elif not beside and word >> 11 & 15 and spec.mnemonic not in WITHOUT_OP_SEL:
        mods["op_sel"] = word >> 11 & 15
    return DecodedFields("e64", args, mods, Modifiers(neg, absolute), 8)


def _check_file(spec: Spec, type_: Type, code: int, number: int) -> None:
    """Raises UndefinedBits for a source in the wrong register file, or a constant lane mask.

    Lane numbers are scalar; operands of more than two registers and v_readlane's row are VGPRs. VGPRs as lane mask pass, as
    in LLVM; the executing code must reject them.
    """
    if type_.name == "mask" and 128 <= code <= LAST_CONSTANT:
        raise UndefinedBits("a lane mask is a pair of scalar registers")
    if type_.state == "sgpr" and code >= 256:
        raise UndefinedBits(f"source {number} of {spec.mnemonic} is scalar")
    if code < 256 and (type_.dwords > 2 or (number == 0 and _reads_row(spec))):
        raise UndefinedBits(f"source {number} of {spec.mnemonic} is in VGPRs")


def _reads_row(spec: Spec) -> bool:
    result = operand_types(spec).result
    return result is not None and result.state == "sgpr"


def _interpolation(word: int) -> DecodedFields:
    """Reads v_interp_*: attribute and channel are in src0's field, the VGPR in src1's."""
    mods = _output(word >> 15 & 1, word >> 59 & 3)
    mods["attribute"] = word >> 32 & 63
    mods["channel"] = word >> 38 & 3
    if word >> 40 & 1:
        mods["high"] = True
    if word >> 11 & 15:
        mods["op_sel"] = word >> 11 & 15
    args: dict[str, Operand] = {"vdst": vector(word & 255, 1)}
    opcode = word >> 16 & 0x3FF
    if opcode == INTERP_MOV:
        args["src0"] = Imm(word >> 41 & 511)
    else:
        args["src0"] = _vgpr_only(word >> 41 & 511)
    if opcode in INTERP_WITH_SOURCE:
        args["src2"] = _vgpr_only(word >> 50 & 511)
    neg, absolute = word >> 61, word >> 8 & 7
    # Bit 1 belongs to the VGPR in src1's field.
    swap = {0: 0, 2: 1, 4: 4, 6: 5}
    return DecodedFields("e64", args, mods, Modifiers(swap[neg & 6], swap[absolute & 6]), 8)


INTERP_MOV = 626
INTERP_WITH_SOURCE = (629, 630, 631)


def _vgpr_only(code: int) -> Operand:
    if code < 256:
        raise UndefinedBits("v_interp takes VGPRs only")
    return vector(code - 256, 1)


def read_vop3p(spec: Spec, word: int, target: str) -> DecodedFields:
    shape = operand_types(spec)
    count = len(shape.sources)
    every = (1 << count) - 1
    args = _result(spec, word & 255)
    for i, type_ in enumerate(shape.sources):
        args[f"src{i}"] = source(word >> (32 + 9 * i) & 511, type_.dwords)
    mods = _output(word >> 15 & 1, 0)
    select = word >> 11 & every
    if select:
        mods["op_sel"] = select
    high = (word >> 59 & 3 | (word >> 14 & 1) << 2) & every
    if high != (0 if Flag.MIX in spec.flags else every):
        mods["op_sel_hi"] = high
    if word >> 61 & every:
        mods["neg_lo"] = word >> 61 & every
    if word >> 8 & every:
        mods["neg_hi"] = word >> 8 & every
    return DecodedFields("e64", args, mods, Modifiers(), 8)


def read_mai(spec: Spec, word: int, target: str) -> DecodedFields:
    """Reads matrix instructions and AccVGPR moves; ACC bits select the register file of each operand."""
    if spec.kind != "matrix":
        return _acc_move(spec, word, target)
    a, b, c = (p.type.dwords for p in spec.params[:3])
    cbsz, abid, blgp = word >> 8 & 7, word >> 11 & 15, word >> 61 & 7
    if Flag.F8F6F4 in spec.flags:
        a, b = FORMAT_REGISTERS.get(cbsz, 8), FORMAT_REGISTERS.get(blgp, 8)
    # gfx908 has C and D in AccVGPRs only.
    file = "v" if target in UNIFIED and not word >> 15 & 1 else "a"
    args: dict[str, Operand] = {"vdst": vector(word & 255, spec.results[0].dwords, file)}
    for i, count in ((0, a), (1, b)):
        code = word >> (32 + 9 * i) & 511
        if code < 256:
            raise UndefinedBits(f"{spec.mnemonic}: A and B are registers")
        args[f"src{i}"] = vector(code - 256, count, "a" if word >> (59 + i) & 1 else "v")
    code = word >> 50 & 511
    if code >= 256:
        args["src2"] = vector(code - 256, c, "v" if Flag.SPARSE in spec.flags else file)
    elif is_inline(code):
        args["src2"] = source(code, c)
    else:
        raise UndefinedBits(f"{spec.mnemonic}: C is a register or an inline constant")
    mods: dict[str, Any] = {}
    if cbsz:
        mods["cbsz"] = cbsz
    if abid and Flag.SCALED not in spec.flags:
        mods["abid"] = abid
    if blgp:
        mods["neg" if Flag.F64 in spec.flags and target in SINCE_GFX942 else "blgp"] = blgp
    return DecodedFields("e64", args, mods, Modifiers(), 8)


def _acc_move(spec: Spec, word: int, target: str) -> DecodedFields:
    """Reads an AccVGPR move. v_accvgpr_write_b32 can read scalar registers from gfx90a on (LLVM)."""
    code = word >> 32 & 511
    reading = Flag.ACC_SOURCE in spec.flags
    args: dict[str, Operand] = {"vdst": vector(word & 255, 1, "v" if reading else "a")}
    if code >= 256:
        args["src0"] = vector(code - 256, 1, "a" if reading else "v")
    elif not reading and (target in UNIFIED or is_inline(code)):
        args["src0"] = source(code, 1)
    else:
        raise UndefinedBits(f"{spec.mnemonic}: not a source that it takes")
    return DecodedFields("e64", args, {}, Modifiers(), 8)


def read_scaled(spec: Spec, scale: int, word: int, target: str) -> DecodedFields:
    """Reads a scaled matrix instruction of 16 bytes. scale: the v_mfma_ld_scale_b32; word: the v_mfma."""
    matrix = read_mai(spec, word, target)
    args = dict(matrix.args)
    for i in (0, 1):
        code = scale >> (32 + 9 * i) & 511
        operand = source(code, 1)
        args[f"scale_src{i}"] = operand
    mods = dict(matrix.mods)
    if scale >> 11 & 3:
        mods["op_sel"] = scale >> 11 & 3
    mods["op_sel_hi"] = scale >> 59 & 3
    return DecodedFields("e64", args, mods, Modifiers(), 16)
