"""Checks sums of matrix instructions for NaN and infinities from finite operands, and 8-bit operands for NaN codes.

An element of D is not new if an infinity or a NaN in A or B made it. For f32 and f64, `simgpu.matrix.fma_tile` knows this for
each element. For packed types nothing counts as new if any element of A or B is not finite.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.checks.numerics.table import NumericKind, enter, keep, lowest, ones, special
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.mfma.instruction import BITS
from simgpu.hardware.mfma.numbers import FORMATS, NumberFormat
from simgpu.machine.accesses import LaneSums
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace
from simgpu.machine.runtime import load64, part, runtime, structure
from simgpu.machine.values import F64, I64, IrValue, where
from simgpu.matrix.fma_tile import selections
from simgpu.matrix.fragments import stack
from simgpu.matrix.instruction import row_of

NAN, INFINITY, NAN_CODE = (int(kind) for kind in (NumericKind.NAN, NumericKind.INFINITY, NumericKind.NAN_CODE))
# For formats with few NaN codes: the field and its value.
NAN_CODES = {"fp8": (0x7F, 0x7F), "fp8_fnuz": (0xFF, 0x80), "bf8_fnuz": (0xFF, 0x80)}


@dataclass(frozen=True)
class PackedOperand:
    """A or B of a packed type."""

    place: OperandPlace
    type: str  # of the elements, as the matrix table names it
    bits: int  # of an element, at least 8
    field: int  # bits of an element that show that it is not finite
    value: int  # value of these bits in an element that is not finite

    @property
    def registers(self) -> int:
        return self.place.bits // 32


@dataclass(frozen=True)
class MatrixFacts:
    """Facts that the hooks use about an instruction."""

    operands: tuple[PackedOperand, ...]  # A and B; empty for f32 and f64, where `LaneSums.spoilt` replaces them


def plan_matrix(inst: Instruction, operands: Any) -> MatrixFacts | None:
    """Returns how to check a matrix instruction's sums, None for integers."""
    row = row_of(inst)
    if row.cd_type == "i32":
        return None
    if row.a_type in ("f32", "f64"):
        return MatrixFacts(())
    mods = selections(inst)
    formats = row.with_formats(mods["cbsz"], mods["blgp"])
    places = zip((operands.a, operands.b), (formats.a_type, formats.b_type), strict=True)
    return MatrixFacts(tuple(_operand(place, name) for place, name in places))


def _operand(place: OperandPlace, name: str) -> PackedOperand:
    form = FORMATS["f32" if name == "xf32" else name]
    field, value = NAN_CODES.get(name) or _top(form)
    return PackedOperand(place, name, max(8, BITS[name]), field, value)


def _top(form: NumberFormat) -> tuple[int, int]:
    """Returns `field` and `value` of a PackedOperand: the exponent's bits for both, or a test that never succeeds if all codes
    are finite."""
    if form.special == "finite":
        return 0, 1
    field = ((1 << form.exponent) - 1) << form.mantissa
    return field, field


def emit_sum_notes(frame: Frame, matrix: MatrixFacts, sums: LaneSums) -> None:
    """Emits notes of the lanes with new NaN or infinities; see `Hooks.on_sums`."""
    new, old = sums.new, sums.old
    lanes = new.lanes
    fresh_nan = new.is_nan() & ~old.is_nan()
    infinite, finite_before = _infinite(new), ~(_infinite(old) | old.is_nan())
    fresh_inf = infinite & finite_before
    if sums.spoilt is not None:
        fresh_nan, fresh_inf = fresh_nan & ~sums.spoilt, fresh_inf & ~sums.spoilt
    rows = stack(frame, 2 * 8 * LANES)
    integer = ir.VectorType(ir.IntType(64 if new.type.element == F64 else 32), lanes)
    for number, value in enumerate((old, new)):
        bits = value.bitcast(integer)
        rows.at(8 * lanes * number).store(bits if integer.element == I64 else bits.zext(I64), 64)
    mask = ir.IntType(lanes)
    nan, inf = (test.bitcast(mask).zext(I64) for test in (fresh_nan, fresh_inf))
    if not matrix.operands:
        for kind, which in ((NumericKind.NAN, nan), (NumericKind.INFINITY, inf)):
            note_sums.call(frame.build, frame.wave, sums.record, int(kind), which, lanes, sums.group, rows)
        return
    operands = stack(frame, len(matrix.operands) * PACKED_BYTES)
    for number, operand in enumerate(matrix.operands):
        coded = operand.type in NAN_CODES or operand.type == "bf8"
        fields = frame.operand(operand.place.slot).address(), operand.registers, operand.bits, operand.field, operand.value, coded
        for at, value in enumerate(fields):
            given = ir.Constant(I64, int(value)) if isinstance(value, int) else value
            operands.at(PACKED_BYTES * number + 8 * at).store(given, 8)
    note_packed.call(frame.build, frame.wave, sums.record, nan, inf, lanes, sums.group, rows, operands)


def _infinite(value: IrValue) -> IrValue:
    positive = where(value.ordered < 0.0, -value, value)
    return positive == float("inf")


@part
def enter_sums(wave: int, record: int, kind: int, mask: int, lanes: int, group: int, rows: int) -> None:
    """Notes elements of D, if any. mask: lanes of the group. rows: address of their C and D, `lanes` i64 each."""
    if mask == 0:
        return
    each = LANES // lanes
    entry = enter(wave, record, kind, mask << lanes * (group % each), ones(mask), group // each)
    if entry:
        lane = lowest(mask)
        for number in range(2):
            keep(entry, number, load64(rows + 8 * (lanes * number + lane)))


@runtime
def note_sums(wave: int, record: int, kind: int, mask: int, lanes: int, group: int, rows: int) -> None:
    """Calls `enter_sums`, for handlers."""
    enter_sums(wave, record, kind, mask, lanes, group, rows)


class PackedStructure(Structure):
    """A or B of a packed type, on the stack of a handler."""

    _fields_ = (
        ("registers", c_int64),  # address of the first register
        ("count", c_int64),  # number of registers
        ("bits", c_int64),  # bits of an element
        ("field", c_int64),  # see `PackedOperand`
        ("value", c_int64),
        ("coded", c_int64),  # 1 if the format has codes that mean NaN
    )


PACKED, PACKED_BYTES = np.dtype(PackedStructure), sizeof(PackedStructure)


@part
def not_finite(operand: Any) -> int:
    """Returns the bits of an element of A or B that is not finite, -1 if all are finite. operand: a `PackedStructure`."""
    return special(operand.registers, operand.count, operand.bits, operand.field, operand.value)


@runtime
def note_packed(wave: int, record: int, nan: int, inf: int, lanes: int, group: int, rows: int, operands: int) -> None:
    """Notes elements of D if all of A and B is finite; otherwise a NaN code in A or B of an 8-bit type.

    nan, inf: masks of the group's lanes. operands: address of two `PackedStructure`, A and B.
    """
    if (nan | inf) == 0:
        return
    a, b = structure(operands, PACKED), structure(operands + PACKED_BYTES, PACKED)
    of_a, of_b = not_finite(a), not_finite(b)
    for number, (code, coded) in enumerate(((of_a, a.coded), (of_b, b.coded))):
        if code >= 0 and coded:
            entry = enter(wave, record, NAN_CODE, 0, 1, number)
            if entry:
                keep(entry, 0, code)
    if of_a < 0 and of_b < 0:
        enter_sums(wave, record, NAN, nan, lanes, group, rows)
        enter_sums(wave, record, INFINITY, inf, lanes, group, rows)
