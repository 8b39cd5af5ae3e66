"""A convolution executed with numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape
from simgpu.operators.compute import Array, Executor
from simgpu.operators.conv2d.problem import (
    Conv2dProblem,
    Pair,
    merged_filter,
    merged_input,
    space_to_channel_operands,
    windowed_filter,
    windowed_input,
)
from simgpu.operators.conv2d.tree import AtomConv2dNode, BlockConv2dNode, Conv2d, WarpConv2dNode
from simgpu.operators.gemm.epilogue import GemmArrays, epilogue
from simgpu.operators.levels import Level
from simgpu.operators.tree import ZERO, View


class Conv2dExecutor(Executor, root=Conv2d):
    """Computes the convolution of X and W (oc,ic/groups,kh,kw) and its epilogue. X and Y are in the problem's layout."""

    def visit_device(self, tree: Conv2d, x: ArrayLike, w: ArrayLike, bias: ArrayLike | None = None) -> Array:
        """Returns Y in the problem's layout, in f64 or in `problem.gemm.epilogue_type`, not rounded to `dtype_c`."""
        p, plan = tree.problem, tree.plan
        sums = self._sums(tree, by_channels(p, x), expect_shape("W", w, p.shapes[1]))
        sums = sums[tree.views[2].index]
        if self.accumulate == "problem":  # i8's sums are i32, but alpha may be a fraction
            sums = sums.astype(numpy_dtype(p.gemm.epilogue_type))
        y = finish(p, sums, bias)
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        size = numpy_dtype(p.dtype_c, plan.descriptor.arch).itemsize
        self.count(global_bytes=p.bytes_once if self.level is Level.DEVICE else y.size * size)
        return y

    def _sums(self, tree: Conv2d, x: Array, w: Array) -> Array:
        """Returns the sums (n,oc,oh,ow) before the epilogue."""
        p, plan, cut = tree.problem, tree.plan, tree.plan.tiled_problem
        kind = self.kind(p.accumulator)
        self._e = p.element.bytes
        self._x, self._w = merged_input(p, plan.groups, x.astype(kind)), merged_filter(p, plan.groups, w.astype(kind))
        if plan.factor > 1:
            self._x, self._w = space_to_channel_operands(plan.merged, plan.factor, self._x, self._w)
        if cut != plan.more_channels:
            p = plan.more_channels
            self._x = windowed_input(p, plan.window, plan.tile_ic, self._x)
            self._w = windowed_filter(p, plan.window, plan.tile_ic, self._w)
        if self.level is Level.DEVICE:
            return convolve(cut, self._x, self._w)
        y: Array = np.zeros(cut.by_channels[2], kind)
        size = numpy_dtype(p.accumulator).itemsize
        for block in tree.children():
            self.visit(block, y[block.views[2].index])
            if plan.split_ic > 1:
                self.count(global_bytes=2 * block.views[2].elements * size)
        return y

    def visit_block(self, node: BlockConv2dNode, out: Array) -> None:
        """Adds the block's products to `out`, the block's window of Y, (1,channels,rows,cols)."""
        plan, p = node.plan, node.plan.tiled_problem
        x_view, w_view, y_view = node.views
        tile: Array = np.zeros((len(y_view.outer[1]), plan.pixels), out.dtype)
        for axes in node.steps():
            step = axes["ic"]
            ic = x_view.outer[1].min_ + step.min_ - node.channels.min_
            image = self._x[x_view.outer[0].min_, ic : ic + len(step)]
            halo = ((x_view.rows.min_, x_view.rows.max_), (x_view.cols.min_, x_view.cols.max_))
            self._staged = ZERO.read(image, (0, len(step)), *halo)
            self._taps = self._w[w_view.outer[0].slice, step.slice]
            staged = _valid(p, x_view) * len(step) * self._e
            taps = self._taps.size * self._e
            self.count(global_bytes=staged + taps, lds_write_bytes=staged + taps)
            self._plan, self._first = plan, step.min_
            if self.level is Level.BLOCK:
                for tap in product(range(p.kh), range(p.kw)):
                    tile += self._taps[:, :, tap[0], tap[1]] @ self._patch(tap)
            else:
                for warp in node.warps(axes):
                    self.visit(warp, tile)
        valid = tile.reshape(len(y_view.outer[1]), plan.tile_oh, plan.tile_ow)
        out[0] += valid[:, : len(y_view.rows), : len(y_view.cols)]

    def visit_warp(self, node: WarpConv2dNode, tile: Array) -> None:
        """Adds one wave's products of one tap to the block's tile, (channels,pixels)."""
        x, w, _ = node.views
        self.count(lds_read_bytes=(x.elements + w.elements) * self._e)
        if self.level is Level.WARP:
            self._multiply(node, tile)
            return
        for atom in node.children():
            self.visit(atom, tile)

    def visit_atom(self, node: AtomConv2dNode, tile: Array) -> None:
        """Adds one matrix instruction's products to the block's tile."""
        self.count(atoms=1)
        self._multiply(node, tile)

    def _multiply(self, node: WarpConv2dNode | AtomConv2dNode, tile: Array) -> None:
        x, _, y = node.views
        channels = slice(x.cols.min_ - self._first, x.cols.max_ - self._first)
        taps = self._taps[y.cols.slice, channels, node.tap[0], node.tap[1]]
        tile[y.cols.slice, y.rows.slice] += taps @ self._patch(node.tap)[channels, y.rows.slice]

    def _patch(self, tap: Pair) -> Array:
        """Returns the staged halo under one tap, (channels, pixels)."""
        plan, p = self._plan, self._plan.tiled_problem
        (sh, sw), (dh, dw) = p.stride, p.dilation
        top, left = tap[0] * dh, tap[1] * dw
        window = self._staged[:, top : top + (plan.tile_oh - 1) * sh + 1 : sh, left : left + (plan.tile_ow - 1) * sw + 1 : sw]
        return window.reshape(len(window), -1)


