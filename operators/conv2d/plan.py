"""Tiles of a direct 2-D convolution in closed form (paper, section 2D Convolution; errata E27, E28).

A block owns tOH x tOW output pixels of one image and tOC channels, and streams input channels tIC at a time. It is the GEMM of
m = N*OH*OW pixels, n = OC/groups and k = (IC/groups)*KH*KW, whose optima (gemm/sides.py) bound pixels P = tOH*tOW, tOC and the
K span tIC by accumulators, occupancy and operand bandwidth. LDS is its own: the input halo of all taps and two taps' filters,

  tIC*e * (hH*hW + b + S*tOC) <= LDS/B,   hH = (tOH - 1)*sH + dH*(KH - 1) + 1,  hW likewise, rounded up to sW,   S = 2,  b <= banks

so  tOC <= (LDS/(B*tIC*e) - b - hH(least tOH)*hW) / S,  then  tOH <= ((LDS/(B*tIC*e) - b - S*tOC)/hW - dH*(KH - 1) - 1)/sH + 1,
the GEMM's or, where that is too large, powers of two. Of the GEMM's optima and of the shapes of their areas that stage least
(`_with_halo`), each with one and two blocks a CU and with the rows that pad least, the one of least time is taken, the channels
split as is best for it (`operators.split`). B = 2 if the smallest tile fits twice, and the registers do, else 1; tIC is
the K span, less (a power of two) if even the smallest tile is too large. b slots keep the planes of
`conv2d.lds` on different banks (and two more the parts of W, where a lane group has more than 16 bytes of a pixel).
Few input channels become more, see `channel_factor`.
Re-read factor of the halo (the paper's "reuse factor R", E27), generalised:  R = hH*hW / (tOH*sH * tOW*sW).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.sustained import STORE_BYTES, sustained
from simgpu.operators.arguments import POLICIES, expect_shape, one_of
from simgpu.operators.conv2d.lds import WIDEST, HaloLayout, TapLayout
from simgpu.operators.conv2d.problem import Conv2dProblem, pack_filter, space_to_channel, space_to_channel_filter
from simgpu.operators.gemm.limits import Tiling
from simgpu.operators.gemm.plan import GemmPlan, plan_gemm, with_tiling
from simgpu.operators.gemm.tiling import options
from simgpu.operators.levels import Level
from simgpu.operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    alignment_row,
    limit_rows,
    mark_binding,
    occupancy_row,
    residency,
    scalar_ranges,
    sgprs,
)
from simgpu.operators.split import Reduction

_MOST_PIXELS = 256  # of a block
_ATOM_ROWS = 16  # output columns of a tile: one atom's rows
_STAGED = 32  # registers of X that a lane stages at a time, an element each (f64: two)
# The work-item; of the filter: load, write, read; of the halo: write, the last write, read.
_ADDRESS_VGPRS = 7
_TEMPORARY_VGPRS = 1
_SCALARS = scalar_ranges(arguments=8, buffers=12, lane_masks=6, coordinates_and_counters=8, temporaries=4)


@dataclass(frozen=True)
class Conv2dPlan(Derivation):
    """A convolution's tiles, resources and constraints.

    Always: tile_oh*tile_ow/waves_p and tile_oc/waves_oc are multiples of the atom's m and n, tile_ic of its k. With few input
    channels, `factor` > 1, the tiles cut the convolution `cut`: space_to_channel(problem, factor).
    """

    problem: Conv2dProblem
    descriptor: HardwareDescriptor
    policy: str
    atom: MFMAAtom
    factor: int  # taps, along each axis, that become channels
    tile_oh: int  # pixels
    tile_ow: int
    tile_oc: int  # channels
    tile_ic: int
    waves_p: int  # waves of a block along pixels
    waves_oc: int  # and along output channels
    blocks_wanted: int
    gemm_tile: tuple[int, int]  # pixels and channels of the GEMM's tile that was to fit
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
        """What the policy decided, by name."""
        names = ("tile_oh", "tile_ow", "tile_oc", "tile_ic", "waves_p", "waves_oc", "split_ic", "factor")
        return {name: getattr(self, name) for name in names}

    @property
    def cut(self) -> Conv2dProblem:
        """What the tiles cut: the problem, or with more channels and fewer taps the same convolution."""
        return space_to_channel(self.problem, self.factor) if self.factor > 1 else self.problem

    @property
    def threads(self) -> int:
        """Work-items of a block."""
        return self.waves_p * self.waves_oc * self.descriptor.wavefront_size

    @property
    def halo(self) -> HaloLayout:
        """The input halo in LDS."""
        return _halo(self.cut, self.tile_oh, self.tile_ow, self.tile_ic, self.atom, self.descriptor)

    @property
    def taps(self) -> TapLayout:
        """A tap's filters in LDS."""
        halo = self.halo
        return TapLayout(self.tile_oc, halo.groups, halo.chunk, halo.reads)

    @property
    def positions(self) -> int:
        """Halo pixels that a work-item stages, with all channels of a step."""
        return -(-self.halo.slots // self.threads)

    @property
    def batch(self) -> int:
        """Of these, as many as are in registers at a time."""
        return max(1, min(self.positions, _STAGED // self.pixel_words))

    @property
    def pixel_words(self) -> int:
        """Registers of a staged pixel."""
        return self.tile_ic * self.problem.element.registers

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
        return -(-self.cut.icg // self.tile_ic)

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
    def fill(self) -> float:
        """Useful share of the products that the padded tiles execute."""
        p = self.cut
        padded = 2 * self.blocks * self.pixels * self.tile_oc * self.ic_steps_per_block * self.tile_ic * p.kh * p.kw
        return self.problem.flops / padded

    @property
    def halo_factor(self) -> float:
        """Re-reads of the input at this tile (E27)."""
        return self.cut.halo_factor(self.tile_oh, self.tile_ow)


def plan_conv2d(problem: Conv2dProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> Conv2dPlan:
    """The closed-form plan. TargetError if the target has no atom for the type, LaunchError for an unknown policy."""
    one_of("policy", policy, POLICIES)
    atom = descriptor.atom(problem.dtype)
    if policy == "published":
        return _fitting(problem, plan_gemm(problem.gemm, descriptor, policy))
    tilings = {
        (t.tile_m, t.tile_n, min(t.blocks, 2)): t
        for option in _with_halo(problem, atom, list(options(problem.gemm, descriptor, atom)))
        for t in (replace(option, blocks=1), replace(option, blocks=2))
    }
    gemms = [with_tiling(problem.gemm, descriptor, policy, tiling) for tiling in tilings.values()]
    whole = [_fitting(problem, gemm) for gemm in gemms]
    plans = [*whole, *(even for plan, gemm in zip(whole, gemms, strict=True) if (even := _even_rows(plan, gemm)))]

    def order(plan: Conv2dPlan) -> tuple[bool, float, int]:
        return not plan.feasible, conv2d_reduction(plan).seconds(plan.split_ic), -plan.pixels * plan.tile_oc

    return min(plans, key=order)


def _with_halo(problem: Conv2dProblem, atom: MFMAAtom, tilings: list[Tiling]) -> list[Tiling]:
    """The GEMM's optima, and the shape of each one's area that stages the least.

    A stage of channels brings P*R pixels of halo and tOC*KH*KW filters: least where they are equal, tOC = sqrt(P*tOC * R/(KH*KW)).
    """
    p, unit = problem, 2 * atom.n
    factor = p.halo_factor(_ATOM_ROWS // 2, _ATOM_ROWS)
    found = list(tilings)
    for tiling in tilings:
        area = tiling.tile_m * tiling.tile_n
        channels = max(1, round(sqrt(area * factor / (p.kh * p.kw)) / unit)) * unit
        pixels = min(area // channels, _MOST_PIXELS) // unit * unit
        if pixels and channels < tiling.tile_n:
            found.append(replace(tiling, tile_m=pixels, tile_n=channels, aim="halo and filters"))
    return found


def _fitting(problem: Conv2dProblem, gemm: GemmPlan) -> Conv2dPlan:
    """The GEMM's tile, or what fits of it."""
    plan = _plan(problem, gemm, 2)
    if plan.feasible or plan.blocks_wanted == 1:
        return plan
    # X's staging passes what two blocks' waves leave each other: one block, of a larger tile or, where that passes it too, of this.
    larger = _plan(problem, gemm, 1)
    if larger.feasible:
        return larger
    alone = replace(plan, blocks_wanted=1)
    return replace(alone, constraints=mark_binding(_constraints(alone, gemm), larger.binding.name))


def _even_rows(plan: Conv2dPlan, gemm: GemmPlan) -> Conv2dPlan | None:
    """The plan with the rows that pad least, the most of equals; None if it has them."""
    step, high = -(-plan.waves_p * plan.atom.m // plan.tile_ow), plan.cut.oh
    rows = max(range(step, plan.tile_oh + 1, step), key=lambda rows: (-(-(-high // rows) * rows), rows), default=plan.tile_oh)
    other = with_tile(plan, rows, plan.tile_oc) if rows != plan.tile_oh else None
    if other is None:
        return None
    other = replace(other, blocks_wanted=plan.blocks_wanted, split_ic=conv2d_reduction(other).split())
    return replace(other, constraints=mark_binding(_constraints(other, gemm), "problem size"))


def _plan(problem: Conv2dProblem, gemm: GemmPlan, most_blocks: int) -> Conv2dPlan:
    d, policy = gemm.descriptor, gemm.policy
    t, atom, e = gemm.tiling, gemm.atom, problem.element.bytes
    factor = channel_factor(problem, t.warp_k) if policy == "corrected" else 1
    p = space_to_channel(problem, factor) if factor > 1 else problem
    least_p, least_oc = t.waves_m * atom.m, t.waves_n * atom.n
    tile_ow = min(_ATOM_ROWS, 1 << (p.ow - 1).bit_length())
    least_oh = -(-least_p // tile_ow)
    wide = -(-p.halo(1, tile_ow)[1] // p.stride[1]) * p.stride[1]
    # At most a line of the smallest chunks keeps the planes of the halo apart: as many slots as there are banks. What keeps the
    # parts of W apart (`TapLayout.part`) takes two.
    apart = 2 if t.warp_k * e > WIDEST * atom.lane_groups else 0
    least = p.halo(least_oh, tile_ow)[0] * wide + d.lds_banks + 2 * least_oc + apart
    blocks = 2 if min(t.blocks, most_blocks) == 2 and d.lds_bytes // 2 // (t.warp_k * e) >= least else 1
    room = d.lds_bytes // blocks // d.lds_granule * d.lds_granule // e  # elements
    tile_ic = min(t.warp_k, max(atom.k, _floor2(room // least)))
    by_lds = room // tile_ic - apart  # slots of X and channels of W

    def slots(oh: int) -> int:
        return _halo(p, oh, tile_ow, tile_ic, atom, d).slots

    tile_oc = max(least_oc, _largest((by_lds - slots(least_oh)) // 2, t.tile_n))
    left = by_lds - 2 * tile_oc
    most, sure = (
        (rows // wide - p.dilation[0] * (p.kh - 1) - 1) // p.stride[0] + 1 for rows in (left, left - d.lds_banks)
    )  # with no slots between the planes, with as many as there may be
    sizes = (_largest(most, t.tile_m // tile_ow), _floor2(most), _floor2(sure))
    tile_oh = max(least_oh, next((oh for oh in sizes if oh > 0 and slots(oh) <= left), 0))
    if (tile_oh * tile_ow, tile_oc) != (t.tile_m, t.tile_n):
        limited_by: str | None = "LDS"
    else:
        limited_by = "GEMM tile" if policy == "corrected" else None
    none = ResourcePlan((), (), (), 0, 0)
    tiles_of = (tile_oh, tile_ow, tile_oc, tile_ic, t.waves_m, t.waves_n, blocks, (t.tile_m, t.tile_n), 1)
    plan = Conv2dPlan(problem, d, policy, atom, factor, *tiles_of, none, ())
    plan = replace(plan, resources=conv2d_resources(plan))
    if policy == "corrected":
        plan = replace(plan, split_ic=conv2d_reduction(plan).split())
    return replace(plan, constraints=mark_binding(_constraints(plan, gemm), limited_by))


def _halo(p: Conv2dProblem, rows: int, cols: int, tile_ic: int, atom: MFMAAtom, d: HardwareDescriptor) -> HaloLayout:
    """The halo of rows x cols output pixels and tile_ic channels."""
    groups = atom.lane_groups
    each = tile_ic * p.element.bytes // groups  # bytes of a pixel and group
    return HaloLayout(p, rows, cols, groups, min(each, WIDEST), d.lds_banks, max(1, each // WIDEST))


def packed_filter(plan: Conv2dPlan, w: ArrayLike) -> NDArray[np.generic]:
    """W (oc,ic/groups,kh,kw) as the plan's kernel reads it: (groups * OC/tOC, IC/tIC, KH, KW, tOC, tIC), each group padded."""
    cut = plan.cut
    array = np.asarray(w) if plan.factor == 1 else space_to_channel_filter(plan.problem, plan.factor, w)
    groups = expect_shape("W", array, cut.shapes[1]).reshape(cut.groups, cut.ocg, *cut.shapes[1][1:])
    return np.concatenate([pack_filter(group, plan.tile_oc, plan.tile_ic) for group in groups])


def channel_factor(problem: Conv2dProblem, span: int) -> int:
    """The factor of `space_to_channel` for few input channels: of 1, 2 and 4 the least with the fewest padded products a pixel.

    span: channels of one step. 1 where four times the channels pass a step: then a tap wastes less than a factor costs.
    """
    p = problem
    if 4 * p.icg > span or p.kh * p.kw == 1:
        return 1
    return min((1, 2, 4), key=lambda f: -(-p.icg * f * f // span) * -(-p.kh // f) * -(-p.kw // f))


def with_tile(plan: Conv2dPlan, rows: int, channels: int) -> Conv2dPlan | None:
    """The plan with another tile of rows and output channels, its channel step kept; None if that fits no CU."""
    other = replace(plan, tile_oh=rows, tile_oc=channels, blocks_wanted=1, split_ic=1)
    other = replace(other, resources=conv2d_resources(other))
    return other if other.resources.blocks_per_cu and other.resources.lds_bytes <= plan.descriptor.lds_bytes else None


def conv2d_reduction(plan: Conv2dPlan) -> Reduction:
    """What decides the split of the input channels; a step is a stage of channels with all taps."""
    p, rates, e = plan.cut, sustained(plan.descriptor), plan.problem.element.bytes
    taps, (gx, gy, gz), clocks = p.kh * p.kw, plan.grid, step_clocks(plan)
    tiles, high_wide = p.n * p.groups * gx * gy * gz, p.halo(plan.tile_oh, plan.tile_ow)
    result = p.n * p.oc * p.oh * p.ow * dtype(p.dtype_c).bytes
    return Reduction(
        tiles=tiles,
        steps=plan.ic_steps,
        step=max(clocks.values()) / rates.clock,
        drain=plan.pixels * plan.tile_oc * dtype(p.dtype_c).bytes / STORE_BYTES / rates.clock,
        resident=max(1, plan.resources.blocks_per_cu),
        asked_bytes=tiles * p.icg * e * (high_wide[0] * high_wide[1] + plan.tile_oc * taps) + result,
        once_bytes=plan.problem.bytes_once,
        partial_bytes=result,
        rates=rates,
        waits=taps,
    )


def step_clocks(plan: Conv2dPlan) -> dict[str, float]:
    """Clocks of a stage of channels with all taps, by what they are of: "matrix", "LDS", "cache"."""
    p, d, rates, e = plan.cut, plan.descriptor, sustained(plan.descriptor).rates, plan.problem.element.bytes
    taps, channel = p.kh * p.kw, plan.tile_ic * e
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    staged = (high * wide + plan.tile_oc * taps) * channel
    read = taps * (plan.pixels * plan.waves_oc + plan.tile_oc * plan.waves_p) * channel
    return {
        "matrix": 2 * plan.pixels * plan.tile_oc * plan.tile_ic * taps / d.matrix_flops_per_clock(p.dtype),
        "LDS": read / rates.lds_read + staged / rates.lds_write,
        "cache": staged / rates.cache,
    }


def conv2d_resources(plan: Conv2dPlan) -> ResourcePlan:
    """Registers of a wave and LDS of a block, array by array."""
    d, atom, waves = plan.descriptor, plan.atom, plan.waves_p * plan.waves_oc
    registers = (
        RegisterRange("accumulators", "acc", plan.pixels * plan.tile_oc // (waves * atom.m * atom.n) * atom.acc_registers),
        RegisterRange("X fragments", "arch", plan.pixels // plan.waves_p // atom.m * plan.fragment_words),
        RegisterRange("W fragments", "arch", plan.tile_oc // plan.waves_oc // atom.n * plan.fragment_words),
        RegisterRange("W staging", "arch", -(-plan.taps.packed_bytes // (4 * plan.threads))),
        RegisterRange("X staging", "arch", plan.batch * plan.pixel_words),
        RegisterRange("X offsets", "arch", plan.positions * plan.factor**2),
        RegisterRange("addresses", "arch", _ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", _TEMPORARY_VGPRS),
    )
    lds = (LdsArray("X halo", plan.halo.nbytes), LdsArray("W", 2 * plan.taps.nbytes))
    arch, acc = (sum(r.count for r in registers if r.file == file) for file in ("arch", "acc"))
    return ResourcePlan(registers, lds, _SCALARS, *residency(d, arch, acc, sgprs(_SCALARS), sum(a.nbytes for a in lds), waves))


def _constraints(plan: Conv2dPlan, gemm: GemmPlan) -> tuple[Constraint, ...]:
    p, d, r, atom = plan.cut, plan.descriptor, plan.resources, plan.atom
    limit, use = d.lds_bytes // plan.blocks_wanted, d.lds_allocation(r.lds_bytes)
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    note = f"input halo {high} x {wide} x {plan.tile_ic} channels, two taps of W, {plan.blocks_wanted} block(s) a CU"
    remedy = (
        f"{use - limit} bytes too many at the smallest tile: lower dilation or filter size, or use a target with {use} bytes of LDS"
    )
    waves = plan.waves_p * plan.waves_oc
    ragged = sum(map(bool, (plan.pixels % (plan.waves_p * atom.m), plan.tile_oc % (plan.waves_oc * atom.n), plan.tile_ic % atom.k)))
    gx, gy, gz = plan.grid
    padded = gx * plan.tile_ow * gy * plan.tile_oh * gz * plan.tile_oc * plan.ic_steps * plan.tile_ic
    return (
        *limit_rows(d, r.arch_vgprs, r.acc_vgprs, r.sgprs, r.lds_bytes, waves, plan.blocks_wanted, {"LDS": (note, remedy)}),
        alignment_row(ragged, f"pixels x channels by {atom.m}x{atom.n}x{atom.k}"),
        occupancy_row(d, plan.blocks),
        Constraint(
            "GEMM tile",
            Level.BLOCK,
            gemm.tile_m * gemm.tile_n,
            plan.pixels * plan.tile_oc,
            "outputs",
            f"{gemm.tile_m} x {gemm.tile_n} of the same product: {gemm.tiling.aim or gemm.binding.name}",
            hard=False,
        ),
        Constraint(
            "halo", Level.BLOCK, 1.0, plan.halo_factor, "reads of an input element", "R, the re-read factor (E27)", hard=False
        ),
        *(() if plan.policy == "published" else conv2d_reduction(plan).time_rows(
            plan.split_ic, "input channels", step_clocks(plan), "of a stage of channels, all taps"
        )),
        Constraint(
            "problem size",
            Level.DEVICE,
            p.oh * p.ow * p.ocg * p.icg,
            padded,
            "products a tap",
            f"padded to whole tiles; channels of {plan.factor}x{plan.factor} taps are one (E28)",
            hard=False,
        ),
    )


def _largest(bound: int, gemm: int) -> int:
    """The GEMM's tile if the bound holds it, else the largest power of two."""
    return gemm if gemm <= bound else _floor2(bound)


def _floor2(value: int) -> int:
    return 1 << value.bit_length() - 1 if value > 0 else 0
