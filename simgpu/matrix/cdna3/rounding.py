"""Rounds the fast path's sum of products and C to D: 16 lanes at a time, in integer multiples of 2^(E − 24).

An exponent "in place" is at its position in the bits of an f32.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.host import host
from simgpu.machine.intrinsics import floor, smax, umax, umin, usub_sat
from simgpu.machine.values import F32, I1, I16, I32, Builder, IrValue, constant, where
from simgpu.matrix.cdna3.operand import BIAS
from simgpu.matrix.fragments import GROUP
from simgpu.matrix.sums import V32, VI

MARGIN = 5  # most that C's exponent may exceed E by: with a sum below 2^(E + 5), 31 bits then hold everything
NEAR = (BIAS + 24 + MARGIN) << 23  # in place: the largest exponent of a scaled C with which no bit of the sum is cut off
FINITE = 253 << 23  # in place: the largest exponent of a scaled C that is certainly valid
INFINITY = 255 << 23
ROUND_DOWN = ir.Constant(I32, 9)  # AVX-512's embedded rounding: toward −∞, no exceptions
HALVES = ir.VectorType(I16, 2 * GROUP)


class MatrixRounding:
    """Emits `_accumulate` of `hardware.mfma.arithmetic`. A `scale` is the bits of 2^(24 − E)."""

    def __init__(self, build: Builder, narrow: bool) -> None:
        """narrow: FP8, whose small C count as 0."""
        self.build = build
        self.narrow = narrow

    def scale_c(self, c: IrValue, scale: IrValue) -> IrValue:
        """Returns C in units of 2^(E − 24) (f32); exact if finite, except far below the last place."""
        if host().has_wide_masks:
            return _avx512("mul.ps.512", V32, c, scale.bitcast(V32), ROUND_DOWN)
        # At 40 places below or more the result is the same: −1 or 0 remains, without denormals on the way.
        least = ((2 * BIAS - 16) << 23) - _exponent(c)
        return c * smax(scale, least).bitcast(V32)

    def highest(self, scaled: list[IrValue]) -> IrValue:
        """Returns the largest exponent of several scaled C, by lane, in place."""
        return functools.reduce(umax, [_exponent(value) for value in scaled])

    def round_near(self, total: IrValue, scaled: IrValue, scale: IrValue) -> IrValue:
        """Returns D for a sum and a scaled C whose exponent is at most NEAR."""
        return _times_unit(total + self._cut_c(scaled), _unit(scale))

    def round_far(self, total: IrValue, scaled: IrValue, scale: IrValue) -> IrValue:
        """Returns D for a sum and any scaled C.

        Units are 2^(G − 24). G is the larger of E and C's exponent less MARGIN, so that the sum fits 32 bits. The bits
        of `total` that are lost are below the last places of C and of D. Two of them are not yet below 2^(F − 31) and
        decide the side of a tie; the sum's last bit, 0 in C, represents them.
        """
        apart = _over_near(_exponent(scaled))
        distance = apart >> 23
        lower = (scaled.bitcast(VI) - apart).bitcast(V32)
        units = shift("ashr", total, distance) + self._cut_c(lower)
        lost = shift("shl", IrValue(self.build, constant(VI, 3)), distance) >> 2
        units = where((total & lost) != 0, _odd(units), units)
        return _times_unit(units, _unit(scale) + apart)

    def _cut_c(self, scaled: IrValue) -> IrValue:
        """Rounds a scaled C toward −∞ to i32. For FP8, returns 0 if C's magnitude is below 2^(E − 25)."""
        counts = IrValue(self.build, constant(ir.VectorType(I1, GROUP), True))
        if self.narrow:  # values between -1/2 and 0 do not count: as signed integers only their bits are below -1/2's
            counts = scaled.bitcast(VI).signed >= 0xBF000000
        if host().has_wide_masks:
            return _avx512("mask.cvtps2dq.512", VI, scaled, constant(VI, 0), counts.bitcast(I16), ROUND_DOWN)
        return where(counts, floor(scaled).fptosi(I32), 0)


def shift(how: str, value: IrValue, distance: IrValue) -> IrValue:
    """Shifts <16 x i32> left (how: "shl") or right with sign ("ashr"). Right shifts by more than 31 are shifts by 31."""
    if host().has_wide_masks:
        return _avx512({"ashr": "psrav.d.512", "shl": "psllv.d.512"}[how], VI, value, distance)
    least = umin(distance, 31)
    return value.ashr(least) if how == "ashr" else value << least


def _exponent(value: IrValue) -> IrValue:
    """Returns an f32's exponent, in place."""
    return value.bitcast(VI) & INFINITY


def _over_near(exponent: IrValue) -> IrValue:
    """Returns exponents in place less NEAR, or 0: a saturating difference of the upper halves; the lower ones are 0."""
    near = IrValue(exponent.build, constant(VI, NEAR))
    return usub_sat(exponent.bitcast(HALVES), near.bitcast(HALVES)).bitcast(VI)


def _unit(scale: IrValue) -> IrValue:
    """Returns the bits of 2^(E − 24)."""
    return (2 * BIAS << 23) - scale


def _times_unit(units: IrValue, unit: IrValue) -> IrValue:
    """Returns a count (i32) times a unit (the bits of a power of two), in f32."""
    return units.sitofp(F32) * unit.bitcast(V32)


def _odd(units: IrValue) -> IrValue:
    if not host().has_wide_masks:
        return units | 1
    # LLVM would make three operations out of one under a mask.
    return _avx512("pternlog.d.512", VI, units, constant(VI, 1), constant(VI, 1), ir.Constant(I32, 0xFE))


def _avx512(name: str, result: ir.Type, value: IrValue, *others: Any) -> IrValue:
    found: IrValue = intrinsics.call(value.build, f"llvm.x86.avx512.{name}", result, [value, *others])
    return found
