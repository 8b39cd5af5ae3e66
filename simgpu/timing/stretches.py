"""Times stretches of code by the CU model: the clocks at which waves that run them together issue each instruction.

Addresses are unknown, so the model assumes LDS accesses without bank conflicts and loaded data in L2. Branches count as taken;
pass a branch that is not taken as an instruction of `Kind.PLAIN`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.timing_rules.issue import SLOT, Issue, Kind, Unit
from simgpu.hardware.timing_rules.lds_banks import BANK_BYTES
from simgpu.timing import cu
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.gpu import Mechanisms, quiet_config
from simgpu.timing.native import state
from simgpu.timing.trace import LINE_BYTES

LDS_BANKS = 32
WAIT = Issue(Unit.NONE, Kind.WAIT, vm=0, lgkm=0)  # added to each stretch, so that the next one begins with all units idle
FAR = 1 << 20  # step between instruction numbers, so that every branch counts as taken


def issue_clocks(stretches: Sequence[Sequence[Issue]], arch: str, waves: int = 1) -> list[np.ndarray]:
    """Returns for each stretch the clocks at which each wave issues each instruction, int64 (waves, n).

    Clocks are counted from the wave's first issue. waves: number of waves that begin a stretch at the same time, alone on their
    compute unit. Raises TargetError for an architecture without figures.

    >>> from simgpu.hardware.timing_rules.issue import Issue, Unit
    >>> issue_clocks([[Issue(Unit.VALU), Issue(Unit.VALU)]], "gfx942")[0].tolist()
    [[0, 4]]
    """
    row = pipelines(arch)
    numbers: dict[Issue, int] = {}
    steps = [[numbers.setdefault(issue, len(numbers)) for issue in (*stretch, WAIT)] for stretch in stretches]
    code = columns({number: (issue, FAR) for issue, number in numbers.items()}, len(numbers), row)
    rows = np.array([_access(issue, row) for issue in numbers], np.int32).reshape(-1, 3)
    every = np.array([number for stretch in steps for number in stretch], np.int64)
    ends = np.cumsum([len(stretch) for stretch in steps])
    is_access = code.accesses[every]
    starts = np.concatenate([[0], ends[:-1]])
    access_starts = np.concatenate([[0], np.cumsum(is_access)])[starts]
    all_starts, all_ends, all_accesses = (np.repeat(each, waves) for each in (starts, ends, access_starts))
    order = np.arange(len(steps), dtype=np.int64)
    work = state.Work(every, all_starts, all_ends, rows[every[is_access]], all_accesses, waves, order)
    config = quiet_config(row, Mechanisms(code_fetch=False, dispatch=False), 1000.0)
    config["scalar_hit"] = row.l2_latency
    nothing = np.zeros((2, len(numbers)))
    begin = np.array([SLOT])  # at clock 0, a wave at a barrier would count as ended
    result = cu.run_cu(code, work, 1, begin, Shares(nothing, nothing, nothing[0]), config, len(every) * waves)
    wave, _, _, time, _, group = result.log.T
    issued = np.split(time[np.lexsort((time, wave, group))], ends[:-1] * waves)
    rows_of = [times.reshape(waves, -1) for times in issued]
    return [times[:, :-1] - times[:, :1] for times in rows_of]


def _access(issue: Issue, row: Pipelines) -> tuple[int, int, int]:
    """Returns the least cost of an access: clocks of the LDS banks or of the coalescer, requests of lines, requests to L2."""
    nbytes = WAVEFRONT * issue.lane_bytes
    if issue.kind is Kind.LDS:
        return max(1, nbytes // (BANK_BYTES * LDS_BANKS)), 0, 0
    lines = max(1, nbytes // row.cache_line)
    return max(1, nbytes // LINE_BYTES), lines, lines  # consecutive lanes go line by line, see `checks.path_trace`
