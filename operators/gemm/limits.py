"""Resources of a GEMM tiling: registers, LDS, bandwidth, and their limits (errata E3, E8 to E10)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT, HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.cost import choose, largest, minimum
from simgpu.operators.gemm.leaves import Leaves, staging_range, sum_range
from simgpu.operators.gemm.problem import GATES, MX_BLOCK, NARROW, SCALE_BLOCK, GemmProblem
from simgpu.operators.levels import Level
from simgpu.operators.resources import (
    ALIGNMENT_SGPRS,
    WIDEST,
    Constraint,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    alignment_row,
    assumption,
    freeing_remedy,
    limit_rows,
    occupancy_row,
    rounding_sgprs,
    scalar_ranges,
)

# Registers that do not depend on the tile: the emitter uses them for addresses and temporaries. A load of 8 or 16 bytes
# a lane needs two more: its offset and the row at which it is clipped. A lane has one such load for each 2*m rows of A
# and 2*n columns of B.
ADDRESS_VGPRS = 16
TEMPORARY_VGPRS = 16
MX_TEMPORARY_VGPRS = 8  # for MX formats, whose operands are neither clipped by rows nor transposed
# f32 block scales: POOL_ATOMS atoms whose products wait to be scaled. SCALE_VGPRS registers for B's scales, a lane's
# offsets of A's and B's scales, its LDS address to write, and its first and current LDS addresses to read. (Registers
# for A's scales: `scale_ahead`.)
POOL_ATOMS = 4
BLOCK_SCALE_ATOM = 16  # rows and columns of their matrix instructions, whose lanes hold four products each
SCALE_VGPRS = 6
SCALE_ROWS = 256  # work-items that stage scales; with two blocks of columns, the registers leave half as many rows in a tile
# MX scales: MX_VGPRS registers for a lane's offsets and LDS read addresses of A's and B's scales, and their common LDS
# write address. MX_PITCH bytes of LDS from one block's scales to the next block's: half of the banks more than its rows.
MX_VGPRS = 5
MX_PITCH = SCALE_ROWS + 64
# 6-bit elements by cache lines (`by_lines`, see asm.parts.line_ring): LINE_STEPS K steps of a row are LINES whole lines.
# 256 work-items load one line of LINE_ROWS rows, 16 bytes each. RING_BYTES, the LDS of a row: three K steps, and padding
# that puts eight rows into different banks.
CACHE_LINE = 128  # bytes, of L2 on all targets and of gfx942's and gfx950's vector cache (hardware/rates/pipelines.py)
LINE_STEPS, LINES = 4, 3
LINE_ROWS = 32
FEW_ROWS = 128  # rows of A and B together of which a line and a half are 24 KB
RING_BYTES = 3 * 96 + 2
# Rows of 4-byte elements by whole lines (`aligned_bytes`): least and most bytes of a row in a K step, least steps.
ALIGNED_ROW, ALIGNED_STEPS = (64, 128), 4
HELD = 2  # instructions for an element that is held for a step
_LEAST_GAIN = 1.1  # of a step's clocks; below it, small tiles lost in the model of time
ALIGNED_PLACES = 4  # LDS addresses of a work-item's elements, k of its loads, and masks of its late lanes
WORD = 4  # bytes of a register
ORDER_WORDS = 18  # arguments of the tiles' order: three counts, five divisors of three words each (asm.gemm.tile_order)
_COORDINATES = 11  # for wave and tile, first k, rows, columns and k left
_ORDERING = 9  # registers for coordinates and scratch, while the tile's place in the order is computed
_SELECTORS = {1: 4, 2: 2}  # for an operand that is transposed on its way, by bytes of an element
# types with the same layout in LDS as in memory if rows are contiguous: a lane has one element in a matrix instruction
LINE_TYPES = ("f32", "f64")
# Registers of leaves in the largest tiles: a lane has at most eight loads of A, of at most two places in k.
MOST_LOADS, MOST_PLACES = 8, 2
CONSTANTS = {"gelu": 8, "silu": 1}  # constants of an activation in f32


@dataclass(frozen=True)
class Tiling:
    """Sizes that a policy decides, in elements unless noted."""

    tile_m: int
    tile_n: int
    tile_k: int
    warp_k: int  # k of the fragments that a wave holds at once
    waves_m: int  # waves of a block along m
    waves_n: int  # waves of a block along n
    stages: int  # LDS buffers
    blocks: int  # blocks of a CU that work together
    split_k: int = 1  # blocks that share one tile of C, each with a part of K
    aim: str = ""  # name of the optimum under "corrected" (`sides.answers`)
    limited_by: str | None = None  # name of the constraint that stopped the tile, if the policy knows it
    idle: bool = False  # True if the matrix units are idle most of the time, so that longer K steps are also tried

    @property
    def warp_m(self) -> int:
        """Rows of C of one wave."""
        return self.tile_m // self.waves_m

    @property
    def warp_n(self) -> int:
        """Columns of C of one wave."""
        return self.tile_n // self.waves_n


def bandwidth_rho(problem: GemmProblem, descriptor: HardwareDescriptor) -> float:
    """Returns rho of 1/tM + 1/tN <= rho (erratum E10).

    Operand traffic is F*e/2*(1/tM + 1/tN) bytes per clock and CU; its limit is the bandwidth of the cache that serves re-reads.
    """
    return 2 * descriptor.reread_bandwidth_tb / (matrix_tflops(problem, descriptor) * problem.element_bytes)


def atom_of(problem: GemmProblem, descriptor: HardwareDescriptor) -> MFMAAtom:
    """Returns the matrix instruction that multiplies A and B. TargetError if the target has none."""
    if problem.scales == "mx":
        return descriptor.scaled_atom(problem.dtype, problem.dtype_b)
    return descriptor.atom(problem.dtype)


def matrix_flops_per_clock(problem: GemmProblem, descriptor: HardwareDescriptor) -> float:
    """Returns FLOP per clock and CU of the matrix units."""
    return descriptor.simds_per_cu * atom_of(problem, descriptor).flops_per_clock


def matrix_tflops(problem: GemmProblem, descriptor: HardwareDescriptor) -> float:
    """Returns the matrix units' peak in TFLOPS at the peak engine clock."""
    return matrix_flops_per_clock(problem, descriptor) * descriptor.num_cus * descriptor.clock_mhz * 1e-6


