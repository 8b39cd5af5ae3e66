"""Attention executed with numpy: fused, with an online softmax over key steps, and unfused, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.cache import Cache, Sequence, each_sequence, sequences
from simgpu.operators.attention.problem import GAINS, AttentionProblem
from simgpu.operators.attention.reference import given_slopes
from simgpu.operators.attention.registers import merge_traffic, partial_columns
from simgpu.operators.attention.tree import AtomAttentionNode, BlockAttentionNode, FusedAttention, WarpAttentionNode
from simgpu.operators.attention.unfused import UnfusedAttention
from simgpu.operators.compute import Array, ComputeVisitor, Executor
from simgpu.operators.levels import Level
from simgpu.operators.softmax.state import SoftmaxState, exponentials, normalise
from simgpu.operators.traffic import Counters
from simgpu.operators.tree import FINITE_FLOOR, Extent, Root, View


@dataclass
class _Rows:
    """State of some queries of some heads."""

    m: Array  # running maximum (heads,queries)
    delta: Array  # denominator (heads,queries)
    o: Array  # unnormalised output O (heads,queries,dv)

    @classmethod
    def empty(cls, heads: int, queries: int, dv: int, kind: np.dtype[Any]) -> _Rows:
        none = SoftmaxState.empty((heads, queries), kind)
        return cls(none.m, none.delta, np.zeros((heads, queries, dv), kind))

    def rescale(self, m: Array) -> None:
        """Raises the maximum to `m`, which is at least as large everywhere (Algorithm 1, lines 5, 7 and 8)."""
        factor = np.exp(self.m - m)
        self.m, self.delta, self.o = m, self.delta * factor, self.o * factor[..., None]

    def merge(self, other: _Rows) -> None:
        """Performs self ⊕= other, including the output."""
        m = np.maximum(self.m, other.m)
        self.rescale(m)
        other.rescale(m)
        self.delta, self.o = self.delta + other.delta, self.o + other.o

    def part(self, rows: slice) -> _Rows:
        """Returns the state of some of the queries, as views of the arrays."""
        return _Rows(self.m[:, rows], self.delta[:, rows], self.o[:, rows])

    def put_rows(self, rows: slice, part: _Rows) -> None:
        """Stores `part` as the state of these queries."""
        self.m[:, rows], self.delta[:, rows], self.o[:, rows] = part.m, part.delta, part.o


class AttentionExecutor(Executor, root=FusedAttention):
    """Computes softmax(scale * Q K^T) V for Q (batch,heads,lq,d), K (batch,kv_heads,lk,d) and V (batch,kv_heads,lk,dv).

    >>> import numpy as np
    >>> from simgpu.operators import AttentionProblem, ComputeVisitor, FusedAttention
    >>> tree, x = FusedAttention(AttentionProblem(lq=32, lk=32, d=16), "mi300x"), np.ones((1, 1, 32, 16))
    >>> ComputeVisitor("block").visit(tree, x, x, x)[0, 0, 0, :3]
    array([1., 1., 1.])
    """

    def visit_device(
        self, tree: FusedAttention, q: ArrayLike, k: ArrayLike, v: ArrayLike, slopes: ArrayLike | None = None,
        cache: Cache | None = None,
    ) -> Array:  # fmt: skip
        """Returns R (batch,heads,lq,dv) in the accumulation type.

        With accumulate = "problem", P is rounded to the operands' type. slopes: of ALiBi, (batch,heads). cache: for a cached
        problem. Its sequences are executed and counted one by one, each with K and V in Q's type.
        """
        if tree.problem.cached:

            def run_sequence(one: Sequence) -> Array:
                sub = FusedAttention(one.problem, tree.descriptor)
                return np.asarray(one.scale_v * self._device(sub, one.q, one.k, one.v, one.slopes))

            p = tree.problem
            found = each_sequence(p, Extent.whole(p.lq), (p.dv,), 0.0, run_sequence, sequences(p, q, k, v, slopes, cache))
            return found.astype(self.kind(tree.problem.dtype_c))
        return self._device(tree, q, k, v, slopes)

    def _device(self, tree: FusedAttention, q: ArrayLike, k: ArrayLike, v: ArrayLike, slopes: ArrayLike | None) -> Array:
        p, plan = tree.problem, tree.plan
        kind = self.kind(p.dtype_c)
        self._q = expect_shape("Q", q, p.q_shape).astype(kind)
        self._k = expect_shape("K", k, p.k_shape).astype(kind)
        self._v = expect_shape("V", v, p.v_shape).astype(kind)
        self._slopes = given_slopes(p, slopes).astype(kind)
        self._narrow = numpy_dtype(p.dtype, tree.descriptor.arch) if self.accumulate == "problem" else kind
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        out: Array = np.zeros(p.r_shape, kind)
        if self.level is Level.DEVICE:
            self.count(global_bytes=p.bytes_once)
            return self._run_whole(tree, out)
        size = numpy_dtype(p.dtype_c).itemsize
        rows: _Rows | None = None
        for number, block in enumerate(tree.children()):
            heads, queries = len(block.views[0].outer[1]), len(block.views[0].rows)
            if number % plan.split_kv == 0:
                rows = _Rows.empty(heads, queries, p.dv, kind)
            assert rows is not None
            rows.merge(self.visit(block))
            if plan.split_kv > 1:
                self.count(global_bytes=2 * size * heads * queries * (partial_columns(p.dv) + 2))
            if number % plan.split_kv == plan.split_kv - 1:
                out[block.views[3].index] = normalise(rows.o, rows.delta)
        self.count(global_bytes=out.size * size)
        return out[tree.views[3].index]

    def visit_block(self, node: BlockAttentionNode) -> _Rows:
        """Returns the state of the block's queries over its part of the keys."""
        q, k, *_ = node.views
        p = node.plan.problem
        e, heads, queries = p.element.bytes, len(q.outer[1]), len(q.rows)
        waves = 1 if self.level is Level.BLOCK else node.plan.waves_kv
        states = [_Rows.empty(heads, queries, p.dv, self._q.dtype) for _ in range(waves)]
        self.count(global_bytes=q.elements * e if len(k.rows) else 0)
        for axes in node.steps():
            step = axes["keys"]
            staged = len(step) * (p.d + p.dv) * e
            through_lds = node.plan.policy == "published" or node.plan.shared
            self.count(global_bytes=staged, lds_write_bytes=staged if through_lds else 0)
            if self.level is Level.BLOCK:
                self._step(node, step, states[0])
                continue
            for warp in node.warps(axes):
                rows = slice(warp.views[0].rows.min_ - q.rows.min_, warp.views[0].rows.max_ - q.rows.min_)
                state = states[warp.part].part(rows)
                self.visit(warp, state)
                states[warp.part].put_rows(rows, state)
        for other in states[1:]:
            states[0].merge(other)
        if node.plan.policy == "corrected" and not node.plan.shared and len(k.rows):
            merged = merge_traffic(p.dv, heads * queries, numpy_dtype(p.dtype_c).itemsize)
            self.count(lds_write_bytes=merged, lds_read_bytes=0 if self.level is Level.BLOCK else merged)
        return states[0]

    def visit_warp(self, node: WarpAttentionNode, state: _Rows) -> None:
        """Updates the state of the wave's queries by its keys of one step."""
        q, k, *_ = node.views
        if node.plan.policy == "published":
            exchange = q.elements // node.plan.d * len(k.rows) * 4  # E^T: written, then read
            read = 2 * k.elements * node.plan.problem.element.bytes + exchange
            self.count(lds_read_bytes=read, lds_write_bytes=exchange)
        elif node.plan.shared:
            p = node.plan.problem
            self.count(lds_read_bytes=len(k.rows) * (p.d + p.dv) * p.element.bytes)
        if self.level is Level.WARP:
            self._step(node, k.rows, state)
            return
        s: Array = np.zeros((*state.m.shape, len(k.rows)), self._q.dtype)
        for atom in node.scores():
            self.visit(atom, s, q, k.rows.min_)
        weights = self._update(node.plan.problem, q, k.rows, s, state)
        for atom in node.values():
            self.visit(atom, state.o, q, k.rows.min_, weights)

    def visit_atom(self, node: AtomAttentionNode, out: Array, block: View, first_key: int, weights: Array | None = None) -> None:
        """Adds one matrix instruction's product to S or, with `weights`, to O. block: the wave's view of Q."""
        self.count(atoms=1)
        q, k, v, r = node.views
        own = q if weights is None else r
        rows = _slice_from(own.outer[1], block.outer[1].min_), _slice_from(own.rows, block.rows.min_)
        if weights is None:
            out[(*rows, _slice_from(k.rows, first_key))] += self._q[q.index][0] @ self._k[k.index][0, 0].T
        else:
            out[(*rows, r.cols.slice)] += weights[(*rows, _slice_from(v.rows, first_key))] @ self._v[v.index][0, 0]

    def _step(self, node: BlockAttentionNode | WarpAttentionNode, keys: Extent, state: _Rows) -> None:
        """Performs Algorithm 1, lines 3 to 9, for these keys."""
        q, k, *_ = node.views
        (b, g) = (extent.min_ for extent in k.outer)
        s = self._q[b, q.outer[1].slice, q.rows.slice] @ self._k[b, g, keys.slice].T
        weights = self._update(node.plan.problem, q, keys, s, state)
        state.o = state.o + weights @ self._v[b, g, keys.slice]

    def _update(self, p: AttentionProblem, q: View, keys: Extent, s: Array, state: _Rows) -> Array:
        """Scales, caps and biases S, updates m and delta and rescales O of `state`, and returns P = exp(S - m).

        Masked scores count as 0 in P.
        """
        kind, keep = s.dtype.type, p.keep(q.rows, keys)
        assert p.scale is not None
        s = s * kind(p.scale)
        if p.softcap is not None:
            s = kind(p.softcap) * np.tanh(s / kind(p.softcap))
        if p.alibi:
            s = s - self._slopes[q.outer[0].min_, q.outer[1].slice, None, None] * p.distance(q.rows, keys).astype(kind)
        s = np.where(keep, s, kind(FINITE_FLOOR))
        state.rescale(np.maximum(state.m, s.max(-1)))
        weights = exponentials(s, state.m, keep)
        state.delta = state.delta + weights.sum(-1)
        gain = kind(GAINS.get(p.dtype, 1.0))
        return (weights * gain).astype(self._narrow).astype(s.dtype) / gain

    def _run_whole(self, tree: FusedAttention, out: Array) -> Array:
        p, (batch, heads, queries, keys, *_) = tree.problem, tree.axes.values()
        for b, h in np.ndindex(len(batch), len(heads)):
            g = h // (p.heads // p.kv_heads)
            q = View("Q", queries, tree.axes["d"], (Extent(b, b + 1, 1), Extent(h, h + 1, 1)))
            state = _Rows.empty(1, len(queries), p.dv, out.dtype)
            scores = self._q[b, h, queries.slice] @ self._k[b, g, keys.slice].T
            weights = self._update(p, q, keys, scores[None], state)
            out[b, h, queries.slice] = normalise(weights @ self._v[b, g, keys.slice], state.delta)[0]
        return out[tree.views[3].index]


