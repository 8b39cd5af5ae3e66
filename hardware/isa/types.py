"""Operand types of the instruction set: the meaning of a register's bits for one instruction.

A `Type` annotates parameters and results of an instruction's body (see `spec`). The value types have width and
interpretation. The state types (`SCC`, `EXEC`, ...) are machine state that an instruction reads or writes without an
operand field for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "bfloat", "fp8", "signed", "unsigned", "mask", "pair"]
State = Literal["", "scc", "exec", "vcc", "m0", "sgpr", "modifier"]


@dataclass(frozen=True)
class Type:
    """An operand type."""

    name: str  # the ISA's suffix: `f32`
    bits: int  # of a lane's value, all elements together; 64 for a mask
    kind: Kind  # the interpretation of these bits
    state: State = ""  # the machine state, if no operand field selects it
    element: Type | None = None  # of a `pair`, which has bits // element.bits elements: two f16 in 32 bits, two f32 in 64

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat", "fp8")

    @property
    def is_int(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def dwords(self) -> int:
        """Number of 32-bit registers of an operand of this type."""
        return max(1, self.bits // 32)

    def __repr__(self) -> str:
        return self.name


f16 = Type("f16", 16, "float")
bf16 = Type("bf16", 16, "bfloat")
f32 = Type("f32", 32, "float")
f64 = Type("f64", 64, "float")
i8 = Type("i8", 8, "signed")
u8 = Type("u8", 8, "unsigned")
i16 = Type("i16", 16, "signed")
u16 = Type("u16", 16, "unsigned")
i32 = Type("i32", 32, "signed")
u32 = Type("u32", 32, "unsigned")
i64 = Type("i64", 64, "signed")
u64 = Type("u64", 64, "unsigned")

f16x2 = Type("f16x2", 32, "pair", element=f16)
bf16x2 = Type("bf16x2", 32, "pair", element=bf16)
i16x2 = Type("i16x2", 32, "pair", element=i16)
u16x2 = Type("u16x2", 32, "pair", element=u16)
f32x2 = Type("f32x2", 64, "pair", element=f32)
u32x2 = Type("u32x2", 64, "pair", element=u32)

# One bit per lane: a VALU comparison's result, a carry, v_cndmask's selector. An SGPR pair or VCC.
mask = Type("mask", 64, "mask")
# One bit per wave or lane, inside bodies only: the result of a comparison.
u1 = Type("u1", 1, "mask")

# Machine state without an operand field.
SCC = Type("scc", 1, "mask", state="scc")
EXEC = Type("exec", 64, "unsigned", state="exec")
VCC = Type("vcc", 64, "unsigned", state="vcc")
M0 = Type("m0", 32, "unsigned", state="m0")

# An SGPR operand of an instruction whose other operands are vectors (v_readlane_b32's result).
s32 = Type("s32", 32, "unsigned", state="sgpr")
s64 = Type("s64", 64, "unsigned", state="sgpr")

