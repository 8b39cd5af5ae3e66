"""Closed lists of the values in a `Spec`: its encoding, the kind of its body, its control action and its flags."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Encoding = Literal[
    "sop1", "sop2", "sopk", "sopc", "sopp", "smem",
    "vop1", "vop2", "vopc", "vop3", "vop3p", "mai",
    "ds", "flat", "mubuf", "mtbuf",
    "vopd", "vbuffer", "vimage",
]  # fmt: skip
BodyKind = Literal["lane", "wave", "memory", "control", "matrix"]
Space = Literal["ds", "flat", "global", "scratch", "buffer", "tbuffer", "smem"]
Operation = Literal["load", "store", "atomic"]


class ControlKind(StrEnum):
    """Effects of instructions without a body: `Spec.control`."""

    NONE = ""  # not a control instruction
    # Flow.
    BRANCH = "branch"  # to the next instruction's address plus 4·simm16
    CBRANCH_SCC0 = "cbranch_scc0"  # the same if SCC is 0
    CBRANCH_SCC1 = "cbranch_scc1"  # if SCC is 1
    CBRANCH_VCCZ = "cbranch_vccz"  # if VCC is 0
    CBRANCH_VCCNZ = "cbranch_vccnz"  # if VCC is not 0
    CBRANCH_EXECZ = "cbranch_execz"  # if EXEC is 0
    CBRANCH_EXECNZ = "cbranch_execnz"  # if EXEC is not 0
    CBRANCH_CDBGSYS = "cbranch_cdbgsys"  # if a system debugger requests it
    CBRANCH_CDBGUSER = "cbranch_cdbguser"  # if a user's debugger does
    CBRANCH_CDBGSYS_OR_USER = "cbranch_cdbgsys_or_user"  # if either does
    CBRANCH_CDBGSYS_AND_USER = "cbranch_cdbgsys_and_user"  # if both do
    CBRANCH_I_FORK = "cbranch_i_fork"  # fork to an immediate distance, with the branch stack
    CBRANCH_G_FORK = "cbranch_g_fork"  # fork to an address in SGPRs
    CBRANCH_JOIN = "cbranch_join"  # end of a fork
    CALL = "call"  # branch, the return address into SGPRs
    GETPC = "getpc"  # the next instruction's address into SGPRs
    SETPC = "setpc"  # jump to an address in SGPRs
    SWAPPC = "swappc"  # the same, the return address into SGPRs
    ADDPC = "addpc"  # jump by a distance in bytes from the next instruction
    RFE = "rfe"  # return from the trap handler
    TRAP = "trap"  # enter the trap handler
    ENDPGM = "endpgm"  # end of the wave
    ENDPGM_SAVED = "endpgm_saved"  # end of a wave whose context was saved
    ENDPGM_ORDERED_PS_DONE = "endpgm_ordered_ps_done"  # end of an ordered pixel shader
    # Waiting and signalling.
    NOP = "nop"  # wait states
    WAITCNT = "waitcnt"  # until counters of outstanding operations are low enough
    WAIT_ALU = "wait_alu"  # until instructions of the vector or scalar ALU, or reads of their operands, are done
    BARRIER = "barrier"  # until all waves of the workgroup have reached it, or signalled it if its halves are separate
    BARRIER_SIGNAL = "barrier_signal"  # reaches a barrier without waiting for it
    BARRIER_LEAVE = "barrier_leave"  # leaves a named barrier
    SLEEP = "sleep"  # for about 64·simm16 clocks
    WAKEUP = "wakeup"  # ends the sleep of the workgroup's other waves
    SENDMSG = "sendmsg"  # a message to the host or the rest of the chip
    SENDMSGHALT = "sendmsghalt"  # as SENDMSG, then halt
    SETHALT = "sethalt"  # halt or resume the wave
    SETKILL = "setkill"  # end the wave at its next instruction
    SETPRIO = "setprio"  # the wave's priority at issue
    # Machine state.
    GETREG = "getreg"  # a field of a hardware register into an SGPR
    SETREG = "setreg"  # an SGPR or literal into a field of a hardware register
    MOVRELS = "movrels"  # the SGPR M0 places after the source
    MOVRELD = "movreld"  # into the SGPR M0 places after the destination
    SET_GPR_IDX_ON = "set_gpr_idx_on"  # VGPR indexing on, with an index and the indexed operands
    SET_GPR_IDX_OFF = "set_gpr_idx_off"  # VGPR indexing off
    SET_GPR_IDX_MODE = "set_gpr_idx_mode"  # the operands of VGPR indexing
    SET_GPR_IDX_IDX = "set_gpr_idx_idx"  # the index
    SET_VGPR_MSB = "set_vgpr_msb"  # the high bits of VGPR numbers in the instructions that follow
    SETVSKIP = "setvskip"  # skip vector instructions, or stop skipping
    LD_SCALE = "ld_scale"  # the scales of the matrix instruction that follows
    # Caches and counters.
    DCACHE = "dcache"  # scalar data cache: invalidate, write back, probe
    CACHE = "cache"  # vector L1 and L2: invalidate, write back
    ICACHE_INV = "icache_inv"  # invalidate the instruction cache
    INCPERFLEVEL = "incperflevel"  # increment a performance counter
    DECPERFLEVEL = "decperflevel"  # decrement a performance counter
    TTRACEDATA = "ttracedata"  # M0 into the thread trace
    APPEND = "append"  # increase a counter in LDS by the number of active lanes
    CONSUME = "consume"  # decrease it by that number
    GDS = "gds"  # an ordered count in global data share
    GWS = "gws"  # a global wave sync semaphore or barrier
    UNSUPPORTED = "unsupported"  # an instruction that compute kernels do not use


# Conditional branches on machine state: its name, and True if they are taken when it is not 0, False when it is 0.
STATE_BRANCHES = {
    ControlKind.CBRANCH_SCC0: ("scc", False),
    ControlKind.CBRANCH_SCC1: ("scc", True),
    ControlKind.CBRANCH_VCCZ: ("vcc", False),
    ControlKind.CBRANCH_VCCNZ: ("vcc", True),
    ControlKind.CBRANCH_EXECZ: ("exec", False),
    ControlKind.CBRANCH_EXECNZ: ("exec", True),
}
DEBUGGER_BRANCHES = frozenset(kind for kind in ControlKind if kind.startswith("cbranch_cdbg"))
CONDITIONAL_BRANCHES = frozenset(kind for kind in ControlKind if kind.startswith("cbranch_"))
GPR_INDEXING = frozenset(kind for kind in ControlKind if kind.startswith("set_gpr_idx_"))
MESSAGES = frozenset((ControlKind.SENDMSG, ControlKind.SENDMSGHALT))


class Flag(StrEnum):
    """Properties that distinguish an instruction from others of its encoding: `Spec.flags`."""

    # Forms that it lacks.
    NO_E64 = "no_e64"  # VOP3
    NO_SDWA = "no_sdwa"  # sub-dword addressing
    NO_DPP = "no_dpp"  # data-parallel primitives
    # Agreement of the result with the hardware's (`fidelity`).
    BOUNDED = "bounded"  # within a documented error
    UNVERIFIED = "unverified"  # no public evidence confirms the rule
    # How the vector ALU executes it.
    TRANS = "trans"  # runs on the transcendental unit: its own hazards, rounding and denormals
    PACKED = "packed"  # the body holds for each half of the operands
    MIX = "mix"  # op_sel_hi selects f16 or f32 for each source
    PRESERVE_HIGH = "preserve_high"  # a 16-bit result leaves the register's high half unchanged
    WRITE_HIGH = "write_high"  # a 16-bit result goes to the high half
    CMPX = "cmpx"  # the result also goes to EXEC
    IGNORE_EXEC = "ignore_exec"  # also acts on inactive lanes
    SWAP = "swap"  # also writes its source
    ACC = "acc"  # the destination is an AccVGPR
    ACC_SOURCE = "acc_source"  # the source is an AccVGPR
    INTERP = "interp"  # pixel interpolation, with special operands
    # Matrix instructions.
    SPARSE = "sparse"  # smfmac: D is C, src2 the indices
    SCALED = "scaled"  # with E8M0 scales, in the instruction before
    F8F6F4 = "f8f6f4"  # cbsz and blgp select the formats of A and B
    F64 = "f64"  # f64 operands: NEG in BLGP's field from gfx942 on
    # Operands of the scalar ALU.
    IMMEDIATE_SRC1 = "immediate_src1"  # SOPC: src1's field is a number
    LITERAL_SOURCE = "literal_source"  # SOPK: a literal follows
    # Operands of scalar memory.
    BARE = "bare"  # none
    CLOCK = "clock"  # a destination only
    PROBE = "probe"  # a number in the data's field
    BUFFER = "buffer"  # the base is a buffer resource
    # Operands of LDS.
    ONE_DATA = "one_data"  # one VGPR
    COUNTER = "counter"  # a destination only
    ORDERED = "ordered"  # a destination and one VGPR
    SRC2 = "src2"  # the second operand is in LDS: no data
    ADDTID = "addtid"  # the address is M0 and the lane's number: no VGPR
    # Vector memory with the LDS bit, which loads to LDS.
    LDS_FORM = "lds_form"  # has the bit
    LDS_FORM_GFX950 = "lds_form_gfx950"  # has it on gfx950
