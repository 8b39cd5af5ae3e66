"""The convolution's tree and its numpy execution: Conv2d, BlockConv2dNode, WarpConv2dNode, AtomConv2dNode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators.compute import Array, Executor, computes
from simgpu.operators.conv2d.plan import Conv2dPlan, plan_conv2d
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair, space_to_channel_operands
from simgpu.operators.epilogue import expect_shape
from simgpu.operators.resources import Constraint
from simgpu.operators.tree import ZERO, Extent, Level, Node, Root, View

Views = tuple[View, View, View]  # X, W, Y


@dataclass(frozen=True)
class _ConvNode(Node):
    plan: Conv2dPlan
    views: Views

    def constraints(self) -> tuple[Constraint, ...]:
        """The plan's rows of this level."""
        return self.plan.at(self.level)


@dataclass(frozen=True)
class AtomConv2dNode(_ConvNode):
    """Leaf: one matrix instruction on at most atom.m pixels of one tap, atom.k input and atom.n output channels."""

    level: ClassVar[Level] = Level.ATOM
    tap: Pair

    def children(self) -> Iterator[Node]:
        """None: the level below is the hardware."""
        return iter(())

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The atom and how often a wave issues it."""
        plan, atom = self.plan, self.plan.atom
        rows, cols = plan.pixels // plan.waves_p // atom.m, plan.tile_oc // plan.waves_oc // atom.n
        return (
            (
                "AtomConv2dNode  [leaf -- hardware instruction]",
                f"MFMA {atom.m}x{atom.n}x{atom.k}  dtype={atom.dtype_in}  pixels x output x input channels",
                f"atom calls per warp and tap: {rows}x{cols}x{plan.tile_ic // atom.k} = {rows * cols * plan.tile_ic // atom.k}",
            ),
        )


@dataclass(frozen=True)
class WarpConv2dNode(_ConvNode):
    """One wave's share of one tap of one channel step: Y (pixels, channels) += X (pixels, tIC) W (tIC, channels).

    Pixels are counted within the block's tile, row by row; X's columns and W's rows are the step's input channels.
    """

    level: ClassVar[Level] = Level.WARP
    tap: Pair

    def children(self) -> Iterator[AtomConv2dNode]:
        """Atoms, input channels outermost."""
        x, _, y = self.views
        atom = self.plan.atom
        for ic in x.cols.split(atom.k):
            for pixels, oc in product(y.rows.split(atom.m), y.cols.split(atom.n)):
                yield AtomConv2dNode(self.plan, _products(pixels, oc, ic), self.tap)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The warp tile and how the block divides into warps."""
        plan, p = self.plan, self.plan.cut
        return (
            (
                "WarpConv2dNode  [warp]",
                "  ".join(map(str, self.views)) + "  (pixels, channels)",
                f"taps per step: {p.kh}x{p.kw} = {p.kh * p.kw}",
                f"warp tiles per block: {plan.waves_p}x{plan.waves_oc} = {plan.waves_p * plan.waves_oc}",
            ),
        )


