"""Beginning of a GEMM kernel: arguments, the tile's coordinates, operand buffers and addresses, accumulators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.leaves import MappedStaging
from simgpu.asm.gemm.lines import Lines
from simgpu.asm.gemm.mx_scales import MxScales
from simgpu.asm.gemm.operands import second_pass
from simgpu.asm.gemm.store import Accumulators
from simgpu.asm.gemm.tile_order import NAMES, TileOrder, find_group, order_words
from simgpu.asm.parts.buffers import buffer_at, new_buffer
from simgpu.asm.parts.integer_math import multiply_wide, scalar_divmod
from simgpu.asm.parts.lanes import lane_places, wave_number
from simgpu.asm.parts.line_ring import LineStaging, read_pointer, write_pointer
from simgpu.asm.parts.staging import Staging
from simgpu.asm.parts.whole_lines import WholeLineStaging
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import LineRing, TileLayout, TileLayouts
from simgpu.operators.gemm.limits import MX_PITCH, by_lines, half_lines, mx_scale_bytes, scales_ahead
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import MX_BLOCK, NARROW, GemmProblem
from simgpu.operators.gemm.tree import TiledComputation

BATCH_STRIDES = ("batch_a", "batch_b", "batch_c")  # bytes between consecutive matrices of the batch
SIZES = ("m", "n", "k", "k_part", "lda", "ldb", "ldc")
MX_SIZES = ("rows_of_scale_a", "rows_of_scale_b")  # bytes between MX scales of consecutive blocks


def pointers(plan: GemmPlan) -> tuple[str, ...]:
    """Returns the names of the kernel's pointers."""
    first = ("A", "B", "partials") if second_pass(plan) else ("A", "B", "C", *epilogue_pointers(plan.problem))
    return first + loop_pointers(plan.problem)


def epilogue_pointers(problem: GemmProblem) -> tuple[str, ...]:
    """Returns the names of the pointers after C that the epilogue reads."""
    scales = ["scale_a", "scale_b"] * problem.scales_at_end
    columns = () if problem.leaves is None else problem.leaves.columns
    return (*(["bias"] * problem.bias), *(["residual"] * problem.residual), *scales, *columns)


def loop_pointers(problem: GemmProblem) -> tuple[str, ...]:
    """Returns the names of the last pointers: scales and the leaves' operands that the main loop reads, and the groups'
    rows."""
    leaves = () if problem.leaves is None else problem.leaves.of_element[1:]
    return (*(["scale_a", "scale_b"] * problem.scales_in_loop), *(["group_rows"] * bool(problem.groups)), *leaves)


def epilogue_names(problem: GemmProblem) -> list[str]:
    """Returns the parts of the kernel's name for features of the epilogue."""
    said = [] if problem.leaves is None else [problem.leaves.name]
    said += ["grouped"] * bool(problem.groups) + [problem.dtype_c] * (problem.dtype_c != problem.accumulator)
    said += [f"{problem.scales}_scales"] * (problem.scales != "none")
    said += ["bias"] * problem.bias + [problem.activation] * (problem.activation != "none")
    return said + ["residual"] * problem.residual


def load_arguments(k: KernelBuilder, plan: GemmPlan) -> dict[str, Reg]:
    """Declares and loads the arguments. Returns their SGPRs by name."""
    kind = plan.problem.epilogue_type
    k.declare("pointer", *pointers(plan))
    k.declare("i64", *BATCH_STRIDES)
    k.declare(kind, "alpha", *([] if second_pass(plan) else ["beta"]))
    k.declare("i32", *SIZES, *(MX_SIZES if plan.problem.scales == "mx" else ()), *(["groups"] * bool(plan.problem.groups)))
    if plan.problem.dtype_c in NARROW and not second_pass(plan):
        k.declare("f32", "scale_c")
    k.declare("u32", *NAMES)
    return k.load_arguments()


