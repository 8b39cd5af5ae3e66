"""Sums of CDNA3 and later for any operands, 16 lanes of D at a time.

The formula is in `hardware.mfma.arithmetic`. NaN, infinities, exponents of any size and E8M0 scales are covered.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.intrinsics import fabs, floor, smax
from simgpu.machine.values import F32, F64, I1, I32, I64, IrValue, constant, default_nan, where
from simgpu.matrix.cdna3.scales import Scales
from simgpu.matrix.fragments import GROUP, FragmentFields, Spread
from simgpu.matrix.sums import V32, VD, VI, Accumulator, Groups


class GeneralSum:
    """Sums of CDNA3: products cut at the largest exponent, summed exactly, added to C with one rounding.

    Correct for any operands; `fast` is faster for most.
    """

    def __init__(
        self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, narrow: bool, scales: Scales | None = None
    ) -> None:
        self.groups = groups
        self.c = c
        self.size = size
        self.narrow = narrow
        self.scales = scales
        self.left: FragmentFields = a.fields()
        self.right: FragmentFields = b.fields()
        self.fraction = self.left.mantissa + self.right.mantissa

    def emit(self, first: Any = None) -> None:
        """Emits the groups of lanes of D from `first` (i64) on."""
        self.groups.run(self._group, first)

    def _group(self, group: Any) -> None:
        total = self.c.load(group, V32)
        for steps, offsets in self._parts():

            def add(state: list[Any], steps: list[int] = steps) -> list[Any]:
                return [self._add(group, steps, state[0])]

            total = self.groups.run_chunks(offsets, add, [total])[0]
        self.c.store(group, default_nan(total))

    def _parts(self) -> list[tuple[list[int], tuple[np.ndarray, ...]]]:
        """Returns the loops of a sum: steps of the first chunk, and offsets of all chunks; one loop if all chunks are alike."""
        steps, size = self.groups.walk.steps, self.size
        offsets: tuple[np.ndarray, ...] | None = self.groups.chunk_offsets(size)
        if offsets is not None:
            if self.scales is not None:
                offsets += self.scales.offsets(steps, size)
            return [(list(range(size)), offsets)]
        assert self.scales is None, "scaled instructions walk in chunks that are alike"
        once = np.zeros(1, np.int64), np.zeros(1, np.int64)
        return [(list(range(start, min(start + size, steps))), once) for start in range(0, steps, size)]

    def _add(self, group: Any, steps: list[int], c: IrValue) -> IrValue:
        if self.narrow:
            total, top = self._join(*(self._products(group, steps[half::2]) for half in (0, 1)))
        else:
            cut, top = self._products(group, steps)
            total = cut.sitofp(F64)
        if self.scales is None:
            return self._with_special(group, steps, c, self._accumulate(total, top, c))
        moved = self._moved_scales()
        top = top + self.scales.exponent(group, moved)
        result = self._with_special(group, steps, c, self._accumulate(total, top, c))
        return where(self.scales.is_nan(group, moved), math.nan, result)

    def _moved_scales(self) -> list[Any]:
        assert self.groups.moved is not None
        return self.groups.moved[2:]

    def _products(self, group: Any, steps: list[int]) -> tuple[IrValue, IrValue]:
        """Returns the sum (i32) in units of 2^(E − 24), and E (i32), of the products of these steps."""
        groups, left, right = self.groups, self.left, self.right
        exponents = [groups.a(left.exponents, I32, group, k) + groups.b(right.exponents, I32, group, k) for k in steps]
        top = functools.reduce(smax, exponents)
        bias = 127 + 24 - self.fraction - top

        def cut_product(k: int, exponent: IrValue) -> IrValue:
            product = groups.product(left.significands, right.significands, F32, group, k)
            scale = (smax(exponent + bias, 1) << 23).bitcast(V32)  # 2^(e − E + 24 − fraction)
            return (product * scale).fptosi(I32)

        total: Any = sum(cut_product(k, exponent) for k, exponent in zip(steps, exponents, strict=True))
        return total, top

    def _join(self, even: tuple[IrValue, IrValue], odd: tuple[IrValue, IrValue]) -> tuple[IrValue, IrValue]:
        """Adds both sums (FP8), cut toward −∞ at the larger exponent. Returns the total (f64) and that exponent."""
        top = smax(even[1], odd[1])
        low, high = (_scaled_down(part.sitofp(F64), exponent - top) for part, exponent in (even, odd))
        return low + high, top

    def _accumulate(self, total: IrValue, top: IrValue, c: IrValue) -> IrValue:
        """Adds C. F is the larger of E and C's exponent: S is cut at 2^(F − 31), C at 2^(F − 24), their sum rounded once to f32."""
        own = smax(c.bitcast(VI) >> 23 & 255, 1) - 127
        both = smax(top, own)
        s = _scaled_down(total, top - both + 7)
        z = _scaled_down(c.fpext(F64), 24 - both)
        if self.narrow:
            z = where(own.signed < both - 25, 0.0, z)
        return ((s + z * 128.0) * _power(both - 31)).fptrunc(F32)

    def _with_special(self, group: Any, steps: list[int], c: IrValue, result: IrValue) -> IrValue:
        """Propagates NaN and infinities as in an exact sum of the non-finite terms.

        A product of finite numbers that overflows counts only if no term is an infinity.
        """
        groups, value = self.groups, self.groups.frame.value
        nothing = value(constant(V32, 0.0)), value(constant(ir.VectorType(I1, GROUP), 0))
        special, overflow = _added_where(~_finite(c), c, nothing), nothing
        for k in steps:
            x = groups.a(self.left.values, F32, group, k)
            y = groups.b(self.right.values, F32, group, k)
            product = x * y
            if self.scales is not None:
                scale = _power(self.scales.exponent(group, self._moved_scales()))
                product = (product.fpext(F64) * scale).fptrunc(F32)
            infinite, finite_terms = ~_finite(product), _finite(x) & _finite(y)
            special = _added_where(infinite & ~finite_terms, product, special)
            overflow = _added_where(infinite & finite_terms, product, overflow)
        return where(special[1], special[0], where(overflow[1], overflow[0], result))


def _added_where(counts: IrValue, term: IrValue, so_far: tuple[IrValue, IrValue]) -> tuple[IrValue, IrValue]:
    """Adds the term to a sum where it counts; also returns if any did."""
    total, some = so_far
    return total + where(counts, term, 0.0), some | counts


def _finite(value: IrValue) -> IrValue:
    return fabs(value).ordered < math.inf


def _scaled_down(value: IrValue, exponent: IrValue) -> IrValue:
    """Returns floor(value · 2^exponent) of f64 integers."""
    return floor(value * _power(exponent))


def _power(exponent: IrValue) -> IrValue:
    """Returns 2^exponent as f64, with exponents clamped to those of normal numbers."""
    return ((smax(exponent, -1000) + 1023).sext(I64) << 52).bitcast(VD)
