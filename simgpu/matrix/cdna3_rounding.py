"""How a bounded sum of products and C become D: 16 lanes at a time, in integers that count 2^(E − 24)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.jit import host
from simgpu.machine.lane_ops import F32, I1, I16, I32, LLVMOps
from simgpu.matrix.cdna3_operand import BIAS
from simgpu.matrix.fragments import GROUP
from simgpu.matrix.sums import V32, VI, splat

MARGIN = 5  # places that C may lie above E: with them, and a sum below 2^(E + 5), 31 bits hold everything
NEAR = (BIAS + 24 + MARGIN) << 23  # in place: the largest exponent of a C so near that nothing is cut off the sum
FINITE = 253 << 23  # the largest exponent of a scaled C that is one for certain
INFINITY = 255 << 23
ROUND_DOWN = 9  # AVX-512's embedded rounding: toward −∞, no exceptions


class BoundedC:
    """Formula: `_accumulated` of hardware.mfma.arithmetic; scale: bits of 2^(24 − E); narrow: FP8, whose small C count as 0."""

    def __init__(self, build: ir.IRBuilder, narrow: bool) -> None:
        self.build = build
        self.narrow = narrow
        self.ops = LLVMOps(build, GROUP, fix_nan=False)

    def scaled(self, c: Any, scale: Any) -> Any:
        """C in units of 2^(E − 24) (f32); exact where finite, but for what is far below the last place."""
        if host().has_wide_masks:
            return self._x86("mul.ps.512", V32, [c, self.build.bitcast(scale, V32), ir.Constant(I32, ROUND_DOWN)])
        # 40 places below, or more, is all the same: what is left is −1 or 0, and no denormal on the way.
        least = self.build.sub(splat(VI, (2 * BIAS - 16) << 23), self._field(c))
        return self.build.fmul(c, self.build.bitcast(self.ops.intrinsic("smax", I32, [scale, least]), V32))

    def highest(self, scaled: list[Any]) -> Any:
        """Lane by lane, the largest exponent of several scaled C, in place."""
        return intrinsics.folded(self.build, f"llvm.umax.v{GROUP}i32", [self._field(value) for value in scaled])

    def near(self, total: Any, scaled: Any, scale: Any) -> Any:
        """D of a sum and a C that is not above NEAR."""
        return self._in_units(self.build.add(total, self._cut(scaled)), self._unit(scale))

    def far(self, total: Any, scaled: Any, scale: Any) -> Any:
        """D of a sum and any C.

        Units are 2^(G − 24), with G the larger of E and C's exponent less MARGIN, so that the sum fits 32 bits. What
        `total` loses there is below the last places of C and of D; the two bits of it that are not yet below
        2^(F − 31) tell on which side of a tie the sum lies, and its last bit, 0 in C, stands for them.
        """
        build = self.build
        apart = self._over_near(self._field(scaled))
        distance = build.lshr(apart, splat(VI, 23))
        lower = build.bitcast(build.sub(build.bitcast(scaled, VI), apart), V32)
        units = build.add(shifted(build, "ashr", total, distance), self._cut(lower))
        lost = build.lshr(shifted(build, "shl", splat(VI, 3), distance), splat(VI, 2))
        inexact = build.icmp_signed("!=", build.and_(total, lost), splat(VI, 0))
        units = build.select(inexact, self._odd(units), units)
        return self._in_units(units, build.add(self._unit(scale), apart))

    def _over_near(self, field: Any) -> Any:
        """Exponents in place less NEAR, or 0: a saturating difference of the upper halves, the lower ones being 0."""
        kind = ir.VectorType(I16, 2 * GROUP)
        halves = LLVMOps(self.build, 2 * GROUP, fix_nan=False)
        over = halves.intrinsic("usub.sat", I16, [self.build.bitcast(value, kind) for value in (field, splat(VI, NEAR))])
        return self.build.bitcast(over, VI)

    def _field(self, value: Any) -> Any:
        """The exponent in place."""
        return self.build.and_(self.build.bitcast(value, VI), splat(VI, INFINITY))

    def _unit(self, scale: Any) -> Any:
        """Bits of 2^(E − 24)."""
        return self.build.sub(splat(VI, 2 * BIAS << 23), scale)

    def _in_units(self, units: Any, unit: Any) -> Any:
        return self.build.fmul(self.build.sitofp(units, V32), self.build.bitcast(unit, V32))

    def _cut(self, scaled: Any) -> Any:
        """Toward −∞ (i32); FP8: 0 where C is below 2^(E − 25)."""
        build = self.build
        counts = ir.Constant(ir.VectorType(I1, GROUP), [True] * GROUP)
        if self.narrow:  # all but what lies between -1/2 and 0: as integers, these are below -1/2's bits, and no others
            counts = build.icmp_signed(">=", build.bitcast(scaled, VI), splat(VI, 0xBF000000))
        if host().has_wide_masks:
            down = ir.Constant(I32, ROUND_DOWN)
            return self._x86("mask.cvtps2dq.512", VI, [scaled, splat(VI, 0), build.bitcast(counts, I16), down])
        return build.select(counts, build.fptosi(self.ops.intrinsic("floor", F32, [scaled]), VI), splat(VI, 0))

    def _odd(self, units: Any) -> Any:
        one = splat(VI, 1)
        if host().has_wide_masks:  # else LLVM makes three operations of what can be one under a mask
            return self._x86("pternlog.d.512", VI, [units, one, one, ir.Constant(I32, 0xFE)])
        return self.build.or_(units, one)

    def _x86(self, name: str, result: ir.Type, args: list[Any]) -> Any:
        return intrinsics.call(self.build, f"llvm.x86.avx512.{name}", result, args)


def shifted(build: ir.IRBuilder, how: str, value: Any, distance: Any) -> Any:
    """<16 x i32> shifted by any distance: 31 and more are as good as each other."""
    if host().has_wide_masks:
        return intrinsics.call(build, f"llvm.x86.avx512.{ {'ashr': 'psrav', 'shl': 'psllv'}[how] }.d.512", VI, [value, distance])
    least = LLVMOps(build, GROUP, fix_nan=False).intrinsic("umin", I32, [distance, splat(VI, 31)])
    return getattr(build, how)(value, least)
