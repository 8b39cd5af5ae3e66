"""GEMM: C = activation(alpha·op(A)·op(B) + beta·C + bias), row-major, from the tree's plan to a kernel.

One code object serves every m, n, k, stride, batch, alpha and beta; tiles, transposes, types, bias and
activation are its own. Where the plan splits K, this kernel writes partial products that a second one
adds (reduce.py).

The main loop is a software pipeline over two LDS stages, one barrier a k tile. Under the matrix instructions
of tile t, tile t+1 goes from registers to LDS, the loads of t+2 take its registers, and behind the barrier the
fragments of t+1 are read as the registers of t's become free; 128-bit LDS reads feed several matrix
instructions each (parts/lds_tile.py). The last tile is a copy without the moves. (One stage: two barriers.)

Edges: a raw buffer whose out-of-range lanes read 0 and store nothing stands for the clipped view.
Tiles inside the view (in k, and in rows where those are contiguous) take wide loads; the others, and
operands that are not aligned to 4 bytes, load element by element, each with its own predicate, out of line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from itertools import product

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.emit import emit
from simgpu.asm.gemm.operands import Operands, check, second_pass
from simgpu.asm.gemm.prologue import clear_accumulators, find_place, load_arguments, operand_tiles, scalars, tile_buffer
from simgpu.asm.gemm.reduce import reduce_kernel
from simgpu.asm.gemm.store import StoreInputs, TileStore
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import branch_if_zero, log2
from simgpu.asm.parts.lds_tile import TileLayout
from simgpu.asm.parts.matrix import matrix_instruction
from simgpu.asm.parts.staging import Fragment, Staging
from simgpu.hardware.descriptor import CLOCKS_PER_PASS
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from simgpu.operators.tree import Visitor

LDS_CLOCKS = 128  # of an LDS write until it is done, assumed (facts: 60 to 130); sets distances, not correctness


@emit.register(TiledComputation)
def emit_gemm(root: TiledComputation) -> EmittedKernel:
    """The kernel of a GEMM tree; TargetError, ResourceError, LaunchError for what cannot be."""
    return GemmEmitter(root.plan).visit(root)


class GemmEmitter(Visitor):
    """Visits the GEMM tree level by level, each emitting its part of the kernel."""

    def __init__(self, plan: GemmPlan) -> None:
        check(plan)
        self.plan, self.split, self.operands = plan, second_pass(plan), Operands.of(plan)
        problem, target = plan.problem, plan.descriptor.arch
        kinds = "".join("t" if trans else "n" for trans in (problem.trans_a, problem.trans_b))
        extras = ("part",) if self.split else (*(["bias"] * problem.bias), *([problem.activation] * (problem.activation != "none")))
        name = "_".join(("gemm", problem.dtype, kinds, f"{plan.tile_m}x{plan.tile_n}x{plan.tile_k}", *extras))
        self.k = KernelBuilder(name, target, plan.threads, plan=plan.resources)
        self.mnemonic, self.modifiers = matrix_instruction(plan.atom, target, problem.dtype)
        self.size_c = dtype(problem.dtype_c).bytes

    def visit_device(self, root: TiledComputation) -> EmittedKernel:
        plan, k = self.plan, self.k
        k.comment(f"TiledComputation: one workgroup per {plan.tile_m}x{plan.tile_n} tile of C")
        self.arguments = load_arguments(k, plan)
        self.place = find_place(k, plan, self.arguments)
        self.tiles = operand_tiles(k, plan, self.operands, self.arguments, self.place)
        self.acc = clear_accumulators(k, plan, self.operands)
        block = root.first()
        assert isinstance(block, BlockGemmNode)
        self.visit(block)
        self._epilogue()
        kernel = k.finish(plan=plan, grid=(plan.blocks, 1, 1), scalars=scalars(plan))
        if not self.split:
            return kernel
        partials = plan.split_k * plan.problem.batch * plan.problem.m * plan.problem.n * self.size_c
        operands = ("A", "B", "C", *(["bias"] * plan.problem.bias))
        return replace(kernel, operands=operands, scratch=(("partials", partials),), following=(reduce_kernel(plan),))

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockGemmNode) -> None:
        k, plan = self.k, self.plan
        done = k.new_label("multiplied")
        warp = block.first()
        assert isinstance(warp, WarpGemmNode)
        self._skip_if_alpha_is_0(done)
        k.s_cmp_le_i32(self.place.k_left, 0)
        k.s_cbranch_scc1(done)
        k.comment("BlockGemmNode: the first k tile")
        self._load_next()
        for write in self._writes():
            write()
        k.comment(f"BlockGemmNode: for K in {plan.tile_k}s, {plan.stages} stage(s) in LDS")
        if plan.stages == 2:
            self._pipelined_loop(warp)
        else:
            with k.loop("k_tile", self.place.k_left, plan.tile_k) as loop:
                k.s_barrier(note="the tile is in LDS")
                self._read_first_turn()
                self._load_next()
                self.visit(warp, False)
                loop.countdown()
                k.s_barrier(note="all waves have read the tile")
                for write in self._writes():
                    write()
        k.label(done)

    def _pipelined_loop(self, warp: WarpGemmNode) -> None:
        """All tiles but the last prefetch: the loop's end is the middle of the pipeline."""
        k, plan = self.k, self.plan
        last = k.new_label("last_tile")
        for address in self.tiles.write_address.values():
            k.v_add_u32(address, self.tiles.stage_step, address, note="the other stage next")
        self._load_next()
        k.s_barrier(note="the first tile is in LDS")
        self._read_first_turn()
        k.s_sub_u32(self.place.k_left, self.place.k_left, plan.tile_k, note="k behind this tile")
        k.s_cmp_le_i32(self.place.k_left, 0)
        k.s_cbranch_scc1(last)
        with k.loop("k_tile", self.place.k_left, plan.tile_k):
            self.visit(warp, True)
            k.s_sub_u32(self.tiles.stage_step, 0, self.tiles.stage_step)
        k.label(last)
        self.visit(warp, False)

    def _skip_if_alpha_is_0(self, done: str) -> None:
        k, alpha = self.k, self.arguments["alpha"]
        k.comment("alpha = 0: A and B are not read")
        branch_if_zero(k, alpha, self.plan.problem.dtype_c == "i32", done)

    def _load_next(self) -> None:
        """Starts the loads of the next k tile, if there is one."""
        k = self.k
        loaded = k.new_label("loaded")
        with k.out_of_line("clipped", loaded) as clipped:
            k.comment("a tile that an edge cuts (or none): element by element")
            k.s_cmp_le_i32(self.place.k_unloaded, 0)
            k.s_cbranch_scc1(loaded)
            for staging in self.tiles.staging:
                staging.load_clipped(self.place.k_unloaded)
        k.s_cmp_ge_i32(self.place.k_unloaded, self.tiles.wide_k)
        k.s_cbranch_scc0(clipped)
        for staging in self.tiles.staging:
            staging.load()
        k.label(loaded)
        for staging in self.tiles.staging:
            staging.advance()
        k.s_sub_u32(self.place.k_unloaded, self.place.k_unloaded, self.plan.tile_k)

    def _writes(self) -> list[Callable[[], None]]:
        """Staged registers to LDS, one call an LDS write."""
        return [
            write for staging in self.tiles.staging for write in staging.writes(self.tiles.write_address[staging.write_key])
        ]

    def _read_first_turn(self) -> None:
        """The fragments that a tile begins with, in the order of their use."""
        for staging, fragment in sorted(self._turn_fragments(0), key=lambda item: self._uses(*item)[0]):
            staging.read(fragment, 0)

    def visit_warp(self, warp: WarpGemmNode, prefetch: bool) -> None:
        """One k tile from registers that its first fragments are on their way to; `prefetch`: with the next one's moves."""
        layout = self.operands.a
        atom = warp.first()
        assert isinstance(atom, AtomHint)
        which = "" if prefetch else ", the last tile"
        self.k.comment(f"WarpGemmNode: {layout.turns} turn(s) of {layout.span * layout.reads} k{which}")
        moves = self._moves(prefetch)
        for number, place in enumerate(self.order * layout.turns):
            self.visit(atom, number // len(self.order), *place)
            for move in moves.get(number, ()):
                move()

    def visit_atom(self, atom: AtomHint, turn: int, step: int, mt: int, nt: int) -> None:
        """One matrix instruction."""
        staged_a, staged_b = self.tiles.staging
        c = self.acc.atom(mt, nt)
        note = f"C[{mt}][{nt}] += A[{mt}] B[{nt}], turn {turn}, step {step}"
        self.k.emit(
            self.mnemonic, c, staged_a.source(mt, step), staged_b.source(nt, step), c, note=note, **self.modifiers
        )

    def _moves(self, prefetch: bool) -> dict[int, list[Callable[[], None]]]:
        """What follows each matrix instruction of a tile, by its number.

        The next turn's fragments are read as soon as their registers are free. With `prefetch`, the next tile goes from
        registers to LDS, the loads of the one behind it follow, and a barrier in time for the reads of its first turn.
        """
        a, turn = self.operands.a, len(self.order)
        moves: dict[int, list[Callable[[], None]]] = {}

        def add(number: int, move: Callable[[], None]) -> None:
            moves.setdefault(number, []).append(move)

        barrier = 0
        if prefetch:
            barrier = self._add_prefetch(add)
        for staging, fragment in sorted(self._turn_fragments(0), key=lambda item: self._uses(*item)):
            free = self._uses(staging, fragment)[1]
            for later in range(1, a.turns):
                following = self._fragment_of(staging, fragment, later)
                add(free + (later - 1) * turn, partial(staging.read, following, later))
            if prefetch:
                add(max(barrier, free + (a.turns - 1) * turn), partial(staging.read, fragment, 0))
        return moves

    def _add_prefetch(self, add: Callable[[int, Callable[[], None]], None]) -> int:
        """Adds LDS writes, loads, the barrier and the change of stage; returns the number that the barrier follows.

        The barrier comes with the first free register of the last turn. The writes come LDS_CLOCKS of matrix instructions before
        it, so that it need not wait for them.
        """
        a, b, writes = self.operands.a, self.operands.b, self._writes()
        barrier = len(self.order) * (a.turns - 1) + (a.steps - 1) * a.atoms * b.atoms + a.atoms + b.atoms - 2
        ahead = -(-LDS_CLOCKS // (self.plan.atom.passes * CLOCKS_PER_PASS))
        room = max(min(1, barrier), barrier - ahead)
        first = max(0, room - len(writes))
        for index, write in enumerate(writes):
            add(first + index * (room - first) // len(writes), write)

        def loads() -> None:
            for address in self.tiles.write_address.values():
                self.k.v_subrev_u32(address, self.tiles.stage_step, address, note="the other stage next")
            self._load_next()

        def turn_stage() -> None:
            self.k.s_barrier(note="the next tile is in LDS, this one's fragments are read")
            assert self.tiles.stage_step is not None
            for staging in self.tiles.staging:
                staging.other_stage(self.tiles.stage_step)

        add(room, loads)
        add(barrier, turn_stage)
        return barrier

    def _turn_fragments(self, turn: int) -> list[tuple[Staging, Fragment]]:
        return [(staging, fragment) for staging in self.tiles.staging for fragment in staging.fragments(turn)]

    @staticmethod
    def _fragment_of(staging: Staging, fragment: Fragment, turn: int) -> Fragment:
        """The read of a later turn that takes the same registers."""
        return next(other for other in staging.fragments(turn) if other.registers == fragment.registers)

    def _uses(self, staging: Staging, fragment: Fragment) -> tuple[int, int]:
        """Numbers of the turn's first and last matrix instruction that read the fragment."""
        which = 1 if staging.layout is self.operands.a else 2
        numbers = [number for number, place in enumerate(self.order) if (place[which], place[0]) in fragment.feeds]
        return min(numbers), max(numbers)

    @cached_property
    def order(self) -> list[tuple[int, int, int]]:
        """(step, mt, nt) of a turn's matrix instructions: steps outermost, so that accumulators are independent.

        In the first step the square of atoms grows from the corner, so that few fragments are enough to begin; in the last
        one rows and columns end one after the other, so that registers become free long before the next turn needs them.
        """
        a, b = self.operands.a, self.operands.b
        atoms = list(product(range(a.atoms), range(b.atoms)))

        def in_step(step: int) -> list[tuple[int, int]]:
            if step == a.steps - 1:
                return sorted(atoms, key=lambda place: (min(place), place[0] > place[1], place))
            return sorted(atoms, key=lambda place: (max(place), place))

        return [(step, *place) for step in range(a.steps) for place in in_step(step)]

    # -- epilogue ----------------------------------------------------------------------------

    def _epilogue(self) -> None:
        """C in one of four ways: inside the view or clipped, with or without beta; partial products in two."""
        k, plan = self.k, self.plan
        for staging in self.tiles.staging:
            staging.release()
        k.v.free(*self.tiles.write_address.values(), listed=True)
        store = TileStore(k, self.acc, self._store_inputs())
        k.v.free(k.work_item, self.place.lane_row, self.place.group, listed=True)
        clipped = k.new_label("edge")
        k.s_cmp_lt_i32(self.place.m_left, plan.tile_m)
        k.s_cbranch_scc1(clipped)
        k.s_cmp_lt_i32(self.place.n_left, plan.tile_n)
        k.s_cbranch_scc1(clipped)
        for edge in (False, True):
            if edge:
                k.label(clipped)
            if self.split:
                k.comment("partial products" + ", clipped" * edge)
                store.emit(edge, False)
                k.s_endpgm()
            else:
                self._scaled_store(store, edge)

    def _scaled_store(self, store: TileStore, edge: bool) -> None:
        k = self.k
        without = k.new_label("beta_0")
        branch_if_zero(k, self.arguments["beta"], self.plan.problem.dtype_c == "i32", without)
        k.comment("C = alpha·A·B + beta·C" + ", clipped" * edge)
        store.emit(edge, True)
        k.s_endpgm()
        k.label(without)
        k.comment("C = alpha·A·B, C is not read" + ", clipped" * edge)
        store.emit(edge, False)
        k.s_endpgm()

    def _row_of_place(self, i: Reg, layout: TileLayout) -> None:
        """i = `TileLayout.row_of` of row i of the first atom."""
        k = self.k
        if layout.fold > 1:
            run, high = layout.atom // layout.fold, k.v.alloc("fold")
            k.v_lshrrev_b32(high, log2(run), i)
            k.v_and_b32(i, run - 1, i)
            k.v_mad_u32_u24(i, i, layout.fold, high)
            k.v.free(high)
        k.v_mul_u32_u24(i, layout.wide, i)

    def _store_inputs(self) -> StoreInputs:
        k, a, b, problem = self.k, self.operands.a, self.operands.b, self.plan.problem
        resource, stride = k.s.alloc("C buffer", 4), self.arguments["ldc"]
        k.comment("C: the lane's first row and column in the tile")
        k.s_lshl_b32(stride, stride, log2(self.size_c), note="ldc in bytes")
        matrix = self.place.batch
        if self.split:
            k.s_mul_i32(matrix, self.place.batch, self.arguments["parts"])
            k.s_add_u32(matrix, matrix, self.place.part, note="number of the partial product")
        output = "partials" if self.split else "C"
        corner, each = (self.place.m0, self.place.n0), self.arguments["batch_c"]
        tile_buffer(k, resource, self.arguments[output], output, corner, stride, self.size_c, matrix, each)
        row, column, offset = (k.v.alloc(f"C {what}") for what in ("row", "column", "offset"))
        k.v_mul_u32_u24(row, self.acc.lane_rows, self.place.group)
        self._row_of_place(row, a)
        k.v_add_u32(row, self.place.wave_row, row)
        k.v_mov_b32(column, self.place.lane_row)
        self._row_of_place(column, b)
        k.v_add_u32(column, self.place.wave_column, column)
        k.v_mul_lo_u32(offset, row, stride)
        k.v_lshl_add_u32(offset, column, log2(self.size_c), offset)
        bias = None
        if "bias" in self.arguments:
            bias = k.s.alloc("bias buffer", 4)
            shift = k.s.alloc("bias offset", 2)
            k.s_mov_b32(shift[0], self.place.n0)
            k.s_mov_b32(shift[1], 0)
            k.s_lshl_b64(shift, shift, log2(self.size_c))
            raw_buffer(k, bias, self.arguments["bias"], (shift[0], shift[1]), "bias")
            k.s.free(shift)
        epilogue = Epilogue(
            k, problem.dtype_c, None if self.split else self.arguments["alpha"], self.arguments.get("beta"),
            "none" if self.split else problem.activation,
        )  # fmt: skip
        epilogue.prepare()
        return StoreInputs(resource, row, column, offset, stride, self.place.m_left, self.place.n_left, epilogue, bias)
