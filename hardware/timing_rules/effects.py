"""Effects of a decoded instruction on registers and counters: its `RegisterUse` and its queue."""

from __future__ import annotations

import contextlib
import functools

from simgpu.hardware import mfma
from simgpu.hardware.architectures import GFX12
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Literal, Operand, Reg
from simgpu.hardware.isa.kinds import GPR_INDEXING, MESSAGES, STATE_BRANCHES, ControlKind, Flag
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import mask
from simgpu.hardware.timing_rules.effect import Effect, LdsUse
from simgpu.hardware.timing_rules.register_use import Register, matrix_classes, register_use
from simgpu.hardware.timing_rules.waits import awaited_counters, queue_of

STATES = ("scc", "vcc", "exec", "m0")  # machine state that hazard rules name
STORE_WORDS_SAFE = 2  # a store of more dwords reads its data late: hazard class store_gt8
# Classes of `hazards` by mnemonic, if they do not follow from the encoding. v_fmac_f64 uses the same unit as v_fma_f64 (LLVM,
# GCNHazardRecognizer::checkMAIVALUHazards).
CLASSES_BY_PREFIX = {
    "v_accvgpr_read": "accvgpr_read", "v_accvgpr_write": "accvgpr_write",
    "v_readlane": "readlane", "v_readfirstlane": "readlane", "v_writelane": "writelane",
    "v_permlane": "permlane_swap", "v_div_fmas": "div_fmas", "v_fma_f64": "fma_f64",
    "v_fmac_f64": "fma_f64", "v_dot": "dot", "s_setreg": "setreg", "s_getreg": "getreg",
    "s_movrel": "movrel",
}  # fmt: skip
SPECIAL_REGISTERS = {
    isa.VCC: "vcc", isa.VCC + 1: "vcc", isa.EXEC: "exec", isa.EXEC + 1: "exec", isa.M0: "m0",
}  # fmt: skip
SPECIAL_SOURCES = {isa.VCCZ: "vcc", isa.EXECZ: "exec", isa.SCC_SOURCE: "scc", isa.LDS_DIRECT: "m0"}
NONE: frozenset[Register] = frozenset()
DWORD = 6  # SDWA's dst_sel for the whole register
PRESERVE = 2  # SDWA's dst_unused that keeps the other bits
HIGH_HALF = 8  # op_sel's bit of the destination
# Mnemonics that choose a byte of the destination by two bits of op_sel (LLVM, isFP8DstSelInst, FP4DstByteSel).
BYTE_SELECT = ("v_cvt_sr_fp8", "v_cvt_sr_bf8", "v_cvt_scalef32")
BYTE = 12
COPIES = ("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64", "s_not_b64")
PACKED_WORDS = ("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32")


def registers_of(operand: Operand | None) -> frozenset[Register]:
    """Returns the single registers of an operand, as the hazard rules name them."""
    if isinstance(operand, Const):
        name = SPECIAL_SOURCES.get(operand.code)
        return frozenset({name}) if name else NONE
    if not isinstance(operand, Reg):
        return NONE
    return _register_range(operand.file, operand.index, operand.count)


@functools.cache
def _register_range(file: str, first: int, count: int) -> frozenset[Register]:
    numbers = range(first, first + count)
    if file == "s":
        return frozenset(SPECIAL_REGISTERS.get(i, ("s", i)) for i in numbers)
    return frozenset((file, i) for i in numbers)


def effect_of(inst: Instruction) -> Effect:
    """Returns the effect of a decoded instruction.

    >>> from simgpu.hardware.isa import decode
    >>> effect_of(decode(bytes.fromhex("0203047e"), 0, "gfx942")).access.writes
    frozenset({('v', 2)})
    """
    spec = inst.spec
    if inst.target in GFX12:
        from simgpu.hardware.timing_rules import gfx12

        return gfx12.effect_of(inst)
    if spec.kind == "matrix":
        return _matrix(inst)
    if spec.kind == "control" and spec.encoding != "ds":
        return _control(inst)
    if spec.encoding == "ds":
        return _ds(inst)
    if spec.encoding == "smem":
        return _smem(inst)
    if spec.memory is not None:
        return _vmem(inst)
    return _alu(inst)


