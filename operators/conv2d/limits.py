"""Resources of a convolution's tiles, and their limits: registers, LDS, a stage's clocks, the kernel's time."""

from __future__ import annotations

from dataclasses import replace

from simgpu.hardware.dtypes import dtype
from simgpu.operators.conv2d.cost import conv2d_reduction, step_clocks
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.gemm.limits import CONSTANTS
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.levels import Level
from simgpu.operators.resources import (
    Constraint,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    alignment_row,
    freeing_remedy,
    limit_rows,
    occupancy_row,
    rounding_sgprs,
    scalar_ranges,
)

# The work-item; load, write and read addresses of the filter; write, last write and read addresses of the halo.
_ADDRESS_VGPRS = 7
_TEMPORARY_VGPRS = 1


def conv2d_scalars(plan: Conv2dPlan) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of a wave. The epilogue reuses registers of the loop's buffers and masks."""
    p, more = plan.problem, {}
    if plan.windows != (1, 1):
        more["window"] = 2
    if plan.tails and plan.end_of_channels == "buffer":
        more["image"] = 1
    if plan.adds_zeros:
        more["own_taps"] = 8
    arguments = 8
    if not p.plain and not plan.second_pass:
        words, narrow = dtype(p.gemm.epilogue_type).registers, p.scale_c != 1
        arguments += 2 * p.bias + words * (p.alpha != 1) + narrow + 2 * (p.bias or p.alpha != 1 or narrow)
        more["epilogue"] = 4 * p.bias + CONSTANTS.get(p.activation, 0) + rounding_sgprs(p.dtype_c, plan.descriptor.arch)
    return scalar_ranges(arguments=arguments, buffers=12, lane_masks=6, coordinates_and_counters=8, temporaries=4, **more)


def conv2d_resources(plan: Conv2dPlan) -> ResourcePlan:
    """Returns the registers of a wave and the LDS arrays of a block."""
    d, atom, waves = plan.descriptor, plan.atom, plan.waves_p * plan.waves_oc
    registers = (
        RegisterRange("accumulators", "acc", plan.pixels * plan.tile_oc // (waves * atom.m * atom.n) * atom.acc_registers),
        RegisterRange("X fragments", "arch", plan.pixels // plan.waves_p // atom.m * plan.fragment_words),
        RegisterRange("W fragments", "arch", plan.tile_oc // plan.waves_oc // atom.n * plan.fragment_words),
        RegisterRange("W staging", "arch", -(-plan.taps.packed_bytes // (4 * plan.threads))),
        RegisterRange("X staging", "arch", plan.batch * plan.piece_words),
        RegisterRange("X offsets", "arch", plan.offset_words),
        RegisterRange("addresses", "arch", _ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", _TEMPORARY_VGPRS),
    )
    lds = (LdsArray("X halo", plan.halo.nbytes), LdsArray("W", 2 * plan.taps.nbytes))
    return ResourcePlan.of(d, waves, registers, lds, conv2d_scalars(plan))


def with_time_rows(plan: Conv2dPlan) -> Conv2dPlan:
    """Returns the plan with soft rows about its time, inserted before the row "problem size"."""
    rows = conv2d_reduction(plan).time_rows(
        plan.split_ic, "input channels", step_clocks(plan), "of a stage of channels, all taps"
    )
    return replace(plan, constraints=(*plan.constraints[:-1], *rows, plan.constraints[-1]))


def conv2d_constraints(plan: Conv2dPlan, gemm: GemmPlan) -> tuple[Constraint, ...]:
    """Returns all constraints of a plan except those about its time. gemm: plan of the same products, for its tile."""
    p, d, r, atom = plan.tiled_problem, plan.descriptor, plan.resources, plan.atom
    limit, use = d.lds_bytes // plan.blocks_wanted, d.lds_allocation(r.lds_bytes)
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    parts = plan.windows[0] * plan.windows[1]
    of = f" of {plan.window[0]}x{plan.window[1]} taps, one of {parts} parts of the filter" if parts > 1 else ""
    note = f"input halo {high} x {wide} x {plan.tile_ic} channels{of}, two taps of W, {plan.blocks_wanted} block(s) a CU"
    remedy = freeing_remedy(use, limit, "bytes at the smallest tile", "use a type of fewer bytes")
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
