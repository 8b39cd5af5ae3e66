"""Kernel of an operator on rows, from the tree: rows or parts of rows are loaded once, or streamed once a pass.

    kept       a wave's part of a row, or several short rows, is in registers: the passes of reductions, then the results
    streamed   a loop over the part for each pass, and one for the results

Chunks are placed as `places.py` says. Waves that share a row combine each reduction through LDS. The number of columns is the
kernel's; rows and strides are arguments. Y must not overlap what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, raw_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import log2, scalar_divmod, vector_divmod
from simgpu.asm.parts.lanes import unpack_chunk, wave_number
from simgpu.asm.rows.places import Operands, Places
from simgpu.asm.rows.values import Values
from simgpu.asm.visitor import emit
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.program import Step
from simgpu.operators.rows.tree import RowBlock, RowLoad, RowTree, RowWarp
from simgpu.operators.tree import Visitor

MANTISSA_BITS = 23  # of an f32
States = dict[tuple[int, int], dict[str, Reg]]  # reductions and values of rows, by load in flight and group


@emit.register(RowTree)
def emit_rows(root: RowTree) -> EmittedKernel:
    """Returns the kernel of an operator on rows. Operands: what it reads, then what it writes."""
    return RowEmitter(root).visit(root)


class RowEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel."""

    def __init__(self, root: RowTree) -> None:
        plan, p, block = root.plan, root.problem, root.first()
        assert isinstance(block, RowBlock)
        warp = block.first()
        assert isinstance(warp, RowWarp)
        self.plan, self.problem, self.program = plan, p, root.program
        (rows, of_block), (load, of_wave), (_, of_load) = root.loops, block.loops, warp.loops
        self.rows_load, self.lanes = load.tile, WAVEFRONT // load.tile
        self.chunk = of_load.tile // self.lanes
        self.part, self.parts = of_wave.tile // self.chunk, root.trips("n")
        self.waves_row = of_block.tile // of_wave.tile
        self.tile_rows = rows.tile
        self.rows_wave = rows.tile // (plan.waves if self.waves_row == 1 else 1)
        self.in_flight = self.rows_wave // self.rows_load
        self.columns = len(root.axes["n"])
        self.chunks = -(-self.columns // self.chunk)
        self.groups = plan.loads
        types = p.dtype if p.dtype == p.dtype_y else f"{p.dtype}_{p.dtype_y}"
        how = f"{self.waves_row}x{self.groups}x{self.chunk}" if plan.resident else f"stream{self.waves_row}"
        name = f"{p.name}_{types}_n{p.n}_{how}{f'_group{p.group}' if p.groups > 1 else ''}"
        self.k = KernelBuilder(name, plan.descriptor.arch, plan.waves * WAVEFRONT, plan=plan.resources)

    def visit_device(self, root: RowTree) -> EmittedKernel:
        k, p = self.k, self.problem
        k.comment(f"{p.name}: {self.tile_rows} row(s) a workgroup, {self.waves_row} wave(s) a row")
        self.end = k.new_label("end")
        for name in (*p.read, *p.written):
            k.argument(name, 8, "global_buffer")
        for name in ("rows", "ldx", "ldy"):
            k.argument(name, 4, value_type="i32")
        self.arguments = k.load_arguments()
        self._coordinates()
        self._operands()
        self._registers()
        block = root.first()
        assert isinstance(block, RowBlock)
        self.visit(block)
        k.label(self.end)
        k.s_endpgm()
        assert p.ldx and p.ldy
        rows = len(root.axes["rows"])
        return k.finish(plan=self.plan, grid=(root.trips("rows"), self.parts, 1), scalars=(rows, p.ldx, p.ldy))

    # -- prologue ----------------------------------------------------------------------------

    def _coordinates(self) -> None:
        """Emits the wave's first row, a lane's row and chunk, and the chunks of the wave's part."""
        k = self.k
        k.work_item_x()
        self.column, self.wave, self.row = k.v.alloc("column"), k.s.alloc("wave"), k.s.alloc("row")
        wave_number(k, self.wave, self.column)
        k.v_and_b32(k.work_item, WAVEFRONT - 1, k.work_item)
        if self.waves_row > 1:
            k.s_mul_i32(self.row, k.group_x, self.tile_rows)
        else:
            k.s_mul_i32(self.row, k.group_x, self.tile_rows)
            k.s_lshl_b32(self.wave, self.wave, log2(self.rows_wave))
            k.s_add_u32(self.row, self.row, self.wave)
            k.s_cmp_ge_u32(self.row, self.arguments["rows"])
            k.s_cbranch_scc1(self.end)
        self.lane_row = None
        if self.rows_load > 1:
            self.lane_row = k.v.alloc("lane's row")
            k.v_lshrrev_b32(self.lane_row, log2(self.lanes), k.work_item)
            k.v_and_b32(k.work_item, self.lanes - 1, k.work_item, note="lane of a row")
        self.first: Reg | None = None
        left: int | Reg = self.chunks
        if self.waves_row > 1 or self.parts > 1 or not self.plan.resident:
            self.first, left = k.s.alloc("part's first chunk"), k.s.alloc("chunks of the part")
        last = self.chunks - (self.waves_row * self.parts - 1) * self.part  # of the last wave
        sure = max(0, (last - bool(self.columns % self.chunk)) // self.lanes) if self.plan.resident else 0
        self.places = Places(k, self.chunk, self.lanes, self.columns, k.work_item, self.column, left, sure)
        self._start_part()
        if self.first is not None and not self.program.reductions:
            k.s_cmp_le_i32(left, 0)
            k.s_cbranch_scc1(self.end)

    def _start_part(self) -> None:
        """Emits the first column of a lane, and the chunks of the wave's part."""
        k, first, left = self.k, self.first, self.places.left
        k.v_lshlrev_b32(self.column, log2(self.chunk), k.work_item)
        if first is None or not isinstance(left, Reg):
            return
        if self.waves_row > 1:
            k.s_mul_i32(first, k.group_y, self.waves_row)
            k.s_add_u32(first, first, self.wave)
        else:
            k.s_mov_b32(first, k.group_y)
        k.s_mul_i32(first, first, self.part)
        k.s_sub_u32(left, self.chunks, first)
        k.s_min_i32(left, left, self.part)
        start = k.s.alloc("first column")
        k.s_lshl_b32(start, first, log2(self.chunk))
        k.v_add_u32(self.column, start, self.column)
        k.s.free(start)

    def _operands(self) -> None:
        """Emits the buffers, and the offsets of lanes' rows."""
        k, p = self.k, self.problem
        self.operands: dict[str, Operands] = {}
        strides = {}
        for name, element in (("ldx", p.element.bytes), ("ldy", p.element_y.bytes)):
            k.s_lshl_b32(self.arguments[name], self.arguments[name], log2(element), note=f"bytes of {name}")
            strides[name] = self._row_offset(self.arguments[name], name)
        halves = [(f"x{i}" if p.halves else "x", "X", i) for i in range(p.parts)]
        for name, pointer, part in (*halves, *((name, name, 0) for name in p.matrices)):
            self._matrix(name, pointer, strides["ldx"], self.arguments["ldx"], p.element.bytes, part)
        for number, name in enumerate(p.results):
            pointer, part = ("Y", number) if p.parts_y > 1 else ("Y" if name == "y" else name, 0)
            self._matrix(name, pointer, strides["ldy"], self.arguments["ldy"], p.element_y.bytes, part)
        for name in p.vectors:
            resource = k.s.alloc(f"{name} buffer", 4)
            raw_buffer(k, resource, self.arguments[name], (0, 0), name)
            k.s_mov_b32(resource[2], self.columns * p.element.bytes)
            self.operands[name] = Operands(name, resource, p.element.bytes)
        if p.tables:
            self._tables()
        if p.row_results:
            apart, element = k.s.alloc("bytes of a row's results"), dtype(p.row_type).bytes
            k.s_mov_b32(apart, p.groups * element)
            offset = self._row_offset(apart, "row results")
            for name in p.row_results:
                self._matrix(name, name, offset, apart, element, 0, p.groups)

    def _row_offset(self, stride: Reg, name: str) -> Reg | None:
        """Returns a VGPR with the bytes from a load's first row to the lane's; None if a load has one row."""
        if self.lane_row is None:
            return None
        offset = self.k.v.alloc(f"{name} of rows")
        return self.k.v_mul_lo_u32(offset, self.lane_row, stride)  # type: ignore[no-any-return]

    def _matrix(self, name: str, pointer: str, row: Reg | None, stride: Reg, element: int, part: int, width: int = 0) -> None:
        """Builds the buffer of a part of the wave's rows: it ends with the last row."""
        k, width = self.k, width or self.columns
        resource, offset = k.s.alloc(f"{name} buffer", 4), k.s.alloc("byte offset", 2)
        k.s_mul_hi_u32(offset[1], self.row, stride)
        k.s_mul_i32(offset[0], self.row, stride)
        if part:
            k.s_add_u32(offset[0], offset[0], part * width * element)
            k.s_addc_u32(offset[1], offset[1], 0)
        raw_buffer(k, resource, self.arguments[pointer], (offset[0], offset[1]), name)
        k.s.free(offset)
        if self.rows_wave == 1:
            k.s_mov_b32(resource[2], width * element)
        else:
            k.s_sub_u32(resource[2], self.arguments["rows"], self.row)
            k.s_min_u32(resource[2], resource[2], self.rows_wave)
            k.s_sub_u32(resource[2], resource[2], 1)
            k.s_mul_i32(resource[2], resource[2], stride)
            k.s_add_u32(resource[2], resource[2], width * element, note="bytes of the rows")
        self.operands[name] = Operands(name, resource, element, row, stride)

    def _tables(self) -> None:
        """Emits the buffers of tables, from the row of the wave's first row. A lane's row of them is `table_rows` of its load."""
        k, p = self.k, self.problem
        first, nbytes, offset = k.s.alloc("first row of tables"), self.columns * p.element.bytes, k.s.alloc("byte offset", 2)
        k.s_mov_b32(first, self.row)
        within = scalar_divmod(k, first, p.repeat, p.rows + self.tile_rows, "row of a token")
        k.s_mul_hi_u32(offset[1], first, nbytes)
        k.s_mul_i32(offset[0], first, nbytes)
        limit = -(-self.rows_wave // p.repeat) + 1
        k.s_sub_u32(first, p.rows // p.repeat, first, note="rows of tables left")
        k.s_min_u32(first, first, limit)
        k.s_mul_i32(first, first, nbytes)
        self.table_rows = []
        for load in range(self.in_flight):
            number = k.v.alloc("lane's row of tables")
            k.v_mov_b32(number, within)
            if self.lane_row is not None:
                k.v_add_u32(number, self.lane_row, number)
            k.v_add_u32(number, load * self.rows_load, number)
            quotient, remainder = vector_divmod(k, number, p.repeat, p.repeat + self.rows_wave, "row of tables")
            k.v.free(remainder, number)
            k.v_mul_u32_u24(quotient, nbytes, quotient)
            self.table_rows.append(quotient)
        for name in p.tables:
            resource = k.s.alloc(f"{name} buffer", 4)
            raw_buffer(k, resource, self.arguments[name], (offset[0], offset[1]), name)
            k.s_mov_b32(resource[2], first)
            self.operands[name] = Operands(name, resource, p.element.bytes)
        k.s.free(first, within, offset)

    def _registers(self) -> None:
        """Allocates the registers of elements, and of vectors and tables as loaded and as f32."""
        k, p, program = self.k, self.problem, self.program
        loads = [(load, group) for load in range(self.in_flight) for group in range(self.groups)]
        self.held = {name: {at: k.v.alloc(name, self.chunk) for at in loads} for name in program.matrices}
        words, narrow = self.places.words(p.element.bytes), p.element.bytes < WORD
        vectors = {name: [k.v.alloc(name, words) for _ in range(self.groups)] for name in program.vectors}
        self.raw = {name: {at: vectors[name][at[1]] for at in loads} for name in program.vectors}
        self.raw |= {name: {at: k.v.alloc(name, words) for at in loads} for name in program.tables}
        self.unpacked = {name: k.v.alloc(f"{name} unpacked", self.chunk) for name in self.raw} if narrow else {}
        of_lanes = p.span // self.chunk if p.groups > 1 else self.lanes
        whole = self.waves_row > 1 and p.groups == 1
        self.values = Values(k, self.places, of_lanes, self.waves_row, self.wave if whole else None)
        self.narrowing = Elements(k, p.dtype_y, "f32")
        self.narrowing.prepare()

    # -- values ------------------------------------------------------------------------------

    def visit_block(self, block: RowBlock) -> None:
        k, program = self.k, self.program
        warp = block.first()
        assert isinstance(warp, RowWarp)
        grouped = self.problem.groups > 1
        places = [(load, group if grouped else 0) for load in range(self.in_flight)
                  for group in range(self.groups if grouped else 1)]  # fmt: skip
        states: States = {at: {} for at in places}
        if self.plan.resident:
            self._load((*program.matrices, *self.raw))
            self._widen(program.matrices)
        for steps in program.passes:
            k.comment(f"RowBlock: {', '.join(step.name for step in steps)} of each row")
            for state in states.values():
                state |= {step.name: self.values.start(step) for step in steps}
                for step in steps:
                    state |= self.values.of_row(step, state)
            with self._part(program.used(steps)):
                self.visit(warp, steps, states)
            for state in states.values():
                for step in steps:
                    self.values.merge(step, state[step.name])
        self._row_results(states)
        if program.results:
            k.comment("RowBlock: the results")
            for state in states.values():
                for step in program.results:
                    state |= self.values.of_row(step, state)
            with self._part(program.used(program.results)):
                self.visit(warp, program.results, states)

    @contextmanager
    def _part(self, names: tuple[str, ...]) -> Iterator[None]:
        """Emits, of a streamed part, the loop over its steps with the loads of the operands that a pass uses."""
        k, left = self.k, self.places.left
        if self.plan.resident:
            yield
            return
        assert isinstance(left, Reg)
        self._start_part()
        with k.loop("step", left, WAVEFRONT * self.groups):
            self._load(names)
            self._widen([name for name in names if name in self.held])
            yield
            k.v_add_u32(self.column, WAVEFRONT * self.groups * self.chunk, self.column)

    def visit_warp(self, warp: RowWarp, steps: Sequence[Step], states: States) -> None:
        """Emits a pass over what the wave holds: reductions into the lanes' states, or results."""
        atom = warp.first()
        assert isinstance(atom, RowLoad)
        for group in reversed(range(self.groups)):  # a last chunk that overlaps another group is stored before that group
            self._unpack_beside(self.program.used(steps), (0, group), self.program.vectors)
            for load in range(self.in_flight):
                self._unpack_beside(self.program.used(steps), (load, group), self.program.tables)
                self.visit(atom, steps, states[load, group if self.problem.groups > 1 else 0], load, group)

    def visit_atom(self, atom: RowLoad, steps: tuple[Step, ...], state: dict[str, Reg], load: int, group: int) -> None:
        """Emits the values of the elements of one load."""
        p, elements = self.problem, [self._arguments(load, group, i) | state for i in range(self.chunk)]
        if steps[0].combine:
            self.values.reduce(steps, state, group, elements)
            return
        targets = [self.held[name][load, group] for name, _ in zip(self.program.matrices, steps, strict=False)]
        for i, given in enumerate(elements):
            self.values.results(steps, tuple(target[i] for target in targets), given)
        for step, target in zip(steps, targets, strict=True):
            packed = self.narrowing.narrow([target[i : i + 1] for i in range(self.chunk)], self.values.scratch)
            self.places.store(packed, self.operands[step.name], group, load * self.rows_load, p.groups > 1)

    def _arguments(self, load: int, group: int, i: int) -> dict[str, Reg]:
        found = {name: at[load, group][i] for name, at in self.held.items()}
        return found | {name: self.unpacked.get(name, at[load, group])[i] for name, at in self.raw.items()}

    def _load(self, names: Sequence[str]) -> None:
        """Loads operands of all groups: matrices first, since the others are often in L2."""
        vectors, tables = self.program.vectors, self.program.tables
        for group in range(self.groups):
            for load in range(self.in_flight):
                for name in (name for name in names if name in self.held):
                    target = self.held[name][load, group]
                    words = self.places.words(self.problem.element.bytes)
                    self.places.load(target[self.chunk - words : self.chunk], self.operands[name], group, load * self.rows_load)
        for group in range(self.groups):
            for name in (name for name in names if name in vectors):
                self.places.load(self.raw[name][0, group], self.operands[name], group)
            for load in range(self.in_flight):
                for name in (name for name in names if name in tables):
                    table = replace(self.operands[name], row=self.table_rows[load])
                    self.places.load(self.raw[name][load, group], table, group)

    def _widen(self, names: Sequence[str]) -> None:
        """Converts loaded elements to f32, in place."""
        size = self.problem.element.bytes
        for name in names if size < WORD else ():
            for target in self.held[name].values():
                unpack_chunk(self.k, self.problem.dtype, target, target[self.chunk - self.places.words(size) : self.chunk])

    def _unpack_beside(self, used: Sequence[str], at: tuple[int, int], names: Sequence[str]) -> None:
        """Converts a group's chunk of vectors or tables to f32, if they are narrower."""
        for name in names:
            if name in used and name in self.unpacked:
                unpack_chunk(self.k, self.problem.dtype, self.unpacked[name], self.raw[name][at])

    def _row_results(self, states: States) -> None:
        """Stores values of rows or groups: one lane each."""
        k, p = self.k, self.problem
        if not self.program.row_results:
            return
        done = k.new_label("row_results_done")
        if self.values.wave is not None:
            k.s_cmp_lg_u32(self.wave, 0)
            k.s_cbranch_scc1(done)
        share, offset, element = self.values.lanes, self.places.offset, dtype(p.row_type).bytes
        for (load, group), state in states.items():
            for step in self.program.row_results:
                (found,) = self.values.of_row(step, state).values()
                operand = self.operands[step.name]
                if p.groups > 1:
                    k.v_add_u32(offset, WAVEFRONT * self.chunk * group, self.column)
                    k.v_lshrrev_b32(offset, log2(p.span), offset, note="group")
                    k.v_lshlrev_b32(offset, log2(element), offset)
                else:
                    k.v_mov_b32(offset, 0)
                if operand.row is not None:
                    k.v_add_u32(offset, operand.row, offset)
                k.v_add_u32(offset, load * self.rows_load * p.groups * element, offset)
                k.v_and_b32(self.values.scratch, min(share, WAVEFRONT) - 1, k.work_item)
                k.v_cmp_eq_u32("vcc", 0, self.values.scratch)
                k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc", note="one lane of a row or group")
                if p.groups > 1 and group >= self.places.sure:
                    self.places.leave_outside(offset, group)
                if element < WORD:
                    k.v_lshrrev_b32(self.values.scratch, MANTISSA_BITS, found, note="the exponent")
                    k.buffer_store_byte(self.values.scratch, offset, operand.buffer, 0, offen=True, note=step.name)
                    continue
                k.buffer_store_dword(found, offset, operand.buffer, 0, offen=True, note=step.name)
        k.label(done)
