"""Figures of the model by the names of hardware counters, as rocprofv3 and ROCm Compute Profiler show them.

Names and units: ROCm documentation, "MI300 and MI200 Series performance counters and metrics". Each is of the whole launch.
Executions are those of the sampled workgroups, each for the workgroups nearest to it; clocks are the modelled CU's, in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from simgpu.advice.costs import Cost, LineCost
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import VECTOR_UNITS, Kind, Unit
from simgpu.timing.native import state
from simgpu.timing.predict import Prediction
from simgpu.timing.trace import LINE_BYTES

QUAD = 4  # clocks of a quad-cycle
KILOBYTE = 1024  # of FETCH_SIZE and WRITE_SIZE
# Counters that were compared with published profiles, and how far they are off.
COMPARED: Mapping[str, str] = {
    "FETCH_SIZE": "5 %: 15 runs, MI250X",
    "WRITE_SIZE": "1 %: one run, MI250X",
    "L2CacheHit": "7 points: 15 runs, MI250X",
}


def counters(prediction: Prediction, lines: list[LineCost]) -> dict[str, float]:
    """Returns modelled counters of a launch, by name: integers, and percentages to a tenth.

    >>> from simgpu import Device, asm, operators
    >>> from simgpu.advice.costs import line_costs
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> timed = run.time()
    >>> found = counters(timed, line_costs(timed, lambda offset: ""))
    >>> found["SQ_WAVES"], found["SQ_INSTS_MFMA"] == run.counters["instructions_mfma"]
    (16, True)
    """
    result, costs, hits = prediction.result, [cost for line in lines for cost in line.costs], _executions(prediction)
    launch = hits.sum() / max(1, result.hits.sum())  # of the modelled CU's clocks
    held = {stall.name: int(clocks) for stall, clocks in zip(state.Stall, result.stalls.sum(0), strict=True)}
    arbiter = held["ARBITER_NOT_WIN"] + held["ARBITER_WIN_EX_STALL"]

    def sum_over(wanted: Callable[[Cost], bool], each: Callable[[Cost], float] = lambda cost: 1.0) -> float:
        return sum(each(cost) * hits[cost.number] for cost in costs if wanted(cost))

    def memory(cost: Cost) -> bool:
        return cost.kind is Kind.VMEM

    def lds(cost: Cost) -> bool:
        return cost.kind is Kind.LDS

    line = pipelines(prediction.sampled.chip.arch).cache_line
    scalar = result.tally[state.Tally.SCALAR_BYTES]
    stored = sum_over(lambda cost: memory(cost) and cost.store, lambda cost: cost.touched)
    found = {
        "GRBM_GUI_ACTIVE": prediction.cycles,
        "SQ_WAVES": prediction.groups * prediction.sampled.used.waves,
        "SQ_WAVE_CYCLES": launch * result.latency.sum() / QUAD,
        "SQ_WAIT_ANY": launch * (result.stalls.sum() - arbiter) / QUAD,
        "SQ_WAIT_INST_ANY": launch * arbiter / QUAD,
        "SQ_BUSY_CU_CYCLES": prediction.active * result.clocks / QUAD,
        "SQ_INSTS_VALU": sum_over(lambda cost: cost.unit in (*VECTOR_UNITS, Unit.MATRIX)),
        "SQ_INSTS_MFMA": sum_over(lambda cost: cost.unit is Unit.MATRIX),
        "SQ_INSTS_SALU": sum_over(lambda cost: cost.unit is Unit.SCALAR and cost.kind is Kind.PLAIN),
        "SQ_INSTS_SMEM": sum_over(lambda cost: cost.kind is Kind.SMEM),
        "SQ_INSTS_VMEM_RD": sum_over(lambda cost: memory(cost) and not cost.store),
        "SQ_INSTS_VMEM_WR": sum_over(lambda cost: memory(cost) and cost.store),
        "SQ_INSTS_LDS": sum_over(lds),
        "SQ_INSTS_BRANCH": sum_over(lambda cost: cost.unit is Unit.BRANCH),
        "SQ_VALU_MFMA_BUSY_CYCLES": sum_over(lambda cost: cost.unit is Unit.MATRIX, lambda cost: cost.clocks),
        "SQ_LDS_IDX_ACTIVE": sum_over(lds, lambda cost: cost.taken),
        "SQ_LDS_BANK_CONFLICT": sum_over(lds, lambda cost: cost.taken - cost.least),
        "TCP_TOTAL_CACHE_ACCESSES_sum": sum_over(memory, partial(_looked_up, line)),
        "TCP_TCC_READ_REQ_sum": (launch * (result.tally[state.Tally.L2_BYTES] - scalar) - stored * LINE_BYTES) / line,
        "TCP_TCC_WRITE_REQ_sum": stored,
    }
    made: dict[str, float] = {name: max(0, round(float(value))) for name, value in found.items()}
    return made | _traffic(prediction, launch, sum_over) | _percentages(prediction, made)


def _looked_up(line: int, cost: Cost) -> float:
    """Returns the lines of the vector cache that an access looks up. line: their bytes.

    MI100 and MI200 look up a line in each clock of coalescing, some lines twice [ROCm blogs, "Seismic stencil codes": the counter
    of kernels along x, y and z]. Nothing is published for longer lines.
    """
    return cost.taken if line == LINE_BYTES else math.ceil(cost.touched * LINE_BYTES / line)


Executed = Callable[[Callable[[Cost], bool], Callable[[Cost], float]], float]  # sums a figure of executed instructions


def _traffic(prediction: Prediction, launch: float, executed: Executed) -> dict[str, float]:
    """Returns what L2 served and passed on. launch: executions of the launch for each of the modelled CU."""
    traffic, tally = prediction.traffic, prediction.result.tally
    row = pipelines(prediction.sampled.chip.arch)
    written = executed(
        lambda cost: cost.kind is Kind.VMEM and cost.store, lambda cost: cost.touched * LINE_BYTES * traffic.past[0, cost.number]
    )
    past_l2 = launch * float(tally[state.Tally.MALL_BYTES])
    requests = launch * float(tally[state.Tally.L2_BYTES]) * traffic.l2_requests / max(1, traffic.l2_bytes)
    missed = min(requests, past_l2 / row.l2_line)
    found = {
        "TCC_REQ_sum": requests, "TCC_HIT_sum": requests - missed, "TCC_MISS_sum": missed,
        "FETCH_SIZE": max(0.0, past_l2 - written) / KILOBYTE, "WRITE_SIZE": written / KILOBYTE,
    }  # fmt: skip
    hit = {"L2CacheHit": round(100 * (1 - missed / requests), 1)} if requests else {}
    return {name: round(value) for name, value in found.items()} | hit


def _percentages(prediction: Prediction, made: Mapping[str, float]) -> dict[str, float]:
    """Returns derived metrics, percentages of the time that a unit works, and waves of a CU that has any."""
    clocks, busy = max(1, prediction.result.clocks), prediction.active / prediction.sampled.chip.num_cus
    found = {
        "MeanOccupancyPerActiveCU": made["SQ_WAVE_CYCLES"] / max(1, made["SQ_BUSY_CU_CYCLES"]),
        "VALUBusy": 100 * busy * prediction.shares["VALU"], "MfmaUtil": 100 * busy * prediction.shares["matrix"],
        "MemUnitBusy": 100 * busy * prediction.shares["vector cache"],
        "LDSBankConflict": 100 * made["SQ_LDS_BANK_CONFLICT"] / (clocks * prediction.sampled.chip.num_cus),
    }  # fmt: skip
    return {name: round(float(value), 1) for name, value in found.items()}


def _executions(prediction: Prediction) -> np.ndarray:
    """Returns the executions of each instruction in the whole launch: each sample counts for the workgroups nearest to it."""
    traces = prediction.sampled.whole
    stand = prediction.sampled.stand_ins()
    times = np.bincount(stand, minlength=len(traces)) * prediction.groups / len(stand)
    counted = [np.bincount(trace.steps, minlength=len(prediction.code.unit)) * trace.stretch for trace in traces]
    return np.asarray(sum(count * time for count, time in zip(counted, times, strict=True)))
