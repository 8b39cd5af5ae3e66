"""Typed buffer accesses: elements in memory to registers and back, by data and number format.

buffer_*_format_* use the formats and dst_sel of the resource, tbuffer_* the instruction's formats and no selection (ISA
guides, "Buffer Instructions" and "Memory Buffer Data Format"). A resource's format is known only at run time. So each
field is converted by all rules, and the right result is selected. An element is in range as a whole or not at all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.spec import Memory
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import LLVMOps
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import F32, I16, I32, I64, IrValue, where
from simgpu.machine.values import constant as constant_of
from simgpu.machine.wave_frame import ROW32
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.lane_copy import StagedRows, read_staged, write_staged

# Bits of the fields X, Y, Z, W of a data format, lowest bits first. The formats' names list them from the highest bits down.
WIDTHS: dict[int, tuple[int, ...]] = {
    1: (8,), 2: (16,), 3: (8, 8), 4: (32,), 5: (16, 16), 6: (11, 11, 10), 7: (10, 11, 11),
    8: (2, 10, 10, 10), 9: (10, 10, 10, 2), 10: (8, 8, 8, 8), 11: (32, 32),
    12: (16, 16, 16, 16), 13: (32, 32, 32), 14: (32, 32, 32, 32),
}  # fmt: skip
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, SNORM_OGL, FLOAT = range(8)
SEL_0, SEL_1, SEL_X = 0, 1, 4
ONE = 0x3F800000
REALS = ir.VectorType(F32, LANES)


def element_bytes(data_format: int) -> int:
    """Returns the bytes of an element, 0 for an invalid format."""
    return sum(WIDTHS.get(data_format, ())) // 8


def field_at(data_format: int, component: int) -> tuple[int, int]:
    """Returns (offset, width) in bits of a component; width 0 if the format has none."""
    widths = WIDTHS.get(data_format, ())
    if component >= len(widths):
        return 0, 0
    return sum(widths[:component]), widths[component]


@dataclass
class AccessFormat:
    """Format of one access, as i32 values: constants for tbuffer, run-time values for buffer."""

    size: IrValue  # bytes of an element
    number: IrValue  # number format
    fields: list[tuple[IrValue, IrValue]]  # offset and width of each component
    select: list[IrValue] | None  # dst_sel of each component


def instruction_format(frame: Frame, code: int) -> AccessFormat:
    """Returns tbuffer's format: data format in bits 3:0, number format in bits 6:4."""

    def known_field(value: int) -> IrValue:
        return frame.value(ir.Constant(I32, value))

    data, number = code & 15, code >> 4
    fields = [field_at(data, component) for component in range(4)]
    return AccessFormat(
        known_field(element_bytes(data)), known_field(number), [(known_field(at), known_field(width)) for at, width in fields], None
    )


def resource_format(frame: Frame, place: OperandPlace) -> AccessFormat:
    """Returns buffer's format, from the resource's last dword."""
    word = frame.operand(place.slot).at(12).load(I32)

    def bits(shift: int, count: int) -> IrValue:
        return word >> shift & (1 << count) - 1

    data = bits(15, 4)

    def looked_up(value_of: Callable[[int], int]) -> IrValue:
        """Returns value_of(data format), below 256: looked up in a table of bytes in two i64 constants."""
        tables = (sum(value_of(first + i) << 8 * i for i in range(8)) for first in (0, 8))
        low, high = (table >> ((data & 7) * 8).zext(I64) for table in tables)
        return where(data.unsigned >= 8, high, low).trunc(I32) & 0xFF

    def part(component: int, which: int) -> IrValue:
        return looked_up(lambda code: field_at(code, component)[which])

    return AccessFormat(
        looked_up(element_bytes),
        bits(12, 3),
        [(part(component, 0), part(component, 1)) for component in range(4)],
        [bits(3 * component, 3) for component in range(4)],
    )


