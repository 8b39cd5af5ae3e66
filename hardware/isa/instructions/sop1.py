"""Scalar ALU with one operand, SOP1: moves, bit operations, operations on EXEC."""

# No `from __future__ import annotations`: a factory's annotations are its local types.

from collections.abc import Callable

from simgpu.hardware.isa.encodings import sop1
from simgpu.hardware.isa.instructions.sop import BITS, LOGIC, SUFFIX
from simgpu.hardware.isa.lane import (
    Value,
    as_unsigned,
    ashr,
    bitreverse,
    bits,
    cast,
    const,
    ctlz,
    ctpop,
    cttz,
    lshr,
    shl,
    where,
)
from simgpu.hardware.isa.types import EXEC, SCC, Type, i8, i16, i32, i64, u8, u16, u32, u64


def _move(kind: Type):
    def body(a: kind) -> kind:
        return a

    return body


def _move_if(kind: Type):
    def body(a: kind, sdst: kind, scc: SCC) -> kind:
        """Written only when SCC is set."""
        return where(scc, a, sdst)

    return body


def _not(kind: Type):
    def body(a: kind) -> (kind, SCC):
        return ~a, ~a != 0

    return body


def _any_of_four(a: Value) -> Value:
    """Returns the word whose bit 4i is set if any of bits 4i to 4i+3 of a is; other bits are 0."""
    pairs = a | lshr(a, 1)
    return (pairs | lshr(pairs, 2)) & (0x1111111111111111 >> (64 - a.type.bits))


def _whole_quads(kind: Type):
    def body(a: kind) -> (kind, SCC):
        """Sets four bits for each quad with any set bit."""
        result = _any_of_four(a) * 15
        return result, result != 0

    return body


def _quad_mask(kind: Type):
    def body(a: kind) -> (kind, SCC):
        """Sets one bit for each quad with any set bit."""
        x = _any_of_four(a)
        for shift, keep in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF)):
            x = (x | lshr(x, shift)) & (keep & (1 << kind.bits) - 1)
        if kind.bits == 64:
            x = (x | lshr(x, 24)) & 0xFFFF
        return x, x != 0

    return body


def _reverse(kind: Type):
    def body(a: kind) -> kind:
        return bitreverse(a)

    return body


def _count(kind: Type, wanted: int):
    def body(a: kind) -> (u32, SCC):
        count = cast(ctpop(a if wanted else ~a), u32)
        return count, count != 0

    return body


def _first(kind: Type, wanted: int):
    def body(a: kind) -> u32:
        """Position of the lowest bit of this value; -1 if there is none."""
        x = a if wanted else ~a
        return where(x == 0, 0xFFFFFFFF, cast(cttz(x), u32))

    return body


def _leading(kind: Type):
    def body(a: kind) -> u32:
        """Number of leading zeros, or for signed types of leading bits equal to the sign; -1 if all bits are."""
        x = as_unsigned(a ^ ashr(a, kind.bits - 1)) if kind.kind == "signed" else a
        return where(x == 0, 0xFFFFFFFF, cast(ctlz(x), u32))

    return body


def _set_bit(kind: Type, value: int):
    def body(a: u32, sdst: kind) -> kind:
        """Returns the destination with bit a (modulo the width) set to this value."""
        bit = shl(const(sdst, 1), a)
        return sdst | bit if value else sdst & ~bit

    return body


for _i, _kind in enumerate(BITS):
    _suffix = SUFFIX[_kind]
    sop1(0 + _i, name=f"s_mov_{_suffix}")(_move(_kind))
    sop1(2 + _i, name=f"s_cmov_{_suffix}")(_move_if(_kind))
    sop1(4 + _i, name=f"s_not_{_suffix}")(_not(_kind))
    sop1(6 + _i, name=f"s_wqm_{_suffix}")(_whole_quads(_kind))
    sop1(8 + _i, name=f"s_brev_{_suffix}")(_reverse(_kind))
    sop1(10 + _i, name=f"s_bcnt0_i32_{_suffix}")(_count(_kind, 0))
    sop1(12 + _i, name=f"s_bcnt1_i32_{_suffix}")(_count(_kind, 1))
    sop1(14 + _i, name=f"s_ff0_i32_{_suffix}")(_first(_kind, 0))
    sop1(16 + _i, name=f"s_ff1_i32_{_suffix}")(_first(_kind, 1))
    sop1(18 + _i, name=f"s_flbit_i32_{_suffix}")(_leading(_kind))
    sop1(24 + _i, name=f"s_bitset0_{_suffix}")(_set_bit(_kind, 0))
    sop1(26 + _i, name=f"s_bitset1_{_suffix}")(_set_bit(_kind, 1))
    sop1(40 + _i, name=f"s_quadmask_{_suffix}")(_quad_mask(_kind))
sop1(20, name="s_flbit_i32")(_leading(i32))
sop1(21, name="s_flbit_i32_i64")(_leading(i64))


def _extend(short: Type):
    def body(a: u32) -> i32:
        return cast(bits(cast(a, {i8: u8, i16: u16}[short]), short), i32)

    return body


sop1(22, name="s_sext_i32_i8")(_extend(i8))
sop1(23, name="s_sext_i32_i16")(_extend(i16))


@sop1(48)
def s_abs_i32(a: i32) -> (i32, SCC):
    """|a|, wrapping; SCC is set when it is not 0."""
    result = where(a < 0, -a, a)
    return result, result != 0


@sop1(55)
def s_bitreplicate_b64_b32(a: u32) -> u64:
    """Bit i goes to bits 2i and 2i+1."""
    x = cast(a, u64)
    for shift, keep in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        x = (x | shl(x, shift)) & keep
    return x | shl(x, 1)


def _save_exec(relation: Callable[[Value, Value], Value]):
    def body(a: u64, exec: EXEC) -> (u64, EXEC, SCC):
        """sdst gets the old EXEC; SCC is set when the new one is not 0."""
        new = relation(a, exec)
        return exec, new, new != 0

    return body


def _write_exec(relation: Callable[[Value, Value], Value]):
    def body(a: u64, exec: EXEC) -> (u64, EXEC, SCC):
        """sdst gets the new EXEC too; SCC is set when it is not 0."""
        new = relation(a, exec)
        return new, new, new != 0

    return body


def _andn1(a: Value, b: Value) -> Value:
    return ~a & b


def _orn1(a: Value, b: Value) -> Value:
    return ~a | b


for _j, (_name, _relation) in enumerate(LOGIC.items()):
    sop1(32 + _j, name=f"s_{_name}_saveexec_b64")(_save_exec(_relation))
sop1(51, name="s_andn1_saveexec_b64")(_save_exec(_andn1))
sop1(52, name="s_orn1_saveexec_b64")(_save_exec(_orn1))
sop1(53, name="s_andn1_wrexec_b64")(_write_exec(_andn1))
sop1(54, name="s_andn2_wrexec_b64")(_write_exec(LOGIC["andn2"]))