@dataclass(frozen=True)
class BlockConv2dNode(_ConvNode):
    """One workgroup's output tile: halos of X and taps of W pass through LDS, Y stays in registers.

    X's rows and columns may begin before 0 or end past the image: there the boundary policy answers.
    """

    level: ClassVar[Level] = Level.BLOCK
    channels: Extent  # input channels of the group, this block's part

    def steps(self) -> Iterator[Extent]:
        """Input channels of a group, tile_ic at a time."""
        return self.channels.split(self.plan.tile_ic)

    def children(self) -> Iterator[WarpConv2dNode]:
        """Warp nodes, by channel step, by tap, by wave."""
        for step in self.steps():
            yield from self.warps(step)

    def warps(self, step: Extent) -> Iterator[WarpConv2dNode]:
        """The warp nodes of one channel step."""
        plan, p = self.plan, self.plan.cut
        channels = Extent(0, len(self.views[1].outer[0]), plan.tile_oc)
        pixels = Extent.whole(plan.pixels)
        for tap in product(range(p.kh), range(p.kw)):
            for rows, oc in product(pixels.split(plan.pixels // plan.waves_p), channels.split(plan.tile_oc // plan.waves_oc)):
                yield WarpConv2dNode(plan, _products(rows, oc, step), tap)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The block tile of one step, its halo, its LDS."""
        plan, p = self.plan, self.plan.cut
        high, wide = p.halo(plan.tile_oh, plan.tile_ow)
        return (
            (
                "BlockConv2dNode  [block / CU]",
                f"X:(1,{plan.tile_ic},{high},{wide})  W:({plan.tile_oc},{plan.tile_ic},{p.kh},{p.kw})  "
                f"Y:(1,{plan.tile_oc},{plan.tile_oh},{plan.tile_ow})",
                f"halo re-read factor R = {plan.halo_factor:.3f}",
                f"LDS = {plan.resources.lds_bytes / 1024:g} KB  (X halo + 2 taps of W; Y in registers)",
                f"W packed ({-(-p.oc // plan.tile_oc)},{plan.ic_steps},{p.kh},{p.kw},{plan.tile_oc},{plan.tile_ic})",
                f"channel steps per CU: {plan.ic_steps_per_block}",
            ),
        )


class Conv2d(Root):
    """The root: Y = X * W on a target under a tile policy; the arguments after `target` and `policy` are Conv2dProblem's."""

    def __init__(self, problem: Conv2dProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        self.problem = problem
        self.descriptor = target if isinstance(target, HardwareDescriptor) else find_target(target)
        self.derivation: Conv2dPlan = plan_conv2d(problem, self.descriptor, policy)
        self.views: Views = tuple(  # type: ignore[assignment]
            View(name, Extent.whole(s[2]), Extent.whole(s[3]), (Extent.whole(s[0]), Extent.whole(s[1])))
            for name, s in zip("XWY", problem.shapes, strict=True)
        )

    def on(self, descriptor: HardwareDescriptor) -> Conv2d:
        """The same problem and policy, derived again for another descriptor."""
        return Conv2d(self.problem, descriptor, self.derivation.policy)

    def children(self) -> Iterator[BlockConv2dNode]:
        """One node a workgroup: by image, group, output channels, rows, columns, part of the input channels."""
        plan, p = self.derivation, self.derivation.cut
        (sh, sw), (ph, pw) = p.stride, p.padding
        parts = plan.ic_steps_per_block * plan.tile_ic
        for n, g in product(Extent.whole(p.n).split(1), range(p.groups)):
            group = Extent(g * p.ocg, (g + 1) * p.ocg, p.ocg)
            whole = (group.split(plan.tile_oc), self.views[2].rows.split(plan.tile_oh), self.views[2].cols.split(plan.tile_ow))
            for oc, rows, cols in product(*whole):
                high, wide = p.halo(plan.tile_oh, plan.tile_ow)
                top, left = rows.min_ * sh - ph, cols.min_ * sw - pw
                for part in Extent.whole(p.icg).split(parts):
                    x = View(
                        "X",
                        Extent(top, top + high, high),
                        Extent(left, left + wide, wide),
                        (n, Extent(g * p.icg + part.min_, g * p.icg + part.max_, part.tile)),
                    )
                    w = View("W", Extent.whole(p.kh), Extent.whole(p.kw), (oc, part))
                    yield BlockConv2dNode(plan, (x, w, View("Y", rows, cols, (n, oc))), part)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """The header and the device's loop nest."""
        plan, p = self.derivation, self.derivation.cut
        gx, gy, gz = plan.grid
        head = (
            "Conv2d  Y = X * W",
            "  ".join(map(str, self.views)),
            f"stride {p.stride}  padding {p.padding}  dilation {p.dilation}  groups {p.groups}"
            + (f"  {plan.factor}x{plan.factor} taps as channels" if plan.factor > 1 else ""),
            f"CU grid: {p.n}x{p.groups}x{gz}x{gy}x{gx}, split {plan.split_ic} ({plan.blocks} tiles) [parallel]",
            f"tiling: {plan.policy} for {plan.descriptor.name or plan.descriptor.arch}, bound by {plan.binding.name}, "
            f"eta = {100 * plan.eta:.1f} %, fill = {100 * plan.fill:.1f} %",
            f"boundary: views are clipped; X reads {ZERO.text} outside the image, Y is not stored there",
        )
        loops = (
            f"for OC in {gz}, OH in {gy}, OW in {gx} [parallel] / "
            f"for IC in {plan.ic_steps_per_block}, KH in {p.kh}, KW in {p.kw} [sequential]",
            "  Y[OC,OH,OW] += W[OC,IC,KH,KW] @ X[IC,OH*s+KH*d,OW*s+KW*d]",
        )
        return head, loops


def _products(pixels: Extent, oc: Extent, ic: Extent) -> Views:
    return View("X", pixels, ic), View("W", ic, oc), View("Y", pixels, oc)


@computes(Conv2d)
class Conv2dExecutor(Executor):
    """The convolution of X (n,ic,ih,iw) and W (oc,ic/groups,kh,kw)."""

    def visit_device(self, tree: Conv2d, x: ArrayLike, w: ArrayLike) -> Array:
        """Y (n,oc,oh,ow) in the accumulation type."""
        p, plan = tree.problem, tree.plan
        kind = self.kind(p.dtype_c)
        self._x, self._w = expect_shape("X", x, p.shapes[0]).astype(kind), expect_shape("W", w, p.shapes[1]).astype(kind)
        self._e = p.element.bytes
        self.count(flops=p.flops, hbm_bytes=p.bytes_once)
        if plan.factor > 1:
            self._x, self._w = space_to_channel_operands(p, plan.factor, self._x, self._w)
        y: Array = np.zeros(p.shapes[2], kind)
        if self.level is Level.DEVICE:
            self.count(global_bytes=p.bytes_once)
            return convolve(plan.cut, self._x, self._w)
        size = numpy_dtype(p.dtype_c).itemsize
        for block in tree.children():
            self.visit(block, y[block.views[2].index])
            if plan.split_ic > 1:
                self.count(global_bytes=2 * block.views[2].elements * size)
        self.count(global_bytes=y.size * size)
        return y

    def visit_block(self, node: BlockConv2dNode, out: Array) -> None:
        """Adds the block's part to `out`, (1,channels,rows,cols) of Y."""
        plan, p = node.plan, node.plan.cut
        x_view, w_view, y_view = node.views
        tile: Array = np.zeros((len(y_view.outer[1]), plan.pixels), out.dtype)
        for step in node.steps():
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
                for warp in node.warps(step):
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
        """(channels, pixels): the staged halo under one tap."""
        plan, p = self._plan, self._plan.cut
        (sh, sw), (dh, dw) = p.stride, p.dilation
        top, left = tap[0] * dh, tap[1] * dw
        window = self._staged[:, top : top + (plan.tile_oh - 1) * sh + 1 : sh, left : left + (plan.tile_ow - 1) * sw + 1 : sw]
        return window.reshape(len(window), -1)


def _valid(p: Conv2dProblem, x: View) -> int:
    """Pixels of a halo that lie inside the image."""
    rows = min(x.rows.max_, p.ih) - max(x.rows.min_, 0)
    cols = min(x.cols.max_, p.iw) - max(x.cols.min_, 0)
    return max(rows, 0) * max(cols, 0)


def convolve(p: Conv2dProblem, x: Array, w: Array) -> Array:
    """Y of whole arrays, tap by tap, in their type."""
    (sh, sw), (ph, pw), (dh, dw) = p.stride, p.padding, p.dilation
    high, wide = (p.oh - 1) * sh + 1, (p.ow - 1) * sw + 1
    y: Array = np.zeros((p.n, p.groups, p.ocg, p.oh, p.ow), x.dtype)
    for i, j in product(range(p.kh), range(p.kw)):
        top, left = i * dh - ph, j * dw - pw
        window = ZERO.read(x, (0, p.n), (0, p.ic), (top, top + high), (left, left + wide))[:, :, ::sh, ::sw]
        grouped = window.reshape(p.n, p.groups, p.icg, p.oh, p.ow)
        y += np.einsum("goc,ngchw->ngohw", w.reshape(p.groups, p.ocg, p.icg, p.kh, p.kw)[..., i, j], grouped)
    return y.reshape(p.shapes[2])
