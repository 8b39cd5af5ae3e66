"""Readers of scalar and memory encodings: from the fields of a word to the operands of an instruction.

A reader takes the spec, 64 bits of code (the literal or second dword in the high half) and the target, and returns a
`DecodedFields`. Field positions: ISA guides, "Microcode formats". From gfx90a on, TFE's bit selects AccVGPRs and there is an SCC
bit; from gfx942 on, the cache bits are called SC0, SC1 and NT.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from simgpu.hardware.architectures import SINCE_GFX90A, SINCE_GFX942
from simgpu.hardware.isa.code.operands import UndefinedBits, scalar, source, source_or_literal, vector
from simgpu.hardware.isa.instruction import Imm, Literal, Modifiers, Off, Operand, Reg
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import Memory, Spec
from simgpu.hardware.isa.types import Type, f16x2, f32x2, i16x2, u16x2, u32x2

NO_MODIFIERS = Modifiers()
OFF = Off()
UNIFIED = SINCE_GFX90A  # targets with one register file, where loads and stores can access AccVGPRs
SADDR_OFF = 0x7F
CACHE_NAMES = {
    "gfx908": ("glc", "slc"),
    "gfx90a": ("glc", "slc", "scc"),
    **{target: ("sc0", "nt", "sc1") for target in SINCE_GFX942},
}


class DecodedFields(NamedTuple):
    """Result of a reader; fields as in `Instruction`."""

    form: str
    args: dict[str, Operand]
    mods: dict[str, Any]
    src_mods: Modifiers = NO_MODIFIERS
    size: int = 4


class OperandTypes(NamedTuple):
    """Types of a spec's operands."""

    sources: tuple[Type, ...]  # of src0, src1, src2 in order, including lane masks
    literal: int  # number of sources before the parameter k of v_madmk and v_madak; -1 without k
    result: Type | None  # of vdst, or of sdst if the result is scalar
    mask: bool  # True if it writes a lane mask


@cache
def operand_types(spec: Spec) -> OperandTypes:
    """Returns the operand types of an instruction of a scalar or vector encoding."""
    operands = [p for p in spec.params if p.type.state in ("", "sgpr")]
    sources = [p for p in operands if p.name not in ("vdst", "sdst", "simm16")]
    names = [p.name for p in sources]
    values = [t for t in spec.results if t.name != "mask" and t.state in ("", "sgpr")]
    packed = Flag.PACKED in spec.flags
    return OperandTypes(
        tuple(_pair(p.type) if packed else p.type for p in sources if p.name != "k"),
        names.index("k") if "k" in names else -1,
        (_pair(values[0]) if packed else values[0]) if values else None,
        any(t.name == "mask" for t in spec.results),
    )


def _pair(element: Type) -> Type:
    """Returns the type of a packed instruction's operand whose elements are of type `element`."""
    return PAIRS.get(element.name, element)


PAIRS = {"f32": f32x2, "u32": u32x2, "f16": f16x2, "i16": i16x2, "u16": u16x2}


def read_sop1(spec: Spec, word: int, target: str) -> DecodedFields:
    shape = operand_types(spec)
    args: dict[str, Operand] = {}
    if shape.result:
        args["sdst"] = scalar(word >> 16 & 127, shape.result.dwords)
    size = 4
    if shape.sources:
        code = word & 255
        args["src0"] = source_or_literal(code, shape.sources[0].dwords, word)
        size += 4 * (code == 255)
    return DecodedFields("e32", args, {}, NO_MODIFIERS, size)


def read_sop2(spec: Spec, word: int, target: str) -> DecodedFields:
    shape = operand_types(spec)
    first, second = word & 255, word >> 8 & 255
    args: dict[str, Operand] = {}
    if shape.result:
        args["sdst"] = scalar(word >> 16 & 127, shape.result.dwords)
    args["src0"] = source_or_literal(first, shape.sources[0].dwords, word)
    args["src1"] = source_or_literal(second, shape.sources[1].dwords, word)
    return DecodedFields("e32", args, {}, NO_MODIFIERS, 8 if 255 in (first, second) else 4)


def read_sopc(spec: Spec, word: int, target: str) -> DecodedFields:
    shape = operand_types(spec)
    first, second = word & 255, word >> 8 & 255
    args: dict[str, Operand] = {"src0": source_or_literal(first, shape.sources[0].dwords, word)}
    if Flag.IMMEDIATE_SRC1 in spec.flags:
        args["src1"] = Imm(second)
        return DecodedFields("e32", args, {}, NO_MODIFIERS, 8 if first == 255 else 4)
    args["src1"] = source_or_literal(second, shape.sources[1].dwords, word)
    return DecodedFields("e32", args, {}, NO_MODIFIERS, 8 if 255 in (first, second) else 4)


