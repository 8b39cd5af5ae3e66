"""Scalar control flow, messages, waits and hardware registers: SOPP, and related instructions of SOP1, SOP2, SOPC and SOPK.

Functions are empty: `Spec.control` is the action; parameters and results give the operands.
"""

from __future__ import annotations

from simgpu.hardware.isa.encodings import sop1, sop2, sopc, sopk, sopp
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.types import i16, u16, u32, u64

# SOPP by opcode; the mnemonic is the control kind after `s_`.
PROGRAM = {
    0: ControlKind.NOP,
    1: ControlKind.ENDPGM,
    2: ControlKind.BRANCH,
    3: ControlKind.WAKEUP,
    4: ControlKind.CBRANCH_SCC0,
    5: ControlKind.CBRANCH_SCC1,
    6: ControlKind.CBRANCH_VCCZ,
    7: ControlKind.CBRANCH_VCCNZ,
    8: ControlKind.CBRANCH_EXECZ,
    9: ControlKind.CBRANCH_EXECNZ,
    10: ControlKind.BARRIER,
    11: ControlKind.SETKILL,
    12: ControlKind.WAITCNT,
    13: ControlKind.SETHALT,
    14: ControlKind.SLEEP,
    15: ControlKind.SETPRIO,
    16: ControlKind.SENDMSG,
    17: ControlKind.SENDMSGHALT,
    18: ControlKind.TRAP,
    19: ControlKind.ICACHE_INV,
    20: ControlKind.INCPERFLEVEL,
    21: ControlKind.DECPERFLEVEL,
    22: ControlKind.TTRACEDATA,
    23: ControlKind.CBRANCH_CDBGSYS,
    24: ControlKind.CBRANCH_CDBGUSER,
    25: ControlKind.CBRANCH_CDBGSYS_OR_USER,
    26: ControlKind.CBRANCH_CDBGSYS_AND_USER,
    27: ControlKind.ENDPGM_SAVED,
    28: ControlKind.SET_GPR_IDX_OFF,
    29: ControlKind.SET_GPR_IDX_MODE,
    30: ControlKind.ENDPGM_ORDERED_PS_DONE,
}
# SOPP instructions without an immediate.
BARE = [
    ControlKind.WAKEUP,
    ControlKind.BARRIER,
    ControlKind.ICACHE_INV,
    ControlKind.TTRACEDATA,
    ControlKind.ENDPGM_SAVED,
    ControlKind.SET_GPR_IDX_OFF,
    ControlKind.ENDPGM_ORDERED_PS_DONE,
]


def _with_immediate(simm16: i16) -> None:
    """Has the 16-bit immediate as operand."""


def _no_operand() -> None:
    """Has no operand."""


for _op, _control in PROGRAM.items():
    sopp(_op, control=_control, name=f"s_{_control}")(_no_operand if _control in BARE else _with_immediate)


@sop1(28, control=ControlKind.GETPC)
def s_getpc_b64() -> u64:
    """Returns the address of the next instruction."""


@sop1(29, control=ControlKind.SETPC)
def s_setpc_b64(a: u64) -> None:
    """Jumps to a."""


@sop1(30, control=ControlKind.SWAPPC)
def s_swappc_b64(a: u64) -> u64:
    """Jumps to a; sdst gets the address of the next instruction."""


@sop1(31, control=ControlKind.RFE)
def s_rfe_b64(a: u64) -> None:
    """Returns from the trap handler; not in a compute kernel."""


@sop1(42, control=ControlKind.MOVRELS)
def s_movrels_b32(a: u32) -> u32:
    """Reads the SGPR M0 places after a."""


@sop1(43, control=ControlKind.MOVRELS)
def s_movrels_b64(a: u64) -> u64:
    """Reads the SGPR pair M0 places after a."""


@sop1(44, control=ControlKind.MOVRELD)
def s_movreld_b32(a: u32) -> u32:
    """Writes the SGPR M0 places after sdst."""


@sop1(45, control=ControlKind.MOVRELD)
def s_movreld_b64(a: u64) -> u64:
    """Writes the SGPR pair M0 places after sdst."""


@sop1(46, control=ControlKind.CBRANCH_JOIN)
def s_cbranch_join(a: u32) -> None:
    """End of a fork block (s_cbranch_g_fork)."""


@sop1(50, control=ControlKind.SET_GPR_IDX_IDX)
def s_set_gpr_idx_idx(a: u32) -> None:
    """M0[7:0] = a[7:0], the VGPR index."""


@sop2(41, control=ControlKind.CBRANCH_G_FORK)
def s_cbranch_g_fork(a: u64, b: u64) -> None:
    """Fork on mask a to address b, with the branch stack."""


@sop2(43, control=ControlKind.RFE)
def s_rfe_restore_b64(a: u64, b: u32) -> None:
    """Returns from the trap handler; not in a compute kernel."""


@sopc(16, control=ControlKind.SETVSKIP)
def s_setvskip(a: u32, b: u32) -> None:
    """Turns vector skipping on or off by bit b of a."""


@sopc(17, control=ControlKind.SET_GPR_IDX_ON, flags=(Flag.IMMEDIATE_SRC1,))
def s_set_gpr_idx_on(a: u32, modes: u32) -> None:
    """VGPR indexing on: M0[7:0] = a[7:0], M0[15:12] = the mode bits, an immediate."""


@sopk(16, control=ControlKind.CBRANCH_I_FORK)
def s_cbranch_i_fork(sdst: u64, simm16: i16) -> None:
    """Fork on mask sdst to a relative address, with the branch stack."""


@sopk(17, control=ControlKind.GETREG)
def s_getreg_b32(simm16: u16) -> u32:
    """Reads a field of a hardware register: id simm16[5:0], offset [10:6], width - 1 [15:11]."""


@sopk(18, control=ControlKind.SETREG)
def s_setreg_b32(sdst: u32, simm16: u16) -> None:
    """Writes a field of a hardware register from sdst, named as in s_getreg_b32."""


@sopk(20, control=ControlKind.SETREG, flags=(Flag.LITERAL_SOURCE,))
def s_setreg_imm32_b32(literal: u32, simm16: u16) -> None:
    """Writes a field of a hardware register from the literal that follows."""


@sopk(21, control=ControlKind.CALL)
def s_call_b64(simm16: i16) -> u64:
    """Jumps to a relative address; sdst gets the address of the next instruction."""