def scalars(root: TiledComputation) -> tuple[int | float, ...]:
    """Returns the values of the arguments after the pointers, in order. Sizes are the ends of the tree's axes."""
    problem, split = root.plan.problem, second_pass(root.plan)
    m, n, k = (len(root.axes[axis]) for axis in "mnk")
    assert problem.lda and problem.ldb and problem.ldc
    shapes = problem.stored_shapes
    size_c = dtype(problem.accumulator if split else problem.dtype_c).bytes
    rows_c, ldc = (m, n) if split else (problem.m, problem.ldc)
    rows = problem.element.packed_bytes(problem.lda), problem.element_b.packed_bytes(problem.ldb)
    strides = (shapes[0][0] * rows[0], shapes[1][0] * rows[1], rows_c * ldc * size_c)
    if problem.groups:  # the kernel computes where a group's rows of A and C begin
        strides = (0, strides[1], 0)
    part = min(k, root.loop("k").tile)
    scales = [problem.alpha] if split else [problem.alpha, problem.beta]
    typed = [int(x) if problem.epilogue_type == "i32" else float(x) for x in scales]
    lda, ldb = rows if problem.scales == "mx" else (problem.lda, problem.ldb)  # MX formats' elements share bytes
    sizes = (m, n, k, part, lda, ldb, ldc)
    scale_c = () if split or problem.dtype_c not in NARROW else (float(problem.scale_c),)
    groups = (problem.groups,) * bool(problem.groups)
    mx_rows = problem.mx_rows if problem.scales == "mx" else ()
    return (*strides, *typed, *sizes, *mx_rows, *groups, *scale_c, *order_words(root))


@dataclass(frozen=True)
class TilePlace:
    """Coordinates of a workgroup's tile (I, J) of C, of the wave and of the lane. SGPRs unless noted."""

    lane_row: Reg  # VGPR: i, the lane's row in an atom
    group: Reg  # VGPR: g, the lane group
    wave_row: Reg  # the wave's first row in the tile
    wave_column: Reg  # the wave's first column in the tile
    m0: Reg  # the tile's first row
    n0: Reg  # the tile's first column
    batch: Reg  # product of the batch, or group
    part: Reg  # part of K
    m_left: Reg  # rows of the view from the tile's first on
    n_left: Reg  # columns of the view from the tile's first on
    k0: Reg  # first k of the part
    k_left: Reg  # k left to multiply
    k_unloaded: Reg  # k left to load


def find_place(k: KernelBuilder, plan: GemmPlan, operands: TileLayouts, arguments: dict[str, Reg]) -> TilePlace:
    """Emits the coordinates of workgroup, wave and lane, and returns their registers."""
    a, b = operands.a, operands.b
    across = b.rows // b.warp_rows  # waves along n
    k.work_item_x()
    wave, (lane_row, group) = wave_number(k), lane_places(k, plan.atom.n)
    wave_row, wave_column = wave, scalar_divmod(k, wave, across, plan.waves, "wave along n, then its first column")
    k.s_mul_i32(wave_row, wave_row, a.warp_rows, note="wave's first row")
    k.s_mul_i32(wave_column, wave_column, b.warp_rows, note="wave's first column")
    m0, n0 = k.s.alloc("I: tile's first row"), k.s.alloc("J: tile's first column")
    batch, part = k.s.alloc("product of the batch"), k.s.alloc("part of K")
    TileOrder(k, arguments, plan.descriptor.xcds).emit(m0, n0, batch, part)
    if plan.problem.groups:
        find_group(k, plan, a.rows, arguments, m0, batch)
    k.comment("tile (I, J): what is left of the view from its first element on")
    k.s_mul_i32(m0, m0, a.rows)
    k.s_mul_i32(n0, n0, b.rows)
    m_left = k.scalar("rows left", of(arguments["m"]) - m0)
    n_left = k.scalar("columns left", of(arguments["n"]) - n0)
    k0 = k.scalar("K: first k of the part", of(part) * arguments["k_part"])
    k_left = k.scalar("k left to multiply", (of(arguments["k"]) - k0).least(arguments["k_part"], "i32"))
    k_unloaded = k.scalar("k left to load", of(k_left))
    return TilePlace(lane_row, group, wave_row, wave_column, m0, n0, batch, part, m_left, n_left, k0, k_left, k_unloaded)


@dataclass(frozen=True)
class OperandTiles:
    """Staging of A and B through LDS."""

    staging: tuple[Staging | LineStaging, Staging | LineStaging]
    scales: tuple[MxScales, ...]  # A's and B's scales, for MX formats
    write_address: dict[tuple[object, ...], Reg]  # VGPRs by `Staging.write_key`: one if A and B can share it
    stage_step: Reg | None  # SGPR: bytes to the other stage of LDS, if there are two
    wide_k: Reg | None  # SGPR: the least k left for which no load of a tile passes the matrix's end
    lines: Lines | None = None  # the main loop, if A and B are loaded by cache lines

    @property
    def moved_operands(self) -> tuple[Staging | LineStaging | MxScales, ...]:
        """Operands that the main loop moves: vectors before A, which needs them; copied ones before transposed ones."""
        a = self.staging[0]
        vectors = a.vectors if isinstance(a, MappedStaging) else ()
        return (*vectors, *sorted(self.staging, key=lambda staging: staging.layout.transposes), *self.scales)

    @property
    def write_addresses(self) -> list[Reg]:
        """All VGPRs with LDS addresses of writes."""
        return [some[number] for some in self.write_address.values() for number in range(some.count)]

    @property
    def tiled_operands(self) -> tuple[Staging | MxScales, ...]:
        """Operands that are staged through LDS, one K step at a time."""
        return tuple(moved for moved in self.moved_operands if not isinstance(moved, LineStaging))


