"""The convolution's tree: Conv2d, BlockConv2dNode, WarpConv2dNode, AtomConv2dNode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.conv2d.plan import plan_conv2d
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint
from simgpu.operators.tree import ZERO, Extent, Node, Root, View, product

Views = tuple[View, View, View]  # X, W, Y


@dataclass(frozen=True)
class _ConvNode(Node):
    plan: Conv2dPlan
    views: Views

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns the plan's rows of this level."""
        return self.plan.at(self.level)


@dataclass(frozen=True)
class AtomConv2dNode(_ConvNode):
    """Leaf: one matrix instruction on at most atom.m pixels of one tap, atom.k input and atom.n output channels."""

    level: ClassVar[Level] = Level.ATOM
    tap: Pair  # row and column of the filter

    def children(self) -> Iterator[Node]:
        """Yields nothing: the level below is the hardware."""
        return iter(())

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
    tap: Pair  # row and column of the filter

    def children(self) -> Iterator[AtomConv2dNode]:
        """Yields the atoms, input channels outermost."""
        x, _, y = self.views
        atom = self.plan.atom
        for ic in x.cols.split(atom.k):
            for pixels, oc in product(y.rows.split(atom.m), y.cols.split(atom.n)):
                yield AtomConv2dNode(self.plan, _products(pixels, oc, ic), self.tap)

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
class BlockConv2dNode(_ConvNode):
    """A block's output tile: halos of X and taps of W pass through LDS, Y stays in registers.

    The view of X may begin before row or column 0, or end past the image. It reads the boundary policy's value there.
    """

    level: ClassVar[Level] = Level.BLOCK
    channels: Extent  # this block's part of the group's input channels

    def steps(self) -> Iterator[Extent]:
        """Yields the block's input channels, tile_ic at a time."""
        return iter(self.channels.split(self.plan.tile_ic))

    def children(self) -> Iterator[WarpConv2dNode]:
        """Yields the warp nodes, by channel step, by tap, by wave."""
        for step in self.steps():
            yield from self.warps(step)

    def warps(self, step: Extent) -> Iterator[WarpConv2dNode]:
        """Yields the warp nodes of one channel step."""
        plan, p = self.plan, self.plan.tiled_problem
        channels = Extent(0, len(self.views[1].outer[0]), plan.tile_oc)
        pixels = Extent.whole(plan.pixels)
        for tap in ((ky, kx) for ky in range(p.kh) for kx in range(p.kw)):
            for rows, oc in product(pixels.split(plan.pixels // plan.waves_p), channels.split(plan.tile_oc // plan.waves_oc)):
                yield WarpConv2dNode(plan, _products(rows, oc, step), tap)

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


class Conv2d(Root):
    """Root of a convolution's tree: Y = X * W on a target under a tile policy.

    >>> from simgpu.operators import Conv2d, Conv2dProblem
    >>> tree = Conv2d(Conv2dProblem(n=1, ic=64, ih=28, iw=28, oc=64, kh=3, kw=3, padding=(1, 1)), "mi300x")
    >>> tree.plan.sizes
    {'tile_oh': 2, 'tile_ow': 16, 'tile_oc': 32, 'tile_ic': 16, 'waves_p': 2, 'waves_oc': 2, 'split_ic': 1, 'factor': 1}
    """

    def __init__(self, problem: Conv2dProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        self.problem = problem
        self.descriptor = target if isinstance(target, HardwareDescriptor) else find_target(target)
        self.derivation: Conv2dPlan = plan_conv2d(problem, self.descriptor, policy)
        self.views: Views = tuple(  # type: ignore[assignment]
            View(name, Extent.whole(s[2]), Extent.whole(s[3]), (Extent.whole(s[0]), Extent.whole(s[1])))
            for name, s in zip("XWY", problem.by_channels, strict=True)
        )

    def on(self, descriptor: HardwareDescriptor) -> Conv2d:
        """Derives the same problem and policy again for another descriptor."""
        return Conv2d(self.problem, descriptor, self.derivation.policy)

    def children(self) -> Iterator[BlockConv2dNode]:
        """Yields one node per block: by image, group, output channels, rows, columns, part of the input channels."""
        plan, p = self.derivation, self.derivation.tiled_problem
        (sh, sw), (ph, pw) = p.stride, p.padding
        parts = plan.ic_steps_per_block * plan.tile_ic
        for n, g in ((n, g) for n in Extent.whole(p.n).split(1) for g in range(p.groups)):
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
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.derivation.tiled_problem
        gx, gy, gz = plan.grid
        head = (
            "Conv2d  Y = X * W",
            "  ".join(map(str, self.views)),
            f"stride {p.stride}  padding {p.padding}  dilation {p.dilation}  groups {p.groups}"
            + (f"  {plan.factor}x{plan.factor} taps as channels" if plan.factor > 1 else "")
            + (f"  windows of {p.kh}x{p.kw} taps as channels" if plan.windows != (1, 1) else ""),
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
