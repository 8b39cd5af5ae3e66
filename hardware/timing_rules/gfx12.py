"""Effects of GFX12's instructions: registers of wave32, counters, and the operands whose numbers `s_set_vgpr_msb` extends.

Sources: CDNA5 ISA guide, 5.7 (waits), 5.6 (barriers), 10.8 (asynchronous loads), 10.11 (tensors); LLVM's SIInsertWaitcnts, whose
table of events by counter this follows, and AMDGPUBaseInfo, `getVGPRLoweringOperandTables`, for the high bits of VGPR numbers.
gfx1250 has no samplecnt, bvhcnt or export: LLVM 22 has no opcode for any of them.
"""

from __future__ import annotations

import functools

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.gfx12.immediates import wait_alu_counts
from simgpu.hardware.isa.gfx12.rows import RowSpec
from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Operand, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.effect import Effect, LdsUse
from simgpu.hardware.timing_rules.register_use import Register, register_use
from simgpu.hardware.timing_rules.waits import WaitQueue

NONE: frozenset[Register] = frozenset()
LOAD = WaitQueue("load", ("loadcnt",), True)
STORE = WaitQueue("store", ("storecnt",), True)
DS = WaitQueue("ds", ("dscnt",), True)
FLAT_LOAD = WaitQueue("flat", ("loadcnt", "dscnt"), False)
FLAT_STORE = WaitQueue("flat store", ("storecnt", "dscnt"), False)
SCALAR = WaitQueue("smem", ("kmcnt",), False)
ASYNC = WaitQueue("async", ("asynccnt",), True)
TENSOR = WaitQueue("tensor", ("tensorcnt",), True)
VALU_ENCODINGS = ("vop1", "vop2", "vopc", "vop3", "vop3p", "vopd")
SPECIAL = {isa.VCC: "vcc", isa.EXEC: "exec", isa.M0: "m0"}  # VCC and EXEC of wave32 are one register each
SPECIAL_SOURCES = {isa.VCCZ: "vcc", isa.EXECZ: "exec", isa.SCC_SOURCE: "scc"}
VGPRS_OF_NUMBER = 256  # VGPRs that an 8-bit number reaches
# Fields whose VGPR numbers the four pairs of bits of s_set_vgpr_msb extend, by encoding: the pair's number. The scales of a
# matrix instruction have none.
VALU_SLOTS = {"src0": 0, "src1": 1, "vsrc1": 1, "src2": 2, "vsrc2": 2, "vdst": 3}
SLOTS = {
    **dict.fromkeys(VALU_ENCODINGS, VALU_SLOTS),
    "ds": {"addr": 0, "data0": 1, "data1": 2, "vdst": 3},
    "flat": {"vaddr": 0, "vdata": 1, "vdst": 3},
    "vbuffer": {"vaddr": 0, "vdata": 3},
}  # fmt: skip
MIDDLE_LITERAL = "fmamk"  # the literal has slot 1, so vsrc1 has slot 2
DESTINATIONS = ("vdst", "sdst", "vcc")
# Instructions that also read their destination, by the start of their name.
ACCUMULATE = ("v_fmac_", "v_pk_fmac_", "v_dual_fmac_", "v_dual_dot2acc_", "v_swmmac_", "v_writelane_", "s_fmac_", "s_bitset")
EXCHANGE = ("v_swap", "v_permlane16_swap")  # also write src0, and read vdst
TRANS = (
    "v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_tanh_", "v_s_exp_", "v_s_log_", "v_s_rcp_",
    "v_s_rsq_", "v_s_sqrt_", "v_prng_",
)  # fmt: skip
# Scalar instructions by the start of their name: those that write SCC, and those that read it.
WRITES_SCC = (
    "s_add_co_", "s_sub_co_", "s_addk_co_", "s_absdiff_", "s_lshl", "s_lshr_", "s_ashr_", "s_min_i", "s_min_u", "s_max_i",
    "s_max_u", "s_and_", "s_or_", "s_xor_", "s_nand_", "s_nor_", "s_xnor_", "s_bfe_", "s_cmp_", "s_bitcmp", "s_not_", "s_abs_",
    "s_bcnt", "s_quadmask_", "s_wqm_", "s_barrier_signal_isfirst", "s_alloc_vgpr",
)  # fmt: skip
READS_SCC = ("s_cselect_", "s_cmov", "s_add_co_ci_", "s_sub_co_ci_")
WRITES_EXEC = ("v_cmpx_",)
EXEC_SCALARS = ("saveexec", "wrexec")
COUNTER_NAMES = ("loadcnt", "storecnt", "dscnt", "kmcnt", "asynccnt", "tensorcnt", "xcnt")


