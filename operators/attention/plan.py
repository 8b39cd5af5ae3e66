"""Tiles of fused attention in closed form (paper, section Fused Attention; errata E11, E14 to E16, E24, E25).

Policy "published", one wave's registers for one Q tile, e = 4 whatever the type:
  tKV = (LDS/2) / (4*d),   V(tQ) = tQ*(2d + tKV)/64 + tQ/8 + 16,   tQ = floor16((V - 16)*64 / (2d + tKV + 8))
which reproduces the paper's Table 2. Where Q tiles are fewer than CUs, tQ is the largest multiple of 16 for which they are not, or
16: the paper "reduces tile sizes until occupancy is acceptable" and says neither which nor to what; tKV does not change the number
of tiles, and none of the lengths that it prints has fewer. LDS is checked for K or V alone, as there. Of a kernel (`values` is
given), the plan has all registers and LDS, and smaller tiles where these do not fit (`paper_registers`).

Policy "corrected": four waves, one a SIMD, share the queries of a block and split its keys. S^T = K Q^T and O^T = V^T P^T are
chained in registers (facts: a query owns one lane column), so no E in LDS; no two waves need the same key, so K and V go from
memory to registers and LDS serves only to add the four partial O at the end. Or ("shared", types of 2 bytes) eight waves own 32
queries each and share K and V through LDS, each key read from memory once for 256 queries.
  tKV = 4 waves * 16 keys (32 of 2 bytes and less, where d <= 128)
  tQ_max = the largest of 64, 32, 16 whose registers fit (`registers`) at one wave a SIMD, both files or their sum
  heads of a Q tile: the divisor of the heads that share K and V with the fewest Q tiles, of equals the smallest
  tQ = of tQ_max, its half and its quarter that of least time, split as is best for it (`operators.split`, E25): a step takes the
       longest of  matrix 2*tQ*tKV*(d+dv)/F,  cache tKV*(4*d+dv)*e/L1  and  exponentials, SOFTMAX_INSTRUCTIONS a score
  shared where it takes less time: tQ = 256, tKV = 64; its step the longest of these, its cache tKV*(d+2*dv)*e/L1, and of
       LDS  tKV*(d+dv)*e*(8/read + 1/write)
Clocks by unit: `reductions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.attention import paper_registers as paper
from simgpu.operators.attention import registers as chained
from simgpu.operators.attention import shared_registers as shared
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.reductions import (
    attention_reduction,
    chained_clocks,
    chained_resources,
    partial_bytes,
    shared_clocks,
    shared_reduction,
    shared_resources,
)
from simgpu.operators.attention.tile_rows import row_slots, tile_heads
from simgpu.operators.levels import Level
from simgpu.operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    assumption,
    limit_rows,
    mark_binding,
    occupancy_row,
    quantised,
    residency,
    sgprs,
)
from simgpu.operators.split import Reduction

_PUBLISHED_OVERHEAD = 16  # E14
_PUBLISHED_ROWS = ("SGPR", "waves per SIMD", "workgroup size")  # of `limit_rows`; LDS and VGPR are the paper's own
_STEP = 16  # rows of Q and keys per atom
_QUERIES = (64, 32, 16)  # of a wave under "corrected"; past 64, loads are under 1/16 of the instructions


@dataclass(frozen=True)
class AttentionTiles(Derivation):
    """Tiles of fused attention.

    A block has waves_q x waves_kv waves; wave (i, j) owns queries i of tile_Q/waves_q and keys j of each step's tile_KV/waves_kv,
    both multiples of 16.
    """

    problem: AttentionProblem
    descriptor: HardwareDescriptor
    policy: str
    tile_Q: int  # queries of a block
    tile_KV: int  # keys of a step
    tile_Q_max: int  # queries that the registers allow
    split_kv: int  # blocks that share one Q tile's keys
    constraints: tuple[Constraint, ...]
    shared: bool = False  # waves own queries and share K and V through LDS
    values: str = ""  # which of the paper's kernels the plan is of; empty for its formulas alone

    @property
    def L(self) -> int:
        """Queries of a head."""
        return self.problem.lq

    @property
    def d(self) -> int:
        """Head dimension."""
        return self.problem.d

    @property
    def dtype(self) -> str:
        """Type of Q, K and V."""
        return self.problem.dtype

    @property
    def waves_q(self) -> int:
        """Waves of a block along the queries."""
        return shared.WAVES if self.shared else 1

    @property
    def waves_kv(self) -> int:
        """Waves of a block along the keys; their states merge at the end."""
        return 1 if self.policy == "published" or self.shared else chained.WAVES

    @property
    def threads(self) -> int:
        """Work-items of a block."""
        return self.waves_q * self.waves_kv * self.descriptor.wavefront_size

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        return (
            f"attention {p.batch}x{p.heads} heads, {p.lq} queries, {p.lk} keys, d = {p.d}, {p.dtype} on "
            f"{self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """What the policy decided, by name."""
        names = ("tile_Q", "tile_heads", "tile_KV", "tile_Q_max", "split_kv", "waves_q", "waves_kv")
        return {name: getattr(self, name) for name in names}

    @property
    def tile_heads(self) -> int:
        """Query heads that share a Q tile (`tile_heads`)."""
        return 1 if self.policy == "published" else tile_heads(self.problem, self.tile_Q)

    @property
    def row_slots(self) -> int:
        """Rows of a Q tile from one query to the next: its heads, rounded up to a power of two."""
        return row_slots(self.tile_heads)

    @property
    def tile_queries(self) -> int:
        """Queries of a Q tile, each for `tile_heads` heads."""
        return self.tile_Q // self.row_slots

    @property
    def heads_at_once(self) -> int:
        """Heads whose Q tiles follow each other in turn in the order of dispatch, which deals workgroups to the XCDs in turn: those
        that share K and V then run on one XCD, and share its L2."""
        return math.gcd(self.descriptor.xcds, self.problem.batch * self.problem.heads // self.tile_heads)

    @property
    def q_tiles(self) -> int:
        """Q tiles of all heads."""
        return self.problem.batch * self.problem.heads // self.tile_heads * -(-self.L // max(1, self.tile_queries))

    @property
    def tile_pairs(self) -> bool:
        """Whether a block has two Q tiles of a head, the first and the last left, which under a causal mask see as many keys as any
        other two."""
        return self.shared and self.problem.causal

    @property
    def blocks_of_head(self) -> int:
        """Blocks of the heads of a tile, their keys unsplit."""
        tiles = -(-self.L // max(1, self.tile_queries))
        return -(-tiles // 2) if self.tile_pairs else tiles

    @property
    def tiles(self) -> int:
        """Blocks: Q tiles or pairs of them, times the split of the keys."""
        p = self.problem
        return p.batch * p.heads // self.tile_heads * self.blocks_of_head * self.split_kv

    @property
    def blocks_per_cu(self) -> float:
        """Q tiles divided by CUs: 4.27 on gpu_a and 1.68 on gpu_b at L = 16384, d = 128 (the paper prints 0.27 and 1.69, E11)."""
        return self.q_tiles / self.descriptor.num_cus

    @property
    def occupancy(self) -> float:
        """The paper's word for `blocks_per_cu`."""
        return self.blocks_per_cu

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9, E25) of all blocks, the split included."""
        return quantised(self.tiles, self.descriptor.num_cus)

    @property
    def rounds(self) -> int:
        """Rounds of blocks, one a CU: 5 at L = 16384 on gpu_a (E24)."""
        return -(-self.tiles // self.descriptor.num_cus)

    @property
    def lockstep_bytes(self) -> int:
        """HBM bytes if blocks that run together share one stream of K and V (E21): 101 MB at L = 16384 on gpu_a."""
        return self.rounds * self.problem.kv_bytes + self.problem.qr_bytes

    @property
    def partial_bytes(self) -> int:
        """HBM bytes of the partial O and statistics of split keys, written by the blocks and read by the second pass; 0 without a
        split."""
        return 2 * self.split_kv * partial_bytes(self.problem) if self.split_kv > 1 else 0

    @property
    def vgprs(self) -> int:
        """Registers per lane at the synchronisation point: the paper's V, or the ArchVGPRs under "corrected"."""
        return self.vgprs_at(self.tile_Q)

    def vgprs_at(self, tile_q: int) -> int:
        """`vgprs` for another Q tile: the third column but one of the paper's Table 2."""
        if self.shared:
            return self.resources.arch_vgprs
        if self.policy == "published":
            return _published_vgprs(tile_q, self.tile_KV, self.d)
        return chained_resources(self.problem, self.descriptor, tile_q, False).arch_vgprs

    @property
    def resources(self) -> ResourcePlan:
        """Named ranges of the kernel; under "published" without one the paper's V and one tile of K or V."""
        if self.shared:
            return shared_resources(self.problem, self.descriptor)
        if self.policy == "corrected":
            return chained_resources(self.problem, self.descriptor, self.tile_Q, self.split_kv > 1)
        if self.values:
            return _paper(self.problem, self.descriptor, self.values, self.tile_Q, self.tile_KV)
        registers, lds = RegisterRange("Q, S, O (E14)", "arch", self.vgprs), LdsArray("K or V", 4 * self.tile_KV * self.d)
        scalars = paper.scalars(self.dtype, self.descriptor, "mfma")  # the paper states none
        held = residency(self.descriptor, self.vgprs, 0, sgprs(scalars), lds.nbytes, 1)
        return ResourcePlan((registers,), (lds,), scalars, *held)


