"""Emits code for each group of 16 lanes of D, and the sums of CDNA1 and CDNA2. Formulas: hardware.mfma.arithmetic.

A sum decodes its operands to rows, then goes over the groups of lanes of D (`Groups`). A regular walk is a loop over a table of
offsets; any other is unrolled with shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.accesses import LaneSums
from simgpu.machine.frame import Frame
from simgpu.machine.intrinsics import any_special, fabs
from simgpu.machine.layout import LANES, ROW, SLOT_INDEX
from simgpu.machine.values import F32, F64, I32, I64, IrValue, default_nan, where
from simgpu.machine.wave_frame import ROW32
from simgpu.matrix.fragments import GROUP, FragmentWalk, Spread, stack
from simgpu.matrix.operand_cache import CacheEntry

V32 = ir.VectorType(F32, GROUP)
VI = ir.VectorType(I32, GROUP)
VD = ir.VectorType(F64, GROUP)


def first_of_chunks(steps: np.ndarray, size: int) -> np.ndarray:
    """Returns the bytes from the first place of the first chunk to that of each chunk of `size` steps."""
    return steps[::size] - steps[0]


def separate(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits offsets (groups, steps) into a part of each step plus a part of each group."""
    steps, groups = offsets[0], offsets[:, 0] - offsets[0, 0]
    assert (offsets == groups[:, None] + steps).all(), "lanes of D move A and B alike at every k"
    return steps, groups


