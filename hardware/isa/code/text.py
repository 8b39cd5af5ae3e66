"""Disassembler: text of instructions, as LLVM 22 prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.isa.code import immediates
from simgpu.hardware.isa.code.decode import decode_all
from simgpu.hardware.isa.code.formats import operand_types
from simgpu.hardware.isa.code.operands import operand_text
from simgpu.hardware.isa.instruction import Imm, Instruction, Operand, Reg
from simgpu.hardware.isa.kinds import Encoding, Flag
from simgpu.hardware.isa.swizzle import swizzle
from simgpu.hardware.isa.types import f64
from simgpu.hardware.targets import architecture

SHORT = ("vop1", "vop2", "vopc")
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
# These have two sources, but op_sel[3:2] selects the byte that is written.
BYTE_SELECTED = (
    "v_cvt_sr_fp8_f32",
    "v_cvt_sr_bf8_f32",
    "v_cvt_scalef32_pk_fp4_f16",
    "v_cvt_scalef32_pk_fp4_bf16",
)
OMOD = ("", "mul:2", "mul:4", "div:2")
# Modifiers of memory instructions that have no value, in printed order: before the offsets, and after them.
MEMORY_FLAGS = ("idxen", "offen")
CACHE_FLAGS = ("gds", "glc", "sc0", "slc", "nt", "scc", "sc1", "tfe")
# Printers of simm16: by control kind, and for all others.
IMMEDIATES = {
    "sopp": (immediates.SOPP_IMMEDIATES, immediates.small),
    "sopk": (immediates.SOPK_IMMEDIATES, immediates.hexadecimal),
}


def text(instruction: Instruction) -> str:
    """Returns the text of an instruction, in LLVM's syntax.

    >>> from simgpu.hardware.isa import decode
    >>> text(decode(bytes.fromhex("0203047e"), 0, "gfx942"))
    'v_mov_b32_e32 v2, v2'
    """
    if instruction.target in GFX12:
        from simgpu.hardware.isa.gfx12.text import text as gfx12_text

        return gfx12_text(instruction)
    return PRINTERS[instruction.spec.encoding](instruction)


def disassemble(code: bytes | memoryview, target: str) -> list[tuple[int, str]]:
    """Returns the byte offset and text of every instruction; target: an architecture or a board.

    Raises DecodeError at undefined bytes, TargetError for an unknown target.

    >>> disassemble(bytes.fromhex("000081bf"), "mi300x")
    [(0, 's_endpgm')]
    """
    return [(instruction.offset, text(instruction)) for instruction in decode_all(code, architecture(target))]


def _join(mnemonic: str, operands: Iterable[str], modifiers: Iterable[str] = ()) -> str:
    listed = ", ".join(operand for operand in operands if operand)
    return " ".join(filter(None, (mnemonic, listed, *modifiers)))


def _sop(inst: Instruction) -> str:
    spec = inst.spec
    types = operand_types(spec).sources
    parts = []
    for name, operand in inst.args.items():
        if name == "simm16":
            assert isinstance(operand, Imm)
            table, other = IMMEDIATES[spec.encoding]
            parts.append(table.get(spec.control, other)(operand.value, inst.target))
        elif isinstance(operand, Imm):
            parts.append(immediates.gpr_index(operand.value, inst.target))
        else:
            parts.append(operand_text(operand, types[int(name[3])] if name[:3] == "src" else None))
    return _join(inst.mnemonic, parts)


def _smem(inst: Instruction) -> str:
    parts = []
    for name, operand in inst.args.items():
        if name == "sdst" and isinstance(operand, Imm):
            parts.append(immediates.small(operand.value))
        else:
            parts.append(operand_text(operand))
    modifiers = []
    if "offset" in inst.mods:
        modifiers.append(f"offset:{operand_text(Imm(inst.mods['offset']))}")
    if "glc" in inst.mods:
        modifiers.append("glc")
    return _join(inst.mnemonic, parts, modifiers)


def _memory(inst: Instruction) -> str:
    """Returns the text of an instruction of DS, FLAT, MUBUF or MTBUF."""
    mods = inst.mods
    modifiers = []
    if "format" in mods:
        modifiers.append(immediates.buffer_format(mods["format"]))
    modifiers += [name for name in MEMORY_FLAGS if name in mods]
    for name in ("offset", "offset0", "offset1"):
        if name in mods:
            modifiers.append(f"{name}:{_offset(inst, mods[name])}")
    if "lds" in mods and "vdata" not in inst.args and inst.spec.memory and inst.spec.memory.lds:
        modifiers.append("lds")
    modifiers += [name for name in CACHE_FLAGS if name in mods]
    if "lds" in mods and "lds" not in modifiers:
        modifiers.append("lds")
    return _join(inst.mnemonic, map(operand_text, inst.args.values()), modifiers)


def _offset(inst: Instruction, value: int) -> str:
    return swizzle(value) if inst.mnemonic == "ds_swizzle_b32" else str(value)


def _vector(inst: Instruction) -> str:
    """Returns the text of an instruction of VOP1, VOP2, VOPC or VOP3, in every form."""
    spec, mods = inst.spec, inst.mods
    if "attribute" in mods:
        return _interpolation(inst)
    mnemonic = inst.mnemonic
    if spec.encoding in SHORT and inst.args and (inst.form != "e32" or Flag.NO_E64 not in spec.flags):
        mnemonic = f"{mnemonic}_{inst.form}"
    modifiers: list[str] = []
    if inst.form == "e64":
        modifiers += _op_sel(inst)
        modifiers += [f"{name}:1" for name in ("bound_ctrl", "fi") if name in mods]
        if table := mods.get("bitop3"):
            modifiers.insert(0, f"bitop3:{table if table <= 10 else hex(table)}")
    modifiers += _output(inst)
    if inst.form == "sdwa":
        if "dst_sel" in mods:
            modifiers.append(f"dst_sel:{SELECTS[mods['dst_sel']]}")
            modifiers.append(f"dst_unused:{UNUSED[mods['dst_unused']]}")
        for name in ("src0_sel", "src1_sel"):
            if name in mods:
                modifiers.append(f"{name}:{SELECTS[mods[name]]}")
    if inst.form == "dpp":
        modifiers.append(immediates.dpp(mods["dpp_ctrl"]))
        modifiers.append(f"row_mask:0x{mods['row_mask']:x}")
        modifiers.append(f"bank_mask:0x{mods['bank_mask']:x}")
        if "bound_ctrl" in mods:
            modifiers.append("bound_ctrl:1")
    return _join(mnemonic, _operands(inst), modifiers)


def _output(inst: Instruction) -> list[str]:
    parts = ["clamp"] if "clamp" in inst.mods else []
    if "omod" in inst.mods:
        parts.append(OMOD[inst.mods["omod"]])
    return parts


def _op_sel(inst: Instruction) -> list[str]:
    """Returns the text of op_sel: a bit for each source, then bit 3, that of the destination."""
    bits = inst.mods.get("op_sel", 0)
    count = 3 if inst.mnemonic in BYTE_SELECTED else len(operand_types(inst.spec).sources)
    return _select_bits("op_sel", bits & (1 << count) - 1 | bits >> 3 << count, count + 1)


def _select_bits(name: str, bits: int, width: int, default: int = 0) -> list[str]:
    if bits == default:
        return []
    return [f"{name}:[{','.join(str(bits >> i & 1) for i in range(width))}]"]


def _operands(inst: Instruction) -> list[str]:
    spec = inst.spec
    types = operand_types(spec).sources
    parts = []
    for name, operand in inst.args.items():
        if name.startswith("src"):
            number = int(name[3])
            shown = operand_text(operand, None if spec.mnemonic == "v_ldexp_f16" else types[number])
            parts.append(_with_modifiers(inst, number, operand, shown))
        else:
            parts.append(operand_text(operand))
    return parts


def _with_modifiers(inst: Instruction, number: int, operand: Operand, shown: str) -> str:
    """Returns the text of a source with its sext, abs and neg."""
    modifiers = inst.src_mods
    if modifiers.sext >> number & 1:
        shown = f"sext({shown})"
    negative = modifiers.neg >> number & 1
    if modifiers.abs >> number & 1:
        return f"-|{shown}|" if negative else f"|{shown}|"
    if negative:
        return f"-{shown}" if isinstance(operand, Reg) else f"neg({shown})"
    return shown


def _interpolation(inst: Instruction) -> str:
    mods = inst.mods
    source = inst.args["src0"]
    if isinstance(source, Imm):
        names = ("p10", "p20", "p0")
        first = names[source.value] if source.value < 3 else f"invalid_param_{source.value}"
    else:
        first = _with_modifiers(inst, 0, source, operand_text(source))
    attribute = f"attr{mods['attribute']}.{'xyzw'[mods['channel']]}"
    parts = [operand_text(inst.args["vdst"]), first, attribute]
    if "src2" in inst.args:
        parts.append(_with_modifiers(inst, 2, inst.args["src2"], operand_text(inst.args["src2"])))
    modifiers = ["high"] if "high" in mods else []
    modifiers += _output(inst)
    if inst.mnemonic == "v_interp_p2_f16":
        modifiers += _select_bits("op_sel", mods.get("op_sel", 0), 4)
    return _join(inst.mnemonic, parts, modifiers)


def _packed_modifiers(inst: Instruction) -> str:
    mods, types = inst.mods, operand_types(inst.spec).sources
    count = len(types)
    every = (1 << count) - 1
    mixed = Flag.MIX in inst.spec.flags
    high = 0 if mixed else every
    modifiers = _select_bits("op_sel", mods.get("op_sel", 0), count)
    modifiers += _select_bits("op_sel_hi", mods.get("op_sel_hi", high), count, high)
    parts = [operand_text(inst.args["vdst"])] if "vdst" in inst.args else []
    for i, type_ in enumerate(types):
        operand = inst.args[f"src{i}"]
        shown = operand_text(operand, type_)
        if mixed:
            shown = _mixed_source(mods.get("neg_lo", 0) >> i & 1, mods.get("neg_hi", 0) >> i & 1, operand, shown)
        parts.append(shown)
    if not mixed:
        modifiers += _select_bits("neg_lo", mods.get("neg_lo", 0), count)
        modifiers += _select_bits("neg_hi", mods.get("neg_hi", 0), count)
    return _join(inst.mnemonic, parts, modifiers + _output(inst))


def _mixed_source(negative: int, absolute: int, operand: Operand, shown: str) -> str:
    """Returns the text of a source of mad_mix or fma_mix: neg_lo negates, neg_hi takes the magnitude."""
    if absolute:
        return f"-|{shown}|" if negative else f"|{shown}|"
    if negative:
        return f"-{shown}" if isinstance(operand, Reg) else f"neg({shown})"
    return shown


def _matrix(inst: Instruction) -> str:
    mods = inst.mods
    wide = f64 if Flag.F64 in inst.spec.flags else None
    modifiers = []
    if Flag.SCALED in inst.spec.flags:
        # The instruction has two scales, but the printer counts three sources; the third is always 0.
        modifiers += _select_bits("op_sel", mods.get("op_sel", 0), 3)
        modifiers += _select_bits("op_sel_hi", mods["op_sel_hi"], 3, -1)
    modifiers += [f"{name}:{mods[name]}" for name in ("cbsz", "abid", "blgp") if name in mods]
    modifiers += _select_bits("neg", mods.get("neg", 0), 3)
    parts = [operand_text(operand, wide) for operand in inst.args.values()]
    return _join(inst.mnemonic, parts, modifiers)


PRINTERS: dict[Encoding, Callable[[Instruction], str]] = {
    "sop1": _sop,
    "sop2": _sop,
    "sopc": _sop,
    "sopk": _sop,
    "sopp": _sop,
    "smem": _smem,
    "ds": _memory,
    "flat": _memory,
    "mubuf": _memory,
    "mtbuf": _memory,
    "vop1": _vector,
    "vop2": _vector,
    "vopc": _vector,
    "vop3": _vector,
    "vop3p": _packed_modifiers,
    "mai": _matrix,
}