def effect_of(inst: Instruction, high: int | None = 0) -> Effect:
    """Returns the effect of an instruction of GFX12.

    high: the low byte of the s_set_vgpr_msb in effect; None if it is unknown: then the effect has no VGPRs

    >>> from simgpu.hardware.isa import decode
    >>> effect_of(decode(bytes.fromhex("0203047e"), 0, "gfx1250"), high=0x40).access.writes
    frozenset({('v', 258)})
    """
    spec = inst.spec
    assert isinstance(spec, RowSpec)
    if spec.encoding in VALU_ENCODINGS:
        return _valu(inst, spec, high)
    if spec.control is not ControlKind.NONE:
        return _control(inst, spec)
    if spec.encoding.startswith("sop"):
        return _scalar(inst, spec)
    return _memory(inst, spec, high)


def registers_of(operand: Operand | None) -> frozenset[Register]:
    """Returns the single registers of an operand."""
    if isinstance(operand, Const):
        name = SPECIAL_SOURCES.get(operand.code)
        return frozenset({name}) if name else NONE
    return _registers(operand.file, operand.index, operand.count) if isinstance(operand, Reg) else NONE


@functools.cache
def _registers(file: str, first: int, count: int) -> frozenset[Register]:
    if file == "s":
        return frozenset(SPECIAL.get(number, ("s", number)) for number in range(first, first + count))
    return frozenset((file, number) for number in range(first, first + count))


@functools.cache
def _halves(spec: RowSpec) -> frozenset[str]:
    return frozenset(field.name for field in spec.operands if field.half)


def _operand(inst: Instruction, spec: RowSpec, name: str, high: int | None) -> frozenset[Register]:
    """Returns the registers of an operand, with the high bits of VGPR numbers."""
    operand = inst.args.get(name)
    if not isinstance(operand, Reg) or operand.file != "v":
        return registers_of(operand)
    if high is None:
        return NONE
    field = name.removesuffix("y") if spec.encoding == "vopd" else name
    slot = SLOTS.get(spec.encoding, {}).get(field)
    if slot == 1 and field == "vsrc1" and MIDDLE_LITERAL in spec.mnemonic:
        slot = 2
    index = operand.index & 127 if name in _halves(spec) and inst.form in ("e32", "dpp", "") else operand.index
    extra = 0 if slot is None else high >> 2 * slot & 3
    return _registers("v", index + VGPRS_OF_NUMBER * extra, operand.count)


def _valu(inst: Instruction, spec: RowSpec, high: int | None) -> Effect:
    reads, writes = NONE, NONE
    name = spec.mnemonic
    seen_source = False
    for field in inst.args:
        registers = _operand(inst, spec, field, high)
        seen_source = seen_source or field.startswith("src")
        if field.removesuffix("y") in DESTINATIONS and not (field == "vcc" and seen_source):
            writes |= registers
            if name.startswith((*ACCUMULATE, *EXCHANGE)):
                reads |= registers
        else:
            reads |= registers
            if name.startswith(EXCHANGE):
                writes |= registers
    if "v_div_fmas" in name or ("v_dual_cndmask" in name and "mask" not in inst.args and "masky" not in inst.args):
        reads |= {"vcc"}
    if name.startswith(WRITES_EXEC):
        writes |= {"exec"}
    if "movrel" in name:
        reads |= {"m0"}
    return Effect(register_use(name, _pipes(spec), {"src": reads}, writes, states=2 if _is_scaled(spec) else 1))


def _is_scaled(spec: RowSpec) -> bool:
    """True for a matrix instruction with scales: it counts twice on va_vdst (LLVM, pull request 196353)."""
    return any(field.name.startswith("scale_") for field in spec.operands)


@functools.cache
def _pipes(spec: RowSpec) -> frozenset[str]:
    """Returns the classes of a vector ALU instruction. Different pipelines complete out of order."""
    if spec.kind == "matrix":
        return frozenset({"valu", "xdl"})
    if spec.mnemonic.startswith(TRANS):
        return frozenset({"valu", "trans"})
    return frozenset({"valu"})


def _control(inst: Instruction, spec: RowSpec) -> Effect:
    immediate = inst.args.get("simm16")
    value = immediate.value if isinstance(immediate, Imm) else 0
    reads, writes, pending = registers_of(inst.args.get("src0")), registers_of(inst.args.get("sdst")), NONE
    waits = None
    queue = None
    if spec.control is ControlKind.WAIT_ALU:
        waits = wait_alu_counts(value)
    elif spec.control is ControlKind.WAITCNT:
        waits = wait_counts(spec.mnemonic, value)
    elif spec.control is ControlKind.SETREG:
        reads, writes = writes, frozenset({("hwreg", value & 63)})
    elif spec.control is ControlKind.GETREG:
        reads |= {("hwreg", value & 63)}
    elif spec.control in STATE_BRANCHES:
        reads |= {STATE_BRANCHES[spec.control][0]}
    elif spec.mnemonic == "s_barrier_signal_isfirst":
        queue, pending, writes = SCALAR, frozenset({"scc"}), frozenset({"scc"})
    return Effect(
        register_use(spec.mnemonic, {"salu"}, {"src": reads}, writes), queue, pending, control=spec.control, waits=waits,
    )  # fmt: skip