@functools.lru_cache(1 << 14)
def effect_of_code(code: bytes, target: str) -> Effect:
    """Returns the effect of an instruction by its bytes. Kernels repeat most of their instructions.

    >>> effect_of_code(bytes.fromhex("0203047e"), "gfx942").access.writes
    frozenset({('v', 2)})
    """
    return effect_of(decode(code, 0, target))


def lds_use_of(inst: Instruction) -> LdsUse:
    """Returns how an instruction accesses LDS, `Effect.lds`, without the rest of its effect. A flat one counts as none.

    >>> from simgpu.hardware.isa import decode
    >>> lds_use_of(decode(bytes.fromhex("00006cd800000001"), 0, "gfx942"))  # ds_read_b32
    'read'
    """
    memory, control = inst.spec.memory, inst.spec.control
    if inst.spec.encoding == "ds":
        if memory is not None:
            return "read" if memory.op == "load" else "write"
        return "write" if control in (ControlKind.APPEND, ControlKind.CONSUME) else ""
    if memory is None or not _moves_to_lds(inst):
        return ""
    return "write" if memory.op == "load" else "read"


def _moves_to_lds(inst: Instruction) -> bool:
    memory = inst.spec.memory
    return memory is not None and (memory.lds or bool(inst.mods.get("lds")))


def word_sources(inst: Instruction) -> tuple[tuple[Reg, ...], ...]:
    """Returns the registers that each word of the result depends on, if words are computed on their own.

    Empty for other instructions. A packed operation's `op_sel` chooses a word of each source for the low word of the result,
    `op_sel_hi` for the high one. `v_pk_mov_b32` takes the low word from src0, the high word from src1 (CDNA 3 ISA, 7.5).
    A field that `s_bfe` takes from 64 bits may lie in one word.
    """
    sources = [inst.args.get(name) for name in ("src0", "src1", "src2")]
    low, high = inst.mods.get("op_sel", 0), inst.mods.get("op_sel_hi", 7)
    if inst.mnemonic in COPIES:
        chosen = [[(sources[0], word)] for word in range(sources[0].count if isinstance(sources[0], Reg) else 0)]
    elif inst.mnemonic == "v_pk_mov_b32":
        chosen = [[(sources[word], low >> word & 1)] for word in range(2)]
    elif inst.mnemonic in PACKED_WORDS:
        chosen = [[(source, select >> at & 1) for at, source in enumerate(sources)] for select in (low, high)]
    elif inst.mnemonic in ("s_bfe_u64", "s_bfe_i64") and isinstance(sources[1], Literal):
        first, bits = sources[1].value & 63, sources[1].value >> 16 & 127
        chosen = [[(sources[0], word) for word in range(2) if first < 32 * word + 32 and 32 * word < first + bits]] * 2
    else:
        return ()
    return tuple(tuple(source[at] for source, at in word if isinstance(source, Reg)) for word in chosen)


def _operand_registers(inst: Instruction, *names: str) -> frozenset[Register]:
    return NONE.union(*[registers_of(inst.args.get(name)) for name in names])


def _matrix(inst: Instruction) -> Effect:
    row = mfma.find(inst.mnemonic, inst.target)
    with contextlib.suppress(TargetError):  # a reserved format takes the time of the widest
        row = row.with_formats(int(inst.mods.get("cbsz", 0)), int(inst.mods.get("blgp", 0)))
    d = _operand_registers(inst, "vdst")
    reads = {"srcA": _operand_registers(inst, "src0"), "srcB": _operand_registers(inst, "src1")}
    if Flag.SPARSE in inst.spec.flags:
        reads |= {"srcC": d, "index": _operand_registers(inst, "src2")}
    else:
        reads |= {"srcC": _operand_registers(inst, "src2"), "index": _operand_registers(inst, "scale_src0", "scale_src1")}
    return Effect(register_use(inst.mnemonic, matrix_classes(row), reads, d, passes=row.passes))


