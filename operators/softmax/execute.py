"""A softmax executed with numpy."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.arguments import expect_shape
from simgpu.operators.compute import Array, Executor
from simgpu.operators.levels import Level
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.operators.softmax.state import SoftmaxState, exponentials, with_infinities
from simgpu.operators.softmax.tree import BlockSoftmaxNode, LaneSoftmaxNode, Softmax, WarpSoftmaxNode
from simgpu.operators.tree import FLOOR, View


class SoftmaxExecutor(Executor, root=Softmax):
    """Computes the softmax of X (rows,n). mask: (rows,n) of bool, True if an element counts."""

    @with_infinities
    def visit_device(self, tree: Softmax, x: ArrayLike, mask: ArrayLike | None = None) -> Array:
        """Returns Y (rows,n) in the accumulation type."""
        p, plan = tree.problem, tree.plan
        kind = self.kind(p.element.accumulator)
        shape = (p.rows, p.n)
        self._x = (expect_shape("X", x, shape).astype(kind) * kind.type(p.scale)).astype(kind)
        self._keep = p.keep(mask)
        self._x, self._keep = (array[tree.views[0].index] for array in (self._x, self._keep))
        self._state = SoftmaxState.empty((len(self._x),), kind)
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        if self.level is Level.DEVICE:
            self.count(global_bytes=p.bytes_once)
            self._add(tree.views[0])
        else:
            for block in tree.children():
                self.visit(block)
                if plan.split_n > 1:  # the state of each row's part is written and read
                    self.count(global_bytes=2 * p.state_bytes * len(block.views[0].rows))
            again = (plan.reads - 1) * p.element.bytes  # the blocks have counted the first read of X
            self.count(global_bytes=p.rows * p.n * (again + p.element_y.bytes))
        return self._results(p)

    def _results(self, p: SoftmaxProblem) -> Array:
        """Returns Y. The sum of a row without elements counts as 1."""
        m, delta = self._state.m, np.where(self._keep.any(-1), self._state.delta, 1)
        if p.log:
            return np.asarray(np.where(self._keep, self._x - m[:, None], -np.inf) - np.log(delta)[:, None]).astype(self._x.dtype)
        gain = self._x.dtype.type(p.gain)
        return np.asarray(gain * (exponentials(self._x, m, self._keep) / delta[:, None])).astype(self._x.dtype)

    def visit_block(self, node: BlockSoftmaxNode) -> None:
        """Merges the block's part into its rows' states."""
        self.count(global_bytes=node.views[0].elements * node.plan.problem.element.bytes)
        if self.level is not Level.BLOCK:
            for warp in node.children():
                self.visit(warp)
            return
        for axes in node.windows(node.loops[1:]):
            self._add(View("X", axes["rows"], axes["n"]))

    def visit_warp(self, node: WarpSoftmaxNode) -> None:
        """Merges one step of each row. At the atom level: lane by lane, then the lanes in a binary tree."""
        if self.level is Level.WARP:
            self._add(node.views[0])
            return
        for row, leaves in groupby(node.children(), key=lambda leaf: leaf.views[0].rows):
            self._lanes = SoftmaxState.empty((node.loop("n").tile,), self._x.dtype)
            for leaf in leaves:
                self.visit(leaf)
            state = self._lanes
            while len(state.m) > 1:
                half = len(state.m) // 2
                state = SoftmaxState(state.m[:half], state.delta[:half]).merge(SoftmaxState(state.m[half:], state.delta[half:]))
            self._merge(row.slice, state)

    def visit_atom(self, node: LaneSoftmaxNode) -> None:
        """Merges 64 elements into the lanes' states, one each. Lanes past the row's end read the finite floor."""
        self.count(atoms=1)
        x, lanes = node.views[0], len(self._lanes.m)
        window = ((x.rows.min_, x.rows.max_), (x.cols.min_, x.cols.min_ + lanes))
        values = FLOOR.read(self._x, *window)[0]
        keep = np.zeros(lanes, bool)
        keep[: len(x.cols)] = self._keep[x.index][0]
        self._lanes = self._lanes.merge(SoftmaxState.of(values[:, None], keep[:, None]))

    def _add(self, view: View) -> None:
        self._merge(view.rows.slice, SoftmaxState.of(self._x[view.index], self._keep[view.index]))

    def _merge(self, rows: slice, state: SoftmaxState) -> None:
        merged = SoftmaxState(self._state.m[rows], self._state.delta[rows]).merge(state)
        self._state.m[rows], self._state.delta[rows] = merged.m, merged.delta
