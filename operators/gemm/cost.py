"""Cost of a GEMM kernel from its tiles, under any policy: loop, cache misses, epilogue, second pass of a split K.

c tiles are in flight on an XCD, h rows of tiles by w columns (`order` numbers them so, h = sqrt(c*tN/tM)). Together they read
h*tM rows of A and w*tN columns of B through the XCD's L2 once. Data that was read before and is still in L2 is a hit. A K step
of a tile takes the longest of these clocks (F, read, write and L1 are rates of a CU per clock, e bytes of an element):

    matrix   2*tM*tN*tK / F
    LDS      2*(tM + tN)*tK*e / read + (tM + tN)*tK*e / write      with 2x2 waves, two of them read each row and column
    VALU     the instructions that transpose operands on their way to LDS: of rows padded to a power of two, in all lanes
    cache    (tM + tN)*tK*e / L1, or the clocks of its loads in the coalescer (`loads`), if that is more

Loads request whole cache lines from L2. The vector cache may hold lines that steps share, as rows begin anywhere. Stores go to
L2 by lines of 64 bytes, also those that they only touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.matrix_table import FORMATS
from simgpu.hardware.rates.clocks import element
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.rates.sustained import LDS_CLOCKS, SustainedRates, sustained_rates
from simgpu.operators.cost import KernelCost, choose, largest, minimum, parts_of, second_pass
from simgpu.operators.gemm.edges import last_step_clocks
from simgpu.operators.gemm.limits import (
    HELD,
    aligned_bytes,
    atom_of,
    lines_of,
    loads_begin,
    matrix_flops_per_clock,
    power_in,
    side_of,
    touched_bytes,
    transposed_words,
)
from simgpu.operators.gemm.loads import LINE, load_clocks, staged_rows, stored_lines
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.resources import WIDEST

# Instructions for a register of an operand that is transposed on its way to LDS, by bytes of an element.
_TRANSPOSED = {1: 4, 2: 1}
# 64-byte lines of code that a workgroup executes, counted on 90 emitted kernels within 12 %: a constant, 1.7 times 8
# bytes for each instruction of a step in the loop and in the last step, and 30 bytes of epilogue for each accumulator.
_CODE_LINES, _STEP_LINES, _ACCUMULATOR_LINES = 28, 1.7 * 8 / 64, 30 / 64


@dataclass(frozen=True)
class Tiles:
    """Tile sizes to be priced: numbers, or arrays that broadcast."""

    tile_m: Any
    tile_n: Any
    tile_k: Any
    split_k: Any = 1
    resident: Any = 1  # workgroups on a CU at a time
    waves_m: int = 2
    waves_n: int = 2


def gemm_seconds(problem: GemmProblem, descriptor: HardwareDescriptor, tiles: Tiles) -> dict[str, Any]:
    """Returns seconds by term: the terms of the first kernel, "second pass", and the sum of both as "total"."""
    p, rates = problem.even_batch, sustained_rates(descriptor)
    terms = gemm_cost(problem, descriptor, tiles).terms()
    parts, _ = parts_of(-(-p.k // tiles.tile_k), tiles.split_k)
    elements = p.batch * p.m * p.n
    partial, result = (elements * dtype(kind).bytes * 1.0 for kind in (p.accumulator, p.dtype_c))
    second = second_pass(rates, parts, elements, partial, result)
    return {**terms, "second pass": second, "total": terms["total"] + second}


def step_clocks(problem: GemmProblem, descriptor: HardwareDescriptor, t: Any) -> dict[str, Any]:
    """Returns clocks of a K step by unit: "matrix", "LDS", "cache"; and "lines", in which its lines pass the vector cache.

    Loads that take longer in the coalescer do so while others wait for memory. t: a Tiling, or Tiles.
    """
    rates = sustained_rates(descriptor).rates
    sides = [side_of(problem, name, t) for name in "AB"]
    of_a, of_b = (rows * kind.packed_bytes(t.tile_k) for rows, kind, _ in sides)
    read, even = of_a * t.waves_n + of_b * t.waves_m, problem.even_batch
    staged = sum(kind.packed_bytes(staged_rows(problem, rows, across) * t.tile_k) for rows, kind, across in sides)
    issued = [load_clocks(even, descriptor, t, name) for name in "AB"]
    touched = zip(_line_bytes(even, descriptor, t, LINE), issued, strict=True)
    lines = sum(minimum(nbytes / LINE, clocks) if np.any(clocks) else nbytes / LINE for nbytes, clocks in touched)
    lines = largest((even.streams_a * of_a + of_b) / rates.cache, lines)
    return {
        "matrix": 2 * t.tile_m * t.tile_n * t.tile_k / matrix_flops_per_clock(problem, descriptor),
        "LDS": read / rates.lds_read + staged / rates.lds_write,
        "cache": largest(lines, sum(issued)),
        "lines": lines,
    }


def gemm_cost(problem: GemmProblem, descriptor: HardwareDescriptor, t: Tiles) -> KernelCost:
    """Returns the cost of the kernel that multiplies, without the second pass of a split K."""
    p, rates = problem.even_batch, sustained_rates(descriptor)
    gx, gy = -(-p.n // t.tile_n), -(-p.m // t.tile_m)
    parts, each = parts_of(-(-p.k // t.tile_k), t.split_k)
    blocks = gx * gy * p.batch * parts
    clocks = step_clocks(p, descriptor, t)
    once = p.batch * (p.element.packed_bytes(p.streams_a * p.m * p.k) + p.element_b.packed_bytes(p.k * p.n)) * 1.0
    asked = p.batch * (p.element.packed_bytes(p.streams_a * p.k * p.m * gx) + p.element_b.packed_bytes(p.k * p.n * gy)) * 1.0
    missed = minimum(asked, _l2_miss_bytes(p, rates, t, gx, gy, parts, blocks))
    kept = min(1.0, descriptor.mall_bytes / once)
    written = choose(parts > 1, p.batch * p.m * p.n * dtype(p.accumulator).bytes * parts, p.epilogue_bytes) * 1.0
    stored = choose(parts > 1, dtype(p.accumulator).bytes, dtype(p.dtype_c).bytes * p.columns_c / p.n)
    work = _staging_work(p, descriptor, t)
    atom = atom_of(p, descriptor)
    formats = tuple(FORMATS.index(kind) if kind in FORMATS else 0 for kind in (atom.dtype_in, atom.dtype_b))
    busy, stored = largest(clocks["LDS"], work / rates.valu_lanes), t.tile_m * t.tile_n * stored
    lines = choose(parts > 1, _stored_lines(p, descriptor, t, True), _stored_lines(p, descriptor, t, False))
    together = minimum(t.resident, largest(1, -(-blocks // descriptor.num_cus)))
    requested, fresh = _requested_bytes(p, descriptor, rates.row, t, together)
    return KernelCost(
        rates=rates,
        workgroups=blocks,
        resident=t.resident,
        steps=each,
        element=element(atom.mnemonic, formats),
        matrix=clocks["matrix"],
        units=largest(busy, clocks["cache"]),
        once=last_step_clocks(p, descriptor, t),
        bare=LDS_CLOCKS,
        burst=clocks["lines"],
        flight=p.element.packed_bytes(p.streams_a * minimum(t.tile_m, p.m) * t.tile_k)
        + p.element_b.packed_bytes(minimum(t.tile_n, p.n) * t.tile_k),
        asked=requested,
        repeated=requested - fresh,
        missed_bytes=missed,
        hbm_bytes=once + (missed - once) * (1 - kept),
        written_bytes=written,
        stored=stored * lines,
        code_lines=_code_lines(p, descriptor, t, work),
        waves=t.waves_m * t.waves_n,
    )


def _requested_bytes(p: GemmProblem, d: HardwareDescriptor, row: Pipelines, t: Any, together: Any) -> tuple[Any, Any]:
    """Returns bytes that a step's loads request from L2, of `together` blocks a CU, and bytes of the lines that are new in it.

    Rows with k contiguous that begin anywhere share lines with the next step. If the vector cache holds a step's lines of all
    blocks, it requests as many as for rows that begin with a line.
    """
    lines, kept, fresh = _line_bytes(p, d, t, row.cache_line), 0.0, 0.0
    fits = together * sum(lines) <= row.cache_bytes
    for touched, (rows, kind, across), streams in zip(lines, (side_of(p, name, t) for name in "AB"), (p.streams_a, 1), strict=True):
        once = streams * rows * lines_of(kind.packed_bytes(t.tile_k), row.cache_line, row.cache_line) * row.cache_line
        new = touched if across else minimum(touched, once)
        kept, fresh = kept + choose(fits, new, touched), fresh + new
    return kept, fresh


def _line_bytes(p: GemmProblem, d: HardwareDescriptor, t: Any, line: int) -> tuple[Any, ...]:
    """Returns the bytes of the lines that a step's rows of A and the leaves' matrices touch, and those of B's."""
    of_a, of_b = (touched_bytes(p, t, name, minimum(loads_begin(p, d, t, name), line), line) for name in "AB")
    return max(1, p.streams_a) * of_a, of_b


