"""Tiles of a GEMM in closed form: descriptor and problem in, GemmPlan out. No search: the same few formulas, whatever the sizes.

`tiling.py` decides, `limits.py` counts what that takes. Policy "corrected" (errata E3 to E10): 2x2 waves, one a SIMD, two stages of
LDS; of a handful of named optima (`sides.py`), each with its K step and split of K (`operators.split`), the one of least time.

Policy "published" (the paper's, as far as it says; where it does not, the reading that gives the sizes that it prints):
  w = sqrt(largest workgroup / wavefront) = 4     the paper prints 16 warp tiles a block and no formula for them (E7)
  tM = tN = t = sqrt(LDS/e) by w atoms            the printed sqrt((LDS/2)/e) gives 90 (E4)
  blocks/CUs < 1: t = the largest for which it is not, or the least; the paper "reduces tile sizes until occupancy is acceptable"
  tK = (LDS/2)/((tM+tN)*e) by 2k;  warp tile t/w x t/w x 2k;  (t / warp tile)^2 waves, one stage
The constraints beside it are the true ones (E3, E8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.gemm.limits import Tiling, atom_of, gemm_constraints, gemm_resources, matrix_tflops
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.tiling import corrected_tiling, published_tiling, tiling_rows
from simgpu.operators.resources import Constraint, Derivation, ResourcePlan, mark_binding, require_narrow


@dataclass(frozen=True)
class GemmPlan(Derivation):
    """A GEMM's tiles, resources and constraints: what the tree shows and the emitter consumes.

    Always: warp_m = tile_m/waves_m and warp_n = tile_n/waves_n are multiples of atom.m and atom.n; warp_k is a multiple of atom.k
    and divides tile_k. Under "corrected" besides: waves_m = waves_n = 2; tile_m and tile_n are multiples of 2*atom.m from 32 to
    256, powers of two or not (96, 160, ...); warp_k = max(atom.k, G*16/e) is the span of one 128-bit LDS read per lane (16 for
    f32), tile_k is warp_k or 2*warp_k, or, where it divides k and loads decide, a larger power of two of these; each lane stages a
    multiple of 8 bytes of A and of B a stage, at most 128, 192 of what comes by cache lines (`limits.by_lines`); two stages if LDS
    holds them. `grid` is that of one product and all
    of K: the batch (problem.batch) and the split of K (split_k, each part k_steps_per_block stages) come on top. A plan that does
    not fit exists (feasible is False, binding says why); `check()` raises.
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
        """(gx, gy): blocks along n, blocks along m; of a grouped product as many as its groups may need at most: each of those that
        have rows may end in the middle of a tile."""
        m, filled = self.problem.m, min(self.problem.groups, self.problem.m)
        return _ceil_div(self.problem.n, self.tile_n), filled + (m - filled) // self.tile_m if filled else _ceil_div(m, self.tile_m)

    @property
    def split_k(self) -> int:
        """Blocks that share one tile of C: each has `k_steps_per_block` of its stages, a second pass adds them."""
        return self.tiling.split_k

    @property
    def blocks(self) -> int:
        """Blocks of everything: grid, batch and split; of a grouped product those that have work where groups are of one size."""
        p = self.problem.even
        return _ceil_div(p.n, self.tile_n) * _ceil_div(p.m, self.tile_m) * p.batch * self.split_k

    @property
    def workgroups(self) -> int:
        """Workgroups of the launch: `blocks`, and those of a grouped product that may find nothing to do."""
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
        p = self.problem.even
        gx, gy = _ceil_div(p.n, self.tile_n), _ceil_div(p.m, self.tile_m)
        return p.m * p.n * p.k / (gx * self.tile_n * gy * self.tile_m * self.split_k * self.k_steps_per_block * self.tile_k)

    @property
    def peak_tflops(self) -> float:
        """TFLOPS of the matrix units for A's and B's types, at the peak engine clock."""
        return matrix_tflops(self.problem, self.descriptor)

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        times = f"{p.batch} x " if p.batch > 1 else f"{p.groups} groups, " if p.groups else ""
        kind = p.dtype if p.dtype_b == p.dtype else f"{p.dtype} by {p.dtype_b}"
        return f"gemm {times}{p.m}x{p.n}x{p.k} {kind} on {self.descriptor.name or self.descriptor.arch}"

    @property
    def sizes(self) -> dict[str, int]:
        """What the policy decided, by name."""
        names = ("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k", "waves_m", "waves_n", "stages", "split_k")
        return {name: getattr(self, name) for name in names}


def plan_gemm(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> GemmPlan:
    """The closed-form plan. TargetError if the target has no atom for the type, LaunchError for an unknown policy."""
    one_of("policy", policy, POLICIES)
    atom = atom_of(problem, descriptor)
    if problem.scales_in_loop and policy == "published":
        raise LaunchError(f"the paper's tiles (policy published) have no {problem.scales} scales: use policy corrected")
    if problem.groups and policy == "published":
        raise LaunchError("the paper's tiles (policy published) have no groups: use policy corrected")
    require_narrow(problem.dtype_c, descriptor)
    tiling = (corrected_tiling if policy == "corrected" else published_tiling)(problem, descriptor, atom)
    return with_tiling(problem, descriptor, policy, tiling)


def with_tiling(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str, tiling: Tiling) -> GemmPlan:
    """The plan of a tiling, whoever decided it."""
    plan = untimed(problem, descriptor, policy, tiling)
    rows = plan.constraints
    if policy == "corrected":
        rows = (*rows, *tiling_rows(problem, descriptor, tiling))
    return replace(plan, constraints=mark_binding(rows, tiling.limited_by))


def untimed(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str, tiling: Tiling) -> GemmPlan:
    """The same without the rows of its time, which take the longest to find; the fullest hard one binds."""
    atom = atom_of(problem, descriptor)
    resources = gemm_resources(problem, descriptor, atom, tiling)
    rows = gemm_constraints(problem, descriptor, atom, tiling, resources)
    return GemmPlan(problem, descriptor, policy, tiling, atom, resources, mark_binding(rows))


def without_split(plan: GemmPlan) -> GemmPlan:
    """The same tiles with all of K in one block: for what must be one kernel."""
    return with_tiling(plan.problem, plan.descriptor, plan.policy, replace(plan.tiling, split_k=1))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
