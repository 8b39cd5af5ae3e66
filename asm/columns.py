"""Kernel of a reduction of columns, from the tree, and the kernel that merges the parts of split rows, which has the same form."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import Formula, log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, buffer_at, new_buffer
from simgpu.asm.parts.lanes import INSTRUCTIONS, unpack_chunk, wave_number
from simgpu.asm.visitor import emit
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.columns import LOADS, WAVES, ColumnBlock, ColumnLane, Columns, ColumnWarp
from simgpu.operators.compute import COMBINE
from simgpu.operators.tree import Visitor

PARTS = "parts"  # scratch memory: a row of results for each part


@emit.register(Columns)
def emit_columns(root: Columns) -> EmittedKernel:
    """Returns the kernel of a reduction of columns, followed by a second one if rows are split. Operands: X, Y."""
    return ColumnEmitter(root, "X", PARTS if root.trips("m") > 1 else "Y").visit(root)


class ColumnEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel. source, result: names of the operands."""

    def __init__(self, root: Columns, source: str, result: str) -> None:
        plan, self.problem, self.source, self.result = root.plan, root.problem, source, result
        (rows, columns), (load, _), (_, chunk), _ = (node.loops for node in root.representatives())
        self.rows, self.chunk, self.rows_load = rows.tile, chunk.tile, load.tile
        self.lanes = columns.tile // chunk.tile
        self.columns, self.element = len(root.axes["n"]), self.problem.element.bytes
        self.step = WAVES * self.rows_load
        self.words = max(1, self.chunk * self.element // WORD)
        self.operation, self.neutral = INSTRUCTIONS[self.problem.reduce], COMBINE[self.problem.reduce][0]
        name = f"column_{self.problem.reduce}_{self.problem.dtype}_n{self.columns}_{self.lanes}_{source}"
        self.k = KernelBuilder(name, plan.descriptor.arch, WAVES * WAVEFRONT, plan=plan.resources)

    def visit_device(self, root: Columns) -> EmittedKernel:
        k, p, plan = self.k, self.problem, root.plan
        k.declare("pointer", self.source, self.result)
        k.declare("i32", "m", "ldx", "rows")
        self.arguments = k.load_arguments()
        self.visit(next(root.children()))
        k.s_endpgm()
        rows = len(root.axes["m"])
        following: tuple[EmittedKernel, ...] = ()
        scratch: tuple[tuple[str, int], ...] = ()
        if self.result == PARTS:
            parts = tree_of_parts(root)
            following, scratch = (ColumnEmitter(parts, PARTS, "Y").visit(parts),), ((PARTS, WORD * root.trips("m") * p.n),)
        return k.finish(plan=plan, grid=(root.trips("n"), root.trips("m"), 1), scalars=(rows, p.ldx or 0, self.rows),
                        operands=("X", "Y"), scratch=scratch, following=following)  # fmt: skip

    def visit_block(self, block: ColumnBlock) -> None:
        """Emits a lane's columns and first row, the loop over the rows, and the merge of the waves."""
        k, lane = self.k, self.k.work_item
        k.comment("ColumnBlock: rows of a tile of columns")
        k.work_item_x()
        self.column, self.offset, self.stride, scratch = (k.v.alloc(n) for n in ("column", "offset", "bytes of a step", "scratch"))
        self.last, self.number = k.v.alloc("last row's offset"), k.v.alloc("work-item")
        k.v_mov_b32(self.number, lane)
        wave = wave_number(k)
        k.v_and_b32(lane, WAVEFRONT - 1, lane)
        self.first = k.scalar("first row", of(k.group_y) * self.arguments["rows"])
        self.left = k.scalar("rows left", (of(self.arguments["m"]) - self.first).least(self.arguments["rows"]))
        self._place(self.column, of(lane) % self.lanes)
        k.set(lane, of(lane) // self.lanes + of(wave) * self.rows_load, note="row of a load")
        k.s.free(wave)
        self._source(lane)
        self.sums = k.v.alloc("sums", self.chunk)
        k.move(self.sums, self.neutral)
        self.visit(next(block.children()))
        self._merge(scratch)

    def _place(self, place: Reg, number: Formula, start: Reg | None = None) -> None:
        """Emits the first column of a lane's number in the tile; VCC: it has one. start: the same before the row cuts it."""
        k = self.k
        k.set(place, (number + of(k.group_x) * self.lanes) * self.chunk)
        if start is not None:
            k.v_mov_b32(start, place)
        k.v_cmp_gt_u32("vcc", self.columns, place)
        k.v_min_u32(place, self.columns - self.chunk, place, note="the last chunk ends with the row")

    def _source(self, row: Reg) -> None:
        """Emits the buffer of the block's rows, a lane's offset, and what it grows by; lanes without columns stay outside."""
        k, nbytes = self.k, self.arguments["ldx"]
        k.s_lshl_b32(nbytes, nbytes, log2(self.element), note="bytes of ldx")
        last = k.scalar("last row's bytes", (of(self.left) - 1) * nbytes)
        end = of(last) + self.columns * self.element
        self.buffer = new_buffer(k, self.arguments[self.source], self.source, (self.first, nbytes), nbytes=end)
        k.set(self.last, of(self.column) * self.element + last)
        k.set(self.offset, of(self.column) * self.element + of(row) * nbytes)
        k.set(self.stride, of(nbytes) * self.step)
        k.v_cndmask_b32(self.stride, 0, self.stride, "vcc")
        for register in (self.offset, self.last):
            k.v_cndmask_b32(register, OUTSIDE, register, "vcc", note="no columns: outside")
        k.s.free(last)

    def visit_warp(self, warp: ColumnWarp) -> None:
        """Emits the loop over the rows: some loads in flight, then their elements."""
        k, atom = self.k, next(warp.children())
        loads = [k.v.alloc("row", self.words) for _ in range(LOADS)]
        self.unpacked = k.v.alloc("unpacked", self.chunk) if self.element < WORD else None
        with k.loop("rows", self.left, LOADS * self.step):
            for row in loads:
                if self.problem.reduce == "maximum":
                    k.v_min_u32(self.offset, self.last, self.offset, note="past the rows: the last one again")
                k.buffer_load(row, self.offset, self.buffer, 0, nbytes=self.chunk * self.element)
                k.v_add_u32(self.offset, self.stride, self.offset)
            for row in loads:
                self.visit(atom, row)

    def visit_atom(self, atom: ColumnLane, row: Reg) -> None:
        """Emits the reduction of a chunk into the lane's results; 0 past the rows."""
        k, elements = self.k, row
        if self.unpacked is not None:
            elements = self.unpacked
            unpack_chunk(k, self.problem.dtype, elements, row)
        for i in range(self.chunk):
            k.emit(self.operation, self.sums[i], elements[i], self.sums[i])

    def _merge(self, scratch: Reg) -> None:
        """Emits the merge of waves and rows in LDS, a column a work-item, and the stores."""
        k, width, number = self.k, self.lanes * self.chunk, self.number
        region = k.region("sums", WORD * WAVES * WAVEFRONT * self.chunk)
        k.v_lshlrev_b32(scratch, log2(WORD * self.chunk), number)
        for start in range(0, self.chunk, 4):
            part = self.sums[start : min(self.chunk, start + 4)]
            k.ds_write(scratch, part, offset=region.offset + WORD * start)
        k.s_barrier()
        row = WORD * self.columns
        buffer_at(k, self.buffer, self.arguments[self.result], self.result, (k.group_y, row), nbytes=row)
        for first in range(0, width, WAVES * WAVEFRONT):
            if first:
                k.v_add_u32(number, first, number)
            k.v_lshlrev_b32(scratch, log2(WORD), number)
            if width < WAVES * WAVEFRONT:
                k.v_min_u32(scratch, WORD * (width - 1), scratch)
            total = self.sums[0]
            slots = range(WAVES * self.rows_load)
            k.ds_read_b32(total, scratch, offset=region.offset)
            for slot in slots[1:]:
                k.ds_read_b32(self.last, scratch, offset=region.offset + WORD * width * slot)
                k.emit(self.operation, total, self.last, total)
            self._store(total, scratch, number)

    def _store(self, total: Reg, scratch: Reg, number: Reg) -> None:
        """Emits the store of a work-item's column, unless another chunk has it."""
        k, place, start = self.k, self.column, self.last
        self._place(place, of(number) // self.chunk, start)
        k.set(scratch, of(number) % self.chunk + place)
        k.set(place, of(scratch) * WORD)
        k.v_cndmask_b32(place, OUTSIDE, place, "vcc")
        k.v_cndmask_b32(place, OUTSIDE, place, k.v_cmp_ge_u32("vcc", scratch, start), note="the chunk before has it")
        if self.lanes * self.chunk < WAVES * WAVEFRONT:
            k.v_cndmask_b32(place, OUTSIDE, place, k.v_cmp_gt_u32("vcc", self.lanes * self.chunk, number))
        k.buffer_store(total, place, self.buffer, 0, note=self.result)


def tree_of_parts(root: Columns) -> Columns:
    """Returns the tree that merges the parts of a tree's rows."""
    merge = root.plan.merge
    assert merge is not None
    return Columns.of(merge).clip(m=root.trips("m"))
