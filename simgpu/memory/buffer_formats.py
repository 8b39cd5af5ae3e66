"""Typed buffer accesses: elements in memory to registers and back, by data and number format.

buffer_*_format_* take the formats and dst_sel of the resource, tbuffer_* the instruction's formats
and no selection (ISA guides, "Buffer Instructions" and "Memory Buffer Data Format"). Which format
a resource has is known at run time only, so fields are cut out and converted by all rules and the
right one is selected. An element is in range as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.spec import Memory
from simgpu.machine.frame import ROW32, Frame
from simgpu.machine.lane_ops import F32, I16, I32, I64, LLVMOps
from simgpu.machine.layout import LANES
from simgpu.machine.operands import Place
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.lane_copy import Rows, constant, read_staged, write_staged

# Fields of a data format, lowest bits first: width of X, Y, Z, W. The names count from the top.
WIDTHS: dict[int, tuple[int, ...]] = {
    1: (8,), 2: (16,), 3: (8, 8), 4: (32,), 5: (16, 16), 6: (11, 11, 10), 7: (10, 11, 11),
    8: (2, 10, 10, 10), 9: (10, 10, 10, 2), 10: (8, 8, 8, 8), 11: (32, 32),
    12: (16, 16, 16, 16), 13: (32, 32, 32), 14: (32, 32, 32, 32),
}  # fmt: skip
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, SNORM_OGL, FLOAT = range(8)
SEL_0, SEL_1, SEL_X = 0, 1, 4
ONE = 0x3F800000


def element_bytes(data_format: int) -> int:
    """Bytes of an element, 0 for an invalid format."""
    return sum(WIDTHS.get(data_format, ())) // 8


def field_at(data_format: int, component: int) -> tuple[int, int]:
    """(offset, width) in bits of a component; width 0 where the format has none."""
    widths = WIDTHS.get(data_format, ())
    if component >= len(widths):
        return 0, 0
    return sum(widths[:component]), widths[component]


@dataclass
class Format:
    """The format of one access, as i32 values: constants for tbuffer, run-time for buffer."""

    size: Any
    number: Any
    fields: list[tuple[Any, Any]]  # offset and width of each component
    select: list[Any] | None  # dst_sel of each component


def instruction_format(code: int) -> Format:
    """tbuffer's: data format in bits 3:0, number format in bits 6:4."""
    data, number = code & 15, code >> 4
    fields = [field_at(data, component) for component in range(4)]
    return Format(
        ir.Constant(I32, element_bytes(data)),
        ir.Constant(I32, number),
        [(ir.Constant(I32, offset), ir.Constant(I32, width)) for offset, width in fields],
        None,
    )


def resource_format(frame: Frame, place: Place) -> Format:
    """buffer's: from the resource's last dword."""
    build = frame.build
    word = frame.load(frame.at(frame.operand(place.slot), 12), I32)

    def bits(shift: int, count: int) -> Any:
        return build.and_(build.lshr(word, ir.Constant(I32, shift)), ir.Constant(I32, (1 << count) - 1))

    data = bits(15, 4)

    def looked_up(value_of: Callable[[int], int]) -> Any:
        """A small table by the data format: one byte an entry, in two constants."""
        halves = []
        for first in (0, 8):
            packed = sum(value_of(first + i) << 8 * i for i in range(8))
            shift = build.zext(build.mul(build.and_(data, ir.Constant(I32, 7)), ir.Constant(I32, 8)), I64)
            halves.append(build.lshr(constant(packed), shift))
        high = build.icmp_unsigned(">=", data, ir.Constant(I32, 8))
        chosen = build.trunc(build.select(high, halves[1], halves[0]), I32)
        return build.and_(chosen, ir.Constant(I32, 0xFF))

    def part(component: int, which: int) -> Any:
        return looked_up(lambda code: field_at(code, component)[which])

    return Format(
        looked_up(element_bytes),
        bits(12, 3),
        [(part(component, 0), part(component, 1)) for component in range(4)],
        [bits(3 * component, 3) for component in range(4)],
    )


