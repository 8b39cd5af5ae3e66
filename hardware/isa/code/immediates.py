"""Immediates with a special syntax: waits, messages, hardware registers, swizzles, DPP.

Names and fields: ISA guides (S_WAITCNT, S_SENDMSG, S_GETREG_B32, DS_SWIZZLE_B32); printed forms: LLVM's "AMDGPU
instruction operand syntax".
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.isa.code.vector_formats import ROW_NEWBCAST, WHOLE_WAVE
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind

HARDWARE_REGISTERS = {
    1: "MODE",
    2: "STATUS",
    3: "TRAPSTS",
    4: "HW_ID",
    5: "GPR_ALLOC",
    6: "LDS_ALLOC",
    7: "IB_STS",
    15: "SH_MEM_BASES",
    16: "TBA_LO",
    17: "TBA_HI",
    18: "TMA_LO",
    19: "TMA_HI",
}
HARDWARE_REGISTERS_GFX942 = {
    20: "XCC_ID",
    21: "SQ_PERF_SNAPSHOT_DATA",
    22: "SQ_PERF_SNAPSHOT_DATA1",
    23: "SQ_PERF_SNAPSHOT_PC_LO",
    24: "SQ_PERF_SNAPSHOT_PC_HI",
}
MESSAGES = {
    1: "MSG_INTERRUPT",
    2: "MSG_GS",
    3: "MSG_GS_DONE",
    4: "MSG_SAVEWAVE",
    5: "MSG_STALL_WAVE_GEN",
    6: "MSG_HALT_WAVES",
    7: "MSG_ORDERED_PS_DONE",
    8: "MSG_EARLY_PRIM_DEALLOC",
    9: "MSG_GS_ALLOC_REQ",
    10: "MSG_GET_DOORBELL",
    15: "MSG_SYSMSG",
}
GS, GS_DONE, SYSTEM = 2, 3, 15
GS_OPERATIONS = {0: "GS_OP_NOP", 1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"}
OPERATIONS = {
    GS: {op: name for op, name in GS_OPERATIONS.items() if op},
    GS_DONE: GS_OPERATIONS,
    # 3, SYSMSG_OP_HOST_TRAP_ACK, was GFX8's (LLVM, MsgOperands).
    SYSTEM: {1: "SYSMSG_OP_ECC_ERR_INTERRUPT", 2: "SYSMSG_OP_REG_RD", 4: "SYSMSG_OP_TTRACE_PC"},
}
GPR_INDEX_MODES = ("SRC0", "SRC1", "SRC2", "DST")
# Counters of s_waitcnt, with the (shift, width) of their bit fields, low bits first.
WAIT_COUNTERS = (("vmcnt", ((0, 4), (14, 2))), ("expcnt", ((4, 3),)), ("lgkmcnt", ((8, 4),)))
DATA_FORMATS = [
    "INVALID",
    "8",
    "16",
    "8_8",
    "32",
    "16_16",
    "10_11_11",
    "11_11_10",
    "10_10_10_2",
    "2_10_10_10",
    "8_8_8_8",
    "32_32",
    "16_16_16_16",
    "32_32_32",
    "32_32_32_32",
    "RESERVED_15",
]
NUMBER_FORMATS = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT"]


def small(value: int, target: str = "") -> str:
    """Returns the text of a 16-bit immediate: decimal up to 64, hexadecimal above."""
    return str(value) if value <= 64 else f"0x{value:x}"


def wait_counts(value: int) -> dict[str, int]:
    """Returns the counters of an s_waitcnt, by name."""
    return {name: _gather(value, pieces) for name, pieces in WAIT_COUNTERS}


def _gather(value: int, pieces: tuple[tuple[int, int], ...]) -> int:
    total = at = 0
    for shift, width in pieces:
        total |= (value >> shift & (1 << width) - 1) << at
        at += width
    return total


def waitcnt(value: int, target: str) -> str:
    """Returns the text of an s_waitcnt: the counters below their maximum, or all if none is."""
    counts, most = wait_counts(value), wait_counts(0xFFFF)
    shown = [name for name in counts if counts[name] != most[name]] or list(counts)
    return " ".join(f"{name}({counts[name]})" for name in shown)


def sendmsg(value: int, target: str) -> str:
    """Returns the text of a message: its name, operation and stream, if they have names."""
    message, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
    names = OPERATIONS.get(message)
    streams = message in (GS, GS_DONE) and operation > 0
    valid = operation in names if names else operation == 0
    if message in MESSAGES and valid and (streams or stream == 0):
        parts = [MESSAGES[message]]
        if names:
            parts.append(names[operation])
        if streams:
            parts.append(str(stream))
        return f"sendmsg({', '.join(parts)})"
    if value == message | operation << 4 | stream << 8:
        return f"sendmsg({message}, {operation}, {stream})"
    return str(value)


def hwreg(value: int, target: str) -> str:
    """Returns the text of a field of a hardware register."""
    number, offset, width = value & 63, value >> 6 & 31, (value >> 11 & 31) + 1
    names = HARDWARE_REGISTERS
    if target in SINCE_GFX942:
        names = names | HARDWARE_REGISTERS_GFX942
    name = f"HW_REG_{names[number]}" if number in names else str(number)
    return f"hwreg({name})" if (offset, width) == (0, 32) else f"hwreg({name}, {offset}, {width})"


def gpr_index(value: int, target: str) -> str:
    """Returns the text of the operands of VGPR indexing."""
    if value > 15:
        return f"0x{value:x}"
    return f"gpr_idx({','.join(m for i, m in enumerate(GPR_INDEX_MODES) if value >> i & 1)})"


def decimal(value: int, target: str) -> str:
    return str(value)


def optional(value: int, target: str) -> str:
    """Returns the number, or nothing for 0."""
    return str(value) if value else ""


def hexadecimal(value: int, target: str) -> str:
    return f"0x{value:x}"


# Printers of simm16 by `Spec.control`; for all others, it is `small` in SOPP and `hexadecimal` in SOPK.
SOPP_IMMEDIATES: dict[ControlKind, Callable[[int, str], str]] = {
    ControlKind.WAITCNT: waitcnt,
    ControlKind.SENDMSG: sendmsg,
    ControlKind.SENDMSGHALT: sendmsg,
    ControlKind.SET_GPR_IDX_MODE: gpr_index,
    ControlKind.ENDPGM: optional,
    ControlKind.BRANCH: decimal,
    **dict.fromkeys(CONDITIONAL_BRANCHES, decimal),
}
SOPK_IMMEDIATES: dict[ControlKind, Callable[[int, str], str]] = {
    ControlKind.GETREG: hwreg,
    ControlKind.SETREG: hwreg,
    ControlKind.CALL: decimal,
    ControlKind.CBRANCH_I_FORK: decimal,
}


def dpp(control: int) -> str:
    """Returns the text of dpp_ctrl, as LLVM prints it."""
    if control <= 0xFF:
        lanes = ",".join(str(control >> shift & 3) for shift in (0, 2, 4, 6))
        return f"quad_perm:[{lanes}]"
    if control in WHOLE_WAVE:
        return WHOLE_WAVE[control]
    if control in ROW_NEWBCAST:
        return f"row_newbcast:{control & 15}"
    return f"{('row_shl', 'row_shr', 'row_ror')[(control >> 4) - 0x10]}:{control & 15}"


def buffer_format(value: int) -> str:
    """Returns the text of MTBUF's format (data format in bits 3:0, number format in 6:4); empty for 8-bit UNORM."""
    data, number = value & 15, value >> 4
    parts = []
    if data != 1:
        parts.append(f"BUF_DATA_FORMAT_{DATA_FORMATS[data]}")
    if number:
        parts.append(f"BUF_NUM_FORMAT_{NUMBER_FORMATS[number]}")
    return f"format:[{','.join(parts)}]" if parts else ""