def wait_counts(mnemonic: str, value: int) -> dict[str, int]:
    """Returns the counters that an s_wait_* waits for.

    >>> wait_counts("s_wait_loadcnt_dscnt", 0x0102), wait_counts("s_wait_asynccnt", 4)
    ({'loadcnt': 1, 'dscnt': 2}, {'asynccnt': 4})
    """
    if mnemonic == "s_wait_idle":
        return dict.fromkeys((*COUNTER_NAMES, "va_vdst", "vm_vsrc"), 0)
    names = mnemonic.removeprefix("s_wait_").split("_")
    if len(names) == 2:
        return {names[0]: value >> 8 & 63, names[1]: value & 63}
    return {name: value & 63 for name in names if name in COUNTER_NAMES}


def _scalar(inst: Instruction, spec: RowSpec) -> Effect:
    name = spec.mnemonic
    reads = NONE.union(*(registers_of(operand) for field, operand in inst.args.items() if field not in ("sdst", "k")))
    writes = registers_of(inst.args.get("sdst"))
    if name.startswith(ACCUMULATE):
        reads |= writes
    if name.startswith(READS_SCC):
        reads |= {"scc"}
    if name.startswith(WRITES_SCC):
        writes |= {"scc"}
    if any(word in name for word in EXEC_SCALARS):
        reads, writes = reads | {"exec"}, writes | {"exec"}
    if "movrel" in name:
        reads |= {"m0"}
    answered = name.startswith(("s_sendmsg_rtn", "s_get_barrier_state"))
    return Effect(register_use(name, {"salu"}, {"src": reads}, writes), SCALAR if answered else None, writes if answered else NONE)


def _memory(inst: Instruction, spec: RowSpec, high: int | None) -> Effect:
    memory, name = spec.memory, spec.mnemonic
    queue = queue_of(spec, inst)
    if spec.encoding == "smem":
        data = registers_of(inst.args.get("sdst"))
        reads = registers_of(inst.args.get("sbase")) | registers_of(inst.args.get("soffset"))
        return Effect(register_use(name, {"smem"}, {"address": reads}, data), queue, data)
    addresses = memory is not None and memory.lds  # the field of the result has the LDS address
    returned = spec.encoding == "vbuffer" and memory is not None and memory.op == "load"
    written = NONE
    if not addresses:
        written = _operand(inst, spec, "vdata" if returned else "vdst", high)
    if spec.encoding == "vbuffer" and spec.returned and inst.mods.get("th", 0) & 1:
        written = _operand(inst, spec, "vdata", high)
    reads = NONE
    for field in inst.args:
        if not (field == "vdst" and not addresses) and not (field == "vdata" and returned):
            reads |= _operand(inst, spec, field, high)
    classes = {"ds"} if spec.encoding == "ds" else {"vmem"}
    if queue in (STORE, FLAT_STORE):
        classes |= {"vmem_store"}
    if "addtid" in name:
        reads |= {"m0"}
    dma = addresses
    return Effect(register_use(name, classes, {"address": reads}, written), queue, written, _lds(spec), dma)


def _lds(spec: RowSpec) -> LdsUse:
    memory = spec.memory
    if memory is None or not (spec.encoding == "ds" or memory.lds):
        return ""
    if memory.lds:
        return "write" if memory.op == "load" else "read"
    return "read" if memory.op == "load" else "write"


def queue_of(spec: RowSpec, inst: Instruction) -> WaitQueue | None:
    """Returns the queue of a memory instruction; None if no counter counts it."""
    memory = spec.memory
    if spec.encoding == "smem":
        return SCALAR if memory else None
    if spec.encoding == "ds":
        return ASYNC if "_async_" in spec.mnemonic else DS
    if spec.mnemonic.startswith("tensor_"):
        return TENSOR if memory else None
    if memory is None:
        return {"global_inv": LOAD, "global_wb": STORE, "global_wbinv": STORE}.get(spec.mnemonic)
    if memory.lds:
        return ASYNC
    loads = memory.op == "load" or (memory.op == "atomic" and bool(inst.mods.get("th", 0) & 1))
    if memory.space == "flat":
        return FLAT_LOAD if loads else FLAT_STORE
    return LOAD if loads else STORE
