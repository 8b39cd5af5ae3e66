"""2-D convolution, direct: what it computes and its tiles in closed form (paper, section 2D Convolution; errata E27, E28).

A block owns tOH x tOW output pixels of one image and tOC channels, and streams input channels tIC at a time. It is the GEMM of
m = N*OH*OW pixels, n = OC/groups and k = (IC/groups)*KH*KW, whose formulas (operators.tiles) bound pixels P = tOH*tOW, tOC and the K span
tIC by accumulators, occupancy and operand bandwidth. LDS is its own: a stage holds the input halo of all taps and two taps' filters,

  tIC*e * (hH*hW + S*tOC) <= LDS/B,   hH = (tOH - 1)*sH + dH*(KH - 1) + 1,  hW likewise,   S = 2

so  tOC <= (LDS/(B*tIC*e) - hH(least tOH)*hW) / S,  then  tOH <= ((LDS/(B*tIC*e) - S*tOC)/hW - dH*(KH - 1) - 1)/sH + 1,  powers of two.
B = 2 if the smallest tile fits twice, else 1; tIC is the K span, less (in whole atoms) if even the smallest tile is too large.
Re-read factor of the halo (the paper's "reuse factor R", E27), generalised:  R = hH*hW / (tOH*sH * tOW*sW).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.descriptor import HardwareDescriptor, MFMAAtom
from hardware.dtypes import DType, dtype
from hardware.errors import LaunchError
from operators.epilogue import expect_shape
from operators.gemm_limits import ADDRESS_VGPRS, GEMM_SGPRS, TEMPORARY_VGPRS
from operators.problem import GemmProblem, positive_dimension
from operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    quantised,
    residency,
)
from operators.split import Reduction
from operators.tiles import plan_gemm
from operators.tree import ZERO, Level

Pair = tuple[int, int]
_ATOM_ROWS = 16  # output columns of a tile: one atom's rows


@dataclass(frozen=True)
class Conv2dProblem:
    """Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw), as deep learning has it (no flip of W).

    stride, padding, dilation: (vertical, horizontal). Outside X reads 0. oh = (ih + 2*padding - dilation*(kh-1) - 1) // stride + 1.
    LaunchError for sizes that cannot be.
    """

    n: int
    ic: int
    ih: int
    iw: int
    oc: int
    kh: int
    kw: int
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    dtype: str = "f32"

    def __post_init__(self) -> None:
        dtype(self.dtype)
        for name in ("n", "ic", "ih", "iw", "oc", "kh", "kw", "groups"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name in ("stride", "dilation"):
            object.__setattr__(self, name, tuple(positive_dimension(name, value) for value in getattr(self, name)))
        if min(self.padding) < 0:
            raise LaunchError(f"padding = {self.padding} is negative: give 0 or more")
        for name in ("ic", "oc"):
            if getattr(self, name) % self.groups:
                raise LaunchError(f"{name} = {getattr(self, name)} does not divide into {self.groups} groups: use a divisor of it")
        if min(self.oh, self.ow) < 1:
            raise LaunchError(f"a {self.kh}x{self.kw} filter does not fit into {self.ih}x{self.iw} input: pad it by more")

    @property
    def oh(self) -> int:
        """Rows of the output."""
        return (self.ih + 2 * self.padding[0] - self.dilation[0] * (self.kh - 1) - 1) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Columns of the output."""
        return (self.iw + 2 * self.padding[1] - self.dilation[1] * (self.kw - 1) - 1) // self.stride[1] + 1

    @property
    def icg(self) -> int:
        """Input channels of a group."""
        return self.ic // self.groups

    @property
    def ocg(self) -> int:
        """Output channels of a group."""
        return self.oc // self.groups

    @property
    def element(self) -> DType:
        """The type of X and W."""
        return dtype(self.dtype)

    @property
    def dtype_c(self) -> str:
        """Type of Y: the accumulator's."""
        return self.element.accumulator

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of X, W and Y."""
        return (self.n, self.ic, self.ih, self.iw), (self.oc, self.icg, self.kh, self.kw), (self.n, self.oc, self.oh, self.ow)

    @property
    def flops(self) -> int:
        """Useful FLOPs, products with padding included, a multiply-add counted as two."""
        return 2 * self.n * self.oc * self.oh * self.ow * self.icg * self.kh * self.kw

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of X, W and Y crosses memory once."""
        x, w, y = (int(np.prod(shape)) for shape in self.shapes)
        return (x + w) * self.element.bytes + y * dtype(self.dtype_c).bytes

    @property
    def gemm(self) -> GemmProblem:
        """The GEMM with the same products: pixels x output channels x (input channels and taps), a product of the batch a group."""
        return GemmProblem(self.n * self.oh * self.ow, self.ocg, self.icg * self.kh * self.kw, self.dtype, batch=self.groups)

    def halo(self, rows: int, cols: int) -> Pair:
        """Input rows and columns under a tile of `rows` x `cols` output pixels."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return (rows - 1) * sh + dh * (self.kh - 1) + 1, (cols - 1) * sw + dw * (self.kw - 1) + 1

    def halo_factor(self, rows: int, cols: int) -> float:
        """How often an input element is read by tiles of rows x cols: (1 + (KH-1)/rows)(1 + (KW-1)/cols) at stride and dilation 1 (E27)."""
        high, wide = self.halo(rows, cols)
        return high * wide / (rows * self.stride[0] * cols * self.stride[1])


@dataclass(frozen=True)
class Conv2dPlan(Derivation):
    """A convolution's tiles, resources and constraints. Tile sizes in pixels and channels; waves are waves_p x waves_oc.

    Always: tile_oh*tile_ow/waves_p and tile_oc/waves_oc are multiples of the atom's m and n, tile_ic of its k. `split_ic` blocks share an
    output tile, each with a part of the input channels.
    """

    problem: Conv2dProblem
    descriptor: HardwareDescriptor
    policy: str
    atom: MFMAAtom
    tile_oh: int
    tile_ow: int
    tile_oc: int
    tile_ic: int
    waves_p: int
    waves_oc: int
    blocks_wanted: int
    split_ic: int
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
        """What the policy decided, by name."""
        names = ("tile_oh", "tile_ow", "tile_oc", "tile_ic", "waves_p", "waves_oc", "split_ic")
        return {name: getattr(self, name) for name in names}

    @property
    def pixels(self) -> int:
        """Output pixels of a block."""
        return self.tile_oh * self.tile_ow

    @property
    def ic_steps(self) -> int:
        """Stages of all input channels of a group."""
        return -(-self.problem.icg // self.tile_ic)

    @property
    def ic_steps_per_block(self) -> int:
        """Stages that one block goes through."""
        return -(-self.ic_steps // self.split_ic)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along output columns, rows, and channels of a group."""
        p = self.problem
        return -(-p.ow // self.tile_ow), -(-p.oh // self.tile_oh), -(-p.ocg // self.tile_oc)

    @property
    def blocks(self) -> int:
        """Blocks of everything: images, groups, tiles and split."""
        gx, gy, gz = self.grid
        return self.problem.n * self.problem.groups * gx * gy * gz * self.split_ic

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9)."""
        return quantised(self.blocks, self.descriptor.num_cus)

    @property
    def fill(self) -> float:
        """Useful share of the products that the padded tiles execute."""
        p = self.problem
        padded = 2 * self.blocks * self.pixels * self.tile_oc * self.ic_steps_per_block * self.tile_ic * p.kh * p.kw
        return p.flops / padded

    @property
    def halo_factor(self) -> float:
        """Re-reads of the input at this tile (E27)."""
        return self.problem.halo_factor(self.tile_oh, self.tile_ow)


def plan_conv2d(problem: Conv2dProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> Conv2dPlan:
    """The closed-form plan. TargetError if the target has no atom for the type, LaunchError for an unknown policy."""
    p, d = problem, descriptor
    gemm = plan_gemm(p.gemm, d, policy)
    t, atom, e = gemm.tiling, gemm.atom, p.element.bytes
    least_p, least_oc = t.waves_m * atom.m, t.waves_n * atom.n
    tile_ow = min(_ATOM_ROWS, 1 << (p.ow - 1).bit_length())
    least_oh = -(-least_p // tile_ow)
    wide = p.halo(1, tile_ow)[1]
    least = p.halo(least_oh, tile_ow)[0] * wide + 2 * least_oc
    blocks = 2 if t.blocks == 2 and d.lds_bytes // 2 // (t.warp_k * e) >= least else 1
    room = d.lds_bytes // blocks // d.lds_granule * d.lds_granule // e  # elements
    tile_ic = min(t.warp_k, max(atom.k, room // least // atom.k * atom.k))
    by_lds = room // tile_ic
    tile_oc = max(least_oc, min(t.tile_n, _floor2((by_lds - (least - 2 * least_oc)) // 2)))
    rows_in = (by_lds - 2 * tile_oc) // wide
    most_oh = (rows_in - p.dilation[0] * (p.kh - 1) - 1) // p.stride[0] + 1
    tile_oh = max(least_oh, min(t.tile_m // tile_ow, _floor2(most_oh)))
    limited_by = "LDS" if (tile_oh * tile_ow, tile_oc) != (t.tile_m, t.tile_n) else t.limited_by
    tiles = p.n * p.groups * -(-p.ow // tile_ow) * -(-p.oh // tile_oh) * -(-p.ocg // tile_oc)
    steps = -(-p.icg // tile_ic)
    split = 1
    if policy == "corrected":
        seconds = 2 * tiles * tile_oh * tile_ow * tile_oc * steps * tile_ic * p.kh * p.kw / (d.matrix_tflops(p.dtype) * 1e12)
        partial = 2 * p.n * p.oc * p.oh * p.ow * dtype(p.dtype_c).bytes
        split = Reduction(tiles, steps, seconds, p.bytes_once, partial, d.hbm_bandwidth_tb * 1e12, d.num_cus).split()
    halo = p.halo(tile_oh, tile_ow)
    resources = _resources(d, atom, e, tile_oh * tile_ow, tile_oc, tile_ic, halo[0] * halo[1], (t.waves_m, t.waves_n))
    plan = Conv2dPlan(p, d, policy, atom, tile_oh, tile_ow, tile_oc, tile_ic, t.waves_m, t.waves_n, blocks, split, resources, ())
    return replace(plan, constraints=mark_binding(_constraints(plan), limited_by))


def _resources(
    d: HardwareDescriptor, atom: MFMAAtom, e: int, pixels: int, tile_oc: int, tile_ic: int, halo: int, waves: Pair
) -> ResourcePlan:
    threads = waves[0] * waves[1] * d.wavefront_size
    lane_bytes = 4 * d.wavefront_size
    registers = (
        RegisterRange("accumulators", "acc", pixels * tile_oc // (waves[0] * waves[1] * atom.m * atom.n) * atom.acc_registers),
        RegisterRange("X fragments", "arch", -(-pixels // waves[0] * tile_ic * e // lane_bytes)),
        RegisterRange("W fragments", "arch", -(-tile_oc // waves[1] * tile_ic * e // lane_bytes)),
        RegisterRange("W staging", "arch", -(-tile_oc * tile_ic * e // (4 * threads))),
        RegisterRange(
            "X staging", "arch", min(16, -(-halo * tile_ic * e // (4 * threads)))
        ),  # at most four 128-bit loads at a time
        RegisterRange("addresses", "arch", ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", TEMPORARY_VGPRS),
    )
    lds = (LdsArray("X halo", halo * tile_ic * e), LdsArray("W", 2 * tile_oc * tile_ic * e))
    arch, acc = (sum(r.count for r in registers if r.file == file) for file in ("arch", "acc"))
    count = waves[0] * waves[1]
    return ResourcePlan(registers, lds, GEMM_SGPRS, *residency(d, arch, acc, GEMM_SGPRS, sum(a.nbytes for a in lds), count))


def _constraints(plan: Conv2dPlan) -> tuple[Constraint, ...]:
    p, d, r, atom = plan.problem, plan.descriptor, plan.resources, plan.atom
    limit, use = d.lds_bytes // plan.blocks_wanted, d.lds_allocation(r.lds_bytes)
    note = f"input halo {p.halo(plan.tile_oh, plan.tile_ow)} x {plan.tile_ic} channels, two taps of W, {plan.blocks_wanted} block(s) a CU"
    remedy = (
        f"{use - limit} bytes too many at the smallest tile: lower dilation or filter size, or use a target with {use} bytes of LDS"
    )
    waves = plan.waves_p * plan.waves_oc
    ragged = sum(map(bool, (plan.pixels % (plan.waves_p * atom.m), plan.tile_oc % (plan.waves_oc * atom.n), plan.tile_ic % atom.k)))
    gx, gy, gz = plan.grid
    padded = gx * plan.tile_ow * gy * plan.tile_oh * gz * plan.tile_oc * plan.ic_steps * plan.tile_ic
    return (
        *limit_rows(d, r.arch_vgprs, r.acc_vgprs, r.sgprs, r.lds_bytes, waves, plan.blocks_wanted, {"LDS": (note, remedy)}),
        Constraint(
            "atom alignment",
            Level.ATOM,
            0,
            ragged,
            "dimensions",
            f"pixels x channels by {atom.m}x{atom.n}x{atom.k}",
            "the LDS must hold at least one atom-aligned tile",
        ),
        occupancy_row(d, plan.blocks),
        Constraint(
            "halo", Level.BLOCK, 1.0, plan.halo_factor, "reads of an input element", "R, the re-read factor (E27)", hard=False
        ),
        Constraint(
            "problem size",
            Level.DEVICE,
            p.oh * p.ow * p.ocg * p.icg,
            padded,
            "products a tap",
            "padded to whole tiles; few input channels: see space_to_channel (E28)",
            hard=False,
        ),
    )


def pack_filter(w: ArrayLike, tile_oc: int, tile_ic: int) -> NDArray[np.generic]:
    """W (oc,ic,kh,kw) in the layout (oc/tOC, ic/tIC, kh, kw, tOC, tIC), channels padded with 0 to whole tiles: one contiguous read a block."""
    array = np.asarray(w)
    oc, ic, kh, kw = array.shape
    outer, inner = -(-oc // tile_oc), -(-ic // tile_ic)
    padded = ZERO.read(array, (0, outer * tile_oc), (0, inner * tile_ic), (0, kh), (0, kw))
    tiled = padded.reshape(outer, tile_oc, inner, tile_ic, kh, kw)
    return np.ascontiguousarray(tiled.transpose(0, 2, 4, 5, 1, 3))


def space_to_channel(problem: Conv2dProblem, factor: int) -> Conv2dProblem:
    """The same convolution with factor^2 times the input channels and ceil(kh/factor)*ceil(kw/factor) taps, dilated by `factor` more.

    Three channels at factor 2 become 12 and leave 4 of a 3x3 filter's taps, not 1 (E28); one tap needs factor 3, 27 channels (im2col).
    """
    p, f = problem, positive_dimension("factor", factor)
    kh, kw = -(-p.kh // f), -(-p.kw // f)
    dilation = (p.dilation[0] * f, p.dilation[1] * f)
    ih = (p.oh - 1) * p.stride[0] + dilation[0] * (kh - 1) + 1
    iw = (p.ow - 1) * p.stride[1] + dilation[1] * (kw - 1) + 1
    return replace(p, ic=p.ic * f * f, ih=ih, iw=iw, kh=kh, kw=kw, padding=(0, 0), dilation=dilation)


def space_to_channel_operands(
    problem: Conv2dProblem, factor: int, x: ArrayLike, w: ArrayLike
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """X and W of `space_to_channel(problem, factor)`: channel (c, dy, dx) of X is channel c shifted by (dy, dx) taps."""
    p, f, after = problem, factor, space_to_channel(problem, factor)
    x, w = expect_shape("X", x, p.shapes[0]), expect_shape("W", w, p.shapes[1])
    (ph, pw), (dh, dw) = p.padding, p.dilation
    shifted = [
        ZERO.read(x, (0, p.n), (0, p.ic), (dy * dh - ph, dy * dh - ph + after.ih), (dx * dw - pw, dx * dw - pw + after.iw))
        for dy in range(f)
        for dx in range(f)
    ]
    wider = ZERO.read(w, (0, p.oc), (0, p.icg), (0, after.kh * f), (0, after.kw * f))
    taps = wider.reshape(p.oc, p.icg, after.kh, f, after.kw, f).transpose(0, 1, 3, 5, 2, 4)
    return np.stack(shifted, 2).reshape(after.shapes[0]), taps.reshape(after.shapes[1])


def _floor2(value: int) -> int:
    return 1 << value.bit_length() - 1 if value > 0 else 0