def derive_tiles(descriptor: HardwareDescriptor, L: int, d: int, policy: str = "corrected", dtype: str = "f32") -> AttentionTiles:
    """Tiles of fused attention for L queries and keys of head dimension d, one head; the paper's call. As `plan_attention`."""
    return plan_attention(AttentionProblem(L, L, d, dtype=dtype), descriptor, policy)


def plan_attention(
    problem: AttentionProblem, descriptor: HardwareDescriptor, policy: str = "corrected", values: str = ""
) -> AttentionTiles:
    """Tiles of fused attention. An answer that does not fit has feasible = False.

    values: under "published", the kernel ("mfma" or "fma") that the tiles are to fit; "" for the paper's formulas as printed.
    LaunchError for an unknown policy; TargetError if the target lacks the type.
    """
    one_of("policy", policy, POLICIES)
    descriptor.atom(problem.dtype)
    if problem.narrow_kv and problem.dtype_kv not in descriptor.dtypes():
        other = f"use gfx942 or gfx950, or K and V in {problem.dtype}"
        raise TargetError(f"{descriptor.arch} has no instruction that widens {problem.dtype_kv}: {other}")
    if policy == "published":
        problem.refuse_extras("policy published")
        if problem.dv != problem.d or problem.d % _STEP:
            raise LaunchError(f"policy published takes one head dimension, a multiple of {_STEP}: pad Q, K and V, or use corrected")
    return _published(problem, descriptor, values) if policy == "published" else _corrected(problem, descriptor)


