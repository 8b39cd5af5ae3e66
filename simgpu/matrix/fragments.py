"""Matrix operands out of their registers: every stored element in a lane-wide row of its own.

Packed elements (f16, fp8, i8 ...) are spread so that element s of each lane is row s of a block on
the host stack, in the form that the arithmetic wants; the maps of `simgpu.hardware.mfma` then say which
row and lane holds [i][k]. Where 16 lanes of D share a row of A and take consecutive lanes of B,
one table of offsets and a loop over the 16-lane groups of D serve the whole instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.hardware.mfma.instruction import SCALE_BLOCK
from simgpu.hardware.mfma.numbers import FORMATS, Format
from simgpu.machine import intrinsics
from simgpu.machine.frame import ROW32, Frame, opaque
from simgpu.machine.lane_ops import F32, F64, I16, I32, LLVMOps
from simgpu.machine.layout import LANES, ROW

GROUP = 16  # lanes of one host vector of 32-bit elements
# The exponent of a zero: no sum's largest exponent comes from it.
NO_TERM = -(1 << 20)
FROW = ir.VectorType(F32, LANES)
DROW = ir.VectorType(F64, LANES)


def stack(frame: Frame, nbytes: int) -> Any:
    """Aligned bytes on the handler's stack."""
    kind = ir.ArrayType(ir.IntType(8), nbytes)
    with frame.build.goto_entry_block():
        slot = frame.build.alloca(kind)
        slot.align = 64
    return opaque(frame, slot)


def bits_of(name: str) -> int:
    """Width of one stored element."""
    return {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8}.get(
        name, {"fp6": 6, "bf6": 6, "fp4": 4}.get(name, 8)
    )