def operand_tiles(
    k: KernelBuilder, plan: GemmPlan, operands: TileLayouts, arguments: dict[str, Reg], place: TilePlace
) -> OperandTiles:
    """Emits buffers and addresses of A and B, allocates their LDS, and returns their staging."""
    kinds = plan.problem.element, plan.problem.element_b
    places = ((operands.a, "lda", place.m0, place.m_left, place.wave_row),
              (operands.b, "ldb", place.n0, place.n_left, place.wave_column))  # fmt: skip
    before, rings = k.lds_bytes, by_lines(plan.problem, plan.tiling)
    scales = _mx_scales(k, plan, operands, arguments, place) if plan.problem.scales == "mx" else ()
    regions = [] if rings else [k.region(f"{layout.name} tile, stage 0", layout.bytes) for layout, *_ in places]
    stage_bytes = k.lds_bytes - before
    if plan.stages == 2:
        k.region("the same, stage 1", stage_bytes)
    if rings:
        regions = [k.region(f"{layout.name} lines", LineRing(layout).bytes) for layout, *_ in places]
    kinds_of = [_staging_of(plan, layout, arguments, size, rings) for (layout, *_), size in zip(places, "mn", strict=True)]
    a, b = (
        made(k, layout, region, k.s.alloc(f"{layout.name} buffer", 4), arguments[ld], left, kind.bits if scales else 0)
        for made, (layout, ld, _, left, _), region, kind in zip(kinds_of, places, regions, kinds, strict=True)
    )
    for staging, (layout, ld, first, _, wave_first) in zip((a, b), places, strict=True):
        k.comment(f"{layout.name}:({layout.rows},{layout.k}) staged through LDS, {_in_memory(layout)}")
        k.set(staging.stride, of(staging.stride) * layout.element, note=f"{ld} in bytes")
        k0 = of(place.k0) * staging.bits // 8 if staging.bits else place.k0  # in bytes, or elements
        outer, inner = (first, k0) if layout.k_contiguous else (place.k0, first)
        batch = place.batch, arguments[f"batch_{layout.name.lower()}"]
        terms = (outer, staging.stride), (inner, staging.apart_along_k), batch
        buffer_at(k, staging.resource, arguments[layout.name], layout.name, *terms)
        staging.prepare_loads()
        if isinstance(staging, Staging):
            staging.prepare_reads(place.lane_row, place.group, wave_first)
    for factors, (_, _, _, _, wave_first) in zip(scales, places, strict=False):
        factors.prepare_reads(place.lane_row, place.group, wave_first)
    write_address: dict[tuple[object, ...], Reg] = {}
    for moved in scales if rings else (a, b, *scales):
        if moved.write_key not in write_address:
            write_address[moved.write_key] = moved.write_address()
    stage_step = k.s.alloc("bytes to the other stage") if plan.stages == 2 else None
    if stage_step is not None:
        k.s_mov_b32(stage_step, stage_bytes)
    if isinstance(a, Staging) and isinstance(b, Staging):
        return OperandTiles((a, b), scales, write_address, stage_step, _wide_threshold(k, operands.tile_k, (a, b), arguments))
    assert isinstance(a, LineStaging) and isinstance(b, LineStaging) and stage_step is not None
    pointers = write_pointer(k, a, b), read_pointer(k, a, b, place.lane_row, place.group, (place.wave_row, place.wave_column))
    unread = k.scalar("bytes of a row left to load", of(place.k_left) * a.bits // 8)
    unwritten = k.scalar("bytes of a row left to write", of(unread))
    (scales_to,) = write_address.values()
    lines = Lines(
        k, (a, b), scales, *pointers, scales_to, stage_step, unread, unwritten, place.k_left, place.k_unloaded, operands.tile_k,
        scales_ahead(plan.problem, plan.tiling),
    )
    return OperandTiles((a, b), scales, write_address, stage_step, None, lines)


def _staging_of(
    plan: GemmPlan, layout: TileLayout, arguments: dict[str, Reg], size: str, rings: bool
) -> Callable[..., Staging | LineStaging]:
    """Returns what builds an operand's staging. size: m or n, the extent of its rows; rings: True if by cache lines."""
    if rings:
        return partial(LineStaging, half_lines=half_lines(plan.tiling))
    leaves, length = plan.problem.leaves, arguments["k" if layout.k_contiguous else size]
    if leaves is not None and layout.name == "A":
        return partial(MappedStaging, length=length, leaves=leaves, pointers=arguments, dtype=plan.problem.dtype)
    return partial(WholeLineStaging if layout.aligned else Staging, length=length)


def _in_memory(layout: TileLayout) -> str:
    if layout.panel:
        return "preshuffled"
    return "k contiguous" if layout.k_contiguous else "rows contiguous" + ", transposed on the way" * layout.transposes


def _mx_scales(
    k: KernelBuilder, plan: GemmPlan, operands: TileLayouts, arguments: dict[str, Reg], place: TilePlace
) -> tuple[MxScales, MxScales]:
    """Emits buffers and offsets of A's and B's E8M0 scales, and allocates their LDS."""
    size, made = mx_scale_bytes(plan.tiling), []
    regions = [k.region(f"{name} scales, stage 0", MX_PITCH * size) for name in "AB"]
    first, blocks = k.scalar("first block", of(place.k0) // MX_BLOCK), k.scalar("blocks of k", of(arguments["k"]) // MX_BLOCK)
    each = k.s.alloc("bytes of scales", 2)
    places = ((operands.a, place.m0, place.m_left), (operands.b, place.n0, place.n_left))
    for region, (layout, row, left) in zip(regions, places, strict=True):
        name = f"scale_{layout.name.lower()}"
        pitch = arguments[f"rows_of_{name}"]
        multiply_wide(k, each, blocks, pitch)
        own = plan.problem.groups and layout is operands.a  # a group's scales start at the pointer
        buffer = new_buffer(k, arguments[name], name, (first, pitch), (row, 1), *([] if own else [(place.batch, each)]))
        made.append(MxScales(k, layout, region, buffer, pitch, left, size, scales_ahead(plan.problem, plan.tiling)))
    k.s.free(first, blocks, each)
    return made[0], made[1]


def _wide_threshold(k: KernelBuilder, tile_k: int, operands: tuple[Staging, Staging], arguments: dict[str, Reg]) -> Reg:
    """Emits `OperandTiles.wide_k` and returns its SGPR."""
    wide_k = k.scalar("k left that allows wide loads", tile_k)
    rest = k.s.alloc("rest")
    for staging, size in zip(operands, ("m", "n"), strict=True):
        layout = staging.layout
        if layout.aligned:
            k.s_max_i32(wide_k, wide_k, 2 * tile_k, note="most lanes load elements of the next tile")
        if layout.k_contiguous or layout.vec == 1:
            continue
        with k.jump_over(k.s_cmp_ge_i32(staging.rows_left, layout.rows), f"{layout.name}_inside"):
            k.s_and_b32(rest, arguments[size], layout.vec - 1)
            k.s_cselect_b32(rest, 1, 0, note=f"{size} cuts a chunk of {layout.name}: not in the last k")
            k.s_cmp_lt_i32(arguments[size], layout.vec)
            k.s_cselect_b32(rest, layout.vec, rest, note="a chunk covers several k")
            k.s_add_u32(rest, rest, tile_k)
            k.s_max_i32(wide_k, wide_k, rest)
    k.s.free(rest)
    return wide_k


def clear_accumulators(k: KernelBuilder, plan: GemmPlan, operands: TileLayouts) -> Accumulators:
    """Emits zeros to a wave's sums and returns them. (On gfx908 an MFMA's C cannot be an inline constant.)"""
    a, b, per_atom = operands.a, operands.b, plan.atom.acc_registers
    count = a.atoms * b.atoms * per_atom
    registers = k.array("accumulators", count)
    k.comment(f"C:({a.warp_rows},{b.warp_rows}) of a wave in {count} {'AccVGPRs' if registers.file == 'a' else 'ArchVGPRs'}")
    k.move(registers[0:count], 0)
    return Accumulators(registers, a, b, per_atom, dtype(plan.problem.accumulator).bytes // WORD)
