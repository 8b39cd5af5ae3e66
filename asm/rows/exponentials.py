"""Softmax of rows in registers: scores, their state (m, delta), and the results exp(factor · (score - m)) · gain / delta.

A score is x; -x or 0 · x if the scale is negative or 0. The logarithm's results are scale · (score - m) - log(delta).

    kept       scores, then exponentials, are in the registers of the elements; of a logarithm, scores only
    running    lanes keep an m of their own, and exponentials are computed again for the results: rows that are streamed, and
               rows that are kept as loaded, two elements of 16 bits in a register (`packed`)

Elements that do not count are replaced by -infinity, so that they are 0 after exp (E30): past the row's end, by a mask's bytes or
by a band. If delta is 0 at the end, either nothing counts, and delta becomes 1, or all that counts is -infinity, and 0 / 0 is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import scalar_modulo
from simgpu.asm.parts.lanes import lane_number, unpack, unpack_chunk
from simgpu.asm.rows.frame import Place, RowFrame
from simgpu.asm.rows.states import RowArithmetic, RowState, WideArithmetic
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.program import Step
from simgpu.operators.softmax.plan import UNPACKED, SoftmaxPlan
from simgpu.operators.softmax.problem import SoftmaxProblem

CHUNKS = 4  # loads of a packed row between two rescales, as many as in a step of a streamed row
MASK_VGPRS, BYTE = 8, 8
MAGNITUDE, INFINITY = 0x7FFFFFFF, 0x7F800000  # bits of an f32 other than its sign; of infinity
ANY_FACTOR = 0.5


class Exponentials:
    """Emits the values of a softmax. The elements of one load of a wave and of all groups, or of some, are a place."""

    def __init__(self, frame: RowFrame) -> None:
        plan, p = frame.plan, frame.problem
        assert isinstance(plan, SoftmaxPlan) and isinstance(p, SoftmaxProblem)
        self.frame, self.k, self.places, self.problem = frame, frame.k, frame.places, p
        k, tiles = self.k, frame.tiles
        self.packed, self.kept = plan.packing > 1, not plan.running
        self.arithmetic = (WideArithmetic if p.dtype == "f64" else RowArithmetic)(k, frame.arguments["factor"])
        self.states = [RowState(frame, self.arithmetic, not self.kept) for _ in range(frame.in_flight)]
        self.flags = k.v.alloc("mask bytes", MASK_VGPRS) if p.mask else None
        self.unpacked = k.v.alloc("unpacked", UNPACKED) if self.packed or p.log else None
        size = tiles.chunk * self.arithmetic.words // plan.packing
        self.held = k.v.alloc("row", frame.in_flight * tiles.loads * size)
        self.chunks = [[self.held[(load * tiles.loads + group) * size :][:size] for group in range(tiles.loads)]
                       for load in range(frame.in_flight)]  # fmt: skip
        self.narrowing = Elements(k, p.element_y.name, self.arithmetic.kind)
        self.narrowing.prepare()
        self.band = self._band() if p.band else None

    def _band(self) -> tuple[Reg, Reg]:
        """Emits the first column and the number of columns of the row's band."""
        k, arguments, row = self.k, self.frame.arguments, self.frame.row
        first = k.s.alloc("band's first column")
        scalar_modulo(k, first, row, arguments["period"], self.arithmetic.scratch)
        k.set(first, of(first) + arguments["first"])
        width = k.scalar("band's columns", (of(arguments["end"]) - arguments["first"]).most(0, "i32"))
        k.s.free(*(arguments[name] for name in ("period", "first", "end")))
        return first, width

    # -- memory ------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> None:
        """Loads X's elements of all groups; 0 past the row's end."""
        tiles, words = self.frame.tiles, self.places.words(self.problem.element.bytes)
        for group in range(tiles.loads):
            for load, chunks in enumerate(self.chunks):
                target = chunks[group][chunks[group].count - words :]
                self.places.load(target, self.frame.operands["x"], group, load * tiles.rows_load)

    # -- reductions --------------------------------------------------------------------------

    def start(self, steps: Sequence[Step]) -> None:
        """Emits empty states."""
        for state in self.states:
            state.empty()
        self._prepare_to_leave_out()

    def _prepare_to_leave_out(self) -> None:
        """Emits the constant for elements that do not count, if there are any."""
        if self.places.sure < self.frame.tiles.loads or self.band or self.flags:
            self.arithmetic.leave_out_value()

    def places_of(self, steps: Sequence[Step]) -> Iterator[Place]:
        """Yields values at a time: those to reduce, or the operands of results."""
        groups = range(self.frame.tiles.loads)
        at_once = CHUNKS if self.packed else len(groups)
        for load in range(self.frame.in_flight):
            for first in range(0, len(groups), at_once):
                yield Place(load, tuple(groups[first : first + at_once]))

    def reduce(self, steps: Sequence[Step], place: Place) -> None:
        """Merges the scores of a place with the lane's state. Kept elements become exponentials."""
        state, arithmetic = self.states[place.load], self.arithmetic
        if state.running:
            state.keep()
        for group in place.groups:
            arithmetic.maximum(state.m, self._scores(place.load, group))
        if state.running:
            state.rescale()
        else:
            state.reduce_maximum()
        self._prepare_packed(state)
        for group in place.groups:
            for value in self._exponentials(place.load, group):
                arithmetic.add(state.delta, value)

    def merge(self, steps: Sequence[Step]) -> None:
        """Merges the states of the lanes and waves that share a row."""
        for state in self.states:
            state.merge_lanes()
            if self.frame.wave is not None:
                state.merge_waves()

    # -- parts of a split row ------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Bytes of a state in memory."""
        return self.states[0].bytes

    def leave(self, steps: Sequence[Step], states: Reg) -> None:
        """Stores the part's state. states: an SGPR quadruple for the buffer."""
        (state,) = self.states
        self.frame.states_buffer(states, self.state_bytes)
        state.leave(states)

    def merge_parts(self, steps: Sequence[Step], states: Reg) -> None:
        """Merges the states of the row's parts, as `leave` stored them."""
        (state,) = self.states
        self.frame.states_buffer(states, self.state_bytes)
        state.merge_parts(states, self.held)

    # -- results -----------------------------------------------------------------------------

    def row_results(self) -> None:
        """Stores nothing."""

    def of_rows(self, steps: Sequence[Step]) -> None:
        """Emits gain / delta of each row, or -log(delta)."""
        for state in self.states:
            if self.band or self.flags:
                self._count_nothing_as_one(state)
            if self.problem.log:
                self.arithmetic.minus_logarithm(state.delta)
                continue
            self.arithmetic.inverse(state.delta, self.problem.gain)
            if self.kept and self.frame.wave is not None:
                state.own_share()
        if not self.kept:
            self._prepare_to_leave_out()

    def results(self, steps: Sequence[Step], place: Place) -> None:
        """Stores the results of a place."""
        y, rows = self.frame.operands["y"], place.load * self.frame.tiles.rows_load
        self._prepare_packed(self.states[place.load])
        for group in place.groups:
            self.places.store(self._result(place.load, group), y, group, rows, self.narrowing)

    def _result(self, load: int, group: int) -> Reg:
        """Emits the results of a group, rounded to Y's type, and returns their registers."""
        state, arithmetic, narrowing = self.states[load], self.arithmetic, self.narrowing
        if self.problem.log:
            values = self._elements(load, group) if self.kept else self._scores(load, group)
            for value in values:
                arithmetic.of_logarithm(value, state.m, self.frame.arguments.get("scale", arithmetic.factor), state.delta)
            return narrowing.narrow(values, arithmetic.temporary(0)[0])
        if not self.kept and not self.packed:
            self._scores(load, group)
        values = self._elements(load, group) if self.kept else self._exponentials(load, group)
        if self.packed and narrowing.memory == "f16":
            chunk = self.chunks[load][group]
            for i, value in enumerate(values):
                self.k.emit(f"v_fma_mix{'hi' if i % 2 else 'lo'}_f16", chunk[i // 2], value, state.delta, 0, op_sel_hi="[0,0,0]")
            return chunk
        for value in values:
            arithmetic.multiply(value, state.delta, value)
        return narrowing.narrow(values, arithmetic.temporary(0)[0])

    def _count_nothing_as_one(self, state: RowState) -> None:
        """Emits delta = 1 for a row in which nothing counts. Only if delta is 0, the row's mask is read for it once more."""
        k, column, flag, n = self.k, self.places.offset, self.arithmetic.temporary(0)[0], self.frame.tiles.columns
        done, nothing = k.new_label("sum_is_right"), k.new_label("nothing_counts")
        self.arithmetic.is_zero(state.delta)
        with k.out_of_line("sum_is_zero", done) as zero:
            begin, width = self.band or (None, None)
            first = k.scalar("first column", 0 if begin is None else of(begin).most(0, "i32"))
            end = k.scalar("columns left", n if begin is None else (of(begin) + width).least(n, "i32") - first)
            if self.flags:
                lane_number(k, column)
                k.v_add_u32(column, first, column)
            k.branch(k.s_cmp_le_i32(end, 0), nothing)
            if self.flags:
                self._seek(column, flag, end, done)
            else:
                k.s_branch(done)
            k.label(nothing)
            self.arithmetic.set_to_one(state.delta)
            k.s.free(first, end)
        k.s_cbranch_vccnz(zero)
        k.label(done)
        self.places.forget()

    def _seek(self, column: Reg, flag: Reg, left: Reg, found: str) -> None:
        """Emits a branch to `found` if one of the mask's next `left` bytes is not 0. column: a lane's, of the first 64 columns."""
        k, lane = self.k, self.arithmetic.temporary(1)[0]
        lane_number(k, lane)
        with k.loop("mask", left, WAVEFRONT):
            k.buffer_load(flag, column, self.frame.operands["mask"].buffer, 0, nbytes=1, note="mask")
            k.v_cndmask_b32(flag, 0, flag, k.v_cmp_gt_i32("vcc", left, lane))
            k.v_cmp_ne_u32("vcc", 0, flag)
            k.s_cbranch_vccnz(found)
            k.v_add_u32(column, WAVEFRONT, column)

    # -- elements ----------------------------------------------------------------------------

    def _elements(self, load: int, group: int) -> list[Reg]:
        chunk, words = self.chunks[load][group], self.arithmetic.words
        return [chunk[i : i + words] for i in range(0, chunk.count, words)]

    def _scores(self, load: int, group: int) -> list[Reg]:
        """Emits a group's scores, from elements as loaded. Those of packed elements are in temporaries."""
        sign, chunk, kind = float(self.problem.sign), self.chunks[load][group], self.problem.element
        if self.packed:
            return self._unpack(load, group, sign, 0)
        elements = self._elements(load, group)
        if kind.bytes < WORD:
            unpack_chunk(self.k, kind.name, chunk, chunk[chunk.count - self.places.words(kind.bytes) :])
        for element in elements if sign != 1 else ():
            self.arithmetic.multiply(element, sign, element)
        self._leave_out(group, elements)
        return elements

    def _prepare_packed(self, state: RowState) -> None:
        """Emits, for packed elements, temporary 2 = sign · factor and temporary 1 = -factor · m.

        If factor · m is infinite, any other factor has the same exponentials: 1 of m, 0 of all others.
        """
        if not self.packed or self.problem.log:
            return
        k, arithmetic, sign = self.k, self.arithmetic, self.problem.sign
        addend, factor = arithmetic.temporary(1), arithmetic.temporary(2)
        k.v_mul_f32(addend, arithmetic.factor, state.m)
        k.v_and_b32(addend, MAGNITUDE, addend)
        k.v_mov_b32(factor, arithmetic.factor)
        k.v_cndmask_b32(factor, ANY_FACTOR, factor, k.v_cmp_ne_u32("vcc", INFINITY, addend), note="factor · m is infinite")
        k.v_mul_f32(addend, factor, state.m)
        k.v_xor_b32(addend, MAGNITUDE + 1, addend)
        if sign != 1:
            k.v_mul_f32(factor, float(sign), factor)

    def _apart(self, load: int, group: int) -> list[Reg]:
        """Returns registers for values of a group that are not its elements'."""
        assert self.unpacked is not None
        words, count = self.arithmetic.words, len(self._elements(load, group)) * (2 if self.packed else 1)
        return [self.unpacked.group(i, words) for i in range(count)]

    def _exponentials(self, load: int, group: int) -> list[Reg]:
        """Emits the exponentials of a group, from its scores, or from packed elements.

        An FMA for packed elements errs by a unit of factor · m, in all elements alike: not for a logarithm.
        """
        if self.packed and not self.problem.log:
            powers = self._unpack(load, group, self.arithmetic.temporary(2), self.arithmetic.temporary(1))
            for power in powers:
                self.k.v_exp_f32(power, power)
            return powers
        elements = self._scores(load, group) if self.packed else self._elements(load, group)
        into = self._apart(load, group) if self.problem.log else elements
        self.arithmetic.exp(elements, self.states[load].m, into)
        return into

    def _unpack(self, load: int, group: int, factor: Reg | float, addend: Reg | int) -> list[Reg]:
        """Emits factor · x + addend of a group of packed elements, in f32. They are VGPRs, or a sign and 0."""
        k, chunk, found = self.k, self.chunks[load][group], self._apart(load, group)
        if self.problem.element.name == "f16":
            for i, one in enumerate(found):
                k.v_fma_mix_f32(one, chunk[i // 2], factor, addend, op_sel=f"[{i % 2},0,0]", op_sel_hi="[1,0,0]")
        else:
            for i in range(chunk.count):
                unpack(k, self.problem.element.name, found[2 * i], found[2 * i + 1], chunk[i])
            for one in found if factor != 1 else ():
                k.v_fma_f32(one, factor, one, addend) if addend else k.v_mul_f32(one, factor, one)
        self._leave_out(group, found)
        return found

    def _leave_out(self, group: int, elements: Sequence[Reg]) -> None:
        """Replaces elements that do not count by -infinity."""
        for number in self.places.counting(group):
            self.arithmetic.leave_out(elements[number])
        if self.band:
            self._clip(group, elements, *self.band)
        if self.flags:
            self._mask(group, elements, self.flags)

    def _clip(self, group: int, elements: Sequence[Reg], first: Reg, width: Reg) -> None:
        column, scratch = (self.arithmetic.temporary(i)[0] for i in range(2))
        self.places.first(group, column)
        self.k.v_subrev_u32(column, first, column)
        for number, element in enumerate(elements):
            self.k.v_add_u32(scratch, number, column)
            self.k.v_cmp_gt_u32("vcc", width, scratch)
            self.arithmetic.leave_out(element)

    def _mask(self, group: int, elements: Sequence[Reg], flags: Reg) -> None:
        """Leaves out elements whose byte of the mask is 0. The bytes of some groups are loaded at once."""
        k, words, scratch = self.k, self.places.words(1), self.arithmetic.temporary(0)[0]
        at_once = MASK_VGPRS // words
        if group % at_once == 0:
            for other in range(group, min(group + at_once, self.frame.tiles.loads)):
                at = other % at_once * words
                self.places.load(flags[at : at + words], self.frame.operands["mask"], other)
        for number, element in enumerate(elements):
            word, within = divmod(number, WORD)
            k.v_bfe_u32(scratch, flags[group % at_once * words + word], BYTE * within, BYTE)
            k.v_cmp_ne_u32("vcc", 0, scratch)
            self.arithmetic.leave_out(element)
