"""Tree of attention's backward: AttentionBackward, the three kernels' roots, and the nodes of the kernels of gradients."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.sequence import KernelSequence, SequencePlan
from simgpu.operators.attention_backward.plan import plan_gradient, with_nest
from simgpu.operators.attention_backward.problem import LOGARITHMS, SUMS, AttentionBackwardProblem
from simgpu.operators.attention_backward.tiles import SIDES, WAVES, GradientPlan
from simgpu.operators.levels import Level, TileLoop
from simgpu.operators.rows.tree import RowTree
from simgpu.operators.tree import Axes, Extent, Split, TileNode, TileRoot, View

PARTS = ("sums", *SIDES)


@dataclass(frozen=True)
class _GradientNode(TileNode):
    plan: GradientPlan

    @staticmethod
    def views_of(plan: GradientPlan, axes: Axes) -> tuple[View, ...]:
        """Returns the windows of Q, dO, K, V and the gradients that a kernel writes."""
        p, group, shared = plan.problem, axes["group"], axes["kv_heads"]
        low, high = shared.min_ * p.group + group.min_, (shared.max_ - 1) * p.group + group.max_
        queries, keys = (axes["batch"], Extent(low, high, shared.tile * group.tile)), (axes["batch"], shared)
        d, dv = Extent.whole(p.d), Extent.whole(p.dv)
        places = {"Q": (axes["queries"], d, queries), "dO": (axes["queries"], dv, queries), "K": (axes["keys"], d, keys),
                  "V": (axes["keys"], dv, keys)}  # fmt: skip
        of_gradients = {"dQ": "Q", "dK": "K", "dV": "V"}
        return tuple(View(name, *places[of_gradients.get(name, name)]) for name in (*places, *plan.results))

    def title(self, what: str) -> tuple[str, str]:
        """Returns the node's first two lines."""
        return f"{type(self).__name__}  [{what}]", "  ".join(map(str, self.views))


