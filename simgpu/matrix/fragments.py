"""Decodes matrix operands: each stored element of a lane becomes a separate row of 64 lanes.

Packed elements (f16, fp8, i8 ...) are spread: element s of each lane becomes row s of a block on the host stack, in the form
that the arithmetic needs. The maps of `simgpu.hardware.mfma` then give the row and lane of [i][k]. If 16 lanes of D
share a row of A and use consecutive lanes of B, one table of offsets and a loop over the 16-lane groups of D serve the
whole instruction.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.mfma.instruction import BITS, SCALE_BLOCK
from simgpu.hardware.mfma.numbers import FORMATS, NumberFormat
from simgpu.machine import intrinsics
from simgpu.machine.frame import Frame
from simgpu.machine.intrinsics import fabs, fma, umin
from simgpu.machine.lane_ops import LLVMOps
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import F32, F64, I8, I16, I32, I64, IrValue, constant, where
from simgpu.machine.wave_frame import MASK, ROW32, opaque

GROUP = 16  # lanes of one host vector of 32-bit elements
# The exponent of a zero: below every sum's largest exponent.
NO_TERM = -(1 << 20)
FROW = ir.VectorType(F32, LANES)


def stack(frame: Frame, nbytes: int) -> Any:
    """Allocates aligned bytes on the handler's stack."""
    with frame.build.goto_entry_block():
        slot = frame.build.alloca(ir.ArrayType(I8, nbytes))
        slot.align = 64
    return opaque(frame, slot)


def copy_registers(source: Any, target: Any, registers: int) -> None:
    """Copies registers from one pointer to another."""
    block = ir.VectorType(I32, GROUP)
    for at in range(0, registers * ROW, 64):
        target.at(at).store(source.at(at).load(block, 64), 64)


def copy_of(frame: Frame, pointer: Any, registers: int) -> Any:
    """Returns a pointer to a copy of registers on the handler's stack."""
    copied = stack(frame, registers * ROW)
    copy_registers(pointer, copied, registers)
    return copied