class Converter:
    """Converts rows (<64 x i32>) between fields in memory and register values, by one format."""

    def __init__(self, frame: Frame, form: AccessFormat, d16: bool) -> None:
        self.frame = frame
        self.form = form
        self.d16 = d16
        self.ops = LLVMOps(frame.build, LANES)

    def is_number(self, *codes: int) -> IrValue:
        return functools.reduce(operator.or_, (self.form.number == code for code in codes)).splat(LANES)

    def ones(self, width: IrValue, less: int = 0) -> IrValue:
        """Returns 2**(width - less) - 1 as a scalar, 0 for width 0."""
        wide = width.zext(I64)
        count = where(wide == 0, less, wide - less)
        return ((1 << count) - 1).trunc(I32)

    def _largest(self, width: IrValue, less: int) -> IrValue:
        return self.ones(width, less).uitofp(F32).splat(LANES)

    def sign_extended(self, raw: IrValue, width: IrValue) -> IrValue:
        up = 32 - width & 31
        return (raw << up).ashr(up)

    # -- memory to registers -------------------------------------------------------------------

    def load_component(self, words: list[IrValue], field: tuple[IrValue, IrValue], last: bool | IrValue) -> IrValue:
        """Returns the register values of a field, 32 bits; d16 forms use the low 16. A missing field gives 0, or 1 if it is W.

        words: the element's dwords. last: True if the field is W
        """
        offset, width = field
        raw = self.field(words, offset, width)
        signed = self.sign_extended(raw, width)
        unorm = raw.uitofp(F32) / self._largest(width, 0)
        ratio = signed.sitofp(F32) / self._largest(width, 1)
        snorm = where(ratio.ordered < -1.0, -1.0, ratio)
        value = unorm.bitcast(ROW32)
        for codes, other in (
            ((SNORM, SNORM_OGL), snorm.bitcast(ROW32)),
            ((USCALED,), raw.uitofp(F32).bitcast(ROW32)),
            ((SSCALED,), signed.sitofp(F32).bitcast(ROW32)),
            ((FLOAT,), self._widen(raw, width)),
        ):
            value = where(self.is_number(*codes), other, value)
        if self.d16:
            value = self._to_half(value)
        value = where(self.is_number(UINT), raw, where(self.is_number(SINT), signed, value))
        lacking = where(last, self.one_value(), 0) if isinstance(last, IrValue) else self.one_value() if last else 0
        return where(width == 0, lacking, value)

    def one_value(self) -> IrValue:
        """Returns 1 in the format: 1.0, or the integer."""
        real = constant_of(ROW32, 0x3C00 if self.d16 else ONE)
        return where(self.is_number(UINT, SINT), constant_of(ROW32, 1), real)

    def field(self, words: list[IrValue], offset: IrValue, width: IrValue) -> IrValue:
        which = offset >> 5
        word = words[0]
        for number in (1, 2, 3):
            word = where(which == number, words[number], word)
        return word >> (offset & 31) & self.ones(width)

    def _to_half(self, row: IrValue) -> IrValue:
        """Converts f32 bits to f16 bits."""
        return self.ops._narrow(t.f16, row.bitcast(REALS)).zext(I32)

    def _widen(self, raw: IrValue, width: IrValue) -> IrValue:
        """Converts floats of 32, 16, 11 and 10 bits; the last two have no sign and f16's exponent."""
        half = raw
        for bits, shift in ((11, 4), (10, 5)):
            moved = raw << shift
            half = where(width == bits, moved, half)
        narrow = half.trunc(I16)
        whole = (width == 32).splat(LANES)
        return where(whole, raw, self.ops.widen_half(narrow).bitcast(ROW32))

    def select_component(self, words: list[IrValue], component: int) -> IrValue:
        """Returns the register values of a component. dst_sel selects its field before the conversion."""
        fields = self.form.fields
        if self.form.select is None:
            return self.load_component(words, fields[component], component == 3)
        select = self.form.select[component]
        offset, width = fields[0]
        for number in (1, 2, 3):
            chosen = select == SEL_X + number
            offset, width = where(chosen, fields[number][0], offset), where(chosen, fields[number][1], width)
        value = self.load_component(words, (offset, width), select == SEL_X + 3)
        return where(select.unsigned >= SEL_X, value, where(select == SEL_1, self.one_value(), 0))

    def out_of_range(self, component: int) -> Any:
        """Returns the value of a lane out of range: 0, or 1 if dst_sel is 1."""
        return 0 if self.form.select is None else where(self.form.select[component] == SEL_1, self.one_value(), 0)

    # -- registers to memory -------------------------------------------------------------------

    def store_component(self, row: IrValue, component: int) -> IrValue:
        """Returns the bits of a component's field, in place within its word."""
        offset, width = self.form.fields[component]
        number = row
        if self.d16:
            number = self.ops.widen_half(row.trunc(I16)).bitcast(ROW32)
            row = where(self.is_number(SINT), (row << 16).ashr(16), row & 0xFFFF)
        real = number.bitcast(REALS)
        unorm = self._integer(self._limit(real, 0.0) * self._largest(width, 0), False)
        snorm = self._integer(self._limit(real, -1.0) * self._largest(width, 1), True)
        bits = row
        for codes, other in (
            ((UNORM,), unorm),
            ((SNORM, SNORM_OGL), snorm),
            ((USCALED,), self._integer(real, False)),
            ((SSCALED,), self._integer(real, True)),
            ((FLOAT,), self._narrow(number, width)),
        ):
            bits = where(self.is_number(*codes), other, bits)
        return (bits & self.ones(width)) << (offset & 31)

    def _limit(self, value: IrValue, low: float) -> IrValue:
        """Clamps a value to low..1; NaN becomes 0."""
        value = where(value.is_nan(), 0.0, value)
        value = where(value.ordered < low, low, value)
        return where(value.ordered > 1.0, 1.0, value)

    def _integer(self, value: IrValue, signed: bool) -> IrValue:
        """Rounds to the nearest integer, saturated to 32 bits."""
        near = self.ops.intrinsic("rint", F32, [value])
        target = t.i32 if signed else t.u32
        return self.ops.convert(t.f32, target, near)

    def _narrow(self, number: IrValue, width: IrValue) -> IrValue:
        half = self._to_half(number)
        positive = where(half.unsigned >= 0x8000, 0, half)
        bits = half
        for small, shift in ((11, 4), (10, 5)):
            moved = positive >> shift
            bits = where(width == small, moved, bits)
        return where(width == 32, number, bits)