def _valid(p: Conv2dProblem, x: View) -> int:
    """Returns the number of pixels of a halo that are inside the image."""
    rows = min(x.rows.max_, p.ih) - max(x.rows.min_, 0)
    cols = min(x.cols.max_, p.iw) - max(x.cols.min_, 0)
    return max(rows, 0) * max(cols, 0)


def by_channels(p: Conv2dProblem, x: ArrayLike) -> Array:
    """Returns X as (n,ic,ih,iw), from the problem's layout."""
    given = expect_shape("X", x, p.shapes[0])
    return given if p.layout == "nchw" else np.moveaxis(given, -1, 1)


def laid_out(p: Conv2dProblem, y: Array) -> Array:
    """Returns Y (n,oc,oh,ow) in the problem's layout."""
    return y if p.layout == "nchw" else np.ascontiguousarray(np.moveaxis(y, 1, -1))


def finish(p: Conv2dProblem, sums: Array, bias: ArrayLike | None) -> Array:
    """Applies the epilogue to the sums (n,oc,oh,ow). Returns Y in the problem's layout and the sums' type."""
    if bias is None and p.bias:
        raise LaunchError(f"the epilogue adds a bias, but none was given: pass one of shape ({p.oc},)")
    none: Array = np.empty((0, 0))
    added = expect_shape("bias", bias, (p.oc,))[: sums.shape[1]] if bias is not None and p.bias else None
    given = GemmArrays(none, none, bias=added)
    return laid_out(p, np.moveaxis(epilogue(p.gemm, np.moveaxis(sums, 1, -1), given), -1, 1))


def convolve(p: Conv2dProblem, x: Array, w: Array) -> Array:
    """Returns the sums (n,oc,oh,ow) of X (n,ic,ih,iw) convolved with W, tap by tap, in X's type."""
    (sh, sw), (ph, pw), (dh, dw) = p.stride, p.padding, p.dilation
    high, wide = (p.oh - 1) * sh + 1, (p.ow - 1) * sw + 1
    y: Array = np.zeros((p.n, p.groups, p.ocg, p.oh, p.ow), x.dtype)
    for i, j in product(range(p.kh), range(p.kw)):
        top, left = i * dh - ph, j * dw - pw
        window = ZERO.read(x, (0, p.n), (0, p.ic), (top, top + high), (left, left + wide))[:, :, ::sh, ::sw]
        grouped = window.reshape(p.n, p.groups, p.icg, p.oh, p.ow)
        y += np.einsum("goc,ngchw->ngohw", w.reshape(p.groups, p.ocg, p.icg, p.kh, p.kw)[..., i, j], grouped)
    return y.reshape(p.by_channels[2])
