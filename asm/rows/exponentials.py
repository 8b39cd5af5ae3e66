"""Softmax of rows in registers: scores factor·x, their state (m, delta), and the results exp(score - m) · gain / delta.

    kept       scores, then exponentials, are in the registers of the elements
    running    lanes keep an m of their own, and exponentials are computed again for the results: rows that are streamed, and
               rows that are kept as loaded, two elements of 16 bits in a register (`packed`)

Elements that do not count are replaced by -infinity, so that they are 0 after exp (E30): past the row's end, by a mask's bytes or
by a band.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import scalar_modulo
from simgpu.asm.parts.lanes import unpack, unpack_chunk
from simgpu.asm.rows.arithmetic import RowArithmetic, WideArithmetic
from simgpu.asm.rows.frame import Place, RowFrame
from simgpu.asm.rows.states import RowState
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.program import Step
from simgpu.operators.softmax.plan import UNPACKED, SoftmaxPlan
from simgpu.operators.softmax.problem import SoftmaxProblem

CHUNKS = 4  # loads of a packed row between two rescales, as many as in a step of a streamed row
MASK_VGPRS, BYTE = 8, 8


class Exponentials:
    """Emits the values of a softmax. The elements of one load of a wave and of all groups, or of some, are a place."""

    def __init__(self, frame: RowFrame) -> None:
        plan, p = frame.plan, frame.problem
        assert isinstance(plan, SoftmaxPlan) and isinstance(p, SoftmaxProblem)
        self.frame, self.k, self.places, self.problem = frame, frame.k, frame.places, p
        k, tiles = self.k, frame.tiles
        self.packed, self.kept = plan.packing > 1, not plan.running
        self.arithmetic = WideArithmetic(k) if p.dtype == "f64" else RowArithmetic(k)
        self.states = [RowState(frame, self.arithmetic, not self.kept) for _ in range(frame.in_flight)]
        self.flags = k.v.alloc("mask bytes", MASK_VGPRS) if p.mask else None
        self.unpacked = k.v.alloc("unpacked", UNPACKED) if self.packed else None
        size = tiles.chunk * self.arithmetic.words // plan.packing
        self.held = k.v.alloc("row", frame.in_flight * tiles.loads * size)
        self.chunks = [[self.held[(load * tiles.loads + group) * size :][:size] for group in range(tiles.loads)]
                       for load in range(frame.in_flight)]  # fmt: skip
        self.factor = frame.arguments["factor"]
        self.narrowing = Elements(k, p.element_y.name, self.arithmetic.kind)
        self.narrowing.prepare()
        self.band = self._band() if p.band else None

    def _band(self) -> tuple[Reg, Reg]:
        """Emits the first column and the number of columns of the row's band."""
        k, arguments, row = self.k, self.frame.arguments, self.frame.row
        first, width = k.s.alloc("band's first column"), k.s.alloc("band's columns")
        scalar_modulo(k, first, row, arguments["period"], self.arithmetic.scratch)
        k.s_add_i32(width, first, arguments["end"])
        k.s_add_i32(first, first, arguments["first"])
        k.s_sub_i32(width, width, first)
        k.s_max_i32(width, width, 0)
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
        arithmetic.limit(state.m)
        if state.running:
            state.rescale()
        else:
            state.reduce_maximum()
        self._negate(state)
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
        """Emits gain / delta of each row."""
        for state in self.states:
            self.arithmetic.inverse(state.delta, self.problem.gain)
            if self.kept and self.frame.wave is not None:
                state.own_share()
        if not self.kept:
            self._prepare_to_leave_out()

    def results(self, steps: Sequence[Step], place: Place) -> None:
        """Stores the results of a place."""
        y, state, rows = self.frame.operands["y"], self.states[place.load], place.load * self.frame.tiles.rows_load
        self._negate(state)
        for group in place.groups:
            values = self._elements(place.load, group) if self.kept else self._again(place.load, group)
            narrowed = self._narrow(values, state.delta, self.chunks[place.load][group])
            self.places.store(narrowed, y, group, rows, self.narrowing)

    def _narrow(self, values: list[Reg], share: Reg, chunk: Reg) -> Reg:
        """Emits the values times `share`, rounded to Y's type, and returns their registers. chunk: of the elements."""
        if self.packed and self.narrowing.memory == "f16":
            for i, value in enumerate(values):
                self.k.emit(f"v_fma_mix{'hi' if i % 2 else 'lo'}_f16", chunk[i // 2], value, share, 0, op_sel_hi="[0,0,0]")
            return chunk
        for value in values:
            self.arithmetic.multiply(value, share, value)
        return self.narrowing.narrow(values, self.arithmetic.temporary(0)[0])

    def _negate(self, state: RowState) -> None:
        """Emits -m in temporary 1, for packed elements."""
        if self.packed:
            self.k.v_xor_b32(self.arithmetic.temporary(1), 1 << 31, state.m, note="-m")

    def _again(self, load: int, group: int) -> list[Reg]:
        """Emits the exponentials of a group once more."""
        if not self.packed:
            self._scores(load, group)
        return self._exponentials(load, group)

    # -- elements ----------------------------------------------------------------------------

    def _elements(self, load: int, group: int) -> list[Reg]:
        chunk, words = self.chunks[load][group], self.arithmetic.words
        return [chunk[i : i + words] for i in range(0, chunk.count, words)]

    def _scores(self, load: int, group: int) -> list[Reg]:
        """Emits a group's scores, from elements as loaded. Those of packed elements are in temporaries."""
        if self.packed:
            return self._unpack(load, group, 0)
        elements, chunk, kind = self._elements(load, group), self.chunks[load][group], self.problem.element
        if kind.bytes < WORD:
            unpack_chunk(self.k, kind.name, chunk, chunk[chunk.count - self.places.words(kind.bytes) :])
        for element in elements:
            self.arithmetic.multiply(element, self.factor, element)
        self._leave_out(group, elements)
        return elements

    def _exponentials(self, load: int, group: int) -> list[Reg]:
        """Emits exp(score - m) of a group. Packed elements become scores again."""
        if not self.packed:
            elements = self._elements(load, group)
            self.arithmetic.exp(elements, self.states[load].m)
            return elements
        elements = self._unpack(load, group, self.arithmetic.temporary(1))
        for element in elements:
            self.k.v_exp_f32(element, element)
        return elements

    def _unpack(self, load: int, group: int, addend: Reg | int) -> list[Reg]:
        """Emits factor·x + addend of a group of packed elements, in f32. addend: a VGPR, or 0."""
        k, chunk = self.k, self.chunks[load][group]
        assert self.unpacked is not None
        found = [self.unpacked[i : i + 1] for i in range(2 * chunk.count)]
        if self.problem.element.name == "f16":
            for i, one in enumerate(found):
                k.v_fma_mix_f32(one, chunk[i // 2], self.factor, addend, op_sel=f"[{i % 2},0,0]", op_sel_hi="[1,0,0]")
        else:
            for i in range(chunk.count):
                unpack(k, self.problem.element.name, found[2 * i], found[2 * i + 1], chunk[i])
            for one in found:
                k.v_fma_f32(one, self.factor, one, addend) if addend else k.v_mul_f32(one, self.factor, one)
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
