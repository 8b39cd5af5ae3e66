"""Prepares A or B for the fast path: its exponents, whether they are in range, and its elements as integers if these are small."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.intrinsics import cttz, umax, umin
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import F32, I1, I8, I32, I64, IrValue, constant, where
from simgpu.machine.wave_frame import MASK, ROW32
from simgpu.matrix.fragments import FROW, Spread, reduce_row
from simgpu.matrix.i8 import Pairs
from simgpu.matrix.operand_cache import CacheEntry

BIAS = 127
# Exponents of nonzero elements must be in this range. It covers all formats with 5 exponent bits or fewer, and bf16 and
# xf32 in practice. Sums of two fit a byte, and every intermediate power of two is a normal f32 number.
LEAST, MOST = -40, 46
CENTERS = (75, 76)  # an element's byte is this less its exponent, for A and B; their sum is BIAS + 24
ZERO = 255  # the byte of a zero: its sum with any other is above NONE
NONE = sum(CENTERS) - (2 * LEAST - 1)  # the sum for products that are all 0
GRID = 12  # bits of an integer below its leading one: the product of two has no more bits than f32's sum keeps


class FastOperand:
    """A (which = 0) or B (1) as the fast path reads it."""

    def __init__(self, spread: Spread, which: int, order: np.ndarray, paired: bool) -> None:
        """order: the lanes in the rows of `exponents`; paired: True if integers are summed in pairs."""
        self.spread = spread
        self.center = CENTERS[which]
        self.frame = spread.frame
        self.least = max(LEAST, 1 - spread.form.bias)  # the exponent of denormals
        entry = CacheEntry(spread, which, f"in range {order.tolist()} {paired}")
        # Pointer to the elements' rows of 64 f32, NaN as infinities.
        self.values = entry.reserve(spread.rows * ROW)
        # Pointer to rows of bytes (see CENTERS), after `need_exponents`.
        self.exponents = entry.reserve(spread.rows * len(order))
        # The elements as integers, if `whole`.
        self.pairs = Pairs(entry.reserve(spread.rows * ROW)) if paired else None
        in_range, whole, leading = facts = [entry.header.at(offset) for offset in (8, 12, 16)]
        # Pointer to an i32 that the sum uses: it outlives the operand, and is 0 at first.
        self.hint = entry.header.at(20)
        self._unit = entry.header.at(24)
        self._order = order
        self._has_exponents = entry.header.at(28)
        with entry.if_stale():
            for fact, place in zip(self._decode(), facts, strict=True):
                place.store(fact.zext(I32))
            self._has_exponents.store(ir.Constant(I32, 0))
        # i1: exponents are in range.
        self.in_range = in_range.load(I32) != 0
        # i1: the elements are integers in units of 2^-GRID times the greatest's power of two.
        self.whole = whole.load(I32) != 0
        # Exponents as fields of f32 (i32): the greatest element's, and the integers' unit if `whole`.
        self.leading, self.unit = leading.load(I32), self._unit.load(I32)

    def need_exponents(self) -> None:
        """Stores the rows of `exponents`, unless an earlier instruction did."""
        with self.frame.build.if_then(self._has_exponents.load(I32) == 0):
            self._store_exponents()
            self._has_exponents.store(ir.Constant(I32, 1))

    def _decode(self) -> tuple[IrValue, IrValue, IrValue]:
        """Fills the cache entry; returns `in_range`, `whole` and `leading`."""
        self.spread.store(self.values, Spread.finite_float)
        greatest, smallest = self._extremes()
        leading = umax(greatest >> 23, BIAS + self.least)
        return self._in_range(greatest, smallest), self._store_integers(leading), leading

    def _size(self, row: IrValue) -> IrValue:
        """Returns the bits of the magnitudes of a row (i64)."""
        return self.values.at(row * ROW).load(ROW32, 64) & 0x7FFFFFFF

    def _extremes(self) -> tuple[IrValue, IrValue]:
        """Returns the bits of the greatest magnitude, and of the smallest nonzero one less 1 (i32)."""

        def extremes_of_row(row: IrValue, greatest: IrValue, smallest: IrValue) -> list[IrValue]:
            size = self._size(row)
            less = size - 1  # so that a zero is the greatest
            return [umax(greatest, size), umin(smallest, less)]

        greatest, smallest = self.frame.loop(self.spread.rows, extremes_of_row, [constant(ROW32, 0), constant(ROW32, 0xFFFFFFFF)])
        return reduce_row("umax", greatest), reduce_row("umin", smallest)

    def _in_range(self, greatest: IrValue, smallest: IrValue) -> IrValue:
        """Returns i1: the elements are finite and their exponents between LEAST and MOST."""
        below = greatest.unsigned < (BIAS + MOST + 1) << 23
        if self.spread.form.exponent <= 5:
            return below
        return below & (smallest.unsigned >= ((BIAS + LEAST) << 23) - 1)

    def _store_exponents(self) -> None:
        def store_row(row: IrValue) -> tuple[()]:
            ordered = self._exponent(row).trunc(I8).shuffle(self._order.tolist())
            self.exponents.at(row * len(self._order)).store(ordered, 64)
            return ()

        self.frame.loop(self.spread.rows, store_row)

    def _exponent(self, row: IrValue) -> IrValue:
        """Returns <64 x i32> of a row's exponents as bytes (CENTERS, ZERO); denormals have the format's least."""
        size = self._size(row)
        field = umax(size >> 23, BIAS + self.least)
        return where(size == 0, ZERO, BIAS + self.center - field)

    # -- integers ------------------------------------------------------------------------------

    def _store_integers(self, leading: IrValue) -> IrValue:
        """Returns i1: all elements are integers in units of 2^-GRID times the greatest's exponent. Stores them if so."""
        if self.pairs is None:
            return self.frame.value(ir.Constant(I1, 0))
        first = self.frame.value(ir.Constant(I64, 0))
        fits = self._no_lane(self._integer(first, leading)[0])  # one row mostly decides
        found: IrValue = self.frame.emit_and(fits, lambda: self._store_pairs(leading))
        return found

    def _store_pairs(self, leading: IrValue) -> IrValue:
        """Stores the elements as integers in the largest unit, and that unit; returns i1: all are integers."""
        pairs = self.pairs
        assert pairs is not None

        def store_pair(number: IrValue, found: IrValue, bits: IrValue) -> list[IrValue]:
            row = number << 1
            wrong, low = self._integer(row, leading)
            other, high = self._integer(row + 1, leading)
            pairs.store(row, low, high)
            return [found | (wrong | other), bits | (low | high)]

        wrong, bits = self.frame.loop(self.spread.rows // 2, store_pair, [constant(MASK, 0), constant(ROW32, 0)])
        found = self._no_lane(wrong)
        zeros = cttz(reduce_row("or", bits) | 1 << GRID)
        self._unit.store(leading - GRID + zeros)
        with self.frame.build.if_then(found & (zeros != 0)):
            self.frame.loop(self.spread.rows // 2, lambda number: pairs.shift_down(number << 1, zeros))
        return found

    def _integer(self, row: IrValue, leading: IrValue) -> tuple[IrValue, IrValue]:
        """Returns which of a row's elements are no integers (<64 x i1>), and the integers (<64 x i32>)."""
        scale = (2 * BIAS + GRID - leading << 23).bitcast(F32).splat(LANES)
        scaled = self.values.at(row * ROW).load(FROW, 64) * scale
        integers = scaled.fptosi(I32)
        return integers.sitofp(F32) != scaled, integers

    def _no_lane(self, mask: Any) -> IrValue:
        return mask.bitcast(I64) == 0
