"""Scalar flow control, messages, waits and hardware registers: SOPP and what SOP1/2/C/K have of it.

None has a body: `Spec.control` names the action; the parameters and results give the operands.
"""

from __future__ import annotations

from simgpu.hardware.isa.encodings import sop1, sop2, sopc, sopk, sopp
from simgpu.hardware.isa.types import i16, u16, u32, u64

# SOPP by opcode: the name, and the control action where it is not the name without `s_`.
PROGRAM = {
    0: "nop",
    1: "endpgm",
    2: "branch",
    3: "wakeup",
    4: "cbranch_scc0",
    5: "cbranch_scc1",
    6: "cbranch_vccz",
    7: "cbranch_vccnz",
    8: "cbranch_execz",
    9: "cbranch_execnz",
    10: "barrier",
    11: "setkill",
    12: "waitcnt",
    13: "sethalt",
    14: "sleep",
    15: "setprio",
    16: "sendmsg",
    17: "sendmsghalt",
    18: "trap",
    19: "icache_inv",
    20: "incperflevel",
    21: "decperflevel",
    22: "ttracedata",
    23: "cbranch_cdbgsys",
    24: "cbranch_cdbguser",
    25: "cbranch_cdbgsys_or_user",
    26: "cbranch_cdbgsys_and_user",
    27: "endpgm_saved",
    28: "set_gpr_idx_off",
    29: "set_gpr_idx_mode",
    30: "endpgm_ordered_ps_done",
}
# These print no immediate.
BARE = [
    "wakeup",
    "barrier",
    "icache_inv",
    "ttracedata",
    "endpgm_saved",
    "set_gpr_idx_off",
    "endpgm_ordered_ps_done",
]


def _with_immediate(simm16: i16) -> None:
    """Acts by its 16-bit immediate."""


def _alone() -> None:
    """Has no operand."""


for _op, _name in PROGRAM.items():
    _body = _alone if _name in BARE else _with_immediate
    sopp(_op, kind="control", control=_name, name=f"s_{_name}")(_body)


@sop1(28, kind="control", control="getpc")
def s_getpc_b64() -> u64:
    """The address of the next instruction."""


@sop1(29, kind="control", control="setpc")
def s_setpc_b64(a: u64) -> None:
    """Jumps to a."""


@sop1(30, kind="control", control="swappc")
def s_swappc_b64(a: u64) -> u64:
    """Jumps to a; sdst gets the address of the next instruction."""


@sop1(31, kind="control", control="rfe")
def s_rfe_b64(a: u64) -> None:
    """Returns from the trap handler; not in a compute kernel."""


@sop1(42, kind="control", control="movrels")
def s_movrels_b32(a: u32) -> u32:
    """Reads the SGPR M0 places after a."""


@sop1(43, kind="control", control="movrels")
def s_movrels_b64(a: u64) -> u64:
    """Reads the SGPR pair M0 places after a."""


@sop1(44, kind="control", control="movreld")
def s_movreld_b32(a: u32) -> u32:
    """Writes the SGPR M0 places after sdst."""


@sop1(45, kind="control", control="movreld")
def s_movreld_b64(a: u64) -> u64:
    """Writes the SGPR pair M0 places after sdst."""


@sop1(46, kind="control", control="cbranch_join")
def s_cbranch_join(a: u32) -> None:
    """End of a fork block (s_cbranch_g_fork)."""


@sop1(50, kind="control", control="set_gpr_idx_idx")
def s_set_gpr_idx_idx(a: u32) -> None:
    """M0[7:0] = a[7:0], the VGPR index."""


@sop2(41, kind="control", control="cbranch_g_fork")
def s_cbranch_g_fork(a: u64, b: u64) -> None:
    """Fork on mask a to address b, with the branch stack."""


@sop2(43, kind="control", control="rfe")
def s_rfe_restore_b64(a: u64, b: u32) -> None:
    """Returns from the trap handler; not in a compute kernel."""


@sopc(16, kind="control", control="setvskip")
def s_setvskip(a: u32, b: u32) -> None:
    """Turns vector skipping on or off by bit b of a."""


@sopc(17, kind="control", control="set_gpr_idx_on", flags=("immediate_src1",))
def s_set_gpr_idx_on(a: u32, modes: u32) -> None:
    """VGPR indexing on: M0[7:0] = a[7:0], M0[15:12] = the mode bits, an immediate."""


@sopk(16, kind="control", control="cbranch_i_fork")
def s_cbranch_i_fork(sdst: u64, simm16: i16) -> None:
    """Fork on mask sdst to a relative address, with the branch stack."""


@sopk(17, kind="control", control="getreg")
def s_getreg_b32(simm16: u16) -> u32:
    """A field of a hardware register: id simm16[5:0], offset [10:6], width - 1 [15:11]."""


@sopk(18, kind="control", control="setreg")
def s_setreg_b32(sdst: u32, simm16: u16) -> None:
    """Writes a field of a hardware register from sdst, named as in s_getreg_b32."""


@sopk(20, kind="control", control="setreg", flags=("literal_source",))
def s_setreg_imm32_b32(literal: u32, simm16: u16) -> None:
    """Writes a field of a hardware register from the literal that follows."""


@sopk(21, kind="control", control="call")
def s_call_b64(simm16: i16) -> u64:
    """Jumps to a relative address; sdst gets the address of the next instruction."""
