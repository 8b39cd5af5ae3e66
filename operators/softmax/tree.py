"""The softmax's tree and its numpy execution: Softmax, BlockSoftmaxNode, WarpSoftmaxNode, LaneSoftmaxNode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.compute import Array, Executor, computes
from simgpu.operators.epilogue import expect_shape
from simgpu.operators.resources import Constraint
from simgpu.operators.softmax.plan import SoftmaxPlan, SoftmaxProblem, SoftmaxState, exponentials, normalise, plan_softmax
from simgpu.operators.tree import FLOOR, Extent, Level, Node, Root, View

Views = tuple[View, View]  # X, Y


@dataclass(frozen=True)
class _SoftmaxNode(Node):
    plan: SoftmaxPlan
    views: Views

    def constraints(self) -> tuple[Constraint, ...]:
        """The plan's rows of this level."""
        return self.plan.at(self.level)


@dataclass(frozen=True)
class LaneSoftmaxNode(_SoftmaxNode):
    """Leaf: one wave instruction on 64 elements of a row, each lane with a state of its own."""

    level: ClassVar[Level] = Level.ATOM

    def children(self) -> Iterator[Node]:
        """None: the level below is the hardware."""
        return iter(())

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The instruction and how often a wave issues it."""
        lanes = self.plan.descriptor.wavefront_size
        return (
            (
                "LaneSoftmaxNode  [leaf -- hardware instruction]",
                f"v_max_f32, v_exp_f32, v_add_f32 on {lanes} lanes",
                f"calls per warp step: {self.plan.tile_n // lanes}",
            ),
        )


@dataclass(frozen=True)
class WarpSoftmaxNode(_SoftmaxNode):
    """One wave's step of its row: states of lanes merge with ⊕ when the row ends."""

    level: ClassVar[Level] = Level.WARP

    def children(self) -> Iterator[LaneSoftmaxNode]:
        """64 elements at a time."""
        x, _ = self.views
        for cols in x.cols.split(self.plan.descriptor.wavefront_size):
            yield LaneSoftmaxNode(self.plan, _views(x.rows, cols))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The step of a wave."""
        return (("WarpSoftmaxNode  [warp]", "  ".join(map(str, self.views)), f"steps per row: {self.plan.steps_per_block}"),)


@dataclass(frozen=True)
class BlockSoftmaxNode(_SoftmaxNode):
    """One workgroup's rows, or its part of them where N is split."""

    level: ClassVar[Level] = Level.BLOCK

    def children(self) -> Iterator[WarpSoftmaxNode]:
        """By row, by step."""
        x, _ = self.views
        for row, cols in product(x.rows.split(1), x.cols.split(self.plan.tile_n)):
            yield WarpSoftmaxNode(self.plan, _views(row, cols))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The block's rows."""
        plan = self.plan
        how = "in registers, read once" if plan.reads == 1 else "streamed, read twice"
        return (
            (
                "BlockSoftmaxNode  [block / CU]",
                "  ".join(map(str, self.views)),
                f"rows {how}",
                f"LDS = {plan.resources.lds_bytes} B  (states of waves that share a row: {plan.waves_row})",
            ),
        )


