"""f32 and f64 elements of 16 lanes at a time, in registers and as host vectors.

An f64 element is a pair of registers: the low words are in one, the high words in the next. A vector of 16 doubles has its lanes
in a special order, so that the host joins and splits pairs with one shuffle inside 128 bits for each vector of 64 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.frame import Frame
from simgpu.machine.intrinsics import fma
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import F32, F64, I32, IrValue
from simgpu.matrix.fragments import GROUP

WORDS = ir.VectorType(I32, GROUP)


@dataclass(frozen=True)
class LaneGroups:
    """Layout of one type's elements; a row is all lanes' registers of one element."""

    scalar: ir.Type
    registers: int  # registers of an element
    order: tuple[int, ...]  # lanes of a group in the order of a vector

    @property
    def vector(self) -> ir.VectorType:
        """Type of 16 lanes."""
        return ir.VectorType(self.scalar, GROUP)

    @property
    def spreads(self) -> bool:
        """True if operands are copied before they are multiplied."""
        return self.registers > 1

    @property
    def summed(self) -> LaneGroups:
        """Layout of the elements while they are summed, which `from_registers` has converted."""
        return self

    def from_registers(self, value: IrValue) -> IrValue:
        """Returns elements by their registers' contents: a vector of words, or of pairs of words."""
        return value.bitcast(self.vector)

    def to_registers(self, value: IrValue) -> IrValue:
        """Returns what registers hold for elements."""
        return value

    def multiply_add(self, a: IrValue, b: IrValue, c: IrValue) -> IrValue:
        """Returns a·b + c."""
        return fma(a, b, c)

    @property
    def row(self) -> int:
        """Bytes of 64 elements."""
        return self.registers * ROW

    @property
    def position(self) -> np.ndarray:
        """Place of each lane of a group in a vector: int64 (16,)."""
        return np.argsort(self.order)

    def places(self, owners: np.ndarray) -> np.ndarray:
        """Returns row·64 + place of elements by their owners (register, lane, low bit), in rows whose groups are in this order."""
        owners = owners.astype(np.int64)
        row, lane = owners[..., 0] // self.registers, owners[..., 1]
        return row * LANES + lane // GROUP * GROUP + self.position[lane % GROUP]

    def load(self, registers: Any, row: int, group: int) -> IrValue:
        """Loads the elements of 16 lanes, `row` rows after the one at `registers`."""
        words = [self._word(registers, row, group, number).load(WORDS, 64) for number in range(self.registers)]
        return self.from_registers(self._element(words))

    def store(self, registers: Any, row: int, group: int, value: IrValue) -> None:
        """Stores the elements of 16 lanes."""
        words = self.to_registers(value).bitcast(ir.VectorType(I32, self.registers * GROUP))
        for number in range(self.registers):
            lanes = [self.registers * int(at) + number for at in self.position]
            self._word(registers, row, group, number).store(words.shuffle(lanes), 64)

    def spread(self, frame: Frame, registers: Any, rows: Any, sign: int) -> None:
        """Copies a row of `registers` to consecutive vectors at `rows`. sign: 1 to negate the elements."""
        for group in range(LANES // GROUP):
            words = [self._word(registers, 0, group, number).load(WORDS, 64) for number in range(self.registers)]
            words[-1] = words[-1] ^ (sign << 31) if sign else words[-1]
            rows.at(group * GROUP * 4 * self.registers).store(self.from_registers(self._element(words)), 64)

    def in_order(self, value: IrValue) -> IrValue:
        """Returns a vector in the order of lanes."""
        return value.shuffle([int(at) for at in self.position])

    def _word(self, registers: Any, row: int, group: int, number: int) -> Any:
        return registers.at(row * self.row + number * ROW + group * 4 * GROUP)

    def _element(self, words: list[IrValue]) -> IrValue:
        if len(words) == 1:
            return words[0]
        return words[0].shuffle([place for lane in self.order for place in (lane, GROUP + lane)], words[1])


LANE_GROUPS = {
    "f32": LaneGroups(F32, 1, tuple(range(GROUP))),
    "f64": LaneGroups(F64, 2, (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)),
}
