"""A GEMM executed with numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators.compute import Array, Executor
from simgpu.operators.gemm.epilogue import GemmArrays, epilogue
from simgpu.operators.gemm.groups import parts
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from simgpu.operators.levels import Level
from simgpu.operators.tree import View


class GemmExecutor(Executor, root=TiledComputation):
    """Computes the product and its epilogue. Operands are in their stored shapes; C is read only if beta is not 0."""

    def visit_device(self, tree: TiledComputation, a: ArrayLike, b: ArrayLike, *more: ArrayLike | None) -> Array:
        """Returns C, (m,columns) or (batch,m,columns), in f64 or in `problem.epilogue_type`, not rounded to C's type.

        Operands: as `GemmArrays.of`.
        """
        given = GemmArrays.of(tree.problem, a, b, *more)
        if tree.problem.groups:
            return np.concatenate([self._device(tree.like(one), its) for one, its in parts(tree.problem, given)])
        return self._device(tree, given)

    def _device(self, tree: TiledComputation, given: GemmArrays) -> Array:
        problem, kind = tree.problem, self.kind(tree.problem.accumulator)
        wide = replace(given, a=given.a.astype(kind), b=given.b.astype(kind))
        self._a, self._b = (array.astype(kind) for array in wide.factors(problem))
        self._elements = problem.element, problem.element_b
        out = self._products(tree, problem)
        if self.accumulate == "problem":
            out = out.astype(numpy_dtype(problem.epilogue_type))
        return self._epilogue(tree, problem, out, given)

    def _products(self, tree: TiledComputation, gemm: GemmProblem) -> Array:
        """Returns the products of the whole device, computed at once or block by block. gemm: what is multiplied."""
        plan, problem = tree.plan, tree.problem
        self.count(flops=problem.flops, hbm_bytes=problem.bytes_once)
        out: Array = np.zeros(tree.views[2].shape, self._a.dtype)
        if self.level is Level.DEVICE:
            self._whole(tree.views, out)
            self.count(global_bytes=problem.bytes_once)
            return out
        for block in tree.children():
            self.visit(block, out[block.views[2].index])
            if plan.split_k > 1:
                self.count(global_bytes=2 * block.views[2].elements * numpy_dtype(gemm.accumulator).itemsize)
        self.count(global_bytes=gemm.epilogue_bytes)
        return out

    def _whole(self, views: tuple[View, ...], out: Array) -> None:
        """Computes all products at once."""
        self._multiply(views, out)

    @staticmethod
    def _epilogue(tree: TiledComputation, problem: GemmProblem, out: Array, given: GemmArrays) -> Array:
        """Returns C of the tree's window, from its products."""
        window = tree.views[2].index
        windows = {name: array[window] for name in ("c", "residual") if (array := getattr(given, name)) is not None}
        if given.bias is not None:
            windows["bias"] = given.bias[window[-1]]
        return epilogue(problem, out, replace(given, **windows))

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

    def _multiply(self, views: tuple[View, ...], out: Array) -> None:
        np.add(out, self._a[views[0].index] @ self._b[views[1].index], out=out)

    def _bytes(self, views: tuple[View, ...]) -> int:
        return sum(kind.packed_bytes(view.elements) for kind, view in zip(self._elements, views, strict=False))
