"""The sums of CDNA3 where exponents are bounded, as they nearly always are, in 32-bit integers.

Formula: hardware.mfma.arithmetic; `aligned_sum` has it for any operands and takes over where a
bound does not hold. A product of f32 values is exact here, so that its cut at 2^(E − 24) is a
multiplication by 2^(24 − E) and a conversion to an integer; E, the largest sum of exponents, is
found in bytes, for the 64 lanes of a register of D at a time. Operands that are small integers, but
for a power of two, are multiplied and summed as such: most fp8 data are, and many tests' inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu import intrinsics, pair_sum
from simgpu.bounded_operand import BIAS, BYTES, GRID, LEAST, NONE, BoundedOperand
from simgpu.fragments import GROUP, Spread, stack
from simgpu.jit import host
from simgpu.lane_llvm import F32, I1, I8, I16, I32, I64, LLVMOps
from simgpu.layout import LANES
from simgpu.matrix_sums import V32, VI, Accumulator, Groups, splat

QUARTER = ir.VectorType(I8, GROUP)
PER_ROW = LANES // GROUP  # groups of lanes in a register of D
FLOOR = (BIAS + 2 * LEAST) << 23  # in place: the least E
MARGIN = 5  # places that C may lie above E before the sum of products is cut
INFINITY = 0xFF << 23
Summed = Callable[[Any, list[int], Any], Any]  # (group, steps, E + MARGIN in place) to the sum in units of 2^(E − 24)
ROUND_DOWN = 9  # AVX-512's embedded rounding: toward −∞, no exceptions


class BoundedSum:
    """Emits the sum for a regular walk without sparse indices."""

    def __init__(self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, narrow: bool) -> None:
        self.groups = groups
        self.frame = groups.frame
        self.build = groups.build
        self.c = c
        self.size = size
        self.narrow = narrow
        self.ops = LLVMOps(groups.build, GROUP, fix_nan=False)
        self.byte_ops = LLVMOps(groups.build, LANES, fix_nan=False)
        self.paired = pair_sum.serves(groups)
        self.operands = BoundedOperand(a, 0, 4, self.paired), BoundedOperand(b, 1, 1, self.paired)

    @staticmethod
    def serves(groups: Groups, size: int) -> bool:
        return groups.chunk_offsets(size) is not None and groups.walk.groups % PER_ROW == 0

    def emit(self, otherwise: Callable[[Any], None]) -> None:
        """otherwise(group): emits the sum for groups of lanes from `group` (i64) on, whatever the operands."""
        build = self.build
        hold = build.and_(*(operand.bounded for operand in self.operands))
        before = build.block
        usual, self.rest, done = (build.append_basic_block(name) for name in ("usual", "rest", "done"))
        build.cbranch(hold, usual, self.rest)
        build.position_at_end(self.rest)
        self.first = build.phi(I64)
        self.first.add_incoming(ir.Constant(I64, 0), before)
        build.position_at_end(usual)
        if self.paired:
            self._grid_first(done)
        steps = list(range(self.size))
        self._loop([steps[0::2], steps[1::2]] if self.narrow else [steps], self._products)
        build.branch(done)
        build.position_at_end(self.rest)
        otherwise(self.first)
        build.branch(done)
        build.position_at_end(done)

    # -- integers ------------------------------------------------------------------------------

    def _grid_first(self, done: Any) -> None:
        """Where both operands are integers of few bits, times a power of two for each, no product is cut."""
        build = self.build
        grid, other = (build.append_basic_block(name) for name in ("grid", "off_grid"))
        # The leading exponents' fields less this and E + MARGIN: the distance of the integers' unit from 2^(E − 24).
        unit = ir.Constant(I32, 2 * (BIAS + GRID) - 24 - BIAS - MARGIN)
        self.unit = build.sub(build.add(*(operand.leading for operand in self.operands)), unit)
        build.cbranch(build.and_(*(operand.whole for operand in self.operands)), grid, other)
        build.position_at_end(grid)
        self._loop([list(range(self.size))], self._dots)
        build.branch(done)
        build.position_at_end(other)

    def _dots(self, group: Any, steps: list[int], exponent: Any) -> Any:
        """Sum of the products in units of 2^(E − 24); none is cut there; exponent: E + MARGIN in place."""
        build = self.build
        left, right = (operand.pairs for operand in self.operands)
        assert left is not None and right is not None
        total = pair_sum.dot(self.groups, group, steps, left, right)
        up = build.sub(self.frame.splat(self.unit, GROUP), build.lshr(exponent, splat(VI, 23)))
        return self._shifted("shl", total, up)

    # -- exponents as bytes --------------------------------------------------------------------

    def _largest(self, row: Any, steps: list[int]) -> Any:
        """<64 x i8>: E of these steps, by lane of register `row` (i64, its first group) of D."""
        top = splat(BYTES, NONE)
        for step in steps:
            both = self.byte_ops.intrinsic("sadd.sat", I8, [self._of_a(row, step), self._of_b(row, step)])
            top = self.byte_ops.intrinsic("smax", I8, [top, both])
        return top

    def _of_a(self, row: Any, step: int) -> Any:
        build, groups = self.build, self.groups
        apart = groups.a_groups.reshape(-1, PER_ROW)
        value = groups.a(self.operands[0].exponents, I32, row, step)
        for group in range(1, PER_ROW):
            if (apart[:, group] == apart[:, 0]).all():
                continue
            mine = ir.Constant(ir.VectorType(I1, GROUP), [lane // (GROUP // PER_ROW) >= group for lane in range(GROUP)])
            if not (apart[:, group] == apart[:, group - 1]).all():
                other = groups.a(self.operands[0].exponents, I32, build.add(row, ir.Constant(I64, group)), step)
                value = build.select(mine, other, value)
        return build.bitcast(value, BYTES)

    def _of_b(self, row: Any, step: int) -> Any:
        """Each group's 16 bytes; neighbours and repetitions as one load."""
        build, groups = self.build, self.groups
        apart = groups.b_groups.reshape(-1, PER_ROW) // 4
        apart = apart - apart[:, :1]
        pattern = [int(v) for v in apart[0]]
        wide = 0
        if (apart == apart[0]).all():
            wide = next((n for n in (1, 2, 4) if pattern == [GROUP * (g % n) for g in range(PER_ROW)]), 0)
        if wide:
            kind = ir.VectorType(I8, GROUP * wide)
            value = self.frame.load(self._b_place(row, step), kind, 1)
            picks = [lane % (GROUP * wide) for lane in range(LANES)]
            order = ir.Constant(ir.VectorType(I32, LANES), picks)
            return build.shuffle_vector(value, ir.Constant(kind, ir.Undefined), order)
        groups_of_row = [build.add(row, ir.Constant(I64, g)) for g in range(PER_ROW)]
        quarters = [self.frame.load(self._b_place(group, step), QUARTER, 1) for group in groups_of_row]
        while len(quarters) > 1:
            count = quarters[0].type.count * 2
            order = ir.Constant(ir.VectorType(I32, count), list(range(count)))
            pairs = zip(quarters[::2], quarters[1::2], strict=True)
            quarters = [build.shuffle_vector(x, y, order) for x, y in pairs]
        return quarters[0]

    def _b_place(self, group: Any, step: int) -> Any:
        build, groups = self.build, self.groups
        offset = build.add(groups._entry(groups.b_table, group, 1, 0), ir.Constant(I64, int(groups.b_steps[step])))
        if groups.moved is not None:
            offset = build.add(offset, groups.moved[1])
        return self.frame.at(self.operands[1].exponents, build.ashr(offset, ir.Constant(I64, 2)))

    # -- the registers of D --------------------------------------------------------------------

    def _loop(self, parts: list[list[int]], summed: Summed) -> None:
        """parts: the steps of a chunk, those together that share an E."""
        groups = self.groups
        offsets = groups.chunk_offsets(self.size)
        assert offsets is not None

        def one(row: Any) -> tuple[()]:  # row: the first group of lanes of a register of D
            places = [self.build.add(row, ir.Constant(I64, g)) for g in range(PER_ROW)]
            totals = [self.c.load(group, V32) for group in places]
            totals = groups.chunked(offsets, lambda state: self._added(row, places, state, parts, summed), totals)
            for group, total in zip(places, totals, strict=True):
                self.c.store(group, total)
            return ()

        self.frame.loop(groups.walk.groups, one, step=PER_ROW)

    def _added(self, row: Any, places: list[Any], totals: list[Any], parts: list[list[int]], summed: Summed) -> list[Any]:
        """Each group's total and the products of one chunk of steps."""
        build = self.build
        largest = [self._largest(row, part) for part in parts]
        slots = []
        for exponents in largest:
            slots.append(stack(self.frame, LANES))
            self.frame.store(build.add(exponents, splat(BYTES, BIAS + MARGIN)), slots[-1], 64)
        self._leave_unless_bounded(row, totals, self._empty(largest))
        result = []
        for number, (group, total) in enumerate(zip(places, totals, strict=True)):
            sums = []
            for part, slot in zip(parts, slots, strict=True):
                narrow = self.frame.load(self.frame.at(slot, GROUP * number), QUARTER, GROUP)
                exponent = build.shl(build.zext(narrow, VI), splat(VI, 23))
                sums.append((summed(group, part, exponent), exponent))
            result.append(self._accumulated(*self._joined(sums), total))
        return result

    def _empty(self, largest: list[Any]) -> Any:
        """Which lanes have products that are all 0 (<64 x i1>)."""
        top = largest[0]
        for other in largest[1:]:
            top = self.byte_ops.intrinsic("smax", I8, [top, other])
        return self.build.icmp_signed("==", top, splat(BYTES, NONE))

    def _leave_unless_bounded(self, row: Any, totals: list[Any], empty: Any) -> None:
        """Go on elsewhere from this register on if an element of C is not finite, or tiny with only zeros to add."""
        build = self.build
        sizes = [build.and_(build.bitcast(c, VI), splat(VI, 0x7FFFFFFF)) for c in totals]
        endless = build.icmp_unsigned(">=", self._extreme("umax", sizes), splat(VI, INFINITY))
        with build.if_then(build.or_(self._any(endless), self._any(empty)), likely=False):
            # Less 1, a zero is the greatest.
            least = self._extreme("umin", [build.sub(size, splat(VI, 1)) for size in sizes])
            tiny = build.icmp_unsigned("<", least, splat(VI, FLOOR - 1))
            onward = build.append_basic_block("zeros")
            self.first.add_incoming(row, build.block)
            build.cbranch(build.or_(self._any(endless), self._any(tiny)), self.rest, onward)
            build.position_at_end(onward)

    def _extreme(self, how: str, values: list[Any]) -> Any:
        """Lane by lane, the greatest ("umax") or least ("umin") of several."""
        found = values[0]
        for value in values[1:]:
            found = self.ops.intrinsic(how, I32, [found, value])
        return found

    def _any(self, mask: Any) -> Any:
        kind = ir.IntType(mask.type.count)
        return self.build.icmp_unsigned("!=", self.build.bitcast(mask, kind), ir.Constant(kind, 0))

    def _products(self, group: Any, steps: list[int], exponent: Any) -> Any:
        """Sum of the products, each cut toward 0 at 2^(E − 24), in these units; exponent: E + MARGIN in place."""
        build, groups = self.build, self.groups
        scale = build.bitcast(self._scale(exponent), V32)
        left, right = (operand.values for operand in self.operands)
        total: Any = None
        for step in steps:
            product = build.fmul(groups.a(left, F32, group, step), groups.b(right, F32, group, step))
            cut = build.fptosi(build.fmul(product, scale), VI)
            total = cut if total is None else build.add(total, cut)
        return total

    def _joined(self, sums: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """FP8: both sums cut toward −∞ at the larger exponent; the sum and that exponent."""
        if len(sums) == 1:
            return sums[0]
        build = self.build
        top = self.ops.intrinsic("smax", I32, [sums[0][1], sums[1][1]])
        cut = []
        for total, exponent in sums:
            distance = build.lshr(build.sub(top, exponent), splat(VI, 23))
            cut.append(self._shifted("ashr", total, distance))
        return build.add(cut[0], cut[1]), top

    def _accumulated(self, total: Any, exponent: Any, c: Any) -> Any:
        """`total` in units of 2^(E − 24) and C, each cut toward −∞, their sum rounded to f32; exponent: E + MARGIN in place.

        Units are 2^(G − 24), with G the larger of E and C's exponent less MARGIN, so that the sum fits 32 bits. What
        `total` loses there is below the last places of C and of D; the two bits of it that are not yet below
        2^(F − 31) tell on which side of a tie the sum lies, and its last bit, 0 in C, stands for them.
        """
        build = self.build
        own = build.and_(build.bitcast(c, VI), splat(VI, INFINITY))
        apart = self._over(own, exponent)
        scale = build.sub(self._scale(exponent), apart)
        distance = build.lshr(apart, splat(VI, 23))
        units = build.add(self._shifted("ashr", total, distance), self._cut(c, own, exponent, scale))
        lost = build.lshr(self._shifted("shl", splat(VI, 3), distance), splat(VI, 2))
        inexact = build.icmp_signed("!=", build.and_(total, lost), splat(VI, 0))
        units = build.select(inexact, build.or_(units, splat(VI, 1)), units)
        unit = build.bitcast(build.sub(splat(VI, 2 * BIAS << 23), scale), V32)
        return build.fmul(build.sitofp(units, V32), unit)

    def _over(self, x: Any, y: Any) -> Any:
        """x − y of exponents in place, or 0: a saturating difference of the upper halves, the lower ones being 0."""
        kind = ir.VectorType(I16, 2 * GROUP)
        halves = LLVMOps(self.build, 2 * GROUP, fix_nan=False)
        over = halves.intrinsic("usub.sat", I16, [self.build.bitcast(value, kind) for value in (x, y)])
        return self.build.bitcast(over, VI)

    def _scale(self, exponent: Any) -> Any:
        """Bits of 2^(24 − E)."""
        return self.build.sub(splat(VI, (2 * BIAS + MARGIN + 24) << 23), exponent)

    def _shifted(self, how: str, value: Any, distance: Any) -> Any:
        """`value` shifted by any distance: 31 and more are as good as each other."""
        if host().has_wide_masks:
            return self._x86({"ashr": "psrav.d.512", "shl": "psllv.d.512"}[how], VI, [value, distance])
        return getattr(self.build, how)(value, self.ops.intrinsic("umin", I32, [distance, splat(VI, 31)]))

    def _cut(self, c: Any, own: Any, exponent: Any, scale: Any) -> Any:
        """C times `scale`, cut toward −∞ (i32); FP8: 0 where C is below 2^(F − 25)."""
        build = self.build
        near = ir.Constant(ir.VectorType(I1, GROUP), [True] * GROUP)
        if self.narrow:
            near = build.icmp_unsigned(">=", build.add(own, splat(VI, (MARGIN + 25) << 23)), exponent)
        if host().has_wide_masks:
            down = ir.Constant(I32, ROUND_DOWN)
            scaled = self._x86("mul.ps.512", V32, [c, build.bitcast(scale, V32), down])
            return self._x86("mask.cvtps2dq.512", VI, [scaled, splat(VI, 0), build.bitcast(near, I16), down])
        # 40 places below, or more, is all the same: what is left is −1 or 0, and no denormal on the way.
        scale = self.ops.intrinsic("smax", I32, [scale, build.sub(splat(VI, (2 * BIAS - 16) << 23), own)])
        floor = self.ops.intrinsic("floor", F32, [build.fmul(c, build.bitcast(scale, V32))])
        return build.select(near, build.fptosi(floor, VI), splat(VI, 0))

    def _x86(self, name: str, result: ir.Type, args: list[Any]) -> Any:
        return intrinsics.call(self.build, f"llvm.x86.avx512.{name}", result, args)
