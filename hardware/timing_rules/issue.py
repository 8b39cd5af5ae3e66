"""Issue of instructions, for the timing model: the unit of a CU that an instruction uses, and for how many clocks.

Sources, by tag: [RPC] ROCm Compute Profiler, "Pipeline descriptions"; [SIS] LLVM SISchedule.td; [CALC] AMD Matrix Instruction
Calculator; [GLUON] ROCm/gfx950-gluon-tutorials, attention study; [ISA] the ISA guides;
[HAZ] LLVM GCNHazardRecognizer, hasTransForwardingHazard.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import CLOCKS_PER_PASS
from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind, Flag
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.hardware.timing_rules.waits import LIMITS, SMEM, awaited_counters

SLOT = 4  # clocks between two turns of a SIMD [RPC]


class Unit(IntEnum):
    """Units for which instructions wait. A SIMD issues at most one instruction of each of the first six per slot [RPC]."""

    VALU = 0
    MATRIX = 1  # issues through the VALU's port [CALC]
    SCALAR = 2  # SALU and SMEM
    VMEM = 3
    LDS = 4
    BRANCH = 5
    ALONE = 6  # VALU that does not fit into a matrix instruction's shadow
    TRANS = 7  # transcendentals beside the VALU, which issue through its port [HAZ]
    NONE = 8  # s_nop, s_waitcnt and the like take their wave's turn and no unit [ISA]


VECTOR_UNITS = (Unit.VALU, Unit.ALONE, Unit.TRANS)


class Kind(IntEnum):
    """Kinds of instructions that the scheduler distinguishes."""

    PLAIN = 0
    MATRIX = 1
    SMEM = 2
    VMEM = 3
    LDS = 4
    BRANCH = 5
    WAIT = 6
    BARRIER = 7
    SLEEP = 8
    PRIORITY = 9
    END = 10


# Products of 32-bit integers, four slots on gfx908; later targets have multipliers of f64 at full rate [SIS: WriteIntMul].
INTEGER_PRODUCTS = ("v_mul_lo_", "v_mul_hi_", "v_mad_u64_u32", "v_mad_i64_i32")
# f64 on gfx908: half rate for additions, a quarter for the others [SIS].
F64_GFX908 = {"v_add_f64": 2, "v_min_f64": 2, "v_max_f64": 2}
TRANS_SLOTS = {"gfx908": 4, "gfx90a": 4, "gfx942": 4, "gfx950": 2}  # [SIS]; v_exp_f32 on gfx950 measured 8 clocks [GLUON]
# Targets whose VALU goes on while a transcendental is computed. There the next instruction must not read the result, as that comes
# later than other results [HAZ]. gfx950 has this rule too, but the 8 clocks measured there fit its attention as clocks of the VALU.
TRANS_BESIDE = ("gfx942",)
STREAMED = ("slc", "nt")  # modifiers by which an access asks L2 for its stream policy [ISA]
COHERENT = ("glc", "sc1")  # modifiers by which the vector or scalar cache does not serve a load [ISA]; `sc1` from gfx942 on
SLEEP_CLOCKS = 64  # of each unit of s_sleep's argument [ISA]


@dataclass(frozen=True)
class Issue:
    """An instruction as a compute unit's scheduler sees it."""

    unit: Unit
    kind: Kind = Kind.PLAIN
    clocks: int = SLOT  # clocks for which it occupies its unit, or its wave if it has no unit
    shadow: int = 0  # of a matrix instruction, or of one of unit TRANS: clocks until VALU may follow
    lane_bytes: int = 0  # bytes of a lane, of a memory access
    store: bool = False  # True for a store
    atomic: bool = False  # True for an atomic
    stream: bool = False  # True if L2 replaces its lines first: slc or nt
    coherent: bool = False  # True if L2 serves it even if a cache before L2 has its lines: glc or sc1
    dma: bool = False  # True if it moves data between memory and LDS
    vm: int = -1  # vmcnt of an s_waitcnt; -1: none
    lgkm: int = -1  # lgkmcnt of an s_waitcnt; -1: none
    counts_vm: bool = False  # True if it raises vmcnt
    counts_lgkm: bool = False  # True if it raises lgkmcnt
    value: int = 0  # priority, of s_setprio


