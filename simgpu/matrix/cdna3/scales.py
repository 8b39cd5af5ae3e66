"""E8M0 scales of blocks of 32 k (gfx950): one byte a lane of each scale register, 2^(byte − 127); 255 is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simgpu.hardware.mfma.instruction import SCALE_BLOCK
from simgpu.machine.frame import Frame
from simgpu.machine.intrinsics import umax
from simgpu.machine.values import I32, IrValue
from simgpu.machine.wave_frame import ROW32
from simgpu.matrix.fragments import GROUP, FragmentWalk, reduce_row, scale_places, stack
from simgpu.matrix.sums import Groups

NAN = 255
ONE = 254  # sum of two bytes whose scales' product is 1
# Limits of the exponents that scales add on the fast path. Products of formats with 5 exponent bits or fewer have exponents of
# −30 … 31, so the scaled ones are in `operand`'s range for products, twice LEAST to twice MOST.
LOWEST, HIGHEST = -50, 60


class Scales:
    """Scales of A and B in rows of 64 i32, each byte at the position of an f32's exponent."""

    def __init__(self, frame: Frame, instruction: Any, chosen: tuple[IrValue, IrValue]) -> None:
        """instruction: its row of the table; chosen: <64 x i32> of the bytes of A's and B's scale registers."""
        self.rows = tuple(stack(frame, 4 * byte.lanes) for byte in chosen)
        for row, byte in zip(self.rows, chosen, strict=True):
            row.store(byte << 23, 64)
        self.groups = Groups(frame, FragmentWalk(*scale_places(instruction, GROUP), None, regular=True), None)

    def offsets(self, steps: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the offsets in bytes of each chunk's scales from the first chunk's, for A and for B. size: steps of a chunk."""
        blocks = np.arange(0, steps, size) // SCALE_BLOCK
        a, b = self.groups.a_steps, self.groups.b_steps
        return a[blocks] - a[0], b[blocks] - b[0]

    def _pair(self, group: Any, moved: Sequence[Any]) -> tuple[IrValue, IrValue]:
        """Loads a chunk's scales of A and B. moved: the chunk's `offsets` (i64)."""
        self.groups.moved = list(moved)
        pair = self.groups.a(self.rows[0], I32, group, 0), self.groups.b(self.rows[1], I32, group, 0)
        self.groups.moved = None
        return pair

    def in_place(self, group: Any, moved: Sequence[Any]) -> IrValue:
        """Returns the sum that a chunk's scales add to the exponents of its products, at the position of an f32's exponent."""
        x, y = self._pair(group, moved)
        return x + y - (ONE << 23)

    def exponent(self, group: Any, moved: Sequence[Any]) -> IrValue:
        """Returns the sum that a chunk's scales add to the exponents of its products (i32)."""
        return self.in_place(group, moved).ashr(23)

    def is_nan(self, group: Any, moved: Sequence[Any]) -> IrValue:
        """Returns i1 by lane: A's or B's scale is 0xff, a NaN."""
        x, y = self._pair(group, moved)
        return (x == NAN << 23) | (y == NAN << 23)

    def extremes(self) -> tuple[IrValue, IrValue]:
        """Returns a lower and an upper bound of the exponents that the scales add (i32).

        If a scale is NaN, the upper bound is above HIGHEST.
        """
        rows = [row.load(ROW32, 64) >> 23 for row in self.rows]
        (low, other_low), (high, other_high) = ([reduce_row(how, row) for row in rows] for how in ("umin", "umax"))
        nan = (umax(high, other_high) == NAN).zext(I32) << 9
        return low + other_low - ONE, high + other_high - ONE + nan
