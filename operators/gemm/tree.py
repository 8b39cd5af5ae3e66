"""GEMM tree of the paper's Figure 1: TiledComputation, BlockGemmNode, WarpGemmNode, AtomHint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.gemm.plan import GemmPlan, plan_gemm, with_tiling
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.levels import Level
from simgpu.operators.tree import ZERO, Axes, Extent, TileNode, TileRoot, View


@dataclass(frozen=True)
class _GemmNode(TileNode):
    """Base of the nodes below the device."""

    plan: GemmPlan

    @staticmethod
    def views_of(plan: GemmPlan, axes: Axes) -> tuple[View, ...]:
        """Returns the windows of op(A), op(B) and C."""
        m, n, k, outer = axes["m"], axes["n"], axes["k"], (axes["batch"],) if "batch" in axes else ()
        return View("A", m, k, outer), View("B", k, n, outer), View("C", m, n, outer)


@dataclass(frozen=True)
class AtomHint(_GemmNode):
    """Leaf: one matrix instruction on windows of at most atom.m x atom.k, atom.k x atom.n and atom.m x atom.n.

    >>> from simgpu import operators
    >>> atom = operators.TiledComputation(256, 256, 256, target="mi300x").first().first().first()
    >>> print(*atom.views)
    A:(16,4) B:(4,16) C:(16,16)
    """

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the atom and how often a wave issues it."""
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
    """A wave's part of one K step: C (warp_m,warp_n) += A (warp_m,warp_k) B (warp_k,warp_n), operands in registers.

    >>> from simgpu import operators
    >>> warp = operators.TiledComputation(256, 256, 256, target="mi300x").first().first()
    >>> print(*warp.views)
    A:(16,16) B:(16,16) C:(16,16)
    """

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = AtomHint

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the warp tile and how the block divides into warps."""
        plan = self.plan
        return ((
            "WarpGemmNode  [warp]",
            "  ".join(map(str, self.views)),
            f"K iterations per warp: {plan.tile_k // plan.warp_k}",
            f"warp tiles per block: {plan.waves_m}x{plan.waves_n} = {plan.waves}",
        ),)


@dataclass(frozen=True)
class BlockGemmNode(_GemmNode):
    """A workgroup's tile of C, with all of K or its part of a split K: tiles of A and B pass through LDS, C stays in registers.

    >>> from simgpu import operators
    >>> block = operators.TiledComputation(256, 256, 256, target="mi300x").first()
    >>> print(*block.views)
    A:(32,256) B:(256,32) C:(32,32)
    >>> len(list(block.steps()))
    2
    """

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = WarpGemmNode

    def steps(self) -> Iterator[tuple[View, ...]]:
        """Yields the views of the K steps that are staged in LDS, tile_k at a time."""
        return map(partial(self.views_of, self.plan), self.windows(self.loops[:1]))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block tile of one K step, its LDS, its K loop."""
        plan = self.plan
        stages = "A+B tiles" if plan.stages == 1 else f"{plan.stages} stages of A+B tiles"
        return ((
            "BlockGemmNode  [block / CU]",
            "  ".join(map(str, next(self.steps()))),
            f"LDS = {plan.resources.lds_bytes / 1024:g} KB  ({stages}; C in registers)",
            f"K iterations per CU: {plan.k_steps_per_block}",
        ),)


