"""A GEMM with leaves executed with numpy: the GEMM's executor, which meets leaves among a block's nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators.compute import Array
from simgpu.operators.expressions import NUMPY, Value, evaluate
from simgpu.operators.fused.tree import FusedBlock, FusedTree, ResultLeaf, TileLeaf
from simgpu.operators.gemm.epilogue import GemmArrays
from simgpu.operators.gemm.execute import GemmExecutor
from simgpu.operators.gemm.leaves import ELEMENT, PRODUCT
from simgpu.operators.levels import Level
from simgpu.operators.tree import Extent, View


class FusedExecutor(GemmExecutor, root=FusedTree):
    """Computes the tree of a FusedGemm. Operands are A, B and, by name, matrices, vectors, columns, bias and residual."""

    def visit_device(self, tree: FusedTree, a: ArrayLike, b: ArrayLike, **more: ArrayLike) -> Array:  # type: ignore[override]
        """Returns C, (m,columns), in f64 or f32, not rounded to C's type."""
        problem, gemm, kind = tree.problem, tree.problem.gemm, self.kind("f32")
        given = GemmArrays.of(gemm, a, b, None, more.get("bias"), more.get("residual"))
        wide = given.map(lambda array: array.astype(kind))
        self._named = {name: array.astype(kind) for name, array in problem.own_arrays(**more).items()}
        self._loaded, self._b = wide.factors(gemm)
        self._a, self._narrow = np.zeros_like(self._loaded), numpy_dtype(problem.dtype)
        self._elements, self._leaves, self._vector_bytes = (gemm.element, gemm.element_b), problem.leaves, gemm.vector_bytes
        return self._epilogue(tree, gemm, self._products(tree, gemm), given)

    def _whole(self, views: tuple[View, ...], out: Array) -> None:
        """Computes leaves and products at once."""
        rows = views[2].rows
        self._sums = self._no_sums(rows)
        self._of_tile(views[0], rows)
        self._multiply(views, out)
        self._of_result(views[2], out)

    def visit_block(self, node: Any, out: Array) -> None:
        """Visits a block's nodes in order: leaves, and warps unless blocks are computed whole."""
        if not isinstance(node, FusedBlock):
            raise TypeError(f"a {type(node).__name__} is no block")
        rows = node.views[2].rows
        self._sums = self._no_sums(rows)
        steps = node.steps()
        for child in node.children():
            if isinstance(child, TileLeaf):
                views = next(steps)
                staged = self._bytes(views)
                leaves = self._elements[0].packed_bytes(len(self._leaves.matrices) * views[0].elements)
                self.count(global_bytes=staged + leaves + len(views[0].cols) * self._vector_bytes, lds_write_bytes=staged)
                self._of_tile(child.views[0], rows)
                if self.level is Level.BLOCK:
                    self._multiply(views, out)
            elif isinstance(child, ResultLeaf):
                self._of_result(child.views[0], out)
            elif self.level is not Level.BLOCK:
                self.visit(child, out[child.views[2].within(node.views[2])])

    def _no_sums(self, rows: Extent) -> dict[str, Array]:
        return {name: np.zeros((len(rows), 1), self._a.dtype) for name, _ in self._leaves.sums}

    def _of_tile(self, view: View, rows: Extent) -> None:
        """Adds a tile of A to its rows' sums, and replaces its elements by the factors, rounded to A's type in f32."""
        kind, tile = self._a.dtype, self._loaded[view.index]
        given = {ELEMENT: tile, **{name: self._named[name][view.index] for name in self._leaves.matrices}}
        given |= {name: self._named[name][view.cols.slice] for name in self._leaves.vectors}
        for name, summand in self._leaves.sums:
            self._sums[name] += self._compute(summand, given, tile).sum(-1, keepdims=True)
        left_operand = self._compute(self._leaves.left_operand, given, tile)
        self._a[view.index] = left_operand if self.accumulate == "f64" else left_operand.astype(self._narrow).astype(kind)

    def _of_result(self, view: View, out: Array) -> None:
        """Replaces a block's products by the result."""
        columns = {name: self._named[name][view.cols.slice] for name in self._leaves.columns}
        out[...] = self._compute(self._leaves.result, {PRODUCT: out, **self._sums, **columns}, out)

    @staticmethod
    def _compute(value: Value, given: dict[str, Array], like: Array) -> Array:
        """Returns a value as an array of the shape of `like`, in its type."""
        found = evaluate(value, given, NUMPY)
        return np.broadcast_to(np.asarray(found, like.dtype), like.shape)
