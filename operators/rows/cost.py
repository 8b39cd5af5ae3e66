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
    p, d = plan.problem, plan.descriptor
    rates, program = sustained_rates(d), p.program(d.arch)
    elements = p.rows * p.columns / plan.blocks  # of a block
    operands = len(program.matrices) + len(program.vectors) / plan.in_flight + len(program.tables)
    steps = 1 if plan.resident else plan.reads * -(-plan.part // (d.wavefront_size * plan.loads))
    asked = elements * p.element.bytes * operands * (1 if plan.resident else plan.reads) / steps
    converted = (operands if p.element.bytes < 4 else 0) + len(program.results) * (p.element_y.bytes < 4)
    clocks = elements / steps * (program.operations + converted) / rates.valu_lanes
    once = {name: _bytes(plan, name) for name in (*p.read, *p.written)}
    read, written = sum(once[name] for name in p.read), sum(once[name] for name in p.written)
    again = 0.0 if plan.resident or once["X"] <= d.l2_bytes * d.xcds else (plan.reads - 1) * once["X"]
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
        missed_bytes=read + again,
        hbm_bytes=read + (0.0 if d.mall_bytes >= once["X"] else again),
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
