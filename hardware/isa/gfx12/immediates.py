"""Immediates of GFX12 with a special syntax: waits, delays, messages, hardware registers, temporal hints.

Names and fields: CDNA5 ISA guide (S_WAIT_ALU, S_DELAY_ALU, S_SENDMSG, S_GETREG_B32); printed forms: LLVM 22.
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.isa.gfx12.rows import RowSpec
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind

HARDWARE_REGISTERS = {
    1: "WAVE_MODE", 2: "WAVE_STATUS", 4: "WAVE_STATE_PRIV", 5: "WAVE_GPR_ALLOC", 6: "WAVE_LDS_ALLOC", 7: "IB_STS",
    10: "PERF_SNAPSHOT_DATA", 11: "PERF_SNAPSHOT_PC_LO", 12: "PERF_SNAPSHOT_PC_HI", 15: "PERF_SNAPSHOT_DATA1",
    16: "PERF_SNAPSHOT_DATA2", 17: "WAVE_EXCP_FLAG_PRIV", 18: "WAVE_EXCP_FLAG_USER", 19: "WAVE_TRAP_CTRL",
    20: "WAVE_SCRATCH_BASE_LO", 21: "WAVE_SCRATCH_BASE_HI", 23: "WAVE_HW_ID1", 24: "WAVE_HW_ID2", 26: "WAVE_SCHED_MODE",
    28: "IB_STS2", 29: "SHADER_CYCLES_LO", 30: "SHADER_CYCLES_HI", 31: "WAVE_DVGPR_ALLOC_LO", 32: "WAVE_DVGPR_ALLOC_HI",
    33: "XNACK_STATE_PRIV", 34: "XNACK_MASK",
}  # fmt: skip
MODE_REGISTER, SCHED_MODE_REGISTER = 1, 26
MESSAGES = {
    1: "MSG_INTERRUPT", 2: "MSG_HS_TESSFACTOR", 3: "MSG_DEALLOC_VGPRS", 9: "MSG_GS_ALLOC_REQ", 10: "MSG_SAVEWAVE_HAS_TDM",
    128: "MSG_RTN_GET_DOORBELL", 129: "MSG_RTN_GET_DDID", 130: "MSG_RTN_GET_TMA", 131: "MSG_RTN_GET_REALTIME",
    132: "MSG_RTN_SAVE_WAVE", 133: "MSG_RTN_GET_TBA", 134: "MSG_RTN_GET_TBA_TO_PC", 135: "MSG_RTN_GET_SE_AID_ID",
    136: "MSG_RTN_GET_CLUSTER_BARRIER_STATE",
}  # fmt: skip
# Fields of s_wait_alu in printed order: name, first bit, width. The largest value waits for nothing.
WAIT_ALU = (
    ("hold_cnt", 7, 1), ("sa_sdst", 0, 1), ("va_vdst", 12, 4), ("va_sdst", 9, 3), ("va_ssrc", 8, 1), ("va_vcc", 1, 1),
    ("vm_vsrc", 2, 3),
)  # fmt: skip
WAIT_ALU_UNUSED = 0x60
DELAYS = (
    "NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3",
)  # fmt: skip
SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
VERSIONS = {0: "UC_VERSION_GFX7", 9: "UC_VERSION_GFX12"}
W32, W64 = 0x4000, 0x2000
HINTS = {
    "LOAD": ("", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", ""),
    "STORE": ("", "NT", "HT", "WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB"),
    "ATOMIC": ("", "RETURN", "NT", "NT_RETURN"),
}  # fmt: skip
BYPASS, CASCADE = 3, 4


def small(value: int) -> str:
    """Returns the text of an immediate: decimal up to 64, hexadecimal above."""
    return str(value) if value <= 64 else f"0x{value:x}"


def wait_alu_counts(value: int) -> dict[str, int]:
    """Returns the fields of an s_wait_alu that wait for something.

    >>> wait_alu_counts(0x0F9F)
    {'va_vdst': 0}
    """
    fields = {name: (value >> first & (1 << width) - 1, (1 << width) - 1) for name, first, width in WAIT_ALU}
    return {name: count for name, (count, most) in fields.items() if count < most}


def _wait_alu(value: int) -> str:
    if value & WAIT_ALU_UNUSED:
        return f"0x{value:x}"
    counts = wait_alu_counts(value) or {name: (1 << width) - 1 for name, _, width in WAIT_ALU}
    return " ".join(f"depctr_{name}({count})" for name, count in counts.items())


def _delay(value: int) -> str:
    first, skip, second = value & 15, value >> 4 & 7, value >> 7 & 15
    shown = [f"instid0({_name(DELAYS, first, 'instid')})"] if first else []
    shown += [f"instskip({_name(SKIPS, skip, 'instskip')})"] if skip else []
    shown += [f"instid1({_name(DELAYS, second, 'instid')})"] if second else []
    return " | ".join(shown) or "0"


def _name(names: tuple[str, ...], value: int, what: str) -> str:
    return names[value] if value < len(names) else f"/* invalid {what} value */"


def _message(value: int) -> str:
    number = value & 0xFF
    if number in MESSAGES:
        return f"sendmsg({MESSAGES[number]})"
    return f"sendmsg({value}, 0, 0)" if value == number else str(value)


def _hwreg(value: int) -> str:
    number, offset, width = value & 63, value >> 6 & 31, (value >> 11 & 31) + 1
    name = f"HW_REG_{HARDWARE_REGISTERS[number]}" if number in HARDWARE_REGISTERS else str(number)
    return f"hwreg({name})" if (offset, width) == (0, 32) else f"hwreg({name}, {offset}, {width})"


def _version(value: int) -> str:
    number, flags = value & 0xFF, value & ~0xFF
    if flags & ~(W32 | W64):
        return f"0x{value:x}"
    shown = [VERSIONS.get(number, str(number))]
    shown += ["UC_VERSION_W64_BIT"] if flags & W64 else []
    shown += ["UC_VERSION_W32_BIT"] if flags & W32 else []
    return "|".join(shown)


def _hexadecimal(value: int) -> str:
    return f"0x{value:x}"


def _optional(value: int) -> str:
    return str(value) if value else ""


BY_NAME: dict[str, Callable[[int], str]] = {
    "s_clause": _hexadecimal, "s_round_mode": _hexadecimal, "s_ttracedata_imm": _hexadecimal, "s_delay_alu": _delay,
    "s_version": _version, "s_sendmsg_rtn_b32": _message, "s_sendmsg_rtn_b64": _message,
}  # fmt: skip
BY_CONTROL: dict[ControlKind, Callable[[int], str]] = {
    ControlKind.WAIT_ALU: _wait_alu, ControlKind.WAITCNT: _hexadecimal, ControlKind.SENDMSG: _message,
    ControlKind.SENDMSGHALT: _message, ControlKind.GETREG: _hwreg, ControlKind.SETREG: _hwreg, ControlKind.ENDPGM: _optional,
    **dict.fromkeys((ControlKind.BRANCH, ControlKind.CALL, *CONDITIONAL_BRANCHES), str),
}  # fmt: skip


def text(spec: RowSpec, value: int) -> str:
    """Returns the text of an instruction's immediate."""
    printer = BY_NAME.get(spec.mnemonic) or BY_CONTROL.get(spec.control)
    return printer(value) if printer else (small if spec.encoding == "sopp" else _hexadecimal)(value)


def temporal_hint(kind: str, hint: int, scope: int) -> str:
    """Returns the name of a temporal hint. kind: LOAD, STORE or ATOMIC; scope: 3 is the system's."""
    prefix = f"TH_{kind}_"
    if kind == "ATOMIC" and hint >= CASCADE:
        return f"{prefix}CASCADE_{'NT' if hint & 2 else 'RT'}" if scope >= 2 else f"{prefix}0x{hint:x}"
    if hint == BYPASS and scope == 3 and kind != "ATOMIC":
        return prefix + "BYPASS"
    name = HINTS[kind][hint]
    return prefix + name if name else f"0x{hint:x}"


def dpp(control: int) -> str:
    """Returns the text of dpp_ctrl."""
    if control <= 0xFF:
        return f"quad_perm:[{','.join(str(control >> shift & 3) for shift in (0, 2, 4, 6))}]"
    names = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror", 0x15: "row_share", 0x16: "row_xmask"}
    if control in (0x140, 0x141):
        return "row_mirror" if control == 0x140 else "row_half_mirror"
    return f"{names[control >> 4]}:{control & 15}"
