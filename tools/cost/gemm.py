"""Seconds of a GEMM's tiles, whoever chose them: loop, caches by the order of the tiles, epilogue, second pass of a split K.

In flight on an XCD are c tiles, h rows of them by w columns (`operators.gemm.order` numbers them so, h = sqrt(c*tN/tM)): they read
h*tM rows of A and w*tN columns of B through their L2 once. What was read before and still fits is a hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import LDS_CLOCKS, Sustained
from simgpu.operators.gemm.limits import matrix_flops_per_clock
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.tools.cost.launch import Launch, parts_of, second_pass

_ISSUED = {1: 2.0, 2: 1.0}  # v_perm_b32 a register of an operand that is transposed on its way, by bytes of an element


@dataclass(frozen=True)
class Tiles:
    """Tiles to be priced: numbers, or arrays that broadcast."""

    tile_m: Any
    tile_n: Any
    tile_k: Any
    split: Any = 1
    resident: Any = 1  # workgroups a CU
    waves_m: int = 2
    waves_n: int = 2


def gemm_seconds(problem: GemmProblem, rates: Sustained, tiles: Tiles, idle: bool = False) -> dict[str, Any]:
    """Seconds by term: those of the first kernel, "second pass" and the sum of both as "total"; idle: whether the matrix units are
    most of the time, so that loads in flight are reckoned with."""
    first = gemm_launch(problem, rates, tiles, idle)
    terms = first.seconds(rates)
    parts, _ = parts_of(-(-problem.k // tiles.tile_k), tiles.split)
    elements = problem.batch * problem.m * problem.n
    partial, result = (elements * dtype(kind).bytes * 1.0 for kind in (problem.accumulator, problem.dtype_c))
    second = second_pass(rates, parts, elements, partial, result)
    return {**terms, "second pass": second, "total": terms["total"] + second}


def gemm_launch(problem: GemmProblem, rates: Sustained, t: Tiles, idle: bool = False) -> Launch:
    """The first kernel; idle: as for `gemm_seconds`."""
    p, d, chip = problem, rates.descriptor, rates.rates
    e, c_bytes, sum_bytes = p.element_bytes, dtype(p.dtype_c).bytes, dtype(p.accumulator).bytes
    gx, gy = -(-p.n // t.tile_n), -(-p.m // t.tile_m)
    parts, each = parts_of(-(-p.k // t.tile_k), t.split)
    blocks = gx * gy * p.batch * parts
    staged = (t.tile_m + t.tile_n) * t.tile_k * e
    read = (t.tile_m * t.waves_n + t.tile_n * t.waves_m) * t.tile_k * e
    asked = p.batch * p.k * e * (p.m * gx + p.n * gy) * 1.0
    missed = np.minimum(asked, _missed(p, rates, t, gx, gy, parts, blocks))
    once = p.batch * p.k * e * (p.m + p.n) * 1.0
    kept = min(1.0, d.mall_bytes / once)
    written = np.where(parts > 1, p.batch * p.m * p.n * sum_bytes * parts, p.epilogue_bytes) * 1.0
    # Where loads decide, parts of results are taken to leave for HBM, as the closed form has it: nothing hides them.
    spilt = np.where((parts > 1) & (not idle), np.maximum(0.0, written - d.mall_bytes), written)
    transposed = (t.tile_m if p.trans_a else 0) + (0 if p.trans_b else t.tile_n)
    words = transposed * t.tile_k * e / 4 * _ISSUED.get(p.element.bits // 8, 0.0)
    return Launch(
        workgroups=blocks,
        resident=t.resident,
        steps=each,
        matrix=2.0 * t.tile_m * t.tile_n * t.tile_k / matrix_flops_per_clock(p, d),
        lds=read / chip.lds_read + staged / chip.lds_write,
        cache=staged / chip.cache,
        valu=words / rates.valu_lanes,
        sync=LDS_CLOCKS,
        step_bytes=staged,
        stored=t.tile_m * t.tile_n * c_bytes * 1.0,
        l2_bytes=asked + written,
        missed_bytes=missed + written,
        hbm_bytes=once + (missed - once) * (1 - kept) + spilt,
        flight=(np.minimum(t.tile_m, p.m) + np.minimum(t.tile_n, p.n)) * t.tile_k * e if idle else None,
        last_bytes=np.where(parts > 1, spilt, 0.0),
    )


def _missed(p: GemmProblem, rates: Sustained, t: Tiles, gx: Any, gy: Any, parts: Any, blocks: Any) -> Any:
    """Bytes of A and B that come from behind L2."""
    d, e = rates.descriptor, p.element_bytes
    in_flight = np.maximum(1, np.minimum(d.num_cus * t.resident, blocks) / d.xcds)
    rows = np.clip(np.sqrt(in_flight * t.tile_n / t.tile_m), 1, gy)
    rows = gy / np.ceil(gy / rows)  # equal groups of rows
    columns = np.clip(in_flight / rows, 1, gx)
    once_a, once_b = p.m * p.k * e * 1.0, p.n * p.k * e * 1.0
    first = p.batch * (gx / columns * once_a + gy / rows * once_b)
    # Each XCD reads at least its share of A and all of B, and keeps for later what L2 holds.
    least = np.minimum(first, p.batch * (once_a + min(d.xcds, p.m) * once_b))
    again = np.minimum(1.0, d.l2_bytes / ((once_a + once_b) / parts))
    return np.maximum(p.batch * (once_a + once_b), first - again * (first - least))
