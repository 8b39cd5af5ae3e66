"""Tiling of a GEMM by policy: optima of the sides (`sides`), each with its K step and split of K; the least time decides.

Letters: e bytes of an element of A and B; (m, n, k) the atom; G = 64/m its lane groups; kv the K span of one 128-bit LDS read
per lane, kv = max(k, 16*G/e), so that consecutive atoms share the read; B blocks per CU; S stages of LDS; x, y: tM and tN in
units of u = 2*m, two waves of one atom each; tK = h*kv, h = 1, 2 or more (`_steps`); r registers of an accumulator.

Policy "corrected": 2x2 waves, one a SIMD, S = 2 if the LDS holds the smallest tile twice. B blocks of a CU allow

    (x + y)*u*tK*e*S <= LDS/B                      LDS of both operands
    x*y*u^2*r/256 <= Vacc                          accumulators
    (x + y)*p + 32 <= Varch, p = (2 + h)*u*kv*e/1024 + 2    fragments u*kv*e/512, staging h/2 of that, two addresses a unit
    (x + y)*p + 32 + x*y*u^2*r/256 <= V            if both files are one
    x*u, y*u <= 256; a lane stages at most 128 bytes of A or of B

MX scales: addresses are half as many, a unit has an atom's scale, 32 becomes 29 and their staging, and LDS has S * 640 * tK/32
bytes less. For 6-bit elements by cache lines (`limits.by_lines`), a row needs 290 bytes of LDS and a line and a half of
staging. Small tiles, which have room, have more staging and more scales.

Block scales: w blocks are loaded at once (`limits.scale_ahead`), and LDS holds 2*w, a KB each. Sums are ArchVGPRs. Fragments,
of all of tK, are AccVGPRs, and so is the staging of an operand with k contiguous (s = 0; else 1). One limit replaces the three
of registers (q = u^2*r/256)

    (x + y)*(2 + s*h*u*kv*e/1024) + x*q + 32 + w + 6 + 4*q + x*y*q <= Varch, y a power of two, tK at most a block of k

In its staging, a transposed A's x counts as the next power of two (for other scales the largest tile has room for that).

`sides.answers` gives optima for B = 1; B is then the number of blocks that fit. `corrected_tiling` chooses among the tiles whose
time (`cost`, `operators.cost`) is within TOLERANCE of the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isqrt, lcm

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.cost import KernelCost
from simgpu.operators.gemm.cost import Tiles, gemm_cost, step_clocks
from simgpu.operators.gemm.leaves import Leaves
from simgpu.operators.gemm.limits import (
    ADDRESS_VGPRS,
    MOST_LOADS,
    MOST_PLACES,
    MX_PITCH,
    MX_TEMPORARY_VGPRS,
    MX_VGPRS,
    POOL_ATOMS,
    RING_BYTES,
    SCALE_ROWS,
    SCALE_VGPRS,
    TEMPORARY_VGPRS,
    WORD,
    Tiling,
    atom_of,
    by_lines,
    gemm_resources,
    matrix_flops_per_clock,
    mx_scale_bytes,
    scale_ahead,
    steps_ahead,
)
from simgpu.operators.gemm.problem import SCALE_BLOCK, GemmProblem
from simgpu.operators.gemm.sides import SideLimits, Sides, answers, even_side
from simgpu.operators.resources import Constraint
from simgpu.operators.split import TERM_ROWS, TOLERANCE, Reduction, price

_LANE_LOAD = 16  # bytes of a lane's 128-bit load
_LANE_BYTES = 128  # most bytes of one operand that a lane stages: MOST_LOADS such loads
_LONGEST = 256  # most elements of a side, for a wave's masks and addresses
_MANY_STEPS = 8  # steps of a block from which on loads to the ends of rows cost less than longer steps gain


def published_tiling(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> Tiling:
    """Returns the tiling by the paper's formulas."""
    e, lds = problem.element.bytes, descriptor.lds_bytes
    across = max(1, isqrt(descriptor.max_workgroup_size // descriptor.wavefront_size))
    unit = across * lcm(atom.m, atom.n)
    largest = max(unit, _align(isqrt(lds // e), unit))  # the printed sqrt((LDS/2)/e) gives 90 (E4)

    def fills_cus(side: int) -> bool:
        return problem.batch * -(-problem.m // side) * -(-problem.n // side) >= descriptor.num_cus

    side = next((side for side in range(largest, unit, -unit) if fills_cus(side)), unit)
    warp, warp_k = side // across, 2 * atom.k
    tile_k = warp_k * _power(max(1, lds // 2 // (2 * side * e) // warp_k))
    limited_by = "occupancy" if side < largest else None
    return Tiling(side, side, tile_k, warp_k, side // warp, side // warp, stages=1, blocks=1, limited_by=limited_by)


def corrected_tiling(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> Tiling:
    """Returns a tile whose time is within TOLERANCE of the least.

    Unsplit tiles are preferred, then the fewest bytes through L2, then the least time. Bytes do not count if blocks wait for
    latencies: neither the matrix units nor HBM limit them.
    """

    known: dict[Tiling, Reduction] = {}

    def price_tilings(idle: bool) -> dict[Tiling, Reduction]:
        return dict(_price(problem, descriptor, atom, idle, known))

    works = price_tilings(idle=False)
    peak = matrix_flops_per_clock(problem, descriptor) * descriptor.num_cus  # FLOP a clock
    least = min(works, key=lambda tiling: works[tiling].seconds(tiling.split_k))
    terms = works[least].terms(least.split_k)
    products = problem.flops / (peak * 1e6 * terms["MHz"])
    idle = 2 * products < works[least].seconds(least.split_k)
    waits = idle and max(terms["CU"], terms["loads"]) > terms["HBM"]
    if idle:  # loads decide: try longer steps as well
        works = price_tilings(idle=True)
    seconds = {tiling: work.seconds(tiling.split_k) for tiling, work in works.items()}
    near = [tiling for tiling in works if seconds[tiling] <= TOLERANCE * min(seconds.values())]

    def order(t: Tiling) -> tuple[int, float, float]:
        return min(2, t.split_k), 0.0 if waits else works[t].asked_bytes(t.split_k), seconds[t]

    best = min(near, key=order)
    work = works[best]
    together = min(work.resident, work.rounds(best.split_k))
    limited_by = _limited_by(problem, descriptor, atom, replace(best, blocks=together))
    return replace(best, blocks=together, limited_by=limited_by)


def options(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> Iterator[Tiling]:
    """Yields the optima of `sides.answers`, each with every K step that fits, at its best split."""
    return (tiling for tiling, _ in _price(problem, descriptor, atom, False, {}))


def _price(
    problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom, idle: bool, known: dict[Tiling, Reduction]
) -> Iterator[tuple[Tiling, Reduction]]:
    """Yields `options` with their reductions.

    idle: True if the matrix units are idle most of the time. known: cache of reductions, updated.
    """

    def reduction(t: Tiling) -> Reduction:
        key = replace(t, idle=False, aim="")
        if key not in known:
            known[key] = gemm_reduction(problem, descriptor, t)
        return known[key]

    span = max(atom.k, atom.lane_groups * 128 // _widest(problem))
    unit = _unit(problem, atom)
    least = unit * span * _widest(problem) // 8  # bytes of one operand and stage
    stages = max(1, min(2, _align(descriptor.lds_bytes, descriptor.lds_granule) // (2 * least)))
    smallest = Tiling(unit, unit, span, span, waves_m=2, waves_n=2, stages=stages, blocks=1, idle=idle)
    bounds = _bounds(problem, descriptor, smallest)
    named = answers(problem.even_batch, sustained_rates(descriptor), bounds)
    if problem.scales == "block":  # a wave's columns are in one block: sides along n are powers of two
        named = {aim: (x, _power(y)) for aim, (x, y) in named.items()} | _beside_powers(problem.even_batch, unit, bounds)
    works = [
        (tiling, reduction(tiling))
        for (x, y), aim in {sides: aim for aim, sides in reversed(named.items())}.items()
        for tiling in _steps(problem, descriptor, replace(smallest, tile_m=x * unit, tile_n=y * unit, aim=aim), reduction)
    ]
    price([work for _, work in works])
    for tiling, work in works:
        yield replace(tiling, split_k=work.split()) if problem.splits else tiling, work


def _steps(
    problem: GemmProblem, descriptor: HardwareDescriptor, t: Tiling, reduction: Callable[[Tiling], Reduction]
) -> Iterator[Tiling]:
    """Yields a tile with one span of K per step and, if that fits, with two; tiles loaded by cache lines have only one.

    If the matrix units are idle, it keeps doubling the spans while a step of a CU's blocks takes less time than its loads. It
    stops if K fills these steps, but not longer ones, and these are few: loads to the ends of rows take instructions (`edges`).
    """
    unit, span, spans = _unit(problem, atom_of(problem, descriptor)), t.tile_k, 1
    x, y = t.tile_m // unit, t.tile_n // unit
    first = _bounds(problem, descriptor, replace(t, tile_m=unit, tile_n=unit))
    if first.per_padded and first.broken_limit(x, y):
        return
    most = 2 * span if problem.scales_in_loop or not t.idle else max(2 * span, problem.k)
    if problem.scales == "block":
        most = min(most, SCALE_BLOCK)
    while True:
        yield t
        if by_lines(problem, t):  # it has as many loads in flight as a longer step, and requests fewer lines
            return
        covered, spans = t.idle and reduction(t).hides_loads(1), 2 * spans
        longer, many = spans * span, _MANY_STEPS * (2 if problem.splits else 1)  # blocks may share K
        ends = problem.k % longer > 0 and problem.k % t.tile_k == 0 and problem.k < many * longer
        if longer > most or (spans > 2 and (covered or ends)):
            return
        bound = _bounds(problem, descriptor, replace(t, tile_m=unit, tile_n=unit, tile_k=longer, warp_k=span))
        if bound.broken_limit(x, y) or max(x, y) > bound.longest:
            return
        t = replace(t, tile_k=longer, warp_k=longer if problem.scales == "block" else span)


def _beside_powers(problem: GemmProblem, unit: int, bound: SideLimits) -> dict[str, Sides]:
    """Returns the largest tiles whose sides along n are the powers of two below and above the largest square's."""
    below = _power(bound.square)
    columns = [
        y for y in (below, 2 * below) if y < 2 * -(-problem.n // unit) and not bound.broken_limit(1, y) and y <= bound.longest
    ]
    return {f"largest of {y * unit} columns": (even_side(-(-problem.m // unit), bound.rows(y)), y) for y in columns}


def _power(x: int) -> int:
    """Returns the largest power of two that is at most x."""
    return 1 << x.bit_length() - 1


def gemm_reduction(problem: GemmProblem, descriptor: HardwareDescriptor, t: Tiling) -> Reduction:
    """Returns a tile's K loop as a Reduction, which decides its split and its time."""
    p, ahead = problem.even_batch, steps_ahead(problem, t)
    resident = max(1, gemm_resources(problem, descriptor, atom_of(p, descriptor), t).blocks_per_cu)

    def first(parts: int) -> KernelCost:
        tiles = Tiles(t.tile_m, t.tile_n, t.tile_k, parts, resident, t.waves_m, t.waves_n)
        return gemm_cost(problem, descriptor, tiles).with_prefetch(ahead)

    outputs = p.batch * p.m * p.n
    return Reduction(
        tiles=p.batch * -(-p.n // t.tile_n) * -(-p.m // t.tile_m),
        steps=-(-p.k // (ahead * t.tile_k)),
        elements=outputs,
        partial_bytes=outputs * dtype(p.accumulator).bytes,
        result_bytes=outputs * dtype(p.dtype_c).bytes,
        first=first,
    )


def tiling_rows(problem: GemmProblem, descriptor: HardwareDescriptor, t: Tiling) -> tuple[Constraint, ...]:
    """Returns diagnostic rows that compare a tile's estimated time with two limits.

    One K step is compared with the matrix units, the whole kernel with the CUs. A problem that does not split has no split row.
    """
    work, clocks = gemm_reduction(problem, descriptor, t), step_clocks(problem, descriptor, t)
    rows = work.time_rows(t.split_k, "K", clocks, "of a K step")
    return rows if problem.splits else tuple(row for row in rows if row.name != "split of K")


def _bounds(problem: GemmProblem, d: HardwareDescriptor, t: Tiling) -> SideLimits:
    """Returns the limits for multiples of the smallest tile, with its K step, stages and blocks a CU."""
    unit, unit_bytes = t.tile_m, t.tile_m * t.warp_k * _widest(problem) // 8
    atom, spans, lds = atom_of(problem, d), t.tile_k // t.warp_k, _align(d.lds_bytes // t.blocks, d.lds_granule)
    arch, acc, total = d.vgpr_budget(-(-t.blocks * t.waves_m * t.waves_n // d.simds_per_cu))
    if d.unified_vgprs:  # the waves share one file, which has its own bound
        arch, acc, _ = d.vgpr_budget(1)
    # addresses; MX formats have half as many, and scales; 6-bit elements have twice as many
    of_atoms = unit // max(atom.m, atom.n)
    staged, lds_bytes = spans, t.stages * spans * unit_bytes
    if by_lines(problem, t):  # a line and a half of a row is two spans
        staged, lds_bytes = 2 * spans, unit * RING_BYTES
    elif 6 in (problem.element.bits, problem.element_b.bits):
        of_atoms *= 2
    per_side, per_area = of_atoms + (2 + staged) * unit_bytes // 1024, unit * unit * dtype(problem.accumulator).registers // 256
    fixed = ADDRESS_VGPRS + TEMPORARY_VGPRS + (0 if problem.leaves is None else _largest_leaves(problem.leaves))
    if problem.scales == "mx":
        step = mx_scale_bytes(t)
        lds, fixed = lds - t.stages * 2 * MX_PITCH * step, ADDRESS_VGPRS + MX_TEMPORARY_VGPRS + 2 * step // WORD + MX_VGPRS
    arch, total = arch - fixed, total - fixed
    longest = min(_LONGEST // unit, _LANE_BYTES * 256 // (spans * unit_bytes))
    if problem.scales == "block":  # addresses and scales are with the sums; fragments and untransposed staging use the other file
        acc, turned = POOL_ATOMS * per_area, problem.trans_a or not problem.trans_b
        ahead = scale_ahead(d)
        lds, beside = lds - 2 * ahead * SCALE_ROWS * WORD, 2 + turned * (spans * unit_bytes // 1024)
        most = unit * longest
        return SideLimits(
            unit, lds // (t.stages * spans * unit_bytes), most, most * most, arch - ahead - SCALE_VGPRS - acc, beside, per_area,
            longest, "ArchVGPR", per_area, problem.trans_a * (beside - 2),
        )  # fmt: skip
    return SideLimits(unit, lds // lds_bytes, arch // per_side, acc // per_area, total, per_side, per_area, longest)


def _largest_leaves(leaves: Leaves) -> int:
    """Returns the registers of leaves in the largest tiles (`limits.leaf_registers`)."""
    each = MOST_PLACES * (2 * _LANE_LOAD // WORD + 1)
    of_loads = len(leaves.sums) + len(leaves.matrices) * _LANE_LOAD // WORD
    return of_loads * MOST_LOADS + len(leaves.vectors) * each + leaves.temporaries


def _limited_by(problem: GemmProblem, d: HardwareDescriptor, atom: MFMAAtom, t: Tiling) -> str:
    """Returns the name of the constraint that limits the tile.

    It is the limit that a longer side would violate, else "problem size" if one tile covers C, else the largest term of its time.
    """
    unit = _unit(problem, atom)
    bounds = _bounds(problem, d, replace(t, tile_m=unit, tile_n=unit))
    x, y = t.tile_m // unit, t.tile_n // unit
    broken = bounds.broken_limit(x + 1, y) and bounds.broken_limit(x, y + 1)
    if broken:
        return broken
    if t.tile_m >= problem.even_batch.m and t.tile_n >= problem.n:
        return "problem size"
    terms = gemm_reduction(problem, d, t).terms(t.split_k)
    own = [name for name in TERM_ROWS if name != "Infinity Cache" or d.mall_bytes]
    return TERM_ROWS[max(own, key=lambda name: float(terms[name]))]


def _unit(problem: GemmProblem, atom: MFMAAtom) -> int:
    """Returns the elements in which sides are counted: two waves of one atom each.

    With 6-bit elements, a wave has two atoms, so that loads have at least 8 bytes.
    """
    atoms = 2 if 6 in (problem.element.bits, problem.element_b.bits) else 1
    return 2 * atoms * max(atom.m, atom.n)


def _widest(problem: GemmProblem) -> int:
    """Returns the bits of an element of the wider operand."""
    return max(problem.element.bits, problem.element_b.bits)


def _align(value: int, granule: int) -> int:
    return value // granule * granule