def _control(inst: Instruction) -> Effect:
    control, spec = inst.spec.control, inst.spec
    immediate = inst.args.get("simm16")
    value = immediate.value if isinstance(immediate, Imm) else 0
    if control is ControlKind.NOP:
        return Effect(register_use(inst.mnemonic, states=(value & 15) + 1))
    classes = set(_prefix_classes(inst.mnemonic))
    tested = STATE_BRANCHES.get(control)
    reads = {"src": _operand_registers(inst, "src0") | ({tested[0]} if tested else NONE)}
    writes = _operand_registers(inst, "sdst")
    if control in (ControlKind.GETREG, ControlKind.SETREG):
        register = frozenset({("hwreg", value & 63)})
        if control is ControlKind.GETREG:
            reads["src"] |= register
        else:
            reads["src"] |= writes
            writes = register
    if control in GPR_INDEXING and control is not ControlKind.SET_GPR_IDX_OFF:
        writes |= {"m0"}
    if control in (ControlKind.MOVRELS, ControlKind.MOVRELD):
        reads["src"] |= {"m0"}
    if control in MESSAGES:
        classes.add("sendmsg")
        reads["src"] |= {"m0"}
    if spec.encoding.startswith("sop"):
        classes.add("salu")
    if spec.encoding == "mubuf":  # cache maintenance
        classes.add("vmem")
    waits = awaited_counters(value) if control is ControlKind.WAITCNT else None
    return Effect(register_use(inst.mnemonic, classes, reads, writes), queue_of(spec), control=control, waits=waits)


@functools.cache
def _prefix_classes(mnemonic: str) -> frozenset[str]:
    return frozenset(name for prefix, name in CLASSES_BY_PREFIX.items() if mnemonic.startswith(prefix))


def _ds(inst: Instruction) -> Effect:
    spec = inst.spec
    result = _operand_registers(inst, "vdst")
    reads = {"address": _operand_registers(inst, "addr"), "data": _operand_registers(inst, "data0", "data1")}
    classes = {"ds"}
    lds = lds_use_of(inst)
    if lds == "write":
        classes.add("ds_write")
    if Flag.ADDTID in spec.flags or spec.control in (ControlKind.APPEND, ControlKind.CONSUME):
        reads["address"] |= {"m0"}
    if Flag.ADDTID in spec.flags:
        classes.add("ds_addtid")
    if inst.mods.get("gds") or spec.control in (ControlKind.GDS, ControlKind.GWS):
        classes.add("gds")
        reads["address"] |= {"m0"}
    return Effect(register_use(inst.mnemonic, classes, reads, result), queue_of(spec), result, lds)


def _smem(inst: Instruction) -> Effect:
    memory = inst.spec.memory
    data = _operand_registers(inst, "sdst", "sdata")
    reads = {"address": _operand_registers(inst, "sbase"), "soffset": _operand_registers(inst, "soffset")}
    returned = data
    if memory is not None and memory.op != "load":
        reads["data"] = data
        glc = memory.op == "atomic" and inst.mods.get("glc")
        returned = data if glc else NONE
    return Effect(register_use(inst.mnemonic, {"smem"}, reads, returned), queue_of(inst.spec), returned)