class Groups:
    """Emits a body for each group of lanes of D; the body loads elements of A and B by step."""

    def __init__(self, frame: Frame, walk: FragmentWalk, index_row: Any) -> None:
        self.frame = frame
        self.walk = walk
        self.index_row = index_row
        self.width = walk.a.shape[2]
        # Bytes from the requested elements of A, B and so on to those of the current chunk: within `run_chunks`.
        self.moved: list[Any] | None = None
        if walk.regular:
            self.a_steps, self.a_groups = separate(walk.a[..., 0] * 4)
            self.b_steps, self.b_groups = separate(walk.b[..., 0] * 4)
            self.a_table = self.table(self.a_groups)
            self.b_table = self.table(self.b_groups)
            if walk.index is not None:
                self.chosen = self._sparse_offsets(walk.index)

    def table(self, values: np.ndarray) -> Any:
        """Returns a constant array of i32, for `entry`."""
        kind = ir.ArrayType(I32, values.size)
        name = self.frame.module.get_unique_name("table")
        table = ir.GlobalVariable(self.frame.module, kind, name)
        table.initializer = ir.Constant(kind, [int(v) for v in values.ravel()])
        table.global_constant = True
        table.linkage = "internal"
        return table

    def run(self, body: Callable[[Any], None], first: Any = None) -> None:
        """Emits body(group): group is an i64 in a loop from `first` (i64) on, or a Python int."""
        if not self.walk.regular:
            for group in range(self.walk.groups):
                body(group)
            return

        def run_group(group: Any) -> tuple[()]:
            body(group)
            return ()

        self.frame.loop(self.walk.groups, run_group, first=first)

    def entry(self, table: Any, index: Any) -> IrValue:
        """Returns table[index] as i64."""
        place = self.frame.build.gep(table, [ir.Constant(I64, 0), index], source_etype=table.value_type)
        return place.load(I32).sext(I64)  # a group may be before the first

    def a(self, pointer: Any, scalar: ir.Type, group: Any, step: int) -> IrValue:
        """Loads the element of A at a step, for each lane of the group."""
        if not self.walk.regular:
            return self._shuffle_row(pointer, scalar, self.walk.a[group, step])
        place = pointer.at(self.entry(self.a_table, group)).at(int(self.a_steps[step]))
        if self.moved is not None:
            place = place.at(self.moved[0])
        return place.load(scalar).splat(self.width)

    def b(self, pointer: Any, scalar: ir.Type, group: Any, step: int) -> IrValue:
        """Loads the elements of B at a step."""
        if not self.walk.regular:
            return self._shuffle_row(pointer, scalar, self.walk.b[group, step])
        return pointer.at(self.b_offset(group, step)).load(ir.VectorType(scalar, self.width))

    def b_offset(self, group: Any, step: int) -> IrValue:
        """Returns the bytes (i64) from B's first element to a group's elements at a step of a regular walk."""
        start = self.entry(self.b_table, group)
        if self.walk.index is None:
            offset = start + int(self.b_steps[step])
            return offset if self.moved is None else offset + self.moved[1]
        place = self.chosen.at(group << 2).at(4 * self.walk.groups * step)
        if self.moved is not None:
            place = place.at(self.moved[1])
        return start + place.load(I32).zext(I64)

    def product(self, left: Any, right: Any, scalar: ir.Type, group: Any, step: int) -> IrValue:
        """Returns A·B at a step; left, right: pointers to the elements."""
        return self.a(left, scalar, group, step) * self.b(right, scalar, group, step)

    def chunk_offsets(self, size: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns the bytes from the first `size` steps to each later `size` of them, in A and B (sparse: `chosen`).

        Returns None if chunks differ in more than such an offset.
        """
        if not self.walk.regular or self.walk.steps % size:
            return None
        b_steps = self.b_steps if self.walk.index is None else 4 * self.walk.groups * np.arange(self.walk.steps)
        for steps in (self.a_steps, b_steps):
            chunks = steps.reshape(-1, size)
            if (chunks - chunks[:, :1] != chunks[0] - chunks[0, 0]).any():
                return None
        return first_of_chunks(self.a_steps, size), first_of_chunks(b_steps, size)

    def a_by_step(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns an order of a row's lanes, padded to a multiple of 64, and by step an index into A's rows in that order.

        The elements of A at the step, one for each group, start at that index.
        """
        rows, lanes = np.divmod(self.walk.a[..., 0], LANES)
        assert (rows == rows[0]).all(), "all groups read the same row at a step"
        shifts, which = np.unique(lanes[0] - lanes[0, 0], return_inverse=True)
        order = (shifts[:, None] + lanes[:, 0]).ravel()
        order = np.pad(order, (0, -len(order) % LANES))
        return order, rows[0] * len(order) + which * self.walk.groups

    def run_chunks(
        self, offsets: tuple[np.ndarray, ...], body: Callable[[list[Any]], list[Any]], state: list[Any]
    ) -> list[Any]:
        """Emits body(state) for each chunk of steps; inside, steps are those of the first chunk."""
        count = len(offsets[0])
        if count == 1:
            return body(state)
        tables = [self.table(o) for o in offsets]

        def run_chunk(chunk: Any, *carried: Any) -> list[Any]:
            self.moved = [self.entry(table, chunk) for table in tables]
            result = body(list(carried))
            self.moved = None
            return result

        return self.frame.loop(count, run_chunk, state)

    def _sparse_offsets(self, index: np.ndarray) -> Any:
        """Returns a pointer to the bytes (i32) from B's elements at k = 0 to those of the sparse index, by step and group."""
        row = self.index_row.load(ROW32, 64)
        table = stack(self.frame, 4 * self.walk.steps * len(index))
        first_of_four = self.b_steps.reshape(-1, 4)
        assert (first_of_four - first_of_four[:, :1] == ROW * np.arange(4)).all(), "four k of B are a row apart"
        for step in range(self.walk.steps):
            fields = index[:, step // 2]
            words = row.shuffle([int(lane) for lane in fields >> 5])
            low = ir.Constant(words.type, [int(bit) + 2 * (step % 2) for bit in fields & 31])
            offsets = (words >> low & 3) * ROW + int(first_of_four[step // 2, 0])
            table.at(4 * step * len(index)).store(offsets, 64)
        return table

    def _shuffle_row(self, pointer: Any, scalar: ir.Type, places: np.ndarray) -> IrValue:
        """Returns elements of arbitrary lanes of one row."""
        rows = np.unique(places // LANES)
        assert len(rows) == 1, "one step of a group reads one row"
        row = pointer.at(int(rows[0]) * ROW).load(ir.VectorType(scalar, LANES), 64)
        return row.shuffle([int(place) % LANES for place in places])


def report_nonfinite(frame: Frame, group: Any, new: IrValue, old: Callable[[], IrValue]) -> None:
    """Emits calls of hooks in case a lane of D is not finite. group: an int or i64. old: emits the lanes of C."""
    hooks = [check for check in frame.hooks if check.sums]
    if not hooks:
        return
    with frame.build.if_then(any_special([new]), likely=False):
        number = frame.value(ir.Constant(I64, group)) if isinstance(group, int) else group
        sums = LaneSums(number, new, old(), frame.slot(SLOT_INDEX).zext(I64))
        for check in hooks:
            check.on_sums(frame, sums)


class Accumulator:
    """C and D of 32-bit elements: a register range, or a constant for C."""

    def __init__(self, groups: Groups, c: Any, constant: Any, d: Any) -> None:
        self.groups = groups
        self.bytes = 4 * groups.width  # the groups' lanes of a register are consecutive
        self.pointer = c
        self.constant = constant
        self.d = d

    def load(self, group: Any, kind: ir.VectorType) -> IrValue:
        if self.pointer is None:
            return self.constant.splat(kind.count).bitcast(kind)
        return self.pointer.at(group * self.bytes).load(kind, 64)

    def store(self, group: Any, value: Any) -> None:
        if value.is_float:
            report_nonfinite(self.groups.frame, group, value, lambda: self.load(group, value.type))
        self.d.at(group * self.bytes).store(value, 64)


class PairwiseSum:
    """Sums of CDNA1 and CDNA2: `size` products summed in pairs, then added to C, each step rounded to f32.

    flush (CDNA2): denormals count as 0, in every operand and every result. Only small products can give a denormal result.
    If the operands' exponents rule that out, results are not checked.
    """

    # If every product is 0 or a multiple of 2^-102, sums are too, and a C that nearly cancels one is a multiple of
    # 2^-126. Products of bf16 have 14 fraction bits; those of f16 are always multiples of 2^-48.
    SAFE_EXPONENT = -88

    def __init__(self, groups: Groups, c: Accumulator, a: Spread, b: Spread, size: int, flush: bool) -> None:
        self.groups = groups
        self.c = c
        self.size = size
        self.flush = flush
        self.results_may_flush = flush and a.name != "f16"
        (self.left, least_of_a), (self.right, least_of_b) = (self._values(spread, which) for which, spread in enumerate((a, b)))
        self.least = least_of_a + least_of_b  # least exponent of a nonzero product, if `results_may_flush`

    def _values(self, spread: Spread, which: int) -> tuple[IrValue, IrValue]:
        """Returns a pointer to the elements as f32, and their least exponent (i32) if `results_may_flush`."""
        entry = CacheEntry(spread, which, f"floats {self.flush}")
        pointer = entry.reserve(spread.rows * ROW)
        least = entry.header.at(8)
        with entry.if_stale():
            spread.store(pointer, lambda part, row: part.float_value(row, self.flush))
            if self.results_may_flush:
                least.store(spread.least_exponent(pointer))
        return pointer, least.load(I32)

    def emit(self) -> None:
        if not self.results_may_flush:
            self.groups.run(lambda group: self._group(group, lambda result: result))
            return
        safe = self.least.signed >= self.SAFE_EXPONENT
        with self.groups.frame.build.if_else(safe, likely=True) as (then, otherwise):
            with then:
                self.groups.run(lambda group: self._group(group, lambda result: result))
            with otherwise:
                self.groups.run(lambda group: self._group(group, _flush))

    def _group(self, group: Any, rounded: Callable[[IrValue], IrValue]) -> None:
        """Emits a group of lanes; rounded: maps an operation's result to f32."""
        total = self.c.load(group, V32)
        if self.flush:
            total = where(_is_tiny(total), 0.0, total)
        for start in range(0, self.groups.walk.steps, self.size):
            terms = [
                rounded(self.groups.product(self.left, self.right, F32, group, k)) for k in range(start, start + self.size)
            ]
            while len(terms) > 1:
                terms = [rounded(p + q) for p, q in zip(terms[::2], terms[1::2], strict=True)]
            total = rounded(terms[0] + total)
        self.c.store(group, default_nan(total))


def _flush(value: IrValue) -> IrValue:
    """Replaces denormals by 0 with their sign."""
    zero = (value.bitcast(VI) & 0x80000000).bitcast(V32)
    return where(_is_tiny(value), zero, value)


def _is_tiny(value: IrValue) -> IrValue:
    return fabs(value).ordered < 2.0**-126
