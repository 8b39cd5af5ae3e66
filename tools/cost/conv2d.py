"""Seconds of a convolution's tiles: a step is a stage of channels with all taps; halos are read again, filters by every tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import LDS_CLOCKS, Sustained
from simgpu.operators.conv2d.limits import halo_clocks
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.tools.cost.launch import Launch, parts_of, second_pass


def conv2d_seconds(plan: Conv2dPlan, rates: Sustained, split: Any) -> dict[str, Any]:
    """Seconds by term of a plan's tiles with the input channels split otherwise: a number, or an array."""
    p, d, e, size = plan.cut, plan.descriptor, plan.problem.element.bytes, dtype(plan.problem.dtype_c).bytes
    (gx, gy, gz), taps, channel = plan.grid, p.kh * p.kw, plan.tile_ic * e
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    parts, each = parts_of(plan.ic_steps, split)
    tiles = p.n * p.groups * gx * gy * gz
    halo, filters = high * wide * channel, plan.tile_oc * taps * channel
    read = taps * (plan.pixels * plan.waves_oc + plan.tile_oc * plan.waves_p) * channel
    # What pads the channels of X lies past its buffer's end and asks for nothing; the packed filter holds it.
    asked = tiles * (p.icg * plan.asked_halo * e + plan.ic_steps * filters) * 1.0
    result = p.n * p.oc * p.oh * p.ow * size * 1.0
    written = np.where(parts > 1, parts * result, result)
    (x, w, _) = (float(np.prod(shape)) * e for shape in plan.problem.shapes)
    # Neighbours in flight on an XCD read one image's halo and one set of filters.
    in_flight = max(1.0, min(d.num_cus * max(1, plan.resources.blocks_per_cu), tiles) / d.xcds)
    missed = min(asked, max(x + w, asked / np.sqrt(in_flight)))
    least = min(missed, x + min(d.xcds, tiles) * w)
    missed -= min(1.0, d.l2_bytes / (x / d.xcds + w)) * (missed - least)
    kept = min(1.0, d.mall_bytes / (x + w))
    once = min(missed, x + w)
    spilt = np.where(parts > 1, np.maximum(0.0, written - d.mall_bytes), written)
    launch = Launch(
        workgroups=tiles * parts,
        resident=max(1, plan.resources.blocks_per_cu),
        steps=each,
        matrix=2.0 * plan.pixels * plan.tile_oc * plan.tile_ic * taps / d.matrix_flops_per_clock(p.dtype),
        lds=read / rates.rates.lds_read + (halo + filters) / rates.rates.lds_write,
        cache=filters / rates.rates.cache + halo_clocks(plan, rates.rates.cache),
        sync=LDS_CLOCKS * taps,
        step_bytes=halo + filters,
        stored=plan.pixels * plan.tile_oc * size * 1.0,
        l2_bytes=asked + written,
        missed_bytes=missed + written,
        hbm_bytes=once + (missed - once) * (1 - kept) + spilt,
    )
    terms = launch.seconds(rates)
    second = second_pass(rates, parts, p.n * p.oc * p.oh * p.ow, result, result)
    return {**terms, "second pass": second, "total": terms["total"] + second}
