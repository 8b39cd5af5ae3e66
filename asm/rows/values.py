"""Values of an operator on rows in registers: its expressions, reduced over lanes and waves, and parts computed once a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from simgpu.asm.builder.formula import integer, of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.expressions import COMPARING, Computation
from simgpu.asm.parts.lanes import INSTRUCTIONS, lane_number, lanes_reduce, unpack_chunk
from simgpu.asm.rows.frame import Place, RowFrame
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.compute import COMBINE
from simgpu.operators.expressions import Value, arguments, operations
from simgpu.operators.rows.program import PIVOT, Step

MANTISSA_BITS = 23  # of an f32
Registers = Mapping[str, Reg]


class Values:
    """Emits the steps of a program. States are reductions and values of rows, by load in flight and group that is reduced."""

    def __init__(self, frame: RowFrame) -> None:
        self.frame, self.k, self.places, self.program = frame, frame.k, frame.places, frame.program
        k, p, tiles, program = self.k, frame.problem, frame.tiles, frame.program
        loads = [(load, group) for load in range(frame.in_flight) for group in range(tiles.loads)]
        self.held = {name: {at: k.v.alloc(name, tiles.chunk) for at in loads} for name in program.matrices}
        words, narrow = self.places.words(p.element.bytes), p.element.bytes < WORD
        vectors = {name: [k.v.alloc(name, words) for _ in range(tiles.loads)] for name in program.vectors}
        self.raw = {name: {at: vectors[name][at[1]] for at in loads} for name in program.vectors}
        self.raw |= {name: {at: k.v.alloc(name, words) for at in loads} for name in program.tables}
        self.unpacked = {name: k.v.alloc(f"{name} unpacked", tiles.chunk) for name in self.raw} if narrow else {}
        self.scratch, self.neutral = k.v.alloc("scratch"), k.v.alloc("neutral element")
        self.grouped = p.groups > 1
        self.lanes = p.span // tiles.chunk if self.grouped else frame.lanes  # that share a reduction
        self.states: dict[tuple[int, int], dict[str, Reg]] = {
            (load, group): {} for load in range(frame.in_flight) for group in range(tiles.loads if self.grouped else 1)
        }
        self.narrowing = Elements(k, p.dtype_y, "f32")
        self.narrowing.prepare()

    # -- memory ------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> None:
        """Loads operands of all groups: matrices first, since the others are often in L2. Converts matrices to f32, in place."""
        program, operands, loads = self.program, self.frame.operands, range(self.frame.in_flight)
        groups, held = range(self.frame.tiles.loads), [name for name in names if name in self.held]
        self._load_matrices(held, groups)
        for group in groups:
            for name in (name for name in names if name in program.vectors):
                self.places.load(self.raw[name][0, group], operands[name], group)
            for load in loads:
                for name in (name for name in names if name in program.tables):
                    table = replace(operands[name], row=self.frame.table_rows[load])
                    self.places.load(self.raw[name][load, group], table, group)
        self._unpack_matrices(held, groups)

    def _load_matrices(self, names: Sequence[str], groups: range) -> None:
        rows, operands = self.frame.tiles.rows_load, self.frame.operands
        for group in groups:
            for load in range(self.frame.in_flight):
                for name in names:
                    self.places.load(self._words(name, load, group), operands[name], group, load * rows)

    def _unpack_matrices(self, names: Sequence[str], groups: range) -> None:
        p = self.frame.problem
        for name in names if p.element.bytes < WORD else ():
            for load, group in self.held[name]:
                if group in groups:
                    unpack_chunk(self.k, p.dtype, self.held[name][load, group], self._words(name, load, group))

    def _words(self, name: str, load: int, group: int) -> Reg:
        """Returns the registers of a chunk as loaded: the last of those that hold it in f32."""
        chunk = self.frame.tiles.chunk
        return self.held[name][load, group][chunk - self.places.words(self.frame.problem.element.bytes) : chunk]

    def places_of(self, steps: Sequence[Step]) -> Iterator[Place]:
        """Yields the places of loads, with chunks of vectors and tables converted to f32 before the chunks of their rows."""
        used = self.program.operands_of(steps)
        for group in reversed(range(self.frame.tiles.loads)):  # 1 to 2 % faster than forwards, in the model of time
            self._unpack_beside(used, (0, group), self.program.vectors)
            for load in range(self.frame.in_flight):
                self._unpack_beside(used, (load, group), self.program.tables)
                yield Place(load, (group,))

    def _unpack_beside(self, used: Sequence[str], at: tuple[int, int], names: Sequence[str]) -> None:
        for name in names:
            if name in used and name in self.unpacked:
                unpack_chunk(self.k, self.frame.problem.dtype, self.unpacked[name], self.raw[name][at])

    def _elements(self, place: Place) -> list[Registers]:
        """Returns the arguments of each element of a place, by name."""
        found: list[Registers] = []
        (group,) = place.groups
        state = self.states[place.load, group if self.grouped else 0]
        for i in range(self.frame.tiles.chunk):
            given = {name: at[place.load, group][i] for name, at in self.held.items()}
            given |= {name: self.unpacked.get(name, at[place.load, group])[i] for name, at in self.raw.items()}
            found.append(given | state)
        return found

    # -- reductions --------------------------------------------------------------------------

    def start(self, steps: Sequence[Step]) -> None:
        """Emits the neutral elements of reductions, and the parts of their values that depend on earlier ones only."""
        for state in self.states.values():
            if self.program.pivoted is not None and PIVOT not in state:
                state[PIVOT] = self._pivot(self.program.pivoted)
            for step in steps:
                state[step.name] = self.k.v.alloc(step.name)
                self.k.v_mov_b32(state[step.name], COMBINE[step.combine][0])
            for step in steps:
                state |= self._of_row(step, state)

    def _pivot(self, value: Value) -> Reg:
        """Emits the mean of a value over the first chunks of a streamed row, one a lane: the same in all of the row's waves."""
        k, places, chunk, pivot = self.k, self.places, self.frame.tiles.chunk, self.k.v.alloc(PIVOT)
        k.comment(f"{PIVOT}: the mean of {value} over the row's first {WAVEFRONT * chunk} columns")
        lane_number(k, places.column)
        k.set(places.column, of(places.column) * chunk)
        k.v_min_i32(places.column, places.columns - chunk, places.column, note="a row may be shorter")
        places.forget()
        sure, places.sure = places.sure, 1
        used = arguments(value)
        names = [name for name in self.held if name in used]
        self._load_matrices(names, range(1))
        self._unpack_matrices(names, range(1))
        places.sure = sure
        k.v_mov_b32(pivot, 0)
        for given in self._elements(Place(0, (0,))):
            computed = Computation(k, [value], given)
            k.v_add_f32(pivot, computed.value(value), pivot)
            computed.done(value)
        lanes_reduce(k, INSTRUCTIONS["sum"], pivot, self.scratch, WAVEFRONT, PIVOT)
        k.v_mul_f32(pivot, 1 / (WAVEFRONT * chunk), pivot)
        return pivot

    def reduce(self, steps: Sequence[Step], place: Place) -> None:
        """Combines the elements of a place with the lane's states."""
        k, (group,) = self.k, place.groups
        elements, sure = self._elements(place), group < self.places.sure
        counting = iter(range(len(elements))) if sure else self.places.counting(group)
        compares = any(one.op in COMPARING for one in operations(*(step.rest for step in steps)))
        for number in counting:
            given = elements[number]
            computed = Computation(k, [step.rest for step in steps], given)
            for step in steps:
                found = self.scratch if not sure or step.rest.op != "argument" else given[step.rest.name]
                computed.register(step.rest, found)
                if not sure:
                    if compares:
                        self.places.counts(group, number)
                    k.v_mov_b32(self.neutral, COMBINE[step.combine][0])
                    k.v_cndmask_b32(found, self.neutral, found, "vcc", note="does not count")
                k.emit(INSTRUCTIONS[step.combine], given[step.name], found, given[step.name])

    def merge(self, steps: Sequence[Step]) -> None:
        """Combines the states of all lanes and waves that share a row, or of all lanes that share a group."""
        for state in self.states.values():
            for step in steps:
                lanes_reduce(self.k, INSTRUCTIONS[step.combine], state[step.name], self.scratch, self.lanes, step.name)
                if self.frame.wave is not None:
                    region = self.frame.share(state[step.name], self.scratch, step.name)
                    self.k.ds_read(state[step.name], self.scratch, offset=region.offset)
                    waves = self.frame.tiles.waves_row
                    lanes_reduce(self.k, INSTRUCTIONS[step.combine], state[step.name], self.scratch, waves, step.name)

    def _of_row(self, step: Step, states: Registers) -> dict[str, Reg]:
        """Emits the parts of a step that depend on reductions only. Returns their registers by name."""
        k, found = self.k, {}
        computed = Computation(k, step.of_row, states)
        for number, part in enumerate(step.of_row):
            if part.op == "argument":
                found[step.row_value(number)] = states[part.name]
                continue
            found[step.row_value(number)] = k.v.alloc("value of a row")
            computed.register(part, found[step.row_value(number)])
        return found

    # -- parts of a split row ------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Bytes of a row's part in memory: its reductions, in f32."""
        return WORD * len(self.program.reductions)

    def _first_part(self, step: Step) -> int:
        """Returns the byte of a reduction of the first part. A row has those of all parts, one reduction after the other."""
        return WORD * self.frame.tiles.parts * self.program.reductions.index(step)

    def leave(self, steps: Sequence[Step], states: Reg) -> None:
        """Stores reductions of the part. states: an SGPR quadruple for the buffer."""
        k, address = self.k, self.scratch
        (state,) = self.states.values()
        self.frame.states_buffer(states, self.state_bytes)
        done = k.new_label("stored")
        if self.frame.wave is not None:
            k.branch(k.s_cmp_lg_u32(self.frame.wave, 0), done)
        k.s_mov_b64("exec", 1, note="one lane")
        for step in steps:
            k.set(address, of(k.group_y) * WORD + self._first_part(step))
            k.buffer_store(state[step.name], address, states, 0, note=step.name)
        k.label(done)

    def merge_parts(self, steps: Sequence[Step], states: Reg) -> None:
        """Combines reductions of all parts, 64 at a time, a lane each, as `leave` stored them."""
        k, address, parts = self.k, self.scratch, self.frame.tiles.parts
        (state,) = self.states.values()
        self.frame.states_buffer(states, self.state_bytes)
        for step in steps:
            for first in range(0, parts, WAVEFRONT):
                lane_number(k, address)
                k.v_cmp_gt_u32("vcc", parts - first, address)
                k.set(address, of(address) * WORD + (self._first_part(step) + WORD * first))
                k.v_cndmask_b32(address, OUTSIDE, address, "vcc", note="no part: outside")
                k.buffer_load(address, address, states, 0, note=step.name)
                k.v_mov_b32(self.neutral, COMBINE[step.combine][0])
                k.v_cndmask_b32(address, self.neutral, address, "vcc")
                k.emit(INSTRUCTIONS[step.combine], state[step.name], address, state[step.name])
            lanes_reduce(k, INSTRUCTIONS[step.combine], state[step.name], self.scratch, WAVEFRONT, step.name)

    # -- results -----------------------------------------------------------------------------

    def of_rows(self, steps: Sequence[Step]) -> None:
        """Emits the parts of results that depend on reductions only."""
        for state in self.states.values():
            for step in steps:
                state |= self._of_row(step, state)

    def results(self, steps: tuple[Step, ...], place: Place) -> None:
        """Stores the results of a place. They replace its elements."""
        frame, (group,) = self.frame, place.groups
        targets = [self.held[name][place.load, group] for name, _ in zip(self.program.matrices, steps, strict=False)]
        for i, given in enumerate(self._elements(place)):
            self._result(steps, tuple(target[i] for target in targets), given)
        for step, target in zip(steps, targets, strict=True):
            packed = self.narrowing.narrow([target[i : i + 1] for i in range(frame.tiles.chunk)], self.scratch)
            rows, apart = place.load * frame.tiles.rows_load, self.narrowing if self.grouped else None
            self.places.store(packed, frame.operands[step.name], group, rows, apart, self.scratch)

    def _result(self, steps: tuple[Step, ...], targets: tuple[Reg, ...], given: Registers) -> None:
        """Replaces an element by its results. targets: a VGPR for each, which may be an argument's."""
        k = self.k
        computed = Computation(k, [step.rest for step in steps], given)
        held = [k.v.alloc("result") for _ in steps[1:]]
        for step, register in zip(steps[1:], held, strict=True):
            computed.register(step.rest, register)
        computed.register(steps[0].rest, targets[0])
        for register, target in zip(held, targets[1:], strict=True):
            k.v_mov_b32(target, register)
        k.v.free(*held)

    def row_results(self) -> None:
        """Stores values of rows or groups: one lane each."""
        k, frame = self.k, self.frame
        if not self.program.row_results:
            return
        done = k.new_label("row_results_done")
        if frame.tiles.parts > 1 and not self.grouped:
            k.branch(k.s_cmp_lg_u32(k.group_y, 0), done)
        if frame.wave is not None:
            k.branch(k.s_cmp_lg_u32(frame.wave, 0), done)
        for (load, group), state in self.states.items():
            for step in self.program.row_results:
                (found,) = self._of_row(step, state).values()
                self._store_of_row(step, found, load, group)
        k.label(done)

    def _store_of_row(self, step: Step, found: Reg, load: int, group: int) -> None:
        k, p, operand, tiles = self.k, self.frame.problem, self.frame.operands[step.name], self.frame.tiles
        offset, scratch, element = self.places.offset, self.scratch, dtype(p.row_type).bytes
        self.places.forget()
        if self.grouped:
            place = (of(self.places.column) + WAVEFRONT * tiles.chunk * group) // p.span * element
        else:
            place = integer(0)
        if operand.row is not None:
            place += operand.row
        k.set(offset, place + load * tiles.rows_load * p.groups * element, note="bytes of the group")
        lane_number(k, scratch)
        k.v_and_b32(scratch, self.lanes - 1, scratch)
        k.v_cndmask_b32(offset, OUTSIDE, offset, k.v_cmp_eq_u32("vcc", 0, scratch), note="one lane of a row or group")
        if self.grouped and group >= self.places.sure:
            self.places.leave_outside(offset, group)
        if element < WORD:
            k.v_lshrrev_b32(scratch, MANTISSA_BITS, found, note="the exponent")
            k.buffer_store(scratch, offset, operand.buffer, 0, nbytes=1, note=step.name)
            return
        k.buffer_store(found, offset, operand.buffer, 0, note=step.name)