class Softmax(Root):
    """The root: Y = softmax of the rows of scale * X on a target under a policy."""

    def __init__(self, problem: SoftmaxProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        self.problem = problem
        self.descriptor = target if isinstance(target, HardwareDescriptor) else find_target(target)
        self.derivation: SoftmaxPlan = plan_softmax(problem, self.descriptor, policy)
        self.views: Views = _views(Extent.whole(problem.rows), Extent.whole(problem.n))

    def on(self, descriptor: HardwareDescriptor) -> Softmax:
        """The same problem and policy, derived again for another descriptor."""
        return Softmax(self.problem, descriptor, self.derivation.policy)

    def children(self) -> Iterator[BlockSoftmaxNode]:
        """One node a workgroup: by rows, by part of N."""
        plan, (x, _) = self.derivation, self.views
        for rows, cols in product(x.rows.split(plan.tile_rows), x.cols.split(plan.steps_per_block * plan.tile_n)):
            yield BlockSoftmaxNode(plan, _views(rows, cols))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        scaled = "X" if p.scale == 1 else f"{p.scale:g} * X"
        gain = "" if p.gain == 1 else f"{p.gain:g} * "
        head = (
            f"Softmax  Y = {gain}softmax({scaled})",
            "  ".join(map(str, self.views)),
            f"CU grid: {plan.blocks // plan.split_n} x split {plan.split_n} ({plan.blocks} tiles) [parallel]",
            f"tiling: {plan.policy} for {plan.descriptor.name or plan.descriptor.arch}, bound by {plan.binding.name}, "
            f"eta = {100 * plan.eta:.1f} %",
            f"boundary: views are clipped; X reads {FLOOR.text}; a row without elements gives 0",
        )
        loops = (
            f"for I in {plan.blocks // plan.split_n} [parallel] / for J in {plan.steps_per_block} [sequential]",
            "  (m, delta)[I] = (m, delta)[I] ⊕ state(X[I,J]); then Y = exp(X - m) / delta",
        )
        return head, loops


def _views(rows: Extent, cols: Extent) -> Views:
    return View("X", rows, cols), View("Y", rows, cols)


@computes(Softmax)
class SoftmaxExecutor(Executor):
    """The softmax of X (rows,n); mask: (rows,n) of bool, True where an element counts."""

    def visit_device(self, tree: Softmax, x: ArrayLike, mask: ArrayLike | None = None) -> Array:
        """Y (rows,n) in the accumulation type."""
        p, plan = tree.problem, tree.plan
        kind = self.kind(p.element.accumulator)
        shape = (p.rows, p.n)
        self._x = (expect_shape("X", x, shape).astype(kind) * kind.type(p.scale)).astype(kind)
        self._keep = p.keep(mask)
        self._state = SoftmaxState.empty((p.rows,), kind)
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        if self.level is Level.DEVICE:
            self.count(global_bytes=p.bytes_once)
            self._add(tree.views[0])
        else:
            for block in tree.children():
                self.visit(block)
                self.count(global_bytes=16 * len(block.views[0].rows) if plan.split_n > 1 else 0)
            x_bytes = p.rows * p.n * p.element.bytes
            self.count(global_bytes=x_bytes * plan.reads)  # the first read is the blocks'
        return kind.type(p.gain) * normalise(exponentials(self._x, self._state.m, self._keep), self._state.delta)

    def visit_block(self, node: BlockSoftmaxNode) -> None:
        """Merges the block's part into its rows' states."""
        self.count(global_bytes=node.views[0].elements * node.plan.problem.element.bytes)
        if self.level is not Level.BLOCK:
            for warp in node.children():
                self.visit(warp)
            return
        for cols in node.views[0].cols.split(node.plan.tile_n):
            self._add(View("X", node.views[0].rows, cols))

    def visit_warp(self, node: WarpSoftmaxNode) -> None:
        """Merges one step of a row; at the atom's level lane by lane, then the lanes in a binary tree."""
        if self.level is Level.WARP:
            self._add(node.views[0])
            return
        row, lanes = node.views[0].rows.slice, node.plan.descriptor.wavefront_size
        self._lanes = SoftmaxState.empty((lanes,), self._x.dtype)
        for leaf in node.children():
            self.visit(leaf)
        state = self._lanes
        while len(state.m) > 1:
            half = len(state.m) // 2
            state = SoftmaxState(state.m[:half], state.delta[:half]).merge(SoftmaxState(state.m[half:], state.delta[half:]))
        self._merge(row, state)

    def visit_atom(self, node: LaneSoftmaxNode) -> None:
        """Merges 64 elements into 64 lanes' states; lanes past the row read the finite floor."""
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
