"""Kernel that packs a filter: W (oc,ic/groups,kh,kw) to the layout that a plan's kernel reads, 0 in padded channels."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.place import MOST_BYTES, compare_below
from simgpu.asm.parts.buffers import OUTSIDE, buffer_at, new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import scalar_digits, scalar_divmod
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.conv2d.tree import Conv2d

THREADS = 256


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
    target = new_buffer(k, arguments["packed"], "packed", (k.group_x, plan.taps.packed_bytes))
    source = k.s.alloc("W buffer", 4)
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
    rest, counts = k.group_x, (("kw", cut.kw), ("kh", cut.kh), ("step", plan.ic_steps), ("OC tile", plan.grid[2]))
    place = scalar_digits(k, rest, _blocks(plan), *counts)
    k.comment("W from the tile's first output channel on; it ends with the group's")
    first = k.scalar("first channel", of(place["OC tile"]) * plan.tile_oc)
    left = (p.oc - of(rest) * plan.merged.ocg).least(plan.merged.ocg) - first
    nbytes = left.least(plan.tile_oc, "i32").most(0, "i32") * filter_bytes
    buffer_at(k, source, pointer, "W", (rest, plan.merged.ocg * filter_bytes), (first, filter_bytes), nbytes=nbytes)
    place["oc"] = first
    for name in ("kh", "kw"):
        k.s_mul_i32(place[name], place[name], plan.factor, note=f"the first {name} of W under the tap")
    if plan.windows != (1, 1):
        bound = plan.ic_steps + 1
        for name, count, taps in zip(("kw", "kh"), plan.windows[::-1], plan.window[::-1], strict=True):
            window = scalar_divmod(k, place["step"], count, bound, f"window's {name}")
            k.set(place[name], of(window) * taps + place[name])
            k.s.free(window)
    k.s_mul_i32(place["step"], place["step"], plan.step_channels)
    return place


def _move_block(k: KernelBuilder, plan: Conv2dPlan, place: dict[str, Reg], source: Reg, target: Reg) -> None:
    """Moves the block's elements from `source` to `target`, THREADS at a time."""
    p, f, e, kind = plan.problem, plan.factor, plan.problem.element.bytes, Elements(k, plan.problem.dtype, plan.problem.dtype)
    channel, oc, row, column, scratch = (k.v.alloc(name) for name in ("channel", "output channel", "kh", "kw", "scratch"))
    data, inside = k.v.alloc("data", max(1, e // 4)), k.s.alloc("inside", 2)
    for start in range(0, plan.tile_oc * plan.tile_ic, THREADS):
        k.comment(f"elements {start}.. of the block")
        number = of(k.set(scratch, of(k.work_item) + start))
        within, tap = number % plan.step_channels, number % plan.tile_ic // plan.step_channels  # a tap that is channels
        k.set(oc, number // plan.tile_ic)
        k.set(channel, of(place["step"]) + within, note="input channel of W")
        k.set(row, of(place["kh"]) + tap // f)
        k.set(column, of(place["kw"]) + tap % f)
        compare_below(k, inside, plan.merged.icg, channel)
        if plan.groups > 1:
            _within_group(k, plan, place["oc"], oc, channel, inside)
        for value, limit in ((row, p.kh), (column, p.kw)):
            compare_below(k, "vcc", limit, value)
            k.s_and_b64(inside, inside, "vcc")
        filters = (of(oc) * p.icg + channel).below(MOST_BYTES)
        k.set(oc, ((filters * p.kh + row).below(MOST_BYTES) * p.kw + column) * e)
        k.v_cndmask_b32(oc, OUTSIDE, oc, inside, note="no such channel or tap: outside, reads 0")
        kind.load(data, oc, source, note="W")
        k.set(scratch, number * e)
        if plan.tile_oc * plan.tile_ic < THREADS:
            compare_below(k, "vcc", plan.tile_oc * plan.tile_ic, k.work_item)
            k.v_cndmask_b32(scratch, OUTSIDE, scratch, "vcc")
        kind.store(data, scratch, target, note="packed")


def _within_group(k: KernelBuilder, plan: Conv2dPlan, first: Reg, oc: Reg, channel: Reg, inside: Reg) -> None:
    """Emits channel = the input channel in its own group, and clears lanes of `inside` whose output channel has another group."""
    p = plan.problem
    output, source = (of(oc) + first).below(plan.grid[2] * plan.tile_oc), of(channel, plan.ic_steps * plan.tile_ic)
    with k.temporary(output // p.ocg) as group, k.temporary(source // p.icg) as other:
        k.v_cmp_eq_u32("vcc", group, other)
    k.s_and_b64(inside, inside, "vcc")
    k.set(channel, source % p.icg)