class Converter:
    """Conversion of whole rows between memory fields and register values of one format."""

    def __init__(self, frame: Frame, form: Format, d16: bool) -> None:
        self.frame = frame
        self.build = frame.build
        self.form = form
        self.d16 = d16
        self.ops = LLVMOps(frame.build, LANES)

    def splat(self, scalar: Any) -> Any:
        return self.frame.splat(scalar)

    def is_number(self, *codes: int) -> Any:
        found: Any = ir.Constant(ir.IntType(1), 0)
        for code in codes:
            same = self.build.icmp_unsigned("==", self.form.number, ir.Constant(I32, code))
            found = self.build.or_(found, same)
        return self.splat(found)

    def ones(self, width: Any, less: int = 0) -> Any:
        """2**(width - less) - 1 as a scalar, 0 for width 0."""
        wide = self.build.zext(width, I64)
        empty = self.build.icmp_unsigned("==", wide, constant(0))
        count = self.build.select(empty, constant(less), self.build.sub(wide, constant(less)))
        power = self.build.shl(constant(1), count)
        return self.build.trunc(self.build.sub(power, constant(1)), I32)

    def _f32(self, row: Any) -> Any:
        return self.build.bitcast(row, ir.VectorType(F32, LANES))

    def _i32(self, row: Any) -> Any:
        return self.build.bitcast(row, ROW32)

    def _float(self, value: float) -> Any:
        return self.ops.constant(F32, value)

    def _largest(self, width: Any, less: int) -> Any:
        return self.splat(self.build.uitofp(self.ones(width, less), F32))

    def sign_extended(self, raw: Any, width: Any) -> Any:
        up = self.build.and_(self.build.sub(ir.Constant(I32, 32), width), ir.Constant(I32, 31))
        return self.build.ashr(self.build.shl(raw, self.splat(up)), self.splat(up))

    # -- memory to registers -------------------------------------------------------------------

    def loaded(self, words: list[Any], component: int) -> Any:
        """A component's register value (32 bits, 16 of them used by d16 forms)."""
        build = self.build
        offset, width = self.form.fields[component]
        raw = self.field(words, offset, width)
        signed = self.sign_extended(raw, width)
        vector = ir.VectorType(F32, LANES)
        unorm = build.fdiv(build.uitofp(raw, vector), self._largest(width, 0))
        ratio = build.fdiv(build.sitofp(signed, vector), self._largest(width, 1))
        low = self._float(-1.0)
        snorm = build.select(build.fcmp_ordered("<", ratio, low), low, ratio)
        value = self._i32(unorm)
        for codes, other in (
            ((SNORM, SNORM_OGL), self._i32(snorm)),
            ((USCALED,), self._i32(build.uitofp(raw, vector))),
            ((SSCALED,), self._i32(build.sitofp(signed, vector))),
            ((FLOAT,), self._widened(raw, width)),
        ):
            value = build.select(self.is_number(*codes), other, value)
        if self.d16:
            value = build.zext(self.ops._narrow(t.f16, self._f32(value)), ROW32)
        value = build.select(self.is_number(UINT), raw, build.select(self.is_number(SINT), signed, value))
        absent = build.icmp_unsigned("==", width, ir.Constant(I32, 0))
        default = self.one() if component == 3 else ir.Constant(ROW32, None)
        return build.select(self.splat(absent), default, value)

    def one(self) -> Any:
        """1 as the format has it: 1.0, or the integer."""
        whole = ir.Constant(ROW32, [1] * LANES)
        real = ir.Constant(ROW32, [0x3C00 if self.d16 else ONE] * LANES)
        return self.build.select(self.is_number(UINT, SINT), whole, real)

    def field(self, words: list[Any], offset: Any, width: Any) -> Any:
        build = self.build
        which = build.lshr(offset, ir.Constant(I32, 5))
        word = words[0]
        for number in (1, 2, 3):
            same = build.icmp_unsigned("==", which, ir.Constant(I32, number))
            word = build.select(self.splat(same), words[number], word)
        shift = build.and_(offset, ir.Constant(I32, 31))
        return build.and_(build.lshr(word, self.splat(shift)), self.splat(self.ones(width)))

    def _is_width(self, width: Any, bits: int) -> Any:
        return self.splat(self.build.icmp_unsigned("==", width, ir.Constant(I32, bits)))

    def _widened(self, raw: Any, width: Any) -> Any:
        """Floats of 32, 16, 11 and 10 bits; the last two have no sign and f16's exponent."""
        build = self.build
        half = raw
        for bits, shift in ((11, 4), (10, 5)):
            moved = build.shl(raw, ir.Constant(ROW32, [shift] * LANES))
            half = build.select(self._is_width(width, bits), moved, half)
        narrow = build.trunc(half, ir.VectorType(I16, LANES))
        return build.select(self._is_width(width, 32), raw, self._i32(self.ops.widen_half(narrow)))

    def selected(self, values: list[Any], component: int) -> Any:
        """What dst_sel makes of a component."""
        if self.form.select is None:
            return values[component]
        build, select = self.build, self.form.select[component]
        result = ir.Constant(ROW32, None)
        for code, value in ((SEL_1, self.one()), *((SEL_X + c, values[c]) for c in range(4))):
            same = build.icmp_unsigned("==", select, ir.Constant(I32, code))
            result = build.select(self.splat(same), value, result)
        return result

    def outside(self, component: int) -> Any:
        """What a lane out of range gets: 0, or 1 where dst_sel says 1."""
        if self.form.select is None:
            return ir.Constant(ROW32, None)
        fixed = self.build.icmp_unsigned("==", self.form.select[component], ir.Constant(I32, SEL_1))
        return self.build.select(self.splat(fixed), self.one(), ir.Constant(ROW32, None))

    # -- registers to memory -------------------------------------------------------------------

    def stored(self, row: Any, component: int) -> Any:
        """The bits of a component's field, in place within its word."""
        build = self.build
        offset, width = self.form.fields[component]
        whole = ir.Constant(ROW32, [16] * LANES)
        number = row
        if self.d16:
            narrow = build.trunc(row, ir.VectorType(I16, LANES))
            number = self._i32(self.ops.widen_half(narrow))
            row = build.select(
                self.is_number(SINT),
                build.ashr(build.shl(row, whole), whole),
                build.and_(row, ir.Constant(ROW32, [0xFFFF] * LANES)),
            )
        real = self._f32(number)
        unorm = self._integer(build.fmul(self._limited(real, 0.0), self._largest(width, 0)), False)
        snorm = self._integer(build.fmul(self._limited(real, -1.0), self._largest(width, 1)), True)
        bits = row
        for codes, other in (
            ((UNORM,), unorm),
            ((SNORM, SNORM_OGL), snorm),
            ((USCALED,), self._integer(real, False)),
            ((SSCALED,), self._integer(real, True)),
            ((FLOAT,), self._narrowed(number, width)),
        ):
            bits = build.select(self.is_number(*codes), other, bits)
        inside = build.and_(bits, self.splat(self.ones(width)))
        return build.shl(inside, self.splat(build.and_(offset, ir.Constant(I32, 31))))

    def _limited(self, value: Any, low: float) -> Any:
        """value within low..1; NaN becomes 0."""
        build, one, floor = self.build, self._float(1.0), self._float(low)
        nan = build.fcmp_unordered("uno", value, value)
        value = build.select(nan, self._float(0.0), value)
        value = build.select(build.fcmp_ordered("<", value, floor), floor, value)
        return build.select(build.fcmp_ordered(">", value, one), one, value)

    def _integer(self, value: Any, signed: bool) -> Any:
        """To the nearest integer, saturated to 32 bits."""
        near = self.ops.intrinsic("rint", F32, [value])
        target = t.i32 if signed else t.u32
        return self.ops.convert(t.f32, target, near)

    def _narrowed(self, number: Any, width: Any) -> Any:
        build = self.build
        half = build.zext(self.ops._narrow(t.f16, self._f32(number)), ROW32)
        negative = build.icmp_unsigned(">=", half, ir.Constant(ROW32, [0x8000] * LANES))
        positive = build.select(negative, ir.Constant(ROW32, None), half)
        bits = half
        for small, shift in ((11, 4), (10, 5)):
            moved = build.lshr(positive, ir.Constant(ROW32, [shift] * LANES))
            bits = build.select(self._is_width(width, small), moved, bits)
        return build.select(self._is_width(width, 32), number, bits)


