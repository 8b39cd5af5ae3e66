"""Tiles of a GEMM in closed form: descriptor and problem in, GemmPlan out. No search: a fixed handful of formulas, whatever the sizes.

Letters: e bytes an element of A and B; (m, n, k) the atom; G = 64/m its lane groups; kv the K span of one 128-bit LDS read per lane,
kv = max(k, 16*G/e), so that consecutive atoms share the read; w waves per SIMD; B blocks per CU; S stages of LDS.

Policy "corrected" (errata E3 to E10), 2x2 waves, one a SIMD, B = 2, S = 2:

  c(B) = (LDS/B in whole granules) // (64*kv*e) smallest stages (32x32 tile) that each of B blocks can have;  S = min(2, c(1)),
                                                B = 2 if c(2) >= S else 1
  L  = (LDS/B in whole granules) / S            bytes of one stage
  T  = floor2 min( L / (2*kv*e),                LDS: (tM + tN)*kv*e <= L with tM = tN
                   2*sqrt(64*Vacc/r),           accumulators: (T/2)^2/64 * r <= Vacc = AccVGPRs at w = B waves a SIMD, r registers each
                   (Varch - 32)*512 / (3*kv*e)) ArchVGPRs: fragments T*kv*e/256 + staging T*kv*e/512 + 32 <= Varch
  tM <= min(T, max(32, ceil2 m)), tN likewise   a tile larger than the matrix is wasted
  T(tM,tN) = max(FLOP/(peak*eta*fill), HBM bytes/BW, re-read bytes/BW_reread), with the split of K that `operators.split` gives
  (tM,tN)                                       each formula is best for one term; the largest tile within 3 % of their least T is taken:
    both at their bound                         fewest re-reads
    padding <= 1/8 more than that of 32         fill
    ceil2(2/rho) each                           least tile that holds the bandwidth floor 1/tM + 1/tN <= rho = 2*BW/(CUs*clk*F*e) (E10)
    tM*tN = floor2, ceil2, 2*ceil2 of m*n/CUs   one tile a CU: eta without a split; tall and wide
    tM*tN = floor2 or ceil2 of m*n/(4*CUs)      four tiles a CU: eta >= 0.8
  tK = kv * min(2, what L and Varch leave)      two spans are a 128-byte line; one if K is split, or if two pad it by over 1/32 more
floor2, ceil2: to a power of two; lg: log2.

Policy "published": tM = tN = sqrt(LDS/e), tK = (LDS/2)/((tM+tN)*e), warp tile tM/4 x tN/4 x 2k, 16 waves, one stage; aligned down to
the atom. The constraints beside it are the true ones (E3, E8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

from hardware.descriptor import HardwareDescriptor, MFMAAtom
from hardware.dtypes import dtype
from operators.gemm_limits import ADDRESS_VGPRS, TEMPORARY_VGPRS, Tiling, bandwidth_rho, gemm_constraints, gemm_resources
from operators.problem import GemmProblem, one_of
from operators.resources import Constraint, Derivation, ResourcePlan, mark_binding, quantised
from operators.split import Reduction

POLICIES = ("corrected", "published")
TILES_PER_CU = 4  # eta = x/ceil(x) >= 4/5 from four tiles a CU on
_LANE_STAGES = 64  # bytes of one operand that a lane stages at most: four 128-bit loads
TOLERANCE = 1.03  # larger tiles are worth that much of T: fewer LDS reads and shorter epilogues, which T does not see


@dataclass(frozen=True)
class GemmPlan(Derivation):
    """A GEMM's tiles, resources and constraints: what the tree shows and the emitter consumes.

    Always: warp_m = tile_m/waves_m and warp_n = tile_n/waves_n are multiples of atom.m and atom.n; warp_k is a multiple of atom.k and
    divides tile_k. Under "corrected" besides: waves_m = waves_n = 2; tile_m and tile_n are powers of two from 32 to 128 (more only if
    a target's registers and LDS allow); warp_k = max(atom.k, G*16/e) is the span of one 128-bit LDS read per lane (16 for f32), tile_k is
    warp_k or 2*warp_k; each lane stages 8, 16, 32 or 64 bytes of A and of B a stage; two stages if the LDS holds them.
    `grid` is that of one product and all of K: the batch (problem.batch) and the split of K (split_k, each part k_steps_per_block stages)
    come on top. A plan that does not fit exists (feasible is False, binding says why); `check()` raises.
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
    def eta(self) -> float:
        """Quantised occupancy (E9): (tiles/CUs) / ceil(tiles/CUs)."""
        return quantised(self.blocks, self.descriptor.num_cus)

    @property
    def fill(self) -> float:
        """Useful share of the products that the padded tiles execute."""
        p = self.problem
        gx, gy = self.grid
        return p.m * p.n * p.k / (gx * self.tile_n * gy * self.tile_m * self.split_k * self.k_steps_per_block * self.tile_k)

    @property
    def bandwidth_factor(self) -> float:
        """Operand demand over what the level that serves re-reads can give; above 1 the kernel is bandwidth-bound by it (E10)."""
        return next(row for row in self.constraints if row.name == "operand bandwidth").ratio

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
    smallest = 2 * max(atom.m, atom.n)
    per_block = {count: _align(descriptor.lds_bytes // count, descriptor.lds_granule) for count in (1, 2)}
    least = 2 * smallest * span * e
    stages = max(1, min(2, per_block[1] // least))
    blocks = 2 if per_block[2] // least >= stages else 1
    stage_bytes = per_block[blocks] // stages
    arch, acc, total = descriptor.vgpr_budget(blocks)
    if descriptor.unified_vgprs:
        arch = acc = total // 2
    free = max(0, arch - ADDRESS_VGPRS - TEMPORARY_VGPRS)
    bounds = {
        "LDS": stage_bytes // (2 * span * e),
        "AccVGPR": 2 * isqrt(64 * acc // dtype(atom.dtype_acc).registers),
        "ArchVGPR": free * 512 // (3 * span * e),
    }
    limited_by = min(bounds, key=lambda name: _floor2(bounds[name]))
    side = max(smallest, _floor2(bounds[limited_by]))
    side_m, side_n = (min(side, max(smallest, _ceil2(size))) for size in (problem.m, problem.n))
    tile_m, tile_n = _sides(problem, descriptor, (side_m, side_n), smallest, span)
    if (tile_m, tile_n) != (side_m, side_n):
        limited_by = "occupancy"
    elif (tile_m, tile_n) != (side, side):
        limited_by = "problem size"
    fragments = (tile_m + tile_n) * span * e // 512
    staging = max(1, (tile_m + tile_n) * span * e // 1024)
    shared = gemm_reduction(problem, descriptor, tile_m, tile_n, span).split() > 1
    wanted = 1 if shared else 1 << _padded_lg(problem.k, _ceil_lg(span), _ceil_lg(span) + 1, 32) - _ceil_lg(span)
    a_lane = _LANE_STAGES * 256 // (max(tile_m, tile_n) * span * e)
    spans = min(wanted, stage_bytes // ((tile_m + tile_n) * span * e), (free - fragments) // staging, a_lane)
    tile_k = span * max(1, spans)
    split = gemm_reduction(problem, descriptor, tile_m, tile_n, tile_k).split()
    return Tiling(tile_m, tile_n, tile_k, span, 2, 2, stages, blocks, split, limited_by)


def gemm_reduction(problem: GemmProblem, descriptor: HardwareDescriptor, tile_m: int, tile_n: int, tile_k: int) -> Reduction:
    """What the split of K is decided by: padded work at matrix peak, each array once, partial tiles of C written and read."""
    p, steps = problem, _ceil_div(problem.k, tile_k)
    tiles = p.batch * _ceil_div(p.m, tile_m) * _ceil_div(p.n, tile_n)
    seconds = 2 * tiles * tile_m * tile_n * steps * tile_k / (descriptor.matrix_tflops(p.dtype) * 1e12)
    partial = 2 * p.batch * p.m * p.n * dtype(p.dtype_c).bytes
    return Reduction(tiles, steps, seconds, p.bytes_once, partial, descriptor.hbm_bandwidth_tb * 1e12, descriptor.num_cus)


def _sides(
    problem: GemmProblem, descriptor: HardwareDescriptor, most: tuple[int, int], least: int, span: int
) -> tuple[int, int]:
    """tM and tN: of the module docstring's formulas, each the optimum of one term of T, the largest area within TOLERANCE of the least T."""
    lg_m, lg_n, lg_least = (_ceil_lg(value) for value in (*most, least))
    lg_rho = max(lg_least, _ceil_lg(max(1, int(-(-2 // bandwidth_rho(problem, descriptor))))))
    share = max(1, problem.batch * problem.m * problem.n // descriptor.num_cus)
    one, four = (max(1, share // tiles).bit_length() - 1 for tiles in (1, TILES_PER_CU))

    def square(area: int, tall: int) -> tuple[int, int]:
        half = max(min((area + tall) // 2, lg_m), area - lg_n, lg_least)
        return min(half, lg_m), max(min(area - half, lg_n), lg_least)

    answers = (
        (lg_m, lg_n),
        (_padded_lg(problem.m, lg_least, lg_m), _padded_lg(problem.n, lg_least, lg_n)),
        (min(lg_m, lg_rho), min(lg_n, lg_rho)),
        *(square(area, tall) for area in (one, one + 1, one + 2, four, four + 1) for tall in (0, 1)),
    )
    seconds = {answer: gemm_seconds(problem, descriptor, 1 << answer[0], 1 << answer[1], span) for answer in answers}
    enough = TOLERANCE * min(seconds.values())
    new_m, new_n = max((answer for answer in seconds if seconds[answer] <= enough), key=sum)
    return 1 << new_m, 1 << new_n


def _padded_lg(size: int, least: int, most: int, share: int = 8) -> int:
    """lg of the largest power of two that pads `size` by at most 1/share over what 2^least pads it to."""
    units = _ceil_div(size, 1 << least)
    return least + max(more for more in range(most - least + 1) if -units % (1 << more) <= units // share)


def gemm_seconds(problem: GemmProblem, descriptor: HardwareDescriptor, tile_m: int, tile_n: int, tile_k: int) -> float:
    """T of a tile with its split of K: the largest of padded compute at eta, HBM bytes, and re-read bytes over their bandwidths."""
    p = problem
    work = gemm_reduction(p, descriptor, tile_m, tile_n, tile_k)
    split = work.split()
    staged = p.batch * p.k * p.element.bytes * (p.m * _ceil_div(p.n, tile_n) + p.n * _ceil_div(p.m, tile_m))
    moved = staged + p.epilogue_bytes + (split * work.partial_bytes if split > 1 else 0)
    return max(work.seconds(split), moved / (descriptor.reread_bandwidth_tb * 1e12))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _align(value: int, granule: int) -> int:
    return value // granule * granule


def _floor2(value: int) -> int:
    return 1 << value.bit_length() - 1 if value > 0 else 0


def _ceil2(value: int) -> int:
    return 1 << _ceil_lg(value)


def _ceil_lg(value: int) -> int:
    return max(0, (value - 1).bit_length())
