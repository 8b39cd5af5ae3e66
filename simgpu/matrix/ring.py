"""Matrix instructions on elements of a ring (`hardware.isa.ring`): exact sums of products modulo 2^32, or 2^64 for f64.

f16 and bf16 elements are 16-bit integers. The narrower formats' numbers, all of which are bf16 numbers, have the elements of these.
So `i8` sums both. f32 and f64 are tiles of the other lanes here (`fma_tile`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.ring.elements import element_of_bits, float_of
from simgpu.hardware.isa.types import Type
from simgpu.hardware.mfma.instruction import SCALE_BLOCK
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import LLVMOps
from simgpu.machine.layout import LANES
from simgpu.machine.values import F32, F64, I32, I64, IrValue, where
from simgpu.matrix import i8
from simgpu.matrix.cdna3.scales import Scales
from simgpu.matrix.fragments import GROUP, Spread
from simgpu.matrix.lane_groups import LANE_GROUPS, LaneGroups
from simgpu.matrix.sums import VI, Accumulator, Groups

FLOATS = {"f32": t.f32, "f64": t.f64}
INTEGERS = {32: t.u32, 64: t.u64}


def _elements(raw: IrValue, type_: Type) -> IrValue:
    """Returns the elements of floats by their bits, which are unsigned integers of 32 or 64 bits."""
    word = Value(LLVMOps(raw.build, raw.lanes), INTEGERS[raw.type.element.width], raw)
    found: IrValue = element_of_bits(word, type_).raw
    return found


def _floats(elements: IrValue, type_: Type) -> IrValue:
    """Returns the floats (f32 or f64) with elements."""
    kind = {32: t.i32, 64: t.i64}[type_.bits]
    found: IrValue = float_of(Value(LLVMOps(elements.build, elements.lanes), kind, elements), type_).raw
    return found


class ElementSpread(Spread):
    """An operand whose integers are the elements of its floats."""

    @property
    def narrow(self) -> bool:
        """True if the elements have 16 bits."""
        return self.name not in ("f32", "xf32")

    def integer(self, row: int) -> IrValue:
        """Returns an element, sign-extended to i32."""
        if self.name in ("f16", "bf16"):
            return _elements(self.raw(row), {"f16": t.f16, "bf16": t.bf16}[self.name])
        if not self.narrow:
            return _elements(self.raw(row), t.f32)
        number = self.float_value(row).bitcast(ir.VectorType(I32, self.raw(row).lanes))
        return _elements(number >> 16, t.bf16)


def element_sum(groups: Groups, c: Accumulator, a: ElementSpread, b: ElementSpread, scales: Scales | None = None) -> None:
    """Emits the sums of a matrix instruction whose C and D are f32."""
    products = i8.products(groups, a, b, paired=a.narrow and b.narrow)
    steps = list(range(groups.walk.steps))

    def sum_group(group: Any) -> None:
        if scales is None:
            total = products(group, steps)
        else:
            blocks = range(len(steps) // SCALE_BLOCK)
            scaled = (products(group, steps[SCALE_BLOCK * n : SCALE_BLOCK * (n + 1)]) * _scale(scales, group, n) for n in blocks)
            total = sum(scaled)  # type: ignore[assignment]
        result = _floats(_elements(c.load(group, VI), t.f32) + total, t.f32)
        c.store(group, result.bitcast(VI))

    groups.run(sum_group)


def _scale(scales: Scales, group: Any, block: int) -> IrValue:
    """Returns the product of A's and B's scales of a block of k."""
    x = scales.groups.a(scales.rows[0], I32, group, block)
    y = scales.groups.b(scales.rows[1], I32, group, block)
    x, y = (_elements(where(bits == 0, 1 << 22, bits), t.f32) for bits in (x, y))
    return x * y


@dataclass(frozen=True)
class ElementGroups(LaneGroups):
    """Elements of 16 lanes, as integers; in registers they are floats."""

    float_type: Type

    @property
    def spreads(self) -> bool:
        return True

    @property
    def summed(self) -> LaneGroups:
        return LaneGroups(self.scalar, self.registers, self.order)

    def from_registers(self, value: IrValue) -> IrValue:
        return _elements(value.bitcast(self.vector), self.float_type)

    def to_registers(self, value: IrValue) -> IrValue:
        return _floats(value, self.float_type)

    def multiply_add(self, a: IrValue, b: IrValue, c: IrValue) -> IrValue:
        return a * b + c


ELEMENT_GROUPS = {
    name: ElementGroups({F32: I32, F64: I64}[lanes.scalar], lanes.registers, lanes.order, FLOATS[name])
    for name, lanes in LANE_GROUPS.items()
}


def copy_row(source: Any, source_lanes: LaneGroups, target: Any, target_lanes: LaneGroups) -> None:
    """Copies a row of 64 elements from one layout to another."""
    for group in range(LANES // GROUP):
        target_lanes.store(target, 0, group, source_lanes.load(source, 0, group))


def copy_rows(frame: Frame, source: Any, source_lanes: LaneGroups, target: Any, target_lanes: LaneGroups, rows: int) -> None:
    """Copies rows of 64 elements from one layout to another: in a loop, because conversions are long."""

    def copy_one(row: IrValue) -> tuple[()]:
        at = row * target_lanes.row
        copy_row(source.at(at), source_lanes, target.at(at), target_lanes)
        return ()

    frame.loop(rows, copy_one)


def lanes_of(frame: Frame, type_name: str) -> LaneGroups:
    """Returns the lanes of an f32 or f64 instruction: numbers, or elements."""
    return (ELEMENT_GROUPS if frame.ring else LANE_GROUPS)[type_name]

