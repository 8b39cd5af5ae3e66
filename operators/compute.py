"""ComputeVisitor: executes a tree with numpy at a chosen level, and counts what it moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.epilogue import epilogue, op, stored_operands
from simgpu.operators.gemm.problem import one_of
from simgpu.operators.gemm.traffic import Counters
from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, GemmViews, TiledComputation, WarpGemmNode
from simgpu.operators.tree import Level, Node, Visitor

Array = NDArray[Any]


class Executor(Visitor):
    """Base of what executes one operator's tree: the level to fire at, the type to accumulate in, the counters.

    A subclass says what each level does; `accumulator` is the type of the target's accumulators for the operands' type.
    """

    def __init__(self, level: Level, accumulate: str) -> None:
        self.level = level
        self.accumulate = accumulate
        self.counters = Counters()

    def kind(self, accumulator: str) -> np.dtype[Any]:
        """The numpy type to accumulate in."""
        return np.dtype(np.float64) if self.accumulate == "f64" else numpy_dtype(accumulator)

    def count(self, **more: int) -> None:
        """Adds to the counters."""
        self.counters = replace(self.counters, **{name: getattr(self.counters, name) + value for name, value in more.items()})


EXECUTORS: dict[type[Node], type[Executor]] = {}
_E = TypeVar("_E", bound=type[Executor])


def computes(root: type[Node]) -> Callable[[_E], _E]:
    """Decorator: registers the executor of trees with such a root."""

    def register(executor: _E) -> _E:
        EXECUTORS[root] = executor
        return executor

    return register


class ComputeVisitor:
    """Fires the operator's numpy form at each node of `level` ("device", "block", "warp" or "atom") and descends through those
    above.

    accumulate: "f64", or "problem" for the type of the target's accumulators (f32, f64 or i32). `visit(tree, *operands)` takes the
    arrays that the operator's executor names and returns its result in that type; LaunchError if a shape does not match,
    ResourceError if the tree is infeasible. After a visit, `counters` holds what a machine of that level moves: with "device" each
    array once, with "block" re-reads and LDS writes, below it LDS reads too.
    """

    def __init__(self, level: str = "device", accumulate: str = "f64") -> None:
        self.level = Level(one_of("level", level, tuple(Level)))
        self.accumulate = one_of("accumulation", accumulate, ("f64", "problem"))
        self.counters = Counters()

    def visit(self, tree: Node, *operands: Any, **more: Any) -> Array:
        """The result of the whole tree; LaunchError for a root that nothing executes."""
        executor = EXECUTORS.get(type(tree))
        if executor is None:
            known = ", ".join(root.__name__ for root in EXECUTORS)
            raise LaunchError(f"nothing executes a {type(tree).__name__}: visit the root of a tree, one of {known}")
        run = executor(self.level, self.accumulate)
        out: Array = run.visit(tree, *operands, **more)
        self.counters = run.counters
        return out


@computes(TiledComputation)
class GemmExecutor(Executor):
    """activation(alpha*op(A)op(B) + beta*C + bias); A, B, C in their stored shapes, C read only if beta is not 0."""

    def visit_device(
        self, tree: TiledComputation, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, bias: ArrayLike | None = None
    ) -> Array:
        """An (m,n) or (batch,m,n) array of the accumulation type."""
        problem, plan = tree.problem, tree.plan
        kind = self.kind(problem.dtype_c)
        stored_a, stored_b, stored_c, stored_bias = stored_operands(problem, a, b, c, bias)
        self._a, self._b = op(stored_a, problem.trans_a).astype(kind), op(stored_b, problem.trans_b).astype(kind)
        self._element = problem.element.bytes
        self.count(flops=problem.flops, hbm_bytes=problem.bytes_once)
        out: Array = np.zeros(tree.views[2].shape, kind)
        if self.level is Level.DEVICE:
            self._multiply(tree.views, out)
            self.count(global_bytes=problem.bytes_once)
        else:
            for block in tree.children():
                self.visit(block, out[block.views[2].index])
                if plan.split_k > 1:
                    self.count(global_bytes=2 * block.views[2].elements * numpy_dtype(problem.dtype_c).itemsize)
            self.count(global_bytes=problem.epilogue_bytes)
        return epilogue(problem, out, stored_c, stored_bias)

    def visit_block(self, node: BlockGemmNode, out: Array) -> None:
        """Adds the block's product, over its part of K, to `out`, the block's window of C."""
        for views in node.steps():
            staged = self._bytes(views)
            self.count(global_bytes=staged, lds_write_bytes=staged)
            if self.level is Level.BLOCK:
                self._multiply(views, out)
        if self.level is not Level.BLOCK:
            for warp in node.children():
                self.visit(warp, out[warp.views[2].within(node.views[2])])

    def visit_warp(self, node: WarpGemmNode, out: Array) -> None:
        """Adds one wave's product of one K slice to `out`, the wave's window of C."""
        self.count(lds_read_bytes=self._bytes(node.views))
        if self.level is Level.WARP:
            self._multiply(node.views, out)
            return
        for atom in node.children():
            self.visit(atom, out[atom.views[2].within(node.views[2])])

    def visit_atom(self, node: AtomHint, out: Array) -> None:
        """Adds one matrix instruction's product to `out`."""
        self.count(atoms=1)
        self._multiply(node.views, out)

    def _multiply(self, views: GemmViews, out: Array) -> None:
        np.add(out, self._a[views[0].index] @ self._b[views[1].index], out=out)

    def _bytes(self, views: GemmViews) -> int:
        return (views[0].elements + views[1].elements) * self._element
