"""Every GEMM tile that the emitter accepts, for a plain exhaustive search. The product never searches; these tools judge it.

Sides are whole atoms of 2 x 2 waves up to 256, tK is one of the K spans below, LDS has the closed form's stages. K is split
into up to MOST_PARTS parts. The emitter's rules limit registers, LDS and residency (`operators.gemm.limits`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.gemm.cost import Tiles
from simgpu.operators.gemm.limits import Tiling, atom_of, gemm_resources
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import GemmProblem

LARGEST_SIDE = 256
SIZE = 256  # of the problem whose tiles are listed
MOST_PARTS = 512  # of K in this search; the planner has no such limit
SPANS = (1, 2)  # K spans in a step
DEEP_SPANS = (4, 8, 16)  # more spans for idle matrix units
LANE_BYTES = 128  # bytes of one operand that a lane stages: eight 128-bit loads


@dataclass(frozen=True)
class Candidates:
    """Tiles as columns (tM, tN, tK, workgroups per CU), and the splits to try for each."""

    rows: tuple[tuple[int, int, int, int], ...]
    splits: tuple[int, ...]

    @property
    def tiles(self) -> Tiles:
        """Tiles of the table, as arrays that broadcast: one row per tile and one column per split."""
        m, n, k, resident = (np.array(column)[:, None] for column in zip(*self.rows, strict=True))
        return Tiles(m, n, k, np.array(self.splits)[None, :], resident)

    def at(self, place: int) -> tuple[int, int, int, int]:
        """Returns (tM, tN, tK, split) at an index of the flattened table."""
        row, column = divmod(place, len(self.splits))
        return (*self.rows[row][:3], self.splits[column])


def splits() -> tuple[int, ...]:
    """Returns 1 to 64, then 32 steps for each doubling, up to MOST_PARTS."""
    beyond = np.unique(np.round(64 * 2 ** np.arange(0, np.log2(MOST_PARTS / 64) + 0.001, 1 / 32)).astype(int))
    return (*range(1, 64), *map(int, beyond))


@functools.lru_cache(256)
def _fitting(
    kind: GemmProblem, d: HardwareDescriptor, span: int, stages: int, deep: tuple[int, ...]
) -> tuple[tuple[int, int, int, int], ...]:
    atom, e = atom_of(kind, d), kind.element.bytes
    sides = range(2 * atom.m, LARGEST_SIDE + 1, 2 * atom.m)
    found = []
    for tile_m in sides:
        for tile_n in sides:
            for spans in (*SPANS, *deep):
                tile_k = spans * span
                if max(tile_m, tile_n) * tile_k * e > LANE_BYTES * 256:
                    continue
                use = gemm_resources(kind, d, atom, Tiling(tile_m, tile_n, tile_k, span, 2, 2, stages, 1))
                if use.blocks_per_cu:
                    found.append((tile_m, tile_n, tile_k, use.blocks_per_cu))
    return tuple(found)


def candidates(plan: GemmPlan) -> Candidates:
    """Returns the tiles that the emitter accepts for the plan's problem."""
    p = plan.problem
    # Registers and LDS depend on the other fields only; every type of scales takes these sizes.
    kind: Any = replace(p, m=SIZE, n=SIZE, k=SIZE, batch=1, lda=None, ldb=None, ldc=None)
    deep = tuple(spans for spans in DEEP_SPANS if plan.tiling.idle)
    rows = _fitting(kind, plan.descriptor, plan.warp_k, plan.stages, deep)
    return Candidates(rows, splits() if p.splits else (1,))
