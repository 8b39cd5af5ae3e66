"""Softmax of the rows of X, from the tree to one kernel or, if N is split, to two.

    resident     a row (or a wave's part of it) is in registers and read once: m and delta of lanes, of waves, then values
    short rows   resident, several rows in a wave (`short.py`)
    packed       resident, two 16-bit elements per register (`packed.py`); lanes keep running m and delta
    streamed     two loops over the row: statistics with running m and delta, then values
    split        one kernel stores each part's m and delta in scratch memory; a second merges them with ⊕ and writes values

Exponents are to base 2: scores are scale·log2(e)·x. In f64 (`wide.py`) they are to base e. Elements that a mask, a band or the
row's end excludes become -infinity. m starts at the finite floor and is at most the largest finite number, so that infinities
are never subtracted (E30). A row with delta = 0 gives 0. Y may be X. A kernel works for any number of rows, any n that needs the
same number of registers, and any stride and scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.parts.buffers import advance_buffer, raw_buffer
from simgpu.asm.parts.integer_math import log2, scalar_modulo
from simgpu.asm.parts.lanes import wave_number
from simgpu.asm.softmax.merge import STATES, RowState
from simgpu.asm.softmax.packed import PackedPart
from simgpu.asm.softmax.row import RowPart, Window, whole_dwords
from simgpu.asm.softmax.short import ShortRows, ShortState, places
from simgpu.asm.softmax.wide import WideRowPart, WideState
from simgpu.asm.visitor import emit
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import UNPACKED, SoftmaxPlan, score_factor
from simgpu.operators.softmax.tree import BlockSoftmaxNode, LaneSoftmaxNode, Softmax, WarpSoftmaxNode
from simgpu.operators.tree import Visitor

TYPES = ("f32", "f16", "bf16", "f64")
FAR = 1 << 29  # a band's ends are clipped to this, past every row


@emit.register(Softmax)
def emit_softmax(root: Softmax) -> EmittedKernel:
    """Returns the kernel of a softmax tree, followed by a second one if N is split.

    Operands: X, Y, the mask's bytes if there is one.

    UnsupportedInstruction for types without a kernel, LaunchError for strides of 2^31 bytes and more.
    """
    _check(root.plan)
    return SoftmaxEmitter(root, "statistics" if root.trips("n") > 1 else "whole").visit(root)


def _check(plan: SoftmaxPlan) -> None:
    p = plan.problem
    for name, kind in (("ldx", p.element), ("ldy", p.element_y)):
        if kind.name not in TYPES:
            raise UnsupportedInstruction(f"softmax kernels are emitted for {', '.join(TYPES)}, not for {kind.name}")
        if (kind.name == "f64") != (p.dtype == "f64"):
            raise UnsupportedInstruction(f"softmax from {p.dtype} to {kind.name}: f64 is both types, or neither")
        limit = (1 << 31) // kind.bytes
        if getattr(p, name) >= limit:
            raise LaunchError(f"{name} = {getattr(p, name)}: a row must stay below 2^31 bytes, so {name} < {limit}")


@dataclass(frozen=True)
class WaveRow:
    """A row, or a load of several short rows, that a wave has in flight: registers, state, buffers of X and Y."""

    part: RowPart
    state: RowState
    x: Reg  # buffer of X
    y: Reg  # buffer of Y


class SoftmaxEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel. phase: "whole" or, for split N, "statistics" or "values"."""

    def __init__(self, root: Softmax, phase: str) -> None:
        plan: SoftmaxPlan = root.plan
        self.plan = plan
        self.phase, block, p = phase, root.first(), plan.problem
        assert isinstance(block, BlockSoftmaxNode)
        rows, part = root.loops
        self.tile_rows, self.part_columns, self.parts = rows.tile, part.tile, root.trips("n")
        self.columns = len(root.axes["n"])
        self.rows_load, self.step = (loop.tile for loop in block.loops)
        self.rows_wave = self.tile_rows // plan.waves if plan.waves_row == 1 else 1
        self.in_flight, self.lanes_row = self.rows_wave // self.rows_load, WAVEFRONT // self.rows_load
        self.lane_elements = self.step // self.lanes_row
        several = f"x{self.rows_wave}" * (self.rows_wave > 1) + f"by{self.lanes_row}" * (self.rows_load > 1)
        held = "packed" if plan.packing > 1 else "rows"
        kind = f"{held}{plan.waves_row}x{self.lane_elements}{several}" if plan.resident else f"stream_{phase}"
        masks = f"{'_mask' if p.mask else ''}{'_band' if p.band else ''}"
        self.target, self.bytes = plan.descriptor.arch, {"X": p.element.bytes, "Y": p.element_y.bytes, "mask": 1}
        split = f"_split{self.parts}x{self.part_columns // self.step}" if self.parts > 1 else ""
        narrowed = f"_to_{p.dtype_y}" * (p.dtype_y != p.dtype) + f"_gain{p.gain:g}" * (p.gain != 1)
        name = f"softmax_{p.dtype}{narrowed}_{kind}{split}{masks}"
        self.k = KernelBuilder(name, self.target, plan.waves * WAVEFRONT, plan=plan.resources)

    def visit_device(self, root: Softmax) -> EmittedKernel:
        plan, p, k = self.plan, self.plan.problem, self.k
        k.comment(f"Softmax: one workgroup per {self.tile_rows} row(s), {plan.waves_row} wave(s) a row, {self.phase} of them")
        self.end = k.new_label("end")
        self._arguments()
        self._coordinates()
        block = root.first()
        assert isinstance(block, BlockSoftmaxNode)
        self.visit(block)
        k.label(self.end)
        k.s_endpgm()
        grid, rows = (root.trips("rows"), self.parts, 1), len(root.axes["rows"])
        following = (SoftmaxEmitter(root, "values").visit(root),) if self.phase == "statistics" else ()
        operands = ("X", "Y", *(("mask",) if p.mask else ()))
        scratch = ((STATES, rows * self.parts * self.state.bytes),) if following else ()
        assert p.ldx and p.ldy
        band = () if p.band is None else (p.band.period, *(max(-FAR, min(FAR, x)) for x in (p.band.first, p.band.end)))
        scalars = (rows, self.columns, p.ldx, p.ldy, score_factor(p), *band)
        return k.finish(plan=plan, grid=grid, scalars=scalars, operands=operands, scratch=scratch, following=following)

    # -- prologue ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        k, p = self.k, self.plan.problem
        self.buffers = ("X", "Y", *(("mask",) if p.mask else ()), *((STATES,) if self.parts > 1 else ()))
        for name in self.buffers:
            k.argument(name, 8, "global_buffer")
        for name in ("rows", "n", "ldx", "ldy"):
            k.argument(name, 4, value_type="i32")
        factor = "f64" if p.dtype == "f64" else "f32"
        k.argument("factor", dtype(factor).bytes, value_type=factor)
        for name in ("period", "first", "end") if p.band else ():
            k.argument(name, 4, value_type="i32")
        self.arguments = k.load_arguments()

    def _coordinates(self) -> None:
        """Emits row, part and lane; allocates registers by name; computes the columns left of the row."""
        k, plan, p = self.k, self.plan, self.plan.problem
        k.work_item_x()
        offset = k.v.alloc("offset of a load")
        kind_of_state = WideState if p.dtype == "f64" else ShortState if self.rows_load > 1 else RowState
        self.state = kind_of_state(k, plan, self.parts)
        self.scratch = self.state.scratch
        states = [self.state, *(type(self.state)(k, plan, self.parts, self.scratch) for _ in range(1, self.in_flight))]
        self.flags = k.v.alloc("mask bytes", 8) if p.mask else None
        unpacked = k.v.alloc("unpacked", UNPACKED) if plan.packing > 1 else None
        self.registers = k.v.alloc("row", self.in_flight * self.lane_elements * p.element.registers // plan.packing)
        self.wave, self.row, self.column = k.s.alloc("wave"), k.s.alloc("row"), k.s.alloc("part's first column")
        wave_number(k, self.wave, offset)
        k.v_and_b32(k.work_item, WAVEFRONT - 1, k.work_item)
        k.v_lshlrev_b32(k.work_item, 4, k.work_item, note="lane·16")
        self.left = k.s.alloc("columns left")
        if plan.waves_row > 1:
            k.s_mov_b32(self.row, k.group_x)
            k.s_mul_i32(self.column, self.wave, WAVEFRONT * self.lane_elements, note="the wave's part")
        else:
            k.s_lshl_b32(self.row, k.group_x, log2(self.tile_rows))
            if self.rows_wave > 1:
                k.s_lshl_b32(self.wave, self.wave, log2(self.rows_wave))
            k.s_add_u32(self.row, self.row, self.wave)
            k.s.free(self.wave)
            k.s_cmp_ge_u32(self.row, self.arguments["rows"])
            k.s_cbranch_scc1(self.end)
            self._part_column()
        aligned = whole_dwords(k, self.arguments, self.bytes) if 2 in self.bytes.values() else None
        kinds = p.element.name, p.element_y.name
        count = self.lane_elements
        if isinstance(self.state, WideState):
            parts: list[RowPart] = [WideRowPart(k, self.registers, k.work_item, offset, self.state)]
        elif unpacked:
            parts = [PackedPart(k, p.element.name, self.registers, unpacked, k.work_item, offset, self.scratch, aligned,
                                self.arguments["factor"])]  # fmt: skip
        else:
            each = [self.registers[i * count : (i + 1) * count] for i in range(self.in_flight)]
            if self.rows_load > 1:
                at = places(k, plan, self.arguments)
                parts = [ShortRows(k, kinds, registers, at, offset, self.scratch, aligned, self.lanes_row) for registers in each]
            else:
                parts = [RowPart(k, kinds, registers, k.work_item, offset, self.scratch, aligned) for registers in each]
        self._band()
        self.rows = [
            WaveRow(part, state, k.s.alloc("X buffer", 4), k.s.alloc("Y buffer", 4))
            for part, state in zip(parts, states, strict=True)
        ]
        self._turn_to(self.rows[0])
        self.mask = k.s.alloc("mask buffer", 4) if p.mask else None

    def _turn_to(self, row: WaveRow) -> None:
        self.part, self.state, self.x, self.y = row.part, row.state, row.x, row.y

    def _part_column(self) -> None:
        self.k.s_mul_i32(self.column, self.k.group_y, self.part_columns, note="the block's part")

    def _band(self) -> None:
        """Emits the first and the end column of the row's band."""
        k, p, arguments = self.k, self.plan.problem, self.arguments
        self.band_first = self.band_end = None
        if p.band is None:
            return
        self.band_first, self.band_end = k.s.alloc("band's first column"), k.s.alloc("band's end")
        diagonal = k.s.alloc("remainder")
        scalar_modulo(k, diagonal, self.row, arguments["period"], self.scratch)
        k.s_add_i32(self.band_first, diagonal, arguments["first"])
        k.s_add_i32(self.band_end, diagonal, arguments["end"])
        k.s_min_i32(self.band_end, self.band_end, arguments["n"])
        k.s.free(diagonal, *(arguments[name] for name in ("period", "first", "end")))

    def _buffer(self, resource: Reg, name: str, stride: Reg) -> None:
        """Builds a raw buffer from the part's first column to the row's end."""
        k, element = self.k, self.bytes[name]
        offset, column = k.s.alloc("byte offset", 2), k.s.alloc("column bytes")
        k.s_lshl_b32(column, stride, log2(element))
        k.s_mul_hi_u32(offset[1], self.row, column)
        k.s_mul_i32(offset[0], self.row, column)
        k.s_lshl_b32(column, self.column, log2(element))
        k.s_add_u32(offset[0], offset[0], column)
        k.s_addc_u32(offset[1], offset[1], 0)
        raw_buffer(k, resource, self.arguments[name], (offset[0], offset[1]), name)
        k.s.free(offset, column)
        if self.rows_load > 1:
            self._rows(resource, element, stride)
        else:
            self._records(resource, element)

    def _records(self, resource: Reg, element: int) -> None:
        """Ends the buffer with the row: `left` columns, none if negative."""
        k = self.k
        k.s_max_i32(resource[2], self.left, 0)
        k.s_lshl_b32(resource[2], resource[2], log2(element), note="bytes left of the row")

    def _rows(self, resource: Reg, element: int, stride: Reg) -> None:
        """Ends the buffer with the last row of a load."""
        k, records = self.k, resource[2]
        k.s_sub_u32(records, self.arguments["rows"], self.row)
        k.s_min_i32(records, records, self.rows_load)
        k.s_sub_u32(records, records, 1)
        k.s_mul_i32(records, records, stride)
        k.s_add_u32(records, records, self.arguments["n"])
        k.s_lshl_b32(records, records, log2(element), note="bytes of the rows")

    def _start(self, *names: str) -> None:
        """Emits the columns left of the row, or of the block's part of it, and the named buffers."""
        k = self.k
        k.s_sub_u32(self.left, self.arguments["n"], self.column)
        if self.parts > 1:
            whole = k.s.alloc("scratch")
            k.s_mov_b32(whole, self.part_columns)
            k.s_min_i32(self.left, self.left, whole)
            k.s.free(whole)
        for name in names:
            self._buffer(self._resource(name), name, self.arguments[f"ld{name.lower()}"])
        if self.mask:
            self._buffer(self.mask, "mask", self.arguments["n"])

    def _states(self) -> Reg:
        """Builds the buffer of the row's states in the registers of X's buffer, which is not in use then, and returns it."""
        self.state.buffer(self.x, self.arguments[STATES], self.row)
        return self.x

    def _resource(self, name: str) -> Reg:
        resource = {"X": self.x, "Y": self.y, "mask": self.mask}[name]
        assert resource is not None
        return resource

    # -- values ------------------------------------------------------------------------------

    def visit_block(self, block: BlockSoftmaxNode) -> None:
        k, plan, p = self.k, self.plan, self.plan.problem
        warp = block.first()
        assert isinstance(warp, WarpSoftmaxNode)
        if plan.resident:
            several = f"·{self.rows_wave} and on" * (self.rows_wave > 1)
            k.comment(f"BlockSoftmaxNode: row I = workgroup id x·{self.tile_rows} + wave{several}, read once")
            self._start("X", "Y")
            for row in self.rows[1:]:
                self._next_row(row)
            if len(self.rows) > 1:
                self.part.load_all([(row.part, row.x) for row in self.rows], "X")
            else:
                self.part.load(self.x, "X")
            for row in self.rows:
                self._turn_to(row)
                self._resident_row(warp)
            return
        if self.phase != "values":
            k.comment(f"BlockSoftmaxNode: (m, delta)[I] ⊕= state(X[I,J]) for J in steps of {self.step} columns")
            self._start("X")
            self.state.empty()
            with self._steps("X"):
                self.part.load(self.x, "X")
                self.visit(warp)
            self.state.merge_lanes()
        if self.phase == "statistics":
            k.comment("the part's state to memory")
            self.state.leave(self._states())
            return
        if self.phase == "values":
            k.comment(f"the states of the row's {self.parts} parts merge")
            self.state.merge_parts(self._states(), self.registers)
        self.state.normalise(p.gain)
        k.comment(f"BlockSoftmaxNode: Y[I,J] = 2^(X[I,J] - m) / delta for J in steps of {self.step} columns")
        self._part_column()
        self._start("X", "Y")
        with self._steps("X", "Y"):
            self.part.load(self.x, "X")
            self._scores()
            self.part.exponentials(self.state.m)
            self.part.scale(self.state.delta)
            self.part.store(self.y, "Y")

    def _next_row(self, row: WaveRow) -> None:
        """Emits the buffers of the wave's next row. Past the last row of X they are empty."""
        k = self.k
        k.s_add_u32(self.row, self.row, self.rows_load)
        self._turn_to(row)
        for name in ("X", "Y"):
            self._buffer(self._resource(name), name, self.arguments[f"ld{name.lower()}"])
        k.s_cmp_ge_u32(self.row, self.arguments["rows"])
        for resource in (row.x, row.y):
            k.s_cselect_b32(resource[2], 0, resource[2], note="no such row: nothing is loaded or stored")

    def _resident_row(self, warp: WarpSoftmaxNode) -> None:
        """Emits a row from X in registers to Y in memory."""
        state, plan = self.state, self.plan
        state.empty()
        self.visit(warp)
        if self.rows_wave > 1:
            state.release()
        state.merge_lanes()
        if plan.waves_row > 1:
            state.merge_waves(self.wave)
        state.normalise(plan.problem.gain)
        if isinstance(self.part, PackedPart):
            self.part.values(state, self.y, "Y")
            return
        if plan.waves_row > 1:
            state.own_share()
        self.part.scale(state.delta)
        self.part.store(self.y, "Y")

    @contextmanager
    def _steps(self, *buffers: str) -> Iterator[None]:
        """Emits the loop over a part's steps around the `with` block.

        After each step, `left` is reduced and the buffers advance; they still end with the row.
        """
        k, step = self.k, self.step
        with k.loop("step", self.left, step) as loop:
            yield
            loop.countdown()
            k.s_add_u32(self.column, self.column, step)
            for name in (*buffers, *(("mask",) if self.mask else ())):
                advance_buffer(k, self._resource(name), step * self.bytes[name], "the row")
                self._records(self._resource(name), self.bytes[name])

    def visit_warp(self, warp: WarpSoftmaxNode) -> None:
        """Replaces the elements of one part by 2^(x - m), and updates the lane's m and delta."""
        k, m, delta = self.k, self.state.lane_m, self.state.delta
        atom = warp.first()
        assert isinstance(atom, LaneSoftmaxNode)
        k.comment(f"WarpSoftmaxNode: {self.part.columns} columns of the row")
        if isinstance(self.part, PackedPart):
            self.part.statistics(self.state, self.x, self.left)
            return
        self._scores()
        if not self.plan.resident:
            self.state.keep()
        self.visit(atom)
        if not self.plan.resident:
            self.state.rescale()
        self.part.exponentials(m)
        self.part.add(delta)

    def visit_atom(self, atom: LaneSoftmaxNode) -> None:
        """Emits the lanes' maxima."""
        k, m = self.k, self.state.lane_m
        k.comment("LaneSoftmaxNode: 64 elements an instruction")
        self.part.maximum(m)
        self.state.limit()
        if self.plan.resident:
            self.state.reduce_maximum("m of the wave")

    def _scores(self) -> None:
        """Multiplies a part of X in registers by the factor, and replaces excluded elements by -infinity."""
        k, p, part = self.k, self.plan.problem, self.part
        part.scale(self.arguments["factor"])
        if self.band_first is not None and self.band_end is not None:
            first, end = k.s.alloc("first that counts"), k.s.alloc("end of what counts")
            k.s_sub_u32(first, self.band_first, self.column)
            k.s_sub_u32(end, self.band_end, self.column)
            part.clip(Window(end, first, everywhere=True))
            k.s.free(first, end)
        elif not p.mask:
            inside = k.new_label("inside")
            k.s_cmp_ge_i32(self.left, part.columns)
            k.s_cbranch_scc1(inside)
            alone = self.plan.resident and self.plan.waves_row == 1
            only_last = alone and WAVEFRONT * part.groups[-1].start < self.columns
            part.clip(Window(self.left, None, everywhere=not only_last))
            k.label(inside)
        if self.mask and self.flags:
            part.mask(self.mask, self.flags)
