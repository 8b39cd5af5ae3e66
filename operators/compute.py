"""ComputeVisitor: executes a tree with numpy at a chosen level, and counts what it moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.dtypes import numpy_dtype
from hardware.errors import LaunchError
from operators.gemm import AtomHint, BlockGemmNode, GemmViews, TiledComputation, WarpGemmNode
from operators.problem import GemmProblem
from operators.traffic import Counters
from operators.tree import Level, View, Visitor


class ComputeVisitor(Visitor):
    """Fires a numpy product at each node of `level` ("device", "block", "warp" or "atom") and descends through the levels above it.

    accumulate: "f64", or "problem" for the type of the target's accumulators (f32, f64 or i32). After a visit, `counters` holds what
    a machine of that level moves: with "device" each array once, with "block" re-reads and LDS writes, below it LDS reads too.
    """

    def __init__(self, level: str = "device", accumulate: str = "f64") -> None:
        if level not in list(Level):
            raise LaunchError(f"unknown level {level!r}: use one of {', '.join(Level)}")
        if accumulate not in ("f64", "problem"):
            raise LaunchError(f"unknown accumulation {accumulate!r}: use f64 or problem")
        self.level = Level(level)
        self.accumulate = accumulate
        self.counters = Counters()

    def visit_device(self, tree: TiledComputation, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None) -> NDArray[np.generic]:
        """alpha*op(A)op(B) + beta*C as an (m,n) array of the accumulation type; A, B, C in their stored shapes.

        C is read only if beta is not 0. LaunchError if a shape does not match, ResourceError if the tree is infeasible.
        """
        problem = tree.plan.problem
        kind = np.dtype(np.float64) if self.accumulate == "f64" else numpy_dtype(problem.dtype_c)
        stored = stored_operands(problem, a, b, c)
        self._a = (stored[0].T if problem.trans_a else stored[0]).astype(kind)
        self._b = (stored[1].T if problem.trans_b else stored[1]).astype(kind)
        self._element = problem.element.bytes
        self.counters = Counters(flops=problem.flops, hbm_bytes=problem.bytes_once)
        out = np.zeros((problem.m, problem.n), kind)
        if self.level is Level.DEVICE:
            self._multiply(tree.views, out)
            self._count(global_bytes=problem.bytes_once)
        else:
            for block in tree.children():
                self.visit(block, out[block.views[2].index])
            ab = (problem.m + problem.n) * problem.k * self._element
            self._count(global_bytes=problem.bytes_once - ab)
        return _scale(problem, out, stored[2])

    def visit_block(self, node: BlockGemmNode, out: NDArray[np.generic]) -> None:
        """Adds the block's product, over all of K, to `out`, the block's window of C."""
        for views in node.steps():
            staged = self._bytes(views)
            self._count(global_bytes=staged, lds_write_bytes=staged)
            if self.level is Level.BLOCK:
                self._multiply(views, out)
        if self.level is not Level.BLOCK:
            for warp in node.children():
                self.visit(warp, out[_within(warp.views[2], node.views[2])])

    def visit_warp(self, node: WarpGemmNode, out: NDArray[np.generic]) -> None:
        """Adds one wave's product of one K slice to `out`, the wave's window of C."""
        self._count(lds_read_bytes=self._bytes(node.views))
        if self.level is Level.WARP:
            self._multiply(node.views, out)
            return
        for atom in node.children():
            self.visit(atom, out[_within(atom.views[2], node.views[2])])

    def visit_atom(self, node: AtomHint, out: NDArray[np.generic]) -> None:
        """Adds one matrix instruction's product to `out`."""
        self._count(atoms=1)
        self._multiply(node.views, out)

    def _multiply(self, views: GemmViews, out: NDArray[np.generic]) -> None:
        np.add(out, self._a[views[0].index] @ self._b[views[1].index], out=out)

    def _bytes(self, views: GemmViews) -> int:
        return (views[0].elements + views[1].elements) * self._element

    def _count(self, **more: int) -> None:
        self.counters = replace(self.counters, **{name: getattr(self.counters, name) + value for name, value in more.items()})


def stored_operands(
    problem: GemmProblem, a: ArrayLike, b: ArrayLike, c: ArrayLike | None
) -> tuple[NDArray[np.generic], NDArray[np.generic], NDArray[np.generic] | None]:
    """A, B and C (None if beta is 0) as arrays of their stored shapes; LaunchError names the one that is not."""
    arrays: list[NDArray[np.generic] | None] = []
    for name, given, shape in zip("ABC", (a, b, c), problem.stored_shapes, strict=True):
        if name == "C" and problem.beta == 0:
            arrays.append(None)
            continue
        if given is None:
            raise LaunchError(f"beta = {problem.beta:g} reads C, but no C was given: pass C of shape {shape}")
        array = np.asarray(given)
        if array.shape != shape:
            raise LaunchError(f"{name} has shape {array.shape}: the problem stores it as {shape}")
        arrays.append(array)
    stored_a, stored_b, stored_c = arrays
    assert stored_a is not None and stored_b is not None
    return stored_a, stored_b, stored_c


def _scale(problem: GemmProblem, product: NDArray[np.generic], c: NDArray[np.generic] | None) -> NDArray[np.generic]:
    if problem.alpha != 1:
        product = np.multiply(product, problem.alpha).astype(product.dtype)
    if c is None:
        return product
    total: NDArray[np.generic] = np.add(product, np.multiply(c.astype(product.dtype), problem.beta)).astype(product.dtype)
    return total


def _within(inner: View, outer: View) -> tuple[slice, slice]:
    row, col = outer.rows.min_, outer.cols.min_
    return slice(inner.rows.min_ - row, inner.rows.max_ - row), slice(inner.cols.min_ - col, inner.cols.max_ - col)
