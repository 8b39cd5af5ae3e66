"""An operator on rows executed with numpy, and the bytes that its tree moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import dtype
from simgpu.operators.compute import COMBINE, Array, Executor
from simgpu.operators.expressions import NUMPY, Value, evaluate
from simgpu.operators.levels import Level
from simgpu.operators.rows.program import PIVOT, Step
from simgpu.operators.rows.tree import RowBlock, RowLoad, RowTree, RowWarp
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import View

Written = Array | tuple[Array, ...]


class RowExecutor(Executor, root=RowTree):
    """Computes an operator on the rows of X. Matrices, vectors and tables are passed by name."""

    def visit_device(self, tree: RowTree, x: ArrayLike, **more: ArrayLike) -> Written:
        """Returns the results, not rounded to its type: an array, or a tuple in the order of `written`."""
        p, kind = tree.problem, self.kind("f32")
        tree.plan.check()
        given = {name: array.astype(kind) for name, array in p.own_arrays(X=x, **more).items()}
        self._p, self._program = p, tree.program
        self._of_element = dict(zip(p.elements, np.split(given.pop("X"), p.parts, 1), strict=False)) | given
        rows, columns = (len(tree.axes[axis]) for axis in ("rows", "n"))
        names = self._program.reductions
        self._reduced = {step.name: np.full((rows, p.groups), COMBINE[step.combine][0], kind) for step in names}
        if self._program.pivoted is not None:
            first = self._arguments(slice(0, rows), slice(0, tree.plan.lanes_row * tree.row_tiles.chunk))
            value = np.asarray(evaluate(self._program.pivoted, first, NUMPY), kind)
            self._reduced[PIVOT] = value.mean(1, keepdims=True, dtype=kind)
        self._results = {step.name: np.zeros((rows, columns), kind) for step in self._program.results}
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        passes = [*self._program.passes, *([self._program.results] if self._program.results else [])]
        if self.level is Level.DEVICE:
            self.count(global_bytes=p.bytes_once)
            for steps in passes:
                self._run(tree.views[0], steps)
        else:
            self.counters = block_counters(tree)
            for kernel in [[one] for one in passes] if tree.plan.split else [passes]:  # blocks that share a row: one a pass
                for block in tree.children():
                    self.visit(block, kernel)
        rows_ = {step.name: self._value(step, slice(0, rows), slice(0, p.groups)) for step in self._program.row_results}
        whole = [np.concatenate(list(self._results.values()), 1)] if p.parts_y > 1 else list(self._results.values())
        found = (*whole, *rows_.values())
        return found[0] if len(found) == 1 else found

    def visit_block(self, node: RowBlock, passes: list[tuple[Step, ...]]) -> None:
        """Runs the passes one after the other, each over all of the block's rows."""
        for steps in passes:
            if self.level is Level.BLOCK:
                self._run(node.views[0], steps)
            else:
                for warp in node.children():
                    self.visit(warp, steps)

    def visit_warp(self, node: RowWarp, steps: tuple[Step, ...]) -> None:
        """Runs a pass over a wave's part of its rows."""
        if self.level is Level.WARP:
            self._run(node.views[0], steps)
            return
        for load in node.children():
            self.visit(load, steps)

    def visit_atom(self, node: RowLoad, steps: tuple[Step, ...]) -> None:
        """Runs a pass over what a load brings."""
        self._run(node.views[0], steps)

    def _run(self, view: View, steps: tuple[Step, ...]) -> None:
        """Reduces a window's elements, or computes its results."""
        rows = view.rows.slice
        for group, columns in self._groups(view):
            given = self._arguments(rows, columns)
            given |= {name: array[rows, group : group + 1] for name, array in self._reduced.items()}
            shape = len(view.rows), columns.stop - columns.start
            for step in steps:
                found = np.broadcast_to(np.asarray(evaluate(step.value, given, NUMPY), self._kind), shape)
                if step.combine:
                    combine = COMBINE[step.combine][1]
                    state = self._reduced[step.name]
                    state[rows, group] = combine(state[rows, group], combine.reduce(found, axis=1))
                else:
                    self._results[step.name][rows, columns] = found

    @property
    def _kind(self) -> Any:
        return self.kind("f32")

    def _groups(self, view: View) -> Iterator[tuple[int, slice]]:
        """Yields the groups of a window, each with its columns in the window."""
        first, end, span = view.cols.min_, view.cols.max_, self._p.span
        if self._p.groups == 1:
            yield 0, slice(first, end)
            return
        for group in range(first // span, -(-end // span)):
            yield group, slice(max(first, group * span), min(end, (group + 1) * span))

    def _arguments(self, rows: slice, columns: slice) -> dict[str, Array]:
        program, found = self._program, {}
        for name in program.matrices:
            found[name] = self._of_element[name][rows, columns]
        for name in program.vectors:
            found[name] = self._of_element[name][columns]
        numbers = np.arange(rows.start, rows.stop) // self._p.repeat
        for name in program.tables:
            found[name] = self._of_element[name][numbers, columns]
        return found

    def _value(self, step: Step, rows: slice, groups: slice) -> Array:
        given = {name: array[rows, groups] for name, array in self._reduced.items()}
        value: Value = step.value
        shape = rows.stop - rows.start, groups.stop - groups.start
        return np.broadcast_to(np.asarray(evaluate(value, given, NUMPY), self._kind), shape)


@block_counters.register(RowTree)
def _rows(tree: RowTree) -> Counters:
    """Returns the counters. Vector loads count as atoms. The merge of waves in LDS is left out."""
    p, plan, program = tree.problem, tree.derivation, tree.program
    of_element = len(program.matrices) * plan.reads + len(program.tables)
    blocks = tree.trips("rows") * plan.tile_rows // plan.rows_load
    vectors = len(program.vectors) * p.columns * blocks
    moved = (p.rows * p.columns * of_element + vectors) * p.element.bytes
    written = sum(int(np.prod(shape, dtype=np.int64)) * dtype(p.type_of(name)).bytes for name, shape in p.written.items())
    loads = -(-p.columns // (plan.lanes_row * plan.chunk))
    states = 2 * 4 * len(program.reductions) * p.rows * plan.parts if plan.split else 0  # in f32, written and read
    return Counters(p.flops, p.bytes_once, moved + written + states, atoms=p.rows * loads)