class TiledComputation(TileRoot):
    """Root of a GEMM's tree: C <- activation(alpha * op(A) op(B) + beta * C + bias) on a target under a tile policy.

    m, n, k: sizes of C (m,n) and of the reduction. target: a name that `hardware.target` takes, or a HardwareDescriptor.
    policy: "corrected" (default) or "published". dtype: type of A and B. The other arguments are GemmProblem's. Raises
    LaunchError (sizes, strides, policy), TargetError (target, type); `plan` raises ResourceError if the tiles cannot fit.

    >>> from simgpu import operators
    >>> tree = operators.TiledComputation(1000, 1000, 512, target="mi300x", dtype="f16", trans_b=True)
    >>> print(tree.tree().splitlines()[0])
    TiledComputation  C = A @ B^T
    >>> tree.plan.tile_m, tree.plan.tile_n, tree.plan.tile_k
    (64, 64, 128)
    """

    below = BlockGemmNode
    refit = staticmethod(GemmPlan.with_nest)

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
        batch: int = 1,
        bias: bool = False,
        activation: str = "none",
        dtype_c: str = "",
        scale_c: float = 1.0,
        residual: bool = False,
        scales: str = "none",
        groups: int = 0,
        dtype_b: str = "",
        preshuffle_b: bool = False,
    ) -> None:
        self.problem = GemmProblem(
            m, n, k, dtype, trans_a, trans_b, alpha, beta, lda, ldb, ldc, batch, bias, activation,
            dtype_c, scale_c, residual, scales, groups, dtype_b, preshuffle_b,
        )  # fmt: skip
        self.descriptor = find_target(target)
        self.derivation: GemmPlan = plan_gemm(self.problem, self.descriptor, policy)
        self.extents = whole_axes(self.problem)

    @classmethod
    def of(cls, problem: GemmProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> TiledComputation:
        """Returns the tree of an existing problem."""
        given = {field.name: getattr(problem, field.name) for field in fields(problem)}
        return cls(**given, target=descriptor, policy=policy)

    def like(self, problem: GemmProblem) -> TiledComputation:
        """Returns the tree of another problem with these tiles."""
        tree = self.of(problem, self.descriptor, self.derivation.policy)
        tree.derivation = with_tiling(tree.derivation.problem, self.descriptor, self.derivation.policy, self.derivation.tiling)
        return tree

    @property
    def plan(self) -> GemmPlan:
        """Feasible plan. ResourceError names the violated limit and what to change. `derivation` is the plan unchecked."""
        return self.derivation.check()

    def on(self, descriptor: HardwareDescriptor) -> TiledComputation:
        """Derives the same problem and policy again for another descriptor."""
        return self.of(self.problem, descriptor, self.derivation.policy)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along n and along m, (gx, gy), of a product and part of K.

        Rows of a grouped product are unknown before the launch; its tree is cut as if all rows were one group.
        """
        return self.derivation.grid if self.derivation.problem.groups else (self.trips("n"), self.trips("m"))

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped: an array other than A, B and C that it is the length of."""
        p = self.derivation.problem
        if p.groups:
            return "its groups divide all of them"
        if p.scales not in ("none", "tensor"):
            return f"there are {p.scales} scales along it"
        if p.preshuffle_b and axis in "nk":
            return "B is preshuffled"
        return "gate and up alternate along it" if axis == "n" and p.columns_c != p.n else ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.derivation.problem
        gx, gy = self.grid
        extra = "".join(f"{count}x" for count in (p.batch, plan.split_k) if count > 1)
        also = "".join(f", {name} in {count}" for name, count in (("batch", p.batch), ("part of K", plan.split_k)) if count > 1)
        head = (
            f"TiledComputation  C = {_expression(p)}",
            "  ".join(map(str, self.views)),
            f"CU grid: {extra}{gy}x{gx} ({plan.blocks} tiles) [parallel -- one BlockGemmNode per CU]",
            *((f"groups: {p.groups}, of any rows each; the grid has a tile of rows for each that may be cut",) if p.groups else ()),
        )
        loops = (
            f"for I in {gy}, J in {gx}{also} [parallel] / for K in {plan.k_steps_per_block} [sequential]",
            "  C[I,J] += A[I,K] @ B[K,J]",
        )
        return (head if plan.policy == "published" else (*head, *_corrected_lines(plan)), loops)


def whole_axes(p: GemmProblem) -> Axes:
    """Returns the axes of a whole product: the batch if there is one, m, n and k."""
    sizes = {**({"batch": p.batch} if p.batch > 1 else {}), "m": p.m, "n": p.n, "k": p.k}
    return {axis: Extent.whole(size) for axis, size in sizes.items()}


def _corrected_lines(plan: GemmPlan) -> tuple[str, ...]:
    return (
        plan.tiling_line,
        f"padding: {100 * plan.fill:.1f} % of the products are useful",
        f"boundary: views are clipped; A and B read {ZERO.text} outside, C is not stored there",
        *((f"split K: {plan.split_k} blocks share a tile of C; a second pass adds their parts",) if plan.split_k > 1 else ()),
    )


def _expression(problem: GemmProblem) -> str:
    a, b = "A^T" if problem.trans_a else "A", "B^T" if problem.trans_b else "B"
    text = {"none": "", "tensor": "s_A * s_B * ", "row": "s_A[i] * s_B[j] * ",
            "block": "sum of s_A[i,K] * s_B[J,K] * ", "mx": "sum of s_A[i,K] * s_B[j,K] * "}[problem.scales] + f"{a} @ {b}"
    text = text if problem.alpha == 1 else f"{problem.alpha:g} * {text}"
    if problem.beta != 0:
        text += f" + {problem.beta:g} * C"
    return epilogue_text(problem, text)


def epilogue_text(problem: GemmProblem, text: str) -> str:
    """Returns the formula of C from that of what its bias is added to."""
    if problem.bias:
        text += " + bias"
    text = text if problem.activation == "none" else f"{problem.activation}({text})"
    if problem.residual:
        text += " + R"
    if problem.scale_c != 1:
        text = f"{problem.scale_c:g} * ({text})"
    return text if problem.dtype_c == problem.accumulator else f"{problem.dtype_c}({text})"
