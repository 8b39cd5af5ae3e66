"""Cost of a softmax kernel: rows are kept in registers and read once, or streamed and read twice, by one block or several."""

from __future__ import annotations

from typing import Any

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.cost import KernelCost, choose, parts_of
from simgpu.operators.softmax.plan import instructions
from simgpu.operators.softmax.problem import SoftmaxProblem

_MERGE_CLOCKS = 500  # for waves that share a row: a barrier and LDS, for maximum and for sum


def softmax_seconds(
    p: SoftmaxProblem, d: HardwareDescriptor, waves_row: int, step: int, resident: int, split: Any, packing: int = 1
) -> dict[str, Any]:
    """Returns seconds by term: those of `KernelCost.terms`, "second pass", and the sum of both as "total".

    waves_row: waves that keep a row in registers; 0 for rows that are streamed in steps of `step` elements, by `split` blocks
    each (a number or an array). resident: blocks on a CU at a time. packing: elements per register.
    """
    rates, e, e_y = sustained_rates(d), p.element.bytes, p.element_y.bytes
    rows = 4 if waves_row <= 1 else 1
    held, reads = (p.n, 1) if waves_row else (step, 2)
    moved = p.rows * p.n * 1.0
    again = 0.0 if waves_row or p.rows * p.n * e > d.l2_bytes * d.xcds else 1.0  # the second read may hit L2
    missed = moved * e * (reads - again)
    cache = held * rows * e / rates.rates.cache
    kernel = KernelCost(
        rates=rates,
        workgroups=-(-p.rows // rows) * (1 if waves_row else split),
        resident=resident,
        steps=1 if waves_row else 2 * parts_of(-(-p.n // step), split)[1],
        units=max(cache, held * rows * instructions(p, packing) / rates.valu_lanes),
        bare=_MERGE_CLOCKS if waves_row > 1 else 0.0,
        burst=cache,
        flight=held * rows * e,
        asked=held * rows * e,
        missed_bytes=missed,
        hbm_bytes=moved * e if d.mall_bytes >= moved * e or waves_row else missed,
        written_bytes=moved * e_y,
        stored=p.n * rows * e_y / split,
        waves=max(4, waves_row),
    )
    terms = kernel.terms()
    second = choose(split > 1, rates.launch + 1.5 * rates.memory_latency, 0.0)  # statistics in one kernel, values in another
    return {**terms, "second pass": second, "total": terms["total"] + second}
