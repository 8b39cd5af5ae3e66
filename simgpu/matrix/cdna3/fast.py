"""Fast path of CDNA3's sums, in 32-bit integers, for exponents in the range where they nearly always are.

The formula is in `hardware.mfma.arithmetic`; `general` computes it for operands outside the range. The product of two elements
is exact in f32, so its cut at 2^(E − 24) is a multiplication by 2^(24 − E) and a conversion to an integer. E, the largest sum of
two exponents, is computed on bytes. Elements that are small integers times a power of two are multiplied and summed as integers:
most fp8 data are such, and many tests' inputs. If neither C nor a sum is cut, `whole` serves, which needs no E.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.intrinsics import any_lane, smax, umin
from simgpu.machine.layout import LANES
from simgpu.machine.values import F32, I8, I32, I64, Builder, IrValue
from simgpu.matrix import i8
from simgpu.matrix.cdna3.exponents import BYTES, PER_ROW, Exponents
from simgpu.matrix.cdna3.operand import BIAS, LEAST, NONE, FastOperand
from simgpu.matrix.cdna3.rounding import FINITE, NEAR, MatrixRounding, shift
from simgpu.matrix.cdna3.scales import HIGHEST, LOWEST, Scales
from simgpu.matrix.cdna3.whole import WholeSum
from simgpu.matrix.fragments import GROUP, Spread, stack
from simgpu.matrix.sums import V32, VI, Accumulator, Groups, first_of_chunks

FLOOR = (BIAS + 2 * LEAST) << 23  # bits of 2^E in f32 for the least E
QUARTER = ir.VectorType(I8, GROUP)
SumFunction = Callable[[Any, list[int], Any], Any]  # (group, steps, bits of 2^(24 − E)) to the sum in units of 2^(E − 24)


class Continuation:
    """A block where the sum continues from register `row` of D (i64, its first group of lanes); earlier registers are done."""

    def __init__(self, build: Builder, name: str) -> None:
        self.block = build.append_basic_block(name)
        with build.goto_block(self.block):
            self.row = build.phi(I64)

    def enter_from(self, source: Any, row: Any = None) -> None:
        """Records that block `source` branches here, with register `row` (0) next."""
        self.row.add_incoming(ir.Constant(I64, 0) if row is None else row, source)


class FastSum:
    """Emits the sum for a regular walk."""

    def __init__(
        self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, narrow: bool, scales: Scales | None = None
    ) -> None:
        self.groups = groups
        self.scales = scales
        self.frame = groups.frame
        self.build = groups.frame.build
        self.c = c
        self.size = size
        steps = list(range(size))
        self.parts = [steps[0::2], steps[1::2]] if narrow else [steps]  # steps of a chunk that share an E
        self.paired = i8.serves(groups)
        order, self.a_steps = groups.a_by_step()
        self.operands = FastOperand(a, 0, order, self.paired), FastOperand(b, 1, np.arange(LANES), self.paired)
        left, right = self.operands
        self.exponents = Exponents(groups, left.exponents, right.exponents, self.a_steps)
        self.rounding = MatrixRounding(self.build, narrow)
        self.highest = stack(groups.frame, 4 * GROUP)  # exponents of the last scaled C

    @staticmethod
    def serves(groups: Groups, size: int) -> bool:
        return groups.chunk_offsets(size) is not None and Exponents.serves(groups)

    def emit(self, otherwise: Callable[[Any], None]) -> None:
        """Emits the sum; otherwise(group): emits the general path for groups of lanes from `group` (i64) on."""
        build, (left, right) = self.build, self.operands
        usual, done = (build.append_basic_block(name) for name in ("usual", "done"))
        self.rest = Continuation(build, "rest")
        self.rest.enter_from(build.block)
        in_range = left.in_range & right.in_range
        if self.scales is not None:
            least, most = self.range_of_scales = self.scales.extremes()
            in_range = in_range & (least.signed >= LOWEST) & (most.signed <= HIGHEST)
        build.cbranch(in_range, usual, self.rest.block)
        build.position_at_end(usual)
        if self.paired:
            self._whole_first(done)
        self._registers(self.parts, self._products)
        build.branch(done)
        build.position_at_end(self.rest.block)
        otherwise(self.rest.row)
        build.branch(done)
        build.position_at_end(done)

    # -- sums of products ----------------------------------------------------------------------

    def _whole_first(self, done: Any) -> None:
        """Emits the case in which each operand's elements are integers of few bits times a power of two: no product is cut."""
        build, (left, right) = self.build, self.operands
        whole, other = (build.append_basic_block(name) for name in ("whole", "other"))
        build.cbranch(left.whole & right.whole, whole, other)
        build.position_at_end(whole)
        scales = None if self.scales is None else (self.scales, *self.range_of_scales)
        whole_sum = WholeSum(self.groups, self.c, self.operands, self.size, scales)
        cut = Continuation(build, "cut")
        self._leave_if(~whole_sum.serves, cut)

        def emit_register(row: Any) -> tuple[()]:
            whole_sum.emit_register(row, lambda leave: self._leave_if(leave, cut, row))
            return ()

        self.frame.loop(self.groups.walk.groups, emit_register, step=PER_ROW)
        build.branch(done)
        build.position_at_end(cut.block)
        self._registers([list(range(self.size))], self._dots, cut.row)
        build.branch(done)
        build.position_at_end(other)

    def _dots(self, group: Any, steps: list[int], scale: IrValue) -> IrValue:
        left, right = (operand.pairs for operand in self.operands)
        assert left is not None and right is not None
        # Added to the field of 2^(24 − E), this is the distance of the integers' unit from 2^(E − 24).
        unit = self.operands[0].unit + self.operands[1].unit - 3 * BIAS
        return shift("shl", i8.dot(self.groups, group, steps, left, right), unit + (scale >> 23))

    def _products(self, group: Any, steps: list[int], scale: IrValue) -> Any:
        """Sums products, each cut toward 0."""
        left, right = (operand.values for operand in self.operands)
        products = (self.groups.product(left, right, F32, group, step) for step in steps)
        return sum((product * scale.bitcast(V32)).fptosi(I32) for product in products)

    def _join(self, totals: list[IrValue], scales: list[IrValue], least: IrValue) -> Any:
        """Adds the sums of both parts (FP8), each cut toward −∞ at the larger E, whose scale is the smaller one (`least`)."""
        if len(totals) == 1:
            return totals[0]
        return sum(shift("ashr", total, scale - least >> 23) for total, scale in zip(totals, scales, strict=True))

    # -- the registers of D --------------------------------------------------------------------

    def _registers(self, parts: list[list[int]], summed: SumFunction, first: Any = None) -> None:
        """Emits D's registers from `first` (i64) on, by default all; parts: the steps of a chunk, grouped by a shared E.

        The shorter rounding serves up to the first register whose C is not near, the longer one from there on. A hint
        makes the code start with the longer one.
        """
        build, frame, count = self.build, self.frame, self.groups.walk.groups
        for operand in self.operands:
            operand.need_exponents()
        hint = self.operands[0].hint
        near, done = (build.append_basic_block(name) for name in ("near", "done"))
        far = Continuation(build, "far")
        far.enter_from(build.block, first)
        build.cbranch(hint.load(I32) != 0, far.block, near)
        build.position_at_end(near)
        frame.loop(count, lambda row: self._register(row, parts, summed, far), first=first, step=PER_ROW)
        build.branch(done)
        build.position_at_end(far.block)
        frame.loop(count, lambda row: self._register(row, parts, summed, None), first=far.row, step=PER_ROW)
        hint.store(any_lane(self.highest.load(VI, 64).unsigned > NEAR).zext(I32))
        build.branch(done)
        build.position_at_end(done)

    def _register(self, row: Any, parts: list[list[int]], summed: SumFunction, far: Continuation | None) -> tuple[()]:
        """Emits D's register `row` (i64, its first group of lanes); far: where the shorter rounding continues; None for
        the longer one."""
        groups = self.groups
        offsets = groups.chunk_offsets(self.size)
        assert offsets is not None
        chunks = len(offsets[0])
        slots = [stack(self.frame, chunks * LANES) for _ in parts]
        moves: tuple[np.ndarray, ...] = *offsets, first_of_chunks(self.a_steps, self.size), LANES * np.arange(chunks)
        if self.scales is not None:
            moves += self.scales.offsets(groups.walk.steps, self.size)
        places = [row + g for g in range(PER_ROW)]
        cs = [self.c.load(place, V32) for place in places]

        def add_register(cs: list[Any]) -> list[Any]:
            scales = [self._scales(slots, number) for number in range(PER_ROW)]
            least = [functools.reduce(umin, of_parts) for of_parts in scales]
            units = [self._unit(place, scale) for place, scale in zip(places, least, strict=True)]
            scaled = [self.rounding.scale_c(c, unit) for c, unit in zip(cs, units, strict=True)]
            self._leave_by_exponent(self.rounding.highest(scaled), far, row)
            rounded = self.rounding.round_far if far is None else self.rounding.round_near
            result = []
            for place, c, of_parts, scale, unit in zip(places, scaled, scales, least, units, strict=True):
                totals = [summed(place, part, of_part) for part, of_part in zip(parts, of_parts, strict=True)]
                result.append(rounded(self._join(totals, of_parts, scale), c, unit))
            return result

        groups.run_chunks(moves, lambda _: self._store_fields(row, parts, slots, cs), [])
        for place, total in zip(places, groups.run_chunks(moves, add_register, cs), strict=True):
            self.c.store(place, total)
        return ()

    def _unit(self, group: Any, scale: IrValue) -> IrValue:
        """Returns the bits of 2^(24 − E) for the scaled products; scale: that of the products before E8M0 scales."""
        if self.scales is None:
            return scale
        assert self.groups.moved is not None
        # If all products are 0, E is at most its value without scales: `_store_fields` checked C.
        return umin(scale - self.scales.in_place(group, self.groups.moved[4:]), NONE << 23)

    def _leave_by_exponent(self, highest: IrValue, far: Continuation | None, row: Any) -> None:
        """Branches to another loop, for this register and later ones, if a scaled C is too large for this rounding."""
        if far is None:
            self._leave_if(any_lane(highest.unsigned > FINITE), self.rest, row)
            self.highest.store(highest, 64)
        else:
            self._leave_if(any_lane(highest.unsigned > NEAR), far, row)

    def _store_fields(self, row: Any, parts: list[list[int]], slots: list[Any], cs: list[Any]) -> list[Any]:
        """Stores exponent fields of 2^(24 − E) of a chunk, by part. Branches to the general path if C is tiny and all products are
        0."""
        build = self.build
        fields = [self.exponents.least_fields(row, part) for part in parts]
        empty = [field.unsigned > NONE for field in fields]
        before = build.block
        with build.if_then(any_lane(functools.reduce(operator.or_, empty)), likely=False):
            limited = [umin(field, NONE) for field in fields]
            nothing = functools.reduce(operator.and_, empty)
            sizes = [(c.bitcast(VI) & 0x7FFFFFFF) - 1 for c in cs]  # less 1, so that a zero is the greatest
            tiny = functools.reduce(umin, sizes).unsigned < self._floor() - 1
            self._leave_if(any_lane(nothing) & any_lane(tiny), self.rest, row)
            after = build.block
        values = [build.phi(BYTES) for _ in parts]
        for value, field, less, slot in zip(values, fields, limited, slots, strict=True):
            value.add_incoming(field, before)
            value.add_incoming(less, after)
            self._of_chunk(slot).store(value, 64)
        return []

    def _floor(self) -> Any:
        """Returns the bits of 2^E for the least E of sums with nonzero products, or a greater one."""
        if self.scales is None:
            return FLOOR
        return (FLOOR + (smax(self.range_of_scales[1], 0) << 23)).splat(LANES // PER_ROW)

    def _of_chunk(self, slot: Any) -> Any:
        return slot if self.groups.moved is None else slot.at(self.groups.moved[3])

    def _scales(self, slots: list[Any], number: int) -> list[Any]:
        """Returns the bits of 2^(24 − E), by part, for group `number` of a register."""
        fields = [self._of_chunk(slot).at(GROUP * number).load(QUARTER, GROUP) for slot in slots]
        return [field.zext(I32) << 23 for field in fields]

    def _leave_if(self, leave: IrValue, elsewhere: Continuation, row: Any = None) -> None:
        """Branches to `elsewhere`, for register `row` (0) and later ones, if `leave` (i1)."""
        stay = self.build.append_basic_block("stay")
        elsewhere.enter_from(self.build.block, row)
        self.build.cbranch(leave, elsewhere.block, stay)
        self.build.position_at_end(stay)
