"""Bodies of the atomics, shared by DS, FLAT, MUBUF and SMEM: (old, data[, data]) -> new.

A float minimum or maximum keeps the old value unless the data is less (greater), as LDS and L2 do (CDNA3 ISA guide,
DS_MIN_F32). Float sums are rounded once.
"""

# No `from __future__ import annotations`: a factory's annotations are its local types.

from collections.abc import Callable

from simgpu.hardware.isa.lane import Value, either, imax, imin, lshr, where
from simgpu.hardware.isa.types import Type, bf16x2, f16x2, f32, f64, i32, i64, u32, u64

Body = Callable[..., Value]
Pair = tuple[Value, Value]
UNSIGNED = {32: u32, 64: u64}
SIGNED = {32: i32, 64: i64}
FLOAT = {32: f32, 64: f64}

# Functions of the old value and the data, by name.
OPERATION: dict[str, Callable[[Value, Value], Value]] = {
    "swap": lambda old, data: data,
    "add": lambda old, data: old + data,
    "sub": lambda old, data: old - data,
    "rsub": lambda old, data: data - old,
    "smin": imin,
    "umin": imin,
    "smax": imax,
    "umax": imax,
    "and": lambda old, data: old & data,
    "or": lambda old, data: old | data,
    "xor": lambda old, data: old ^ data,
    "inc": lambda old, data: where(old >= data, 0, old + 1),
    "dec": lambda old, data: where(either(old == 0, old > data), data, old - 1),
    "fmin": lambda old, data: where(data < old, data, old),
    "fmax": lambda old, data: where(data > old, data, old),
}


def operation(name: str, kind: Type) -> Body:
    """Returns the body of an operation of `OPERATION` on a type."""
    combine = OPERATION[name]

    def body(old: kind, data: kind) -> kind:
        return combine(old, data)

    return body


def integer(name: str, bits: int) -> Body:
    """Returns the body of an integer operation of `bits`, signed for smin and smax."""
    return operation(name, (SIGNED if name in ("smin", "smax") else UNSIGNED)[bits])


def packed_add(kind: Type) -> Body:
    """Returns the body that adds both 16-bit halves separately."""

    def body(old: kind, data: kind) -> kind:
        return old[0] + data[0], old[1] + data[1]

    return body


def compare_swap(bits: int) -> Body:
    """Returns the body of cmpswap in FLAT, MUBUF and SMEM: stores the data's low half if its high half equals the old value."""
    kind = UNSIGNED[bits]

    def body(old: kind, data: kind, compare: kind) -> kind:
        return where(old == compare, data, old)

    return body


def compare_store(kind: Type) -> Body:
    """Returns the body of DS_CMPST: stores data1 if the old value equals data0, compared as `kind`."""

    def body(old: kind, compare: kind, data: kind) -> kind:
        return where(old == compare, data, old)

    return body


def masked_or(bits: int) -> Body:
    """Returns the body of DS_MSKOR: (old and not data0) or data1."""
    kind = UNSIGNED[bits]

    def body(old: kind, clear: kind, data: kind) -> kind:
        return old & ~clear | data

    return body


def wrap(old: u32, data: u32, addend: u32) -> u32:
    """Returns old - data0 if that is not negative, else old + data1."""
    return where(old >= data, old - data, old + addend)


def conditional_exchange(old: u64, data: u64) -> u64:
    """Returns the old value with each 32-bit half replaced by the data's low 31 bits if the data's bit 31 is set there."""
    low = where((lshr(data, 31) & 1) != 0, data & 0x7FFFFFFF, old & 0xFFFFFFFF)
    kept = old & 0xFFFFFFFF00000000
    high = where(lshr(data, 63) != 0, data & 0x7FFFFFFF00000000, kept)
    return low | high


# Integer atomics of FLAT, MUBUF and SMEM, in the order of their opcodes; 64-bit opcodes are 32 higher.
INTEGER = ["swap", "cmpswap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec"]


def cache_atomic(name: str, bits: int) -> Body:
    """Returns the body of one of `INTEGER`."""
    return compare_swap(bits) if name == "cmpswap" else integer(name, bits)


PACKED = {"pk_add_f16": packed_add(f16x2), "pk_add_bf16": packed_add(bf16x2)}