@dataclass
class Element:
    """Elements that the lanes access."""

    lanes: IrValue  # i64 mask of active lanes
    fits: IrValue  # i64 mask of active lanes in range
    address_of: Callable[[int], IrValue]  # address_of(n): <64 x i64>, device addresses of dword n


def _pieces(form: AccessFormat) -> list[tuple[int, int, IrValue]]:
    """Returns the accesses that an element may need, as (dword, bytes, i1: True if the format needs it)."""
    dwords = [(number, 4, form.size.unsigned >= 4 * number + 4) for number in range(4)]
    return [(0, 1, form.size == 1), (0, 2, form.size == 2), *dwords]


def load(frame: Frame, inst: Instruction, form: AccessFormat, element: Element, registers: IrValue) -> None:
    """Emits a formatted load into consecutive registers from `registers`."""
    memory = inst.spec.memory
    assert memory is not None
    active = frame.lanes(element.lanes)
    for number, row in enumerate(_pack_registers(memory, convert(frame, memory, form, element))):
        frame.write_row(registers, number, row, active)


def convert(frame: Frame, memory: Memory, form: AccessFormat, element: Element) -> list[IrValue]:
    """Returns each component that the instruction loads, as <64 x i32>."""
    words = [frame.value(ir.Constant(ROW32, None))] * 4
    for number, size, present in _pieces(form):
        GlobalAccess(frame, element.address_of(number), size, False).run(where(present, element.fits, 0))
        row = read_staged(frame, StagedRows(8 * size))[0]
        words[number] = where(present, row, words[number])
    convert = Converter(frame, form, bool(memory.d16))
    valid = frame.lanes(element.fits)
    return [where(valid, convert.select_component(words, c), convert.out_of_range(c)) for c in range(memory.format)]


def _pack_registers(memory: Memory, results: list[IrValue]) -> list[IrValue]:
    """Packs components into registers: d16 forms hold two each, with 0 in a half without a component (`read_staged`)."""
    if not memory.d16:
        return results
    halves = [row & 0xFFFF for row in results]
    if memory.d16 == "hi":
        return [half << 16 for half in halves]
    rows = [below | above << 16 for below, above in zip(halves[::2], halves[1::2], strict=False)]
    return rows + halves[len(rows) * 2 :]


def store(frame: Frame, inst: Instruction, form: AccessFormat, element: Element, registers: IrValue) -> None:
    """Emits a formatted store; components that the instruction lacks are written as 0."""
    memory = inst.spec.memory
    assert memory is not None
    convert = Converter(frame, form, bool(memory.d16))
    words = [frame.value(ir.Constant(ROW32, None))] * 4
    for component in range(memory.format):
        bits = convert.store_component(_component(frame, memory, registers, component), component)
        which = form.fields[component][0] >> 5
        for number in range(4):
            words[number] = words[number] | where(which == number, bits, 0)
    for number, size, present in _pieces(form):
        mask = where(present, element.fits, 0)
        write_staged(frame, StagedRows(8 * size), [words[number]])
        GlobalAccess(frame, element.address_of(number), size, True).run(mask)


def _component(frame: Frame, memory: Memory, registers: IrValue, component: int) -> IrValue:
    if not memory.d16:
        return frame.row(registers, component)
    place = component + (memory.d16 == "hi")
    return frame.row(registers, place // 2) >> 16 * (place % 2)
