"""Seconds of a softmax's rows: kept in registers and read once, or streamed twice, by one block or several."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.hardware.rates.sustained import Sustained
from simgpu.operators.softmax.plan import instructions
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.tools.cost.launch import Launch, parts_of

_MERGE_CLOCKS = 500  # of waves that share a row: a barrier and LDS, for maximum and for sum


def softmax_seconds(
    p: SoftmaxProblem, rates: Sustained, waves_row: int, step: int, resident: int, split: Any, packing: int = 1
) -> dict[str, Any]:
    """Seconds by term. waves_row: waves that keep a row, 0 for rows that stream in steps of `step` elements, `split` blocks each;
    resident: blocks of a CU; packing: elements of a register."""
    d, e, e_y = rates.descriptor, p.element.bytes, p.element_y.bytes
    rows = 4 if waves_row <= 1 else 1
    groups = -(-p.rows // rows)
    reads = 1 if waves_row else 2
    held = p.n if waves_row else step
    steps = 1 if waves_row else 2 * parts_of(-(-p.n // step), split)[1]
    blocks = groups * (1 if waves_row else split)
    moved = p.rows * p.n * 1.0
    again = 0.0 if waves_row or p.rows * p.n * e > d.l2_bytes * d.xcds else 1.0  # the second read may hit L2
    missed = moved * e * (reads - again) + moved * e_y
    second = np.where(np.asarray(split) > 1, 1.0, 0.0)  # statistics in one kernel, values in another
    launch = Launch(
        workgroups=blocks,
        resident=resident,
        steps=steps,
        valu=held * rows * instructions(p, packing) / rates.valu_lanes,
        cache=held * rows * e / rates.rates.cache,
        sync=_MERGE_CLOCKS if waves_row > 1 else 0.0,
        step_bytes=held * rows * e,
        stored=p.n * rows * e_y / np.asarray(split),
        l2_bytes=moved * (e * reads + e_y),
        missed_bytes=missed,
        hbm_bytes=moved * (e + e_y) if d.mall_bytes >= moved * e or waves_row else missed,
    )
    terms = launch.seconds(rates)
    extra = second * (rates.launch + 1.5 * rates.memory_latency)
    return {**terms, "second pass": extra, "total": terms["total"] + extra}
