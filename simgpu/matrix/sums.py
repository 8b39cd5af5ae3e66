"""The sums of matrix instructions on 16 lanes of D at a time; formulas: hardware.mfma.arithmetic.

Each `emit` function of a kind of sum spreads the operands, then walks the groups of D: as a loop
over a table of offsets where the walk is regular, else unrolled with shuffles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import F32, F64, I32, I64, LLVMOps
from simgpu.machine.layout import LANES, ROW
from simgpu.matrix.fragments import GROUP, Spread, Walk
from simgpu.matrix.operand_cache import Kept

V32 = ir.VectorType(F32, GROUP)
VI = ir.VectorType(I32, GROUP)
VL = ir.VectorType(I64, GROUP)
VD = ir.VectorType(F64, GROUP)


def splat(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def first_of_chunks(steps: np.ndarray, size: int) -> np.ndarray:
    """Bytes from the first of each `size` steps' places to that of the first chunk's."""
    return steps[::size] - steps[0]


def _separated(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (groups, steps) as a part of each step plus a part of each group."""
    steps, groups = offsets[0], offsets[:, 0] - offsets[0, 0]
    assert (offsets == groups[:, None] + steps).all(), "lanes of D move A and B alike at every k"
    return steps, groups


class Groups:
    """Runs a body for each group of lanes of D; the body asks for elements by step."""

    def __init__(self, frame: Frame, walk: Walk, index_row: Any, lane_bytes: int = 4) -> None:
        self.frame = frame
        self.build = frame.build
        self.walk = walk
        self.lane_bytes = lane_bytes
        self.index_row = index_row
        self.width = walk.a.shape[2]
        # Bytes from the elements of A, B and so on that are asked for to those meant: within `chunked`.
        self.moved: list[Any] | None = None
        if walk.regular:
            self.a_steps, self.a_groups = _separated(walk.a[..., 0] * lane_bytes)
            self.b_steps, self.b_groups = _separated(walk.b[..., 0] * lane_bytes)
            self.a_table = self._table(self.a_groups)
            self.b_table = self._table(self.b_groups)
            if walk.index is not None:
                self.b_offsets = self._table(self.b_steps)
                self.index_table = self._table(walk.index)

    def _table(self, values: np.ndarray) -> Any:
        kind = ir.ArrayType(I32, values.size)
        name = self.frame.module.get_unique_name("table")
        table = ir.GlobalVariable(self.frame.module, kind, name)
        table.initializer = ir.Constant(kind, [int(v) for v in values.ravel()])
        table.global_constant = True
        table.linkage = "internal"
        return table

    def run(self, body: Callable[[Any], None], first: Any = None) -> None:
        """body(group): an i64 value in a loop from `first` (i64) on, or a Python int."""
        if not self.walk.regular:
            for group in range(self.walk.groups):
                body(group)
            return

        def one(group: Any) -> tuple[()]:
            body(group)
            return ()

        self.frame.loop(self.walk.groups, one, first=first)

    def entry(self, table: Any, group: Any, steps: int, step: Any) -> Any:
        """table[group·steps + step] as i64."""
        build = self.build
        at = build.mul(group, ir.Constant(I64, steps))
        at = build.add(at, ir.Constant(I64, step) if isinstance(step, int) else step)
        place = build.gep(table, [ir.Constant(I64, 0), at], source_etype=table.value_type)
        return build.sext(self.frame.load(place, I32), I64)  # a group may lie before the first

    def a(self, pointer: Any, scalar: ir.Type, group: Any, step: int) -> Any:
        """The element of A at a step, for each lane of the group."""
        if not self.walk.regular:
            return self._picked(pointer, scalar, self.walk.a[group, step])
        place = self._place(pointer, self.a_table, group, 0)
        value = self.frame.load(self.frame.at(place, int(self.a_steps[step])), scalar, self.lane_bytes)
        return self.frame.splat(value, self.width)

    def b(self, pointer: Any, scalar: ir.Type, group: Any, step: int) -> Any:
        if not self.walk.regular:
            return self._picked(pointer, scalar, self.walk.b[group, step])
        place = self._place(pointer, self.b_table, group, 1)
        if self.walk.index is None:
            place = self.frame.at(place, int(self.b_steps[step]))
        else:
            k = self._selected(group, step)
            place = self.frame.at(place, self.entry(self.b_offsets, ir.Constant(I64, 0), 1, k))
        return self.frame.load(place, ir.VectorType(scalar, self.width), self.lane_bytes)

    def _place(self, pointer: Any, table: Any, group: Any, operand: int) -> Any:
        place = self.frame.at(pointer, self.entry(table, group, 1, 0))
        return place if self.moved is None else self.frame.at(place, self.moved[operand])

    def chunk_offsets(self, size: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Bytes from the first `size` steps to each later `size` of them, in A and B, where that is enough."""
        if not self.walk.regular or self.walk.index is not None or self.walk.steps % size:
            return None
        for steps in (self.a_steps, self.b_steps):
            chunks = steps.reshape(-1, size)
            if (chunks - chunks[:, :1] != chunks[0] - chunks[0, 0]).any():
                return None
        return first_of_chunks(self.a_steps, size), first_of_chunks(self.b_steps, size)

    def a_by_step(self) -> tuple[np.ndarray, np.ndarray]:
        """An order of a row's lanes in which the elements of A that a step takes for all groups follow each other.

        Returns it, to a multiple of 64 long, and where each step's first element is, over all rows in that order.
        """
        rows, lanes = np.divmod(self.walk.a[..., 0], LANES)
        assert (rows == rows[0]).all(), "all groups read the same row at a step"
        shifts, which = np.unique(lanes[0] - lanes[0, 0], return_inverse=True)
        order = (shifts[:, None] + lanes[:, 0]).ravel()
        order = np.pad(order, (0, -len(order) % LANES))
        return order, rows[0] * len(order) + which * self.walk.groups

    def chunked(
        self, offsets: tuple[np.ndarray, ...], body: Callable[[list[Any]], list[Any]], state: list[Any]
    ) -> list[Any]:
        """Run body(state) for each chunk of steps; in it, steps are those of the first chunk."""
        count = len(offsets[0])
        if count == 1:
            return body(state)
        tables = [self._table(o) for o in offsets]

        def one(chunk: Any, *carried: Any) -> list[Any]:
            self.moved = [self.entry(table, chunk, 1, 0) for table in tables]
            result = body(list(carried))
            self.moved = None
            return result

        return self.frame.loop(count, one, state)

    def _selected(self, group: Any, step: int) -> Any:
        """The k of B that the sparse index names at a step."""
        assert self.walk.index is not None
        build = self.build
        entry = self.entry(self.index_table, group, self.walk.index.shape[1], step // 2)
        place = build.shl(build.lshr(entry, ir.Constant(I64, 5)), ir.Constant(I64, 2))
        word = build.zext(self.frame.load(self.frame.at(self.index_row, place), I32), I64)
        low = build.add(build.and_(entry, ir.Constant(I64, 31)), ir.Constant(I64, 2 * (step % 2)))
        chosen = build.and_(build.lshr(word, low), ir.Constant(I64, 3))
        return build.add(chosen, ir.Constant(I64, step // 2 * 4))

    def _picked(self, pointer: Any, scalar: ir.Type, places: np.ndarray) -> Any:
        """Elements of arbitrary lanes of one row."""
        rows = np.unique(places // LANES)
        assert len(rows) == 1, "one step of a group reads one row"
        whole = ir.VectorType(scalar, LANES)
        base = self.frame.at(pointer, int(rows[0]) * LANES * self.lane_bytes)
        row = self.frame.load(base, whole, 64)
        picks = ir.Constant(ir.VectorType(I32, self.width), [int(p) % LANES for p in places])
        return self.build.shuffle_vector(row, ir.Constant(whole, ir.Undefined), picks)

    def d_place(self, pointer: Any, group: Any) -> Any:
        """Where the group's lanes of a 32-bit C or D lie: groups follow each other."""
        if isinstance(group, int):
            return self.frame.at(pointer, group * self.width * 4)
        return self.frame.at(pointer, self.build.mul(group, ir.Constant(I64, self.width * 4)))


class Accumulator:
    """C and D of 32-bit elements: a register range, or a constant for C."""

    def __init__(self, groups: Groups, c: Any, constant: Any, d: Any) -> None:
        self.groups = groups
        self.pointer = c
        self.constant = constant
        self.d = d

    def load(self, group: Any, kind: ir.VectorType) -> Any:
        frame = self.groups.frame
        if self.pointer is None:
            bits = frame.splat(self.constant, kind.count)
            return frame.build.bitcast(bits, kind)
        return frame.load(self.groups.d_place(self.pointer, group), kind, 64)

    def store(self, group: Any, value: Any) -> None:
        frame = self.groups.frame
        frame.store(value, self.groups.d_place(self.d, group), 64)


class PairwiseSum:
    """CDNA1 and CDNA2: `size` products summed in pairs, then added to C, each step rounded to f32.

    flush (CDNA2): denormals count as 0, of every operand and of every result. A result can only be one where
    products are small, so the sum that looks at each is kept for operands whose exponents allow that.
    """

    # With every product a multiple of 2^-102 or 0, sums are too, and a C that nearly cancels one is a multiple
    # of 2^-126. bf16 products have 14 fraction bits; those of f16 are multiples of 2^-48 whatever they are.
    SAFE_EXPONENT = -88

    def __init__(self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, flush: bool) -> None:
        self.groups = groups
        self.c = c
        self.build = groups.build
        self.size = size
        self.flush = flush
        self.looks = flush and a.name != "f16"  # whether there are operands that flushes are looked for with
        (self.left, least_of_a), (self.right, least_of_b) = (self._values(spread, which) for which, spread in enumerate((a, b)))
        self.least = groups.build.add(least_of_a, least_of_b)  # exponent of a product but 0, where it `looks`
        self.ops = LLVMOps(groups.build, GROUP, fix_nan=False)

    def _values(self, spread: Spread, which: int) -> tuple[Any, Any]:
        """Pointer to the elements as f32, and their least exponent (i32) where it is asked for."""
        kept = Kept(spread, which, f"floats {self.flush}")
        pointer = kept.take(spread.rows * ROW)
        least = self.groups.frame.at(kept.header, 8)
        with kept.renewed():
            spread.store(pointer, functools.partial(spread.float_value, flush=self.flush))
            if self.looks:
                self.groups.frame.store(spread.least_exponent(pointer), least)
        return pointer, self.groups.frame.load(least, I32)

    def emit(self) -> None:
        if not self.looks:
            self.groups.run(lambda group: self._group(group, settle=False))
            return
        build = self.build
        safe = build.icmp_signed(">=", self.least, ir.Constant(I32, self.SAFE_EXPONENT))
        with build.if_else(safe, likely=True) as (then, otherwise):
            with then:
                self.groups.run(lambda group: self._group(group, settle=False))
            with otherwise:
                self.groups.run(lambda group: self._group(group, settle=True))

    def _settled(self, value: Any) -> Any:
        """Denormals become 0 with their sign."""
        build = self.build
        zero = build.bitcast(build.and_(build.bitcast(value, VI), splat(VI, 0x80000000)), V32)
        return build.select(self._tiny(value), zero, value)

    def _tiny(self, value: Any) -> Any:
        size = self.ops.intrinsic("fabs", F32, [value])
        return self.build.fcmp_ordered("<", size, splat(V32, 2.0**-126))

    def _group(self, group: Any, settle: bool) -> None:
        build, groups = self.build, self.groups
        settled = self._settled if settle else lambda value: value
        total = self.c.load(group, V32)
        if self.flush:
            total = build.select(self._tiny(total), splat(V32, 0.0), total)
        for start in range(0, groups.walk.steps, self.size):
            terms = [
                settled(build.fmul(groups.a(self.left, F32, group, k), groups.b(self.right, F32, group, k)))
                for k in range(start, start + self.size)
            ]
            while len(terms) > 1:
                pairs = zip(terms[::2], terms[1::2], strict=True)
                terms = [settled(build.fadd(p, q)) for p, q in pairs]
            total = settled(build.fadd(terms[0], total))
        self.c.store(group, total)


def double_chain(groups: Groups, c: Any, d: Any, a: Spread, b: Spread, negate: int) -> None:
    """f64: fma over k in order; C is a pointer to rows of doubles, D to register pairs."""
    build, frame = groups.build, groups.frame
    left, right = a.doubles(bool(negate & 1)), b.doubles(bool(negate & 2))
    width = groups.width
    kind = ir.VectorType(F64, width)
    signature = ir.FunctionType(kind, [kind] * 3)
    fma = ir.Function(frame.module, signature, f"llvm.fma.v{width}f64")

    def one(group: Any) -> None:
        at = build.mul(group, ir.Constant(I64, 8 * width)) if not isinstance(group, int) else ir.Constant(I64, 8 * width * group)
        value = frame.load(frame.at(c, at), kind, 8)
        for step in range(groups.walk.steps):
            terms = [groups.a(left, F64, group, step), groups.b(right, F64, group, step), value]
            value = build.call(fma, terms)
        frame.store(value, frame.at(d, at), 8)

    groups.run(one)


