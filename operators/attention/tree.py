"""Fused attention's tree: FusedAttention, BlockAttentionNode, WarpAttentionNode, AtomAttentionNode (paper, Fused Attention)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.operators.arguments import one_of
from simgpu.operators.attention.plan import AttentionTiles, plan_attention
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint
from simgpu.operators.tree import FLOOR, Extent, Node, Root, Split, View, product

VALUES = ("mfma", "fma")
Views = tuple[View, View, View, View]  # Q, K, V, R


@dataclass(frozen=True)
class _AttentionNode(Node):
    plan: AttentionTiles
    views: Views

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns the plan's rows of this level."""
        return self.plan.at(self.level)


@dataclass(frozen=True)
class AtomAttentionNode(_AttentionNode):
    """Leaf: one matrix instruction of S = Q K^T or of O += P V, both computed transposed under "corrected"."""

    level: ClassVar[Level] = Level.ATOM
    result: str  # S or O

    def children(self) -> Iterator[Node]:
        """Yields nothing: the level below is the hardware."""
        return iter(())

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
        q, k, v, r = self.views
        atom = _atom(self.plan)
        for inner in Extent.whole(self.plan.d).split(atom.k):
            for heads, queries, keys in product(*self.columns(atom), k.rows.split(atom.m)):
                outer = (q.outer[0], heads)
                yield AtomAttentionNode(self.plan, (View("Q", queries, inner, outer), View("K", keys, inner, k.outer), v, r), "S")

    def values(self) -> Iterator[AtomAttentionNode]:
        """Yields the atoms of O += P V. V's and R's columns are the atom's slice of d."""
        q, k, v, r = self.views
        atom = _atom(self.plan)
        for keys in v.rows.split(atom.k):
            for heads, queries, cols in product(*self.columns(atom), r.cols.split(atom.m)):
                outer = (r.outer[0], heads)
                yield AtomAttentionNode(self.plan, (q, k, View("V", keys, cols, v.outer), View("R", queries, cols, outer)), "O")

    def columns(self, atom: MFMAAtom) -> tuple[Split, Split]:
        """Returns the heads and the queries of each atom's columns: an atom has a rectangle of them."""
        slots, q = self.plan.row_slots, self.views[0]
        return q.outer[1].split(atom.n), q.rows.split(max(1, atom.n // slots))

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

    def steps(self) -> Iterator[Extent]:
        """Yields the keys, tile_KV at a time."""
        return iter(self.views[1].rows.split(self.plan.tile_KV))

    def children(self) -> Iterator[WarpAttentionNode]:
        """Yields the warp nodes, by key step, by wave."""
        for step in self.steps():
            yield from self.warps(step)

    def warps(self, step: Extent) -> Iterator[WarpAttentionNode]:
        """Yields the warp nodes of one key step."""
        plan = self.plan
        q, k, v, r = self.views
        for queries in q.rows.split(plan.tile_queries // plan.waves_q):
            for part, keys in enumerate(step.split(plan.tile_KV // plan.waves_kv)):
                views = (
                    View("Q", queries, q.cols, q.outer),
                    View("K", keys, k.cols, k.outer),
                    View("V", keys, v.cols, v.outer),
                    View("R", queries, r.cols, r.outer),
                )
                yield WarpAttentionNode(plan, views, part)

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


class FusedAttention(Root):
    """Root of an attention tree: R = softmax(scale * Q K^T) V for each head on a target under a tile policy.

    values: how P V is computed: "mfma" or, under "published", also "fma", the paper's other kernel. LaunchError otherwise.

    >>> from simgpu.operators import AttentionProblem, FusedAttention
    >>> tree = FusedAttention(AttentionProblem(lq=1024, lk=1024, d=64, heads=8, dtype="f16"), "mi300x")
    >>> tree.plan.sizes
    {'tile_Q': 32, 'tile_heads': 1, 'tile_KV': 128, 'tile_Q_max': 64, 'split_kv': 1, 'waves_q': 1, 'waves_kv': 4}
    """

    def __init__(
        self, problem: AttentionProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected", values: str = "mfma"
    ) -> None:
        self.problem = problem
        self.values = one_of("values", values, VALUES if policy == "published" else VALUES[:1])
        self.descriptor = target if isinstance(target, HardwareDescriptor) else find_target(target)
        self.derivation: AttentionTiles = plan_attention(
            problem, self.descriptor, policy, self.values if policy == "published" else ""
        )
        p = problem
        d, dv, outer, kv_outer = (
            Extent.whole(p.d),
            Extent.whole(p.dv),
            (Extent.whole(p.batch), Extent.whole(p.heads)),
            (Extent.whole(p.batch), Extent.whole(p.kv_heads)),
        )
        self.views: Views = (
            View("Q", Extent.whole(p.lq), d, outer),
            View("K", Extent.whole(p.lk), d, kv_outer),
            View("V", Extent.whole(p.lk), dv, kv_outer),
            View("R", Extent.whole(p.lq), dv, outer),
        )

    def on(self, descriptor: HardwareDescriptor) -> FusedAttention:
        """Derives the same problem and policy again for another descriptor."""
        return FusedAttention(self.problem, descriptor, self.derivation.policy, self.values)

    def children(self) -> Iterator[BlockAttentionNode]:
        """Yields one node per batch index, group of heads, Q tile and part of its visible keys; views of empty parts are empty."""
        plan, p = self.derivation, self.problem
        q, k, v, r = self.views
        for batch, heads in product(q.outer[0].split(1), q.outer[1].split(plan.tile_heads)):
            shared = heads.min_ // (p.heads // p.kv_heads)
            kv_outer = (batch, Extent(shared, shared + 1, 1))
            for queries in q.rows.split(plan.tile_queries):
                seen = p.visible(queries)
                size = -(-max(1, -(-len(seen) // plan.tile_KV)) // plan.split_kv) * plan.tile_KV
                for part in range(plan.split_kv):
                    low, high = (min(seen.max_, seen.min_ + size * i) for i in (part, part + 1))
                    keys = Extent(low, high, size)
                    outer = (batch, heads)
                    yield BlockAttentionNode(
                        plan,
                        (
                            View("Q", queries, q.cols, outer),
                            View("K", keys, k.cols, kv_outer),
                            View("V", keys, v.cols, kv_outer),
                            View("R", queries, r.cols, outer),
                        ),
                    )

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        mask = ", ".join((["causal"] if p.causal else []) + ([f"window {p.window}"] if p.window else [])) or "none"
        per_head = -(-p.lq // plan.tile_queries)
        cap = f"; scores capped at {p.softcap:g}" if p.softcap else ""
        extras = cap + "; ALiBi" * p.alibi + "; log-sum-exp stored" * p.lse
        head = (
            f"FusedAttention  R = softmax({p.scale:.6g} * Q @ K^T) @ V",
            "  ".join(map(str, self.views)),
            f"mask: {mask};  query heads per head of K and V: {p.heads // p.kv_heads}, {plan.tile_heads} in a tile{extras}",
            f"CU grid: {p.batch}x{p.heads // plan.tile_heads}x{per_head}, keys split {plan.split_kv} ({plan.tiles} tiles) "
            "[parallel -- one BlockAttentionNode per CU]",
            f"tiling: {plan.policy} for {plan.descriptor.name or plan.descriptor.arch}, bound by {plan.binding.name}, "
            f"eta = {100 * plan.eta:.1f} %",
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