@dataclass
class Element:
    """Where the lanes' elements lie.

    lanes, fits: i64 masks, active and of these in range; address_of(n): <64 x i64>, device
    addresses of dword n.
    """

    lanes: Any
    fits: Any
    address_of: Callable[[int], Any]


def _pieces(frame: Frame, form: Format) -> list[tuple[int, int, Any]]:
    """(dword, bytes, i1 whether the format has it): a byte, a short, or up to four dwords."""
    build = frame.build

    def size_is(test: str, value: int) -> Any:
        return build.icmp_unsigned(test, form.size, ir.Constant(I32, value))

    dwords = [(number, 4, size_is(">=", 4 * number + 4)) for number in range(4)]
    return [(0, 1, size_is("==", 1)), (0, 2, size_is("==", 2)), *dwords]


def load(frame: Frame, inst: Instruction, form: Format, where: Element, registers: Any) -> None:
    """Formatted load into consecutive registers from `registers`."""
    memory = inst.spec.memory
    assert memory is not None
    active = frame.lanes(where.lanes)
    for number, row in enumerate(_packed(frame, memory, converted(frame, memory, form, where), registers)):
        frame.write_row(registers, number, row, active)


def converted(frame: Frame, memory: Memory, form: Format, where: Element) -> list[Any]:
    """Each component that the instruction loads, as <64 x i32>."""
    build = frame.build
    words: list[Any] = [ir.Constant(ROW32, None)] * 4
    for number, size, present in _pieces(frame, form):
        mask = build.select(present, where.fits, constant(0))
        GlobalAccess(frame, where.address_of(number), size, False).run(mask)
        row = read_staged(frame, Rows(8 * size), None)[0]
        words[number] = build.select(frame.splat(present), row, words[number])
    convert = Converter(frame, form, bool(memory.d16))
    values = [convert.loaded(words, component) for component in range(4)]
    valid = frame.lanes(where.fits)
    return [build.select(valid, convert.selected(values, c), convert.outside(c)) for c in range(memory.format)]


