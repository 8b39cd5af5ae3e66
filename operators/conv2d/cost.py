"""Cost of a convolution kernel from its tiles.

A step is a stage of tile_ic input channels with all taps. The first halo and tap are loaded before it, and the last step loads no
halo. Every tile reads its halo and filters from L2 again. LDS holds two taps' filters, so a tap waits for the loads of the tap
after it. All tiles of the first round wait for memory, which they ask for the same filters at once; later rounds wait for L2, if
it holds them.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.clocks import element
from simgpu.hardware.rates.sustained import LDS_CLOCKS, sustained_rates
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.cost import KernelCost, choose, largest, parts_of, second_pass
from simgpu.operators.gemm.loads import stored_lines
from simgpu.operators.split import Reduction


def conv2d_seconds(plan: Conv2dPlan, split: Any) -> dict[str, Any]:
    """Returns seconds by term of a plan's tiles with another split of the input channels.

    Terms: those of `KernelCost.terms`, "second pass", and the sum of both as "total". split: blocks per tile, a number or an array.
    """
    p, work = plan.tiled_problem, conv2d_reduction(plan)
    terms = conv2d_cost(plan, split).terms()
    parts, _ = parts_of(plan.ic_steps, split)
    elements = p.n * p.oc * p.oh * p.ow
    second = second_pass(sustained_rates(plan.descriptor), parts, elements, work.partial_bytes, work.result_bytes)
    return {**terms, "second pass": second, "total": terms["total"] + second}


def conv2d_reduction(plan: Conv2dPlan, waits: bool = True) -> Reduction:
    """Returns the loop over input channels as a Reduction, which decides its split. waits: False if taps wait for nothing."""
    p, (gx, gy, gz) = plan.tiled_problem, plan.grid
    elements = p.n * p.oc * p.oh * p.ow
    return Reduction(
        tiles=p.n * p.groups * gx * gy * gz,
        steps=plan.ic_steps,
        elements=elements,
        partial_bytes=elements * dtype(p.accumulator).bytes,
        result_bytes=elements * dtype(p.dtype_c).bytes,
        first=lambda parts: conv2d_cost(plan, parts, waits),
    )


def conv2d_cost(plan: Conv2dPlan, split: Any, waits: bool = True) -> KernelCost:
    """Returns the cost of the convolution kernel, without the second pass of split channels. waits: as in `conv2d_reduction`."""
    p, d, e = plan.tiled_problem, plan.descriptor, plan.problem.element.bytes
    (gx, gy, gz), taps, channel, clocks = plan.grid, p.kh * p.kw, plan.tile_ic * e, _clocks(plan)
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    parts, each = parts_of(plan.ic_steps, split)
    tiles = p.n * p.groups * gx * gy * gz
    halo, filters = high * wide * channel, plan.tile_oc * taps * channel
    # Channels that pad X are past its buffer's end and load nothing. The packed filter contains its padding.
    asked = tiles * (p.icg * plan.asked_halo * e + plan.ic_steps * filters) * 1.0
    lines = filters + _halo_lines(plan, sustained_rates(d).row.cache_line)
    outputs = p.n * p.oc * p.oh * p.ow
    size, sum_size = dtype(p.dtype_c).bytes, dtype(p.accumulator).bytes
    x, w, _ = (prod(shape) * e * 1.0 for shape in plan.merged.shapes)
    # Neighbours in flight on an XCD read one image's halo and one set of filters.
    resident = max(1, plan.resources.blocks_per_cu)
    in_flight = max(1.0, min(d.num_cus * resident, tiles) / d.xcds)
    missed = min(asked, max(x + w, asked / in_flight**0.5))
    least = min(missed, x + min(d.xcds, tiles) * w)
    missed -= min(1.0, d.l2_bytes / (x / d.xcds + w)) * (missed - least)
    fits = min(1.0, d.l2_bytes / w)
    kept, once = min(1.0, d.mall_bytes / (x + w)), min(missed, x + w)
    return KernelCost(
        rates=sustained_rates(d),
        workgroups=tiles * parts,
        resident=resident,
        steps=each,
        element=element(plan.atom.mnemonic),
        matrix=clocks["matrix"],
        units=largest(clocks["LDS"], clocks["filters"] + clocks["halo"] * (each - 1) / each),
        bare=LDS_CLOCKS * taps + _lone_clocks(plan, halo + filters // taps),
        burst=clocks["halo"] + clocks["filters"] / taps,
        flight=halo + filters,
        again=(taps - 1) * waits + plan.batches - 1,
        near=choose(tiles * parts > d.num_cus * resident, 1 - d.num_cus * resident / (tiles * parts), 0.0) * fits,
        asked=max(lines, asked / (tiles * plan.ic_steps)),
        missed_bytes=missed,
        hbm_bytes=once + (missed - once) * (1 - kept),
        written_bytes=choose(parts > 1, parts * outputs * sum_size, outputs * size) * 1.0,
        stored=plan.pixels * plan.tile_oc * choose(parts > 1, _line_bytes(plan, sum_size), _line_bytes(plan, size)),
        waves=plan.waves_p * plan.waves_oc,
    )


def _lone_clocks(plan: Conv2dPlan, written: int) -> float:
    """Returns the clocks of a step in which a block has no products to compute: it writes its halo, and reads its first pixels.

    LDS holds one halo. So a step begins with a barrier, as the last halo is read, the writes, their latency and a barrier. The next
    tap's filters are written before the first pixels are read. written: bytes of the halo and of a tap's filters.
    """
    rates, read = sustained_rates(plan.descriptor), plan.pixels * plan.waves_oc * plan.tile_ic * plan.problem.element.bytes
    moved = written / rates.rates.lds_write + read / rates.rates.lds_read
    return moved + rates.row.lds_latency + 2 * rates.row.barrier


def _line_bytes(plan: Conv2dPlan, size: int) -> float:
    """Returns the bytes of the lines that stores touch for each element of `size` bytes: adjacent pixels or channels of an atom."""
    last, p = plan.problem.layout == "nhwc", plan.problem
    run, row = (plan.atom.n, p.oc) if last else (min(plan.atom.m, plan.tile_ow), p.ow)
    return float(size * stored_lines(run * size, row * size))


def _halo_lines(plan: Conv2dPlan, line: int) -> float:
    """Returns the average bytes of the cache lines that hold a stage's halo, which consists of equally spaced runs.

    0 with `factor` > 1, whose runs are whole rows of the filter.
    """
    p, e = plan.problem, plan.problem.element.bytes
    if plan.factor > 1:
        return 0.0
    high, wide = plan.tiled_problem.halo(plan.tile_oh, plan.tile_ow)
    if p.layout == "nchw":
        runs, run, apart = high * plan.mean_channels, wide * plan.lattice[1] * e, p.iw * e
    else:
        runs, run, apart = high * wide, plan.tile_ic * e, p.ic * e
    return float(runs * (run + line - gcd(run, apart, line)))


def step_clocks(plan: Conv2dPlan) -> dict[str, float]:
    """Returns clocks of a stage of channels with all taps, by unit: "matrix", "LDS", "cache"."""
    clocks = _clocks(plan)
    return {"matrix": clocks["matrix"], "LDS": clocks["LDS"], "cache": clocks["filters"] + clocks["halo"]}


def _clocks(plan: Conv2dPlan) -> dict[str, float]:
    """Returns the clocks of `step_clocks`, those of the cache by operand: "filters", and the next stage's "halo"."""
    p, d, rates, e = plan.tiled_problem, plan.descriptor, sustained_rates(plan.descriptor).rates, plan.problem.element.bytes
    taps, channel = p.kh * p.kw, plan.tile_ic * e
    high, wide = p.halo(plan.tile_oh, plan.tile_ow)
    staged = (high * wide + plan.tile_oc * taps) * channel
    read = taps * (plan.pixels * plan.waves_oc + plan.tile_oc * plan.waves_p) * channel
    return {
        "matrix": 2 * plan.pixels * plan.tile_oc * plan.tile_ic * taps / d.matrix_flops_per_clock(p.dtype),
        "LDS": read / rates.lds_read + staged / rates.lds_write,
        "filters": plan.tile_oc * taps * channel / rates.cache,
        "halo": halo_clocks(plan, rates.cache),
    }


def halo_clocks(plan: Conv2dPlan, cache: float) -> float:
    """Returns the vector cache's clocks for a stage's halo: to deliver its bytes (`cache` per clock) or to accept its lanes."""
    delivered = plan.asked_halo * plan.mean_channels * plan.problem.element.bytes / cache
    return max(delivered, plan.halo_clocks * plan.mean_channels / plan.tile_ic)