def _stored_lines(p: GemmProblem, d: HardwareDescriptor, t: Tiles, sums: bool) -> Any:
    """Returns the bytes of the lines that stores touch, over the bytes stored. sums: of partial products, else of C.

    A lane stores adjacent columns, one of each of `wide` atoms; the lanes of an atom's row make a run of them.
    """
    size, columns = (dtype(p.accumulator).bytes, p.n) if sums else (dtype(p.dtype_c).bytes, p.ldc or p.columns_c)
    atom = atom_of(p, d)
    wide = power_in(largest(1, t.tile_n // t.waves_n // atom.n), WIDEST // dtype(p.accumulator).bytes)
    run = wide * atom.n * size * (p.n if sums else p.columns_c) // p.n
    return stored_lines(run, columns * size)


def _staging_work(p: GemmProblem, d: HardwareDescriptor, t: Any) -> Any:
    """Returns the instructions, summed over all lanes, that transpose a step's operands on their way to LDS or compute leaves."""
    turned = sum(transposed_words(p, name, t) * _TRANSPOSED.get(side_of(p, name, t)[1].bits // 8, 0) for name in "AB")
    held = (side_of(p, name, t)[0] * t.tile_k * (aligned_bytes(p, d, t, name) > 0) for name in "AB")
    turned += HELD * sum(held)
    return turned + (0 if p.leaves is None else t.tile_m * t.tile_k * p.leaves.instructions(p.dtype))


def _code_lines(p: GemmProblem, d: HardwareDescriptor, t: Tiles, work: Any) -> Any:
    atom, lanes = atom_of(p, d), t.waves_m * t.waves_n * d.wavefront_size
    matrix = t.tile_m * t.tile_n * t.tile_k / (t.waves_m * t.waves_n * atom.m * atom.n * atom.k * atom.blocks)
    staged = t.tile_m * p.element.packed_bytes(t.tile_k) + t.tile_n * p.element_b.packed_bytes(t.tile_k)
    read = t.waves_n * t.tile_m * p.element.packed_bytes(t.tile_k) + t.waves_m * t.tile_n * p.element_b.packed_bytes(t.tile_k)
    each = matrix + (2 * staged + read) / (lanes * WIDEST) + work / lanes
    copies = choose(-(-p.k // t.tile_k) > t.split_k, 2, 1)
    accumulators = t.tile_m * t.tile_n * dtype(p.accumulator).registers / lanes
    return _CODE_LINES + copies * _STEP_LINES * each + _ACCUMULATOR_LINES * accumulators


def _l2_miss_bytes(p: GemmProblem, rates: SustainedRates, t: Tiles, gx: Any, gy: Any, parts: Any, blocks: Any) -> Any:
    """Returns the bytes of A and B that miss L2."""
    d = rates.descriptor
    in_flight = largest(1, minimum(d.num_cus * t.resident, blocks) / d.xcds)
    rows = minimum(largest((in_flight * t.tile_n / t.tile_m) ** 0.5, 1), gy)
    rows = gy / -(-gy // rows)  # equal groups of rows
    columns = minimum(largest(in_flight / rows, 1), gx)
    once_a, once_b = p.element.packed_bytes(p.streams_a * p.m * p.k) * 1.0, p.element_b.packed_bytes(p.k * p.n) * 1.0
    first = p.batch * (gx / columns * once_a + gy / rows * once_b)
    # Each XCD reads at least its part of A and all of B, and keeps what L2 holds for later.
    fewest = minimum(first, p.batch * (once_a + min(d.xcds, p.m) * once_b))
    again = minimum(1.0, d.l2_bytes / ((once_a + once_b) / parts))
    return largest(p.batch * (once_a + once_b), first - again * (first - fewest))
