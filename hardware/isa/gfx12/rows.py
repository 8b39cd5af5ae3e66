"""Instructions of gfx1250 as specs: `gfx1250.tsv`, one row each, without bodies.

A row has what the decoder, the disassembler and the static analyses need. Which unit executes an instruction and which state it
reads beside its operands follows from its encoding and its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import get_args

from simgpu.hardware.isa.kinds import BodyKind, ControlKind, Encoding, Operation, Space
from simgpu.hardware.isa.spec import Memory, Spec

TABLE = "gfx1250.tsv"
SUFFIXES = ("_e32", "_e64")
CONTROL = {
    "s_nop": ControlKind.NOP, "s_sleep": ControlKind.SLEEP, "s_sleep_var": ControlKind.SLEEP, "s_endpgm": ControlKind.ENDPGM,
    "s_endpgm_saved": ControlKind.ENDPGM_SAVED, "s_branch": ControlKind.BRANCH, "s_call_i64": ControlKind.CALL,
    "s_get_pc_i64": ControlKind.GETPC, "s_set_pc_i64": ControlKind.SETPC, "s_swap_pc_i64": ControlKind.SWAPPC,
    "s_add_pc_i64": ControlKind.ADDPC, "s_rfe_i64": ControlKind.RFE, "s_trap": ControlKind.TRAP,
    "s_getreg_b32": ControlKind.GETREG, "s_setreg_b32": ControlKind.SETREG, "s_setreg_imm32_b32": ControlKind.SETREG,
    "s_sendmsg": ControlKind.SENDMSG, "s_sendmsghalt": ControlKind.SENDMSGHALT, "s_sethalt": ControlKind.SETHALT,
    "s_setprio": ControlKind.SETPRIO, "s_barrier_wait": ControlKind.BARRIER, "s_barrier_leave": ControlKind.BARRIER_LEAVE,
    "s_barrier_signal": ControlKind.BARRIER_SIGNAL, "s_barrier_signal_isfirst": ControlKind.BARRIER_SIGNAL,
    "s_wait_alu": ControlKind.WAIT_ALU, "s_set_vgpr_msb": ControlKind.SET_VGPR_MSB, "s_code_end": ControlKind.TRAP,
}  # fmt: skip

SPACES: dict[str, Space] = {
    "ds": "ds", "flat": "flat", "scratch": "scratch", "global": "global", "vbuffer": "buffer", "vimage": "global", "smem": "smem",
}  # fmt: skip
LDS_TRANSFERS = ("_to_lds", "_from_lds")


@dataclass(frozen=True)
class Field:
    """An operand of a row: its field, its number of registers, and the kind of its constants (see the table's head)."""

    name: str
    count: int = 1
    kind: str = ""
    half: bool = False  # True if VGPR numbers from 128 on are high halves

    @property
    def argument(self) -> str:
        """Name of the operand: that of the field, but for a scalar result in the field of a vector's."""
        return "sdst" if self.name == "dst" else self.name


@dataclass(frozen=True, eq=False, repr=False)
class RowSpec(Spec):
    """A spec that lists its operands instead of having a body."""

    shown: str = ""  # the mnemonic as printed, with its suffix
    operands: tuple[Field, ...] = ()  # in printed order
    bits: str = ""  # the meaning of each of VOP3's modifier bits
    selects: int = 0  # entries of a printed op_sel
    forms: frozenset[str] = frozenset()  # p DPP16, q DPP8
    returned: int = 0  # registers that an atomic returns

    @property
    def sources(self) -> tuple[Field, ...]:
        """Operands that constants may replace, in order."""
        return tuple(field for field in self.operands if field.name[:3] == "src")


@cache
def rows() -> dict[tuple[str, int], RowSpec]:
    """Returns the specs by encoding and opcode.

    >>> rows()["vop3", 0x213]
    <vop3 v_fma_f32>
    """
    text = resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    specs = (_spec(*line.split("\t")) for line in text.splitlines() if line and not line.startswith("#"))
    return {(encoding, opcode): spec for encoding, opcode, spec in specs}


def _spec(encoding: str, opcode: str, shown: str, operands: str = "", bits: str = "", forms: str = "") -> tuple[str, int, RowSpec]:
    mnemonic = next((shown.removesuffix(suffix) for suffix in SUFFIXES if shown.endswith(suffix)), shown)
    modifiers, _, selects = bits.partition("/")
    names = frozenset(form for form in forms.split() if not form.startswith("ret"))
    control = _control(mnemonic)
    memory = None if control else _memory(encoding, mnemonic)
    kind: BodyKind = "control" if control else "matrix" if "wmma" in mnemonic or "swmmac" in mnemonic else "lane"
    spec = RowSpec(
        mnemonic=mnemonic,
        encoding=_encoding(encoding),
        opcodes={"gfx1250": int(opcode)},
        params=(),
        results=(),
        kind="memory" if memory else kind,
        memory=memory,
        control=control,
        shown=shown,
        operands=tuple(_field(word) for word in operands.split()),
        bits=modifiers,
        selects=int(selects or 0),
        forms=names,
        returned=next((int(form[3:]) for form in forms.split() if form.startswith("ret")), 0),
    )
    return encoding, int(opcode), spec


def _encoding(name: str) -> Encoding:
    """Returns the encoding of a section of the table: the segments of FLAT are one, and so are the halves of VOPD."""
    name = "flat" if name in ("scratch", "global") else "vopd" if name.startswith("vopd") else name
    return next(encoding for encoding in get_args(Encoding) if encoding == name)


def _field(word: str) -> Field:
    name, _, rest = word.partition(":")
    digits = rest.rstrip("bcdhilsvwB")
    letters = rest[len(digits) :]
    return Field(name, int(digits or 1), letters.rstrip("l"), letters.endswith("l"))


def _control(mnemonic: str) -> ControlKind:
    if mnemonic in CONTROL:
        return CONTROL[mnemonic]
    if mnemonic.startswith("s_wait_"):
        return ControlKind.WAITCNT
    return ControlKind(mnemonic[2:]) if mnemonic.startswith("s_cbranch_") else ControlKind.NONE


def _memory(encoding: str, mnemonic: str) -> Memory | None:
    """Returns the access of a memory instruction; None for cache maintenance, prefetches and lane exchange through LDS."""
    if encoding not in SPACES:
        return None
    op: Operation | None = None
    if "_store" in mnemonic and "storexchg" not in mnemonic and "cmpstore" not in mnemonic:
        op = "store"
    elif "_load" in mnemonic:
        op = "load"
    elif "_atomic_" in mnemonic or (encoding == "ds" and not mnemonic.startswith(NO_ACCESS)):
        op = "atomic"
    lds = any(name in mnemonic for name in LDS_TRANSFERS)
    returns = "_rtn_" in mnemonic or mnemonic in ("ds_append", "ds_consume")
    return None if op is None else Memory(SPACES[encoding], op, lds=lds, returns=returns)


NO_ACCESS = ("ds_nop", "ds_swizzle", "ds_permute", "ds_bpermute")
