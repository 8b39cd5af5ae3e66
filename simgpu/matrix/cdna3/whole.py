"""Sums of CDNA3 in which nothing is cut off, as sums of integers: 16 lanes of D at a time.

Elements of A and B are integers of few bits times powers of two (`operand`), and C is a multiple of u, the product of these
powers. A product then has no bit below 2^(E − 24), whatever E is, and neither has C. If C is at most 2^30 u, the sum has none
below 2^(F − 31). So D is the exact sum, rounded once, and nobody needs E.

E8M0 scales make the powers of two differ from block to block. u is that of the least scales, and sums of other blocks are
shifted. They have no bit below their 2^(E − 24) if the scales are not too far apart.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.intrinsics import any_lane, umax
from simgpu.machine.values import F32, I32, IrValue
from simgpu.matrix import i8
from simgpu.matrix.cdna3.exponents import PER_ROW
from simgpu.matrix.cdna3.operand import BIAS, FastOperand
from simgpu.matrix.cdna3.rounding import shift
from simgpu.matrix.cdna3.scales import Scales
from simgpu.matrix.sums import V32, VI, Accumulator, Groups

KEPT = 24  # bits that a sum keeps below 2^E
LARGEST = (BIAS + 30) << 23  # bits of 2^30 in f32: 16 products are less than that, so 32 bits hold their sum with C


class WholeSum:
    """Emits the sum of products whose elements are integers, for a regular walk."""

    def __init__(
        self,
        groups: Groups,
        c: Accumulator,
        operands: tuple[FastOperand, FastOperand],
        size: int,
        scales: tuple[Scales, IrValue, IrValue] | None,
    ) -> None:
        """size: steps of a chunk. scales: also a lower and an upper bound of the exponents (i32) that they add."""
        self.groups = groups
        self.c = c
        self.left, self.right = operands
        self.size = size
        self.scales = None if scales is None else scales[0]
        zero = groups.frame.value(ir.Constant(I32, 0))
        self.least, most = (zero, zero) if scales is None else scales[1:]
        apart = self.left.leading + self.right.leading - self.left.unit - self.right.unit
        # i1: in the unit of the least scales, products with the largest have no bit below their 2^(E − 24).
        self.serves = (apart + most - self.least).signed <= KEPT
        unit = self.left.unit + self.right.unit - 2 * BIAS + self.least
        self.unit, self.per_unit = ((exponent + BIAS << 23).bitcast(F32) for exponent in (unit, -unit))

    def emit_register(self, row: Any, leave_if: Callable[[IrValue], None]) -> None:
        """Emits D's register `row` (i64, its first group of lanes).

        leave_if(condition): continues elsewhere if C is no multiple of the unit, or a sum is too large.
        """
        groups, size = self.groups, self.size
        offsets = groups.chunk_offsets(size)
        assert offsets is not None
        moves: tuple[np.ndarray, ...] = offsets
        if self.scales is not None:
            moves += self.scales.offsets(groups.walk.steps, size)
        places = [row + g for g in range(PER_ROW)]

        def leave_if_large(counts: list[Any]) -> None:
            largest = functools.reduce(umax, [count.bitcast(VI) & 0x7FFFFFFF for count in counts])
            leave_if(any_lane(largest.unsigned > LARGEST))

        def add_chunk(counts: list[Any]) -> list[Any]:
            # The products do not wait for the sum of the chunk before.
            sums = [(self._products(g) + count.fptosi(I32)).sitofp(F32) for g, count in zip(places, counts, strict=True)]
            leave_if_large(sums)
            return sums

        cs = [self.c.load(place, V32) for place in places]
        counts = [c * self.per_unit for c in cs]
        leave_if_large(counts)
        differ = [count.fptosi(I32).sitofp(F32) * self.unit != c for count, c in zip(counts, cs, strict=True)]
        leave_if(any_lane(functools.reduce(operator.or_, differ)))
        for place, count in zip(places, groups.run_chunks(moves, add_chunk, counts), strict=True):
            self.c.store(place, count * self.unit)

    def _products(self, group: Any) -> IrValue:
        """Returns the sum of a chunk's products in units."""
        left, right = self.left.pairs, self.right.pairs
        assert left is not None and right is not None
        total: IrValue = i8.dot(self.groups, group, list(range(self.size)), left, right)
        if self.scales is None:
            return total
        assert self.groups.moved is not None
        return shift("shl", total, self.scales.exponent(group, self.groups.moved[2:]) - self.least)
