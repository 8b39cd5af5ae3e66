"""Disassembler of GFX12: text of instructions, as LLVM 22 prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simgpu.hardware.isa.constants import is_inline
from simgpu.hardware.isa.gfx12 import immediates
from simgpu.hardware.isa.gfx12.operands import operand_text
from simgpu.hardware.isa.gfx12.rows import Field, RowSpec
from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Literal, Operand
from simgpu.hardware.isa.swizzle import swizzle

SCOPES = ("", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
SYSTEM = 3
MATRIX_FORMATS = ("", "MATRIX_FMT_BF8", "MATRIX_FMT_FP6", "MATRIX_FMT_BF6", "MATRIX_FMT_FP4")
SCALE_FORMATS = ("", "MATRIX_SCALE_FMT_E5M3", "MATRIX_SCALE_FMT_E4M3", "3")
OMOD = ("", "mul:2", "mul:4", "div:2")
# Modifiers of matrix instructions, in printed order: names of their values.
MATRIX: dict[str, tuple[str, ...]] = {
    "matrix_a_fmt": MATRIX_FORMATS, "matrix_b_fmt": MATRIX_FORMATS,
    "matrix_a_scale": ("", "MATRIX_SCALE_ROW1"), "matrix_b_scale": ("", "MATRIX_SCALE_ROW1"),
    "matrix_a_scale_fmt": SCALE_FORMATS, "matrix_b_scale_fmt": SCALE_FORMATS,
}  # fmt: skip
REUSE = ("matrix_a_reuse", "matrix_b_reuse")
BUFFER_FLAGS = ("idxen", "offen")


def text(inst: Instruction) -> str:
    """Returns the text of an instruction of GFX12, in LLVM's syntax.

    >>> from simgpu.hardware.isa import decode
    >>> text(decode(bytes.fromhex("9f0f88bf"), 0, "gfx1250"))
    's_wait_alu depctr_va_vdst(0)'
    """
    assert isinstance(inst.spec, RowSpec)
    return PRINTERS[inst.spec.encoding](inst, inst.spec)


def _join(mnemonic: str, operands: Iterable[str], modifiers: Iterable[str] = ()) -> str:
    return " ".join(filter(None, (mnemonic, ", ".join(filter(None, operands)), *modifiers)))


def _kind(spec: RowSpec, name: str) -> str:
    return next((one.kind for one in spec.operands if one.name == name and one.kind), "b")


def _source(inst: Instruction, spec: RowSpec, name: str, operand: Operand) -> str:
    """Returns the text of an operand with its abs and neg."""
    wide = inst.mods.get("literal") == 64
    if name == "k" and isinstance(operand, Literal) and not wide:
        return _constant(operand)
    shown = operand_text(operand, "d" if name == "k" else _kind(spec, name), wide)
    if name[:3] != "src" and name != "vsrc1":
        return shown
    number = int(name[-1])
    return _with_signs(inst, number, operand, shown)


def _constant(operand: Literal) -> str:
    """Returns the text of the constant of a multiply-add, which is always a literal."""
    return f"0x{operand.value:x}"


def _with_signs(inst: Instruction, number: int, operand: Operand, shown: str) -> str:
    signs = inst.src_mods
    negative = signs.neg >> number & 1
    if signs.abs >> number & 1:
        return f"-|{shown}|" if negative else f"|{shown}|"
    return _negate(operand, shown) if negative else shown


def _negate(operand: Operand, shown: str) -> str:
    """Returns the text of a negated source; for numbers, a minus sign would be part of the number."""
    number = isinstance(operand, Literal) or (isinstance(operand, Const) and is_inline(operand.code))
    return f"neg({shown})" if number else f"-{shown}"


def _scalar(inst: Instruction, spec: RowSpec) -> str:
    parts = []
    for name, operand in inst.args.items():
        if name == "simm16":
            assert isinstance(operand, Imm)
            parts.append(immediates.text(spec, operand.value))
        elif name == "k" and spec.encoding == "sopk":
            assert isinstance(operand, Literal)
            parts.append(immediates.small(operand.value))
        else:
            parts.append(_source(inst, spec, name, operand))
    return _join(spec.shown, parts)


def _smem(inst: Instruction, spec: RowSpec) -> str:
    parts = [
        immediates.small(one.value) if name == "sdata" and isinstance(one, Imm) else operand_text(one)
        for name, one in inst.args.items()
    ]
    modifiers = [f"offset:{operand_text(Imm(inst.mods['offset']))}"] if "offset" in inst.mods else []
    return _join(spec.shown, parts, [*modifiers, *_cache_policy(inst, "LOAD")])


def _ds(inst: Instruction, spec: RowSpec) -> str:
    names = ("offset0", "offset1", "offset")
    number = swizzle if spec.mnemonic == "ds_swizzle_b32" else str
    modifiers = [f"{name}:{number(inst.mods[name])}" for name in names if inst.mods.get(name)]
    return _join(spec.shown, map(operand_text, inst.args.values()), modifiers)


def _memory(inst: Instruction, spec: RowSpec) -> str:
    """Returns the text of an instruction of FLAT, VBUFFER or VIMAGE."""
    mods = inst.mods
    modifiers = [name for name in BUFFER_FLAGS if mods.get(name)]
    if mods.get("offset"):
        modifiers.append(f"offset:{mods['offset']}")
    modifiers += ["r128"] if mods.get("r128") else []
    kind = "ATOMIC" if "_atomic_" in spec.mnemonic else "LOAD"
    if "store" in spec.mnemonic or spec.mnemonic in ("tensor_save", "tensor_stop"):
        kind = "STORE"
    modifiers += _cache_policy(inst, kind)
    modifiers += ["tfe"] if mods.get("tfe") else []
    return _join(spec.shown, map(operand_text, inst.args.values()), modifiers)


def _cache_policy(inst: Instruction, kind: str) -> list[str]:
    """Returns the text of scale_offset, th, scope and nv."""
    mods = inst.mods
    shown = ["scale_offset"] if mods.get("scale_offset") else []
    hint, scope = mods.get("th", 0), mods.get("scope", 0)
    if hint:
        shown.append(f"th:{immediates.temporal_hint(kind, hint, scope)}")
    if scope:
        shown.append(f"scope:{SCOPES[scope]}")
    return [*shown, "nv"] if mods.get("nv") else shown


def _vector(inst: Instruction, spec: RowSpec) -> str:
    """Returns the text of an instruction of VOP1, VOP2, VOPC, VOP3 or VOP3P, in every form."""
    mnemonic = spec.shown
    if inst.form.endswith("dpp"):
        mnemonic = spec.mnemonic if spec.encoding == "vopc" else f"{spec.mnemonic}_{inst.form}"
    parts = [_source(inst, spec, name, operand) for name, operand in inst.args.items()]
    return _join(mnemonic, parts, (*_modifiers(inst, spec), *_dpp(inst)))


def _bits(inst: Instruction, name: str, width: int, default: int = 0) -> list[str]:
    value = inst.mods.get(name, 0)
    return [] if value == default else [f"{name}:[{','.join(str(value >> place & 1) for place in range(width))}]"]


def _modifiers(inst: Instruction, spec: RowSpec) -> list[str]:
    mods, count = inst.mods, len(spec.sources)
    shown = [f"{name}:{names[mods[name]]}" for name, names in MATRIX.items() if mods.get(name)]
    if mods.get("bitop3"):
        table = mods["bitop3"]
        shown.append(f"bitop3:{table if table <= 10 else hex(table)}")
    shown += [f"index_key:{mods['index_key']}"] if mods.get("index_key") else []
    shown += [name for name in REUSE if mods.get(name)]
    if spec.selects:
        shown += _selects(inst, spec)
    if "h" in spec.bits:
        packed = "a" not in spec.bits
        shown += _bits(inst, "op_sel_hi", count, (1 << count) - 1 if packed else 0)
    if "L" in spec.bits or "H" in spec.bits:
        width = 3 if spec.kind == "matrix" else count
        shown += _bits(inst, "neg_lo", width) + _bits(inst, "neg_hi", width)
    shown += [f"{name}:{mods[name]}" for name in ("byte_sel", "scale_sel") if mods.get(name)]
    shown += ["clamp"] if mods.get("clamp") else []
    shown += [OMOD[mods["omod"]]] if mods.get("omod") else []
    if not inst.form.endswith("dpp"):
        shown += [f"{name}:1" for name in ("bound_ctrl", "fi") if mods.get(name)]
    return shown


def _selects(inst: Instruction, spec: RowSpec) -> list[str]:
    """Returns the text of op_sel: the bits of the sources, then that of the destination, if the row has it."""
    value, width = inst.mods.get("op_sel", 0), spec.selects
    destination = spec.encoding == "vop3" and spec.bits[6:7] == "s"
    bits = [value >> place & 1 for place in range(width)]
    if destination:
        bits[-1] = value >> 3 & 1
    return [f"op_sel:[{','.join(map(str, bits))}]"] if any(bits) else []


def _dpp(inst: Instruction) -> list[str]:
    mods = inst.mods
    if "dpp8" in mods:
        lanes = ",".join(str(mods["dpp8"] >> 3 * lane & 7) for lane in range(8))
        return [f"dpp8:[{lanes}]", *(["fi:1"] if mods["fi"] else [])]
    if "dpp_ctrl" not in mods:
        return []
    shown = [immediates.dpp(mods["dpp_ctrl"]), f"row_mask:0x{mods['row_mask']:x}", f"bank_mask:0x{mods['bank_mask']:x}"]
    return shown + [f"{name}:1" for name in ("bound_ctrl", "fi") if mods[name]]


def _dual(inst: Instruction, spec: RowSpec) -> str:
    """Returns the text of VOPD: two instructions."""
    names = spec.shown.split(" :: ")
    half = [one for one in spec.operands if not one.name.endswith("y")], [one for one in spec.operands if one.name.endswith("y")]
    shown = []
    for name, operands, end in zip(names, half, ("", "y"), strict=True):
        negative = inst.mods.get("neg" + end, 0)
        parts = [_dual_operand(inst, one, negative, end) for one in operands]
        extra = [f"bitop3:{_table(inst.mods['bitop3'])}"] if "bitop2" in name and inst.mods.get("bitop3") else []
        shown.append(_join(name, parts, extra))
    return " :: ".join(shown)


def _table(value: int) -> str:
    return str(value) if value <= 10 else hex(value)


def _dual_operand(inst: Instruction, one: Field, negative: int, end: str) -> str:
    operand = inst.args[one.name]
    shown = _constant(operand) if isinstance(operand, Literal) and one.name[0] == "k" else operand_text(operand, one.kind or "b")
    place = {"src0": 0, "vsrc1": 1, "vsrc2": 2}.get(one.name.removesuffix("y"))
    if place is None or not negative >> place & 1:
        return shown
    return _negate(operand, shown)


PRINTERS: dict[str, Callable[[Instruction, RowSpec], str]] = {
    **dict.fromkeys(("sop1", "sop2", "sopc", "sopk", "sopp"), _scalar), "smem": _smem, "ds": _ds,
    **dict.fromkeys(("flat", "vbuffer", "vimage"), _memory), "vopd": _dual,
    **dict.fromkeys(("vop1", "vop2", "vopc", "vop3", "vop3p"), _vector),
}  # fmt: skip
