"""Wave-instructions per second of the model of a compute unit, on one core: `python -m simgpu.tools.benchmarks.timing`.

The mix is a matrix product's: matrix and vector instructions, LDS reads, loads, waits and barriers, of 4, 8, 16 and 32 waves.
"""

from __future__ import annotations

import time

import numpy as np

from simgpu import hardware
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.gpu import Gpu, Mechanisms
from simgpu.timing.native import state
from simgpu.tools.shared.console import print_figures

GOALS = {4: 20.0, 8: 20.0, 16: 10.0, 32: 10.0}  # million per second
STEPS = 4_000_000
ROUNDS = 5


def rate(waves: int) -> float:
    """Returns millions per second, the best of ROUNDS."""
    chip = hardware.target("mi300x")
    row = pipelines(chip.arch)
    matrix = Issue(Unit.MATRIX, Kind.MATRIX, 32, shadow=8)
    body = [
        Issue(Unit.VMEM, Kind.VMEM, lane_bytes=16, counts_vm=True), Issue(Unit.LDS, Kind.LDS, lane_bytes=16, counts_lgkm=True),
        *[matrix, Issue(Unit.VALU), Issue(Unit.SCALAR)] * 6, Issue(Unit.NONE, Kind.WAIT, vm=1, lgkm=0), *[matrix] * 6,
        Issue(Unit.NONE, Kind.BARRIER), Issue(Unit.BRANCH, Kind.BRANCH),
    ]  # fmt: skip
    code = columns({n: (issue, 1) for n, issue in enumerate((*body, Issue(Unit.NONE, Kind.END)))}, len(body) + 1, row)
    times = STEPS // waves // len(body)
    steps = np.array([*list(range(len(body))) * times, len(body)], np.int64)
    zeros, count = np.zeros(waves, np.int64), int(code.accesses[steps].sum())
    accesses = np.full((count, 3), (16, 8, 4), np.int32)
    work = state.Work(steps, zeros, zeros + len(steps), accesses, zeros, waves, np.zeros(1, np.int64))
    beyond = np.full((2, len(code.unit)), 0.3)
    shares = Shares(beyond, beyond, np.zeros(beyond.shape[1]))
    gpu = Gpu(chip, row, Mechanisms(), code, work, 1, shares, waves, chip.num_cus, chip.clock_mhz)
    gpu.steady()  # compiles it
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        gpu.steady()
        best = min(best, time.process_time() - began)
    return waves * len(steps) / best / 1e6


def main() -> None:
    """Prints the rates next to the goals."""
    print_figures({f"{waves} waves, M/s (goal {goal:g})": rate(waves) for waves, goal in GOALS.items()}, False)


if __name__ == "__main__":
    main()
