"""Tiles of fused attention in closed form (paper, section Fused Attention; errata E11, E14 to E16, E24, E25).

Policy "published": `paper.plan`.

Policy "corrected" has two forms.

In the first, four waves, one a SIMD, share the queries of a block and split its keys. S^T = K Q^T and O^T = V^T P^T are chained
in registers, because both products keep a query in the same lane column, so E (the paper's P) does not pass through LDS. No two
waves need the same key, so K and V are loaded straight into registers. LDS is used only at the end, to add the waves' partial O.

In the second ("shared", types of 2 bytes), eight waves own 32 queries each and share K and V through LDS: each key is read from
memory once for 256 queries.

    tKV = 4 waves * 16 keys (32 keys for types of at most 2 bytes, if d and dv <= 128)
    tQ_max = the largest of 64, 32, 16 whose registers fit (`registers`) at one wave a SIMD, both files or their sum
    heads of a Q tile: the divisor of (query heads / KV heads) that gives the fewest Q tiles; ties go to the smallest
    tQ = the fastest of tQ_max, its half and its quarter, each at its best split (`operators.split`, E25). A step takes the
        longest of  matrix 2*tQ*tKV*(d+dv)/F,  cache tKV*(4*d+dv)*e/L1  and  exponentials, SOFTMAX_INSTRUCTIONS a score
    shared if it takes less than TOLERANCE times that time: tQ = 256, tKV = 64. A step takes the longest of the same three, but
        with cache  tKV*(d+2*dv)*e/L1,  and of LDS  tKV*(d+dv)*e*(8/read + 1/write)

Clocks by unit: `reductions`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.attention import registers as chained
from simgpu.operators.attention import shared_registers as shared
from simgpu.operators.attention.cost import attention_reduction, shared_reduction
from simgpu.operators.attention.paper.plan import paper_kernel, published_tiles
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.reductions import (
    chained_clocks,
    chained_resources,
    shared_clocks,
    shared_tile,
    tail,
    vector_clocks,
)
from simgpu.operators.attention.tiles import STEP, AttentionTiles, alignment_row, soft_rows
from simgpu.operators.levels import Level, Nest
from simgpu.operators.resources import (
    Constraint,
    ResourcePlan,
    limit_rows,
    mark_binding,
)
from simgpu.operators.split import TOLERANCE, Reduction

_QUERIES = (64, 32, 16)  # queries of a wave under "corrected"; past 64, loads are under 1/16 of the instructions

WIDEST = 8192  # most of d and dv: 16 rows of one byte an element would fill a lane's 512 registers


def derive_tiles(descriptor: HardwareDescriptor, L: int, d: int, policy: str = "corrected", dtype: str = "f32") -> AttentionTiles:
    """Returns tiles of fused attention for L queries and keys of head dimension d, one head: the paper's call.

    See `plan_attention`.

    >>> from simgpu import hardware, operators
    >>> tiles = operators.derive_tiles(hardware.target("gpu_a"), L=16384, d=128, policy="published")
    >>> tiles.tile_Q, tiles.tile_KV
    (32, 64)
    """
    return plan_attention(AttentionProblem(L, L, d, dtype=dtype), descriptor, policy)


def plan_attention(
    problem: AttentionProblem, descriptor: HardwareDescriptor, policy: str = "corrected", values: str = ""
) -> AttentionTiles:
    """Returns the tiles of fused attention. A plan that does not fit has feasible = False.

    values: under "published", the kernel ("mfma" or "fma") that the tiles must fit; "" for the paper's formulas as printed.
    Raises LaunchError for an unknown policy and TargetError if the target lacks the type.

    >>> from simgpu import hardware, operators
    >>> problem = operators.AttentionProblem(lq=16384, lk=16384, d=128)
    >>> operators.plan_attention(problem, hardware.target("gpu_a"), "published").tile_Q
    32
    """
    one_of("policy", policy, POLICIES)
    descriptor = descriptor.with_atoms_of(STEP, problem.dtype)
    for name, width in (("d", problem.d), ("dv", problem.dv)):
        if width > WIDEST:
            fit = _lower_d(replace(problem, d=min(problem.d, WIDEST), dv=min(problem.dv, WIDEST)), descriptor)
            raise LaunchError(f"{name} = {width}: a wave holds 16 rows of a head in registers: {fit}")
    if problem.narrow_kv and problem.dtype_kv not in descriptor.dtypes():
        other = f"use gfx942 or gfx950, or K and V in {problem.dtype}"
        raise TargetError(f"{descriptor.arch} has no instruction that widens {problem.dtype_kv}: {other}")
    if policy == "published":
        problem.refuse_extras("policy published")
        if problem.dv != problem.d or problem.d % STEP:
            raise LaunchError(f"policy published takes one head dimension, a multiple of {STEP}: pad Q, K and V, or use corrected")
    return published_tiles(problem, descriptor, values) if policy == "published" else _corrected_tiles(problem, descriptor)


def queries_that_fit(p: AttentionProblem, desc: HardwareDescriptor) -> tuple[int, ...]:
    """Returns the sizes of Q tiles whose registers fit at one wave per SIMD, the largest first."""
    arch, acc, total = desc.vgpr_budget(-(-chained.WAVES // desc.simds_per_cu))

    def fits(use: ResourcePlan) -> bool:
        both = -(-use.arch_vgprs // 4) * 4 + use.acc_vgprs if desc.unified_vgprs else 0
        return use.arch_vgprs <= arch and use.acc_vgprs <= acc and both <= total

    return tuple(queries for queries in _QUERIES if fits(chained_resources(p, desc, queries, False)))


def _corrected_tiles(p: AttentionProblem, desc: HardwareDescriptor) -> AttentionTiles:
    arch, acc, _ = desc.vgpr_budget(-(-chained.WAVES // desc.simds_per_cu))
    tile_kv = chained_keys(p)
    fitting = queries_that_fit(p, desc)
    tile_q_max = max(fitting, default=0)
    useful = max(STEP, 1 << (p.lq * p.heads // p.kv_heads - 1).bit_length())
    tried = [queries for queries in fitting if queries <= useful] or [STEP]
    works = {queries: attention_reduction(p, desc, queries, tile_kv) for queries in tried}
    splits = {queries: work.split() for queries, work in works.items()}
    tile_q = min(works, key=lambda queries: works[queries].seconds(splits[queries]))
    split, seconds = splits[tile_q], works[tile_q].seconds(splits[tile_q])
    crossing: tuple[Constraint, ...] = ()
    if shared_q := shared_tile(p, desc):
        work = shared_reduction(p, desc, shared_q)
        if (better := work.seconds(1)) < TOLERANCE * seconds:  # eight waves request K and V from L2 once
            return _with_rows(_shared_tiles(p, desc, shared_q, tile_q_max), work, _crossing(seconds, better, True))
        crossing = _crossing(better, seconds, False)
    plan = AttentionTiles(p, desc, "corrected", tile_q, tile_kv, tile_q_max, split, ())
    use = plan.resources
    lower = _lower_d(p, desc)
    notes = {
        "LDS": ("the waves' partial O, a block of columns at a time", "use fewer queries a block"),
        "ArchVGPR": ("Q, K, V, S or P, statistics; 1 wave a SIMD (E3, E14)", lower),
        "AccVGPR": ("O^T, and S^T where C and D must be here (E3, E14)", lower),
        "VGPR file": ("one file, at 1 wave a SIMD (E3, E8)", lower),
    }
    rows = (
        *limit_rows(desc, use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, chained.WAVES, 1, notes),
        alignment_row(plan),
        *soft_rows(plan),
        *works[tile_q].time_rows(split, "keys", chained_clocks(p, desc, tile_q, tile_kv), f"{tile_q} queries, {tile_kv} keys"),
        *crossing,
    )
    tight = max(("ArchVGPR", use.arch_vgprs / max(1, arch)), ("AccVGPR", use.acc_vgprs / max(1, acc)), key=lambda row: row[1])[0]
    limited_by = tight if tile_q >= tile_q_max else "occupancy"
    return replace(plan, constraints=mark_binding(rows, limited_by))


def _lower_d(p: AttentionProblem, desc: HardwareDescriptor) -> str:
    """Returns a remedy for registers: the head dimensions that fit."""
    def fits(width: int) -> bool:
        return bool(queries_that_fit(replace(p, d=min(p.d, width), dv=min(p.dv, width)), desc))

    widest = max(p.d, p.dv)
    if not fits(widest):
        widest = STEP * bisect_left(range(STEP, widest, STEP), True, key=lambda width: not fits(width))
    return f"d <= {widest} fits" if widest else "no d fits: use a target with more registers"


def with_queries(plan: AttentionTiles, queries: int) -> AttentionTiles:
    """Returns a plan with a Q tile of `queries`, unsplit keys, and the constraints of `plan`.

    With 128 and more, waves share K and V.
    """
    p, d = plan.problem, plan.descriptor
    if queries in shared.TILES:
        return replace(_shared_tiles(p, d, queries, plan.tile_Q_max), constraints=plan.constraints)
    return AttentionTiles(p, d, "corrected", queries, chained_keys(p), plan.tile_Q_max, 1, plan.constraints)


def with_nest(plan: AttentionTiles, nest: Nest) -> AttentionTiles:
    """Returns the plan of other tiles: as many queries as a kernel has that are not more, and any split of the keys.

    Under "published", also other keys for a step.
    """
    (_, _, queries, part), (keys, *_) = nest[Level.DEVICE], nest[Level.BLOCK]
    p, d = plan.problem, plan.descriptor
    if plan.policy == "published":
        tile_q, tile_kv = (max(STEP, loop.tile // STEP * STEP) for loop in (queries, keys))
        return paper_kernel(replace(plan, tile_Q=tile_q, tile_KV=tile_kv))
    sizes = [size for size in (shared_tile(p, d), *queries_that_fit(p, d)) if size]
    plans = [with_queries(plan, size) for size in sizes]
    near = next((other for other in plans if other.tile_queries <= queries.tile), plans[-1])
    steps, of_part = -(-p.lk // near.tile_KV), max(1, part.tile // near.tile_KV)
    return near if near.shared else replace(near, split_kv=-(-steps // of_part))


def chained_keys(p: AttentionProblem) -> int:
    """Returns the number of keys in a step if each wave has its own keys."""
    return chained.WAVES * STEP * chained.key_atoms(p)


def _shared_tiles(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int, tile_q_max: int) -> AttentionTiles:
    return AttentionTiles(p, desc, "corrected", tile_q, shared.KEYS_OF_STEP, tile_q_max, 1, (), shared=True)


def _with_rows(plan: AttentionTiles, work: Reduction, crossing: tuple[Constraint, ...]) -> AttentionTiles:
    """Returns a shared plan with its constraints."""
    use, d, p = plan.resources, plan.descriptor, plan.problem
    lower = "use a smaller d or dv"
    notes = {
        "LDS": ("two stages of K and of V", lower),
        "ArchVGPR": ("Q, S, P, fragments, staging; 2 waves a SIMD (E3, E14)", lower),
        "AccVGPR": ("O^T (E3, E14)", lower),
        "VGPR file": ("one file, at 2 waves a SIMD (E3, E8)", lower),
    }
    rows = (
        *limit_rows(d, use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, shared.WAVES, 1, notes),
        alignment_row(plan),
        *soft_rows(plan),
        *work.time_rows(1, "keys", shared_clocks(p, d, plan.tile_Q), f"{plan.tile_Q} queries, {shared.KEYS_OF_STEP} keys"),
        *crossing,
        _tail(p, d, plan.tile_Q),
    )
    return replace(plan, constraints=mark_binding(rows, "VGPR file"))


def _crossing(limit: float, use: float, is_shared: bool) -> tuple[Constraint, ...]:
    """Returns the soft row that compares the two forms, K and V through LDS or in registers, in microseconds."""
    ways = ("in registers, a wave's own", "through LDS, shared by eight waves")
    note = f"{ways[is_shared]}; the limit is {ways[not is_shared]}"
    return (Constraint("way of K and V", Level.DEVICE, 1e6 * limit, 1e6 * use, "us", note, hard=False),)


def _tail(p: AttentionProblem, d: HardwareDescriptor, tile_q: int) -> Constraint:
    """Returns the soft row that compares clocks of the vector unit with those of the matrix units.

    The result decides how many fragments of a step are multiplied after the barrier that ends a wave's LDS reads.
    """
    matrix, vector = shared_clocks(p, d, tile_q)["matrix"], vector_clocks(p, d, tile_q)
    behind = f"{tail(p, d, tile_q)} fragments of a step are multiplied behind its barrier"
    note = f"softmax and issue of products, against products: {behind}"
    return Constraint("vector unit", Level.BLOCK, matrix, vector, "clocks", note, hard=False)
