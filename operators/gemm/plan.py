"""Tiles of a GEMM in closed form: descriptor and problem in, GemmPlan out. No search: the same few formulas for all sizes.

`tiling.py` decides, `limits.py` counts the resources.

Policy "corrected" (errata E3 to E10): 2x2 waves, one a SIMD, two stages of LDS. Of a handful of named optima (`sides.py`), each
with its K step and split of K (`operators.split`), the plan is the one of least time.

Policy "published" is the paper's. Where the paper gives no formula, it uses the reading that gives the printed sizes:

    w = sqrt(largest workgroup / wavefront) = 4     the paper prints 16 warp tiles a block and no formula for them (E7)
    tM = tN = t = sqrt(LDS/e) by w atoms            the printed sqrt((LDS/2)/e) gives 90 (E4)
    blocks/CUs < 1: t = the largest that gives at least one block a CU, or the least; the paper "reduces tile sizes until
                    occupancy is acceptable"
    tK = (LDS/2)/((tM+tN)*e) by 2k and a power of two of them, so that work-items stage whole loads (64 KB give no others)
    warp tile t/w x t/w x 2k;  (t / warp tile)^2 waves, one stage

The constraints with it are the true ones (E3, E8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.gemm.limits import BLOCK_SCALE_ATOM, Tiling, atom_of, gemm_constraints, gemm_resources, matrix_tflops
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.tiling import corrected_tiling, published_tiling, tiling_rows
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import Constraint, Derivation, ResourcePlan, mark_binding, require_narrow


@dataclass(frozen=True)
class GemmPlan(Derivation):
    """Tiles, resources and constraints of a GEMM, for the tree and the emitter.

    Always: warp_m = tile_m/waves_m and warp_n = tile_n/waves_n are multiples of atom.m and atom.n; warp_k is a multiple of
    atom.k and divides tile_k.

    Under "corrected": waves_m = waves_n = 2. tile_m and tile_n are multiples of 2*atom.m from 32 to 256, powers of two or not
    (96, 160, ...). warp_k = max(atom.k, G*16/e) is the span of one 128-bit LDS read per lane (16 for f32). tile_k is warp_k or
    2*warp_k. If loads decide, it may be a larger power of two of these. Each lane stages a multiple of 8 bytes
    of A and of B a stage, at most 128, or 192 by cache lines (`limits.by_lines`). There are two stages if LDS holds them.

    `grid` covers one product and all of K. The batch (problem.batch) and the split of K (split_k, each part k_steps_per_block
    stages) multiply it. A plan that does not fit exists (feasible is False, binding has the reason); `check()` raises.

    >>> from simgpu import operators
    >>> plan = operators.TiledComputation(1000, 1000, 512, target="mi300x", dtype="f16").plan
    >>> plan.sizes["tile_m"], plan.grid, plan.threads
    (64, (16, 16), 256)
    >>> plan.feasible, plan.binding.name
    (True, 'LDS')
    """

    problem: GemmProblem
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    tiling: Tiling
    atom: MFMAAtom  # matrix instruction
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
        """Extent of K in one LDS stage."""
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
        """Extent of K in the fragments that a wave holds at once."""
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
        """Blocks along n and along m, (gx, gy).

        For a grouped product, gy is the most that its groups can need: each group with rows may end in the middle of a tile.
        """
        m, filled = self.problem.m, min(self.problem.groups, self.problem.m)
        return _ceil_div(self.problem.n, self.tile_n), filled + (m - filled) // self.tile_m if filled else _ceil_div(m, self.tile_m)

    @property
    def split_k(self) -> int:
        """Blocks that share one tile of C: each computes `k_steps_per_block` K steps, and a second pass adds the results."""
        return self.tiling.split_k

    @property
    def blocks(self) -> int:
        """Number of blocks: grid, batch and split.

        For a grouped product, the blocks that have work if all groups have the same size.
        """
        p = self.problem.even_batch
        return _ceil_div(p.n, self.tile_n) * _ceil_div(p.m, self.tile_m) * p.batch * self.split_k

    @property
    def workgroups(self) -> int:
        """Workgroups of the launch: `blocks`, except that a grouped product also has workgroups that may get no work."""
        return self.grid[0] * self.grid[1] * self.problem.batch * self.split_k

    @property
    def k_steps(self) -> int:
        """K steps (tile_k each) of the whole of K."""
        return _ceil_div(self.problem.k, self.tile_k)

    @property
    def k_steps_per_block(self) -> int:
        """K steps of one block: `k_steps` unless K is split."""
        return _ceil_div(self.k_steps, self.split_k)

    @property
    def nest(self) -> Nest:
        """Loops of the tree. K is outermost in a block and in a wave, so that consecutive atoms have independent accumulators."""
        atom, p = self.atom, self.problem
        part = self.k_steps_per_block * self.tile_k if self.split_k > 1 else p.k
        device = (TileLoop("m", self.tile_m, True), TileLoop("n", self.tile_n, True), TileLoop("k", part, True))
        return {
            Level.DEVICE: (*((TileLoop("batch", 1, True),) if p.batch > 1 else ()), *device),
            Level.BLOCK: (
                TileLoop("k", self.tile_k), TileLoop("k", self.warp_k),
                TileLoop("m", self.warp_m, True), TileLoop("n", self.warp_n, True),
            ),
            Level.WARP: (TileLoop("k", atom.k), TileLoop("m", atom.m), TileLoop("n", atom.n)),
        }  # fmt: skip

    def with_nest(self, nest: Nest) -> GemmPlan:
        """Returns the plan of other tiles: multiples of the wave's, which are multiples of the atom's."""
        *_, m, n, part = (loop.tile for loop in nest[Level.DEVICE])
        step, inner, *sides = (loop.tile for loop in nest[Level.BLOCK])
        warp_m, warp_n = (_multiple(side, of) for side, of in zip(sides, (self.atom.m, self.atom.n), strict=True))
        tile_m, tile_n, warp_k = _multiple(m, warp_m), _multiple(n, warp_n), _multiple(inner, self.atom.k)
        tile_k = _multiple(step, warp_k)
        split = 1 if part >= self.problem.k else _ceil_div(_ceil_div(self.problem.k, tile_k), max(1, part // tile_k))
        tiling = replace(
            self.tiling, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, warp_k=warp_k, waves_m=tile_m // warp_m,
            waves_n=tile_n // warp_n, split_k=1 if self.problem.groups else split, blocks=1, limited_by=None,
        )  # fmt: skip
        return with_tiling(self.problem, self.descriptor, self.policy, tiling)

    @property
    def blocks_per_cu(self) -> float:
        """Tiles divided by CUs (paper: 8.5 at 4096 cubed on gpu_a)."""
        return self.blocks / self.descriptor.num_cus

    @property
    def fill(self) -> float:
        """Useful fraction of the products that the padded tiles execute."""
        p = self.problem.even_batch
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
        name = "gemm" if p.leaves is None else p.leaves.name
        return f"{name} {times}{p.m}x{p.n}x{p.k} {kind} on {self.descriptor.name or self.descriptor.arch}"

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        names = ("tile_m", "tile_n", "tile_k", "warp_m", "warp_n", "warp_k", "waves_m", "waves_n", "stages", "split_k")
        return {name: getattr(self, name) for name in names}


def plan_gemm(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> GemmPlan:
    """Returns the closed-form plan of a GEMM.

    TargetError if the target has no atom for the type, LaunchError for an unknown policy.

    >>> from simgpu import hardware, operators
    >>> plan = operators.plan_gemm(operators.GemmProblem(1000, 1000, 512, "f16"), hardware.target("mi300x"))
    >>> plan.tile_m, plan.tile_n, plan.tile_k, plan.feasible
    (64, 64, 128, True)
    """
    one_of("policy", policy, POLICIES)
    if problem.scales == "block":  # products are scaled in groups of an atom's four
        descriptor = descriptor.with_atoms_of(BLOCK_SCALE_ATOM, problem.dtype)
    atom = atom_of(problem, descriptor)
    if problem.scales_in_loop and policy == "published":
        raise LaunchError(f"the paper's tiles (policy published) have no {problem.scales} scales: use policy corrected")
    if problem.groups and policy == "published":
        raise LaunchError("the paper's tiles (policy published) have no groups: use policy corrected")
    require_narrow(problem.dtype_c, descriptor)
    tiling = (corrected_tiling if policy == "corrected" else published_tiling)(problem, descriptor, atom)
    return with_tiling(problem, descriptor, policy, tiling)


def with_tiling(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str, tiling: Tiling) -> GemmPlan:
    """Returns the plan of a given tiling."""
    plan = plan_without_time(problem, descriptor, policy, tiling)
    rows = plan.constraints
    if policy == "corrected":
        rows = (*rows, *tiling_rows(problem, descriptor, tiling))
    return replace(plan, constraints=mark_binding(rows, tiling.limited_by))


def plan_without_time(problem: GemmProblem, descriptor: HardwareDescriptor, policy: str, tiling: Tiling) -> GemmPlan:
    """Returns the plan without the rows about its time, which are slow to compute. The hard row with the largest ratio binds."""
    atom = atom_of(problem, descriptor)
    resources = gemm_resources(problem, descriptor, atom, tiling)
    rows = gemm_constraints(problem, descriptor, atom, tiling, resources)
    return GemmPlan(problem, descriptor, policy, tiling, atom, resources, mark_binding(rows))


def without_split(plan: GemmPlan) -> GemmPlan:
    """Returns the same tiles with all of K in one block, for a plan that must be one kernel."""
    return with_tiling(plan.problem, plan.descriptor, plan.policy, replace(plan.tiling, split_k=1))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _multiple(size: int, of: int) -> int:
    """Returns the largest multiple of `of` up to `size`, at least `of`."""
    return max(1, size // of) * of
