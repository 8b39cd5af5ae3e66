"""GEMM: C = alpha·op(A)·op(B) + beta·C, row-major, from the tree's plan to a kernel.

One code object serves every m, n, k, stride, alpha and beta; tiles and transposes are its own.
Per k tile: one barrier (two with one stage), the next tile's loads in flight under this tile's
matrix instructions, 128-bit LDS reads that feed several of them (see `layout`).

Edges: a raw buffer whose out-of-range lanes read 0 and store nothing stands for the clipped view.
Tiles inside the view (in k, and in rows where those are contiguous) take wide loads; the others
load element by element, each with its own predicate, out of line.
"""

from __future__ import annotations

from itertools import product

from asm.emit import WAVEFRONT, EmittedKernel, emits, log2, raw_buffer
from asm.gemm_operands import Operands, check
from asm.gemm_store import Accumulators, StoreInputs, TileStore
from asm.kernel import KernelBuilder
from asm.layout import WORD
from asm.staging import Fragment, Staging
from hardware import mfma
from hardware.isa.instruction import Reg
from operators.gemm import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from operators.tiles import GemmPlan
from operators.tree import Visitor

NEVER = 0x7FFFFFFF  # more k than any view has: wide loads are never allowed
SCALARS = ("m", "n", "k", "lda", "ldb", "ldc")


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
        name = f"gemm_{problem.dtype}_{kinds}_{plan.tile_m}x{plan.tile_n}x{plan.tile_k}"
        self.target = plan.descriptor.arch
        self.mnemonic = mfma.find(plan.atom.mnemonic, self.target).mnemonic
        self.k = KernelBuilder(name, self.target, plan.threads)
        self.operands = Operands.of(plan)

    def visit_device(self, root: TiledComputation) -> EmittedKernel:
        plan, problem, k = self.plan, self.plan.problem, self.k
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
        gx, gy = plan.grid
        assert problem.lda and problem.ldb and problem.ldc
        sizes = (problem.m, problem.n, problem.k, problem.lda, problem.ldb, problem.ldc)
        scalars = (*sizes, float(problem.alpha), float(problem.beta))
        return EmittedKernel(
            text, k.name, self.target, plan, (plan.threads, 1, 1), (gx, gy, 1), used, scalars
        )

    # -- prologue ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        k = self.k
        for name in "ABC":
            k.argument(name, 8, "global_buffer")
        for name in SCALARS:
            k.argument(name, 4, value_type="i32")
        for name in ("alpha", "beta"):
            k.argument(name, 4, value_type="f32")
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
        k.comment("tile (I, J) = workgroup id (y, x); what is left of the view from its first element on")
        self.m0, self.n0 = k.s.alloc("I: tile's first row"), k.s.alloc("J: tile's first column")
        self.m_left, self.n_left = k.s.alloc("rows left"), k.s.alloc("columns left")
        k.s_mul_i32(self.m0, k.group_y, plan.tile_m)
        k.s_mul_i32(self.n0, k.group_x, plan.tile_n)
        k.s_sub_u32(self.m_left, self.arguments["m"], self.m0)
        k.s_sub_u32(self.n_left, self.arguments["n"], self.n0)
        self.k_left, self.k_unloaded = k.s.alloc("k left to multiply"), k.s.alloc("k left to load")
        k.s_mov_b32(self.k_left, self.arguments["k"])
        k.s_mov_b32(self.k_unloaded, self.arguments["k"])

    def _divide_wave(self, wave: Reg) -> None:
        """wave_row, wave_column = divmod(wave, waves_n); a block has at most 16 waves."""
        k, waves_n = self.k, self.plan.waves_n
        k.s_mul_i32(self.wave_row, wave, -(-256 // waves_n))
        k.s_lshr_b32(self.wave_row, self.wave_row, 8, note=f"wave / {waves_n}")
        k.s_mul_i32(self.wave_column, self.wave_row, waves_n)
        k.s_sub_u32(self.wave_column, wave, self.wave_column)

    def _tile_base(self, resource: Reg, name: str, stride: Reg, outer: Reg, inner: Reg | None) -> None:
        """Raw buffer at row `outer`, column `inner` of a row-major matrix; 64-bit arithmetic."""
        k = self.k
        offset = k.s.alloc("byte offset", 2)
        k.s_mul_i32(offset[0], outer, stride)
        k.s_mul_hi_u32(offset[1], outer, stride)
        if inner is not None:
            column = k.s.alloc("column bytes", 2)
            k.s_mov_b32(column[0], inner)
            k.s_mov_b32(column[1], 0)
            k.s_lshl_b64(column, column, 2)
            k.s_add_u32(offset[0], offset[0], column[0])
            k.s_addc_u32(offset[1], offset[1], column[1])
            k.s.free(column)
        raw_buffer(k, resource, self.arguments[name], (offset[0], offset[1]), name)
        k.s.free(offset)

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
        zero = k.s.alloc("0")
        k.s_mov_b32(zero, 0)
        for (layout, ld, _, left, _), region in zip(places, regions, strict=True):
            resource = k.s.alloc(f"{layout.name} buffer", 4)
            self.staging.append(Staging(k, layout, region, resource, self.arguments[ld], left))
        for staging, (layout, ld, first, _, wave_first) in zip(self.staging, places, strict=True):
            k.comment(f"{layout.name}:({layout.rows},{layout.k}) staged through LDS, "
                      f"{'k' if layout.k_contiguous else 'rows'} contiguous")  # fmt: skip
            k.s_lshl_b32(staging.stride, staging.stride, 2, note=f"{ld} in bytes")
            outer, inner = (first, None) if layout.k_contiguous else (zero, first)
            self._tile_base(staging.resource, layout.name, staging.stride, outer, inner)
            staging.prepare_loads()
            staging.prepare_reads(self.lane_row, self.group, wave_first, scratch)
        k.s.free(scratch, zero)
        self._write_addresses()
        self._wide_threshold()

    def _write_addresses(self) -> None:
        """LDS write addresses: one VGPR where A and B can share it."""
        k = self.k
        self.write_address: dict[tuple[int, int], Reg] = {}
        for staging in self.staging:
            key = staging.layout.vec, staging.write_base
            if key not in self.write_address:
                address = self.write_address[key] = k.v.alloc("LDS write address")
                k.v_mul_u32_u24(address, staging.layout.vec * WORD, k.work_item)
                if staging.write_base:
                    k.v_add_u32(address, staging.write_base, address)
        if self.plan.stages == 2:
            self.stage_step = k.s.alloc("bytes to the other stage")
            k.s_mov_b32(self.stage_step, self.stage_bytes)

    def _wide_threshold(self) -> None:
        """wide_k: the least k left for which a tile may be loaded wide: a whole tile's, or never."""
        k, plan = self.k, self.plan
        self.wide_k = k.s.alloc("k left that allows wide loads")
        k.s_mov_b32(self.wide_k, plan.tile_k)
        for staging, size in zip(self.staging, ("m", "n"), strict=True):
            layout = staging.layout
            if layout.k_contiguous or layout.vec == 1:
                continue
            inside, rest = k.new_label(f"{layout.name}_inside"), k.s.alloc("rest")
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
        self.acc = Accumulators(registers, a, b, per_atom)
        k.comment(f"C:({plan.warp_m},{plan.warp_n}) of a wave in {count} AccVGPRs")
        for number in range(count):
            k.v_accvgpr_write_b32(registers[number], 0)

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockGemmNode) -> None:
        k, plan = self.k, self.plan
        done = k.new_label("multiplied")
        warp = block.first()
        assert isinstance(warp, WarpGemmNode)
        k.comment("alpha = 0: A and B are not read")
        magnitude = k.s.alloc("magnitude")
        k.s_and_b32(magnitude, self.arguments["alpha"], 0x7FFFFFFF)
        k.s_cmp_eq_u32(magnitude, 0)
        k.s_cbranch_scc1(done)
        k.s_cmp_le_i32(self.k_left, 0)
        k.s_cbranch_scc1(done)
        k.s.free(magnitude)
        k.comment("BlockGemmNode: the first k tile")
        self._load_next()
        self._write_staged()
        k.comment(f"BlockGemmNode: for K in {plan.tile_k}s, {plan.stages} stage(s) in LDS")
        with k.loop("k_tile", self.k_left, plan.tile_k) as loop:
            k.s_barrier(note="the tile is in LDS")
            self._load_next()
            self.visit(warp)
            loop.countdown()
            if plan.stages == 1:
                k.s_barrier(note="all waves have read the tile")
            else:
                for staging in self.staging:
                    address = staging.read_address
                    k.v_add_u32(address, self.stage_step, address, note="the other stage")
                k.s_sub_u32(self.stage_step, 0, self.stage_step)
            self._write_staged()
        k.label(done)

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

    def _write_staged(self) -> None:
        """Staged registers to LDS; the write addresses alternate between the stages."""
        k = self.k
        for staging in self.staging:
            staging.write(self.write_address[staging.layout.vec, staging.write_base])
        if self.plan.stages == 2:
            for address in self.write_address.values():
                k.v_add_u32(address, self.stage_step, address, note="the other stage next")

    def visit_warp(self, warp: WarpGemmNode) -> None:
        """Fragments and matrix instructions of one k tile, all spans unrolled."""
        layout = self.operands.a
        atom = warp.first()
        assert isinstance(atom, AtomHint)
        self.k.comment(f"WarpGemmNode: {layout.spans} span(s) of {layout.span} k")
        for staging, fragment in sorted(self._span_fragments(0), key=lambda item: self._uses(*item)[0]):
            staging.read(fragment, 0)
        for span in range(layout.spans):
            self.visit(atom, span)

    def _span_fragments(self, span: int) -> list[tuple[Staging, Fragment]]:
        return [(staging, fragment) for staging in self.staging for fragment in staging.fragments(span)]

    def _uses(self, staging: Staging, fragment: Fragment) -> tuple[int, int]:
        """Numbers of the span's first and last matrix instruction that read the fragment."""
        a, b = self.operands.a, self.operands.b
        stride, others = (b.atoms, b.atoms - 1) if staging.layout is a else (1, (a.atoms - 1) * b.atoms)
        numbers = [step * a.atoms * b.atoms + t * stride for t, step in fragment.feeds]
        return min(numbers), max(numbers) + others

    def visit_atom(self, atom: AtomHint, span: int) -> None:
        """Matrix instructions of a span: steps outermost, so that accumulators are independent.

        The next span's fragments are read as soon as the registers that they take are done with.
        """
        k, a, b = self.k, self.operands.a, self.operands.b
        source = {
            (staging.layout.name, t, step): fragment.registers[i]
            for staging, fragment in self._span_fragments(span)
            for i, (t, step) in enumerate(fragment.feeds)
        }
        following = self._span_fragments(span + 1) if span + 1 < a.spans else []
        reads: dict[int, list[tuple[Staging, Fragment]]] = {}
        for staging, fragment in following:
            reads.setdefault(self._uses(staging, fragment)[1], []).append((staging, fragment))
        order = product(range(a.kw), range(a.atoms), range(b.atoms))
        for number, (step, mt, nt) in enumerate(order):
            c = self.acc.atom(mt, nt)
            note = f"C[{mt}][{nt}] += A[{mt}] B[{nt}], span {span}, step {step}"
            k.emit(self.mnemonic, c, source["A", mt, step], source["B", nt, step], c, note=note)
            for staging, fragment in reads.get(number, ()):
                staging.read(fragment, span + 1)

    # -- epilogue ----------------------------------------------------------------------------

    def _epilogue(self) -> None:
        """C in one of four ways: inside the view or clipped, with or without beta."""
        k, plan = self.k, self.plan
        budget = max(k.v.in_use, plan.resources.arch_vgprs)
        for staging in self.staging:
            staging.release()
        k.v.free(*self.write_address.values(), listed=True)
        store = TileStore(k, self.acc, self._store_inputs(), budget)
        k.v.free(k.work_item, self.lane_row, self.group, listed=True)
        clipped, unscaled, clipped_unscaled = (k.new_label(n) for n in ("edge", "beta_0", "edge_beta_0"))
        scratch = k.s.alloc("scratch")
        k.s_cmp_lt_i32(self.m_left, plan.tile_m)
        k.s_cbranch_scc1(clipped)
        k.s_cmp_lt_i32(self.n_left, plan.tile_n)
        k.s_cbranch_scc1(clipped)
        for start, edge, without in ((None, False, unscaled), (clipped, True, clipped_unscaled)):
            if start:
                k.label(start)
            k.s_and_b32(scratch, self.arguments["beta"], 0x7FFFFFFF)
            k.s_cmp_eq_u32(scratch, 0)
            k.s_cbranch_scc1(without)
            k.comment("C = alpha·A·B + beta·C" + (", clipped" if edge else ""))
            store.emit(edge, True)
            k.s_endpgm()
            k.label(without)
            k.comment("C = alpha·A·B, C is not read" + (", clipped" if edge else ""))
            store.emit(edge, False)
            k.s_endpgm()
        k.s.free(scratch)

    def _store_inputs(self) -> StoreInputs:
        k, a, b = self.k, self.operands.a, self.operands.b
        resource, stride = k.s.alloc("C buffer", 4), self.arguments["ldc"]
        k.comment("C: the lane's first row and column in the tile")
        k.s_lshl_b32(stride, stride, 2, note="ldc in bytes")
        self._tile_base(resource, "C", stride, self.m0, self.n0)
        row, column, offset = (k.v.alloc(f"C {what}") for what in ("row", "column", "offset"))
        k.v_mul_u32_u24(row, 4 * a.wide, self.group)
        k.v_add_u32(row, self.wave_row, row)
        k.v_mul_u32_u24(column, b.wide, self.lane_row)
        k.v_add_u32(column, self.wave_column, column)
        k.v_mul_lo_u32(offset, row, stride)
        k.v_lshl_add_u32(offset, column, 2, offset)
        return StoreInputs(
            resource, row, column, offset, stride, self.m_left, self.n_left,
            self.arguments["alpha"], self.arguments["beta"],
        )  # fmt: skip
