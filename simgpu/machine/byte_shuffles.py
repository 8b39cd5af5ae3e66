"""Selects bytes of rows by the host's instruction for it (x86's PSHUFB), where it has whole vectors of that."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instructions import vop3_int
from simgpu.hardware.isa.lane import Value
from simgpu.machine import intrinsics
from simgpu.machine.host import host
from simgpu.machine.values import I8, IrValue, join_vectors

_NAMES = {256: "llvm.x86.avx2.pshuf.b", 512: "llvm.x86.avx512.pshuf.b.512"}
_EACH = 0x01010101  # 1 in each byte
_PART = 4  # dwords of 128 bits, within which the instruction selects


def selected_bytes(a: Value, b: Value, c: Value) -> Value:
    """Returns for each byte of c, 0 to 7, that byte of {a, b}, and zero for 12; rows of u32."""
    if not host().shuffles_bytes:
        generic: Value = vop3_int.selected_bytes.__wrapped__(a, b, c)  # type: ignore[attr-defined]
        return generic
    ops: Any = a.ops
    rows = [IrValue(ops.builder, ops._vector(value.raw)) for value in (a, b, c)]
    lanes, width = rows[0].lanes, host().vector_bits // 32
    pieces = [_select(*(row.shuffle(range(at, at + width)) for row in rows)) for at in range(0, lanes, width)]
    return Value(ops, a.type, join_vectors(pieces, lanes)[0])


def _select(a: IrValue, b: IrValue, c: IrValue) -> IrValue:
    """Returns the bytes in one vector register of the host."""
    first = ir.Constant(a.type, [_EACH * 4 * (lane % _PART) for lane in range(a.lanes)])
    index = _bytes((c & 3 * _EACH) + first | c << 4 & 0x80 * _EACH)  # a byte is zero if bit 7 of its index is set
    upper = _bytes(c << 5).signed < 0  # bit 2 of a byte's selector
    return a.build.select(upper, _shuffle(_bytes(a), index), _shuffle(_bytes(b), index)).bitcast(a.type)


def _bytes(value: IrValue) -> IrValue:
    return value.bitcast(ir.VectorType(I8, 4 * value.lanes))


def _shuffle(table: IrValue, index: Any) -> IrValue:
    return intrinsics.call(table.build, _NAMES[8 * table.lanes], table.type, [table, index])
