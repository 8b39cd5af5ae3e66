"""Tiles of a GEMM in closed form: descriptor and problem in, GemmPlan out. No search: the same few formulas, whatever the sizes.

Letters: e bytes an element of A and B; (m, n, k) the atom; G = 64/m its lane groups; kv the K span of one 128-bit LDS read per
lane, kv = max(k, 16*G/e), so that consecutive atoms share the read; w waves per SIMD; B blocks per CU; S stages of LDS; x, y: tM
and tN in units of u = 2*m, two waves of one atom each.

Policy "corrected" (errata E3 to E10), 2x2 waves, one a SIMD, B = 2, S = 2:

  c(B) = (LDS/B in whole granules) // (2*u*kv*e)   smallest stages (u by u) that each of B blocks can have;  S = min(2, c(1)),
                                                   B = 2 if c(2) >= S else 1
  bounds at w = B waves a SIMD, r registers an accumulator:
    (x + y)*u*kv*e*S <= LDS/B                      LDS of both operands
    x*y*u^2*r/256 <= Vacc                          accumulators
    (x + y)*p + 32 <= Varch, p = 3*u*kv*e/1024 + 2 fragments u*kv*e/512, staging half of that, two for addresses a unit of side
    (x + y)*p + 32 + x*y*u^2*r/256 <= V            where both files are one
    x*u, y*u <= 256; a lane stages at most 128 bytes of A or of B
  x, y = `sides`: three optima of T, each rounded down and up, and the largest tile
  T = max(FLOP/(peak*eta*fill), HBM bytes/BW, re-read bytes/BW_reread), with the split of K that `split` gives; of the
  tiles within 5 % of the least T that with the least 1/tM + 1/tN, LDS reads, which T does not see; 1.6 of it where K is split
  tK = kv, or 2*kv (a 128-byte line) where K is not split, bounds and 64 staged bytes a lane allow it and it pads K by at most 1/32

Policy "published": tM = tN = sqrt(LDS/e), tK = (LDS/2)/((tM+tN)*e), warp tile tM/4 x tN/4 x 2k, 16 waves, one stage; aligned down
to the atom. The constraints beside it are the true ones (E3, E8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import dtype
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.gemm.limits import ADDRESS_VGPRS, TEMPORARY_VGPRS, Tiling, gemm_constraints, gemm_resources
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.sides import Bounds, answers
from simgpu.operators.resources import Constraint, Derivation, ResourcePlan, mark_binding
from simgpu.operators.split import Reduction

_LANE_BYTES = 128  # of one operand that a lane stages at most: eight 128-bit loads; half of them with a second span of K
_LONGEST = 256  # elements of a side: what a wave's masks and addresses are made for
TOLERANCE = 1.05  # of T: what fewer LDS reads are worth
SECOND_PASS = 1.6  # LDS reads that it is worth to do without a second kernel


@dataclass(frozen=True)
class GemmPlan(Derivation):
    """A GEMM's tiles, resources and constraints: what the tree shows and the emitter consumes.

    Always: warp_m = tile_m/waves_m and warp_n = tile_n/waves_n are multiples of atom.m and atom.n; warp_k is a multiple of atom.k
    and divides tile_k. Under "corrected" besides: waves_m = waves_n = 2; tile_m and tile_n are multiples of 2*atom.m from 32 to
    256, powers of two or not (96, 160, ...); warp_k = max(atom.k, G*16/e) is the span of one 128-bit LDS read per lane (16 for
    f32), tile_k is warp_k or 2*warp_k; each lane stages a multiple of 8 bytes of A and of B a stage, at most 128; two stages if the
    LDS holds them. `grid` is that of one product and all of K: the batch (problem.batch) and the split of K (split_k, each part
    k_steps_per_block stages) come on top. A plan that does not fit exists (feasible is False, binding says why); `check()` raises.
    """

    problem: GemmProblem
    descriptor: HardwareDescriptor
    policy: str
    tiling: Tiling
    atom: MFMAAtom
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def tile_m(self) -> int:
        """Rows of C of a block."""
        return self.tiling.tile_m

    @property
    def tile_n(self) -> int:
        """Columns of C of a block."""
        return self.tiling.tile_n

    @property
    def tile_k(self) -> int:
        """K extent of one LDS stage."""
        return self.tiling.tile_k

    @property
    def warp_m(self) -> int:
        """Rows of C of a wave."""
        return self.tiling.warp_m

    @property
    def warp_n(self) -> int:
        """Columns of C of a wave."""
        return self.tiling.warp_n

    @property
    def warp_k(self) -> int:
        """K extent of the fragments that a wave holds at once."""
        return self.tiling.warp_k

    @property
    def waves_m(self) -> int:
        """Waves of a block along m."""
        return self.tiling.waves_m

    @property
    def waves_n(self) -> int:
        """Waves of a block along n."""
        return self.tiling.waves_n

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return self.waves_m * self.waves_n

    @property
    def threads(self) -> int:
        """Work-items of a block."""
        return self.waves * self.descriptor.wavefront_size

    @property
    def stages(self) -> int:
        """LDS buffers: 1, or 2 for double buffering."""
        return self.tiling.stages

    @property
    def grid(self) -> tuple[int, int]:
        """(gx, gy): blocks along n, blocks along m."""
        return _ceil_div(self.problem.n, self.tile_n), _ceil_div(self.problem.m, self.tile_m)

    @property
    def split_k(self) -> int:
        """Blocks that share one tile of C: each has `k_steps_per_block` of its stages, a second pass adds them."""
        return self.tiling.split_k

    @property
    def blocks(self) -> int:
        """Blocks of everything: grid, batch and split."""
        return self.grid[0] * self.grid[1] * self.problem.batch * self.split_k

    @property
    def k_steps(self) -> int:
        """Stages of the whole of K."""
        return _ceil_div(self.problem.k, self.tile_k)

    @property
    def k_steps_per_block(self) -> int:
        """Stages that one block goes through; `k_steps` unless K is split."""
        return _ceil_div(self.k_steps, self.split_k)

    @property
    def blocks_per_cu(self) -> float:
        """Tiles divided by CUs (paper: 8.5 at 4096 cubed on gpu_a)."""
        return self.blocks / self.descriptor.num_cus

    @property
    def fill(self) -> float:
        """Useful share of the products that the padded tiles execute."""
        p = self.problem
        gx, gy = self.grid
        return p.m * p.n * p.k / (gx * self.tile_n * gy * self.tile_m * self.split_k * self.k_steps_per_block * self.tile_k)

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        times = "" if p.batch == 1 else f"{p.batch} x "
        return f"gemm {times}{p.m}x{p.n}x{p.k} {p.dtype} on {self.descriptor.name or self.descriptor.arch}"

    @property
    def sizes(self) -> dict[str, int]:
        """What the policy decided, by name."""
        names = ("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k", "waves_m", "waves_n", "stages", "split_k")
        return {name: getattr(self, name) for name in names}


def plan_gemm(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> GemmPlan:
    """The closed-form plan. TargetError if the target has no atom for the type, LaunchError for an unknown policy."""
    one_of("policy", policy, POLICIES)
    atom = descriptor.atom(problem.dtype)
    tiling = (_corrected if policy == "corrected" else _published)(problem, descriptor, atom)
    resources = gemm_resources(problem, descriptor, atom, tiling)
    constraints = mark_binding(gemm_constraints(problem, descriptor, atom, tiling, resources), tiling.limited_by)
    return GemmPlan(problem, descriptor, policy, tiling, atom, resources, constraints)


def without_split(plan: GemmPlan) -> GemmPlan:
    """The same tiles with all of K in one block: for what must be one kernel."""
    tiling = replace(plan.tiling, split_k=1)
    given = plan.problem, plan.descriptor, plan.atom, tiling
    resources = gemm_resources(*given)
    constraints = mark_binding(gemm_constraints(*given, resources), tiling.limited_by)
    return replace(plan, tiling=tiling, resources=resources, constraints=constraints)


def _published(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> Tiling:
    e, lds = problem.element.bytes, descriptor.lds_bytes
    warp_k = 2 * atom.k
    tile_m = max(4 * atom.m, _align(isqrt(lds // e), 4 * atom.m))  # the printed sqrt((LDS/2)/e) gives 90 (E4)
    tile_n = max(4 * atom.n, _align(isqrt(lds // e), 4 * atom.n))
    tile_k = max(warp_k, _align(lds // 2 // ((tile_m + tile_n) * e), warp_k))
    return Tiling(tile_m, tile_n, tile_k, warp_k, waves_m=4, waves_n=4, stages=1, blocks=1)


def _corrected(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> Tiling:
    e = problem.element.bytes
    span = max(atom.k, atom.lane_groups * 16 // e)
    unit = 2 * max(atom.m, atom.n)
    unit_bytes = unit * span * e  # of one operand and stage
    per_block = {count: _align(descriptor.lds_bytes // count, descriptor.lds_granule) for count in (1, 2)}
    stages = max(1, min(2, per_block[1] // (2 * unit_bytes)))
    blocks = 2 if per_block[2] // (2 * unit_bytes) >= stages else 1
    arch, acc, total = descriptor.vgpr_budget(blocks)
    arch, total = arch - ADDRESS_VGPRS - TEMPORARY_VGPRS, total - ADDRESS_VGPRS - TEMPORARY_VGPRS
    per_side, per_area = 2 + 3 * unit_bytes // 1024, unit * unit * dtype(problem.dtype_c).registers // 256
    bounds = Bounds(
        unit, per_block[blocks] // (stages * unit_bytes), arch // per_side, acc // per_area, total, per_side, per_area,
        longest=min(_LONGEST // unit, _LANE_BYTES * 256 // unit_bytes),
    )  # fmt: skip
    x, y = _sides(problem, descriptor, bounds, span)
    tile_m, tile_n = x * unit, y * unit
    limited_by = bounds.broken(x + 1, y) and bounds.broken(x, y + 1)
    if not limited_by:
        limited_by = "problem size" if tile_m >= problem.m and tile_n >= problem.n else "occupancy"
    steps, two_spans = _ceil_div(problem.k, span), (2 + 4 * unit_bytes // 1024) * (x + y)
    doubled = (
        steps % 2 <= steps // 32
        and gemm_reduction(problem, descriptor, tile_m, tile_n, span).split() == 1
        and 2 * (x + y) <= bounds.lds
        and two_spans <= min(arch, total - per_area * x * y)
        and 4 * max(x, y) * unit_bytes <= _LANE_BYTES * 256
    )
    tile_k = span * (2 if doubled else 1)
    split = gemm_reduction(problem, descriptor, tile_m, tile_n, tile_k).split()
    return Tiling(tile_m, tile_n, tile_k, span, 2, 2, stages, blocks, split, limited_by)


def gemm_reduction(problem: GemmProblem, descriptor: HardwareDescriptor, tile_m: int, tile_n: int, tile_k: int) -> Reduction:
    """What decides the split of K: padded work at matrix peak, each array once, partial tiles of C written and read."""
    p, steps = problem, _ceil_div(problem.k, tile_k)
    tiles = p.batch * _ceil_div(p.m, tile_m) * _ceil_div(p.n, tile_n)
    seconds = 2 * tiles * tile_m * tile_n * steps * tile_k / (descriptor.matrix_tflops(p.dtype) * 1e12)
    partial = 2 * p.batch * p.m * p.n * dtype(p.dtype_c).bytes
    return Reduction(tiles, steps, seconds, p.bytes_once, partial, descriptor.hbm_bandwidth_tb * 1e12, descriptor.num_cus)


def _sides(problem: GemmProblem, descriptor: HardwareDescriptor, bounds: Bounds, span: int) -> tuple[int, int]:
    """tM and tN in units.

    Of the answers of `sides` within TOLERANCE of the least T, this is the one with the least 1/tM + 1/tN; a tile that splits K
    counts SECOND_PASS times.
    """
    tiles = set(answers(problem, descriptor, bounds).values())
    works = {(x, y): gemm_reduction(problem, descriptor, x * bounds.unit, y * bounds.unit, span) for x, y in tiles}
    splits = {tile: works[tile].split() for tile in tiles}
    seconds = {
        (x, y): _seconds(problem, descriptor, x * bounds.unit, y * bounds.unit, works[x, y], splits[x, y]) for x, y in tiles
    }
    enough = TOLERANCE * min(seconds.values())
    near = (tile for tile in tiles if seconds[tile] <= enough)
    return min(near, key=lambda tile: ((1 / tile[0] + 1 / tile[1]) * (SECOND_PASS if splits[tile] > 1 else 1), tile))


def _seconds(problem: GemmProblem, descriptor: HardwareDescriptor, tile_m: int, tile_n: int, work: Reduction, split: int) -> float:
    """T of a tile with its split of K: the largest of padded compute at eta, HBM bytes, and re-read bytes over their bandwidths."""
    p = problem
    staged = p.batch * p.k * p.element.bytes * (p.m * _ceil_div(p.n, tile_n) + p.n * _ceil_div(p.m, tile_m))
    moved = staged + p.epilogue_bytes + (split * work.partial_bytes if split > 1 else 0)
    return max(work.seconds(split), moved / (descriptor.reread_bandwidth_tb * 1e12))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _align(value: int, granule: int) -> int:
    return value // granule * granule
