"""Attention's backward executed with numpy, kernel by kernel, and the bytes that its trees move."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.attention_backward.reference import OPERANDS, RESULTS
from simgpu.operators.attention_backward.tiles import GradientPlan
from simgpu.operators.attention_backward.tree import AttentionBackward, GradientBlock, GradientTree, partners
from simgpu.operators.compute import Array, ComputeVisitor, Executor, WindowExecutor
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import Extent, View


class GradientExecutor(WindowExecutor, Executor, root=GradientTree):
    """Computes dK and dV, or dQ, from Q, K, V, dO, L and D, window by window."""

    def visit_device(self, tree: GradientTree, *operands: ArrayLike) -> dict[str, Array]:
        """Returns the gradients' windows in the accumulation type, by name. With accumulate = "problem", P and dS are rounded."""
        p, kind = tree.problem, self.kind("f32")
        self._plan: GradientPlan = tree.plan
        shapes = p.shapes | {"D": p.lse_shape}
        names = ("Q", "K", "V", "dO", "L", "D")
        self._given = {name: expect_shape(name, x, shapes[name]).astype(kind) for name, x in zip(names, operands, strict=True)}
        self._narrow = numpy_dtype(p.dtype, tree.descriptor.arch) if self.accumulate == "problem" else kind
        self._found = {name: np.zeros(p.shapes[name], kind) for name in tree.plan.results}
        self.counters = block_counters(tree)
        self.visit_tile(tree)
        return {view.operand: self._found[view.operand][view.index] for view in tree.views if view.operand in self._found}

    def compute(self, *views: View) -> None:
        """Adds what a window of queries and keys contributes."""
        q, _, k, *_ = views
        p = self._plan.problem
        for b in range(q.outer[0].min_, q.outer[0].max_):
            for h in range(q.outer[1].min_, q.outer[1].max_):
                self._head(p, (b, h), (b, h // p.group), q.rows, k.rows)

    def _head(
        self, p: AttentionBackwardProblem, head: tuple[int, int], shared: tuple[int, int], rows: Extent, keys: Extent
    ) -> None:
        kind, given, gain = self.kind("f32").type, self._given, self.kind("f32").type(self._plan.gain)
        q, do, k, v = (given[name][at][own.slice] for name, at, own in (
            ("Q", head, rows), ("dO", head, rows), ("K", shared, keys), ("V", shared, keys)))  # fmt: skip
        logarithm, sums = (given[name][head][rows.slice, None] for name in ("L", "D"))
        assert p.scale is not None
        keep = p.keep(rows, keys)
        exponents = np.where(keep, kind(p.scale) * (q @ k.T) - np.where(np.isfinite(logarithm), logarithm, kind(0)), -np.inf)
        weights = np.exp(exponents) * gain
        ds = self._round(weights * ((do @ v.T - sums) / gain))
        if "dQ" in self._found:
            self._found["dQ"][head][rows.slice] += kind(p.scale) * (ds @ k)
        else:
            self._found["dK"][shared][keys.slice] += kind(p.scale) * (ds.T @ q)
            self._found["dV"][shared][keys.slice] += self._round(weights).T @ do / gain

    def _round(self, x: Array) -> Array:
        return x.astype(self._narrow).astype(x.dtype)


class BackwardExecutor(Executor, root=AttentionBackward):
    """Computes dQ, dK and dV from Q, K, V, O, dO and L, each kernel at the visitor's level.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem, ComputeVisitor
    >>> tree, x = AttentionBackward(AttentionBackwardProblem(1, 1, 8, dtype="f16"), "mi300x"), np.ones((1, 1, 1, 8))
    >>> float(ComputeVisitor("warp").visit(tree, x, x, x, x, x, [[[8**0.5]]])["dV"][0, 0, 0, 0].round(6))
    1.0
    """

    def visit_device(self, tree: AttentionBackward, *operands: ArrayLike) -> dict[str, Array]:
        """Returns the gradients in the accumulation type, by name."""
        p = tree.problem
        tree.plan.check()
        given = {name: expect_shape(name, x, p.shapes[name]) for name, x in zip(OPERANDS, operands, strict=True)}
        rows = p.row_sums
        o, do = (given[name].reshape(rows.rows, rows.n) for name in ("O", "dO"))
        sums = self._run(tree.parts[0], o, other=do).reshape(p.lse_shape)
        found: dict[str, Any] = {}
        for part in tree.parts[1:]:
            found |= self._run(part, *(given[name] for name in ("Q", "K", "V", "dO", "L")), sums)
        return {name: found[name] for name in RESULTS}

    def _run(self, part: Any, *operands: Array, **more: Array) -> Any:
        visitor = ComputeVisitor(self.level, self.accumulate)
        out = visitor.visit(part, *operands, **more)
        self.count(**{name: getattr(visitor.counters, name) for name in Counters.__dataclass_fields__})
        return out


@block_counters.register(GradientTree)
def _gradient_counters(tree: GradientTree) -> Counters:
    """Returns the counters of a kernel of gradients: its blocks' own rows once, the other side's once for each block that sees
    them."""
    p, plan = tree.problem, tree.derivation
    moved_bytes = sum(tile.width for tile in plan.moved) * p.element.bytes
    statistics = 2 * 4
    own_bytes = sum(p.shapes[name][-1] for name in plan.own) * p.element.bytes + (0 if plan.side == "keys" else statistics)
    own = other = pairs = written = atoms = 0
    atom = plan.descriptor.atom(p.dtype)
    for block in tree.children():
        assert isinstance(block, GradientBlock)
        rows, seen = len(block.axes[plan.side]), len(partners(plan, block.axes)) * len(block.axes["group"])
        own, other, pairs = own + rows, other + seen, pairs + rows * seen
        steps = -(-len(partners(plan, block.axes)) // ATOM) * len(block.axes["group"]) * -(-rows // ATOM)
        deep = ATOM / atom.k
        sums = sum(-(-p.shapes[name][-1] // ATOM) for name in plan.results)
        atoms += int(steps * (-(-p.d // atom.k) + -(-p.dv // atom.k) + sums * deep))
    results = sum(view.elements for view in tree.views if view.operand in plan.results) * 4
    moved = own * own_bytes + other * (moved_bytes + (statistics if plan.side == "keys" else 0)) + results
    written = other * sum(tile.width * (1 + tile.columns) for tile in plan.moved) * p.element.bytes
    read = written * min(4, -(-plan.tile // (ATOM * plan.atoms)))
    products = 2 * (p.d + p.dv) + (2 * p.d if plan.side == "queries" else 2 * (p.d + p.dv))
    once = sum(prod(p.shapes[name]) * p.bytes_of(name) for name in ("Q", "K", "V", "dO", *plan.results)) + 2 * 4 * prod(p.lse_shape)
    return Counters(products * p.pairs, once, moved, written, read, atoms)


@block_counters.register(AttentionBackward)
def _backward_counters(tree: AttentionBackward) -> Counters:
    parts = [block_counters(part) for part in tree.parts]
    return Counters(*(sum(getattr(part, name) for part in parts) for name in Counters.__dataclass_fields__))
