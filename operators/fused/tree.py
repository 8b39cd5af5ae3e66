"""Tree of a GEMM with leaves: the GEMM's nodes, and beside a block's warps the leaves on its tiles of A and of C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.fused.problem import FusedGemm
from simgpu.operators.gemm.leaves import Leaves
from simgpu.operators.gemm.plan import GemmPlan, plan_gemm
from simgpu.operators.gemm.tree import BlockGemmNode, TiledComputation, epilogue_text, whole_axes
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint
from simgpu.operators.tree import Axes, Node, View


@dataclass(frozen=True)
class Leaf(Node):
    """A leaf on a tile that a block holds: `of` names it."""

    plan: GemmPlan
    views: tuple[View]
    of: Leaves
    axes: ClassVar[Axes] = {}  # type: ignore[misc]

    level: ClassVar[Level] = Level.BLOCK

    def children(self) -> Iterator[Node]:
        """Yields nothing: a leaf is vector instructions."""
        return iter(())

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns nothing: the block's rows include a leaf's registers."""
        return ()


@dataclass(frozen=True)
class TileLeaf(Leaf):
    """A tile of A on its way to LDS: its rows' sums grow, and factors replace its elements."""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the sums and the map."""
        return self.of.describe()[:-1]


@dataclass(frozen=True)
class ResultLeaf(Leaf):
    """A tile of C: the result replaces the product."""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the result."""
        return self.of.describe()[-1:]


@dataclass(frozen=True)
class FusedBlock(BlockGemmNode):
    """A workgroup's tile of C: for each K step a leaf on the tile of A, then the warps; at the end a leaf on the tile of C."""

    def children(self) -> Iterator[Node]:  # type: ignore[override]  # leaves, too
        """Yields, by K step, the leaf on the tile of A and the warp nodes; then the leaf on the tile of C."""
        for axes in self.windows(self.loops[:1]):
            yield self._leaf(TileLeaf, self.views_of(self.plan, axes)[0])
            yield from map(self.child, self.windows(self.loops[1:], axes))
        yield self._leaf(ResultLeaf, self.views[2])

    def first(self) -> Node:
        """Returns the first warp node, which represents the level below."""
        return self.child(next(self.windows(self.loops)))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block tile, and the leaves."""
        leaves = self._leaf(TileLeaf, next(self.steps())[0]), self._leaf(ResultLeaf, self.views[2])
        return (*super().describe(), *(section for leaf in leaves for section in leaf.describe()))

    def _leaf(self, kind: type[Leaf], view: View) -> Leaf:
        leaves = self.plan.problem.leaves
        assert leaves is not None
        return kind(self.plan, (view,), leaves)


class FusedTree(TiledComputation):
    """Root of the tree of a FusedGemm, on a target under a tile policy. Raises as TiledComputation.

    >>> from simgpu import operators
    >>> tree = operators.FusedTree(operators.RmsNormGemm(256, 256, 256), "mi300x")
    >>> [section[0] for section in tree.first().describe()][1:]
    ['RowSum  [leaf -- on each tile of A]  squares[i] += a * a', 'Map  [leaf -- on each tile of A]  A[i,k] -> a * gamma', \
'Result  [leaf -- on the tile of C]  C[i,j] = product * rsqrt(squares / 256 + 1e-05)']
    """

    problem: Any  # a FusedGemm; the plan's problem is its GEMM
    below = FusedBlock

    def __init__(self, problem: FusedGemm, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        self.problem = problem
        self.descriptor = find_target(target)
        self.derivation: GemmPlan = plan_gemm(problem.gemm, self.descriptor, policy)
        self.extents = whole_axes(problem.gemm)

    @classmethod
    def of(cls, problem: Any, descriptor: HardwareDescriptor, policy: str = "corrected") -> FusedTree:
        """Returns the tree of an existing problem."""
        return cls(problem, descriptor, policy)

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped: a GEMM's, or leaves that are others for another length."""
        other = replace(self.problem, **{axis: 2 * getattr(self.problem, axis)}, lda=None, ldb=None, ldc=None)
        if other.leaves != self.problem.leaves:
            return f"the leaves of {self.problem.name} depend on its length"
        return super().whole_only(axis)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        (_, *lines), loops = super().describe()
        p, leaves = self.problem, self.problem.leaves
        product = f"({leaves.left_operand}) @ B{'^T' * p.trans_b}" if leaves.maps else f"A @ B{'^T' * p.trans_b}"
        result = epilogue_text(p.gemm, str(leaves.result))
        return (f"{type(p).__name__}  C = {result}, product = {product}", *lines), loops