@dataclass(frozen=True)
class GradientAtom(_GradientNode):
    """Leaf: 16 queries by 16 keys, and the matrix instructions that they take part in."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the instruction and how often a wave issues it."""
        p, atom = self.plan.problem, self.plan.descriptor.atom(self.plan.problem.dtype)
        pairs = self.plan.atoms * self.plan.step // ATOM
        scores = pairs * (-(-p.d // atom.k) + -(-p.dv // atom.k))
        deep = pairs * ATOM / atom.k
        sums = sum((p.dv if name == "dV" else p.d) // ATOM * deep for name in self.plan.results)
        head = "GradientAtom  [leaf -- hardware instruction]"
        return ((head, f"MFMA/WMMA 16x16x{atom.k}  dtype={p.dtype}",
                 f"calls per wave and step: {scores} for S and dP, {sums:g} for {', '.join(self.plan.results)}"),)  # fmt: skip


@dataclass(frozen=True)
class GradientWarp(_GradientNode):
    """A wave's own rows, and the rows of a step."""

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = GradientAtom

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the wave's tile."""
        own = " and ".join(self.plan.own)
        return ((*self.title("warp"), f"{own} and the gradients in registers; P and dS stay there, too"),)


@dataclass(frozen=True)
class GradientBlock(_GradientNode):
    """A block's own rows, and the rows of the other side that see them, or that they see."""

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = GradientWarp

    def tiles(self, loop: TileLoop, axes: Axes) -> Split | tuple[Extent, ...]:
        """Returns the tiles of a loop. Loops over the other side's rows have only the tiles of `partners`."""
        extent = partners(self.plan, axes) if loop.axis == self.plan.other else axes[loop.axis]
        return extent.split(loop.tile)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the tile, LDS and the loops."""
        plan = self.plan
        names = " and ".join(tile.name for tile in plan.moved)
        lds = f"LDS = {plan.resources.lds_bytes / 1024:g} KB  ({plan.stages} stage(s) of {names})"
        loops = " / ".join(f"{loop.axis} by {loop.tile}" for loop in self.loops if not loop.parallel)
        return ((*self.title("block / CU"), lds, f"steps: {loops}; {WAVES} waves"),)


def partners(plan: GradientPlan, axes: Axes) -> Extent:
    """Returns the rows of the other side that have a pair with one of the axes' own rows: all, unless the mask is causal.

    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem
    >>> tree = AttentionBackward(AttentionBackwardProblem(512, 512, 64, causal=True, dtype="f16"), "mi300x").parts[1]
    >>> *_, last = tree.children()
    >>> partners(tree.plan, last.axes).min_ == last.axes["keys"].min_
    True
    """
    p, whole = plan.problem, axes[plan.other]
    if not p.causal:
        return whole
    shift = p.lk - p.lq
    if plan.side == "keys":
        first = min(max(axes["keys"].min_ - shift, whole.min_), whole.max_)
        return replace(whole, min_=first)
    return replace(whole, max_=max(whole.min_, min(axes["queries"].max_ + shift, whole.max_)))


class GradientTree(TileRoot):
    """Root of one kernel of gradients: dK and dV, or dQ.

    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem
    >>> tree = AttentionBackward(AttentionBackwardProblem(256, 256, 64, dtype="f16"), "mi300x").parts[2]
    >>> tree.trips("queries"), [view.operand for view in tree.views]
    (4, ['Q', 'dO', 'K', 'V', 'dQ'])
    """

    derivation: GradientPlan
    below = GradientBlock
    refit = staticmethod(with_nest)
    lengths: ClassVar = {"batch": "batch", "kv_heads": "kv_heads", "group": "group", "queries": "lq", "keys": "lk"}

    def __init__(self, problem: AttentionBackwardProblem, side: str, target: str | HardwareDescriptor = "mi100",
                 policy: str = "corrected") -> None:  # fmt: skip
        self.derive = partial(plan_gradient, side=side)
        super().__init__(problem, target, policy)

    def on(self, descriptor: HardwareDescriptor) -> GradientTree:
        """Derives the same problem and policy again for another descriptor."""
        return GradientTree(self.problem, self.derivation.side, descriptor, self.derivation.policy)

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped; only the batch can."""
        if axis in ("queries", "keys"):
            return "a head's place in memory follows from its rows"
        return "" if axis == "batch" else "heads follow one another"

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, keys = self.derivation, self.derivation.side == "keys"
        formula = "dV = P^T dO, dK = scale * dS^T Q" if keys else "dQ = scale * dS K"
        loops = " / ".join(f"{loop.axis} in {self.trips(loop.axis)}" for loop in self.loops)
        head = (
            f"GradientTree  {formula}",
            "  ".join(map(str, self.views)),
            f"CU grid: {plan.blocks} tiles [parallel]",
            plan.tiling_line,
            "boundary: views are clipped; rows outside read 0 and are not stored" + "; unseen pairs count 0" * plan.problem.causal,
        )
        return head, (f"for {loops} [parallel]", f"  P = exp(S - {LOGARITHMS}), dS = P * (dP - {SUMS}), then {formula}")


class BackwardPlan(SequencePlan):
    """Derivations of the three kernels."""

    operator = "attention_backward"
    names = PARTS
    main = PARTS.index("keys")

    @property
    def blocks(self) -> int:
        """Blocks of the kernel of dK and dV."""
        return self.parts[self.main].blocks


class AttentionBackward(KernelSequence):
    """Root of the tree: gradients of attention by three kernels, one of sums of rows, one of dK and dV, one of dQ.

    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem
    >>> tree = AttentionBackward(AttentionBackwardProblem(256, 256, 64, dtype="f16"), "mi300x")
    >>> [type(part).__name__ for part in tree.children()]
    ['RowTree', 'GradientTree', 'GradientTree']
    """

    def __init__(self, problem: AttentionBackwardProblem, target: str | HardwareDescriptor = "mi100",
                 policy: str = "corrected") -> None:  # fmt: skip
        self.problem = problem
        self.descriptor = find_target(target)
        self.parts: tuple[RowTree, GradientTree, GradientTree] = (
            RowTree(problem.row_sums, self.descriptor, policy),
            *(GradientTree(problem, side, self.descriptor, policy) for side in SIDES),  # type: ignore[assignment]
        )
        sums, keys, queries = (part.derivation for part in self.parts)
        self.derivation = BackwardPlan(problem, self.descriptor, policy, (sums, keys, queries))
        self.views = tuple(
            View(name, Extent.whole(rows), Extent.whole(columns), (Extent.whole(batch), Extent.whole(heads)))
            for name, (batch, heads, rows, *width) in problem.shapes.items()
            for columns in (width or [1])
        )

    def with_plans(self, *plans: GradientPlan) -> AttentionBackward:
        """Returns the tree with other plans of the kernels of gradients, in the order of SIDES."""
        other, (sums, *parts) = copy(self), self.parts
        other.parts = (sums, *map(copy, parts))  # type: ignore[assignment]
        for part, plan in zip(other.parts[1:], plans, strict=True):
            part.derivation = plan
        other.derivation = replace(self.derivation, parts=(sums.derivation, *plans))
        return other

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the sequence of kernels."""
        head = (
            "AttentionBackward  dQ, dK, dV of softmax(scale * Q @ K^T) @ V",
            "  ".join(map(str, self.views)),
            f"three kernels in sequence; the first gives {SUMS} = sum of each row of dO * O",
        )
        return (head,)