def _slice_from(extent: Extent, first: int) -> slice:
    return slice(extent.min_ - first, extent.max_ - first)


class UnfusedExecutor(Executor, root=UnfusedAttention):
    """Computes softmax(scale * Q K^T) V through S and P, each kernel at the visitor's level."""

    def visit_device(self, tree: UnfusedAttention, q: ArrayLike, k: ArrayLike, v: ArrayLike) -> Array:
        """Returns R (batch,heads,lq,dv) in the accumulation type."""
        p = tree.problem
        tree.plan  # noqa: B018  raises if the tiles cannot fit
        batch, rows = p.batch * p.kv_heads, p.heads // p.kv_heads * p.lq
        lead = () if batch == 1 else (batch,)
        q, k, v = (
            expect_shape(name, x, shape) for name, x, shape in (("Q", q, p.q_shape), ("K", k, p.k_shape), ("V", v, p.v_shape))
        )
        s = self._run(tree.parts[0], q.reshape(*lead, rows, p.d), k.reshape(*lead, p.lk, p.d))
        weights = self._run(tree.parts[1], s.reshape(batch * rows, p.lk))
        if self.accumulate == "problem":
            weights = weights.astype(numpy_dtype(p.dtype, tree.descriptor.arch))
        return self._run(tree.parts[2], weights.reshape(*lead, rows, p.lk), v.reshape(*lead, p.lk, p.dv)).reshape(p.r_shape)

    def _run(self, part: Root, *operands: Array) -> Array:
        visitor = ComputeVisitor(self.level, self.accumulate)
        out = visitor.visit(part, *operands)
        self.count(**{name: getattr(visitor.counters, name) for name in Counters.__dataclass_fields__})
        return out
