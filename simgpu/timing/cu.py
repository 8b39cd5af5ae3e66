"""A compute unit, event by event: when each wave issues each instruction, and what it waits for until then.

Four SIMDs take turns, one a clock; in its turn a SIMD issues at most one instruction of a wave and one a unit: VALU with matrix,
scalar, vector memory, LDS, branch. Every unit and queue is known by the time at which it takes the next instruction, so a wave's
next issue is the later of two times, and the model goes from issue to issue. Between waves that could go at the same time,
priority decides, then age. The units themselves are in `simgpu.timing.units`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simgpu.timing import state, units
from simgpu.timing.code import CodeColumns
from simgpu.timing.state import Ledger, Work


@dataclass(frozen=True)
class CuResult:
    """ends: clock at which each workgroup ended, in the order of dispatch; clocks: of the whole.

    By an instruction's number: hits; latency: clocks from when waves came to it until they went on; stalls: (n, 9), of these by
    reason; producers, waited: (n, 8), the loads that a wait waited for and the clocks. tally: see `state`. log: the first events,
    (n, 6).
    """

    clocks: int
    ends: np.ndarray
    hits: np.ndarray
    latency: np.ndarray
    stalls: np.ndarray
    producers: np.ndarray
    waited: np.ndarray
    tally: np.ndarray
    log: np.ndarray


def run_cu(
    code: CodeColumns, work: Work, resident: int, arrivals: np.ndarray, past: np.ndarray, late: np.ndarray, config: np.ndarray,
    events: int = 0,
) -> CuResult:  # fmt: skip
    """Runs the workgroups, `resident` at a time.

    arrivals: clocks at which the first ones may begin; past, late: float64 (2, n), by number, see `simgpu.timing.caches.Shares`;
    config: one `state.CONFIG`; events: rows of the log.
    """
    deepest = max(int(config["lds_fifo"][0]), int(config["vmem_queue"][0]))
    assert deepest <= state.DEEPEST, f"a queue of {deepest} entries: raise state.DEEPEST"
    count, groups = len(code.unit), len(work.order)
    ledger = Ledger(
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, len(state.Stall)), np.int64),
        np.full((count, state.PRODUCERS), -1, np.int32), np.zeros((count, state.PRODUCERS), np.int64),
        np.zeros(len(state.Tally), np.float64), np.zeros(groups, np.int64), np.zeros((events, state.LOG), np.int64),
    )  # fmt: skip
    logged = units.run(state.idle(config, code, past, late, work, resident, arrivals), work, ledger)
    return CuResult(
        int(ledger.ends.max(initial=0)), ledger.ends, ledger.hits, ledger.latency, ledger.stalls, ledger.producers,
        ledger.waited, ledger.tally, ledger.log[:logged],
    )  # fmt: skip
