"""Kernel of a transpose, from the tree: a lane's block is loaded by rows, changes places in registers, and is stored by columns."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.lanes import HIGH_HALVES, LOW_HALVES, wave_number
from simgpu.asm.visitor import emit
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.transpose import Transpose, TransposeAtom, TransposeBlock, TransposeWarp
from simgpu.operators.tree import Visitor

SIDE = 8  # lanes of a wave on each side
# v_perm_b32: byte c of the lower word, then byte c of the upper one.
BYTES = tuple((4 + c) << 8 | c for c in range(WORD))


@emit.register(Transpose)
def emit_transpose(root: Transpose) -> EmittedKernel:
    """Returns the kernel of a transpose. Operands: X, Y."""
    return TransposeEmitter(root).visit(root)


class TransposeEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel."""

    def __init__(self, root: Transpose) -> None:
        plan = root.plan
        (m, n), (_, wave), (chunk, _), _ = (node.loops for node in root.representatives())
        self.chunk, self.element = chunk.tile, plan.problem.element.bytes
        self.tiles = {"m": m.tile, "n": wave.tile}
        self.block_n = n.tile
        self.sizes = {axis: len(extent) for axis, extent in root.axes.items()}
        self.rows, self.columns = root.trips("m"), root.trips("n")
        self.words = max(1, self.chunk * self.element // WORD)
        name = f"transpose_{plan.problem.dtype}_{plan.problem.m}x{plan.problem.n}_{m.tile}x{n.tile}"
        self.k = KernelBuilder(name, plan.descriptor.arch, n.tile // wave.tile * WAVEFRONT, plan=plan.resources)
        self.elements = Elements(self.k, plan.problem.dtype, "f32")

    def visit_device(self, root: Transpose) -> EmittedKernel:
        k, p = self.k, root.problem
        self.end = k.new_label("end")
        k.declare("pointer", "X", "Y")
        k.declare("i32", "ldx", "ldy")
        self.arguments = k.load_arguments()
        self.visit(next(root.children()))
        k.label(self.end)
        k.s_endpgm()
        assert p.ldx and p.ldy
        return k.finish(plan=root.plan, grid=(root.trips("n"), root.trips("m"), 1), scalars=(p.ldx, p.ldy))

    def visit_block(self, block: TransposeBlock) -> None:
        """Emits the wave's tile: its first row and column, and buffers that begin there."""
        k = self.k
        k.comment("TransposeBlock: waves side by side along n")
        k.work_item_x()
        self.offset, self.lanes = k.v.alloc("offset"), {axis: k.v.alloc(f"first of {axis}") for axis in "mn"}
        wave, self.start = wave_number(k), {axis: k.s.alloc(f"tile's first of {axis}") for axis in "mn"}
        k.set(self.start["n"], of(k.group_x) * self.block_n + of(wave) * self.tiles["n"])
        k.branch(k.s_cmp_ge_u32(self.start["n"], self.sizes["n"]), self.end)
        diagonal = (of(k.group_x) + k.group_y).below(self.rows + self.columns)
        note = "tiles on a diagonal run together: both sides spread over memory"
        k.set(self.start["m"], diagonal % self.rows * self.tiles["m"], note=note)
        self.visit(next(block.children()))

    def visit_warp(self, warp: TransposeWarp) -> None:
        """Emits the first row and column of each lane's block, relative to the tile; a lane without one is outside."""
        k, lane = self.k, self.k.work_item
        k.v_and_b32(lane, WAVEFRONT - 1, lane)
        k.v_and_b32(self.lanes["n"], SIDE - 1, lane)
        k.v_lshrrev_b32(self.lanes["m"], log2(SIDE), lane)
        self.inside = k.s.alloc("lanes with a block", 2)
        k.s_mov_b64(self.inside, "exec")
        for axis in "mn":
            place, last = self.lanes[axis], k.s.alloc("last chunk")
            k.s_and_b64(self.inside, self.inside, k.v_cmp_gt_u32("vcc", self.tiles[axis] // self.chunk, place))
            k.v_lshlrev_b32(place, log2(self.chunk), place)
            k.s_sub_u32(last, self.sizes[axis], self.start[axis])
            k.s_and_b64(self.inside, self.inside, k.v_cmp_gt_i32("vcc", last, place))
            k.set(place, (of(last) - self.chunk).least(place, "i32"), note="the last chunk ends with the side")
            k.s.free(last)
        self.visit(next(warp.children()))

    def visit_atom(self, atom: TransposeAtom) -> None:
        """Emits the loads of a block's rows, the change of places, and the stores of its columns."""
        k = self.k
        rows = [k.v.alloc("row", self.words) for _ in range(self.chunk)]
        columns = [k.v.alloc("column", self.words) for _ in range(self.chunk)]
        self._buffer("X", "m", "n", "ldx")
        for row in rows:
            self._move("load", row)
        self._buffer("Y", "n", "m", "ldy")
        values = {1: (LOW_HALVES, *BYTES), 2: (LOW_HALVES, HIGH_HALVES)}.get(self.element, ())
        self.selectors = {value: k.scalar("selector", value) for value in values}
        for number, column in enumerate(columns):
            self._gather(rows, number, column)
            self._move("store", column)

    def _buffer(self, name: str, outer: str, inner: str, stride: str) -> None:
        """Emits the buffer of an operand from the tile's first element, and the lane's offset of its block's first row."""
        k, bytes_ = self.k, self.arguments[stride]
        k.s_lshl_b32(bytes_, bytes_, log2(self.element), note=f"bytes of {stride}")
        terms = (self.start[outer], bytes_), (of(self.start[inner]) * self.element, 1)
        self.buffer = new_buffer(k, self.arguments[name], name, *terms)
        k.set(self.offset, of(self.lanes[outer]) * bytes_ + of(self.lanes[inner]) * self.element)
        k.v_mov_b32(k.work_item, OUTSIDE)
        k.v_cndmask_b32(self.offset, k.work_item, self.offset, self.inside, note="no block: outside")
        self.stride = bytes_
        self.row = k.scalar(f"row of {name}", 0)

    def _move(self, direction: str, data: Reg) -> None:
        """Loads or stores the next row of the block."""
        self.k.emit(f"buffer_{direction}", data, self.offset, self.buffer, self.row, nbytes=self.chunk * self.element)
        self.k.s_add_u32(self.row, self.row, self.stride)

    def _gather(self, rows: list[Reg], column: int, target: Reg) -> None:
        """Emits target = a column of the block: element `column` of each row."""
        per_word = WORD // self.element
        word, place = divmod(column, per_word)
        for number in range(self.words):
            of_word = [rows[i][word] for i in range(number * per_word, min(len(rows), (number + 1) * per_word))]
            self._combine(target[number], of_word, place)

    def _combine(self, target: Reg, words: list[Reg], place: int) -> None:
        """Emits target = element `place` of each word, side by side. One word has no other element."""
        k, pick = self.k, self.selectors
        if len(words) == 1:
            k.v_mov_b32(target, words[0])
        elif self.element == 2:
            k.v_perm_b32(target, words[1], words[0], pick[HIGH_HALVES if place else LOW_HALVES])
        else:
            k.v_perm_b32(target, words[1], words[0], pick[BYTES[place]])
            if len(words) == WORD:
                upper = k.v.alloc("upper half")
                k.v_perm_b32(upper, words[3], words[2], pick[BYTES[place]])
                k.v_perm_b32(target, upper, target, pick[LOW_HALVES])
                k.v.free(upper)