def gemm_resources(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom, t: Tiling) -> ResourcePlan:
    """Returns the registers of a wave and the LDS arrays of a block."""
    of_a, of_b = problem.element, problem.element_b
    threads = t.waves_m * t.waves_n * descriptor.wavefront_size
    lane_bytes = 4 * descriptor.wavefront_size  # one register of a wave
    aligned = [rows for name, rows in (("A", t.tile_m), ("B", t.tile_n)) if aligned_bytes(problem, descriptor, t, name)]
    whole = sum(rows * t.tile_k // threads + 2 * ALIGNED_PLACES for rows in aligned)
    mx, a_side, b_side = problem.scales == "mx", t.tile_m // atom.m, t.tile_n // atom.n
    scaled = problem.scales == "block"  # sums then use vector instructions
    fragments, sums_file = ("acc", "arch") if scaled else ("arch", "acc")
    registers: tuple[RegisterRange, ...] = (
        RegisterRange("accumulators", sums_file, t.warp_m * t.warp_n // (atom.m * atom.n) * atom.acc_registers),
        RegisterRange("A fragments", fragments, _divide_up(of_a.packed_bytes(t.warp_m * t.warp_k), lane_bytes)),
        RegisterRange("B fragments", fragments, _divide_up(of_b.packed_bytes(t.warp_n * t.warp_k), lane_bytes)),
        _staging(problem, descriptor, "A", t, threads),
        _staging(problem, descriptor, "B", t, threads),
        RegisterRange("addresses", "arch", ADDRESS_VGPRS + (_mx_addresses(problem, atom, t) if mx else a_side + b_side) + whole),
        RegisterRange("temporaries", "arch", MX_TEMPORARY_VGPRS if mx else TEMPORARY_VGPRS),
    )
    rings = by_lines(problem, t)
    a_row, b_row = (RING_BYTES if rings else t.stages * element.packed_bytes(t.tile_k) for element in (of_a, of_b))
    lds: tuple[LdsArray, ...] = (LdsArray("A", t.tile_m * a_row), LdsArray("B", t.tile_n * b_row))
    if scaled:
        registers += (
            RegisterRange("products to be scaled", "arch", POOL_ATOMS * atom.acc_registers),
            RegisterRange("block scales", "arch", t.warp_m // atom.m * atom.acc_registers),
            RegisterRange("block scales' staging", "arch", scale_ahead(descriptor) + SCALE_VGPRS),
        )
        lds += (LdsArray("block scales", 2 * scale_ahead(descriptor) * block_scale_bytes(t)),)
    if mx:
        scales = mx_scale_bytes(t)
        staged = _divide_up(scales, 4) * scales_ahead(problem, t)
        registers += (
            RegisterRange("A scales", "arch", t.warp_m // atom.m),
            RegisterRange("B scales", "arch", t.warp_n // atom.n),
            RegisterRange("A scales' staging", "arch", staged),
            RegisterRange("B scales' staging", "arch", staged),
            RegisterRange("scales' addresses", "arch", MX_VGPRS),
        )
        lds += (LdsArray("MX scales", t.stages * 2 * MX_PITCH * scales),)
    if problem.leaves is not None:
        registers += leaf_registers(problem, problem.leaves, atom, t, threads)
    return ResourcePlan.of(descriptor, t.waves_m * t.waves_n, registers, lds, gemm_scalars(problem, descriptor, atom, t))


def leaf_registers(problem: GemmProblem, leaves: Leaves, atom: MFMAAtom, t: Tiling, threads: int) -> tuple[RegisterRange, ...]:
    """Returns the registers of leaves while the loop runs.

    A lane has one number of each sum for each row of A that it stages, at most one a load. A load's k are those of the others, or
    differ by whole lines of LDS; of each, a lane has as much of each vector as it loads of A, now and for the next tile.
    """
    row, each = problem.element.packed_bytes(t.tile_k), t.tile_m * problem.element.packed_bytes(t.tile_k) // threads
    chunk = power_in(problem.element.packed_bytes(t.warp_k) // atom.lane_groups, WIDEST)  # bytes of a read
    loaded = min(chunk, power_in(each, WIDEST))  # bytes of a load
    loads = max(1, each // loaded)
    places = min(loads, _divide_up(row, atom.lane_groups * chunk))
    found = [RegisterRange(sum_range(name), "arch", loads) for name, _ in leaves.sums]
    found += [RegisterRange(staging_range(name), "arch", loads * _divide_up(loaded, 4)) for name in leaves.matrices]
    for name in leaves.vectors:
        words = places * _divide_up(loaded, 4)
        found += [RegisterRange(staging_range(name), "arch", words), RegisterRange(name, "arch", words)]
        found.append(RegisterRange(f"{name} offsets", "arch", places))
    if leaves.temporaries:
        found.append(RegisterRange("leaves' temporaries", "arch", leaves.temporaries))
    return tuple(found)


def power_in(count: Any, most: Any) -> Any:
    """Returns the largest power of two that divides a number, at most `most`, a power of two."""
    return minimum(count & -count, most)


def _mx_addresses(problem: GemmProblem, atom: MFMAAtom, t: Tiling) -> int:
    """Returns the VGPRs for the offsets of a tile's loads, one for each load.

    Loads of 6-bit elements have no fixed distance and also need their k: three registers serve loads of 8 bytes of 64 rows, or
    of 16 bytes of 128 rows.
    """
    if by_lines(problem, t):
        return (t.tile_m + t.tile_n) // LINE_ROWS
    sides = ((problem.element, t.tile_m, atom.m), (problem.element_b, t.tile_n, atom.n))
    return sum(rows // (2 * side) if kind.bits != 6 else 6 * -(-rows // 64) for kind, rows, side in sides)


def by_lines(problem: GemmProblem, t: Tiling) -> bool:
    """True if A and B are loaded by whole cache lines: 6-bit elements in K steps of 128, and a K of at least four steps.

    Four steps are three lines of a row; loaded step by step, they would request one, two, two and one line.
    """
    bits, sides = (problem.element.bits, problem.element_b.bits), (t.tile_m, t.tile_n)
    lines = problem.scales == "mx" and bits == (6, 6) and LINE_STEPS * problem.element.packed_bytes(t.tile_k) == LINES * CACHE_LINE
    whole = t.stages == 2 and t.waves_m * t.waves_n == 4 and all(side % (2 * LINE_ROWS) == 0 for side in sides)
    return lines and whole and problem.k >= LINE_STEPS * t.tile_k


def _run_step(p: GemmProblem, name: str) -> int:
    """Returns bytes of which the beginnings of the rows of "A" or "B" in memory are multiples."""
    a = p.element, p.lda, p.m if p.trans_a else p.k
    kind, stride, length = a if name == "A" else (p.element_b, p.ldb, p.k if p.trans_b else p.n)
    return int(kind.packed_bytes(stride or length))


def loads_begin(p: GemmProblem, d: HardwareDescriptor, t: Any, name: str) -> Any:
    """Returns the bytes, at most a line of the vector cache, to multiples of which a row's loads of "A" or "B" begin."""
    return largest(gcd(_run_step(p, name), pipelines(d.arch).cache_line), aligned_bytes(p, d, t, name))


def touched_bytes(p: GemmProblem, t: Any, name: str, begin: Any, line: int) -> Any:
    """Returns the bytes of the lines that a step's loads of "A" or "B" touch. begin: the bytes to multiples of which they begin."""
    rows, kind, across = side_of(p, name, t)
    runs, run = (t.tile_k, rows) if across else (rows, t.tile_k)
    return runs * line * lines_of(kind.packed_bytes(run), begin, line)


def aligned_bytes(p: GemmProblem, d: HardwareDescriptor, t: Any, name: str) -> Any:
    """Returns the bytes to multiples of which loads of "A" or "B" begin, whatever its rows do (`asm.parts.whole_lines`), or 0.

    They are those of a line of the vector cache, or of a row's step if these are fewer. Operands of 4-byte elements along k are
    loaded so if their rows begin in the middle of a line, K has a few steps, and L2 limits other loads (`_whole_lines_pay`).
    t: a Tiling, or Tiles.
    """
    if not _cuts_lines(p, d, name):
        return 0
    row = t.tile_k * WORD
    fits = (row >= ALIGNED_ROW[0]) & (row <= ALIGNED_ROW[1]) & (p.k >= ALIGNED_STEPS * t.tile_k)
    return choose(fits & _whole_lines_pay(p, d, t), minimum(pipelines(d.arch).cache_line, row), 0)


def _cuts_lines(p: GemmProblem, d: HardwareDescriptor, name: str) -> bool:
    """True if an operand has 4-byte elements along k, of rows that begin in the middle of a line, and no leaves."""
    a = p.element, p.trans_a, p.leaves
    kind, across, other = a if name == "A" else (p.element_b, not p.trans_b, p.preshuffle_b)
    return kind.bits == 8 * WORD and not across and not other and _run_step(p, name) % pipelines(d.arch).cache_line > 0


def _whole_lines_pay(p: GemmProblem, d: HardwareDescriptor, t: Any) -> Any:
    """True if a step takes fewer clocks by whole lines: of L2, or of the matrix units with the instructions that hold elements.

    Lines that the vector cache keeps for the next step are requested once by any loads.
    """
    rates = sustained_rates(d)
    line, cut, whole, held = rates.row.cache_line, 0.0, 0.0, 0.0
    for name in "AB":
        begin, mended = gcd(_run_step(p, name), line), _cuts_lines(p, d, name)
        cut = cut + touched_bytes(p, t, name, begin, line)
        whole = whole + touched_bytes(p, t, name, line if mended else begin, line)
        held = held + HELD * side_of(p, name, t)[0] * t.tile_k * mended
    tiles = p.even_batch.batch * -(-p.even_batch.m // t.tile_m) * -(-p.n // t.tile_n)
    lost = cut * choose(tiles > d.num_cus, 2, 1) > rates.row.cache_bytes
    of_l2 = rates.l2 / (minimum(tiles, d.num_cus) * rates.clock)
    matrix = 2 * t.tile_m * t.tile_n * t.tile_k / matrix_flops_per_clock(p, d)
    return lost & (_LEAST_GAIN * largest(matrix + held / rates.valu_lanes, whole / of_l2) < largest(matrix, cut / of_l2))


def lines_of(run: Any, step: Any, line: int) -> Any:
    """Returns the mean number of lines that a run touches. It begins at multiples of its length, in rows at multiples of `step`."""
    vectors = isinstance(run, np.ndarray) or isinstance(step, np.ndarray)
    return (run + line - (np.gcd if vectors else gcd)(run, step)) / line


def scales_ahead(problem: GemmProblem, t: Tiling) -> int:
    """Returns the K steps whose MX scales are in flight: four with `by_lines`, except in the largest tile; else one."""
    return LINE_STEPS if by_lines(problem, t) and t.tile_m + t.tile_n < 512 else 1


def half_lines(t: Tiling) -> int:
    """Returns the half lines of a row that are in flight with `by_lines`: three, or six in tiles of at most FEW_ROWS rows.

    With few rows, a line and a half of each are less than the 32 KB that a CU can have in flight (`hardware.rates`).
    """
    return 6 if t.tile_m + t.tile_n <= FEW_ROWS else 3


def steps_ahead(problem: GemmProblem, t: Tiling) -> int:
    """Returns the K steps per wait for memory: two with `by_lines`, because a line and a half are in flight, else one.

    (In the time model, a 64x64 tile, which has three lines in flight, waits as often: 750 clocks a step.)
    """
    return LINE_STEPS // 2 if by_lines(problem, t) else 1


def mx_scale_bytes(t: Tiling) -> int:
    """Returns the number of MX scales of a row in one K step."""
    return t.tile_k // MX_BLOCK


def scale_columns(t: Tiling) -> int:
    """Returns the number of blocks of columns of op(B) in a tile. Each block has a scale."""
    return -(-t.tile_n // SCALE_BLOCK)


def scale_ahead(descriptor: HardwareDescriptor) -> int:
    """Returns the blocks of k whose scales are loaded at once: the largest power of two, twice which fits in a quarter of LDS.

    More blocks mean fewer loads: each load fetches a row's line of 128 bytes, and uses 4 of them for each block.
    """
    return 1 << (descriptor.lds_bytes // 4 // (2 * SCALE_ROWS * 4)).bit_length() - 1


def block_scale_bytes(t: Tiling) -> int:
    """Returns the LDS bytes for the f32 scales of a block of k: one for each row of the tile and block of columns."""
    return scale_columns(t) * t.tile_m * 4


def gemm_scalars(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom, t: Tiling) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of a wave. Once the tile is known, all of the order's arguments but one are free for later use."""
    split, words = t.split_k > 1, dtype(problem.epilogue_type).registers
    bias, residual, narrow = (x and not split for x in (problem.bias, problem.residual, problem.dtype_c in NARROW))
    sizes = 7 + 2 * (problem.scales == "mx")
    by_row, by_block = problem.scales == "row" and not split, problem.scales_in_loop
    scaled = 2 * ((problem.scales_at_end and not split) or by_block)
    pointers, strides, scales = 2 * (3 + bias + residual + scaled), 6, words * (1 if split else 2) + narrow
    # Atoms of a wave along the operands whose rows, not k, are contiguous.
    across = [t.warp_m // atom.m] * problem.trans_a + [t.warp_n // atom.n] * (not problem.trans_b)
    loop = {
        "buffers": 8 + 8 * by_block,
        "stages_and_steps": 2 + 2 * by_lines(problem, t) + (2 if problem.element.bits < 32 else 1) * len(across),
        "byte_selectors": sum(_selectors(problem.element.bytes, atoms) for atoms in across),
    }
    late = 2 * ALIGNED_PLACES * sum(bool(aligned_bytes(problem, descriptor, t, name)) for name in "AB")
    loop |= {"late_lanes": late} if late else {}
    columns_read = 0
    if problem.leaves is not None:  # pointers, buffers with what their alignment costs, and the constants of rounding A
        columns_read = len(problem.leaves.columns)
        loaded = len(problem.leaves.matrices) + len(problem.leaves.vectors)
        pointers += 2 * (loaded + columns_read)
        loop["leaves"] = 4 * loaded + ALIGNMENT_SGPRS + rounding_sgprs(problem.dtype, descriptor.arch)
    constants = CONSTANTS.get(GATES.get(problem.activation, problem.activation), 0)
    constants += rounding_sgprs(problem.dtype_c, descriptor.arch)
    columns = t.warp_n // atom.n
    adjacent = min(columns & -columns, 16 // dtype(problem.accumulator).bytes)  # columns of a lane that it stores at once
    # Lanes inside the view by groups of columns; lanes, block and elements of a group that the view's end cuts.
    masks, buffers = 2 * (columns // adjacent) + 4 * (adjacent > 1), 4 * (1 + bias + residual + 2 * by_row + columns_read)
    ending = buffers + masks + (0 if split else constants)  # it reuses the loop's registers
    if problem.scales == "block":
        loop["block_scales"] = 2
    held = {**loop, "coordinates": _COORDINATES, "ending": max(0, ending - sum(loop.values())), "temporaries": 2}
    reused = min(ORDER_WORDS - 1, sum(held.values()) - _ORDERING)
    grouped = 3 * bool(problem.groups)  # pointer to the groups' row counts, and number of groups
    arguments = pointers + strides + scales + sizes + grouped + ORDER_WORDS + ALIGNMENT_SGPRS
    return scalar_ranges(arguments_less_those_reused=arguments - reused, **held)


def _selectors(e: int, atoms: int) -> int:
    """Returns the number of SGPRs with byte selectors for an operand that is transposed on its way to LDS.

    If a wave has an odd number of atoms of 8-bit elements, the selectors of halves differ by lane: they are VGPRs
    (`simgpu.asm.parts.transpose`).
    """
    return _SELECTORS.get(e, 0) - (2 if e == 1 and atoms % 2 else 0)


def gemm_constraints(
    problem: GemmProblem, d: HardwareDescriptor, atom: MFMAAtom, t: Tiling, r: ResourcePlan
) -> tuple[Constraint, ...]:
    """Returns every limit of a tiling with its use: hard ones (feasibility) and soft ones (distance from the best)."""
    waves = t.waves_m * t.waves_n
    per_simd = -(-t.blocks * waves // d.simds_per_cu)
    lds_limit, lds_use = d.lds_bytes // t.blocks, d.lds_allocation(r.lds_bytes)
    rho = bandwidth_rho(problem, d)
    demand = (1 / t.tile_m + 1 / t.tile_n) / rho * d.reread_bandwidth_tb if t.tile_m and t.tile_n else 0.0
    even = problem.even_batch
    grid = -(-even.m // max(1, t.tile_m)) * -(-even.n // max(1, t.tile_n)) * (even.batch if problem.groups else 1)
    tiles = grid * problem.batch * t.split_k
    ragged = sum(
        bool(remainder) or not size
        for size, remainder in (
            (t.warp_m, t.warp_m % atom.m),
            (t.warp_n, t.warp_n % atom.n),
            (t.warp_k, t.warp_k % atom.k),
            (t.tile_k, t.tile_k % t.warp_k),
        )
    )
    arch, acc, _ = d.vgpr_budget(per_simd)
    fewer = f"{per_simd} waves a SIMD are planned: shrink the warp tile, or use a type of fewer bytes"
    at = f"at {per_simd} wave(s) a SIMD (E3, E8)"
    held = "a ring of 3 K steps" if by_lines(problem, t) else f"{t.stages} stage(s)"
    notes = {
        "LDS": (
            f"{held} of A and B, granule {d.lds_granule}, {t.blocks} block(s) a CU",
            freeing_remedy(lds_use, lds_limit, "bytes a block", f"use a target with {lds_use * t.blocks} bytes of LDS a CU, "
                  "or a type of fewer bytes"),
        ),
        "ArchVGPR": (at, freeing_remedy(r.arch_vgprs, arch, how=fewer)),
        "AccVGPR": (at, freeing_remedy(r.acc_vgprs, acc, how=fewer)),
    }
    return (
        *limit_rows(d, r.arch_vgprs, r.acc_vgprs, r.sgprs, r.lds_bytes, waves, t.blocks, notes),
        alignment_row(ragged, f"warp tile by {atom.m}x{atom.n}x{atom.k}"),
        occupancy_row(d, tiles),
        Constraint(
            "operand bandwidth", Level.DEVICE, d.reread_bandwidth_tb, demand, "TB/s", _bandwidth_note(demand, d), hard=False
        ),
        Constraint(
            "problem size",
            Level.DEVICE,
            problem.m * problem.n,
            grid * t.tile_m * t.tile_n,
            "elements of C",
            "padded to whole tiles",
            hard=False,
        ),
        *_line_rows(problem, t),
    )


def cut_line_bytes(run: int) -> int:
    """Returns the average number of additional bytes in the cache lines that hold a run of `run` bytes.

    A run of r bytes that begins at a multiple of r is in (r + line - gcd(r, line))/line lines on average.
    """
    return CACHE_LINE - gcd(run, CACHE_LINE)


def _line_rows(problem: GemmProblem, t: Tiling) -> tuple[Constraint, ...]:
    """Returns, for 6-bit elements, a row that compares the lines a K step requests of a matrix row with the lines of its data."""
    if (problem.element.bits, problem.element_b.bits) != (6, 6):
        return ()
    piece, once = problem.element.packed_bytes(t.warp_k), by_lines(problem, t)
    asked = 1.0 if once else (piece + cut_line_bytes(piece)) / piece
    lines = problem.element.packed_bytes(t.tile_k) / CACHE_LINE
    note = f"of a row in a K step, {'each asked for once' if once else f'asked for in pieces of {piece} bytes'}"
    return (Constraint("cache lines", Level.BLOCK, lines, lines * asked, "lines", note, hard=False),)


def _bandwidth_note(demand: float, d: HardwareDescriptor) -> str:
    factor = demand / d.reread_bandwidth_tb
    bound = f"bandwidth-bound by {factor:.2f}" if factor > 1 else "compute-bound"
    return f"A and B at matrix peak from the level that serves re-reads: {bound} (E10){assumption(d)}"


def side_of(problem: GemmProblem, name: str, t: Any) -> tuple[Any, DType, bool]:
    """Returns a tile's rows of an operand, "A" or "B"; its type; whether its rows, not k, are contiguous. t: a Tiling, or Tiles."""
    of_a, of_b = (t.tile_m, problem.element, problem.trans_a), (t.tile_n, problem.element_b, not problem.trans_b)
    return of_a if name == "A" else of_b


def transposed_words(problem: GemmProblem, name: str, t: Any) -> Any:
    """Returns the registers, summed over all lanes, in which an operand is transposed on its way to LDS; 0 if it is only copied.

    t: a Tiling, or Tiles. The operand's rows are padded to the next power of two. 16- and 8-bit elements are in squares of at
    least 4/e by 4/e (e bytes); if the rows are not a power of two, in blocks of at least four rows.
    """
    rows, element, turned = side_of(problem, name, t)
    if not turned or problem.dtype in LINE_TYPES:
        return 0.0
    padded = padded_rows(rows)
    least = choose(rows < padded, 4, 32 // element.bits) * t.waves_m * t.waves_n * WAVEFRONT
    return largest(padded * t.tile_k * element.bits / 32, least)


def padded_rows(rows: Any) -> Any:
    """Returns the next power of two."""
    return 2.0 ** np.ceil(np.log2(rows)) if isinstance(rows, np.ndarray) else 1 << (rows - 1).bit_length()


def _staging(problem: GemmProblem, d: HardwareDescriptor, name: str, t: Tiling, threads: int) -> RegisterRange:
    """Returns the registers in which a lane holds its part of a tile between global memory and LDS.

    With block scales, whose sums are ArchVGPRs, tiles that are only copied use AccVGPRs.
    """
    rows, element, turned = side_of(problem, name, t)
    row_bytes, file = element.packed_bytes(t.tile_k), "acc" if problem.scales == "block" and not turned else "arch"
    if by_lines(problem, t):
        row_bytes = half_lines(t) * CACHE_LINE // 2
    copied = (2 if aligned_bytes(problem, d, t, name) else 1) * _divide_up(rows * row_bytes, 4 * threads)
    return RegisterRange(f"{name} staging", file, ceil(transposed_words(problem, name, t) / threads) or copied)


def _divide_up(a: int, b: int) -> int:
    return -(-a // b)
