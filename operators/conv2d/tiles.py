"""A convolution's tiles and properties that follow from their sizes: halo, filters, stages, grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.operators.conv2d.lds import HaloLayout, TapLayout
from simgpu.operators.conv2d.loads import lane_clocks
from simgpu.operators.conv2d.problem import (
    Conv2dProblem,
    Pair,
    lattice,
    merge_groups,
    merged_filter,
    pack_filter,
    space_to_channel,
    space_to_channel_filter,
    windowed_filter,
    with_window,
)
from simgpu.operators.gemm.loads import LINE
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import WIDEST, Constraint, Derivation, ResourcePlan

_WORD = 4  # bytes of a register
_STAGED = 32  # registers of X that a lane stages at a time, an element each (f64: two)
_PLACES = 8  # positions of a work-item up to which its pixels are cut into pieces: each has registers and a prologue


@dataclass(frozen=True)
class Conv2dPlan(Derivation):
    """Tiles, resources and constraints of a convolution.

    tile_oh*tile_ow/waves_p and tile_oc/waves_oc are always multiples of the atom's m and n, tile_ic of its k. If `groups` > 1 or
    `factor` > 1 (few channels) or `window` is smaller than the filter, the tiles are those of `tiled_problem`, the same convolution
    with more channels.

    >>> from simgpu.operators import Conv2d, Conv2dProblem
    >>> plan = Conv2d(Conv2dProblem(n=1, ic=64, ih=28, iw=28, oc=64, kh=3, kw=3, padding=(1, 1)), "mi300x").plan
    >>> plan.grid, plan.pixels, plan.binding.name
    ((2, 14, 2), 32, 'GEMM tile')
    """

    problem: Conv2dProblem
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    atom: MFMAAtom  # matrix instruction
    groups: int  # groups that a block computes as one (`merge_groups`)
    factor: int  # taps along each axis that become channels (`space_to_channel`); 1: none
    window: Pair  # rows and columns of the taps of one stage of X; they divide the filter's (with factor > 1, the cut's)
    tile_oh: int  # pixel rows
    tile_ow: int  # pixel columns
    tile_oc: int  # output channels
    tile_ic: int  # input channels of a step
    waves_p: int  # waves of a block along pixels
    waves_oc: int  # waves of a block along output channels
    blocks_wanted: int  # blocks per CU for which the tiles were chosen
    gemm_tile: tuple[int, int]  # pixels and channels of the GEMM's tile, the upper limit
    split_ic: int  # blocks that share an output tile, each with a part of the input channels
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        return (
            f"conv2d {p.n}x{p.ic}x{p.ih}x{p.iw} by {p.oc}x{p.icg}x{p.kh}x{p.kw} {p.dtype} on "
            f"{self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        names = ("tile_oh", "tile_ow", "tile_oc", "tile_ic", "waves_p", "waves_oc", "split_ic", "groups", "factor")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def merged(self) -> Conv2dProblem:
        """Problem after `merge_groups`. Its channels are X's and Y's, and channels after them if `ragged`."""
        return merge_groups(self.problem, self.groups)

    @property
    def ragged(self) -> bool:
        """True if the last merged group has fewer groups than the others."""
        return self.problem.groups % self.groups > 0

    @property
    def step_channels(self) -> int:
        """Channels of X in a step: tile_ic, or fewer with `factor` > 1, as taps are channels then. Each tap has them in turn."""
        return self.tile_ic // self.factor**2

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """Channels of X in groups' last steps that have fewer than a step, if channels are last. In nchw X's buffer ends there."""
        p, step = self.merged, self.step_channels
        last = self.problem.ic - (p.groups - 1) * p.icg  # channels of the last group
        return tuple(sorted({p.icg % step, last % step} - {0})) if p.layout == "nhwc" else ()

    @cached_property
    def more_channels(self) -> Conv2dProblem:
        """Problem after `merge_groups` and `space_to_channel` with `factor`."""
        return space_to_channel(self.merged, self.factor) if self.factor > 1 else self.merged

    @cached_property
    def adds_zeros(self) -> bool:
        """True if a sum of finite numbers has products with 0 that are not the problem's: of other groups, or of added taps.

        With an infinity or NaN in X, they are NaN. A kernel then computes the output again (`asm.conv2d.own_taps`), so such plans
        do not split channels.
        """
        p = self.problem
        return self.groups > 1 or p.kh % self.factor > 0 or p.kw % self.factor > 0

    @cached_property
    def lattice(self) -> Pair:
        """Rows and columns of X from one staged pixel to the next."""
        return lattice(self.more_channels, self.window)

    @property
    def windows(self) -> Pair:
        """Windows of taps along the filter's rows and columns. If there are several, `factor` is 1."""
        p = self.more_channels
        return p.kh // self.window[0], p.kw // self.window[1]

    @cached_property
    def tiled_problem(self) -> Conv2dProblem:
        """Convolution that the tiles cut: the problem, or the same convolution with other channels and fewer taps."""
        p = self.more_channels
        whole = self.window == (p.kh, p.kw) and self.lattice == (1, 1)
        return p if whole else with_window(p, self.window, self.tile_ic)

    @property
    def threads(self) -> int:
        """Work-items of a block."""
        return self.waves_p * self.waves_oc * self.descriptor.wavefront_size

    @cached_property
    def halo(self) -> HaloLayout:
        """Layout of the input halo in LDS."""
        return halo_layout(self.tiled_problem, self.tile_oh, self.tile_ow, self.tile_ic, self.atom, self.descriptor)

    @cached_property
    def taps(self) -> TapLayout:
        """Layout of a tap's filters in LDS."""
        halo = self.halo
        return TapLayout(self.tile_oc, halo.groups, halo.chunk, halo.reads)

    @cached_property
    def pieces(self) -> int:
        """Work-items that share a halo pixel's channels: fewest clocks of the vector cache, then fewest loads of a work-item.

        A piece is whole chunks of LDS. 1 where a load depends on the tap or the window.
        """
        if self.factor > 1 or self.windows != (1, 1):
            return 1
        most = min(self.halo.chunks, self.tile_ic // self.channels_at_once)
        counts = [1 << bit for bit in range(most.bit_length()) if self.threads % (1 << bit) == 0]
        places = {count: -(-self.halo.slots // (self.threads // count)) for count in counts}
        fitting = [count for count in counts if places[count] <= max(places[1], _PLACES)]
        return min(fitting, key=lambda count: (self._clocks_of_loads(count), places[count] / count, count))

    @property
    def end_of_channels(self) -> str:
        """Place where loads of X end with a group: with the "buffer", a lane's "piece", or inside a load ("cut load")."""
        if any(tail % self.channels_at_once for tail in self.tails):
            return "cut load"
        return "piece" if self.tails and self.pieces > 1 else "buffer"

    @property
    def slots_at_once(self) -> int:
        """Halo pixels that a block stages at once."""
        return self.threads // self.pieces

    @property
    def positions(self) -> int:
        """Halo pixels of which a work-item stages a piece: `channels_of_piece` channels."""
        return -(-self.halo.slots // self.slots_at_once)

    @property
    def channels_of_piece(self) -> int:
        """Channels of a step in a piece of a pixel."""
        return self.tile_ic // self.pieces

    @property
    def batch(self) -> int:
        """Pieces of pixels that a work-item has in registers at a time."""
        return max(1, min(self.positions, _STAGED // self.piece_words))

    @property
    def batches(self) -> int:
        """Number of times that a work-item's registers for X are filled in a step."""
        return -(-self.positions // self.batch)

    @property
    def asked_halo(self) -> int:
        """Pixels that a halo loads for each channel. In nchw, unread pixels between its columns are also counted."""
        high, wide = self.tiled_problem.halo(self.tile_oh, self.tile_ow)
        between = min(self.lattice[1], LINE // self.problem.element.bytes) if self.problem.layout == "nchw" else 1
        return high * wide * between

    @cached_property
    def halo_clocks(self) -> float:
        """Clocks in which the vector cache accepts the lanes of a stage's halo (`lane_clocks`)."""
        return self._clocks_of_loads(self.pieces)

    def _clocks_of_loads(self, pieces: int) -> float:
        p, e, layout, at_once = self.problem, self.problem.element.bytes, self.halo, self.channels_at_once
        high, wide = self.tiled_problem.halo(self.tile_oh, self.tile_ow)
        apart, step, run = self.lattice[1] * self.tiled_problem.stride[1] * e, p.iw * e, layout.phase_columns
        if p.layout == "nhwc":
            apart, step = apart * p.ic, p.ic * e
            if pieces > 1:  # neighbours have a pixel's pieces, and the next pixel's if there is nothing between
                run = pieces * (run if apart == self.tile_ic * e else 1)
                apart = self.tile_ic // pieces * e
        line = pipelines(self.descriptor.arch).cache_line
        return high * wide * self.tile_ic / at_once * lane_clocks(at_once * e, apart, run, step, line)

    @cached_property
    def channels_at_once(self) -> int:
        """Channels of a pixel in one load of X. With channels last: 16 bytes, which begin anywhere, if the group has as many."""
        p, e = self.problem, self.problem.element.bytes
        if p.layout == "nchw":
            return 1
        together = min(WIDEST // e, self.step_channels, 1 << self.merged.icg.bit_length() - 1)
        return together if together * e >= _WORD else 1

    @property
    def piece_words(self) -> int:
        """Registers of a staged piece: an element each, or packed as loaded."""
        if self.channels_at_once > 1:
            return self.channels_of_piece * self.problem.element.bytes // _WORD
        return self.channels_of_piece * self.problem.element.registers

    @property
    def offset_words(self) -> int:
        """Registers with the offsets of a work-item's pixels in X.

        With windows of taps: each pixel's row and column, the offsets of a batch, and a temporary row. If not only the buffer
        ends channels: also a lane's first channel.
        """
        pixels = 2 * self.positions + self.batch + 1 if self.windows != (1, 1) else self.positions * self.factor**2
        return pixels + (self.end_of_channels != "buffer")

    @property
    def second_pass(self) -> bool:
        """True if a second kernel computes Y: if channels are split, and for gelu and silu in f64 (hundreds of instructions)."""
        return self.split_ic > 1 or (self.problem.dtype == "f64" and self.problem.activation in ("gelu", "silu"))

    @property
    def fragment_words(self) -> int:
        """Registers of an atom's fragment of X or W."""
        return -(-self.halo.chunk * self.halo.reads // 4)

    @property
    def pixels(self) -> int:
        """Output pixels of a block."""
        return self.tile_oh * self.tile_ow

    @property
    def ic_steps(self) -> int:
        """Stages of all input channels of a group."""
        return -(-self.tiled_problem.icg // self.tile_ic)

    @property
    def mean_channels(self) -> float:
        """Average number of input channels of a stage, of which the last may have fewer than tile_ic."""
        return self.tiled_problem.icg / self.ic_steps

    @property
    def ic_steps_per_block(self) -> int:
        """Stages of one block."""
        return -(-self.ic_steps // self.split_ic)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along output columns, rows, and channels of a group."""
        p = self.merged
        return -(-p.ow // self.tile_ow), -(-p.oh // self.tile_oh), -(-p.ocg // self.tile_oc)

    @property
    def nest(self) -> Nest:
        """Loops of the tree. Channels `oc` and `ic` are a group's, pixels are counted within a block's tile, row by row."""
        atom, sides = self.atom, (("oc", self.tile_oc), ("oh", self.tile_oh), ("ow", self.tile_ow))
        return {
            Level.DEVICE: (
                *(TileLoop(axis, tile, True) for axis, tile in (("n", 1), ("group", self.groups), *sides)),
                TileLoop("ic", self.ic_steps_per_block * self.tile_ic, True),
            ),
            Level.BLOCK: (
                TileLoop("ic", self.tile_ic), TileLoop("ky", 1), TileLoop("kx", 1),
                TileLoop("pixels", self.pixels // self.waves_p, True), TileLoop("oc", self.tile_oc // self.waves_oc, True),
            ),
            Level.WARP: (TileLoop("ic", atom.k), TileLoop("pixels", atom.m), TileLoop("oc", atom.n)),
        }  # fmt: skip

    @property
    def blocks(self) -> int:
        """Number of blocks: images, groups, tiles and split."""
        gx, gy, gz = self.grid
        return self.problem.n * self.merged.groups * gx * gy * gz * self.split_ic

    @property
    def fill(self) -> float:
        """Useful fraction of the products that the padded tiles execute."""
        p = self.tiled_problem
        padded = 2 * self.blocks * self.pixels * self.tile_oc * self.ic_steps_per_block * self.tile_ic * p.kh * p.kw
        return self.problem.flops / padded

    @property
    def halo_factor(self) -> float:
        """Average number of times that these tiles read an input element (E27)."""
        return self.tiled_problem.halo_factor(self.tile_oh, self.tile_ow)


def halo_layout(p: Conv2dProblem, rows: int, cols: int, tile_ic: int, atom: MFMAAtom, d: HardwareDescriptor) -> HaloLayout:
    """Returns the halo layout of rows x cols output pixels and tile_ic channels."""
    groups = atom.lane_groups
    each = tile_ic * p.element.bytes // groups  # bytes of a pixel and group
    return HaloLayout(p, rows, cols, groups, min(each, WIDEST), d.lds_banks, max(1, each // WIDEST))


def packed_filter(plan: Conv2dPlan, w: ArrayLike) -> NDArray[np.generic]:
    """Returns W (oc,ic/groups,kh,kw) in the layout that the plan's kernel reads.

    It is (groups * OC/tOC, IC/tIC, KH, KW, tOC, tIC) of the merged groups, with each padded. Taps that are channels are the
    outermost part of a step's tIC.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> plan = operators.Conv2d(operators.Conv2dProblem(n=1, ic=64, ih=28, iw=28, oc=64, kh=3, kw=3), "mi300x").plan
    >>> operators.packed_filter(plan, np.ones((64, 64, 3, 3), np.float32)).shape
    (2, 4, 3, 3, 32, 16)
    """
    cut, p = plan.tiled_problem, plan.more_channels
    array = merged_filter(plan.problem, plan.groups, w)
    if plan.factor > 1:
        array = space_to_channel_filter(plan.merged, plan.factor, array)
    array = windowed_filter(p, plan.window, plan.tile_ic, array)
    groups = array.reshape(cut.groups, cut.ocg, *cut.by_channels[1][1:])
    packed = np.concatenate([pack_filter(group, plan.tile_oc, plan.tile_ic) for group in groups])
    by_tap = packed.reshape(*packed.shape[:-1], plan.step_channels, plan.factor**2).swapaxes(-1, -2)
    return np.ascontiguousarray(by_tap).reshape(packed.shape)