def _vmem(inst: Instruction) -> Effect:
    """Returns the effect of a buffer, global, flat or scratch instruction."""
    memory, spec = inst.spec.memory, inst.spec
    assert memory is not None
    dma = _moves_to_lds(inst)
    classes = {"vmem"}
    reads = {
        "address": _operand_registers(inst, "vaddr", "saddr") if spec.encoding == "flat" else _operand_registers(inst, "vaddr"),
        "soffset": _operand_registers(inst, "srsrc", "soffset"),
    }
    written = _operand_registers(inst, "vdst")
    if memory.op == "load":
        written |= _operand_registers(inst, "vdata")
    else:
        data = inst.args.get("vdata")
        reads["data"] = registers_of(data)
        classes.add("vmem_store")
        if isinstance(data, Reg) and data.count > STORE_WORDS_SAFE:
            by_register = isinstance(inst.args.get("soffset"), Reg)
            classes.add("store_gt8_soffset" if by_register else "store_gt8")
        returns = memory.op == "atomic" and spec.encoding != "flat" and _returns(inst)
        if returns and isinstance(data, Reg):
            written |= registers_of(data[: max(1, memory.bits // 32)])
    if dma:
        classes.add("lds_dma")
        reads["address"] |= {"m0"}
    return Effect(register_use(inst.mnemonic, classes, reads, written), queue_of(spec), written, lds_use_of(inst), dma)


def _returns(inst: Instruction) -> bool:
    return bool(inst.mods.get("glc") or inst.mods.get("sc0"))


def _alu(inst: Instruction) -> Effect:
    """Returns the effect of a SALU or VALU instruction."""
    spec, args = inst.spec, inst.args
    classes = _alu_classes(spec, inst.form)
    if _partial(inst):
        classes |= {"partial_write"}
    if any(isinstance(operand, Const) and operand.code == isa.LDS_DIRECT for operand in args.values()):
        classes |= {"lds_direct"}
    read, written, also = _alu_state(spec)
    writes = _operand_registers(inst, *_results(spec, "vdst" in args, "vdst1" in args)) | written
    if inst.form == "sdwa" and inst.mods.get("dst_unused") == PRESERVE:
        also |= {"vdst"}
    sources = [name for name in args if name in also or name not in ("vdst", "sdst", "vdst1")]
    reads = {"src": _operand_registers(inst, *sources) | read}
    if "readlane" in classes or "writelane" in classes:
        reads["lane_select"] = _operand_registers(inst, "src1")
    if "dot" in classes:
        reads |= {
            "srcA": _operand_registers(inst, "src0"),
            "srcB": _operand_registers(inst, "src1"),
            "srcC": _operand_registers(inst, "src2"),
        }
        if "vdst" in also:
            reads["srcC"] |= _operand_registers(inst, "vdst")
        reads["src"] = read
    return Effect(register_use(inst.mnemonic, classes, reads, writes))


@functools.cache
def _alu_classes(spec: Spec, form: str) -> frozenset[str]:
    """Returns the classes that a SALU or VALU instruction has by its mnemonic and form."""
    classes = {"salu" if spec.encoding.startswith("sop") else "valu"} | _prefix_classes(spec.mnemonic)
    if spec.mnemonic.startswith("v_") and Flag.TRANS in spec.flags:
        classes.add("trans")
    if form == "dpp":
        classes.add("dpp")
    return frozenset(classes)


@functools.cache
def _alu_state(spec: Spec) -> tuple[frozenset[Register], frozenset[Register], frozenset[str]]:
    """Returns a SALU or VALU instruction's machine state read, that written, and the destinations that it also reads."""
    read = frozenset(p.type.state for p in spec.params if p.type.state in STATES)
    written = frozenset(t.state for t in spec.results if t.state in STATES)
    if Flag.CMPX in spec.flags:
        written |= {"exec"}
    return read, written, frozenset(p.name for p in spec.params if p.name in ("vdst", "sdst"))


@functools.cache
def _results(spec: Spec, vdst: bool, vdst1: bool) -> tuple[str, ...]:
    """Returns the fields that a SALU or VALU instruction writes; vdst, vdst1: True if it has fields of these names."""
    names: list[str] = []
    plain = [t for t in spec.results if t is not mask and t.state in ("", "sgpr")]
    if plain:
        names.append("vdst" if vdst else "sdst")
    if len(plain) > 1:  # v_swap_b32, v_permlane16_swap_b32: back to the source
        names.append("vdst1" if vdst1 else "src0")
    if any(t is mask for t in spec.results) and "sdst" not in names:
        names.append("sdst")
    return tuple(names)


def _partial(inst: Instruction) -> bool:
    """True if the instruction writes only part of a VGPR, by a selection of the destination."""
    if inst.form == "sdwa":
        return "vdst" in inst.args and inst.mods.get("dst_sel", DWORD) != DWORD
    select = BYTE if inst.mnemonic.startswith(BYTE_SELECT) else HIGH_HALF
    return inst.form == "e64" and inst.spec.encoding != "vop3p" and bool(inst.mods.get("op_sel", 0) & select)