class Spread:
    """One operand's elements as rows: `rows` of 64 lanes, `lane_bytes` each, at `pointer`."""

    def __init__(self, frame: Frame, registers: Any, count: int, name: str) -> None:
        self.frame = frame
        self.registers = registers
        self.bits = bits_of(name)
        self.name = name
        self.rows = count * 32 // self.bits
        self.ops = LLVMOps(frame.build, LANES, fix_nan=False)

    @property
    def form(self) -> Format:
        """Fields of the stored element; xf32 is stored as f32."""
        return FORMATS["f32" if self.name == "xf32" else self.name]

    def raw(self, row: int) -> Any:
        """The element's bits, zero-extended to <64 x i32>."""
        build, bits = self.frame.build, self.bits
        at = row * bits
        word = self.frame.row(self.registers, at // 32)
        low = at % 32
        if bits == 32:
            return word
        value = build.lshr(word, self.ops.constant(I32, low)) if low else word
        if low + bits > 32:
            above = self.frame.row(self.registers, at // 32 + 1)
            value = build.or_(value, build.shl(above, self.ops.constant(I32, 32 - low)))
        return build.and_(value, self.ops.constant(I32, (1 << bits) - 1))

    def _store(self, pointer: Any, row: int, value: Any, lane_bytes: int) -> None:
        self.frame.store(value, self.frame.at(pointer, row * LANES * lane_bytes), align=64)

    def store(self, pointer: Any, element: Callable[[int], Any]) -> None:
        """Rows at `pointer` of what `element` makes of the elements, 4 bytes a lane."""
        for row in range(self.rows):
            self._store(pointer, row, element(row), 4)

    def integer(self, row: int) -> Any:
        """An i8 element, sign-extended to i32."""
        up = self.frame.build.shl(self.raw(row), self.ops.constant(I32, 24))
        return self.frame.build.ashr(up, self.ops.constant(I32, 24))

    def doubles(self, negate: bool) -> Any:
        """f64 elements."""
        pointer = stack(self.frame, self.rows * 2 * ROW)
        build = self.frame.build
        for row in range(self.rows):
            bits = self.frame.read_wide(self.frame.at(self.registers, 2 * row * ROW), 64)
            if negate:
                bits = build.xor(bits, ir.Constant(bits.type, [1 << 63] * LANES))
            self._store(pointer, row, build.bitcast(bits, DROW), 8)
        return pointer

    def float_value(self, row: int, flush: bool = False) -> Any:
        """The element as f32, exactly; flush: denormals of the stored type count as +0 (gfx90a)."""
        build, raw = self.frame.build, self.raw(row)
        if self.name == "f16":
            value = self.ops.widen_half(build.trunc(raw, ir.VectorType(I16, LANES)))
        elif self.name == "bf16":
            value = build.bitcast(build.shl(raw, self.ops.constant(I32, 16)), FROW)
        elif self.name == "xf32":
            value = build.bitcast(build.and_(raw, self.ops.constant(I32, 0xFFFFE000)), FROW)
            nan = build.fcmp_unordered("uno", build.bitcast(raw, FROW), build.bitcast(raw, FROW))
            value = build.select(nan, build.bitcast(raw, FROW), value)
        elif self.name == "f32":
            value = build.bitcast(raw, FROW)
        else:
            significand, exponent, nan, inf = self.small(raw)
            scaled = build.fmul(build.sitofp(significand, FROW), self.power(exponent))
            quiet = self.ops.constant(F32, float("nan"))
            infinity = build.select(self.negative(raw), self.ops.constant(F32, float("-inf")), self.ops.constant(F32, float("inf")))
            value = build.select(nan, quiet, build.select(inf, infinity, scaled))
        if flush:
            smallest = {"f16": 2.0**-14}.get(self.name, 2.0**-126)
            magnitude = self.ops.intrinsic("fabs", F32, [value])
            tiny = build.fcmp_ordered("<", magnitude, self.ops.constant(F32, smallest))
            value = build.select(tiny, self.ops.constant(F32, 0.0), value)
        return value

    def finite_float(self, row: int) -> Any:
        """The element as f32; NaN and infinities of 8-bit formats are infinite."""
        return self._finite_byte(self.raw(row)) if self.bits == 8 else self.float_value(row)

    def _finite_byte(self, raw: Any) -> Any:
        """fp8 or bf8: the f32 number with the same fields and its exponent's bias, which is wrong for denormals only."""
        form = self.form
        build, c = self.frame.build, lambda value: self.ops.constant(I32, value)
        least = 2.0 ** (1 - form.bias)  # the least normal number
        size = build.and_(raw, c(127))
        bits = build.add(build.shl(size, c(23 - form.mantissa)), c((127 - form.bias) << 23))
        normal = build.bitcast(bits, FROW)  # of a denormal number m/2^mantissa · least: (1 + m/2^mantissa) · least/2
        terms = [normal, self.ops.constant(F32, 2.0), self.ops.constant(F32, -least)]
        denormal = build.icmp_unsigned("<", size, c(1 << form.mantissa))
        value = build.select(denormal, self.ops.intrinsic("fma", F32, terms), normal)
        if form.special == "fnuz":
            special = build.icmp_unsigned("==", raw, c(128))
        else:
            special = build.icmp_unsigned(">=", size, c(127 if form.special == "e4m3" else 31 << form.mantissa))
        value = build.select(special, self.ops.constant(F32, float("inf")), value)
        sign = build.shl(build.xor(raw, size), c(24))
        return build.bitcast(build.or_(build.bitcast(value, ROW32), sign), FROW)

    def least_exponent(self, pointer: Any) -> Any:
        """Of the f32 values at `pointer`, none denormal: the least exponent that is not a zero's, i32."""
        build = self.frame.build
        least: Any = None
        for row in range(self.rows):
            bits = self.frame.load(self.frame.at(pointer, row * ROW), ROW32, 64)
            # Less 1, zero is the greatest and no exponent changes but that of a power of two, to one less.
            size = build.sub(build.and_(bits, self.ops.constant(I32, 0x7FFFFFFF)), self.ops.constant(I32, 1))
            least = size if least is None else self.ops.intrinsic("umin", I32, [least, size])
        field = build.lshr(self.reduced("umin", least), ir.Constant(I32, 23))
        return build.sub(field, ir.Constant(I32, 127))

    def power(self, exponent: Any) -> Any:
        """2^exponent as f32, for exponents of normal f32 numbers."""
        build = self.frame.build
        biased = build.add(exponent, self.ops.constant(I32, 127))
        return build.bitcast(build.shl(biased, self.ops.constant(I32, 23)), FROW)

    def negative(self, raw: Any) -> Any:
        form = FORMATS[self.name]
        sign = self.ops.constant(I32, 1 << (form.exponent + form.mantissa))
        build = self.frame.build
        return build.icmp_unsigned("!=", build.and_(raw, sign), self.ops.constant(I32, 0))

    def small(self, raw: Any) -> tuple[Any, Any, Any, Any]:
        """Signed significand and exponent of its last bit, NaN and Inf masks (hardware.mfma.numbers)."""
        form = self.form
        build, c = self.frame.build, lambda value: self.ops.constant(I32, value)
        top = (1 << form.exponent) - 1
        fraction = build.and_(raw, c((1 << form.mantissa) - 1))
        biased = build.and_(build.lshr(raw, c(form.mantissa)), c(top))
        sign = build.icmp_unsigned(
            "!=", build.and_(raw, c(1 << (form.exponent + form.mantissa))), c(0)
        )
        normal = build.icmp_unsigned("!=", biased, c(0))
        full = build.icmp_unsigned("==", biased, c(top))
        empty = build.icmp_unsigned("==", fraction, c(0))
        never = ir.Constant(full.type, None)
        nan = inf = never
        if form.special == "ieee":
            nan, inf = build.and_(full, build.not_(empty)), build.and_(full, empty)
        elif form.special == "e4m3":
            ones = build.icmp_unsigned("==", fraction, c((1 << form.mantissa) - 1))
            nan = build.and_(full, ones)
        elif form.special == "fnuz":
            nan = build.and_(build.and_(build.not_(normal), empty), sign)
        hidden = build.select(normal, c(1 << form.mantissa), c(0))
        magnitude = build.or_(fraction, hidden)
        magnitude = build.select(build.or_(nan, inf), c(0), magnitude)
        significand = build.select(sign, build.neg(magnitude), magnitude)
        exponent = build.sub(build.select(normal, biased, c(1)), c(form.bias + form.mantissa))
        return significand, exponent, nan, inf

    def fields(self) -> Fields:
        """Significands as f32 integers, exponents of the leading bit, and values."""
        form = self.form
        build = self.frame.build
        significands, exponents = stack(self.frame, self.rows * ROW), stack(self.frame, self.rows * ROW)
        values = stack(self.frame, self.rows * ROW)
        for row in range(self.rows):
            raw = self.raw(row)
            if self.name == "xf32":
                raw = build.bitcast(self.float_value(row), ROW32)
            significand, exponent, _, _ = self.small(raw)
            exponent = build.add(exponent, self.ops.constant(I32, form.mantissa))
            zero = build.icmp_unsigned("==", significand, self.ops.constant(I32, 0))
            exponent = build.select(zero, self.ops.constant(I32, NO_TERM), exponent)
            self._store(significands, row, build.sitofp(significand, FROW), 4)
            self._store(exponents, row, exponent, 4)
            self._store(values, row, self.float_value(row), 4)
        return Fields(significands, exponents, values, form.mantissa)

    def reduced(self, how: str, row: Any) -> Any:
        return intrinsics.call(self.frame.build, f"llvm.vector.reduce.{how}.v64i32", I32, [row])


@dataclass(frozen=True)
class Fields:
    """Rows of decoded elements: pointers, and the format's fraction bits."""

    significands: Any
    exponents: Any
    values: Any
    mantissa: int


@dataclass(frozen=True)
class Walk:
    """Which places each group of lanes of D multiplies, step by step; places are row·64 + lane.

    a, b: int64 (groups, steps, width); index: (groups, steps // 2) place·32 + low bit of the
    sparse field that two steps share, where b has all k instead of steps; regular: every group
    has one place of A (a splat) and consecutive lanes of B at each step.
    """

    a: np.ndarray
    b: np.ndarray
    index: np.ndarray | None
    regular: bool

    @property
    def groups(self) -> int:
        return len(self.a)

    @property
    def steps(self) -> int:
        return self.a.shape[1]


def walk_of(row: Any, formats: Any, mods: dict[str, int], width: int) -> Walk:
    """The walk of an instruction (`row`, with element types of `formats`) under its modifiers."""
    outputs = outputs_of(row).reshape(-1, width, 3)
    i, j, block = (outputs[:, None, :, axis] for axis in range(3))
    k = np.arange(row.k)[None, :, None]
    flexible = row.flexible
    select = {} if flexible or row.sparse else {name: mods[name] for name in ("cbsz", "abid")}
    swizzle = {} if flexible else {"blgp": mods["blgp"]}
    source = formats if flexible else row
    a = source.map("A", **select)[block, i, k]
    b = source.map("B", **swizzle)[block, k, j]
    a_place = _place(a, bits_of(formats.a_type))
    b_place = _place(b, bits_of(formats.b_type))
    index = None
    if row.sparse:
        # Four k share a place of two stored elements: two steps each.
        stored = a_place[:, ::4]
        a_place = np.stack([stored, stored + LANES], axis=2).reshape(len(stored), -1, width)
        fields = row.map("IDX", cbsz=mods["cbsz"], abid=mods["abid"])[block, i, k][:, ::4, 0]
        index = (fields[..., 0] * LANES + fields[..., 1]) * 32 + fields[..., 2]
    splat = bool((a_place == a_place[..., :1]).all())
    run = bool((b_place == b_place[..., :1] + np.arange(width)).all())
    return Walk(a_place, b_place, index, splat and run)


def _place(owners: np.ndarray, bits: int) -> np.ndarray:
    """row·64 + lane of elements of `bits` by their owners (register, lane, low bit)."""
    owners = owners.astype(np.int64)
    return (owners[..., 0] * 32 + owners[..., 2]) // bits * LANES + owners[..., 1]


def outputs_of(row: Any) -> np.ndarray:
    """(i, j, block) of D's elements by row and lane: int64 (rows, 64, 3); an f64 row is a pair."""
    owners = row.map("D")
    per = 2 if row.cd_type == "f64" else 1
    result = np.zeros((row.registers("D") // per, LANES, 3), np.int64)
    block, i, j = np.indices(owners.shape[:3])
    result[owners[..., 0] // per, owners[..., 1]] = np.stack([i, j, block], axis=-1)
    return result


def scale_places(row: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the E8M0 scales of A and B by group of lanes of D, block of k, and lane."""
    outputs = outputs_of(row).reshape(-1, width, 3)
    i, j, block = (outputs[:, None, :, axis] for axis in range(3))
    k = np.arange(0, row.k, SCALE_BLOCK)[None, :, None]
    a = row.map("SCALE_A")[block, i, k]
    b = row.map("SCALE_B")[block, k, j]
    return a[..., 1].astype(np.int64), b[..., 1].astype(np.int64)