def issue_of(inst: Instruction) -> Issue:
    """Returns how an instruction issues on its target.

    >>> from simgpu.hardware.isa import decode
    >>> issue_of(decode(bytes.fromhex("0203047e"), 0, "gfx942")).unit.name
    'VALU'
    """
    spec = inst.spec
    if spec.kind == "matrix":
        return _matrix(inst)
    if spec.kind == "control" and spec.encoding != "ds":
        return _control(inst)
    memory = spec.memory
    if spec.encoding == "smem":
        atomic = memory is not None and memory.op == "atomic"
        return Issue(Unit.SCALAR, Kind.SMEM, atomic=atomic, coherent=_coherent(inst), counts_lgkm=memory is not None)
    if spec.encoding == "ds":
        nbytes = 4 if memory is None else memory.bits * memory.count // 8
        store = memory is None or memory.op != "load"
        return Issue(Unit.LDS, Kind.LDS, lane_bytes=nbytes, store=store, counts_lgkm=True)
    if memory is not None:
        effect = effect_of(inst)
        counts = effect.queue.counters if effect.queue else ()
        return Issue(
            Unit.VMEM, Kind.VMEM, lane_bytes=max(1, memory.bits * memory.count // 8), store=memory.op == "store",
            atomic=memory.op == "atomic", stream=any(inst.mods.get(name) for name in STREAMED),
            coherent=memory.op == "load" and _coherent(inst), dma=effect.dma, counts_vm="vmcnt" in counts,
            counts_lgkm="lgkmcnt" in counts,
        )  # fmt: skip
    if spec.encoding.startswith("sop"):
        return Issue(Unit.SCALAR)
    return _vector(inst)


def _coherent(inst: Instruction) -> bool:
    return any(inst.mods.get(name) for name in COHERENT)


def _matrix(inst: Instruction) -> Issue:
    row = mfma.find(inst.mnemonic, inst.target)
    if Flag.F8F6F4 in inst.spec.flags:
        row = row.with_formats(int(inst.mods.get("cbsz", 0)), int(inst.mods.get("blgp", 0)))
    clocks = row.passes * CLOCKS_PER_PASS
    delay = CLOCKS_PER_PASS if row.coexec_delay is None else row.coexec_delay
    return Issue(Unit.MATRIX, Kind.MATRIX, clocks, shadow=clocks if delay < 0 else max(SLOT, delay))


def _vector(inst: Instruction) -> Issue:
    name, target = inst.mnemonic, inst.target
    slots = 1
    if Flag.TRANS in inst.spec.flags:
        slots = TRANS_SLOTS[target] * (2 if "f64" in name else 1)
        if target in TRANS_BESIDE:
            return Issue(Unit.TRANS, clocks=SLOT * slots, shadow=SLOT)
    elif target == "gfx908" and name.startswith(INTEGER_PRODUCTS):
        slots = 4
    elif target == "gfx908" and "f64" in name:
        slots = next((count for prefix, count in F64_GFX908.items() if name.startswith(prefix)), 4)
    # Packed f32 and f64 arithmetic waits for the matrix unit's end [GLUON][CALC].
    wide = (name.startswith("v_pk_") and "f32" in name) or ("f64" in name and target != "gfx908")
    return Issue(Unit.ALONE if wide else Unit.VALU, clocks=SLOT * slots)


BRANCHES = {
    ControlKind.BRANCH, *CONDITIONAL_BRANCHES, ControlKind.GETPC, ControlKind.SETPC, ControlKind.SWAPPC, ControlKind.CALL,
}  # fmt: skip


def _control(inst: Instruction) -> Issue:
    control = inst.spec.control
    immediate = inst.args.get("simm16")
    value = immediate.value if isinstance(immediate, Imm) else 0
    if control is ControlKind.WAITCNT:
        counts = awaited_counters(value)
        return Issue(Unit.NONE, Kind.WAIT, vm=counts.get("vmcnt", -1), lgkm=counts.get("lgkmcnt", -1))
    if control is ControlKind.NOP:
        return Issue(Unit.NONE, clocks=SLOT * ((value & 15) + 1))
    if control is ControlKind.BARRIER:
        return Issue(Unit.NONE, Kind.BARRIER)
    if control is ControlKind.SLEEP:
        return Issue(Unit.NONE, Kind.SLEEP, SLOT + SLEEP_CLOCKS * (value & 127))
    if control is ControlKind.SETPRIO:
        return Issue(Unit.NONE, Kind.PRIORITY, value=value & 3)
    if inst.mnemonic.startswith("s_endpgm"):
        return Issue(Unit.NONE, Kind.END)
    if control in BRANCHES:
        return Issue(Unit.BRANCH, Kind.BRANCH)
    if inst.spec.encoding in ("mubuf", "flat"):  # cache maintenance
        return Issue(Unit.VMEM, Kind.VMEM, counts_vm=True)
    if inst.spec.encoding == "smem":
        effect = effect_of(inst)
        return Issue(Unit.SCALAR, Kind.SMEM, counts_lgkm=effect.queue is SMEM)
    return Issue(Unit.SCALAR)


MOST_VM, MOST_LGKM = LIMITS["vmcnt"] + 1, LIMITS["lgkmcnt"] + 1  # most operations in flight that the counters can count
