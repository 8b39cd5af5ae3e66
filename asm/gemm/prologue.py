"""The beginning of a GEMM kernel: arguments, the tile's coordinates, operand buffers and addresses, accumulators."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.gemm.operands import Operands, check, second_pass
from simgpu.asm.gemm.store import Accumulators
from simgpu.asm.gemm.tile_order import NAMES, TileOrder, order_words
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import lane_in_atom, wave_number
from simgpu.asm.parts.lds_tile import WORD
from simgpu.asm.parts.matrix import matrix_instruction
from simgpu.asm.parts.staging import Staging
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.tree import Visitor

NEVER = 0x7FFFFFFF  # more k than any view has: wide loads are never allowed
BATCH_STRIDES = ("batch_a", "batch_b", "batch_c")  # bytes from one product's matrix to the next one's
SIZES = ("m", "n", "k", "k_part", "lda", "ldb", "ldc")


class GemmPrologue(Visitor):
    """What a GEMM's emitter knows before its main loop, and emits for it."""

    def __init__(self, plan: GemmPlan) -> None:
        check(plan)
        self.plan = plan
        problem = plan.problem
        kinds = "".join("t" if trans else "n" for trans in (problem.trans_a, problem.trans_b))
        self.split = second_pass(plan)
        extras = ("part",) if self.split else (*(["bias"] * problem.bias), *([problem.activation] * (problem.activation != "none")))
        name = "_".join(("gemm", problem.dtype, kinds, f"{plan.tile_m}x{plan.tile_n}x{plan.tile_k}", *extras))
        self.target = plan.descriptor.arch
        self.mnemonic, self.modifiers = matrix_instruction(plan.atom, self.target, plan.problem.dtype)
        self.size_c = dtype(problem.dtype_c).bytes
        self.has_bias = problem.bias and not self.split
        self.k = KernelBuilder(name, self.target, plan.threads, plan=plan.resources)
        self.operands = Operands.of(plan)

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
        k.work_item_x()
        self.lane_row, self.group = k.v.alloc("i: lane's row in an atom"), k.v.alloc("g: lane group")
        wave = k.s.alloc("wave")
        wave_number(k, wave, self.group)
        lane_in_atom(k, self.lane_row, self.group, atom.n)
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
            way = "k contiguous" if layout.k_contiguous else "rows contiguous" + ", transposed on the way" * layout.transposes
            k.comment(f"{layout.name}:({layout.rows},{layout.k}) staged through LDS, {way}")
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
        registers = k.array("accumulators", count)
        self.acc = Accumulators(registers, a, b, per_atom, self.size_c // WORD)
        k.comment(f"C:({plan.warp_m},{plan.warp_n}) of a wave in {count} AccVGPRs")
        for number in range(count):
            k.v_accvgpr_write_b32(registers[number], 0)
