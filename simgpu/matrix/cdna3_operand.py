"""One operand of a bounded sum: are its exponents in bounds, what are they, and is it made of small integers?"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.frame import ROW32
from simgpu.machine.lane_ops import F32, I1, I8, I32, I64, LLVMOps
from simgpu.machine.layout import LANES, ROW
from simgpu.matrix.fragments import FROW, Spread
from simgpu.matrix.i8 import Pairs
from simgpu.matrix.operand_cache import Kept

BYTES = ir.VectorType(I8, LANES)
BIAS = 127
# Exponents of nonzero elements lie between these: all of the formats with 5 exponent bits or fewer, and those
# of bf16 and xf32 in practice. Sums of two fit a byte, and every power of two on the way is a normal f32 number.
LEAST, MOST = -40, 46
CENTERS = (75, 76)  # less an exponent of A, or of B: its byte; their sum is BIAS + 24
ZERO = 255  # the byte of a zero: with any other it makes a sum above NONE
NONE = sum(CENTERS) - (2 * LEAST - 1)  # the sum that stands for products that are all 0
GRID = 12  # bits of an integer below its leading one: the product of two has no more than f32's sum keeps


class BoundedOperand:
    """What the sum needs of A (which = 0) or B (1).

    values: the elements' rows of 64 f32, NaN as infinities; exponents: rows of bytes (see CENTERS), those of the lanes in `order`;
    pairs: where `paired`, the elements as integers; bounded, whole (i1): whether exponents are in bounds, and the elements
    integers; leading: the greatest element's exponent as a field of f32 (i32), the integers' units 2^-GRID times that;
    hint: pointer to an i32 that is kept for the next operand in these registers, too, 0 at first.
    """

    def __init__(self, spread: Spread, which: int, order: np.ndarray, paired: bool) -> None:
        self.spread = spread
        self.center = CENTERS[which]
        self.frame = spread.frame
        self.build = spread.frame.build
        self.ops = spread.ops
        self.least = max(LEAST, 1 - spread.form.bias)  # the exponent of denormals
        kept = Kept(spread, which, f"bounded {order.tolist()} {paired}")
        self.values = kept.take(spread.rows * ROW)
        self.exponents = kept.take(spread.rows * len(order))
        self.pairs = Pairs(spread, kept.take(spread.rows * ROW)) if paired else None
        bounded, whole, leading = facts = [self.frame.at(kept.header, at) for at in (8, 12, 16)]
        self.hint = self.frame.at(kept.header, 20)
        with kept.renewed():
            for fact, place in zip(self._made(order), facts, strict=True):
                self.frame.store(self.build.zext(fact, I32) if fact.type != I32 else fact, place)
        self.bounded, self.whole = (
            self.build.icmp_unsigned("!=", self.frame.load(place, I32), ir.Constant(I32, 0)) for place in (bounded, whole)
        )
        self.leading = self.frame.load(leading, I32)

    def _made(self, order: np.ndarray) -> tuple[Any, Any, Any]:
        """Makes it all; `bounded`, `whole` and `leading`."""
        self.spread.store(self.values, self.spread.finite_float)
        greatest, smallest = self._extremes()
        self._store_exponents(order)
        leading = self._leading(greatest)
        return self._bounded(greatest, smallest), self._whole(leading), leading

    def _place(self, pointer: Any, row: Any, nbytes: int = ROW) -> Any:
        return self.frame.at(pointer, self.build.mul(row, ir.Constant(I64, nbytes)))

    def _size(self, row: Any) -> Any:
        """Bits of the magnitudes of a row (i64)."""
        bits = self.frame.load(self._place(self.values, row), ROW32, 64)
        return self.build.and_(bits, self.ops.constant(I32, 0x7FFFFFFF))

    def _extremes(self) -> tuple[Any, Any]:
        """Bits of the greatest magnitude, and of the smallest but 0 less 1 (i32)."""

        def one(row: Any, greatest: Any, smallest: Any) -> list[Any]:
            size = self._size(row)
            less = self.build.sub(size, self.ops.constant(I32, 1))  # a zero is the greatest
            return [
                self.ops.intrinsic("umax", I32, [greatest, size]),
                self.ops.intrinsic("umin", I32, [smallest, less]),
            ]

        start = [self.ops.constant(I32, 0), self.ops.constant(I32, 0xFFFFFFFF)]
        greatest, smallest = self.frame.loop(self.spread.rows, one, start)
        return self.spread.reduced("umax", greatest), self.spread.reduced("umin", smallest)

    def _bounded(self, greatest: Any, smallest: Any) -> Any:
        """Whether the elements are finite and their exponents between LEAST and MOST (i1)."""
        build = self.build
        below = build.icmp_unsigned("<", greatest, ir.Constant(I32, (BIAS + MOST + 1) << 23))
        if self.spread.form.exponent <= 5:
            return below
        limit = ir.Constant(I32, ((BIAS + LEAST) << 23) - 1)
        return build.and_(below, build.icmp_unsigned(">=", smallest, limit))

    def _store_exponents(self, order: np.ndarray) -> None:
        build = self.build
        lanes = ir.Constant(ir.VectorType(I32, len(order)), [int(lane) for lane in order])

        def one(row: Any) -> tuple[()]:
            found = build.trunc(self._exponent(row), BYTES)
            ordered = build.shuffle_vector(found, ir.Constant(BYTES, ir.Undefined), lanes)
            self.frame.store(ordered, self._place(self.exponents, row, len(order)), 64)
            return ()

        self.frame.loop(self.spread.rows, one)

    def _exponent(self, row: Any) -> Any:
        """<64 x i32> of a row's exponents as CENTERS and ZERO have them; denormals have the format's least."""
        build, ops = self.build, self.ops
        size = self._size(row)
        field = ops.intrinsic("umax", I32, [build.lshr(size, ops.constant(I32, 23)), ops.constant(I32, BIAS + self.least)])
        zero = build.icmp_unsigned("==", size, ops.constant(I32, 0))
        return build.select(zero, ops.constant(I32, ZERO), build.sub(ops.constant(I32, BIAS + self.center), field))

    # -- integers ------------------------------------------------------------------------------

    def _leading(self, greatest: Any) -> Any:
        field = self.build.lshr(greatest, ir.Constant(I32, 23))
        least = ir.Constant(I32, BIAS + self.least)
        return LLVMOps(self.build, 1, fix_nan=False).intrinsic("umax", I32, [field, least])

    def _whole(self, leading: Any) -> Any:
        """Whether all elements are integers of units 2^-GRID times the greatest's exponent (i1), and stores them if so."""
        build = self.build
        if self.pairs is None:
            return ir.Constant(I1, 0)
        before = build.block
        first = self._none(self._integer(ir.Constant(I64, 0), leading)[0])  # mostly, a row tells
        with build.if_then(first):
            every = self._store_pairs(leading)
            last = build.block
        result = build.phi(I1)
        result.add_incoming(ir.Constant(I1, 0), before)
        result.add_incoming(every, last)
        return result

    def _store_pairs(self, leading: Any) -> Any:
        """Stores the elements as integers; whether they are (i1)."""
        build, pairs = self.build, self.pairs
        assert pairs is not None

        def one(number: Any, found: Any) -> list[Any]:
            row = build.shl(number, ir.Constant(I64, 1))
            wrong, low = self._integer(row, leading)
            other, high = self._integer(build.add(row, ir.Constant(I64, 1)), leading)
            pairs.store(row, low, high)
            return [build.or_(found, build.or_(wrong, other))]

        start = [ir.Constant(ir.VectorType(I1, LANES), None)]
        return self._none(self.frame.loop(self.spread.rows // 2, one, start)[0])

    def _integer(self, row: Any, leading: Any) -> tuple[Any, Any]:
        """Which of a row's elements are no integers (<64 x i1>), and the integers (<64 x i32>)."""
        build = self.build
        field = build.shl(build.sub(ir.Constant(I32, 2 * BIAS + GRID), leading), ir.Constant(I32, 23))
        scale = self.frame.splat(build.bitcast(field, F32), LANES)
        scaled = build.fmul(self.frame.load(self._place(self.values, row), FROW, 64), scale)
        integers = build.fptosi(scaled, ROW32)
        return build.fcmp_unordered("!=", build.sitofp(integers, FROW), scaled), integers

    def _none(self, mask: Any) -> Any:
        return self.build.icmp_unsigned("==", self.build.bitcast(mask, I64), ir.Constant(I64, 0))
