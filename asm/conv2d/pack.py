"""Kernel that packs a filter: W (oc,ic/groups,kh,kw) to the layout that a plan's kernel reads, 0 in padded channels."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.pixels import compare_below
from simgpu.asm.parts.buffers import OUTSIDE, buffer_at
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import log2, scalar_divmod, vector_divmod
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.conv2d.tree import Conv2d

THREADS = 256
MOST_BYTES = 1 << 30  # limit for a tile's filters, the same as for a convolution's offsets


def emit_pack(root: Conv2d) -> EmittedKernel:
    """Returns the kernel of operands (W, packed W) for a convolution's tree. It computes `operators.packed_filter`.

    A workgroup writes the (tOC, tIC) block of one tap of one channel step. LaunchError for filters of 2^30 bytes a tile and
    more.
    """
    plan = root.plan
    p, cut = plan.problem, plan.tiled_problem
    if plan.tile_oc * p.icg * p.kh * p.kw * p.element.bytes >= MOST_BYTES:
        raise LaunchError(f"{plan.title}: the filters of a tile pass 2^30 bytes: use smaller filters")
    k = KernelBuilder(f"pack_filter_{p.dtype}_{plan.tile_oc}x{plan.tile_ic}", plan.descriptor.arch, THREADS)
    k.declare("pointer", "W", "packed")
    arguments = k.load_arguments()
    k.work_item_x()
    k.comment(f"workgroup = (((merged group·OC tiles + OC tile)·IC steps + step)·{cut.kh} + kh)·{cut.kw} + kw")
    target, source = k.s.alloc("packed buffer", 4), k.s.alloc("W buffer", 4)
    buffer_at(k, target, arguments["packed"], "packed", (k.group_x, plan.taps.packed_bytes))
    place = _place(k, plan, source, arguments["W"])
    _move_block(k, plan, place, source, target)
    k.s_endpgm()
    return k.finish(grid=(_blocks(plan), 1, 1))


def _blocks(plan: Conv2dPlan) -> int:
    """Returns the number of (tOC, tIC) blocks in the packed filter."""
    return plan.merged.groups * plan.grid[2] * plan.ic_steps * plan.tiled_problem.kh * plan.tiled_problem.kw


def _place(k: KernelBuilder, plan: Conv2dPlan, source: Reg, pointer: Reg) -> dict[str, Reg]:
    """Returns SGPRs with the block's first input channel ("step"), and the first "kh" and "kw" of W under its tap.

    Also its first output channel ("oc"), from the merged group's first on. Builds `source`, a buffer of W from the tile's first
    output channel to the group's last.
    """
    p, cut = plan.problem, plan.tiled_problem
    filter_bytes = p.icg * p.kh * p.kw * p.element.bytes
    rest, limit, place = k.group_x, _blocks(plan), {}
    for name, count in (("kw", cut.kw), ("kh", cut.kh), ("step", plan.ic_steps), ("OC tile", plan.grid[2])):
        place[name] = scalar_divmod(k, rest, count, limit, name)
        limit = -(-limit // count)
    k.comment("W from the tile's first output channel on; it ends with the group's")
    first, left = k.s.alloc("first channel"), k.s.alloc("channels left")
    k.s_mul_i32(first, place["OC tile"], plan.tile_oc)
    k.s_mul_i32(left, rest, plan.merged.ocg)
    k.s_sub_u32(left, p.oc, left, note="channels to the end of W")
    k.s_min_u32(left, left, plan.merged.ocg)
    k.s_sub_u32(left, left, first)
    k.s_min_i32(left, left, plan.tile_oc)
    k.s_max_i32(left, left, 0)
    buffer_at(k, source, pointer, "W", (rest, plan.merged.ocg * filter_bytes), (first, filter_bytes))
    k.s_mul_i32(source[2], left, filter_bytes)
    place["oc"] = first
    for name in ("kh", "kw"):
        k.s_mul_i32(place[name], place[name], plan.factor, note=f"the first {name} of W under the tap")
    if plan.windows != (1, 1):
        bound = plan.ic_steps + 1
        for name, count, taps in zip(("kw", "kh"), plan.windows[::-1], plan.window[::-1], strict=True):
            window = scalar_divmod(k, place["step"], count, bound, f"window's {name}")
            k.s_mul_i32(window, window, taps)
            k.s_add_u32(place[name], place[name], window)
            k.s.free(window)
    k.s_mul_i32(place["step"], place["step"], plan.step_channels)
    return place


def _move_block(k: KernelBuilder, plan: Conv2dPlan, place: dict[str, Reg], source: Reg, target: Reg) -> None:
    """Moves the block's elements from `source` to `target`, THREADS at a time."""
    p, f, e, kind = plan.problem, plan.factor, plan.problem.element.bytes, Elements(k, plan.problem.dtype, plan.problem.dtype)
    channel, oc, row, column, scratch = (k.v.alloc(name) for name in ("channel", "output channel", "kh", "kw", "scratch"))
    data, bound, inside = k.v.alloc("data", max(1, e // 4)), k.s.alloc("bound"), k.s.alloc("inside", 2)
    for start in range(0, plan.tile_oc * plan.tile_ic, THREADS):
        k.comment(f"elements {start}.. of the block")
        k.v_add_u32(scratch, start, k.work_item)
        k.v_lshrrev_b32(oc, log2(plan.tile_ic), scratch)
        k.v_and_b32(row, plan.tile_ic - 1, scratch)
        k.v_and_b32(channel, plan.step_channels - 1, row)
        k.v_add_u32(channel, place["step"], channel, note="input channel of W")
        k.v_lshrrev_b32(row, log2(plan.step_channels), row, note="tap that is channels")
        k.v_and_b32(column, f - 1, row)
        k.v_lshrrev_b32(row, log2(f), row)
        k.v_add_u32(row, place["kh"], row)
        k.v_add_u32(column, place["kw"], column)
        compare_below(k, inside, plan.merged.icg, channel)
        if plan.groups > 1:
            _within_group(k, plan, place["oc"], oc, channel, inside)
        for value, limit in ((row, p.kh), (column, p.kw)):
            compare_below(k, "vcc", limit, value)
            k.s_and_b64(inside, inside, "vcc")
        k.s_mov_b32(bound, p.icg)
        k.v_mul_lo_u32(oc, oc, bound)
        k.v_add_u32(oc, channel, oc)
        for factor, term in ((p.kh, row), (p.kw, column)):
            k.s_mov_b32(bound, factor)
            k.v_mul_lo_u32(oc, oc, bound)
            k.v_add_u32(oc, term, oc)
        k.v_lshlrev_b32(oc, log2(e), oc)
        k.v_cndmask_b32(oc, OUTSIDE, oc, inside, note="no such channel or tap: outside, reads 0")
        kind.load(data, oc, source, note="W")
        k.v_lshlrev_b32(scratch, log2(e), scratch)
        if plan.tile_oc * plan.tile_ic < THREADS:
            compare_below(k, "vcc", plan.tile_oc * plan.tile_ic, k.work_item)
            k.v_cndmask_b32(scratch, OUTSIDE, scratch, "vcc")
        kind.store(data, scratch, target, note="packed")


def _within_group(k: KernelBuilder, plan: Conv2dPlan, first: Reg, oc: Reg, channel: Reg, inside: Reg) -> None:
    """Emits channel = the input channel in its own group, and clears lanes of `inside` whose output channel has another group."""
    p = plan.problem
    place = k.v.alloc("output channel of the merged group")
    k.v_add_u32(place, first, oc)
    group, rest = vector_divmod(k, place, p.ocg, plan.grid[2] * plan.tile_oc, "group of the output channel")
    other, within = vector_divmod(k, channel, p.icg, plan.ic_steps * plan.tile_ic, "group of the input channel")
    k.v_cmp_eq_u32("vcc", group, other)
    k.s_and_b64(inside, inside, "vcc")
    k.v_mov_b32(channel, within)
    k.v.free(place, group, rest, other, within)
