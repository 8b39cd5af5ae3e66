"""The sums of CDNA3 where exponents are bounded, as they nearly always are, in 32-bit integers.

Formula: hardware.mfma.arithmetic; `aligned_sum` has it for any operands and takes over where a
bound does not hold. A product of f32 values is exact here, so that its cut at 2^(E − 24) is a
multiplication by 2^(24 − E) and a conversion to an integer; E, the largest sum of exponents, is
found in bytes, for the 64 lanes of a register of D at a time. With F the larger of E and C's
exponent, D is a sum in units of 2^(F − 31) of up to 38 bits, rounded once as fma(high, 128, low).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu.fragments import GROUP, Spread, stack
from simgpu.frame import ROW32
from simgpu.jit import host
from simgpu.lane_llvm import F32, I1, I8, I16, I32, I64, LLVMOps
from simgpu.layout import LANES, ROW
from simgpu.matrix_sums import V32, VI, Accumulator, Groups, splat

BYTES = ir.VectorType(I8, LANES)
QUARTER = ir.VectorType(I8, GROUP)
PER_ROW = LANES // GROUP  # groups of lanes in a register of D
BIAS = 127
# Exponents of nonzero elements lie between these: all of the formats with 5 exponent bits or fewer, and those
# of bf16 and xf32 in practice. Sums of two fit a byte, and every power of two on the way is a normal f32 number.
LEAST, MOST = -45, 60
ZERO = -128  # the exponent byte of a zero: a saturating sum with it is less than any other
FLOOR = (BIAS + 2 * LEAST) << 23  # in place: the least F
INFINITY = 0xFF << 23
ROUND_DOWN = 9  # AVX-512's embedded rounding: toward −∞, no exceptions


class BoundedSum:
    """Emits the sum for a regular walk without sparse indices."""

    def __init__(self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, narrow: bool) -> None:
        self.groups = groups
        self.frame = groups.frame
        self.build = groups.build
        self.c = c
        self.spreads = a, b
        self.size = size
        self.narrow = narrow
        self.ops = LLVMOps(groups.build, GROUP, fix_nan=False)
        self.byte_ops = LLVMOps(groups.build, LANES, fix_nan=False)
        self.left, self.right = a.floats(flush=False), b.floats(flush=False)

    @staticmethod
    def serves(groups: Groups, size: int) -> bool:
        return groups.chunk_offsets(size) is not None and groups.walk.groups % PER_ROW == 0

    def emit(self, otherwise: Callable[[Any], None]) -> None:
        """otherwise(group): emits the sum for groups of lanes from `group` (i64) on, whatever the operands."""
        build = self.build
        hold = build.and_(self._bounded(self.spreads[0], self.left), self._bounded(self.spreads[1], self.right))
        before = build.block
        usual, self.rest, done = (build.append_basic_block(name) for name in ("usual", "rest", "done"))
        build.cbranch(hold, usual, self.rest)
        build.position_at_end(self.rest)
        self.first = build.phi(I64)
        self.first.add_incoming(ir.Constant(I64, 0), before)
        build.position_at_end(usual)
        self._exponent_bytes()
        self._loop()
        build.branch(done)
        build.position_at_end(self.rest)
        otherwise(self.first)
        build.branch(done)
        build.position_at_end(done)

    def _bounded(self, spread: Spread, values: Any) -> Any:
        """Whether the elements are finite and their exponents between LEAST and MOST (i1)."""
        build, ops = self.build, spread.ops
        greatest = smallest = None
        for row in range(spread.rows):
            size = self._size(spread, values, row)
            less = build.sub(size, ops.constant(I32, 1))  # zero becomes the greatest
            greatest = size if greatest is None else ops.intrinsic("umax", I32, [greatest, size])
            smallest = less if smallest is None else ops.intrinsic("umin", I32, [smallest, less])
        limit = ir.Constant(I32, (BIAS + MOST + 1) << 23)
        below = build.icmp_unsigned("<", spread.reduced("umax", greatest), limit)
        if spread.form.exponent <= 5:
            return below
        limit = ir.Constant(I32, ((BIAS + LEAST) << 23) - 1)
        return build.and_(below, build.icmp_unsigned(">=", spread.reduced("umin", smallest), limit))

    def _size(self, spread: Spread, values: Any, row: int) -> Any:
        """Bits of the magnitudes of a row of f32 values."""
        bits = self.frame.load(self.frame.at(values, row * ROW), ROW32, 64)
        return self.build.and_(bits, spread.ops.constant(I32, 0x7FFFFFFF))

    # -- exponents as bytes --------------------------------------------------------------------

    def _exponent_bytes(self) -> None:
        """Rows of the exponents of A, each byte four times over, and of B."""
        build = self.build
        a, b = self.spreads
        self.exponents = stack(self.frame, a.rows * ROW), stack(self.frame, b.rows * LANES)
        fourfold = ir.Constant(ir.VectorType(I32, 4 * LANES), [at // 4 * 4 for at in range(4 * LANES)])
        for row in range(a.rows):
            whole = build.bitcast(self._exponent(a, self.left, row), ir.VectorType(I8, 4 * LANES))
            spread = build.shuffle_vector(whole, ir.Constant(whole.type, ir.Undefined), fourfold)
            self.frame.store(spread, self.frame.at(self.exponents[0], row * ROW), 64)
        for row in range(b.rows):
            narrow = build.trunc(self._exponent(b, self.right, row), BYTES)
            self.frame.store(narrow, self.frame.at(self.exponents[1], row * LANES), 64)

    def _exponent(self, spread: Spread, values: Any, row: int) -> Any:
        """<64 x i32> of a row's exponents, ZERO for zeros; denormals have the format's least."""
        build, ops = self.build, spread.ops
        size = self._size(spread, values, row)
        exponent = build.sub(build.lshr(size, ops.constant(I32, 23)), ops.constant(I32, BIAS))
        least = max(LEAST, 1 - spread.form.bias)
        exponent = ops.intrinsic("smax", I32, [exponent, ops.constant(I32, least)])
        zero = build.icmp_unsigned("==", size, ops.constant(I32, 0))
        return build.select(zero, ops.constant(I32, ZERO), exponent)

    def _largest(self, row: Any, steps: list[int]) -> Any:
        """<64 x i8>: E + 127 of these steps, by lane of register `row` (i64, its first group) of D."""
        top = splat(BYTES, 2 * LEAST)
        for step in steps:
            both = self.byte_ops.intrinsic("sadd.sat", I8, [self._of_a(row, step), self._of_b(row, step)])
            top = self.byte_ops.intrinsic("smax", I8, [top, both])
        return self.build.add(top, splat(BYTES, BIAS))

    def _of_a(self, row: Any, step: int) -> Any:
        build, groups = self.build, self.groups
        apart = groups.a_groups.reshape(-1, PER_ROW)
        value = groups.a(self.exponents[0], I32, row, step)
        for group in range(1, PER_ROW):
            if (apart[:, group] == apart[:, 0]).all():
                continue
            mine = ir.Constant(ir.VectorType(I1, GROUP), [lane // (GROUP // PER_ROW) >= group for lane in range(GROUP)])
            if not (apart[:, group] == apart[:, group - 1]).all():
                other = groups.a(self.exponents[0], I32, build.add(row, ir.Constant(I64, group)), step)
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
        return self.frame.at(self.exponents[1], build.ashr(offset, ir.Constant(I64, 2)))

    # -- the registers of D --------------------------------------------------------------------

    def _loop(self) -> None:
        build, groups = self.build, self.groups
        offsets = groups.chunk_offsets(self.size)
        assert offsets is not None
        before = build.block
        head, after = build.append_basic_block("row"), build.append_basic_block("rows")
        build.branch(head)
        build.position_at_end(head)
        row = build.phi(I64)  # the first group of lanes of a register of D
        row.add_incoming(ir.Constant(I64, 0), before)
        places = [build.add(row, ir.Constant(I64, g)) for g in range(PER_ROW)]
        totals = [self.c.load(group, V32) for group in places]
        totals = groups.chunked(offsets, lambda state: self._added(row, places, state), totals)
        for group, total in zip(places, totals, strict=True):
            self.c.store(group, total)
        following = build.add(row, ir.Constant(I64, PER_ROW))
        row.add_incoming(following, build.block)
        build.cbranch(build.icmp_unsigned("<", following, ir.Constant(I64, groups.walk.groups)), head, after)
        build.position_at_end(after)

    def _added(self, row: Any, places: list[Any], totals: list[Any]) -> list[Any]:
        """Each group's total and the products of one chunk of steps."""
        steps = list(range(self.size))
        parts = [steps[0::2], steps[1::2]] if self.narrow else [steps]
        slots = []
        for part in parts:
            slot = stack(self.frame, LANES)
            self.frame.store(self._largest(row, part), slot, 64)
            slots.append(slot)
        result = []
        for number, (group, total) in enumerate(zip(places, totals, strict=True)):
            self._leave_unless_bounded(row, total)
            sums = []
            for part, slot in zip(parts, slots, strict=True):
                narrow = self.frame.load(self.frame.at(slot, GROUP * number), QUARTER, GROUP)
                exponent = self.build.shl(self.build.zext(narrow, VI), splat(VI, 23))
                sums.append((self._products(group, part, exponent), exponent))
            result.append(self._accumulated(*self._joined(sums), total))
        return result

    def _leave_unless_bounded(self, row: Any, c: Any) -> None:
        """Go on elsewhere from this register on if an element of C is not finite, or tiny and not 0."""
        build = self.build
        bits = build.bitcast(c, VI)
        field = build.and_(bits, splat(VI, INFINITY))
        over = build.icmp_unsigned(">=", build.sub(field, splat(VI, FLOOR)), splat(VI, INFINITY - FLOOR))
        with build.if_then(self._any(over), likely=False):
            nonzero = build.icmp_unsigned("!=", build.shl(bits, splat(VI, 1)), splat(VI, 0))
            tiny = build.and_(build.icmp_unsigned("<", field, splat(VI, FLOOR)), nonzero)
            wrong = build.or_(tiny, build.icmp_unsigned("==", field, splat(VI, INFINITY)))
            onward = build.append_basic_block("zeros")
            self.first.add_incoming(row, build.block)
            build.cbranch(self._any(wrong), self.rest, onward)
            build.position_at_end(onward)

    def _any(self, mask: Any) -> Any:
        return self.build.icmp_unsigned("!=", self.build.bitcast(mask, I16), ir.Constant(I16, 0))

    def _products(self, group: Any, steps: list[int], exponent: Any) -> Any:
        """Sum of the products, each cut toward 0 at 2^(E − 24), in these units; exponent: that of E in place."""
        build, groups = self.build, self.groups
        scale = build.bitcast(build.sub(splat(VI, (2 * BIAS + 24) << 23), exponent), V32)
        total: Any = None
        for step in steps:
            product = build.fmul(groups.a(self.left, F32, group, step), groups.b(self.right, F32, group, step))
            cut = build.fptosi(build.fmul(product, scale), VI)
            total = cut if total is None else build.add(total, cut)
        return total

    def _joined(self, sums: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """FP8: both sums cut toward −∞ at the larger exponent; the sum and that exponent."""
        if len(sums) == 1:
            return sums[0]
        build = self.build
        top = self.ops.intrinsic("smax", I32, [sums[0][1], sums[1][1]])
        cut = [build.ashr(total, self._distance(top, exponent)) for total, exponent in sums]
        return build.add(cut[0], cut[1]), top

    def _distance(self, top: Any, exponent: Any) -> Any:
        """Powers of two between two exponents in place, 31 at most."""
        far = self.build.lshr(self.build.sub(top, exponent), splat(VI, 23))
        return self.ops.intrinsic("umin", I32, [far, splat(VI, 31)])

    def _accumulated(self, total: Any, exponent: Any, c: Any) -> Any:
        """The sum cut at 2^(F − 31) and C at 2^(F − 24), toward −∞, and their sum rounded to f32.

        A sum more than 31 places below F, which `_distance` brings nearer, changes nothing: it is less than
        half of the last place of C.
        """
        build = self.build
        own = build.and_(build.bitcast(c, VI), splat(VI, INFINITY))
        both = self.ops.intrinsic("smax", I32, [exponent, own])
        z = self._cut(c, own, both)
        if self.narrow:  # C below 2^(F − 25) counts as 0
            far = build.icmp_signed(">", build.sub(both, own), splat(VI, 25 << 23))
            z = build.select(far, splat(VI, 0), z)
        distance = self._distance(both, exponent)
        units = build.add(build.ashr(total, distance), z)  # of 2^(F − 24)
        # The low 32 bits of the sum in units of 2^(F − 31): total·128 moved down, and C.
        above, below = build.ashr(total, splat(VI, 25)), build.shl(total, splat(VI, 7))
        moved = self.ops.intrinsic("fshr", I32, [above, below, distance])
        low = build.and_(build.add(moved, build.shl(z, splat(VI, 7))), splat(VI, (1 << 14) - 1))
        high = build.and_(units, splat(VI, -128))
        value = self.ops.intrinsic("fma", F32, [build.sitofp(high, V32), splat(V32, 128.0), build.sitofp(low, V32)])
        return build.fmul(value, build.bitcast(build.sub(both, splat(VI, 31 << 23)), V32))

    def _cut(self, c: Any, own: Any, both: Any) -> Any:
        """C in units of 2^(F − 24), cut toward −∞."""
        build = self.build
        if host().has("avx512f"):
            scale = build.bitcast(build.sub(splat(VI, (2 * BIAS + 24) << 23), both), V32)
            down = ir.Constant(I32, ROUND_DOWN)
            scaled = self._x86("mul.ps.512", V32, [c, scale, down])
            return self._x86("mask.cvtps2dq.512", VI, [scaled, splat(VI, 0), ir.Constant(I16, -1), down])
        # 40 places below, or more, is all the same: what is left is −1 or 0, and no denormal on the way.
        near = self.ops.intrinsic("smin", I32, [both, build.add(own, splat(VI, 40 << 23))])
        scale = build.bitcast(build.sub(splat(VI, (2 * BIAS + 24) << 23), near), V32)
        return build.fptosi(self.ops.intrinsic("floor", F32, [build.fmul(c, scale)]), VI)

    def _x86(self, name: str, result: ir.Type, args: list[Any]) -> Any:
        full = f"llvm.x86.avx512.{name}"
        signature = ir.FunctionType(result, [arg.type for arg in args])
        module = self.frame.module
        return self.build.call(module.globals.get(full) or ir.Function(module, signature, full), args)
