"""Tiles that Triton compiles for a problem, and the formula's among them.

Triton's tiles are powers of two, and it has its own rule for a warp's part of a block. So of a plan count: the sides of a
block, rounded to the nearest power of two in the logarithm; its waves, two warps each; splits of K.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import AttentionProblem, GemmProblem, SoftmaxProblem, plan_attention, plan_gemm, plan_softmax
from simgpu.tools.validation.paper.silicon.boards import WARPS_OF_A_WAVE
from simgpu.tools.validation.paper.silicon.shapes import Problem

BYTES = 2  # of an element of f16
RESULTS_OF_A_LANE = 128  # accumulators; with more, ptxas spills
MOST_STAGES = 4
ROW_IN_REGISTERS = 65536  # columns that a block of 16 to 32 warps holds


@dataclass(frozen=True)
class CandidateTiles:
    """Tiles of one Triton kernel: of GEMM m, n, k; of softmax rows m and columns n; of attention queries m and keys n."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    split: int = 1
    whole: bool = False  # of softmax: a row is read once


def candidates(problem: Problem, chip: HardwareDescriptor) -> list[CandidateTiles]:
    """Returns the feasible tiles: what fits shared memory and registers."""
    if isinstance(problem, GemmProblem):
        return _gemm(problem, chip)
    return _softmax(problem) if isinstance(problem, SoftmaxProblem) else _attention(problem, chip)


def by_formula(problem: Problem, chip: HardwareDescriptor, policy: str = "corrected") -> CandidateTiles | None:
    """Returns the tiles of the closed formulas, as near as Triton has them. None if blocks share a row: no kernel here does."""
    if isinstance(problem, GemmProblem):
        plan = plan_gemm(problem, chip, policy)
        m, n, k = (_power(side) for side in (plan.tile_m, plan.tile_n, plan.tile_k))
        warps = min(8, max(4, _power(plan.waves * WARPS_OF_A_WAVE), m * n // 32 // RESULTS_OF_A_LANE))
        return CandidateTiles(m, n, k, warps, _stages((m + n) * k * BYTES, chip), _power(plan.split_k))
    if isinstance(problem, SoftmaxProblem):
        row = plan_softmax(problem, chip, policy)
        if row.split_n > 1:
            return None
        warps = min(32, _power(WARPS_OF_A_WAVE * row.waves_row * max(1, row.waves // row.waves_row)))
        if row.reads == 1 and row.packing == 1:  # Triton holds a row in f32, not two elements a register
            return CandidateTiles(_power(row.tile_rows), _above(problem.n), 0, warps, 1, whole=True)
        return CandidateTiles(_power(row.tile_rows), _power(row.tile_n), 0, warps, 2)
    tiles = plan_attention(problem, chip, policy)
    m, n = max(16, _power(tiles.tile_queries)), max(16, _power(tiles.tile_KV))
    warps = min(8, max(4, _power(tiles.threads // 32)))
    return CandidateTiles(m, n, 0, warps, _stages(2 * n * problem.d * BYTES, chip, m * problem.d * BYTES))


def _gemm(problem: GemmProblem, chip: HardwareDescriptor) -> list[CandidateTiles]:
    found = []
    for m, n, k, warps, stages in itertools.product((16, 32, 64, 128, 256), (32, 64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4)):
        blocks = math.ceil(problem.m / m) * math.ceil(problem.n / n)
        fits = m * n <= warps * 32 * RESULTS_OF_A_LANE and stages * (m + n) * k * BYTES <= chip.lds_bytes
        useful = m <= _above(problem.m) and n <= _above(problem.n) and (m > 16 or problem.m <= 64)
        for split in (1, 2, 4, 8):
            whole = blocks * split <= 2 * chip.num_cus and problem.k // k >= 2 * split
            if fits and useful and (split == 1 or whole):
                found.append(CandidateTiles(m, n, k, warps, stages, split))
    return found


def _softmax(problem: SoftmaxProblem) -> list[CandidateTiles]:
    whole = _above(problem.n)
    found = []
    for rows, warps in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32)):
        lane = rows * whole // (32 * warps)
        if whole <= ROW_IN_REGISTERS and lane <= 64 and (lane >= 1 or rows == 1):
            found.append(CandidateTiles(rows, whole, 0, warps, 1, whole=True))
        for n, stages in itertools.product((1024, 2048, 4096, 8192), (1, 2, 3)):
            if n < whole and 4 <= rows * n // (32 * warps) <= 32:
                found.append(CandidateTiles(rows, n, 0, warps, stages))
    return found


def _attention(problem: AttentionProblem, chip: HardwareDescriptor) -> list[CandidateTiles]:
    return [
        CandidateTiles(m, n, 0, warps, stages)
        for m, n, warps, stages in itertools.product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (4, 8), (2, 3, 4))
        if m * max(n, problem.d) <= warps * 32 * RESULTS_OF_A_LANE
        and m * problem.d * BYTES + stages * 2 * n * problem.d * BYTES <= chip.lds_bytes
    ]


def _stages(bytes_a_stage: int, chip: HardwareDescriptor, beside: int = 0) -> int:
    """Returns the stages that shared memory holds: the paper fills it, Triton's pipeline takes a few."""
    return max(1, min(MOST_STAGES, (chip.lds_bytes - beside) // bytes_a_stage))


def _power(value: float) -> int:
    """Returns the nearest power of two in the logarithm."""
    return 1 << max(0, round(math.log2(max(1, value))))


def _above(value: int) -> int:
    """Returns the least power of two that is not below the value."""
    return 1 << max(0, value - 1).bit_length()
