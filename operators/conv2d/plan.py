"""Tiles of a direct 2-D convolution in closed form (paper, section 2D Convolution; errata E27, E28).

A block owns tOH x tOW output pixels of one image and tOC channels, and streams input channels tIC at a time. It is the GEMM of
m = N*OH*OW pixels, n = OC/groups and k = (IC/groups)*KH*KW. That GEMM's optima (gemm/sides.py) bound pixels P = tOH*tOW, tOC
and the K span tIC by accumulators, occupancy and operand bandwidth. LDS has its own limit: the input halo of all taps and two
taps' filters,

tIC*e * (hH*hW + b + S*tOC) <= LDS/B,   hH = (tOH - 1)*sH + dH*(KH - 1) + 1,  hW likewise, rounded up to sW,   S = 2,  b <=
banks

so  tOC <= (LDS/(B*tIC*e) - b - hH(least tOH)*hW) / S,  then  tOH <= ((LDS/(B*tIC*e) - b - S*tOC)/hW - dH*(KH - 1) - 1)/sH + 1.

Tiles are the GEMM's or, if that is too large, powers of two. Another candidate is the tile on the border of LDS and registers
that loads least (`_on_border`). Candidates come from the GEMM's optima and from shapes of the same areas that stage least
(`_with_halo`), each with one and two blocks a CU, and with the rows that pad least. The plan is the candidate of least time,
with its best split of the channels (`operators.split`).

B = 2 if LDS and registers hold two blocks, else 1. tIC is the K span, or a smaller power of two if even the smallest tile does
not fit. b slots keep the planes of `conv2d.lds` on different banks. Two more separate the parts of W if a lane group has more
than 16 bytes of a pixel.

Groups of few channels are merged into ones that fill a tile (`_merges`).
Problems with few input channels are transformed into ones with more (`channel_factor`). Rows and columns of X that no tap reads
are not staged (`problem.lattice`). If LDS cannot hold the halo of all taps with a whole K span, the taps are cut into windows of
equal size, the largest that fit: whole rows of the filter, else parts of a row (`_windows`). Each window is staged as if it were
other channels of X.

Re-read factor of the halo (the paper's "reuse factor R", E27), generalised:  R = hH*hW / (tOH*sH * tOW*sW).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import sqrt

from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.conv2d.cost import conv2d_reduction
from simgpu.operators.conv2d.lds import ATOM
from simgpu.operators.conv2d.limits import conv2d_constraints, conv2d_resources, with_time_rows
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair, merge_groups, space_to_channel, with_window
from simgpu.operators.conv2d.tiles import Conv2dPlan, halo_layout
from simgpu.operators.gemm.limits import Tiling
from simgpu.operators.gemm.plan import GemmPlan, plan_gemm, plan_without_time
from simgpu.operators.gemm.tiling import options
from simgpu.operators.levels import Level, Nest
from simgpu.operators.resources import WIDEST, ResourcePlan, mark_binding, require_narrow
from simgpu.operators.split import price

_LONGEST = 256  # most pixels, and channels, of a block (gemm/tiling.py)
_WORD = 4  # bytes of the smallest chunk of X in LDS
# A plan is chosen as if taps waited for nothing, unless another is so many times faster with their waits (`cost`), whose sum with
# other work is an estimate. Of 25 changed plans in the model of time, the 16 beyond it take 0.76 of their time before in the mean,
# 1.04 at most; those below it may lose a fifth.
WAITS_DECIDE = 1.15
Cut = tuple[int, int, Pair]  # groups of `merge_groups`, factor of `space_to_channel`, and window of taps


def plan_conv2d(problem: Conv2dProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> Conv2dPlan:
    """Returns the closed-form plan of a convolution.

    TargetError if the target has no 16x16 atom for the type, LaunchError for an unknown policy.

    >>> from simgpu import hardware, operators
    >>> problem = operators.Conv2dProblem(n=1, ic=64, ih=28, iw=28, oc=64, kh=3, kw=3, padding=(1, 1))
    >>> plan = operators.plan_conv2d(problem, hardware.target("mi300x"))
    >>> plan.tile_oh, plan.tile_ow, plan.tile_oc, plan.tile_ic
    (2, 16, 32, 16)
    """
    one_of("policy", policy, POLICIES)
    descriptor = descriptor.with_atoms_of(ATOM, problem.dtype)
    atom = descriptor.atom(problem.dtype)
    require_narrow(problem.dtype_c, descriptor)
    if policy == "published":
        gemm = plan_gemm(problem.gemm, descriptor, policy)
        cut = 1, *_windows(problem, gemm)[-1]
        return _fitting(problem, gemm, cut, _plan(problem, gemm, cut, 2))
    cuts = [cut for groups in _merges(problem, descriptor, atom) for cut in _cuts(problem, groups, descriptor, atom)]
    fitted = [(_plan(problem, gemm, cut, 2), gemm, cut) for gemm, cut in cuts]
    found = ((_fitting(problem, gemm, cut, plan), _on_border(gemm, plan)) for plan, gemm, cut in fitted)
    tried = _distinct((plan, gemm) for (_, gemm, _), plans in zip(fitted, found, strict=True) for plan in plans if plan)
    tried = _distinct([*tried, *((even, gemm) for plan, gemm in tried if (even := _even_rows(plan, gemm)))])

    quick, split = _fastest([plan for plan, _ in tried], waits=False)
    if problem.kh * problem.kw > 1:
        other, other_split = _fastest([plan for plan, _ in tried], waits=True)
        seconds = [conv2d_reduction(tried[n][0]).seconds(s) for n, s in ((quick, split), (other, other_split))]
        if seconds[0] > WAITS_DECIDE * seconds[1]:
            quick, split = other, other_split
    plan, gemm = tried[quick]
    plan = replace(plan, split_ic=split)
    return with_time_rows(replace(plan, constraints=mark_binding(conv2d_constraints(plan, gemm), plan.binding.name)))


def _merges(problem: Conv2dProblem, descriptor: HardwareDescriptor, atom: MFMAAtom) -> list[int]:
    """Returns the numbers of groups that a block may compute as one: 1, and those that fill the smallest tile's tOC or tIC.

    Until then, merged groups use rows and columns of matrix instructions that padding has otherwise.
    """
    p, smallest = problem, next(options(problem.gemm, descriptor, atom))
    filled = (max(1, min(p.groups, unit // each)) for unit, each in ((2 * atom.n, p.ocg), (smallest.warp_k, p.icg)))
    return sorted({1, *filled})


def _cuts(problem: Conv2dProblem, groups: int, descriptor: HardwareDescriptor, atom: MFMAAtom) -> list[tuple[GemmPlan, Cut]]:
    """Returns the cuts with `groups` groups as one, each with the GEMM plan of a tile to try.

    Taps of merged groups are not channels.
    """
    merged = merge_groups(problem, groups)
    tilings = {
        (t.tile_m, t.tile_n, min(t.blocks, 2)): t
        for option in _with_halo(merged, atom, list(options(merged.gemm, descriptor, atom)))
        for t in (replace(option, blocks=1), replace(option, blocks=2))
    }
    gemms = [plan_without_time(merged.gemm, descriptor, "corrected", tiling) for tiling in tilings.values()]
    cuts = [(gemm, (groups, *cut)) for gemm in gemms for cut in _windows(merged, gemm)]
    return [(gemm, cut) for gemm, cut in cuts if groups == 1 or cut[1] == 1]


def _distinct(plans: Iterable[tuple[Conv2dPlan, GemmPlan]]) -> list[tuple[Conv2dPlan, GemmPlan]]:
    """Returns the first plan of each tile, with its GEMM. Many optima lead to the same tile, which is priced once."""
    first: dict[tuple[object, ...], tuple[Conv2dPlan, GemmPlan]] = {}
    for plan, gemm in plans:
        first.setdefault((*plan.sizes.values(), plan.window, plan.blocks_wanted, plan.feasible), (plan, gemm))
    return list(first.values())


def _fastest(plans: Sequence[Conv2dPlan], waits: bool) -> tuple[int, int]:
    """Returns the number of the plan of least time, and its split. waits: True if taps wait for their filters."""
    works = [conv2d_reduction(plan, waits) for plan in plans]
    price(works)
    splits = [1 if plan.adds_zeros else work.split() for plan, work in zip(plans, works, strict=True)]

    def order(number: int) -> tuple[bool, float, float, int]:
        plan, work, split = plans[number], works[number], splits[number]
        # Several plans may be bound by HBM alike: take the one that is fastest apart from HBM.
        others = max(work.terms(split)[term] for term in ("CU", "L2"))
        return not plan.feasible, work.seconds(split), others, -plan.pixels * plan.tile_oc

    best = min(range(len(plans)), key=order)
    return best, splits[best]


def _with_halo(problem: Conv2dProblem, atom: MFMAAtom, tilings: list[Tiling]) -> list[Tiling]:
    """Returns the GEMM's optima and, for the area P*tOC of each, the shape that stages the least.

    A stage of channels loads h*P pixels of halo, h = hW*sH/tOW, and tOC*KH*KW filter elements per channel. The sum is least if
    both are equal: tOC = sqrt(P*tOC * h/(KH*KW)).
    """
    unit, found = 2 * atom.n, list(tilings)
    for tiling in tilings:
        p = _problem_of_tiles(problem, tiling)
        columns = _columns(p)
        brought = p.halo(1, columns)[1] * p.stride[0] / columns
        area = tiling.tile_m * tiling.tile_n
        wanted = round(sqrt(area * brought / (p.kh * p.kw)) / unit)
        channels = min(max(1, wanted), -(-p.ocg // unit), _LONGEST // unit) * unit
        pixels = min(area // channels, _LONGEST) // unit * unit
        if pixels and channels != tiling.tile_n:
            found.append(replace(tiling, tile_m=pixels, tile_n=channels, aim="halo and filters"))
    return found


def _problem_of_tiles(problem: Conv2dProblem, tiling: Tiling) -> Conv2dProblem:
    """Returns the problem as it is tiled for the K span of `tiling`: with `channel_factor` and without unread pixels."""
    p = space_to_channel(problem, channel_factor(problem, tiling.warp_k))
    return with_window(p, (p.kh, p.kw), 1)


def _windows(problem: Conv2dProblem, gemm: GemmPlan) -> list[tuple[int, Pair]]:
    """Returns factor and window of a cut with all taps and, if LDS cannot hold those with a whole K span, the largest that fits.

    A window is several whole rows of the filter, or a part of one row. `channel_factor` is not applied in the second case.
    """
    factor = channel_factor(problem, gemm.tiling.warp_k) if gemm.policy == "corrected" else 1
    more, p = space_to_channel(problem, factor), problem
    if _holds(more, (more.kh, more.kw), gemm):
        return [(factor, (more.kh, more.kw))]
    windows = [*((rows, p.kw) for rows in _divisors(p.kh)), *((1, columns) for columns in _divisors(p.kw))]
    held = next((window for window in windows if _holds(p, window, gemm)), (1, 1))
    return list(dict.fromkeys([(1, (p.kh, p.kw)), (1, held)]))


def _holds(p: Conv2dProblem, window: Pair, gemm: GemmPlan) -> bool:
    """True if LDS holds a stage of the smallest tile with a whole K span and a window of taps."""
    d, span = gemm.descriptor, gemm.tiling.warp_k * p.element.bytes
    return _smallest_stage(with_window(p, window, 1), gemm) <= d.lds_bytes // d.lds_granule * d.lds_granule // span


def _smallest_stage(p: Conv2dProblem, gemm: GemmPlan) -> int:
    """Returns the number of slots of X plus output channels of two taps of W that the smallest tile stages.

    Between planes of the halo, at most one LDS line of the smallest chunks is left free: one slot per bank.
    """
    t, columns = gemm.tiling, _columns(p)
    wide = -(-p.halo(1, columns)[1] // p.stride[1]) * p.stride[1]
    rows = p.halo(-(-t.waves_m * gemm.atom.m // columns), columns)[0]
    return rows * wide + gemm.descriptor.lds_banks + 2 * t.waves_n * gemm.atom.n + _part_spacing(p, gemm)


def _part_spacing(p: Conv2dProblem, gemm: GemmPlan) -> int:
    """Returns the channels of W that separate its parts (`TapLayout.part`)."""
    return 2 if gemm.tiling.warp_k * p.element.bytes > WIDEST * gemm.atom.lane_groups else 0


def _divisors(count: int) -> list[int]:
    """Returns the divisors of `count`, largest first."""
    return [part for part in range(count, 0, -1) if count % part == 0]


def _columns(p: Conv2dProblem) -> int:
    """Returns the output columns of a tile."""
    return min(ATOM, 1 << (p.ow - 1).bit_length())


def _fitting(problem: Conv2dProblem, gemm: GemmPlan, cut: Cut, plan: Conv2dPlan) -> Conv2dPlan:
    """Returns the plan with the GEMM's tile, or the largest that fits, for two blocks per CU if possible, else for one.

    plan: for two.
    """
    if plan.feasible or plan.blocks_wanted == 1:
        return plan
    # X's staging needs more registers than two blocks' waves leave each other. So one block: of a larger tile or, if
    # that needs too many as well, of this tile.
    larger = _plan(problem, gemm, cut, 1)
    if larger.feasible:
        return larger
    alone = replace(plan, blocks_wanted=1)
    return replace(alone, constraints=mark_binding(conv2d_constraints(alone, gemm), larger.binding.name))


def _on_border(gemm: GemmPlan, fitted: Conv2dPlan) -> Conv2dPlan | None:
    """Returns the plan whose tile exhausts LDS or ArchVGPRs and loads the least per output; None if the GEMM's tile fits.

    fitted: plan of the GEMM's tile, for two blocks per CU if possible.

    r rows and c channels use a*r + b*c of V available bytes or registers. A stage loads h*r + t*c: h = hW*sH halo pixels per row,
    t taps. Per output, h/c + t/r is least on the border a*r + b*c = V at c = V/(b + sqrt(a*b*t/h)).
    """
    d, t = gemm.descriptor, gemm.tiling
    p, wide, blocks = fitted.tiled_problem, fitted.tile_ow, fitted.blocks_wanted
    row, channel = -(-t.waves_m * gemm.atom.m // wide), t.waves_n * gemm.atom.n
    least, share = replace(fitted, tile_oh=row, tile_oc=channel), p.kh * p.kw / (p.halo(1, wide)[1] * p.stride[0])

    def resources_used(plan: Conv2dPlan) -> tuple[int, int]:
        made = conv2d_resources(plan)
        return made.lds_bytes, made.arch_vgprs

    budget = d.vgpr_budget(-(-blocks * t.waves_m * t.waves_n // d.simds_per_cu))[0]
    uses = (
        resources_used(least),
        resources_used(replace(least, tile_oh=2 * row)),
        resources_used(replace(least, tile_oc=2 * channel)),
    )
    borders = []
    for name, limit, base, taller, wider in zip(("LDS", "ArchVGPR"), (d.lds_bytes // blocks, budget), *uses, strict=True):
        a, b = (taller - base) / row, (wider - base) / channel
        borders.append((limit - base + a * row + b * channel, a, b, name))
    passed = [(v / (b + sqrt(a * b * share)), name) for v, a, b, name in borders if a * t.tile_m / wide + b * t.tile_n > v]
    if not passed:
        return None
    best, limits_channels = min(passed)
    channels = max(channel, int(min(best, t.tile_n)) // channel * channel)
    left, limits_rows = min((int((v - b * channels) / a), name) for v, a, b, name in borders)
    rows = t.tile_m // wide
    # A few rows more or fewer than on the border: whole registers or LDS lines leave room, or exceed it.
    for high in range(min(rows, left + row) // row * row, 0, -row):
        plan = with_tile(fitted, high, channels)
        if plan is not None and plan.resources.blocks_per_cu >= blocks:
            plan = replace(plan, blocks_wanted=blocks)
            limited_by = (_exceeded_limit(plan, high + row, gemm) or limits_rows) if high + row <= rows else limits_channels
            return replace(plan, constraints=mark_binding(conv2d_constraints(plan, gemm), limited_by))
    return None


def _exceeded_limit(plan: Conv2dPlan, rows: int, gemm: GemmPlan) -> str | None:
    """Returns the name of the first hard limit that the plan would exceed with `rows` rows; None if it fits."""
    other = replace(plan, tile_oh=rows)
    limits = conv2d_constraints(replace(other, resources=conv2d_resources(other)), gemm)
    return next((limit.name for limit in limits if limit.hard and not limit.satisfied), None)


def _even_rows(plan: Conv2dPlan, gemm: GemmPlan) -> Conv2dPlan | None:
    """Returns the plan with the number of rows that pads least; ties go to the most. None if the plan has it or it does not fit."""
    step, high = -(-plan.waves_p * plan.atom.m // plan.tile_ow), plan.tiled_problem.oh
    rows = max(range(step, plan.tile_oh + 1, step), key=lambda rows: (-(-(-high // rows) * rows), rows), default=plan.tile_oh)
    other = with_tile(plan, rows, plan.tile_oc) if rows != plan.tile_oh else None
    if other is None:
        return None
    other = replace(other, blocks_wanted=plan.blocks_wanted)
    return replace(other, constraints=mark_binding(conv2d_constraints(other, gemm), "problem size"))


def _plan(problem: Conv2dProblem, gemm: GemmPlan, cut: Cut, most_blocks: int) -> Conv2dPlan:
    d, policy = gemm.descriptor, gemm.policy
    t, atom, e = gemm.tiling, gemm.atom, problem.element.bytes
    groups, factor, window = cut
    p = with_window(space_to_channel(merge_groups(problem, groups), factor), window, 1)
    least_p, least_oc = t.waves_m * atom.m, t.waves_n * atom.n
    tile_ow = _columns(p)
    least_oh = -(-least_p // tile_ow)
    wide = -(-p.halo(1, tile_ow)[1] // p.stride[1]) * p.stride[1]
    apart, least = _part_spacing(p, gemm), _smallest_stage(p, gemm)
    blocks = 2 if min(t.blocks, most_blocks) == 2 and d.lds_bytes // 2 // (t.warp_k * e) >= least else 1
    room = d.lds_bytes // blocks // d.lds_granule * d.lds_granule // e  # in elements
    tile_ic = min(t.warp_k, max(atom.k, _floor2(room // least)))
    by_lds = room // tile_ic - apart  # slots of X and channels of W

    def slots(oh: int) -> int:
        return halo_layout(p, oh, tile_ow, tile_ic, atom, d).slots

    tile_oc = max(least_oc, _largest((by_lds - slots(least_oh)) // 2, t.tile_n))
    left = by_lds - 2 * tile_oc
    most, sure = (
        (rows // wide - p.dilation[0] * (p.kh - 1) - 1) // p.stride[0] + 1 for rows in (left, left - d.lds_banks)
    )  # without slots between the planes, and with as many as there may be
    sizes = (_largest(most, t.tile_m // tile_ow), _floor2(most), _floor2(sure))
    tile_oh = max(least_oh, next((oh for oh in sizes if oh > 0 and slots(oh) <= left), 0))
    if (tile_oh * tile_ow, tile_oc) != (t.tile_m, t.tile_n):
        limited_by: str | None = "LDS"
    else:
        limited_by = "GEMM tile" if policy == "corrected" else None
    none = ResourcePlan((), (), (), 0, 0)
    tiles_of = (tile_oh, tile_ow, tile_oc, tile_ic, t.waves_m, t.waves_n, blocks, (t.tile_m, t.tile_n), 1)
    plan = Conv2dPlan(problem, d, policy, atom, groups, factor, window, *tiles_of, none, ())
    plan = replace(plan, resources=conv2d_resources(plan))
    return replace(plan, constraints=mark_binding(conv2d_constraints(plan, gemm), limited_by))


def channel_factor(problem: Conv2dProblem, span: int) -> int:
    """Returns the factor of `space_to_channel` for a problem: 1, 2 or 4, whichever needs the fewest products per pixel.

    Products include padding to whole steps; ties go to the least. It is 1 if four times the group's channels exceed a step: then
    padding a tap costs less than a factor. span: channels of a step.
    """
    p = problem
    if 4 * p.icg > span or p.kh * p.kw == 1:
        return 1
    factors = [f for f in (1, 2, 4) if f * f <= span]
    return min(factors, key=lambda f: -(-p.icg * f * f // span) * -(-p.kh // f) * -(-p.kw // f))


def with_tile(plan: Conv2dPlan, rows: int, channels: int) -> Conv2dPlan | None:
    """Returns an unsplit plan with a tile of `rows` and `channels` and the same channel step; None if no CU can hold it."""
    other = replace(plan, tile_oh=rows, tile_oc=channels, blocks_wanted=1, split_ic=1)
    other = replace(other, resources=conv2d_resources(other))
    return other if other.resources.blocks_per_cu and other.resources.lds_bytes <= plan.descriptor.lds_bytes else None


def with_nest(plan: Conv2dPlan, nest: Nest) -> Conv2dPlan:
    """Returns the plan of other tiles: whole atoms for each wave, and steps and rows of pixels that are powers of two."""
    _, groups, oc, oh, ow, part = (loop.tile for loop in nest[Level.DEVICE])
    groups = min(groups, plan.problem.groups)
    step, _, _, pixels, channels = (loop.tile for loop in nest[Level.BLOCK])
    atom, e = plan.atom, plan.problem.element.bytes
    pixels, channels = max(1, pixels // atom.m) * atom.m, max(1, channels // atom.n) * atom.n
    columns = min(_floor2(ow), ATOM)
    waves_p, waves_oc = max(1, oh // (pixels // columns)), max(1, oc // channels)
    least = max(atom.k, plan.factor**2, _WORD * atom.lane_groups // e)
    plan = replace(
        plan, tile_oh=waves_p * (pixels // columns), tile_ow=columns, tile_oc=waves_oc * channels, waves_p=waves_p,
        waves_oc=waves_oc, tile_ic=max(least, _floor2(step)), blocks_wanted=1, groups=groups,
    )  # fmt: skip
    plan = replace(plan, split_ic=-(-plan.ic_steps // max(1, part // plan.tile_ic)))
    if groups > 1 and (plan.split_ic > 1 or plan.factor > 1):
        plan = replace(plan, groups=1)
    if plan.adds_zeros:
        plan = replace(plan, split_ic=1)
    plan = replace(plan, resources=conv2d_resources(plan))
    gemm = plan_gemm(plan.merged.gemm, plan.descriptor, plan.policy)
    return replace(plan, constraints=mark_binding(conv2d_constraints(plan, gemm)))


def _largest(bound: int, gemm: int) -> int:
    """Returns `gemm`, a side of the GEMM's tile, if it is within the bound, else the largest power of two that is."""
    return gemm if gemm <= bound else _floor2(bound)


def _floor2(value: int) -> int:
    return 1 << value.bit_length() - 1 if value > 0 else 0
