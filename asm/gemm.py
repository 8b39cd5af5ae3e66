"""GEMM: C = activation(alpha·op(A)·op(B) + beta·C + bias), row-major, from the tree's plan to a kernel.

One code object serves every m, n, k, stride, batch, alpha and beta; tiles, transposes, types, bias and
activation are its own. Where the plan splits K, this kernel writes partial products that a second one
adds (`gemm_reduce`).

Per k tile: one barrier (two with one stage); the next tile's loads are in flight under this tile's
matrix instructions, and its LDS writes lie between the last of them; 128-bit LDS reads feed several
matrix instructions each (see `layout`), the next ones issued as soon as their registers are free.

Edges: a raw buffer whose out-of-range lanes read 0 and store nothing stands for the clipped view.
Tiles inside the view (in k, and in rows where those are contiguous) take wide loads; the others, and
operands that are not aligned to 4 bytes, load element by element, each with its own predicate, out of line.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from asm.emit import WAVEFRONT, EmittedKernel, emits, log2, raw_buffer
from asm.epilogue import Epilogue
from asm.gemm_operands import Operands, check, matrix_modifiers
from asm.gemm_reduce import reduce_kernel
from asm.gemm_store import Accumulators, StoreInputs, TileStore
from asm.kernel import KernelBuilder
from asm.layout import WORD, TileLayout
from asm.staging import Fragment, Staging
from asm.tile_order import NAMES, TileOrder, order_words
from hardware import mfma
from hardware.dtypes import dtype
from hardware.isa.instruction import Reg
from operators.gemm import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from operators.tiles import GemmPlan
from operators.tree import Visitor

NEVER = 0x7FFFFFFF  # more k than any view has: wide loads are never allowed
BATCH_STRIDES = ("batch_a", "batch_b", "batch_c")  # bytes from one product's matrix to the next one's
SIZES = ("m", "n", "k", "k_part", "lda", "ldb", "ldc")
# Of a k tile's matrix instructions, how many go before the LDS writes of the next tile begin.
WRITES_AFTER = (3, 4)


@emits(TiledComputation)
def emit_gemm(root: TiledComputation) -> EmittedKernel:
    """The kernel of a GEMM tree; TargetError, ResourceError, LaunchError for what cannot be."""
    return GemmEmitter(root.plan).visit(root)


class GemmEmitter(Visitor):
    """Visits the GEMM tree level by level, each emitting its part of the kernel."""

    def __init__(self, plan: GemmPlan) -> None:
        check(plan)
        self.plan = plan
        problem = plan.problem
        kinds = "".join("t" if trans else "n" for trans in (problem.trans_a, problem.trans_b))
        self.split = plan.split_k > 1
        extras = ("part",) if self.split else (*(["bias"] * problem.bias), *([problem.activation] * (problem.activation != "none")))
        name = "_".join(("gemm", problem.dtype, kinds, f"{plan.tile_m}x{plan.tile_n}x{plan.tile_k}", *extras))
        self.target = plan.descriptor.arch
        self.mnemonic = mfma.find(plan.atom.mnemonic, self.target).mnemonic
        self.modifiers = matrix_modifiers(plan)
        self.size_c = dtype(problem.dtype_c).bytes
        self.has_bias = problem.bias and not self.split
        self.k = KernelBuilder(name, self.target, plan.threads)
        self.operands = Operands.of(plan)

    def visit_device(self, root: TiledComputation) -> EmittedKernel:
        plan, k = self.plan, self.k
        k.comment(f"TiledComputation: one workgroup per {plan.tile_m}x{plan.tile_n} tile of C")
        self._arguments()
        self._coordinates()
        self._operand_buffers()
        self._output()
        block = root.first()
        assert isinstance(block, BlockGemmNode)
        self.visit(block)
        self._epilogue()
        text, used = k.finish()
        operands = ("A", "B", "C", *(["bias"] * plan.problem.bias))
        scratch, following = (), ()
        if self.split:
            following = (reduce_kernel(plan),)
            scratch = (("partials", plan.split_k * plan.problem.batch * plan.problem.m * plan.problem.n * self.size_c),)
        return EmittedKernel(
            text, k.name, self.target, plan, (plan.threads, 1, 1), (plan.blocks, 1, 1), used, self._scalars(),
            self.buffers, operands, scratch, following, tuple(k.scheduled),
        )  # fmt: skip

    # -- prologue ----------------------------------------------------------------------------

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the pointers."""
        return ("A", "B", "partials") if self.split else ("A", "B", "C", *(["bias"] * self.has_bias))

    def _scalars(self) -> tuple[int | float, ...]:
        plan, problem = self.plan, self.plan.problem
        assert problem.lda and problem.ldb and problem.ldc
        shapes = problem.stored_shapes
        element = problem.element.bytes
        ldc = problem.n if self.split else problem.ldc
        strides = (shapes[0][0] * problem.lda * element, shapes[1][0] * problem.ldb * element, problem.m * ldc * self.size_c)
        part = plan.k_steps_per_block * plan.tile_k if self.split else problem.k
        scales = [problem.alpha] if self.split else [problem.alpha, problem.beta]
        typed = [int(x) if problem.dtype_c == "i32" else float(x) for x in scales]
        sizes = (problem.m, problem.n, problem.k, part, problem.lda, problem.ldb, ldc)
        return (*strides, *typed, *sizes, *order_words(plan))

    def _arguments(self) -> None:
        k, dtype_c = self.k, self.plan.problem.dtype_c
        for name in self.buffers:
            k.argument(name, 8, "global_buffer")
        for name in BATCH_STRIDES:
            k.argument(name, 8, value_type="i64")
        for name in ("alpha",) if self.split else ("alpha", "beta"):
            k.argument(name, self.size_c, value_type=dtype_c)
        for name in SIZES:
            k.argument(name, 4, value_type="i32")
        for name in NAMES:
            k.argument(name, 4, value_type="u32")
        self.arguments = k.load_arguments()

    def _coordinates(self) -> None:
        """Tile, wave and lane: uniform ones in SGPRs."""
        k, plan, atom = self.k, self.plan, self.plan.atom
        if self.target != "gfx908":
            k.v_and_b32(k.work_item, 0x3FF, k.work_item, note="x of the packed work-item id")
        self.lane_row, self.group = k.v.alloc("i: lane's row in an atom"), k.v.alloc("g: lane group")
        wave = k.s.alloc("wave")
        k.v_lshrrev_b32(self.group, log2(WAVEFRONT), k.work_item)
        k.v_readfirstlane_b32(wave, self.group)
        k.v_and_b32(self.lane_row, atom.n - 1, k.work_item, note="i")
        k.v_and_b32(self.group, WAVEFRONT - 1, k.work_item)
        k.v_lshrrev_b32(self.group, log2(atom.n), self.group, note="g")
        self.wave_row, self.wave_column = k.s.alloc("wave's first row"), k.s.alloc("wave's first column")
        self._divide_wave(wave)
        k.s_mul_i32(self.wave_row, self.wave_row, plan.warp_m)
        k.s_mul_i32(self.wave_column, self.wave_column, plan.warp_n)
        k.s.free(wave)
        self.m0, self.n0 = k.s.alloc("I: tile's first row"), k.s.alloc("J: tile's first column")
        self.batch, self.part = k.s.alloc("product of the batch"), k.s.alloc("part of K")
        TileOrder(k, self.arguments, plan.descriptor.xcds).emit(self.m0, self.n0, self.batch, self.part)
        k.comment("tile (I, J): what is left of the view from its first element on")
        self.m_left, self.n_left = k.s.alloc("rows left"), k.s.alloc("columns left")
        k.s_mul_i32(self.m0, self.m0, plan.tile_m)
        k.s_mul_i32(self.n0, self.n0, plan.tile_n)
        k.s_sub_u32(self.m_left, self.arguments["m"], self.m0)
        k.s_sub_u32(self.n_left, self.arguments["n"], self.n0)
        self.k0, self.k_left = k.s.alloc("K: first k of the part"), k.s.alloc("k left to multiply")
        self.k_unloaded = k.s.alloc("k left to load")
        k.s_mul_i32(self.k0, self.part, self.arguments["k_part"])
        k.s_sub_u32(self.k_left, self.arguments["k"], self.k0)
        k.s_min_i32(self.k_left, self.k_left, self.arguments["k_part"])
        k.s_mov_b32(self.k_unloaded, self.k_left)

    def _divide_wave(self, wave: Reg) -> None:
        """wave_row, wave_column = divmod(wave, waves_n); a block has at most 16 waves."""
        k, waves_n = self.k, self.plan.waves_n
        k.s_mul_i32(self.wave_row, wave, -(-256 // waves_n))
        k.s_lshr_b32(self.wave_row, self.wave_row, 8, note=f"wave / {waves_n}")
        k.s_mul_i32(self.wave_column, self.wave_row, waves_n)
        k.s_sub_u32(self.wave_column, wave, self.wave_column)

    def _tile_base(self, resource: Reg, name: str, stride: Reg, outer: Reg, inner: Reg, size: int, batch: Reg, each: Reg) -> None:
        """Raw buffer at row `outer`, column `inner` of matrix number `batch`, `each` bytes apart; 64-bit arithmetic."""
        k = self.k
        offset, more = k.s.alloc("byte offset", 2), k.s.alloc("more bytes", 2)
        k.s_mul_i32(offset[0], outer, stride)
        k.s_mul_hi_u32(offset[1], outer, stride)
        k.s_mov_b32(more[0], inner)
        k.s_mov_b32(more[1], 0)
        if size > 1:
            k.s_lshl_b64(more, more, log2(size))
        k.s_add_u32(offset[0], offset[0], more[0])
        k.s_addc_u32(offset[1], offset[1], more[1])
        k.s_mul_i32(more[0], batch, each[1])
        k.s_mul_hi_u32(more[1], batch, each[0])
        k.s_add_u32(more[1], more[1], more[0])
        k.s_mul_i32(more[0], batch, each[0])
        k.s_add_u32(offset[0], offset[0], more[0])
        k.s_addc_u32(offset[1], offset[1], more[1])
        raw_buffer(k, resource, self.arguments[name], (offset[0], offset[1]), name)
        k.s.free(offset, more)

    def _operand_buffers(self) -> None:
        """Resources, addresses and LDS regions of A and B."""
        k, plan = self.k, self.plan
        self.staging: list[Staging] = []
        places = ((self.operands.a, "lda", self.m0, self.m_left, self.wave_row),
                  (self.operands.b, "ldb", self.n0, self.n_left, self.wave_column))  # fmt: skip
        scratch = k.s.alloc("scratch")
        regions = [k.region(f"{layout.name} tile, stage 0", layout.bytes) for layout, *_ in places]
        self.stage_bytes = k.lds_bytes
        if plan.stages == 2:
            k.region("the same, stage 1", self.stage_bytes)
        for (layout, ld, _, left, _), region in zip(places, regions, strict=True):
            resource = k.s.alloc(f"{layout.name} buffer", 4)
            self.staging.append(Staging(k, layout, region, resource, self.arguments[ld], left))
        for staging, (layout, ld, first, _, wave_first) in zip(self.staging, places, strict=True):
            k.comment(f"{layout.name}:({layout.rows},{layout.k}) staged through LDS, "
                      f"{'k' if layout.k_contiguous else 'rows'} contiguous{', transposed on the way' * layout.transposes}")  # fmt: skip
            if layout.element > 1:
                k.s_lshl_b32(staging.stride, staging.stride, log2(layout.element), note=f"{ld} in bytes")
            outer, inner = (first, self.k0) if layout.k_contiguous else (self.k0, first)
            each = self.arguments[f"batch_{layout.name.lower()}"]
            self._tile_base(staging.resource, layout.name, staging.stride, outer, inner, layout.element, self.batch, each)
            staging.prepare_loads()
            staging.prepare_reads(self.lane_row, self.group, wave_first, scratch)
        k.s.free(scratch)
        self._write_addresses()
        self._wide_threshold()

    def _write_addresses(self) -> None:
        """LDS write addresses: one VGPR where A and B can share it."""
        k = self.k
        self.write_address: dict[tuple[object, ...], Reg] = {}
        for staging in self.staging:
            if staging.write_key not in self.write_address:
                self.write_address[staging.write_key] = staging.write_address()
        if self.plan.stages == 2:
            self.stage_step = k.s.alloc("bytes to the other stage")
            k.s_mov_b32(self.stage_step, self.stage_bytes)

    def _wide_threshold(self) -> None:
        """wide_k: the least k left for which a tile may be loaded wide: a whole tile's, or never."""
        k, plan = self.k, self.plan
        self.wide_k = k.s.alloc("k left that allows wide loads")
        k.s_mov_b32(self.wide_k, plan.tile_k)
        rest = k.s.alloc("rest")
        for staging, size in zip(self.staging, ("m", "n"), strict=True):
            layout = staging.layout
            if layout.element < WORD:
                k.s_or_b32(rest, staging.resource[0], staging.stride)
                k.s_and_b32(rest, rest, WORD - 1)
                k.s_cselect_b32(self.wide_k, NEVER, self.wide_k, note=f"{layout.name} is not aligned to {WORD} bytes")
            if layout.k_contiguous or layout.vec == 1:
                continue
            inside = k.new_label(f"{layout.name}_inside")
            k.s_cmp_ge_i32(staging.rows_left, layout.rows)
            k.s_cbranch_scc1(inside)
            k.s_and_b32(rest, self.arguments[size], layout.vec - 1)
            k.s_cselect_b32(self.wide_k, NEVER, self.wide_k, note=f"{size} cuts a wide load of {layout.name}")
            k.label(inside)
        k.s.free(rest)

    def _output(self) -> None:
        """A wave's accumulators, set to 0 (gfx908 has no inline constant as an MFMA's C)."""
        k, plan, atom = self.k, self.plan, self.plan.atom
        a, b = self.operands.a, self.operands.b
        per_atom = atom.acc_registers
        count = a.atoms * b.atoms * per_atom
        registers = k.a.alloc("accumulators", count)
        self.acc = Accumulators(registers, a, b, per_atom, self.size_c // WORD)
        k.comment(f"C:({plan.warp_m},{plan.warp_n}) of a wave in {count} AccVGPRs")
        for number in range(count):
            k.v_accvgpr_write_b32(registers[number], 0)

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockGemmNode) -> None:
        k, plan = self.k, self.plan
        done = k.new_label("multiplied")
        warp = block.first()
        assert isinstance(warp, WarpGemmNode)
        self._skip_if_alpha_is_0(done)
        k.s_cmp_le_i32(self.k_left, 0)
        k.s_cbranch_scc1(done)
        k.comment("BlockGemmNode: the first k tile")
        self._load_next()
        for write in self._writes():
            write()
        self._toggle_writes()
        k.comment(f"BlockGemmNode: for K in {plan.tile_k}s, {plan.stages} stage(s) in LDS")
        with k.loop("k_tile", self.k_left, plan.tile_k) as loop:
            k.s_barrier(note="the tile is in LDS")
            self.visit(warp)
            loop.countdown()
            if plan.stages == 1:
                k.s_barrier(note="all waves have read the tile")
                for write in self._writes():
                    write()
            else:
                for staging in self.staging:
                    address = staging.read_address
                    k.v_add_u32(address, self.stage_step, address, note="the other stage")
                k.s_sub_u32(self.stage_step, 0, self.stage_step)
                self._toggle_writes()
        k.label(done)

    def _skip_if_alpha_is_0(self, done: str) -> None:
        k, alpha = self.k, self.arguments["alpha"]
        k.comment("alpha = 0: A and B are not read")
        magnitude = k.s.alloc("magnitude")
        if self.plan.problem.dtype_c == "i32":
            k.s_mov_b32(magnitude, alpha)
        else:
            k.s_and_b32(magnitude, alpha[alpha.count - 1], 0x7FFFFFFF)
        if alpha.count == 2:
            k.s_or_b32(magnitude, magnitude, alpha[0])
        k.s_cmp_eq_u32(magnitude, 0)
        k.s_cbranch_scc1(done)
        k.s.free(magnitude)

    def _load_next(self) -> None:
        """Starts the loads of the next k tile, if there is one."""
        k = self.k
        loaded = k.new_label("loaded")
        with k.out_of_line("clipped", loaded) as clipped:
            k.comment("a tile that an edge cuts (or none): element by element")
            k.s_cmp_le_i32(self.k_unloaded, 0)
            k.s_cbranch_scc1(loaded)
            for staging in self.staging:
                staging.load_clipped(self.k_unloaded)
        k.s_cmp_ge_i32(self.k_unloaded, self.wide_k)
        k.s_cbranch_scc0(clipped)
        for staging in self.staging:
            staging.load()
        k.label(loaded)
        for staging in self.staging:
            staging.advance()
        k.s_sub_u32(self.k_unloaded, self.k_unloaded, self.plan.tile_k)

    def _writes(self) -> list[Callable[[], None]]:
        """Staged registers to LDS, one call an LDS write."""
        return [
            write for staging in self.staging for write in staging.writes(self.write_address[staging.write_key])
        ]

    def _toggle_writes(self) -> None:
        """The write addresses alternate between the stages."""
        if self.plan.stages == 2:
            for address in self.write_address.values():
                self.k.v_add_u32(address, self.stage_step, address, note="the other stage next")

    def visit_warp(self, warp: WarpGemmNode) -> None:
        """Fragments and matrix instructions of one k tile, all turns unrolled."""
        layout = self.operands.a
        atom = warp.first()
        assert isinstance(atom, AtomHint)
        self.k.comment(f"WarpGemmNode: {layout.turns} turn(s) of {layout.span * layout.reads} k")
        for staging, fragment in sorted(self._turn_fragments(0), key=lambda item: self._uses(*item)[0]):
            staging.read(fragment, 0)
        self._load_next()
        between = self._writes_between() if self.plan.stages == 2 else {}
        for turn in range(layout.turns):
            self.visit(atom, turn, between)

    @property
    def _instructions(self) -> int:
        """Matrix instructions of a turn."""
        return self.operands.a.steps * self.operands.a.atoms * self.operands.b.atoms

    def _writes_between(self) -> dict[int, list[Callable[[], None]]]:
        """The next tile's LDS writes by the number of the matrix instruction that they follow."""
        writes, total = self._writes(), self._instructions * self.operands.a.turns
        first = total * WRITES_AFTER[0] // WRITES_AFTER[1]
        between: dict[int, list[Callable[[], None]]] = {}
        for index, write in enumerate(writes):
            between.setdefault(first + index * (total - first) // len(writes), []).append(write)
        return between

    def _turn_fragments(self, turn: int) -> list[tuple[Staging, Fragment]]:
        return [(staging, fragment) for staging in self.staging for fragment in staging.fragments(turn)]

    def _uses(self, staging: Staging, fragment: Fragment) -> tuple[int, int]:
        """Numbers of the turn's first and last matrix instruction that read the fragment."""
        a, b = self.operands.a, self.operands.b
        stride, others = (b.atoms, b.atoms - 1) if staging.layout is a else (1, (a.atoms - 1) * b.atoms)
        numbers = [step * a.atoms * b.atoms + t * stride for t, step in fragment.feeds]
        return min(numbers), max(numbers) + others

    def visit_atom(self, atom: AtomHint, turn: int, between: dict[int, list[Callable[[], None]]]) -> None:
        """Matrix instructions of a turn: steps outermost, so that accumulators are independent.

        The next turn's fragments are read as soon as the registers that they take are done with.
        """
        k, (staged_a, staged_b), a, b = self.k, self.staging, self.operands.a, self.operands.b
        following = self._turn_fragments(turn + 1) if turn + 1 < a.turns else []
        reads: dict[int, list[tuple[Staging, Fragment]]] = {}
        for staging, fragment in following:
            reads.setdefault(self._uses(staging, fragment)[1], []).append((staging, fragment))
        order = product(range(a.steps), range(a.atoms), range(b.atoms))
        for number, (step, mt, nt) in enumerate(order):
            c = self.acc.atom(mt, nt)
            note = f"C[{mt}][{nt}] += A[{mt}] B[{nt}], turn {turn}, step {step}"
            k.emit(self.mnemonic, c, staged_a.source(mt, step), staged_b.source(nt, step), c, note=note, **self.modifiers)
            for staging, fragment in reads.get(number, ()):
                staging.read(fragment, turn + 1)
            for write in between.get(turn * self._instructions + number, ()):
                write()

    # -- epilogue ----------------------------------------------------------------------------

    def _epilogue(self) -> None:
        """C in one of four ways: inside the view or clipped, with or without beta; partial products in two."""
        k, plan = self.k, self.plan
        budget = max(k.v.in_use, plan.resources.arch_vgprs)
        for staging in self.staging:
            staging.release()
        k.v.free(*self.write_address.values(), listed=True)
        store = TileStore(k, self.acc, self._store_inputs(), budget)
        k.v.free(k.work_item, self.lane_row, self.group, listed=True)
        clipped = k.new_label("edge")
        k.s_cmp_lt_i32(self.m_left, plan.tile_m)
        k.s_cbranch_scc1(clipped)
        k.s_cmp_lt_i32(self.n_left, plan.tile_n)
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
        k, beta, scratch = self.k, self.arguments["beta"], self.k.s.alloc("scratch")
        without = k.new_label("beta_0")
        if self.plan.problem.dtype_c == "i32":
            k.s_mov_b32(scratch, beta)
        else:
            k.s_and_b32(scratch, beta[beta.count - 1], 0x7FFFFFFF)
        if beta.count == 2:
            k.s_or_b32(scratch, scratch, beta[0])
        k.s_cmp_eq_u32(scratch, 0)
        k.s_cbranch_scc1(without)
        k.s.free(scratch)
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
        matrix = self.batch
        if self.split:
            k.s_mul_i32(matrix, self.batch, self.arguments["parts"])
            k.s_add_u32(matrix, matrix, self.part, note="number of the partial product")
        output = "partials" if self.split else "C"
        self._tile_base(resource, output, stride, self.m0, self.n0, self.size_c, matrix, self.arguments["batch_c"])
        row, column, offset = (k.v.alloc(f"C {what}") for what in ("row", "column", "offset"))
        k.v_mul_u32_u24(row, self.acc.lane_rows, self.group)
        self._row_of_place(row, a)
        k.v_add_u32(row, self.wave_row, row)
        k.v_mov_b32(column, self.lane_row)
        self._row_of_place(column, b)
        k.v_add_u32(column, self.wave_column, column)
        k.v_mul_lo_u32(offset, row, stride)
        k.v_lshl_add_u32(offset, column, log2(self.size_c), offset)
        bias = None
        if self.has_bias:
            bias = k.s.alloc("bias buffer", 4)
            shift = k.s.alloc("bias offset", 2)
            k.s_mov_b32(shift[0], self.n0)
            k.s_mov_b32(shift[1], 0)
            k.s_lshl_b64(shift, shift, log2(self.size_c))
            raw_buffer(k, bias, self.arguments["bias"], (shift[0], shift[1]), "bias")
            k.s.free(shift)
        epilogue = Epilogue(
            k, problem.dtype_c, None if self.split else self.arguments["alpha"], self.arguments.get("beta"),
            "none" if self.split else problem.activation,
        )  # fmt: skip
        epilogue.prepare()
        return StoreInputs(resource, row, column, offset, stride, self.m_left, self.n_left, epilogue, bias)
