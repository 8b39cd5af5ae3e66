"""GEMM: C = activation(alpha·op(A)·op(B) + beta·C + bias) + R, row-major, from the tree to a kernel.

m, n, k, strides, batch, alpha and beta are kernel arguments. Tiles, transposes, types, bias and activation are compiled in. If
the plan splits K, this kernel writes partial products that a second kernel adds (reduce.py).

The main loop is a software pipeline over two LDS stages, with one barrier a k tile. During the matrix instructions of tile t,
tile t+1 goes from registers to LDS, and the loads of t+2 reuse its registers. After the barrier, the fragments of t+1 are read
as the registers of t's become free. 128-bit LDS reads feed several matrix instructions each (operators.gemm.layout). The last tile
is a copy of the loop body without the moves. With one stage there are two barriers a tile.

Operands loaded by whole cache lines have their own loop (lines.py).

Edges: raw buffers, whose out-of-range lanes read 0 and store nothing, implement the clipped view. Rows of any length and
alignment are loaded and stored by chunks. A load at the end of a row brings elements of the next one, for rows or columns of C
that are not stored. The last tile of k, which has no next row, is loaded by other code with each row's last chunk earlier
(parts/buffers.py), out of line if the plan's k needs none (`UsualTiles`). A group of C's columns that the view's end cuts is
stored by elements. Only rows that are shorter than a chunk are loaded by elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import chain

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.interleave import Backlog, stream
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.builder.waits import Item, Label
from simgpu.asm.gemm.block_scales import BlockScales
from simgpu.asm.gemm.ending import Ending
from simgpu.asm.gemm.leaves import MappedStaging, RowValues
from simgpu.asm.gemm.lines import Pace
from simgpu.asm.gemm.operands import UsualTiles, check, second_pass
from simgpu.asm.gemm.prologue import (
    clear_accumulators,
    epilogue_names,
    epilogue_pointers,
    find_place,
    load_arguments,
    loop_pointers,
    operand_tiles,
    scalars,
)
from simgpu.asm.gemm.reduce import Reduction
from simgpu.asm.gemm.tile_order import workgroups
from simgpu.asm.gemm.turn import Fragments, SpreadUnit, Turn, add_writes_and_loads
from simgpu.asm.parts.integer_math import compare_with_zero
from simgpu.asm.parts.matrix import matrix_instruction
from simgpu.asm.parts.staging import Staging
from simgpu.asm.parts.whole_lines import WholeLineStaging
from simgpu.asm.visitor import emit
from simgpu.hardware.dtypes import dtype
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from simgpu.operators.tree import Visitor


@emit.register(TiledComputation)
def emit_gemm(root: TiledComputation) -> EmittedKernel:
    """Returns the kernel of a GEMM tree. TargetError, ResourceError or LaunchError if the plan has no kernel."""
    return GemmEmitter(root).visit(root)


Moves = dict[int, list[Callable[[], None]]]


class Prefetch(Enum):
    """Loads that a k tile's matrix instructions overlap."""

    NONE = ", the last tile"
    ANY = ""  # the loads of a tile that an edge may cut
    WHOLE = ", inside the view"  # the loads of a tile inside the view


