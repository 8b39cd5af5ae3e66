"""Scalar ALU with two operands: SOP2, SOPC, SOPK. SOP1 is in `sop1`, control flow in `sop_control`.

Instructions that differ only in an operator or a type have bodies made by the same function.
"""

# No `from __future__ import annotations`: a factory's annotations are its local types.

import operator
from collections.abc import Callable

from simgpu.hardware.isa.encodings import sop2, sopc, sopk
from simgpu.hardware.isa.lane import (
    Value,
    ashr,
    both,
    cast,
    const,
    either,
    imax,
    imin,
    lshr,
    mul_hi,
    shl,
    where,
)
from simgpu.hardware.isa.types import SCC, Type, i16, i32, i64, u16, u32, u64

LOGIC: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
RELATION: dict[str, Callable[[Value, Value], Value]] = {
    "eq": operator.eq,
    "lg": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
SUFFIX = {u32: "b32", u64: "b64"}
BITS = (u32, u64)


# SOP2: addition, minimum, selection


@sop2(0)
def s_add_u32(a: u32, b: u32) -> (u32, SCC):
    """SCC is the carry out."""
    total = a + b
    return total, total < a


@sop2(1)
def s_sub_u32(a: u32, b: u32) -> (u32, SCC):
    """SCC is the borrow."""
    return a - b, a < b


@sop2(2)
def s_add_i32(a: i32, b: i32) -> (i32, SCC):
    """SCC is signed overflow."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@sop2(3)
def s_sub_i32(a: i32, b: i32) -> (i32, SCC):
    """SCC is signed overflow."""
    difference = a - b
    return difference, ((a ^ b) & (a ^ difference)) < 0


@sop2(4)
def s_addc_u32(a: u32, b: u32, scc: SCC) -> (u32, SCC):
    """a + b + SCC; SCC is the carry out."""
    partial = a + b
    total = partial + where(scc, const(a, 1), 0)
    return total, either(partial < a, total < partial)


@sop2(5)
def s_subb_u32(a: u32, b: u32, scc: SCC) -> (u32, SCC):
    """a - b - SCC; SCC is the borrow."""
    difference = a - b - where(scc, const(a, 1), 0)
    return difference, either(a < b, both(a == b, scc))


def _minmax(kind: Type, pick: Callable[[Value, Value], Value], first: Callable[[Value, Value], Value]):
    def body(a: kind, b: kind) -> (kind, SCC):
        """SCC is set if the first operand is selected."""
        return pick(a, b), first(a, b)

    return body


sop2(6, name="s_min_i32")(_minmax(i32, imin, operator.lt))
sop2(7, name="s_min_u32")(_minmax(u32, imin, operator.lt))
sop2(8, name="s_max_i32")(_minmax(i32, imax, operator.gt))
sop2(9, name="s_max_u32")(_minmax(u32, imax, operator.gt))


def _select(kind: Type):
    def body(a: kind, b: kind, scc: SCC) -> kind:
        """Selects a if SCC is set, else b."""
        return where(scc, a, b)

    return body


def _logic(kind: Type, relation: Callable[[Value, Value], Value]):
    def body(a: kind, b: kind) -> (kind, SCC):
        """SCC is set when the result is not 0."""
        result = relation(a, b)
        return result, result != 0

    return body


def _shift(kind: Type, shift: Callable[[Value, Value], Value]):
    def body(a: kind, b: u32) -> (kind, SCC):
        """Shifts by the count modulo the width; SCC is set if the result is not 0."""
        result = shift(a, b)
        return result, result != 0

    return body


for _i, _kind in enumerate(BITS):
    sop2(10 + _i, name=f"s_cselect_{SUFFIX[_kind]}")(_select(_kind))
    for _j, (_name, _relation) in enumerate(LOGIC.items()):
        sop2(12 + 2 * _j + _i, name=f"s_{_name}_{SUFFIX[_kind]}")(_logic(_kind, _relation))
    sop2(28 + _i, name=f"s_lshl_{SUFFIX[_kind]}")(_shift(_kind, shl))
    sop2(30 + _i, name=f"s_lshr_{SUFFIX[_kind]}")(_shift(_kind, lshr))
    sop2(32 + _i, name=f"s_ashr_i{_kind.bits}")(_shift((i32, i64)[_i], ashr))


def _field_mask(kind: Type):
    def body(a: u32, b: u32) -> kind:
        """((1 << a) - 1) << b, both counts modulo the width."""
        one = cast(const(a, 1), kind)
        return shl(shl(one, a) - 1, b)

    return body


sop2(34, name="s_bfm_b32")(_field_mask(u32))
sop2(35, name="s_bfm_b64")(_field_mask(u64))


def _extract(kind: Type):
    """Returns the body that extracts a bit field: offset in b's low bits, width in b[22:16]; SCC is set if it is not 0."""

    def body(a: kind, b: u32) -> (kind, SCC):
        width = lshr(b, 16) & 127
        rest = const(b, kind.bits) - width  # used only below the full width
        signed = kind.kind == "signed"
        shift = ashr if signed else lshr
        moved = shift(a, b)
        field = shift(shl(moved, rest), rest)
        result = where(width >= kind.bits, moved, where(width == 0, 0, field))
        return result, result != 0

    return body


sop2(37, name="s_bfe_u32")(_extract(u32))
sop2(38, name="s_bfe_i32")(_extract(i32))
sop2(39, name="s_bfe_u64")(_extract(u64))
sop2(40, name="s_bfe_i64")(_extract(i64))


@sop2(36)
def s_mul_i32(a: u32, b: u32) -> u32:
    """Returns the low half of the product; SCC is kept."""
    return a * b


@sop2(44)
def s_mul_hi_u32(a: u32, b: u32) -> u32:
    return mul_hi(a, b)


@sop2(45)
def s_mul_hi_i32(a: i32, b: i32) -> i32:
    return mul_hi(a, b)


@sop2(42)
def s_absdiff_i32(a: i32, b: i32) -> (i32, SCC):
    """|a - b|, wrapping; SCC is set when it is not 0."""
    difference = a - b
    result = where(difference < 0, -difference, difference)
    return result, result != 0


def _shift_add(count: int):
    def body(a: u32, b: u32) -> (u32, SCC):
        """SCC is set if the exact sum does not fit 32 bits."""
        total = shl(cast(a, u64), count) + cast(b, u64)
        return cast(total, u32), lshr(total, 32) != 0

    return body


for _count in (1, 2, 3, 4):
    sop2(45 + _count, name=f"s_lshl{_count}_add_u32")(_shift_add(_count))


@sop2(50)
def s_pack_ll_b32_b16(a: u32, b: u32) -> u32:
    return a & 0xFFFF | shl(b, 16)


@sop2(51)
def s_pack_lh_b32_b16(a: u32, b: u32) -> u32:
    return a & 0xFFFF | b & 0xFFFF0000


@sop2(52)
def s_pack_hh_b32_b16(a: u32, b: u32) -> u32:
    return lshr(a, 16) | b & 0xFFFF0000


# SOPC


def _compare(kind: Type, relation: Callable[[Value, Value], Value]):
    def body(a: kind, b: kind) -> SCC:
        return relation(a, b)

    return body


def _bit_is(kind: Type, wanted: int):
    def body(a: kind, b: u32) -> SCC:
        """True if bit b (modulo the width) of a has the wanted value."""
        return (lshr(a, b) & 1) == wanted

    return body


for _base, _kind in ((0, i32), (6, u32)):
    for _j, (_name, _relation) in enumerate(RELATION.items()):
        sopc(_base + _j, name=f"s_cmp_{_name}_{_kind}")(_compare(_kind, _relation))
sopc(18, name="s_cmp_eq_u64")(_compare(u64, operator.eq))
sopc(19, name="s_cmp_lg_u64")(_compare(u64, operator.ne))
for _j in (0, 1):
    sopc(12 + _j, name=f"s_bitcmp{_j}_b32")(_bit_is(u32, _j))
    sopc(14 + _j, name=f"s_bitcmp{_j}_b64")(_bit_is(u64, _j))


# SOPK; the 16-bit immediate has the signedness of its type


@sopk(0)
def s_movk_i32(simm16: i16) -> i32:
    return cast(simm16, i32)


@sopk(1)
def s_cmovk_i32(simm16: i16, sdst: i32, scc: SCC) -> i32:
    """Written only when SCC is set."""
    return where(scc, cast(simm16, i32), sdst)


def _compare_immediate(kind: Type, short: Type, relation: Callable[[Value, Value], Value]):
    def body(sdst: kind, simm16: short) -> SCC:
        return relation(sdst, cast(simm16, kind))

    return body


for _base, _kind, _short in ((2, i32, i16), (8, u32, u16)):
    for _j, (_name, _relation) in enumerate(RELATION.items()):
        _made = _compare_immediate(_kind, _short, _relation)
        sopk(_base + _j, name=f"s_cmpk_{_name}_{_kind}")(_made)


@sopk(14)
def s_addk_i32(sdst: i32, simm16: i16) -> (i32, SCC):
    """SCC is signed overflow."""
    return s_add_i32(sdst, cast(simm16, i32))


@sopk(15)
def s_mulk_i32(sdst: i32, simm16: i16) -> i32:
    """SCC is kept."""
    return sdst * cast(simm16, i32)
