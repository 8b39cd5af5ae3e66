"""Cost of a kernel of rows: a wave's part of a row is in registers and read once, or streamed once a pass."""

from __future__ import annotations

from typing import Any

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.cost import KernelCost
from simgpu.operators.rows.plan import RowPlan

_MERGE_CLOCKS = 250  # for waves that share a row: a barrier and LDS, for each pass


def row_seconds(plan: RowPlan) -> dict[str, Any]:
    """Returns seconds by term: those of `KernelCost.terms`, with their "total".

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> 60e-6 < row_seconds(RowTree(RmsNorm(16384, 4096, "f16"), "mi300x").plan)["total"] < 90e-6
    True
    """
    if not plan.split:
        return _terms(plan, 1 if plan.resident else plan.reads, True, True)
    passes = len(plan.problem.program(plan.descriptor.arch).passes)
    kernels = [_terms(plan, 1, number == 0, number == passes) for number in range(passes + 1)]
    return {**kernels[-1], "total": sum(kernel["total"] for kernel in kernels)}


def _terms(plan: RowPlan, passes: int, first: bool, last: bool) -> dict[str, Any]:
    """Returns seconds by term of a kernel of some passes. first: X is cold; last: it writes the results."""
    p, d = plan.problem, plan.descriptor
    rates, program = sustained_rates(d), p.program(d.arch)
    elements = p.rows * p.columns / plan.blocks  # of a block
    operands = len(program.matrices) + len(program.vectors) / plan.in_flight + len(program.tables)
    steps = 1 if plan.resident else passes * -(-plan.part // (d.wavefront_size * plan.loads))
    asked = elements * p.element.bytes * operands * passes / steps
    converted = (operands if p.element.bytes < 4 else 0) + len(program.results) * (p.element_y.bytes < 4)
    clocks = elements / steps * (program.operations + converted) / rates.valu_lanes
    once = {name: _bytes(plan, name) for name in (*p.read, *p.written)}
    read, written = sum(once[name] for name in p.read), sum(once[name] for name in p.written) * last
    cached = once["X"] <= d.l2_bytes * d.xcds
    again = 0.0 if cached else (passes - 1) * once["X"]
    missed = 0.0 if cached and not first else read
    return KernelCost(
        rates=rates,
        workgroups=plan.blocks,
        resident=max(1, plan.resources.blocks_per_cu),
        steps=steps,
        units=max(asked / rates.rates.cache, clocks),
        bare=_MERGE_CLOCKS * len(program.passes) if plan.waves_row > 1 and plan.shares_rows else 0.0,
        burst=asked / rates.rates.cache,
        flight=asked,
        asked=asked,
        missed_bytes=missed + again,
        hbm_bytes=missed + (0.0 if d.mall_bytes >= once["X"] else again),
        written_bytes=written,
        stored=written / plan.blocks,
        waves=plan.waves,
    ).terms()


def _bytes(plan: RowPlan, name: str) -> float:
    p = plan.problem
    size = 1.0
    for extent in (p.read | p.written)[name]:
        size *= extent
    return size * dtype(p.type_of(name)).bytes