class GemmEmitter(Visitor):
    """Visits the GEMM tree; each level emits its part of the kernel."""

    def __init__(self, root: TiledComputation) -> None:
        plan, block = root.plan, root.first()
        assert isinstance(block, BlockGemmNode)
        check(plan)
        self.plan, self.split, self.operands = plan, second_pass(plan), TileLayouts.of(block)
        problem, target = plan.problem, plan.descriptor.arch
        kinds = "".join("t" if trans else "n" for trans in (problem.trans_a, problem.trans_b))
        extras = (f"{problem.scales}_scales",) * problem.scales_in_loop + ("part",) if self.split else epilogue_names(problem)
        types = dict.fromkeys((problem.dtype, problem.dtype_b))
        kinds += "p" * problem.preshuffle_b
        tile = f"{self.operands.a.rows}x{self.operands.b.rows}x{self.operands.tile_k}"
        name = "_".join(("gemm", *types, kinds, tile, *extras))
        self.turn, self.usual = Turn(plan, self.operands), UsualTiles.of(plan, self.operands)
        self.k = KernelBuilder(name, target, plan.threads, plan=plan.resources)
        self.mnemonic, self.modifiers = matrix_instruction(plan.atom, target, problem.dtype)
        self.size_c = dtype(problem.accumulator if self.split else problem.dtype_c).bytes

    def visit_device(self, root: TiledComputation) -> EmittedKernel:
        plan, k = self.plan, self.k
        k.comment(f"TiledComputation: one workgroup per {self.operands.a.rows}x{self.operands.b.rows} tile of C")
        self.arguments = load_arguments(k, plan)
        self.place = find_place(k, plan, self.operands, self.arguments)
        block = root.first()
        assert isinstance(block, BlockGemmNode)
        with k.block_registers() as kept:
            scaled = plan.problem.scales == "block"
            self.scales = BlockScales(k, plan, self.operands.a, self.arguments, self.place) if scaled else None
            self.tiles = operand_tiles(k, plan, self.operands, self.arguments, self.place)
            self.fragments = Fragments(self.turn, self.tiles.moved_operands)
            self.acc = clear_accumulators(k, plan, self.operands)
            self.visit(block)
            staged_a = self.tiles.staging[0]
            kept += [self.acc.registers, *(staged_a.sums if isinstance(staged_a, MappedStaging) else ())]
        rows = None
        if isinstance(staged_a, MappedStaging):
            rows = RowValues(k, plan, staged_a)
            rows.emit()
        Ending(k, plan, self.operands, self.arguments, self.place, self.acc, rows).emit()
        kernel = k.finish(plan=plan, grid=(workgroups(root), 1, 1), scalars=scalars(root))
        if not self.split:
            return kernel
        partials = root.trips("k") * root.trips("batch") * root.views[2].rows.max_ * root.views[2].cols.max_ * self.size_c
        operands = ("A", "B", "C", *epilogue_pointers(plan.problem), *loop_pointers(plan.problem))
        return replace(kernel, operands=operands, scratch=(("partials", partials),), following=(Reduction(root).emit(),))

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockGemmNode) -> None:
        k = self.k
        done = k.new_label("multiplied")
        warp = block.first()
        assert isinstance(warp, WarpGemmNode)
        k.comment("alpha = 0: A and B are not read")
        k.branch(compare_with_zero(k, self.arguments["alpha"], self.plan.problem.epilogue_type == "i32"), done)
        k.branch(k.s_cmp_le_i32(self.place.k_left, 0), done)
        if self.tiles.lines is not None:
            k.comment("BlockGemmNode: four K steps are three cache lines of a row")
            last = partial(self.visit, warp, Prefetch.NONE)
            self.tiles.lines.loop(self._pace(), partial(self.visit, warp, Prefetch.WHOLE), last, self._read_first_turn)
        else:
            self._tile_loop(block, warp)
        k.label(done)

    def _tile_loop(self, block: BlockGemmNode, warp: WarpGemmNode) -> None:
        """Emits the loop over K steps through stages of LDS."""
        k, plan = self.k, self.plan
        k.comment("BlockGemmNode: the first k tile")
        for staging in self.tiles.staging:
            if isinstance(staging, WholeLineStaging):
                staging.load_first(self.place.k_unloaded)
        self._load_next()
        if self.scales is not None:
            self.scales.load()
        self._move_ends(likely=not self.usual.is_whole(0))
        for write in self._writes():
            write()
        if self.scales is not None:
            self.scales.write(first=True)
            self.scales.load()
        k.comment(f"BlockGemmNode: for K in {block.loop('k').tile}s, {plan.stages} stage(s) in LDS")
        if plan.stages == 2:
            self._pipelined_loop(block, warp)
        else:
            with k.loop("k_tile", self.place.k_left, block.loop("k").tile) as loop:
                k.s_barrier(note="the tile is in LDS")
                self._read_first_turn()
                self._load_next()
                self.visit(warp, Prefetch.NONE)
                loop.countdown()
                k.s_barrier(note="all waves have read the tile")
                if self.scales is not None:
                    self.scales.point()
                    self.scales.next_tile()
                self._move_ends()
                for write in self._writes():
                    write()

    def _pipelined_loop(self, block: BlockGemmNode, warp: WarpGemmNode) -> None:
        """Emits the pipelined loop. All tiles except the last prefetch."""
        k, step = self.k, block.loop("k").tile
        last = k.new_label("last_tile")
        for address in self.tiles.write_addresses:
            k.v_add_u32(address, self.tiles.stage_step, address, note="the other stage next")
        self._load_next(1)
        k.s_barrier(note="the first tile is in LDS")
        self._read_first_turn()
        k.s_sub_u32(self.place.k_left, self.place.k_left, step, note="k behind this tile")
        k.branch(k.s_cmp_le_i32(self.place.k_left, 0), last)
        self._whole_tiles(warp)
        k.branch(k.s_cmp_le_i32(self.place.k_left, 0), last)
        with k.loop("k_tile", self.place.k_left, step):
            self.visit(warp, Prefetch.ANY)
        k.label(last)
        self.visit(warp, Prefetch.NONE)

    def _whole_tiles(self, warp: WarpGemmNode) -> None:
        """Emits the loop over loads of whole tiles, which go between matrix instructions."""
        k, top = self.k, self.k.new_label("whole_tile")
        whole = k.s_cmp_ge_i32(self.place.k_unloaded, self.tiles.wide_k)
        with k.aside(whole, "whole_tiles", "whole_tiles_end", likely=self.usual.is_whole(2)):
            k.label(top)
            self.visit(warp, Prefetch.WHOLE)
            k.s_cbranch_scc1(top)

    def _load_last(self) -> None:
        """Starts the loads of the next k tile, if there is one, after the loop over whole tiles: its loads are clipped."""
        k = self.k
        with k.aside(k.s_cmp_gt_i32(self.place.k_unloaded, 0), "clipped", "loaded", likely=self.usual.in_last_loop):
            for staging in self.tiles.tiled_operands:
                staging.load_clipped(self.place.k_unloaded)
        self._advance()

    def _load_next(self, number: int = 0) -> None:
        """Starts the loads of the next k tile, if there is one. number: of the tile, if it is one of the first two."""
        k = self.k
        loaded = k.new_label("loaded")

        def load_whole() -> None:
            for staging in self.tiles.tiled_operands:
                for load in chain(*staging.loads()):
                    load()

        def load_clipped() -> None:
            k.comment("a tile that an edge cuts (or none): to the ends of the rows")
            k.branch(k.s_cmp_le_i32(self.place.k_unloaded, 0), loaded)
            for staging in self.tiles.tiled_operands:
                staging.load_clipped(self.place.k_unloaded)

        here, other = (load_whole, load_clipped) if self.usual.is_whole(number) else (load_clipped, load_whole)
        with k.out_of_line("clipped" if here is load_whole else "whole", loaded) as start:
            other()
        k.s_cmp_ge_i32(self.place.k_unloaded, self.tiles.wide_k)
        k.branch("scc0" if here is load_whole else "scc1", start)
        here()
        k.label(loaded)
        self._advance()

    def _move_ends(self, likely: bool = False) -> None:
        """Moves chunks at the ends of rows to their places, if the loaded tile was clipped. likely: True if most are."""
        k, left = self.k, self.k.s.alloc("k left of the tile")
        k.s_add_u32(left, self.place.k_unloaded, self.operands.tile_k)
        with k.aside(k.s_cmp_lt_i32(left, self.tiles.wide_k), "row_ends", "ends_moved", likely=likely):
            for staging in self.tiles.tiled_operands:
                if isinstance(staging, Staging):
                    staging.move_ends(left)
        k.s.free(left)

    def _advance(self) -> None:
        """Advances to the k tile after the loaded one."""
        for staging in self.tiles.tiled_operands:
            staging.advance()
        self.k.s_sub_u32(self.place.k_unloaded, self.place.k_unloaded, self.operands.tile_k)

    def _writes(self) -> list[Callable[[], None]]:
        """Returns calls that write staged registers to LDS, one for each write."""
        tiles = [staging.writes(self.tiles.write_address[staging.write_key]) for staging in self.tiles.tiled_operands]
        return list(chain(*tiles))

    def _read_first_turn(self) -> None:
        """Reads the fragments that a tile starts with, in the order of their use, after the scales."""
        if self.scales is not None:
            carried = {mt for _, (_, mt, _, _) in self.turn.carried_products()}
            self.scales.clear(carried)
            for mt in range(self.operands.a.atoms):
                if mt not in carried:
                    self.scales.read(mt)
        left = [(staging, fragment) for _, staging, fragment in self.fragments.inherited_reads]
        for staging, fragment in sorted(self.fragments.first, key=lambda item: self.fragments.uses(*item)[0]):
            if (staging, fragment) not in left:
                staging.read(fragment, 0)

    def visit_warp(self, warp: WarpGemmNode, prefetch: Prefetch, phase: int = 0) -> None:
        """Emits one k tile, whose first fragments are already being read.

        phase: 0 to 3 if operands are loaded by cache lines (`lines`), else 0.
        """
        layout = self.operands.a
        atom = warp.first()
        assert isinstance(atom, AtomHint)
        self.k.comment(f"WarpGemmNode: {layout.turns} turn(s) of {layout.turn_k} k{prefetch.value}")
        moves, sums = self._moves(prefetch, phase)
        places: list[tuple[list[Item], ...]] = []
        for number, place in enumerate(self.turn.order * layout.turns):
            with stream(self.k) as product:
                self.visit(atom, number // len(self.turn.order), *place)
            with stream(self.k) as hidden:
                for move in moves.get(number, ()):
                    move()
            with stream(self.k) as urgent:
                for add in sums.get(number, ()):
                    add()
            places.append((product, hidden, urgent))
        instructions = sum(isinstance(item, Instr) for _, *others in places for items in others for item in items)
        backlog = Backlog(self.k, max(self.turn.room, instructions / self.turn.count))
        for product, hidden, urgent in places:
            backlog.emit(product)
            backlog.hide(hidden, urgent)
            if any(isinstance(item, Label) for item in hidden):
                backlog.flush()
        backlog.flush()

    def visit_atom(self, atom: AtomHint, turn: int, step: int, mt: int, nt: int) -> None:
        """Emits one matrix instruction."""
        staged_a, staged_b = self.tiles.staging
        d = self.acc.atom(mt, nt)
        c: Operand = d
        what = f"C[{mt}][{nt}] +="
        if self.scales is not None:
            d = self.scales.products(self.turn.atom_number(turn, mt, nt))
            c, what = (d, "products +=") if step else (0, "products =")
        note = f"{what} A[{mt}] B[{nt}], turn {turn}, step {step}"
        factors = [scale.source(t) for scale, t in zip(self.tiles.scales, (mt, nt), strict=False)]
        self.k.emit(
            self.mnemonic, d, staged_a.source(mt, step), staged_b.source(nt, step), c, *factors, note=note, **self.modifiers
        )

    def _moves(self, prefetch: Prefetch, phase: int) -> tuple[Moves, Moves]:
        """Returns the moves, and the additions of scaled products, that follow each matrix instruction of a tile, by its number.

        The next turn's fragments are read as soon as their registers are free. With a prefetch, the next tile goes from
        registers to LDS and the loads of the one after it follow. A barrier precedes the reads of the next tile's first turn.
        """
        a, turn = self.operands.a, len(self.turn.order)
        moves: Moves = {}

        def add(number: int, move: Callable[[], None]) -> None:
            moves.setdefault(number, []).append(move)

        count, barrier = self.turn.count, self.fragments.barriers[prefetch is Prefetch.WHOLE]
        for number, staging, fragment in self.fragments.inherited_reads:
            add(number, partial(staging.read, fragment, 0))
        if prefetch is not Prefetch.NONE:
            self._add_prefetch(add, prefetch is Prefetch.WHOLE, barrier, phase)
        if prefetch is Prefetch.WHOLE:
            lines = self.tiles.lines
            # the last move, so that nothing after it changes SCC
            add(max(moves), self._count_down if lines is None else lines.count_down)
        sums = self._scaled_sums(add, barrier, prefetch)
        for number, staging, fragment in self.fragments.next_reads:
            free = self.fragments.uses(staging, fragment)[1]
            for later in range(1, a.turns):
                following = self.fragments.read_of_turn(staging, fragment, later)
                add(free + (later - 1) * turn, partial(staging.read, following, later))
            if prefetch is not Prefetch.NONE and number < count:
                add(max(barrier, number), partial(staging.read, fragment, 0))
        return moves, sums

    def _count_down(self) -> None:
        """Sets SCC if the loop of whole tiles continues."""
        self.k.s_sub_u32(self.place.k_left, self.place.k_left, self.operands.tile_k)
        self.k.s_cmp_ge_i32(self.place.k_unloaded, self.tiles.wide_k)

    def _scaled_sums(self, add: Callable[[int, Callable[[], None]], None], barrier: int, prefetch: Prefetch) -> Moves:
        """Returns the additions of each atom's scaled products, by the number of the matrix instruction that they follow.

        With a prefetch, also adds the reads of the next tile's scales, after the barrier and the last use of an atom's scales.
        Additions that would follow a tile's last matrix instruction are emitted among the first ones of the next tile, before the
        reads of their rows' scales.
        """
        scales, sums = self.scales, Moves()
        if scales is None:
            return sums
        end, carried = self.operands.a.turns * len(self.turn.order) - 1, self.turn.carried_products()
        rows = {mt: number for number, (_, mt, _, _) in carried}
        for number, atom in carried:
            sums.setdefault(number, []).append(partial(scales.add, self.acc, *atom))
        for mt, number in rows.items():
            add(number, partial(scales.read, mt))
        behind: dict[int, int] = {}
        for number, atom in self.turn.scaled_products():
            if number <= end or not carried or prefetch is Prefetch.NONE:
                sums.setdefault(min(number, end), []).append(partial(scales.add, self.acc, *atom))
                behind[atom[1]] = min(number, end)
        for mt in behind.keys() - rows.keys() if prefetch is not Prefetch.NONE else ():
            add(max(barrier, behind[mt]), partial(scales.read, mt))
        return sums

    def _add_prefetch(self, add: Callable[[int, Callable[[], None]], None], whole: bool, barrier: int, phase: int) -> None:
        """Adds LDS writes, loads, the barrier and the change of stage.

        The writes end LDS_CLOCKS before the barrier, so that it need not wait for them.

        In a tile that is known to be inside the view, the moves are spread evenly: the vector cache accepts loads one at a time,
        and a wave that waits for it issues no matrix instruction. Loads are spread over the whole tile, each after the write that
        frees its registers. If the last one would arrive too late for its write in the next tile, the loads are earlier.
        """
        count, room, step = self.turn.count, self._room(barrier), self.tiles.stage_step
        assert step is not None
        lines = self.tiles.lines
        if lines is not None:
            add(lines.add_moves(add, phase, self._pace()), lines.next_scales)
        elif whole:
            add(add_writes_and_loads(add, self._units(), room, count, self._behind_loads, self.turn.memory_wait), self._advance)
        else:
            writes = self._writes()
            first = max(0, room - len(writes))
            add(first, partial(self._move_ends, self.usual.cut))
            for index, write in enumerate(writes):
                add(first + index * (room - first) // len(writes), write)

        def turn_writes() -> None:
            for address in self.tiles.write_addresses:
                self.k.v_subrev_u32(address, step, address, note="the other stage next")
            if lines is not None:
                lines.step_write_line(phase)

        def turn_stage() -> None:
            self.k.s_barrier(note="the next tile is in LDS, this one's fragments are read")
            self.k.s_sub_u32(step, 0, step)
            if self.scales is not None:
                self.scales.point()

        add(room, turn_writes)
        if not whole:
            add(room, self._load_last)
        # This tile's last reads precede the switch: those of the last turn, and those that the previous tile left.
        begun = max([count - len(self.turn.order), *(number + 1 for number, *_ in self.fragments.inherited_reads)])
        turns: list[Callable[[], None]] = [partial(staging.other_stage, step) for staging in self.tiles.tiled_operands]
        if lines is not None:
            turns.append(lines.read.step)
        for number, turn in enumerate(turns, barrier - len(turns)):
            add(min(barrier, max(begun, number)), turn)
        add(barrier, turn_stage)
        if self.scales is not None:
            add(barrier, self.scales.next_tile)

    def _room(self, barrier: int) -> int:
        """Returns the number of the matrix instruction before which a tile's LDS writes end."""
        return max(min(1, barrier), barrier - self.turn.lds_wait)

    @property
    def _behind_loads(self) -> int:
        """Matrix instructions after a tile's last load that hide advancing the buffers and counting down."""
        return -(-(2 * len(self.tiles.moved_operands) + 4) // self.turn.room)

    def _pace(self) -> Pace:
        turn, lines = self.turn, self.tiles.lines
        assert lines is not None
        room, end = self._room(self.fragments.barriers[1]), turn.count - self._behind_loads
        held = sum(staging.held for staging in lines.staging)
        return Pace(turn.count, room, end, turn.memory_wait, len(lines.scales), len(lines.line), held)

    def _units(self) -> list[SpreadUnit]:
        """Returns the LDS writes and loads of a tile, by staging unit (`Staging.loads`)."""
        units = []
        for staging in self.tiles.tiled_operands:
            every, loads = staging.writes(self.tiles.write_address[staging.write_key]), staging.loads()
            each = len(every) // len(loads)
            pace = 2 * staging.staged.count // len(every) * WORD * self.plan.threads / self.turn.write_rate
            units += [SpreadUnit(every[number * each : (number + 1) * each], unit, pace) for number, unit in enumerate(loads)]
        return units