def _published_vgprs(tile_q: int, tile_kv: int, d: int) -> int:
    return -(-tile_q * (2 * d + tile_kv) // 64) + tile_q // 8 + _PUBLISHED_OVERHEAD


def _published(p: AttentionProblem, desc: HardwareDescriptor, values: str) -> AttentionTiles:
    d = p.d
    tile_kv = max(_STEP, desc.lds_bytes // 2 // (4 * d) // _STEP * _STEP)
    budget = desc.vgpr_per_thread
    tile_q_max = max(0, (budget - _PUBLISHED_OVERHEAD) * 64 // (2 * d + tile_kv + 8) // _STEP * _STEP)
    largest = min(max(_STEP, tile_q_max), -(-p.lq // _STEP) * _STEP)

    def occupied(queries: int) -> bool:
        return p.batch * p.heads * -(-p.lq // queries) >= desc.num_cus

    tile_q = next((queries for queries in range(largest, _STEP, -_STEP) if occupied(queries)), _STEP)
    if values:
        return _paper_kernel(AttentionTiles(p, desc, "published", tile_q, tile_kv, tile_q_max, 1, (), values=values))
    vgprs = _published_vgprs(tile_q, tile_kv, d)
    plan = AttentionTiles(p, desc, "published", tile_q, tile_kv, tile_q_max, 1, ())
    rows = (
        Constraint(
            "LDS",
            Level.BLOCK,
            desc.lds_bytes // 2,
            4 * tile_kv * d,
            "bytes",
            "one tile of K or V (E15, E16)",
            f"at {_STEP} keys d <= {desc.lds_bytes // 2 // (4 * _STEP) // _STEP * _STEP} fits",
        ),
        Constraint(
            "VGPR",
            Level.WARP,
            budget,
            vgprs,
            "registers",
            "Q, S, O live between the two products (E14)",
            f"free {vgprs - budget} registers a lane: lower d",
        ),
        *(row for row in limit_rows(desc, vgprs, 0, plan.resources.sgprs, 0, 1, 1, {}) if row.name in _PUBLISHED_ROWS),
        _alignment(plan),
        *_soft(plan),
    )
    return replace(plan, constraints=mark_binding(rows, "VGPR" if tile_q == tile_q_max else "occupancy"))


def _paper(p: AttentionProblem, desc: HardwareDescriptor, values: str, queries: int, keys: int) -> ResourcePlan:
    ranges = paper.registers(p.d, p.dtype, desc, values, queries, keys)
    plan = ResourcePlan(ranges, paper.lds(p.d, p.dtype, values, queries, keys), paper.scalars(p.dtype, desc, values), 1, 1)
    waves, blocks = residency(desc, plan.arch_vgprs, plan.acc_vgprs, plan.sgprs, plan.lds_bytes, 1)
    return replace(plan, waves_per_simd=waves, blocks_per_cu=blocks)


def _paper_kernel(published: AttentionTiles) -> AttentionTiles:
    """The published tiles, or those that fit the kernel."""
    p, desc, asked = published.problem, published.descriptor, (published.tile_Q, published.tile_KV)
    tile_q, tile_kv = paper.fitted(p.d, p.dtype, desc, published.values, *asked)
    plan = replace(published, tile_Q=tile_q, tile_KV=tile_kv, tile_Q_max=min(published.tile_Q_max, tile_q))
    use, lower = plan.resources, "lower d, or use policy corrected"
    notes = {
        "LDS": ("K or V, and E (E15, E16)", lower),
        "ArchVGPR": ("Q, S, statistics, fragments" + ", O (E14)" * (plan.values == "fma"), lower),
        "AccVGPR": ("S where C and D must be here" + ", O (E14)" * (plan.values == "mfma"), lower),
    }
    rows = (
        *limit_rows(desc, use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, 1, 1, notes),
        Constraint("VGPR", Level.WARP, desc.vgpr_per_thread, plan.vgprs, "registers", "the paper's: Q, S, O (E14)", hard=False),
        _alignment(plan),
        *_soft(plan),
    )
    limited_by = None if asked != (tile_q, tile_kv) else "VGPR" if tile_q == published.tile_Q_max else "occupancy"
    return replace(plan, constraints=mark_binding(rows, limited_by))


def queries_that_fit(p: AttentionProblem, desc: HardwareDescriptor) -> tuple[int, ...]:
    """The Q tiles whose registers fit at one wave a SIMD, the largest first."""
    arch, acc, total = desc.vgpr_budget(-(-chained.WAVES // desc.simds_per_cu))

    def fits(use: ResourcePlan) -> bool:
        both = -(-use.arch_vgprs // 4) * 4 + use.acc_vgprs if desc.unified_vgprs else 0
        return use.arch_vgprs <= arch and use.acc_vgprs <= acc and both <= total

    return tuple(queries for queries in _QUERIES if fits(chained_resources(p, desc, queries, False)))


def _corrected(p: AttentionProblem, desc: HardwareDescriptor) -> AttentionTiles:
    arch, acc, _ = desc.vgpr_budget(-(-chained.WAVES // desc.simds_per_cu))
    tile_kv = chained_keys(p)
    fitting = queries_that_fit(p, desc)
    tile_q_max = max(fitting, default=0)
    useful = max(_STEP, 1 << (p.lq * p.heads // p.kv_heads - 1).bit_length())
    tried = [queries for queries in fitting if queries <= useful] or [_STEP]
    works = {queries: attention_reduction(p, desc, queries, tile_kv) for queries in tried}
    splits = {queries: work.split() for queries, work in works.items()}
    tile_q = min(works, key=lambda queries: works[queries].seconds(splits[queries]))
    split, seconds = splits[tile_q], works[tile_q].seconds(splits[tile_q])
    crossing: tuple[Constraint, ...] = ()
    if shares(p, desc):
        work = shared_reduction(p, desc)
        if (better := work.seconds(1)) < seconds:
            return _with_rows(_shared_tiles(p, desc, tile_q_max), work, _crossing(seconds, better, True))
        crossing = _crossing(better, seconds, False)
    plan = AttentionTiles(p, desc, "corrected", tile_q, tile_kv, tile_q_max, split, ())
    use = plan.resources
    widest = max(p.d, p.dv)
    narrower = (replace(p, d=min(p.d, width), dv=min(p.dv, width)) for width in range(widest // _STEP * _STEP, 0, -_STEP))
    if not tile_q_max:
        widest = next(max(narrow.d, narrow.dv) for narrow in narrower if _STEP in queries_that_fit(narrow, desc))
    lower = f"d <= {widest} fits"
    notes = {
        "LDS": ("the waves' partial O, a block of columns at a time", "use fewer queries a block"),
        "ArchVGPR": ("Q, K, V, S or P, statistics; 1 wave a SIMD (E3, E14)", lower),
        "AccVGPR": ("O^T, and S^T where C and D must be here (E3, E14)", lower),
        "VGPR file": ("one file, at 1 wave a SIMD (E3, E8)", lower),
    }
    rows = (
        *limit_rows(desc, use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, chained.WAVES, 1, notes),
        _alignment(plan),
        *_soft(plan),
        *works[tile_q].time_rows(split, "keys", chained_clocks(p, desc, tile_q, tile_kv), f"{tile_q} queries, {tile_kv} keys"),
        *crossing,
    )
    tight = max(("ArchVGPR", use.arch_vgprs / arch), ("AccVGPR", use.acc_vgprs / acc), key=lambda row: row[1])[0]
    limited_by = tight if tile_q >= tile_q_max else "occupancy"
    return replace(plan, constraints=mark_binding(rows, limited_by))


def with_queries(plan: AttentionTiles, queries: int) -> AttentionTiles:
    """The plan with another Q tile, its keys unsplit; constraints are left as they are. 256 queries share K and V."""
    p, d = plan.problem, plan.descriptor
    if queries == shared.TILE:
        return replace(_shared_tiles(p, d, plan.tile_Q_max), constraints=plan.constraints)
    return AttentionTiles(p, d, "corrected", queries, chained_keys(p), plan.tile_Q_max, 1, plan.constraints)


def chained_keys(p: AttentionProblem) -> int:
    """Keys of a step of waves that have keys of their own."""
    return chained.WAVES * _STEP * chained.key_atoms(p)


def shares(p: AttentionProblem, desc: HardwareDescriptor) -> bool:
    """Whether a kernel can share K and V through LDS: not of a cache, 2 bytes an element, rows of K in whole 16 bytes, one
    register file (a product may stay in it), its registers and LDS within the limits."""
    if p.dtype not in ("f16", "bf16") or p.cached or p.d % shared.COLUMN_UNIT or not desc.unified_vgprs:
        return False
    return row_slots(tile_heads(p, shared.TILE)) <= shared.QUERIES and shared_resources(p, desc).blocks_per_cu > 0


def _shared_tiles(p: AttentionProblem, desc: HardwareDescriptor, tile_q_max: int) -> AttentionTiles:
    return AttentionTiles(p, desc, "corrected", shared.TILE, shared.KEYS_OF_STEP, tile_q_max, 1, (), shared=True)


def _with_rows(plan: AttentionTiles, work: Reduction, crossing: tuple[Constraint, ...]) -> AttentionTiles:
    """A shared plan with its constraints."""
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
        _alignment(plan),
        *_soft(plan),
        *work.time_rows(1, "keys", shared_clocks(p, d), f"{shared.TILE} queries, {shared.KEYS_OF_STEP} keys"),
        *crossing,
    )
    return replace(plan, constraints=mark_binding(rows, "VGPR file"))


def _crossing(limit: float, use: float, is_shared: bool) -> tuple[Constraint, ...]:
    """The soft row of K and V through LDS against K and V in registers, microseconds."""
    ways = ("in registers, a wave's own", "through LDS, shared by eight waves")
    note = f"{ways[is_shared]}; the limit is {ways[not is_shared]}"
    return (Constraint("way of K and V", Level.DEVICE, 1e6 * limit, 1e6 * use, "us", note, hard=False),)


def _alignment(plan: AttentionTiles) -> Constraint:
    widths = (plan.problem.padded_d, plan.problem.padded_dv)
    ragged = sum(bool(size % _STEP) for size in (plan.tile_Q // plan.waves_q, plan.tile_KV // plan.waves_kv, *widths))
    return Constraint("atom alignment", Level.ATOM, 0, ragged, "dimensions", f"queries, keys and d of a wave by {_STEP}",
                      f"use multiples of {_STEP}")  # fmt: skip


def _soft(plan: AttentionTiles) -> tuple[Constraint, ...]:
    """Occupancy, and K and V from the level that serves re-reads at matrix peak: 2e/(4*tQ) bytes a FLOP (E21)."""
    p, d = plan.problem, plan.descriptor
    demand = d.matrix_tflops(p.dtype) * p.element.bytes / (2 * plan.tile_Q)
    factor = demand / d.reread_bandwidth_tb
    bound = f"bandwidth-bound by {factor:.2f}" if factor > 1 else "compute-bound"
    return (
        occupancy_row(d, plan.tiles),
        Constraint(
            "operand bandwidth",
            Level.DEVICE,
            d.reread_bandwidth_tb,
            demand,
            "TB/s",
            f"K and V, read again by every Q tile: {bound} (E10, E21){assumption(d)}",
            hard=False,
        ),
    )