def read_sopk(spec: Spec, word: int, target: str) -> DecodedFields:
    shape = operand_types(spec)
    immediate = Imm(word & 0xFFFF)
    if Flag.LITERAL_SOURCE in spec.flags:
        args: dict[str, Operand] = {"simm16": immediate, "src0": Literal(word >> 32)}
        return DecodedFields("e32", args, {}, NO_MODIFIERS, 8)
    count = next((p.type.dwords for p in spec.params if p.name == "sdst"), 1)
    if shape.result:
        count = shape.result.dwords
    register = scalar(word >> 16 & 127, count)
    if spec.control is ControlKind.SETREG:
        return DecodedFields("e32", {"simm16": immediate, "sdst": register}, {})
    return DecodedFields("e32", {"sdst": register, "simm16": immediate}, {})


def read_sopp(spec: Spec, word: int, target: str) -> DecodedFields:
    return DecodedFields("e32", {"simm16": Imm(word & 0xFFFF)} if spec.params else {}, {})


def read_smem(spec: Spec, word: int, target: str) -> DecodedFields:
    flags = spec.flags
    if Flag.BARE in flags:
        return DecodedFields("e32", {}, {}, NO_MODIFIERS, 8)
    data = word >> 6 & 127
    if Flag.CLOCK in flags:
        return DecodedFields("e32", {"sdst": scalar(data, 2)}, {}, NO_MODIFIERS, 8)
    memory = spec.memory
    args: dict[str, Operand] = {}
    if Flag.PROBE in flags:
        args["sdst"] = Imm(data)
    elif memory:
        args["sdst"] = scalar(data, data_dwords(spec, memory))
    buffer = memory.space == "buffer" if memory else Flag.BUFFER in flags
    args["sbase"] = scalar((word & 63) << 1, 4 if buffer else 2)
    mods: dict[str, Any] = {}
    immediate, by_register = word >> 17 & 1, word >> 14 & 1
    offset = word >> 32 & 0x1FFFFF
    if immediate and offset & 0x100000 and not buffer:
        offset -= 0x200000
    if by_register:
        args["soffset"] = scalar(word >> 57, 1)
        if immediate:
            mods["offset"] = offset
    elif immediate:
        args["soffset"] = Imm(offset)
    else:
        args["soffset"] = scalar(offset & 127, 1)
    if word >> 16 & 1:
        mods["glc"] = True
    return DecodedFields("e32", args, mods, NO_MODIFIERS, 8)


