"""Computes 2^(24 − E), E the largest exponent of a sum's products, for the 64 lanes of a register of D at a time.

It works on bytes. The operands' exponents are biased such that the sum of two bytes is the exponent field of
2^(24 − product's exponent) in f32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.intrinsics import uadd_sat, umin
from simgpu.machine.layout import LANES
from simgpu.machine.values import I8, I32, IrValue, join_vectors
from simgpu.matrix.fragments import GROUP
from simgpu.matrix.sums import Groups

BYTES = ir.VectorType(I8, LANES)
PER_ROW = LANES // GROUP  # groups of lanes in a register of D


class Exponents:
    """E of a chunk's steps, from the bytes of `FastOperand.exponents`."""

    def __init__(self, groups: Groups, a: Any, b: Any, a_steps: np.ndarray) -> None:
        """a, b: pointers to the bytes: A's in the order of `Groups.a_by_step`, B's in the order of the registers."""
        self.groups = groups
        self.a, self.b = a, b
        self.a_steps = a_steps

    @staticmethod
    def serves(groups: Groups) -> bool:
        return groups.walk.groups % PER_ROW == 0 and (groups.walk.index is not None or _distinct(groups) > 0)

    def least_fields(self, row: Any, steps: list[int]) -> IrValue:
        """Returns <64 x i8>: exponent fields of 2^(24 − E) for these steps, by lane of a register of D. row: its first group."""
        return functools.reduce(umin, [uadd_sat(self._of_a(row, step), self._of_b(row, step)) for step in steps])

    def _of_a(self, row: Any, step: int) -> IrValue:
        """Loads one byte for each of the row's groups, and copies it to the group's 16 lanes."""
        place = row + int(self.a_steps[step])
        if self.groups.moved is not None:
            place = place + self.groups.moved[2]
        words = self.a.at(place).load(I32).splat(GROUP).bitcast(BYTES)
        return words.shuffle([lane // GROUP * (GROUP + 1) for lane in range(LANES)])

    def _of_b(self, row: Any, step: int) -> IrValue:
        """Loads each group's 16 bytes; neighbouring and repeated groups share a load."""
        groups = self.groups
        near = GROUP * (1 if groups.walk.index is not None else _distinct(groups))
        of_group = ir.VectorType(I8, near)
        apart = range(PER_ROW if groups.walk.index is not None else 1)
        values = [self.b.at(groups.b_offset(row + group, step).ashr(2)).load(of_group, 1) for group in apart]
        if len(values) == 1:
            return values[0].shuffle([lane % near for lane in range(LANES)])
        return join_vectors(values, LANES)[0]


def _distinct(groups: Groups) -> int:
    """Returns the number n of neighbouring groups of B that a register of D reads in turn (1, 2 or 4), 0 for another pattern."""
    places = groups.b_groups.reshape(-1, PER_ROW) // 4
    apart = places - places[:, :1]
    return next((n for n in (1, 2, 4) if (apart == GROUP * (np.arange(PER_ROW) % n)).all()), 0)
