"""The sums of CDNA3 and later on 16 lanes of D at a time, for any operands.

Formula: hardware.mfma.arithmetic. NaN, infinities, exponents of any size and E8M0 scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.hardware.mfma.instruction import SCALE_BLOCK
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import F32, F64, I1, I32, LLVMOps
from simgpu.matrix.fragments import GROUP, Fields, Spread, Walk
from simgpu.matrix.sums import V32, VD, VI, VL, Accumulator, Groups, splat


class Scales:
    """E8M0 scales of blocks of 32 k (gfx950): one byte a lane of each scale register.

    a, b: places (row·64 + lane) by group, block of k and lane, as `Walk` has elements; rows:
    <64 x i32> of the chosen byte, on the stack.
    """

    def __init__(
        self, frame: Frame, rows: tuple[Any, Any], places: tuple[np.ndarray, np.ndarray]
    ) -> None:
        self.rows = rows
        self.view = Groups(frame, Walk(*places, None, regular=True), None)

    def _pair(self, group: Any, step: int) -> tuple[Any, Any]:
        block = step // SCALE_BLOCK
        a = self.view.a(self.rows[0], I32, group, block)
        return a, self.view.b(self.rows[1], I32, group, block)

    def exponent(self, group: Any, step: int) -> Any:
        """What the scales add to the exponent of every product of the step."""
        x, y = self._pair(group, step)
        return self.view.build.sub(self.view.build.add(x, y), splat(VI, 254))

    def missing(self, group: Any, step: int) -> Any:
        """Where a scale is 0xff, a NaN."""
        build = self.view.build
        x, y = self._pair(group, step)
        either = [build.icmp_unsigned("==", s, splat(VI, 255)) for s in (x, y)]
        return build.or_(either[0], either[1])


class AlignedSum:
    """CDNA3: products cut at the largest exponent, summed exactly, added to C with one rounding.

    Right for any operands; `bounded_sum` is faster for most.
    """

    def __init__(
        self,
        groups: Groups,
        c: Accumulator,
        a: Spread,
        b: Spread,
        size: int,
        narrow: bool,
        scales: Scales | None = None,
    ) -> None:
        self.groups = groups
        self.c = c
        self.build = groups.build
        self.ops = LLVMOps(groups.build, GROUP, fix_nan=False)
        self.size = size
        self.narrow = narrow
        self.scales = scales
        self.left: Fields = a.fields()
        self.right: Fields = b.fields()
        self.fraction = self.left.mantissa + self.right.mantissa

    def emit(self, first: Any = None) -> None:
        """For the groups of lanes of D from `first` (i64) on."""
        self.groups.run(self._group, first)

    def _group(self, group: Any) -> None:
        total = self.c.load(group, V32)
        for steps, offsets in self._parts():

            def add(state: list[Any], steps: list[int] = steps) -> list[Any]:
                return [self._added(group, steps, state[0])]

            total = self.groups.chunked(offsets, add, [total])[0]
        self.c.store(group, total)

    def _parts(self) -> list[tuple[list[int], tuple[np.ndarray, np.ndarray]]]:
        """Steps of a sum, and the offsets of the chunks like it: one loop where all are alike."""
        steps, size = self.groups.walk.steps, self.size
        offsets = self.groups.chunk_offsets(size)
        if offsets is not None and self.scales is None:
            return [(list(range(size)), offsets)]
        once = np.zeros(1, np.int64), np.zeros(1, np.int64)
        return [(list(range(start, min(start + size, steps))), once) for start in range(0, steps, size)]

    def _added(self, group: Any, steps: list[int], total: Any) -> Any:
        build = self.build
        if self.narrow:
            sums = [self._products(group, steps[half::2]) for half in (0, 1)]
            partial, top = self._joined(*sums)
        else:
            cut, top = self._products(group, steps)
            partial = build.sitofp(cut, VD)
        if self.scales is not None:
            top = build.add(top, self.scales.exponent(group, steps[0]))
        result = self._with_special(group, steps, total, self._accumulated(partial, top, total))
        if self.scales is not None:
            quiet = splat(V32, float("nan"))
            result = build.select(self.scales.missing(group, steps[0]), quiet, result)
        return result

    def _products(self, group: Any, steps: list[int]) -> tuple[Any, Any]:
        """Sum (i32) in units of 2^(E − 24), and E (i32), of the products of these steps."""
        build, groups = self.build, self.groups
        exponents = [
            build.add(
                groups.a(self.left.exponents, I32, group, k), groups.b(self.right.exponents, I32, group, k)
            )
            for k in steps
        ]
        top = exponents[0]
        for exponent in exponents[1:]:
            top = self.ops.intrinsic("smax", I32, [top, exponent])
        # Scale of a product: 2^(e − E + 24 − fraction), as the bits of an f32.
        bias = build.sub(splat(VI, 127 + 24 - self.fraction), top)
        total: Any = splat(VI, 0)
        for k, exponent in zip(steps, exponents, strict=True):
            product = build.fmul(
                groups.a(self.left.significands, F32, group, k),
                groups.b(self.right.significands, F32, group, k),
            )
            biased = self.ops.intrinsic("smax", I32, [build.add(exponent, bias), splat(VI, 1)])
            scale = build.bitcast(build.shl(biased, splat(VI, 23)), V32)
            total = build.add(total, build.fptosi(build.fmul(product, scale), VI))
        return total, top

    def _joined(self, even: tuple[Any, Any], odd: tuple[Any, Any]) -> tuple[Any, Any]:
        """FP8: both sums cut toward −∞ at the larger exponent, added (f64), and that exponent."""
        build = self.build
        top = self.ops.intrinsic("smax", I32, [even[1], odd[1]])
        total: Any = None
        for part, exponent in (even, odd):
            value = self._scaled_down(build.sitofp(part, VD), build.sub(exponent, top))
            total = value if total is None else build.fadd(total, value)
        return total, top

    def _scaled_down(self, value: Any, exponent: Any) -> Any:
        """floor(value · 2^exponent) of f64 integers."""
        return self._call("floor", self.build.fmul(value, self._power(exponent)))

    def _call(self, name: str, value: Any) -> Any:
        return self.ops.intrinsic(name, F64, [value])

    def _power(self, exponent: Any) -> Any:
        """2^exponent as f64, exponents clamped to those of normal numbers."""
        build = self.build
        clamped = self.ops.intrinsic("smax", I32, [exponent, splat(VI, -1000)])
        biased = build.sext(build.add(clamped, splat(VI, 1023)), VL)
        return build.bitcast(build.shl(biased, splat(VL, 52)), VD)

    def _accumulated(self, partial: Any, top: Any, c: Any) -> Any:
        """S cut at 2^(F − 31), C at 2^(F − 24), their sum rounded once to f32."""
        build = self.build
        field = build.and_(build.lshr(build.bitcast(c, VI), splat(VI, 23)), splat(VI, 255))
        own = build.sub(self.ops.intrinsic("smax", I32, [field, splat(VI, 1)]), splat(VI, 127))
        both = self.ops.intrinsic("smax", I32, [top, own])
        s = self._scaled_down(partial, build.add(build.sub(top, both), splat(VI, 7)))
        wide = build.fpext(c, VD)
        z = self._scaled_down(wide, build.sub(splat(VI, 24), both))
        if self.narrow:
            far = build.icmp_signed("<", own, build.sub(both, splat(VI, 25)))
            z = build.select(far, splat(VD, 0.0), z)
        total = build.fadd(s, build.fmul(z, splat(VD, 128.0)))
        value = build.fmul(total, self._power(build.sub(both, splat(VI, 31))))
        return build.fptrunc(value, V32)

    def _with_special(self, group: Any, steps: list[int], c: Any, result: Any) -> Any:
        """NaN and infinities propagate as in an exact sum of the non-finite terms.

        A product of finite numbers that overflows counts only where no term is an infinity.
        """
        build, groups = self.build, self.groups
        zero = splat(V32, 0.0)

        def finite(value: Any) -> Any:
            size = self.ops.intrinsic("fabs", F32, [value])
            return build.fcmp_ordered("<", size, splat(V32, float("inf")))

        def added(total: Any, some: Any, value: Any, counts: Any) -> tuple[Any, Any]:
            return build.fadd(total, build.select(counts, value, zero)), build.or_(some, counts)

        never = ir.Constant(ir.VectorType(I1, GROUP), None)
        total, some = added(zero, never, c, build.not_(finite(c)))
        beyond, overflowed = zero, never
        for k in steps:
            x = groups.a(self.left.values, F32, group, k)
            y = groups.b(self.right.values, F32, group, k)
            product = build.fmul(x, y)
            if self.scales is not None:
                factor = self._power(self.scales.exponent(group, k))
                product = build.fptrunc(build.fmul(build.fpext(product, VD), factor), V32)
            infinite = build.not_(finite(product))
            known = build.and_(finite(x), finite(y))
            total, some = added(total, some, product, build.and_(infinite, build.not_(known)))
            beyond, overflowed = added(beyond, overflowed, product, build.and_(infinite, known))
        return build.select(some, total, build.select(overflowed, beyond, result))