def _packed(frame: Frame, memory: Memory, results: list[Any], registers: Any) -> list[Any]:
    """Components as registers: d16 forms hold two each and keep a half that they have nothing for."""
    if not memory.d16:
        return results
    build = frame.build
    low, up = ir.Constant(ROW32, [0xFFFF] * LANES), ir.Constant(ROW32, [16] * LANES)
    halves: list[Any] = [build.and_(row, low) for row in results]
    if memory.d16 == "hi":
        halves.insert(0, None)
    if len(halves) % 2:
        halves.append(None)
    rows = []
    for number in range(len(halves) // 2):
        old = frame.row(registers, number)
        first, second = halves[2 * number : 2 * number + 2]
        below = build.and_(old, low) if first is None else first
        above = build.lshr(old, up) if second is None else second
        rows.append(build.or_(below, build.shl(above, up)))
    return rows


def store(frame: Frame, inst: Instruction, form: Format, where: Element, registers: Any) -> None:
    """Formatted store; components that the instruction lacks are written as 0."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    convert = Converter(frame, form, bool(memory.d16))
    words: list[Any] = [ir.Constant(ROW32, None)] * 4
    for component in range(memory.format):
        bits = convert.stored(_component(frame, memory, registers, component), component)
        which = build.lshr(form.fields[component][0], ir.Constant(I32, 5))
        for number in range(4):
            here = frame.splat(build.icmp_unsigned("==", which, ir.Constant(I32, number)))
            mine = build.select(here, bits, ir.Constant(ROW32, None))
            words[number] = build.or_(words[number], mine)
    for number, size, present in _pieces(frame, form):
        mask = build.select(present, where.fits, constant(0))
        write_staged(frame, Rows(8 * size), [words[number]])
        GlobalAccess(frame, where.address_of(number), size, True).run(mask)


def _component(frame: Frame, memory: Memory, registers: Any, component: int) -> Any:
    if not memory.d16:
        return frame.row(registers, component)
    place = component + (memory.d16 == "hi")
    row = frame.row(registers, place // 2)
    amount = ir.Constant(ROW32, [16 * (place % 2)] * LANES)
    return frame.build.lshr(row, amount)
