"""Kernels of operators on rows, softmax among them, from the tree: rows or parts of rows are loaded once, or once a pass.

    kept       a wave's part of a row, or several short rows, is in registers: the passes of reductions, then the results
    streamed   a loop over the part for each pass, and one for the results
    split      blocks share a row: a kernel for each pass stores the states of the row's parts in scratch memory; the next ones
               merge them, and the last one computes the results

Chunks are placed as `places.py` says. Waves that share a row combine each reduction through LDS. The number of columns is the
kernel's; rows, strides and a softmax's factor are arguments. Y must not overlap an input, but Y of a softmax may be X.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.lanes import lane_number, wave_number
from simgpu.asm.rows.exponentials import Exponentials
from simgpu.asm.rows.frame import STATES, Place, RowFrame
from simgpu.asm.rows.places import Places
from simgpu.asm.rows.values import Values
from simgpu.asm.visitor import emit
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import LaunchError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.program import Step
from simgpu.operators.rows.tree import RowTree
from simgpu.operators.softmax.plan import SoftmaxPlan, score_factor
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.tree import Node, Visitor

SOFTMAX_TYPES = ("f32", "f16", "bf16", "f64")
FAR = 1 << 29  # a band's ends are clipped to this, past every row


@emit.register(RowTree)
@emit.register(Softmax)
def emit_rows(root: RowTree | Softmax) -> EmittedKernel:
    """Returns the first kernel, followed by one for each pass of reductions if blocks share rows. Operands: inputs, results.

    UnsupportedInstruction for a softmax's types without a kernel, LaunchError for strides of 2^31 bytes and more.
    """
    if isinstance(root, Softmax):
        _check(root.plan)
    first = RowEmitter(root)
    return first.emit(root, tuple(RowEmitter(root, number).emit(root) for number in range(1, first.kernels)))


def _check(plan: SoftmaxPlan) -> None:
    p = plan.problem
    for name, kind in (("ldx", p.element), ("ldy", p.element_y)):
        if kind.name not in SOFTMAX_TYPES:
            raise UnsupportedInstruction(f"softmax kernels are emitted for {', '.join(SOFTMAX_TYPES)}, not for {kind.name}")
        if (kind.name == "f64") != (p.dtype == "f64"):
            raise UnsupportedInstruction(f"softmax from {p.dtype} to {kind.name}: f64 is both types, or neither")
        limit = (1 << 31) // kind.bytes
        if getattr(p, name) >= limit:
            raise LaunchError(f"{name} = {getattr(p, name)}: a row must stay below 2^31 bytes, so {name} < {limit}")


class RowEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel.

    number: of the kernel. If blocks share a row, kernel i merges what the kernels before have stored of each part, and makes pass i
    of the reductions; the last kernel computes the results. Otherwise there is one kernel.
    """

    def __init__(self, root: RowTree | Softmax, number: int = 0) -> None:
        self.plan, self.problem, self.program, self.number = root.plan, root.problem, root.program, number
        plan, tiles = self.plan, root.row_tiles
        self.tiles = tiles
        self.split = tiles.parts > 1 and bool(self.program.reductions) and self.problem.groups == 1
        self.kernels = len(self.program.passes) + 1 if self.split else 1
        self.lanes = WAVEFRONT // tiles.rows_load
        self.rows_wave = tiles.rows // (plan.waves if tiles.waves_row == 1 else 1)
        self.step = WAVEFRONT * tiles.loads * tiles.chunk  # columns of a streamed row
        self.k = KernelBuilder(self._name(), plan.descriptor.arch, plan.waves * WAVEFRONT, plan=plan.resources)

    def _name(self) -> str:
        p, tiles = self.problem, self.tiles
        types = p.dtype if p.dtype == p.dtype_y else f"{p.dtype}_{p.dtype_y}"
        how = f"{tiles.waves_row}x{tiles.loads}x{tiles.chunk}" if self.plan.resident else f"stream{tiles.waves_row}"
        rows = f"rows{self.rows_wave}" * (self.rows_wave > 1)
        words = [p.name, types, f"n{p.n}", how, *filter(None, [rows, f"group{p.group}" * (p.groups > 1)])]
        if isinstance(p, SoftmaxProblem):
            words += [f"gain{p.gain:g}"] * (p.gain != 1) + ["mask"] * p.mask + ["band"] * (p.band is not None)
            words += ["log"] * p.log + {1: [], 0: ["zero"], -1: ["negative"]}[p.sign]
        last = self.number == self.kernels - 1
        return "_".join(words + ["results" if last else f"pass{self.number}"] * self.split)

    def emit(self, root: RowTree | Softmax, following: tuple[EmittedKernel, ...] = ()) -> EmittedKernel:
        """Returns the kernel. following: the kernels of a split row after it."""
        self.visit(root)
        p, rows = self.problem, len(root.axes["rows"])
        assert p.ldx and p.ldy
        scratch = ((STATES, rows * self.tiles.parts * self.values.state_bytes),) if following else ()
        scalars, grid = (rows, p.ldx, p.ldy, *self._softmax_scalars()), (root.trips("rows"), self.tiles.parts, 1)
        return self.k.finish(plan=self.plan, grid=grid, scalars=scalars, operands=p.pointers, scratch=scratch, following=following)

    def visit_device(self, root: RowTree | Softmax) -> None:
        k, p, tiles = self.k, self.problem, self.tiles
        k.comment(f"{type(root).__name__}: rows I of {p.name}, {tiles.rows} a workgroup, {tiles.waves_row} wave(s) a row")
        self.end = k.new_label("end")
        self._arguments()
        self._prologue(root)
        self.visit(next(root.children()))
        k.label(self.end)
        k.s_endpgm()

    # -- prologue ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        k, p = self.k, self.problem
        k.declare("pointer", *p.pointers, *((STATES,) if self.split else ()))
        k.declare("i32", "rows", "ldx", "ldy")
        if isinstance(p, SoftmaxProblem):
            k.declare("f64" if p.dtype == "f64" else "f32", "factor", *(("scale",) if self._takes_scale else ()))
            k.declare("i32", *(("period", "first", "end") if p.band else ()))
        self.arguments = k.load_arguments()

    def _softmax_scalars(self) -> tuple[int | float, ...]:
        p = self.problem
        if not isinstance(p, SoftmaxProblem):
            return ()
        band = () if p.band is None else (p.band.period, *(max(-FAR, min(FAR, x)) for x in (p.band.first, p.band.end)))
        return score_factor(p), *[abs(p.scale) or 1.0] * self._takes_scale, *band

    @property
    def _takes_scale(self) -> bool:
        """True if the kernel has the scale as an argument: its factor is to base 2, and a logarithm's result is to base e."""
        return isinstance(self.problem, SoftmaxProblem) and self.problem.log and self.problem.dtype != "f64"

    def _prologue(self, root: RowTree | Softmax) -> None:
        """Emits the wave's first row, buffers, a lane's first column, and the end of the wave's part of the row."""
        k, tiles, p = self.k, self.tiles, self.problem
        k.work_item_x()
        column, self.wave, self.row = k.work_item, wave_number(k), k.s.alloc("row")
        k.v_and_b32(column, WAVEFRONT - 1, column, note="lane")
        row = of(k.group_x) * tiles.rows
        k.set(self.row, row + of(self.wave) * self.rows_wave if tiles.waves_row == 1 else row)
        if tiles.waves_row == 1:
            k.branch(k.s_cmp_ge_u32(self.row, self.arguments["rows"]), self.end)
        several = tiles.waves_row > 1 or tiles.parts > 1
        end: int | Reg = k.s.alloc("part's end") if several else tiles.columns
        self.left = k.s.alloc("columns left") if several or not self.plan.resident else None
        last = tiles.chunks - (tiles.waves_row * tiles.parts - 1) * tiles.part  # chunks of the last wave
        sure = max(0, (last - bool(tiles.columns % tiles.chunk)) // self.lanes) if self.plan.resident else 0
        self.places = Places(k, tiles.chunk, tiles.columns, column, end, min(sure, tiles.loads))
        merges = tiles.waves_row > 1 and p.groups == 1
        frame = RowFrame(k, root, self.arguments, self.row, self.rows_wave, self.wave if merges else None, self.places)
        if self.lanes < WAVEFRONT:
            k.v_and_b32(column, self.lanes - 1, column, note="lane of a row")
        self._start_part(column)
        self.values = Exponentials(frame) if isinstance(p, SoftmaxProblem) else Values(frame)
        if several and not self.program.reductions:
            k.branch(k.s_cmp_le_i32(self.left, 0), self.end)

    def _start_part(self, lane: Reg) -> None:
        """Emits the first column of a lane, the end of the wave's part, and the columns left of it. lane: a lane of the row."""
        self.places.forget()
        k, tiles, column, end = self.k, self.tiles, self.places.column, self.places.end
        k.v_lshlrev_b32(column, log2(tiles.chunk), lane)
        if not isinstance(end, Reg):
            if self.left is not None:
                k.s_mov_b32(self.left, end)
            return
        number, part = of(k.group_y), tiles.part * tiles.chunk
        if tiles.waves_row > 1:
            number = number * tiles.waves_row + self.wave
        first = k.scalar("part's first column", number * part)
        k.v_add_u32(column, first, column)
        k.set(end, (of(first) + part).least(tiles.columns))
        k.s_sub_u32(self.left, end, first)
        k.s.free(first)

    # -- values ------------------------------------------------------------------------------

    def visit_block(self, block: Node) -> None:
        k, program, values, warp = self.k, self.program, self.values, next(block.children())
        if self.plan.resident:
            values.load((*program.matrices, *program.vectors, *program.tables))
        states = k.s.alloc("states buffer", 4) if self.split else None
        for number, steps in enumerate(program.passes):
            k.comment(f"{type(block).__name__}: {', '.join(step.name for step in steps)} of each row")
            values.start(steps)
            if states is not None and number < self.number:
                values.merge_parts(steps, states)
                continue
            self._over_part(steps, partial(self.visit, warp, steps))
            values.merge(steps)
            if states is not None:
                values.leave(steps, states)
                return
        values.row_results()
        if program.results:
            k.comment(f"{type(block).__name__}: the results")
            values.of_rows(program.results)
            self._over_part(program.results, partial(self.visit, warp, program.results))

    def _over_part(self, steps: Sequence[Step], body: Callable[[], None]) -> None:
        """Emits a pass over the wave's part: once, or in a loop over the steps of a streamed part, with the loads that it needs.

        Of a loop's body there are two versions. The one for steps in which all chunks are whole leaves nothing out.
        """
        k, names, places = self.k, self.program.operands_of(steps), self.places
        if self.plan.resident:
            body()
            return
        lane_number(k, places.column)
        self._start_part(places.column)
        assert self.left is not None
        with k.loop("step", self.left, self.step):
            done = k.new_label("step_done")
            with k.out_of_line("ragged_step", done) as ragged:
                self.values.load(names)
                body()
            k.branch(k.s_cmp_lt_i32(self.left, self.step), ragged)
            places.forget()
            places.sure = self.tiles.loads
            self.values.load(names)
            body()
            places.sure = 0
            k.label(done)
            k.v_add_u32(places.column, self.step, places.column)

    def visit_warp(self, warp: Node, steps: Sequence[Step]) -> None:
        """Emits a pass over what the wave holds: reductions into the lanes' states, or results."""
        atom, tiles = next(warp.children()), self.tiles
        columns = self.lanes * tiles.loads * tiles.chunk
        self.k.comment(f"{type(warp).__name__}: {columns} columns of {tiles.rows_load} row(s) a load")
        for place in self.values.places_of(steps):
            self.visit(atom, steps, place)

    def visit_atom(self, atom: Node, steps: tuple[Step, ...], place: Place) -> None:
        """Emits the values of the elements of a place."""
        self.k.comment(f"{type(atom).__name__}: load {place.load}, chunks {', '.join(map(str, place.groups))}")
        if steps[0].combine:
            self.values.reduce(steps, place)
        else:
            self.values.results(steps, place)
