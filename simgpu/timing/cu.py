"""Models a compute unit event by event: when each wave issues each instruction, and why it waits until then.

Four SIMDs take turns, one a clock. In its turn a SIMD issues at most one instruction of a wave and one a unit: VALU with
matrix, scalar, vector memory, LDS, branch. Each unit and queue stores the time at which it takes the next instruction. So
a wave's next issue is the later of two times, and the model goes from issue to issue. Among waves that can go at the same
time, priority decides, then turns at the VALU, and age at other units. The units themselves are in `simgpu.timing.native`.
"""

from __future__ import annotations

import numpy as np

from simgpu.timing.caches import Shares
from simgpu.timing.code import CodeColumns
from simgpu.timing.native import state, waves
from simgpu.timing.native.state import AHEAD, NEVER, SIMDS, Cu, CuResult, Work


def run_cu(
    code: CodeColumns, work: Work, resident: int, arrivals: np.ndarray, traffic: Shares, config: np.ndarray,
    events: int = 0, same_line: np.ndarray | None = None,
) -> CuResult:  # fmt: skip
    """Runs the workgroups of `work`, `resident` at a time.

    arrivals: clocks at which the first `resident` workgroups may begin; traffic: of `code`'s instructions; config: one
    `state.CONFIG`. events: most rows of the log. same_line: float64 (2, n), share and `moved` of
    `simgpu.timing.contention.LineContention` (default: none).
    """
    deepest = max(int(config["lds_fifo"][0]), int(config["vmem_queue"][0]))
    assert deepest <= state.DEEPEST, f"a queue of {deepest} entries: raise state.DEEPEST"
    count, groups, tally = len(code.unit), len(work.order), np.zeros(len(state.Tally), np.float64)
    tally[state.Tally.MATRIX_BEGIN] = np.inf
    result = CuResult(
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, len(state.Stall)), np.int64),
        np.full((count, state.PRODUCERS), -1, np.int32), np.zeros((count, state.PRODUCERS), np.int64),
        tally, np.zeros(groups, np.int64), np.zeros((events, state.LOG), np.int64),
    )  # fmt: skip
    cu = idle(config, code, traffic, work, resident, arrivals, same_line)
    logged = waves.run(cu, work, result)
    tally[state.Tally.CHANGED_BYTES] = cu.vmem["changed"][0, 1]
    return result._replace(log=result.log[:logged])


def idle(
    config: np.ndarray, code: CodeColumns, traffic: Shares, work: Work, resident: int, arrivals: np.ndarray,
    same_line: np.ndarray | None = None,
) -> Cu:  # fmt: skip
    """Returns a CU before its first workgroup; arguments as for `run_cu`."""
    total, count = resident * work.waves, len(code.unit)
    places = (total + SIMDS - 1) // SIMDS * SIMDS  # wave p runs on SIMD p % 4
    lines = count // max(1, int(config["code_line"][0]) // 4) + 2
    same_line = np.zeros((2, count)) if same_line is None else same_line
    cu = Cu(
        config, code.records, *traffic.by_round, traffic.moved, same_line,
        np.zeros(places, state.WAVE), np.zeros(places, state.OUTSTANDING),
        np.zeros(resident, state.GROUP), np.zeros(1, state.ISSUE), np.zeros(1, state.LDS), np.zeros(1, state.VMEM),
        np.zeros((state.LEVELS, count)), np.zeros((state.LEVELS, count)),
        np.full(lines, -1, np.int64), np.zeros(lines, np.int64), np.zeros(count, np.uint8),
        np.zeros((places, count if (code.flags & AHEAD).any() else 0), np.int64), np.zeros(1, state.PROGRESS),
    )  # fmt: skip
    cu.waves["ready"], cu.waves["noted"], cu.waves["producer"] = NEVER, -1, -1
    cu.issue["last"], cu.issue["dirty"] = -1, 1
    at_first = config["changed"] * np.minimum(config["room"], 1e12)[:, None]
    cu.vmem["held"], cu.vmem["changed"][:, 1:] = at_first[:, 0], at_first[:, 1:]
    cu.progress["left"], cu.progress["waiting"] = len(work.order), 1
    cu.groups["pending"] = np.where(np.arange(resident) < len(work.order), arrivals, -1)
    return cu
