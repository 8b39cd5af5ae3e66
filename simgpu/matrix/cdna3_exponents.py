"""2^(24 − E) of a bounded sum, E the largest exponent of its products, for the 64 lanes of a register of D at a time.

In bytes: the operands' are so biased that their sum is the exponent field of 2^(24 − product's exponent) in f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.lane_ops import I8, I32, I64, LLVMOps
from simgpu.machine.layout import LANES
from simgpu.matrix.fragments import GROUP
from simgpu.matrix.sums import Groups

BYTES = ir.VectorType(I8, LANES)
PER_ROW = LANES // GROUP  # groups of lanes in a register of D


class Exponents:
    """a, b: pointers to `BoundedOperand.exponents`: A's in the order of `Groups.a_by_step`, B's as they lie in the registers."""

    def __init__(self, groups: Groups, a: Any, b: Any, a_steps: np.ndarray) -> None:
        self.groups = groups
        self.frame = groups.frame
        self.build = groups.build
        self.a, self.b = a, b
        self.a_steps = a_steps
        self.ops = LLVMOps(groups.build, LANES, fix_nan=False)

    @staticmethod
    def serves(groups: Groups) -> bool:
        return groups.walk.groups % PER_ROW == 0 and _distinct(groups) > 0

    def least(self, row: Any, steps: list[int]) -> Any:
        """<64 x i8>: fields of 2^(24 − E) of these steps, by lane of register `row` (i64, its first group) of D."""
        sums = [self.ops.intrinsic("uadd.sat", I8, [self._of_a(row, step), self._of_b(row, step)]) for step in steps]
        return intrinsics.folded(self.build, f"llvm.umin.v{LANES}i8", sums)

    def _of_a(self, row: Any, step: int) -> Any:
        """A byte for each of the row's groups, 16 times."""
        build = self.build
        place = build.add(row, ir.Constant(I64, int(self.a_steps[step])))
        if self.groups.moved is not None:
            place = build.add(place, self.groups.moved[2])
        word = self.frame.load(self.frame.at(self.a, place), I32, 4)
        words = build.bitcast(self.frame.splat(word, GROUP), BYTES)
        order = ir.Constant(ir.VectorType(I32, LANES), [lane // GROUP * (GROUP + 1) for lane in range(LANES)])
        return build.shuffle_vector(words, ir.Constant(BYTES, ir.Undefined), order)

    def _of_b(self, row: Any, step: int) -> Any:
        """Each group's 16 bytes, where neighbours and repetitions of some groups are one load."""
        build, groups = self.build, self.groups
        offset = build.add(groups.entry(groups.b_table, row, 1, 0), ir.Constant(I64, int(groups.b_steps[step])))
        if groups.moved is not None:
            offset = build.add(offset, groups.moved[1])
        near = GROUP * _distinct(groups)
        kind = ir.VectorType(I8, near)
        value = self.frame.load(self.frame.at(self.b, build.ashr(offset, ir.Constant(I64, 2))), kind, 1)
        order = ir.Constant(ir.VectorType(I32, LANES), [lane % near for lane in range(LANES)])
        return build.shuffle_vector(value, ir.Constant(kind, ir.Undefined), order)


def _distinct(groups: Groups) -> int:
    """How many groups' worth of B's neighbouring lanes serve a register of D, over and over; 0 if it is not that simple."""
    places = groups.b_groups.reshape(-1, PER_ROW) // groups.lane_bytes
    apart = places - places[:, :1]
    return next((n for n in (1, 2, 4) if (apart == GROUP * (np.arange(PER_ROW) % n)).all()), 0)
