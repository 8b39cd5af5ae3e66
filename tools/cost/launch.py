"""Seconds of one kernel launch: what its workgroups take of a CU a step, and its bytes by level, against what the chip sustains.

    T = launch + max(CU, L2, Infinity Cache, HBM)

CU    the busiest CU has N = ceil(workgroups/CUs) workgroups, `resident` of them at a time. j that run together take
      fill + steps * max(j * (busiest pipe of matrix, LDS, vector cache, VALU, misses) + sync/j, latency) + j * (stores): their
      loads overlap each other's work, and a lone one's waits are bare. The last, partial round has fewer together, or fewer CUs.
L2    bytes that workgroups ask for; the Infinity Cache answers what L2 misses; HBM what both miss and every write
HBM   draws at most `memory_of_cu` a working CU: few CUs do not saturate it

Where loads in flight are reckoned with (`flight`), the latency is memory's and the time in which a step's loads leave the CU, a CU
has `in_flight` bytes under way, and HBM's load lengthens each wait: `operators.split.StagedReduction`, for every tile of a search.

Fields may be numbers or numpy arrays that broadcast: one call prices all tiles of a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.rates.sustained import LDS_CLOCKS, STORE_BYTES, Sustained

_WAVES_A_CU = 32  # of a second pass: it takes few registers
_GROUP_ELEMENTS = 1024  # that a workgroup of a second pass adds: 256 work-items of four


@dataclass(frozen=True)
class Launch:
    """One kernel. Clocks are of a CU that works for one workgroup alone."""

    workgroups: Any
    resident: Any  # workgroups of a CU at a time, by registers, LDS and wave slots
    steps: Any  # of a workgroup's loop
    matrix: Any = 0.0  # clocks of the matrix units a step
    lds: Any = 0.0
    cache: Any = 0.0
    valu: Any = 0.0
    sync: Any = 0.0  # clocks a step in which a lone workgroup has no instruction to issue: barrier, first LDS read
    step_bytes: Any = 0.0  # loaded a step
    ahead: Any = 1.0  # steps that loads run ahead of their use
    stored: Any = 0.0  # bytes that a workgroup stores at its end
    l2_bytes: Any = 0.0  # of the whole launch
    missed_bytes: Any = 0.0  # of them, what L2 does not have
    hbm_bytes: Any = 0.0  # of these, what the Infinity Cache does not have; and all writes
    flight: Any = None  # bytes of a workgroup's loads in flight; None: these are not reckoned with
    last_bytes: Any = 0.0  # of the writes, what leaves when no loads are left to hide it

    def seconds(self, rates: Sustained) -> dict[str, Any]:
        """Seconds by term; "total" is launch and the largest of the others."""
        cus, clock, chip = rates.descriptor.num_cus, rates.clock, rates.rates
        miss = np.minimum(1.0, self.missed_bytes / np.maximum(1.0, self.l2_bytes))
        latency = chip.l2_clocks + miss * (chip.memory_clocks - chip.l2_clocks)
        behind = self.step_bytes * miss * clock / rates.memory_of_cu
        pipe = np.maximum.reduce(np.broadcast_arrays(self.matrix, self.lds, self.cache, self.valu, behind))
        fill = chip.memory_clocks + chip.memory_clocks / 2 + LDS_CLOCKS  # scalar arguments, first loads, first read
        drain = self.stored / STORE_BYTES
        row = pipelines(rates.descriptor.arch)
        memory, burst = 1e-9 * row.memory_ns * clock, self.cache

        def latencies(count: Any) -> Any:
            """Of memory, behind each other in a step of so many workgroups."""
            return np.maximum(1.0, count * self.flight / row.in_flight)

        def wait(count: Any) -> Any:
            if self.flight is None:
                return latency / self.ahead
            return np.maximum(memory + burst, latencies(count) * memory)

        def together(count: Any, pipe: Any, sync: Any) -> Any:
            alone = np.maximum(1, count)
            step = np.maximum(alone * pipe + sync / alone, wait(count))
            return np.where(count > 0, fill + self.steps * step + alone * drain, 0.0)

        each = -(-self.workgroups // cus)
        full, rest = each // self.resident, each % self.resident

        def rounds(pipe: Any, sync: Any) -> Any:
            return (full * together(self.resident, pipe, sync) + together(rest, pipe, sync)) / clock

        cu = rounds(pipe, self.sync)
        busy = np.minimum(cus, self.workgroups)
        hbm = self.hbm_bytes / np.minimum(rates.hbm, busy * rates.memory_of_cu)
        if self.flight is not None:
            alone, turns = rounds(0.0, 0.0), full + (rest > 0)
            waits = self.steps * (full * latencies(self.resident) + (rest > 0) * latencies(rest))
            leaving = self.last_bytes / rates.hbm / turns
            hbm = hbm - leaving
            queued = waits * 1e-9 * row.queue_ns / 2 * hbm
            hbm = leaving + (alone + hbm) / 2 + np.sqrt((alone - hbm) ** 2 / 4 + queued)
        l2, mall = self.l2_bytes / rates.l2, self.missed_bytes / rates.mall
        total = rates.launch + np.maximum.reduce(np.broadcast_arrays(cu, l2, mall, hbm))
        return {"CU": cu, "L2": l2, "Infinity Cache": mall, "HBM": hbm, "launch": rates.launch, "total": total}


def parts_of(steps: Any, split: Any) -> tuple[Any, Any]:
    """(blocks that share a tile, steps of each) when every block but the last has the same number of steps."""
    each = -(-steps // split)
    return -(-steps // each), each


def second_pass(rates: Sustained, parts: Any, elements: int, partial: float, result: float) -> Any:
    """Seconds of the kernel that adds `parts` partial results of so many elements and bytes each; 0 for one part.

    A work-item adds its parts one after the other, each a load's latency behind the last.
    """
    d = rates.descriptor
    groups = -(-elements // _GROUP_ELEMENTS)
    at_once = d.num_cus * _WAVES_A_CU // 4
    chain = -(-groups // at_once) * (parts + 1.5) * rates.memory_latency
    drawn = min(d.num_cus, groups) * rates.memory_of_cu
    spilt = np.maximum(0.0, parts * partial - d.mall_bytes)
    behind, hbm = (parts * partial + result) / min(rates.mall, drawn), (spilt + result) / min(rates.hbm, drawn)
    return np.where(parts > 1, rates.launch + np.maximum(np.maximum(chain, behind), hbm), 0.0)
