"""Tiles of a GEMM in closed form: descriptor and problem in, GemmPlan out. No search, no loop over tiles.

Letters: e bytes an element of A and B; (m, n, k) the atom; G = 64/m its lane groups; kv the K span of one 128-bit LDS read per lane,
kv = max(k, 16*G/e), so that consecutive atoms share the read; w waves per SIMD; B blocks per CU; S stages of LDS.

Policy "corrected" (errata E3 to E10), 2x2 waves, one a SIMD, B = 2, S = 2:

  c(B) = (LDS/B in whole granules) // (64*kv*e) smallest stages (32x32 tile) that each of B blocks can have;  S = min(2, c(1)),
                                                B = 2 if c(2) >= S else 1
  L  = (LDS/B in whole granules) / S            bytes of one stage
  T  = floor2 min( L / (2*kv*e),                LDS: (tM + tN)*kv*e <= L with tM = tN
                   2*sqrt(64*Vacc/r),           accumulators: (T/2)^2/64 * r <= Vacc = AccVGPRs at w = B waves a SIMD, r registers each
                   (Varch - 32)*512 / (3*kv*e)) ArchVGPRs: fragments T*kv*e/256 + staging T*kv*e/512 + 32 <= Varch
  tM = min(T, max(32, ceil2 m)), tN likewise    a tile larger than the matrix is wasted
  x  = m*n / (tM*tN*CUs), tiles a CU before padding (so that shrinking by 1/x leaves no CU idle);  shrink tM*tN by 2^h:
  h  = max( min(ceil lg(4/x), lg(tM*tN) - 2*ceil lg(2/rho)), ceil lg(1/x), 0 )
                                                four tiles a CU make eta = x/ceil(x) >= 0.8; but no smaller than the bandwidth floor
                                                1/tM + 1/tN <= rho = 2*BW/(CUs*clk*F*e), unless CUs would idle; not below 32x32
  tK = kv * min(2, what L and Varch leave)      two spans are a 128-byte line; K shorter than that takes one
floor2, ceil2: to a power of two; lg: log2.

Policy "published": tM = tN = sqrt(LDS/e), tK = (LDS/2)/((tM+tN)*e), warp tile tM/4 x tN/4 x 2k, 16 waves, one stage; aligned down to
the atom. The constraints beside it are the true ones (E3, E8).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from hardware.descriptor import HardwareDescriptor, MFMAAtom
from hardware.dtypes import dtype
from hardware.errors import LaunchError
from operators.problem import GemmProblem
from operators.resources import (
    Constraint,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    binding,
    mark_binding,
    require_feasible,
    residency,
)
from operators.tree import Level

POLICIES = ("corrected", "published")
TILES_PER_CU = 4  # eta = x/ceil(x) >= 4/5 from four tiles a CU on

# Registers that do not depend on the tile: what the emitter may use for addresses and for everything short-lived.
ADDRESS_VGPRS = 16
TEMPORARY_VGPRS = 16
# Three buffer resources (12), kernel arguments (20), loop counters and uniform addresses (24), VCC, FLAT_SCRATCH, XNACK_MASK (6).
GEMM_SGPRS = 12 + 20 + 24 + 6


@dataclass(frozen=True)
class Tiling:
    """The numbers that a policy decides, all in elements except `stages` and `blocks` (blocks per CU aimed at)."""

    tile_m: int
    tile_n: int
    tile_k: int
    warp_k: int
    waves_m: int
    waves_n: int
    stages: int
    blocks: int
    limited_by: str | None = None  # a constraint's name, where the policy knows what stopped it

    @property
    def warp_m(self) -> int:
        """Rows of C of one wave."""
        return self.tile_m // self.waves_m

    @property
    def warp_n(self) -> int:
        """Columns of C of one wave."""
        return self.tile_n // self.waves_n


@dataclass(frozen=True)
class GemmPlan:
    """A GEMM's tiles, resources and constraints: what the tree shows and the emitter consumes.

    Always: warp_m = tile_m/waves_m and warp_n = tile_n/waves_n are multiples of atom.m and atom.n; warp_k is a multiple of atom.k and
    divides tile_k. Under "corrected" besides: waves_m = waves_n = 2; tile_m and tile_n are powers of two from 32 to 128 (more only if
    a target's registers and LDS allow); warp_k = max(atom.k, G*16/e) is the span of one 128-bit LDS read per lane (16 for f32), tile_k is
    warp_k or 2*warp_k; each lane stages 8, 16, 32 or 64 bytes of A and of B a stage; two stages if the LDS holds them.
    A plan that does not fit exists (feasible is False, binding says why); `check()` raises.
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
    def blocks(self) -> int:
        """Blocks of the whole grid."""
        return self.grid[0] * self.grid[1]

    @property
    def k_steps(self) -> int:
        """Stages that a block goes through."""
        return _ceil_div(self.problem.k, self.tile_k)

    @property
    def blocks_per_cu(self) -> float:
        """Tiles divided by CUs (paper: 8.5 at 4096 cubed on gpu_a)."""
        return self.blocks / self.descriptor.num_cus

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9): (tiles/CUs) / ceil(tiles/CUs)."""
        return self.blocks_per_cu / _ceil_div(self.blocks, self.descriptor.num_cus)

    @property
    def fill(self) -> float:
        """Useful share of the products that the padded tiles execute."""
        p = self.problem
        gx, gy = self.grid
        return p.m * p.n * p.k / (gx * self.tile_n * gy * self.tile_m * self.k_steps * self.tile_k)

    @property
    def bandwidth_factor(self) -> float:
        """Operand demand over what the level that serves re-reads can give; above 1 the kernel is bandwidth-bound by it (E10)."""
        return next(row for row in self.constraints if row.name == "operand bandwidth").ratio

    @property
    def binding(self) -> Constraint:
        """The constraint that stopped the tile from growing, or the violated one."""
        return binding(self.constraints)

    @property
    def feasible(self) -> bool:
        """Whether every hard constraint is satisfied."""
        return all(row.satisfied for row in self.constraints if row.hard)

    def at(self, level: Level) -> tuple[Constraint, ...]:
        """The constraints of one level."""
        return tuple(row for row in self.constraints if row.level is level)

    def check(self) -> GemmPlan:
        """The plan itself; ResourceError with the violated limit and what to change if it cannot run."""
        p = self.problem
        require_feasible(f"gemm {p.m}x{p.n}x{p.k} {p.dtype} on {self.descriptor.name or self.descriptor.arch}", self.constraints)
        return self


def plan_gemm(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> GemmPlan:
    """The closed-form plan. TargetError if the target has no atom for the type, LaunchError for an unknown policy."""
    if policy not in POLICIES:
        raise LaunchError(f"unknown policy {policy!r}: use one of {', '.join(POLICIES)}")
    atom = descriptor.atom(problem.dtype)
    tiling = (_corrected if policy == "corrected" else _published)(problem, descriptor, atom)
    resources = _resources(problem, descriptor, atom, tiling)
    constraints = mark_binding(_constraints(problem, descriptor, atom, tiling, resources), tiling.limited_by)
    return GemmPlan(problem, descriptor, policy, tiling, atom, resources, constraints)


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
    tile_m = min(side, max(smallest, _ceil2(problem.m)))
    tile_n = min(side, max(smallest, _ceil2(problem.n)))
    tile_m, tile_n, halved = _shrink_for_occupancy(problem, descriptor, tile_m, tile_n, smallest)
    if halved:
        limited_by = "occupancy"
    elif (tile_m, tile_n) != (side, side):
        limited_by = "problem size"
    fragments = (tile_m + tile_n) * span * e // 512
    staging = max(1, (tile_m + tile_n) * span * e // 1024)
    spans = min(2, stage_bytes // ((tile_m + tile_n) * span * e), (free - fragments) // staging, _ceil_div(problem.k, span))
    return Tiling(tile_m, tile_n, span * max(1, spans), span, 2, 2, stages, blocks, limited_by)


def _shrink_for_occupancy(
    problem: GemmProblem, descriptor: HardwareDescriptor, tile_m: int, tile_n: int, smallest: int
) -> tuple[int, int, bool]:
    """The tile with its area halved h times (module docstring), kept as square as its sides allow; whether h > 0."""
    capacity = descriptor.num_cus * tile_m * tile_n
    wanted = problem.m * problem.n
    lg_m, lg_n, lg_min = (side.bit_length() - 1 for side in (tile_m, tile_n, smallest))
    to_target = _ceil_lg(_ceil_div(TILES_PER_CU * capacity, wanted))
    to_fill = _ceil_lg(_ceil_div(capacity, wanted))
    lg_floor = _ceil_lg(max(1, int(-(-2 // bandwidth_rho(problem, descriptor)))))
    halvings = max(min(to_target, lg_m + lg_n - 2 * lg_floor), to_fill, 0)
    area = max(2 * lg_min, lg_m + lg_n - halvings)
    new_m = max(min((area + 1) // 2, lg_m), area - lg_n)
    new_m, new_n = max(new_m, lg_min), max(min(area - new_m, lg_n), lg_min)
    return 1 << new_m, 1 << new_n, (new_m, new_n) != (lg_m, lg_n)


def bandwidth_rho(problem: GemmProblem, descriptor: HardwareDescriptor) -> float:
    """rho of 1/tM + 1/tN <= rho (erratum E10): operand traffic F*e/2*(1/tM + 1/tN) bytes a clock and CU against the re-read level."""
    flops = descriptor.matrix_flops_per_clock(problem.dtype) * descriptor.num_cus * descriptor.clock_mhz * 1e6
    return 2 * descriptor.reread_bandwidth_tb * 1e12 / (flops * problem.element.bytes)


def _resources(problem: GemmProblem, descriptor: HardwareDescriptor, atom: MFMAAtom, t: Tiling) -> ResourcePlan:
    e = problem.element.bytes
    threads = t.waves_m * t.waves_n * descriptor.wavefront_size
    lane_bytes = 4 * descriptor.wavefront_size  # one register of a wave
    registers = (
        RegisterRange("accumulators", "acc", t.warp_m * t.warp_n // (atom.m * atom.n) * atom.acc_registers),
        RegisterRange("A fragments", "arch", _ceil_div(t.warp_m * t.warp_k * e, lane_bytes)),
        RegisterRange("B fragments", "arch", _ceil_div(t.warp_n * t.warp_k * e, lane_bytes)),
        RegisterRange("A staging", "arch", _ceil_div(t.tile_m * t.tile_k * e, 4 * threads)),
        RegisterRange("B staging", "arch", _ceil_div(t.tile_n * t.tile_k * e, 4 * threads)),
        RegisterRange("addresses", "arch", ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", TEMPORARY_VGPRS),
    )
    lds = (LdsArray("A", t.stages * t.tile_m * t.tile_k * e), LdsArray("B", t.stages * t.tile_n * t.tile_k * e))
    sums = {file: sum(r.count for r in registers if r.file == file) for file in ("arch", "acc")}
    waves, blocks = residency(
        descriptor, sums["arch"], sums["acc"], GEMM_SGPRS, sum(a.nbytes for a in lds), t.waves_m * t.waves_n
    )
    return ResourcePlan(registers, lds, GEMM_SGPRS, waves, blocks)


def _constraints(
    problem: GemmProblem, d: HardwareDescriptor, atom: MFMAAtom, t: Tiling, r: ResourcePlan
) -> tuple[Constraint, ...]:
    waves = t.waves_m * t.waves_n
    per_simd = _ceil_div(t.blocks * waves, d.simds_per_cu)
    arch, acc, total = d.vgpr_budget(per_simd)
    lds_limit = d.lds_bytes // t.blocks
    lds_use = d.lds_allocation(r.lds_bytes)
    rho = bandwidth_rho(problem, d)
    demand = (1 / t.tile_m + 1 / t.tile_n) / rho * d.reread_bandwidth_tb if t.tile_m and t.tile_n else 0.0
    tiles = _ceil_div(problem.m, max(1, t.tile_m)) * _ceil_div(problem.n, max(1, t.tile_n))
    eta = tiles / d.num_cus / _ceil_div(tiles, d.num_cus)
    ragged = sum(
        bool(remainder) or not size
        for size, remainder in (
            (t.warp_m, t.warp_m % atom.m), (t.warp_n, t.warp_n % atom.n), (t.warp_k, t.warp_k % atom.k), (t.tile_k, t.tile_k % t.warp_k)
        )
    )
    fewer = f"{per_simd} waves a SIMD are planned: shrink the warp tile, or use a type of fewer bytes"
    rows = [
        Constraint("LDS", Level.BLOCK, lds_limit, lds_use, "bytes",
                   f"{t.stages} stage(s) of A and B, granule {d.lds_granule}, {t.blocks} block(s) a CU",
                   f"use a target with {lds_use * t.blocks} bytes of LDS a CU, {lds_use - lds_limit} more a block, or a type of fewer bytes"),
        Constraint("ArchVGPR", Level.WARP, arch, r.arch_vgprs, "registers", f"at {per_simd} waves a SIMD (E3, E8)",
                   f"free {r.arch_vgprs - arch} registers a lane; {fewer}"),
        Constraint("AccVGPR", Level.WARP, acc, r.acc_vgprs, "registers", f"at {per_simd} waves a SIMD (E3, E8)",
                   f"free {r.acc_vgprs - acc} registers a lane; {fewer}"),
        Constraint("SGPR", Level.WARP, min(d.sgprs_per_wave + 6, d.sgpr_file_per_simd // per_simd // d.sgpr_granule * d.sgpr_granule),
                   r.sgprs, "registers", "VCC, FLAT_SCRATCH and XNACK_MASK included", "pass fewer arguments"),
        Constraint("waves per SIMD", Level.BLOCK, d.max_waves_per_simd, per_simd, "waves", "planned", "use fewer waves a block"),
        Constraint("workgroup size", Level.BLOCK, d.max_workgroup_size, waves * d.wavefront_size, "work-items", f"{waves} waves",
                   "use fewer waves a block"),
        Constraint("atom alignment", Level.ATOM, 0, ragged, "dimensions", f"warp tile by {atom.m}x{atom.n}x{atom.k}",
                   "the LDS must hold at least one atom-aligned tile"),
        Constraint("occupancy", Level.DEVICE, 1.0, eta, "eta", f"{tiles} tiles on {d.num_cus} CUs, {tiles / d.num_cus:.2f} a CU (E9)",
                   hard=False),
        Constraint("operand bandwidth", Level.DEVICE, d.reread_bandwidth_tb, demand, "TB/s", _bandwidth_note(demand, d), hard=False),
        Constraint("problem size", Level.DEVICE, problem.m * problem.n, tiles * t.tile_m * t.tile_n, "elements of C",
                   "padded to whole tiles", hard=False),
    ]
    if d.unified_vgprs:
        both = -(-r.arch_vgprs // 4) * 4 + r.acc_vgprs
        rows.insert(3, Constraint("VGPR file", Level.WARP, total, both, "registers", f"one file, at {per_simd} waves a SIMD",
                                  f"free {both - total} registers a lane; {fewer}"))
    return tuple(rows)


def _bandwidth_note(demand: float, d: HardwareDescriptor) -> str:
    factor = demand / d.reread_bandwidth_tb
    bound = f"bandwidth-bound by {factor:.2f}" if factor > 1 else "compute-bound"
    return f"A and B at matrix peak from the level that serves re-reads: {bound} (E10)"


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
