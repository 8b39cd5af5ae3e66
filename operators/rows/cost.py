"""Cost of a kernel of rows: a wave's part of a row is in registers and read once, or streamed once a pass.

A step loads its part of a row, and computes when that has arrived: after memory's latency, and the time in which one CU draws
these bytes. The next step's loads follow its results. A row in registers is one step, whose first pass goes on while loads arrive.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.cost import KernelCost
from simgpu.operators.resources import rounding_sgprs
from simgpu.operators.rows.tiles import RowPlan

# Instructions that convert an element to f32, or round and pack one, as counted in emitted kernels.
_LOADED = {"f32": 0.0, "f16": 1.5, "bf16": 1.0}
_ROUNDED = {"f32": 0.0, "f16": 1.5, "bf16": 0.5, "i8": 5.75, "fp8": 4.5, "bf8": 4.5}
_BF16 = 4.5  # to bf16, without an instruction for it
_MERGE_CLOCKS = 250  # for waves that share a row: a barrier and LDS, for each pass


def row_seconds(plan: RowPlan) -> dict[str, Any]:
    """Returns seconds by term: those of `KernelCost.terms`, with their "total".

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> 60e-6 < row_seconds(RowTree(RmsNorm(16384, 4096, "f16"), "mi300x").plan)["total"] < 90e-6
    True
    """
    if not plan.split:
        return _terms(plan, 1 if plan.resident else plan.reads, True, True)
    passes = len(plan.program.passes)
    kernels = [_terms(plan, 1, number == 0, number == passes) for number in range(passes + 1)]
    return {**kernels[-1], "total": sum(kernel["total"] for kernel in kernels)}


def count_instructions(plan: RowPlan) -> float:
    """Returns the VALU instructions for each element: operations, and what converts operands to f32 and results from it.

    >>> from simgpu.operators import Quantise, RowTree
    >>> count_instructions(RowTree(Quantise(64, 1000, "f16"), "mi300x").plan)
    10.25
    """
    p, arch = plan.problem, plan.descriptor.arch
    rounded = _BF16 if rounding_sgprs(p.dtype_y, arch) else _ROUNDED[p.dtype_y]
    return plan.program.operations + _operands(plan) * _LOADED[p.dtype] + len(plan.program.results) * rounded


def _operands(plan: RowPlan) -> float:
    """Returns the loaded elements for each of X. The rows that a wave has in flight share the vectors."""
    program = plan.program
    of_wave = plan.problem.rows * plan.parts / plan.blocks * plan.in_flight / plan.tile_rows  # some may have no rows
    return len(program.matrices) + len(program.vectors) / max(1.0, of_wave) + len(program.tables)


def _terms(plan: RowPlan, passes: int, first: bool, last: bool) -> dict[str, Any]:
    """Returns seconds by term of a kernel of some passes. first: X is cold; last: it writes the results."""
    p, d = plan.problem, plan.descriptor
    rates, program = sustained_rates(d), plan.program
    elements = p.rows * p.columns / plan.blocks  # of a block
    steps = 1 if plan.resident else passes * -(-plan.part // (d.wavefront_size * plan.loads))
    asked = elements * p.element.bytes * _operands(plan) * passes / steps
    clocks = elements / steps * count_instructions(plan) / rates.valu_lanes
    early = elements * (program.first_operations + _LOADED[p.dtype]) / rates.valu_lanes if plan.resident else 0.0
    once = {name: _bytes(plan, name) for name in (*p.read, *p.written)}
    read, written = sum(once[name] for name in p.read), sum(once[name] for name in p.written) * last
    cached = once["X"] <= d.l2_bytes * d.xcds
    cold, repeats = (read, passes - 1) if first else (0.0, passes)
    again = 0.0 if cached else repeats * once["X"]
    kept = d.mall_bytes >= once["X"] + sum(once[name] for name in p.written)
    return KernelCost(
        rates=rates,
        workgroups=plan.blocks,
        resident=max(1, plan.resources.blocks_per_cu),
        steps=steps,
        units=clocks,
        bare=_MERGE_CLOCKS * len(program.passes) if plan.waves_row > 1 and plan.shares_rows else 0.0,
        burst=max(0.0, asked / min(rates.rates.cache, rates.memory_of_cu / rates.clock) - early),
        flight=asked,
        asked=asked,
        missed_bytes=cold + again,
        hbm_bytes=cold + (0.0 if kept else again),
        written_bytes=written,
        once=rates.memory_latency * rates.clock if program.pivoted is not None else 0.0,
        stored=written / plan.blocks,
        waves=plan.waves,
    ).terms()


def _bytes(plan: RowPlan, name: str) -> float:
    p = plan.problem
    size = 1.0
    for extent in (p.read | p.written)[name]:
        size *= extent
    return size * dtype(p.type_of(name)).bytes
