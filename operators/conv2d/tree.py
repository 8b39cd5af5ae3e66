"""Tree of a convolution: Conv2d, BlockConv2dNode, WarpConv2dNode, AtomConv2dNode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from simgpu.operators.conv2d.plan import plan_conv2d, with_nest
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.levels import Level
from simgpu.operators.tree import ZERO, Axes, Extent, Node, TileNode, TileRoot, View

Views = tuple[View, View, View]  # X, W, Y


@dataclass(frozen=True)
class _ConvNode(TileNode):
    plan: Conv2dPlan

    @staticmethod
    def views_of(plan: Conv2dPlan, axes: Axes) -> Views:
        """Returns the windows of a tap's product: pixels and output channels are those within the block's tile."""
        pixels, oc, ic = axes["pixels"], axes["oc"], axes["ic"]
        return View("X", pixels, ic), View("W", ic, oc), View("Y", pixels, oc)

    @property
    def tap(self) -> Pair:
        """Row and column of the filter."""
        return self.axes["ky"].min_, self.axes["kx"].min_


@dataclass(frozen=True)
class AtomConv2dNode(_ConvNode):
    """Leaf: one matrix instruction on at most atom.m pixels of one tap, atom.k input and atom.n output channels."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the atom and how often a wave issues it."""
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
    """A wave's part of one tap of one channel step: Y (pixels, channels) += X (pixels, tIC) W (tIC, channels).

    Pixels are counted within the block's tile, row by row. X's columns and W's rows are the step's input channels.
    """

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = AtomConv2dNode

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the warp tile and how the block divides into warps."""
        plan, p = self.plan, self.plan.tiled_problem
        return (
            (
                "WarpConv2dNode  [warp]",
                "  ".join(map(str, self.views)) + "  (pixels, channels)",
                f"taps per step: {p.kh}x{p.kw} = {p.kh * p.kw}",
                f"warp tiles per block: {plan.waves_p}x{plan.waves_oc} = {plan.waves_p * plan.waves_oc}",
            ),
        )


@dataclass(frozen=True)
class BlockConv2dNode(Node):
    """A block's output tile: halos of X and taps of W pass through LDS, Y stays in registers.

    The view of X may begin before row or column 0, or end past the image. It reads the boundary policy's value there.
    """

    level: ClassVar[Level] = Level.BLOCK
    plan: Conv2dPlan
    views: Views
    channels: Extent  # this block's part of the group's input channels

    @property
    def axes(self) -> Axes:  # type: ignore[override]
        """Input channels, taps, pixels and output channels of the block."""
        p, pixels = self.plan.tiled_problem, Extent.whole(self.plan.pixels)
        channels = Extent(0, len(self.views[1].outer[0]), self.plan.tile_oc)
        return {"ic": self.channels, "ky": Extent.whole(p.kh), "kx": Extent.whole(p.kw), "pixels": pixels, "oc": channels}

    def steps(self) -> Iterator[Axes]:
        """Yields the axes of each step of the block's input channels."""
        return self.windows(self.loops[:1])

    def child(self, axes: Axes) -> WarpConv2dNode:
        """Returns the node of a wave's part of a tap."""
        return WarpConv2dNode(self.plan, axes)

    def warps(self, step: Axes) -> Iterator[WarpConv2dNode]:
        """Yields the warp nodes of one channel step."""
        return map(self.child, self.windows(self.loops[1:], step))

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block tile of one step, its halo, its LDS."""
        plan, p = self.plan, self.plan.tiled_problem
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


class Conv2d(TileRoot):
    """Root of a convolution's tree: Y = X * W on a target under a tile policy.

    >>> from simgpu.operators import Conv2d, Conv2dProblem
    >>> tree = Conv2d(Conv2dProblem(n=1, ic=64, ih=28, iw=28, oc=64, kh=3, kw=3, padding=(1, 1)), "mi300x")
    >>> print(" ".join(f"{name}={size}" for name, size in tree.plan.sizes.items()))
    tile_oh=2 tile_ow=16 tile_oc=32 tile_ic=16 waves_p=2 waves_oc=2 split_ic=4 groups=1 factor=1
    """

    problem: Conv2dProblem
    derivation: Conv2dPlan
    derive = staticmethod(plan_conv2d)
    refit = staticmethod(with_nest)

    @property
    def axes(self) -> Axes:  # type: ignore[override]
        """Images, groups, rows and columns of Y, and a merged group's output and input channels as tiles cut them."""
        p, cut = self.problem, self.derivation.tiled_problem
        sizes = {"n": p.n, "group": p.groups, "oc": cut.ocg, "oh": p.oh, "ow": p.ow, "ic": cut.icg}
        return {**{axis: Extent.whole(size) for axis, size in sizes.items()}, **self.extents}

    @property
    def views(self) -> Views:  # type: ignore[override]
        """Windows of X, W and Y: all of X and W, and the outputs that are computed."""
        (x, w, _), axes = self.problem.by_channels, self.axes
        oc = Extent.whole(self.problem.oc) if self.problem.groups > 1 else axes["oc"]
        return (
            View("X", Extent.whole(x[2]), Extent.whole(x[3]), (Extent.whole(x[0]), Extent.whole(x[1]))),
            View("W", Extent.whole(w[2]), Extent.whole(w[3]), (Extent.whole(w[0]), Extent.whole(w[1]))),
            View("Y", axes["oh"], axes["ow"], (axes["n"], oc)),
        )

    def child(self, axes: Axes) -> BlockConv2dNode:
        """Returns the node of a block: of an image, a group, output channels, rows, columns and a part of the input channels."""
        plan, p = self.derivation, self.derivation.tiled_problem
        n, rows, cols, part = (axes[axis] for axis in ("n", "oh", "ow", "ic"))
        (sh, sw), (ph, pw), (high, wide) = p.stride, p.padding, p.halo(plan.tile_oh, plan.tile_ow)
        top, left, group = rows.min_ * sh - ph, cols.min_ * sw - pw, axes["group"].min_ // plan.groups
        oc, ic = _shift(axes["oc"], group * p.ocg), _shift(part, group * p.icg)
        oc = replace(oc, max_=max(oc.min_, min(oc.max_, self.problem.oc)))
        x = View("X", Extent(top, top + high, high), Extent(left, left + wide, wide), (n, ic))
        w = View("W", Extent.whole(p.kh), Extent.whole(p.kw), (oc, part))
        return BlockConv2dNode(plan, (x, w, View("Y", rows, cols, (n, oc))), part)

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped."""
        if axis in ("group", "ic"):
            return "W is packed for all of them"
        if self.derivation.second_pass:
            return "a second kernel adds all of Y"
        return "groups follow one another" if axis == "oc" and self.problem.groups > 1 else ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.derivation.tiled_problem
        gx, gy, gz = plan.grid
        head = (
            "Conv2d  Y = X * W",
            "  ".join(map(str, self.views)),
            f"stride {p.stride}  padding {p.padding}  dilation {p.dilation}  groups {self.problem.groups}"
            + (f"  {plan.groups} groups as one" if plan.groups > 1 else "")
            + (f"  {plan.factor}x{plan.factor} taps as channels" if plan.factor > 1 else "")
            + (f"  windows of {p.kh}x{p.kw} taps as channels" if plan.windows != (1, 1) else ""),
            f"CU grid: {p.n}x{p.groups}x{gz}x{gy}x{gx}, split {plan.split_ic} ({plan.blocks} tiles) [parallel]",
            plan.tiling_line,
            f"padding: {100 * plan.fill:.1f} % of the products are useful",
            f"boundary: views are clipped; X reads {ZERO.text} outside the image, Y is not stored there",
        )
        loops = (
            f"for OC in {gz}, OH in {gy}, OW in {gx} [parallel] / "
            f"for IC in {plan.ic_steps_per_block}, KH in {p.kh}, KW in {p.kw} [sequential]",
            "  Y[OC,OH,OW] += W[OC,IC,KH,KW] @ X[IC,OH*s+KH*d,OW*s+KW*d]",
        )
        return head, loops


def _shift(extent: Extent, by: int) -> Extent:
    return Extent(extent.min_ + by, extent.max_ + by, extent.tile)

