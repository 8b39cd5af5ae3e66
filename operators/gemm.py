"""The GEMM tree of the paper's Figure 1: TiledComputation, BlockGemmNode, WarpGemmNode, AtomHint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

from hardware import target as find_target
from hardware.descriptor import HardwareDescriptor
from operators.problem import GemmProblem
from operators.resources import Constraint
from operators.tiles import GemmPlan, plan_gemm
from operators.tree import Extent, Level, Node, View, render

GemmViews = tuple[View, View, View]  # op(A), op(B), C


@dataclass(frozen=True)
class _GemmNode(Node):
    """What the nodes below the device have in common."""

    plan: GemmPlan
    views: GemmViews

    def constraints(self) -> tuple[Constraint, ...]:
        """The plan's rows of this level."""
        return self.plan.at(self.level)


@dataclass(frozen=True)
class AtomHint(_GemmNode):
    """Leaf: one matrix instruction on windows of at most atom.m x atom.k, atom.k x atom.n and atom.m x atom.n."""

    level: ClassVar[Level] = Level.ATOM

    def children(self) -> Iterator[Node]:
        """None: the level below is the hardware."""
        return iter(())

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The atom and how often a wave issues it."""
        plan, atom = self.plan, self.plan.atom
        rows, cols = plan.warp_m // atom.m, plan.warp_n // atom.n
        return ((
            "AtomHint  [leaf -- hardware instruction]",
            f"MFMA/WMMA {atom.m}x{atom.n}x{atom.k}  dtype={atom.dtype_in}",
            f"K iterations per atom: {plan.warp_k // atom.k}",
            f"atom calls per warp:   {rows}x{cols} = {rows * cols}",
        ),)


@dataclass(frozen=True)
class WarpGemmNode(_GemmNode):
    """One wave's share of one K step: C (warp_m,warp_n) += A (warp_m,warp_k) B (warp_k,warp_n), operands in registers."""

    level: ClassVar[Level] = Level.WARP

    def children(self) -> Iterator[AtomHint]:
        """Atoms, K outermost, so that consecutive ones have independent accumulators."""
        a, _, c = self.views
        atom = self.plan.atom
        for k in a.cols.split(atom.k):
            for rows, cols in product(c.rows.split(atom.m), c.cols.split(atom.n)):
                yield AtomHint(self.plan, _views(rows, cols, k))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The warp tile and how the block divides into warps."""
        plan = self.plan
        return ((
            "WarpGemmNode  [warp]",
            "  ".join(map(str, self.views)),
            f"K iterations per warp: {plan.tile_k // plan.warp_k}",
            f"warp tiles per block: {plan.waves_m}x{plan.waves_n} = {plan.waves}",
        ),)


@dataclass(frozen=True)
class BlockGemmNode(_GemmNode):
    """One workgroup's tile of C, all of K: tiles of A and B pass through LDS, C stays in registers."""

    level: ClassVar[Level] = Level.BLOCK

    def steps(self) -> Iterator[GemmViews]:
        """Views of the K steps: what is staged in LDS, tile_k at a time."""
        a, _, c = self.views
        return (_views(c.rows, c.cols, k) for k in a.cols.split(self.plan.tile_k))

    def children(self) -> Iterator[WarpGemmNode]:
        """Warp nodes, by K step, by K slice within the step, by wave."""
        plan = self.plan
        for a, _, c in self.steps():
            for k in a.cols.split(plan.warp_k):
                for rows, cols in product(c.rows.split(plan.warp_m), c.cols.split(plan.warp_n)):
                    yield WarpGemmNode(plan, _views(rows, cols, k))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The block tile of one K step, its LDS, its K loop."""
        plan = self.plan
        stages = "A+B tiles" if plan.stages == 1 else f"{plan.stages} stages of A+B tiles"
        return ((
            "BlockGemmNode  [block / CU]",
            "  ".join(map(str, next(self.steps()))),
            f"LDS = {plan.resources.lds_bytes / 1024:g} KB  ({stages}; C in registers)",
            f"K iterations per CU: {plan.k_steps}",
        ),)


class TiledComputation(Node):
    """The root: C <- alpha * op(A) op(B) + beta * C on a target under a tile policy.

    m, n, k: sizes of C (m,n) and of the reduction. target: a name that `hardware.target` takes, or a HardwareDescriptor. policy:
    "corrected" (default) or "published". dtype: type of A and B. The other arguments are GemmProblem's.
    Raises LaunchError (sizes, strides, policy), TargetError (target, type); `plan` raises ResourceError if the tiles cannot fit.
    """

    level: ClassVar[Level] = Level.DEVICE

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        target: str | HardwareDescriptor = "mi100",
        policy: str = "corrected",
        dtype: str = "f32",
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
    ) -> None:
        self.problem = GemmProblem(m, n, k, dtype, trans_a, trans_b, alpha, beta, lda, ldb, ldc)
        self.descriptor = target if isinstance(target, HardwareDescriptor) else find_target(target)
        self.derivation = plan_gemm(self.problem, self.descriptor, policy)
        self.views: GemmViews = _views(Extent.whole(self.problem.m), Extent.whole(self.problem.n), Extent.whole(self.problem.k))

    @classmethod
    def of(cls, problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> TiledComputation:
        """The tree of a problem that exists already."""
        p = problem
        return cls(p.m, p.n, p.k, descriptor, policy, p.dtype, p.trans_a, p.trans_b, p.alpha, p.beta, p.lda, p.ldb, p.ldc)

    @cached_property
    def plan(self) -> GemmPlan:
        """The feasible plan; ResourceError names the violated limit and what to change. `derivation` is the plan unchecked."""
        return self.derivation.check()

    def on(self, descriptor: HardwareDescriptor) -> TiledComputation:
        """The same problem and policy, derived again for another descriptor."""
        return self.of(self.problem, descriptor, self.derivation.policy)

    def constraints(self) -> tuple[Constraint, ...]:
        """The derivation's rows of the device level."""
        return self.derivation.at(self.level)

    def children(self) -> Iterator[BlockGemmNode]:
        """One node a workgroup, row by row of C."""
        plan = self.derivation
        a, _, c = self.views
        for rows, cols in product(c.rows.split(plan.tile_m), c.cols.split(plan.tile_n)):
            yield BlockGemmNode(plan, _views(rows, cols, a.cols))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        gx, gy = plan.grid
        head = (
            f"TiledComputation  C = {_expression(p)}",
            "  ".join(map(str, self.views)),
            f"CU grid: {gy}x{gx} ({plan.blocks} tiles) [parallel -- one BlockGemmNode per CU]",
        )
        loops = (
            f"for I in {gy}, J in {gx} [parallel] / for K in {plan.k_steps} [sequential]",
            "  C[I,J] += A[I,K] @ B[K,J]",
        )
        return (head if plan.policy == "published" else (*head, *_corrected_lines(plan)), loops)

    def tree(self) -> str:
        """The tree as text; under "published" on gpu_a at 4096 cubed it is the paper's Figure 1, line for line.

        ResourceError if the tiles cannot fit.
        """
        self.derivation.check()
        return render(self)


def _corrected_lines(plan: GemmPlan) -> tuple[str, ...]:
    return (
        f"tiling: {plan.policy} for {plan.descriptor.name or plan.descriptor.arch}, bound by {plan.binding.name}, "
        f"eta = {100 * plan.eta:.1f} %, fill = {100 * plan.fill:.1f} %",
        "boundary: views are clipped; A and B read 0 outside, C is not stored there",
    )


def _expression(problem: GemmProblem) -> str:
    a, b = "A^T" if problem.trans_a else "A", "B^T" if problem.trans_b else "B"
    scaled = f"{a} @ {b}" if problem.alpha == 1 else f"{problem.alpha:g} * {a} @ {b}"
    return scaled if problem.beta == 0 else f"{scaled} + {problem.beta:g} * C"


def _views(rows: Extent, cols: Extent, k: Extent) -> GemmViews:
    return View("A", rows, k), View("B", k, cols), View("C", rows, cols)
