"""Fused attention's tree: FusedAttention, BlockAttentionNode, WarpAttentionNode, AtomAttentionNode (paper, Fused Attention)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import ClassVar

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.operators.arguments import one_of
from simgpu.operators.attention.plan import AttentionTiles, plan_attention, with_nest
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.levels import Level, TileLoop
from simgpu.operators.tree import FLOOR, Axes, Extent, Split, TileNode, TileRoot, View

VALUES = ("mfma", "fma")
PRODUCT = 4  # loops of a wave's first product
Views = tuple[View, View, View, View]  # Q, K, V, R


@dataclass(frozen=True)
class _AttentionNode(TileNode):
    plan: AttentionTiles

    @staticmethod
    def views_of(plan: AttentionTiles, axes: Axes) -> Views:
        """Returns the windows of Q, K, V and R."""
        group, heads = plan.problem.heads // plan.problem.kv_heads, axes["heads"]
        kv_heads = Extent(heads.min_ // group, -(-heads.max_ // group), -(-heads.tile // group))
        queries, keys, outer, kv_outer = axes["queries"], axes["keys"], (axes["batch"], heads), (axes["batch"], kv_heads)
        return (
            View("Q", queries, axes["d"], outer), View("K", keys, axes["d"], kv_outer),
            View("V", keys, axes["dv"], kv_outer), View("R", queries, axes["dv"], outer),
        )  # fmt: skip


@dataclass(frozen=True)
class AtomAttentionNode(_AttentionNode):
    """Leaf: one matrix instruction of S = Q K^T or of O += P V, both computed transposed under "corrected"."""

    level: ClassVar[Level] = Level.ATOM
    result: str  # S or O

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the atom and how often a wave issues it."""
        plan, atom = self.plan, _atom(self.plan)
        queries, keys, p = plan.tile_Q // plan.waves_q, plan.tile_KV // plan.waves_kv, plan.problem
        calls = (
            -(-queries // atom.n) * -(-keys // atom.m) * -(-p.d // atom.k),
            -(-queries // atom.n) * -(-p.dv // atom.m) * -(-keys // atom.k),
        )
        return (
            (
                "AtomAttentionNode  [leaf -- hardware instruction]",
                f"MFMA {atom.m}x{atom.n}x{atom.k}  dtype={atom.dtype_in}",
                f"atom calls per warp and step: {calls[0]} for S, {calls[1]} for O",
            ),
        )


@dataclass(frozen=True)
class WarpAttentionNode(_AttentionNode):
    """A wave's part of one key step: its queries against its keys, two chained products around the softmax update."""

    level: ClassVar[Level] = Level.WARP
    part: int  # index of the wave's state among the waves_kv states

    def scores(self) -> Iterator[AtomAttentionNode]:
        """Yields the atoms of S = Q K^T. Q's and K's columns are the atom's slice of d."""
        return (AtomAttentionNode(self.plan, axes, "S") for axes in self.windows(self.loops[:PRODUCT]))

    def values(self) -> Iterator[AtomAttentionNode]:
        """Yields the atoms of O += P V. V's and R's columns are the atom's slice of d."""
        return (AtomAttentionNode(self.plan, axes, "O") for axes in self.windows(self.loops[PRODUCT:]))

    def children(self) -> Iterator[AtomAttentionNode]:
        """Yields the atoms of both products in order. The softmax update is between them."""
        return chain(self.scores(), self.values())

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the wave's tile and its register use."""
        plan = self.plan
        return (
            (
                "WarpAttentionNode  [warp]",
                "  ".join(map(str, self.views)),
                f"live between the products: Q, S, O, m, delta = {plan.vgprs} VGPRs",
                f"warp tiles per block: {plan.waves_q}x{plan.waves_kv} = {plan.waves_q * plan.waves_kv}",
            ),
        )


@dataclass(frozen=True)
class BlockAttentionNode(_AttentionNode):
    """A Q tile against one part of its visible keys, a K and V tile at a time. S and O stay in registers."""

    level: ClassVar[Level] = Level.BLOCK

    def steps(self) -> Iterator[Axes]:
        """Yields the axes of each step of the keys."""
        return self.windows(self.loops[:1])

    def child(self, axes: Axes) -> WarpAttentionNode:
        """Returns the node of a wave's queries and keys of a step. Waves with the same part of each step's keys share a state."""
        step, _, own = self.loops
        part = (axes["keys"].min_ - self.axes["keys"].min_) % step.tile // own.tile
        return WarpAttentionNode(self.plan, axes, part)

    def warps(self, step: Axes) -> Iterator[WarpAttentionNode]:
        """Yields the warp nodes of one key step."""
        return map(self.child, self.windows(self.loops[1:], step))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block tile, its LDS, its key loop."""
        plan, e = self.plan, self.plan.problem.element.bytes
        q, k, v, r = self.views
        keys = Extent(0, plan.tile_KV, plan.tile_KV)
        if plan.policy == "published":
            lds, arrays = plan.tile_KV * plan.d * e, "K or V tile, one at a time"
        elif plan.shared:
            lds, arrays = plan.resources.lds_bytes, "two stages of K and of V, shared by the waves; S and O in registers"
        else:
            lds, arrays = plan.resources.lds_bytes, "partial O of the waves, at the end; K, V, S and O in registers"
        return (
            (
                "BlockAttentionNode  [block / CU]",
                "  ".join(map(str, (q, View("K", keys, k.cols, k.outer), View("V", keys, v.cols, v.outer), r))),
                f"LDS = {lds / 1024:g} KB  ({arrays})",
                f"key steps per CU: at most {_steps_per_block(plan)}",
            ),
        )


class FusedAttention(TileRoot):
    """Root of an attention tree: R = softmax(scale * Q K^T) V for each head on a target under a tile policy.

    values: how P V is computed: "mfma" or, under "published", also "fma", the paper's other kernel. LaunchError otherwise.

    >>> from simgpu.operators import AttentionProblem, FusedAttention
    >>> tree = FusedAttention(AttentionProblem(lq=1024, lk=1024, d=64, heads=8, dtype="f16"), "mi300x")
    >>> tree.plan.sizes
    {'tile_Q': 32, 'tile_heads': 1, 'tile_KV': 128, 'tile_Q_max': 64, 'split_kv': 1, 'waves_q': 1, 'waves_kv': 4}
    """

    problem: AttentionProblem
    derivation: AttentionTiles
    below = BlockAttentionNode
    refit = staticmethod(with_nest)
    lengths: ClassVar = {"batch": "batch", "heads": "heads", "queries": "lq", "keys": "lk", "d": "d", "dv": "dv"}

    def __init__(
        self, problem: AttentionProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected", values: str = "mfma"
    ) -> None:
        self.values = one_of("values", values, VALUES if policy == "published" else VALUES[:1])
        self.derive = partial(plan_attention, values=values if policy == "published" else "")
        super().__init__(problem, target, policy)

    def on(self, descriptor: HardwareDescriptor) -> FusedAttention:
        """Derives the same problem and policy again for another descriptor."""
        return FusedAttention(self.problem, descriptor, self.derivation.policy, self.values)

    def tiles(self, loop: TileLoop, axes: Axes) -> Split | tuple[Extent, ...]:
        """Returns the tiles of a loop. The parts of split keys divide those that the queries see; parts may be empty."""
        if loop.axis != "keys":
            return super().tiles(loop, axes)
        plan, seen = self.derivation, self.problem.visible(axes["queries"])
        end = min(seen.max_, axes["keys"].max_)
        size = -(-max(1, -(-(end - seen.min_) // plan.tile_KV)) // plan.split_kv) * plan.tile_KV
        ends = [min(end, seen.min_ + size * part) for part in range(plan.split_kv + 1)]
        return tuple(Extent(low, high, size) for low, high in pairwise(ends))

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped."""
        p, split = self.problem, self.derivation.split_kv > 1
        if axis in ("heads", "d", "dv"):
            return "heads follow one another, and their columns"
        if p.cached:
            return "a cache has lengths of its own"
        if axis in ("queries", "keys") and (p.causal or p.window is not None or p.alibi):
            return "masks and slopes count from the end of the keys"
        if axis != "keys" and split:
            return "a second kernel merges the parts of all queries"
        return "the log-sum-exp has a row of all queries" if axis == "queries" and p.lse else ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        mask = ", ".join((["causal"] if p.causal else []) + ([f"window {p.window}"] if p.window else [])) or "none"
        per_head = self.trips("queries")
        cap = f"; scores capped at {p.softcap:g}" if p.softcap else ""
        extras = cap + "; ALiBi" * p.alibi + "; log-sum-exp stored" * p.lse
        head = (
            f"FusedAttention  R = softmax({p.scale:.6g} * Q @ K^T) @ V",
            "  ".join(map(str, self.views)),
            f"mask: {mask};  query heads per head of K and V: {p.heads // p.kv_heads}, {plan.tile_heads} in a tile{extras}",
            f"CU grid: {p.batch}x{p.heads // plan.tile_heads}x{per_head}, keys split {plan.split_kv} ({plan.tiles} tiles) "
            "[parallel -- one BlockAttentionNode per CU]",
            plan.tiling_line,
            f"boundary: views are clipped; Q, K and V read 0 outside, a masked or outside score is {FLOOR.text}",
        )
        loops = (
            f"for I in {per_head} [parallel] / for J in {_steps_per_block(plan)} [sequential]",
            "  S = Q[I] @ K[J]^T;  (m, delta, O)[I] = (m, delta, O)[I] ⊕ (rowmax S, rowsum P, P @ V[J]), P = exp(S - m)",
        )
        return head, loops


def _steps_per_block(plan: AttentionTiles) -> int:
    return (plan.problem.lk + plan.tile_KV * plan.split_kv - 1) // (plan.tile_KV * plan.split_kv)


def _atom(plan: AttentionTiles) -> MFMAAtom:
    return plan.descriptor.atom(plan.dtype)
