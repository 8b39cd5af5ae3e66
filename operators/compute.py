"""Executes a tree with numpy at a chosen level, and counts the bytes that it moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import one_of
from simgpu.operators.levels import Level
from simgpu.operators.traffic import Counters
from simgpu.operators.tree import Node, View, Visitor

Array = NDArray[Any]
# Combination of elements -> its neutral element, numpy's function for it.
COMBINE: dict[str, tuple[float, np.ufunc]] = {"sum": (0.0, np.add), "maximum": (-np.inf, np.fmax)}


class Executor(Visitor):
    """Base of an operator's executor: the level at which nodes are computed, the accumulation type, the counters.

    A subclass names the root class of the trees that it executes (`root=`). It has a `visit_` method for each level, or only
    `visit_device` if it is a `WindowExecutor`, too.
    """

    known: ClassVar[dict[type[Node], type[Executor]]] = {}

    def __init_subclass__(cls, root: type[Node]) -> None:
        Executor.known[root] = cls

    def __init__(self, level: Level, accumulate: str) -> None:
        self.level = level
        self.accumulate = accumulate
        self.counters = Counters()

    def kind(self, accumulator: str) -> np.dtype[Any]:
        """Returns the numpy type to accumulate in. accumulator: type of the target's accumulators for these operands."""
        return np.dtype(np.float64) if self.accumulate == "f64" else numpy_dtype(accumulator)

    def count(self, **more: int) -> None:
        """Adds each keyword's value to the counter of that name."""
        self.counters = replace(self.counters, **{name: getattr(self.counters, name) + value for name, value in more.items()})


class WindowExecutor:
    """Part of an executor whose nodes are alike at all levels: it computes the windows of the nodes of its level."""

    level: Level

    def compute(self, *views: View) -> None:
        """Computes the windows of a node."""
        raise NotImplementedError

    def visit_tile(self, node: Any) -> None:
        """Computes a node's windows, at the level that is executed, or visits its children."""
        if node.level is self.level or node.level is Level.ATOM:
            self.compute(*node.views)
            return
        for child in node.children():
            self.visit_tile(child)


class ComputeVisitor:
    """Executes a tree with numpy at a level: "device", "block", "warp" or "atom".

    It computes each node of that level and descends through the levels above. accumulate: "f64", or "problem" for the type of
    the target's accumulators (f32, f64 or i32). `visit(tree, *operands)` takes the arrays that the operator's executor names
    and returns its result in that type. LaunchError if a shape does not match, ResourceError if the tree is infeasible.

    After a visit, `counters` holds what a machine of that level moves: with "device" each array once, with "block" also
    re-reads and LDS writes, below it also LDS reads.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> visitor = operators.ComputeVisitor("warp")
    >>> c = visitor.visit(operators.TiledComputation(64, 64, 64, target="mi300x"), np.eye(64), np.full((64, 64), 2.0))
    >>> c[0, :3], visitor.counters.lds_read_bytes
    (array([2., 2., 2.]), 131072)
    """

    def __init__(self, level: str = "device", accumulate: str = "f64") -> None:
        self.level = Level(one_of("level", level, tuple(Level)))
        self.accumulate = one_of("accumulation", accumulate, ("f64", "problem"))
        self.counters = Counters()

    def visit(self, tree: Node, *operands: Any, **more: Any) -> Array:
        """Returns the result of the whole tree. LaunchError for a root without an executor."""
        executor = Executor.known.get(type(tree))
        if executor is None:
            known = ", ".join(root.__name__ for root in Executor.known)
            raise LaunchError(f"nothing executes a {type(tree).__name__}: visit the root of a tree, one of {known}")
        run = executor(self.level, self.accumulate)
        out: Array = run.visit(tree, *operands, **more)
        self.counters = run.counters
        return out
