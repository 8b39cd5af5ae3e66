"""Tiles that others use for a GEMM, next to ours: the paper's, the best of Triton's tutorial, Origami's rankings.

Triton: python/tutorials/03-matrix-multiplication.py, `get_hip_autotune_config`: eight tiles, eight waves, two stages, one in
LDS and one in registers. Its autotuner takes the fastest; here the model chooses. It never splits K.
Origami: rankings that AMD publishes for its tests (ROCm/rocm-libraries, shared/origami/python/tests/baselines/rankings), read
from the user's file. Its kernels share K by stream-K; here each tile gets the split with the least modelled time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.operators.gemm.cost import Tiles, gemm_cost, gemm_seconds
from simgpu.operators.gemm.plan import plan_gemm
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.tools.cost.candidates import candidates, splits

COLUMNS = ("tiles of", "tile", "waves", "split", "LDS", "blocks a CU", "workgroups", "L2 MB", "HBM MB", "us", "of ours")
_TRITON = ((32, 32), (64, 32), (32, 64), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256))
_TRITON_K, _TRITON_WAVES = 64, 8
_RANKED = re.compile(r"^\s*(\d+)x(\d+)x(\d+)x(\d+): \[\[(\d+), (\d+), (\d+),", re.M)  # MxNxKxbatch: the first tile
_COMMA_RANKED = re.compile(r"^(\d+)x(\d+)x(\d+)x(\d+),0,[^,]*,(\d+),(\d+),(\d+),", re.M)  # rank 0 of a table


@dataclass(frozen=True)
class Baseline:
    """A tile of one problem, from one source, with its modelled cost."""

    name: str
    tiles: Tiles
    lds_bytes: int
    seconds: float
    workgroups: int
    l2_bytes: float
    hbm_bytes: float

    def row(self, ours: float) -> tuple[Any, ...]:
        """Returns the values of COLUMNS; ours: seconds of this project's tiles."""
        t = self.tiles
        return (
            self.name, f"{t.tile_m}x{t.tile_n}x{t.tile_k}", t.waves_m * t.waves_n, t.split_k, self.lds_bytes, t.resident,
            self.workgroups, self.l2_bytes / 1e6, self.hbm_bytes / 1e6, 1e6 * self.seconds, self.seconds / ours,
        )  # fmt: skip


def baselines(problem: GemmProblem, d: HardwareDescriptor) -> list[Baseline]:
    """Returns our tile, the best of the search, Triton's best and the paper's, if they fit the target."""
    plan, published = plan_gemm(problem, d), plan_gemm(problem, d, "published")
    every = candidates(plan)
    times = gemm_seconds(problem, d, every.tiles)["total"]
    best = every.at(int(times.argmin()))
    resident = {row[:3]: row[3] for row in every.rows}[best[:3]]
    mine = Tiles(plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k, plan.resources.blocks_per_cu)
    found = [
        _price("simgpu", problem, d, mine, plan.resources.lds_bytes),
        _price("exhaustive search", problem, d, Tiles(*best, resident), _lds(problem, *best[:3], plan.stages)),
    ]
    triton = [
        _price("Triton's tutorial, best of 8", problem, d, tile, _lds(problem, tile.tile_m, tile.tile_n, tile.tile_k, 1))
        for m, n in _TRITON
        if (tile := _foreign(problem, d, m, n, _TRITON_K, _TRITON_WAVES)).resident
    ]
    found += [min(triton, key=lambda row: row.seconds)] if triton else []
    if published.feasible:
        tile = Tiles(published.tile_m, published.tile_n, published.tile_k, 1, published.resources.blocks_per_cu, 4, 4)
        found.append(_price("the paper", problem, d, tile, published.resources.lds_bytes))
    return found


def origami(text: str, d: HardwareDescriptor, kind: str) -> Iterator[tuple[GemmProblem, Baseline, Baseline]]:
    """Yields (problem, ours, Origami's first) for each ranked problem that has tiles which fit the target."""
    for match in (*_RANKED.finditer(text), *_COMMA_RANKED.finditer(text)):
        m, n, k, batch, tile_m, tile_n, tile_k = map(int, match.groups())
        problem = GemmProblem(m, n, k, kind, batch=batch)
        waves = 4 if tile_m * tile_n <= 256 * 256 else 8
        tile = _foreign(problem, d, tile_m, tile_n, tile_k, waves)
        if tile.resident:
            parts = np.array(splits())
            times = gemm_seconds(problem, d, _split(tile, parts))["total"]
            theirs = _split(tile, int(parts[int(np.argmin(times))]))
            lds = _lds(problem, tile_m, tile_n, tile_k, 1)
            yield problem, baselines(problem, d)[0], _price("Origami", problem, d, theirs, lds)


def _split(t: Tiles, split: Any) -> Tiles:
    return Tiles(t.tile_m, t.tile_n, t.tile_k, split, t.resident, t.waves_m, t.waves_n)


def _foreign(p: GemmProblem, d: HardwareDescriptor, tile_m: int, tile_n: int, tile_k: int, waves: int) -> Tiles:
    """Makes the tiles of a kernel with one stage in LDS and one in registers; resident is 0 if it does not fit."""
    e = p.element.bytes
    across = 2 if waves == 4 or tile_m >= tile_n else 4
    along = waves // across
    accumulators = tile_m * tile_n * dtype(p.accumulator).registers // (waves * d.wavefront_size)
    operands = (tile_m // along + tile_n // across) * min(tile_k, 32) * e // (4 * d.wavefront_size)
    staged = (tile_m + tile_n) * tile_k * e // (4 * waves * d.wavefront_size)
    resident = d.blocks_per_cu(operands + staged + 32, accumulators, 0, _lds(p, tile_m, tile_n, tile_k, 1), waves)  # SGPRs: unknown
    return Tiles(tile_m, tile_n, tile_k, 1, resident, along, across)


def _lds(p: GemmProblem, tile_m: int, tile_n: int, tile_k: int, stages: int) -> int:
    return stages * (tile_m + tile_n) * tile_k * p.element.bytes


def _price(name: str, p: GemmProblem, d: HardwareDescriptor, tiles: Tiles, lds: int) -> Baseline:
    kernel, seconds = gemm_cost(p, d, tiles), float(gemm_seconds(p, d, tiles)["total"])
    l2, hbm = kernel.asked * kernel.workgroups * kernel.steps + kernel.written_bytes, kernel.hbm_bytes + kernel.written_bytes
    return Baseline(name, tiles, lds, seconds, int(kernel.workgroups), float(l2), float(hbm))