def data_dwords(spec: Spec, memory: Memory) -> int:
    """Returns the number of registers of a load's result, or of the data of a store or atomic outside DS."""
    if memory.op == "atomic":
        return sum(p.type.dwords for p in spec.params[1:])
    if memory.format and memory.d16:
        return (memory.count + 1) // 2
    return max(1, memory.bits * memory.count // 32)


def _data_file(word: int, target: str, bit: int) -> str:
    return "a" if word >> bit & 1 and target in UNIFIED else "v"


def _cache_bits(target: str, glc: int, slc: int, scc: int) -> dict[str, Any]:
    """Returns the cache policy bits under their names on the target, in LLVM's order."""
    names = CACHE_NAMES[target]
    return {name: True for name, bit in zip(names, (glc, slc, scc), strict=False) if bit}


def read_ds(spec: Spec, word: int, target: str) -> DecodedFields:
    if word >> 25 & 1 and target not in UNIFIED:
        raise UndefinedBits("this target has no AccVGPR data for DS")
    file = _data_file(word, target, 25)
    fields = tuple(word >> shift & 255 for shift in (32, 40, 48, 56))
    mods: dict[str, Any] = {}
    if spec.memory and spec.memory.stride:
        if word & 255:
            mods["offset0"] = word & 255
        if word >> 8 & 255:
            mods["offset1"] = word >> 8 & 255
    elif word & 0xFFFF:
        mods["offset"] = word & 0xFFFF
    if word >> 16 & 1:
        mods["gds"] = True
    args: dict[str, Operand] = {
        name: vector(fields[number], count, "v" if name == "addr" else file)
        for name, number, count in ds_operands(spec)
    }
    return DecodedFields("e32", args, mods, NO_MODIFIERS, 8)


@cache
def ds_operands(spec: Spec) -> tuple[tuple[str, int, int], ...]:
    """Returns the operands of a DS instruction in printed order: (name, field, number of registers).

    Fields are 0 addr, 1 data0, 2 data1, 3 vdst.
    """
    flags, memory = spec.flags, spec.memory
    if spec.kind == "wave":
        data = [("data0", 1, 1)] if any(p.name == "data0" for p in spec.params) else []
        return (("vdst", 3, 1), ("addr", 0, 1), *data)
    if memory is None:
        if Flag.COUNTER in flags:
            return (("vdst", 3, 1),)
        if Flag.ORDERED in flags:
            return (("vdst", 3, 1), ("addr", 0, 1))
        return (("addr", 0, 1),) if Flag.ONE_DATA in flags else ()
    width = max(1, memory.bits // 32)
    pieces = memory.count if memory.count > 1 else max(0, len(spec.params) - 1)
    if memory.op == "store":
        pieces = memory.count
    operands: list[tuple[str, int, int]] = []
    if memory.op == "load" or memory.returns:
        operands.append(("vdst", 3, width * memory.count))
    if Flag.ADDTID not in flags:
        operands.append(("addr", 0, 1))
    if memory.op != "load" and Flag.SRC2 not in flags:
        operands += [(f"data{i}", 1 + i, width) for i in range(pieces)]
    return tuple(operands)


def read_flat(spec: Spec, word: int, target: str) -> DecodedFields:
    memory = spec.memory
    assert memory is not None
    modern = target in SINCE_GFX942
    # LLVM interprets the AccVGPR bit also on gfx908.
    file = "a" if word >> 55 & 1 else "v"
    cache_bits = _cache_bits(target, word >> 16 & 1, word >> 17 & 1, word >> 25 & 1)
    count = data_dwords(spec, memory)
    args: dict[str, Operand] = {}
    result = memory.op == "load" or (memory.op == "atomic" and word >> 16 & 1)
    to_lds = Flag.LDS_FORM in spec.flags and not modern and word >> 13 & 1
    if result and not memory.lds and not to_lds:
        returned = spec.params[0].type.dwords if memory.op == "atomic" else count
        args["vdst"] = vector(word >> 56, returned, file)
    saddr = word >> 48 & 127
    if memory.space == "flat":
        args["vaddr"] = vector(word >> 32 & 255, 2)
    elif memory.space == "global":
        args["vaddr"] = vector(word >> 32 & 255, 2 if saddr == SADDR_OFF else 1)
    else:
        by_lane = word >> 13 & 1 if modern else saddr == SADDR_OFF
        args["vaddr"] = vector(word >> 32 & 255, 1) if by_lane else OFF
    if memory.op != "load":
        args["vdata"] = vector(word >> 40 & 255, count, file)
    mods: dict[str, Any] = {}
    offset = word & 0x1FFF
    if memory.space == "flat":
        offset &= 0xFFF
    else:
        wide = 1 if memory.space == "scratch" else 2
        args["saddr"] = OFF if saddr == SADDR_OFF else scalar(saddr, wide)
        offset -= (offset & 0x1000) << 1
    if offset:
        mods["offset"] = offset
    mods |= cache_bits
    if to_lds:
        mods["lds"] = True
    return DecodedFields("e32", args, mods, NO_MODIFIERS, 8)


def _buffer_address(word: int, args: dict[str, Operand], mods: dict[str, Any]) -> None:
    offen, idxen = word >> 12 & 1, word >> 13 & 1
    args["vaddr"] = vector(word >> 32 & 255, offen + idxen) if offen or idxen else OFF
    args["srsrc"] = scalar((word >> 48 & 31) << 2, 4)
    args["soffset"] = source(word >> 56, 1)
    if idxen:
        mods["idxen"] = True
    if offen:
        mods["offen"] = True
    if word & 0xFFF:
        mods["offset"] = word & 0xFFF


def read_mubuf(spec: Spec, word: int, target: str) -> DecodedFields:
    memory = spec.memory
    cache_bits = _cache_bits(target, word >> 14 & 1, word >> 17 & 1, word >> 15 & 1)
    if memory is None:
        prints = spec.mnemonic in ("buffer_wbl2", "buffer_inv") and target in SINCE_GFX942
        return DecodedFields("e32", {}, cache_bits if prints else {}, NO_MODIFIERS, 8)
    lds = word >> 16 & 1
    mods: dict[str, Any] = {}
    args: dict[str, Operand] = {}
    if memory.lds:
        _buffer_address(word, args, mods)
        del args["vaddr"]
        return DecodedFields("e32", args, {**mods, "lds": True, **cache_bits}, NO_MODIFIERS, 8)
    if lds and not (Flag.LDS_FORM in spec.flags or (Flag.LDS_FORM_GFX950 in spec.flags and target == "gfx950")):
        raise UndefinedBits(f"{spec.mnemonic} has no LDS form")
    if not lds:
        args["vdata"] = _buffer_data(spec, memory, word, target, mods)
    tfe = mods.pop("tfe", False)
    _buffer_address(word, args, mods)
    mods |= cache_bits
    if tfe:
        mods["tfe"] = True
    if lds:
        mods["lds"] = True
    return DecodedFields("e32", args, mods, NO_MODIFIERS, 8)


def _buffer_data(spec: Spec, memory: Memory, word: int, target: str, mods: dict[str, Any]) -> Reg:
    """Returns the operand vdata. Bit 55 selects AccVGPRs; on gfx908 it is TFE, which adds a status register."""
    count = data_dwords(spec, memory)
    if word >> 55 & 1 and target not in UNIFIED:
        mods["tfe"] = True
        count += 1
    return vector(word >> 40 & 255, count, _data_file(word, target, 55))


def read_mtbuf(spec: Spec, word: int, target: str) -> DecodedFields:
    memory = spec.memory
    assert memory is not None
    mods: dict[str, Any] = {}
    args: dict[str, Operand] = {"vdata": _buffer_data(spec, memory, word, target, mods)}
    tfe = mods.pop("tfe", False)
    mods["format"] = word >> 19 & 127
    _buffer_address(word, args, mods)
    mods |= _cache_bits(target, word >> 14 & 1, word >> 54 & 1, word >> 53 & 1)
    if tfe:
        mods["tfe"] = True
    return DecodedFields("e32", args, mods, NO_MODIFIERS, 8)