def elements(pointer: Any, places: np.ndarray, scalar: ir.Type) -> IrValue:
    """Loads a vector of the elements at `places` (row·64 + lane): broadcast, plain load or shuffle.

    pointer: to rows of 64 of the type `scalar`, of 32 or 64 bits. Raises UnsupportedInstruction if places are in two rows.
    """
    size = 8 if scalar in (F64, I64) else 4
    first = int(places[0])
    if (places == first).all():
        return pointer.at(size * first).load(scalar, size).splat(len(places))
    if (places == first + np.arange(len(places))).all():
        return pointer.at(size * first).load(ir.VectorType(scalar, len(places)), size)
    row = first // LANES
    if (places // LANES != row).any():
        raise UnsupportedInstruction("one step of a matrix instruction reads two registers")
    return pointer.at(size * LANES * row).load(ir.VectorType(scalar, LANES), 64).shuffle((places % LANES).tolist())


class Spread:
    """An operand, whose elements become `rows` rows of 64 lanes. count: its registers. name: its element type."""

    def __init__(self, frame: Frame, registers: Any, count: int, name: str) -> None:
        self.frame = frame
        self.registers = registers
        self.bits = BITS[name]
        self.name = name
        self.rows = count * 32 // self.bits

    @property
    def form(self) -> NumberFormat:
        """Format of the stored element; xf32 is stored as f32."""
        return FORMATS["f32" if self.name == "xf32" else self.name]

    def raw(self, row: int) -> IrValue:
        """Returns the element's bits, zero-extended to <64 x i32>."""
        register, low = divmod(row * self.bits, 32)
        word: IrValue = self.frame.row(self.registers, register)
        if self.bits == 32:
            return word
        value = word >> low if low else word
        if low + self.bits > 32:
            value = value | self.frame.row(self.registers, register + 1) << 32 - low
        return value & (1 << self.bits) - 1

    def by_registers(self, emit: Callable[[Self, Any], None]) -> None:
        """Emits code that decodes: `emit(part, first)` for each part whose elements fill whole registers. Parts differ only in
        their registers and in the number (int or i64) of their first row, so one loop serves all."""
        registers = math.lcm(self.bits, 32) // 32
        part = copy.copy(self)
        part.rows = registers * 32 // self.bits
        if part.rows == self.rows:
            emit(self, 0)
            return

        def emit_part(number: IrValue) -> tuple[()]:
            part.registers = self.registers.at(number * (registers * ROW))
            emit(part, number * part.rows)
            return ()

        self.frame.loop(self.rows // part.rows, emit_part)

    def store(self, pointer: Any, element: Callable[[Self, int], Any]) -> None:
        """Stores rows at `pointer`: the results of `element(part, row)`, 4 bytes a lane."""

        def store_part(part: Self, first: Any) -> None:
            for row in range(part.rows):
                pointer.at((first + row) * ROW).store(element(part, row), 64)

        self.by_registers(store_part)

    def integer(self, row: int) -> IrValue:
        """Returns an i8 element, sign-extended to i32."""
        return (self.raw(row) << 24).ashr(24)

    def float_value(self, row: int, flush: bool = False) -> IrValue:
        """Returns the element as f32, exactly; flush: denormals of the stored type count as +0 (gfx90a)."""
        value = self._float(self.raw(row))
        if flush:
            smallest = {"f16": 2.0**-14}.get(self.name, 2.0**-126)
            value = where(fabs(value).ordered < smallest, 0.0, value)
        return value

    def _float(self, raw: IrValue) -> IrValue:
        if self.name == "f16":
            half: IrValue = LLVMOps(self.frame.build, LANES).widen_half(raw.trunc(I16))
            return half
        if self.name == "bf16":
            return (raw << 16).bitcast(FROW)
        if self.name == "f32":
            return raw.bitcast(FROW)
        if self.name == "xf32":
            cut, whole = (raw & 0xFFFFE000).bitcast(FROW), raw.bitcast(FROW)
            return where(whole.is_nan(), whole, cut)
        significand, exponent, nan, inf = self._small(raw)
        scaled = significand.sitofp(F32) * (exponent + 127 << 23).bitcast(FROW)
        infinity = where(self._negative(raw), constant(FROW, -math.inf), math.inf)
        return where(nan, math.nan, where(inf, infinity, scaled))

    def finite_float(self, row: int) -> IrValue:
        """Returns the element as f32; NaN and infinities of 8-bit formats are infinite."""
        return self._finite_byte(self.raw(row)) if self.bits == 8 else self.float_value(row)

    def _finite_byte(self, raw: IrValue) -> IrValue:
        """Converts fp8 or bf8 by copying the fields to f32 and rebiasing the exponent, which is wrong only for denormals."""
        form = self.form
        least = 2.0 ** (1 - form.bias)  # the least normal number
        size = raw & 127
        normal = ((size << 23 - form.mantissa) + (127 - form.bias << 23)).bitcast(FROW)
        # A denormal number m/2^mantissa · least is (1 + m/2^mantissa) · least/2 so far.
        value = where(size.unsigned < 1 << form.mantissa, fma(normal, 2.0, -least), normal)
        if form.special == "fnuz":
            special = raw == 128
        else:
            special = size.unsigned >= (127 if form.special == "e4m3" else 31 << form.mantissa)
        magnitude = where(special, math.inf, value)
        sign = (raw ^ size) << 24
        return (magnitude.bitcast(ROW32) | sign).bitcast(FROW)

    def least_exponent(self, pointer: Any) -> IrValue:
        """Returns the least exponent of the f32 values at `pointer`, without zeros, i32; the values are not denormal."""
        # With 1 subtracted, zero is the greatest. No exponent changes, except that of a power of two, which drops by one.
        sizes = ((pointer.at(row * ROW).load(ROW32, 64) & 0x7FFFFFFF) - 1 for row in range(self.rows))
        return (reduce_row("umin", functools.reduce(umin, sizes)) >> 23) - 127

    def _negative(self, raw: IrValue) -> IrValue:
        return (raw & 1 << self.form.exponent + self.form.mantissa) != 0

    def _small(self, raw: IrValue) -> tuple[IrValue, IrValue, IrValue, IrValue]:
        """Returns signed significand, exponent of its last bit, and masks of NaN and Inf (hardware.mfma.numbers)."""
        form = self.form
        top, ones = (1 << form.exponent) - 1, (1 << form.mantissa) - 1
        fraction, biased, negative = raw & ones, raw >> form.mantissa & top, self._negative(raw)
        normal, full, empty = biased != 0, biased == top, fraction == 0
        nan = inf = self.frame.value(constant(MASK, 0))
        if form.special == "ieee":
            nan, inf = full & ~empty, full & empty
        elif form.special == "e4m3":
            nan = full & (fraction == ones)
        elif form.special == "fnuz":
            nan = ~normal & empty & negative
        magnitude = fraction | where(normal, constant(ROW32, 1 << form.mantissa), 0)
        magnitude = where(nan | inf, 0, magnitude)
        significand = where(negative, -magnitude, magnitude)
        return significand, where(normal, biased, 1) - (form.bias + form.mantissa), nan, inf

    def fields(self) -> FragmentFields:
        """Decodes the elements."""
        significands, exponents, values = (stack(self.frame, self.rows * ROW) for _ in range(3))

        def store_part(part: Spread, first: Any) -> None:
            for row in range(part.rows):
                raw = part.float_value(row).bitcast(ROW32) if part.name == "xf32" else part.raw(row)
                significand, last, _, _ = part._small(raw)
                leading = last + part.form.mantissa
                exponent = where(significand == 0, NO_TERM, leading)
                place = (first + row) * ROW
                significands.at(place).store(significand.sitofp(F32), 64)
                exponents.at(place).store(exponent, 64)
                values.at(place).store(part.float_value(row), 64)

        self.by_registers(store_part)
        return FragmentFields(significands, exponents, values, self.form.mantissa)


def reduce_row(how: str, row: IrValue) -> IrValue:
    """Reduces a row's 64 values to one i32."""
    result: IrValue = intrinsics.call(row.build, f"llvm.vector.reduce.{how}.v64i32", I32, [row])
    return result


@dataclass(frozen=True)
class FragmentFields:
    """Decoded elements, in rows of 4 bytes a lane."""

    significands: Any  # pointer to integers, as f32
    exponents: Any  # pointer to exponents of the leading bit (i32), NO_TERM for a zero
    values: Any  # pointer to f32
    mantissa: int  # fraction bits of the format


@dataclass(frozen=True)
class FragmentWalk:
    """Places (row·64 + lane) of A and B that each group of lanes of D multiplies, step by step."""

    a: np.ndarray  # int64 (groups, steps, width)
    b: np.ndarray  # likewise, or (groups, k, width) if A is sparse
    index: np.ndarray | None  # sparse A: (groups, steps // 2), place·32 + low bit of the index field that two steps share
    # True if every group has one place of A and consecutive lanes of B at each step, and these move alike in all groups.
    regular: bool

    @property
    def groups(self) -> int:
        return len(self.a)

    @property
    def steps(self) -> int:
        return self.a.shape[1]


def walk_of(row: Any, formats: Any, mods: dict[str, int], width: int) -> FragmentWalk:
    """Returns the walk of an instruction (`row`, with element types of `formats`) under its modifiers."""
    outputs = outputs_of(row).reshape(-1, width, 3)
    i, j, block = (outputs[:, None, :, axis] for axis in range(3))
    k = np.arange(row.k)[None, :, None]
    flexible = row.flexible
    select = {} if flexible or row.sparse else {name: mods[name] for name in ("cbsz", "abid")}
    swizzle = {} if flexible else {"blgp": mods["blgp"]}
    source = formats if flexible else row
    a = source.map("A", **select)[block, i, k]
    b = source.map("B", **swizzle)[block, k, j]
    a_place = _place(a, BITS[formats.a_type])
    b_place = _place(b, BITS[formats.b_type])
    index = None
    if row.sparse:
        # Four k share a place of two stored elements: two steps each.
        stored = a_place[:, ::4]
        a_place = np.stack([stored, stored + LANES], axis=2).reshape(len(stored), -1, width)
        fields = row.map("IDX", cbsz=mods["cbsz"], abid=mods["abid"])[block, i, k][:, ::4, 0]
        index = (fields[..., 0] * LANES + fields[..., 1]) * 32 + fields[..., 2]
    splat = bool((a_place == a_place[..., :1]).all())
    run = bool((b_place == b_place[..., :1] + np.arange(width)).all())
    alike = _is_sum(a_place[..., 0]) and _is_sum(b_place[..., 0])  # not with lanes rotated by 16 if k is split between halves
    return FragmentWalk(a_place, b_place, index, splat and run and alike)


def _is_sum(places: np.ndarray) -> bool:
    """True if places (groups, steps) are a part of each group plus a part of each step."""
    return bool((places - places[:1] == (places - places[:1])[:, :1]).all())


def _place(owners: np.ndarray, bits: int) -> np.ndarray:
    """Returns row·64 + lane of elements of `bits` by their owners (register, lane, low bit)."""
    owners = owners.astype(np.int64)
    return (owners[..., 0] * 32 + owners[..., 2]) // bits * LANES + owners[..., 1]


def outputs_of(row: Any) -> np.ndarray:
    """Returns (i, j, block) of D's elements by row and lane: int64 (rows, 64, 3); an f64 row is a pair."""
    owners = row.map("D")
    per = 2 if row.cd_type == "f64" else 1
    result = np.zeros((row.registers("D") // per, LANES, 3), np.int64)
    block, i, j = np.indices(owners.shape[:3])
    result[owners[..., 0] // per, owners[..., 1]] = np.stack([i, j, block], axis=-1)
    return result


def scale_places(row: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns places of the E8M0 scales of A and B by group of lanes of D, block of k, and lane."""
    outputs = outputs_of(row).reshape(-1, width, 3)
    i, j, block = (outputs[:, None, :, axis] for axis in range(3))
    k = np.arange(0, row.k, SCALE_BLOCK)[None, :, None]
    a = row.map("SCALE_A")[block, i, k]
    b = row.map("SCALE_B")[block, k, j]
    return a[..., 1].astype(np.int64), b[..., 1].astype(np.int64)
