"""The clock of MI355X by type and matrix duty, from published runs: the calibration of `hardware.rates.clocks`.

ROCm/gfx950-gluon-tutorials gives for its kernels TFLOPS of the whole launch. From thread traces it gives the fraction of the
loop's clocks in which matrix instructions ran. All multiply 4096 x 4096 x K in one workgroup of 256 x 256 a CU, whose step is
2,048 matrix clocks. Prologue and epilogue of the traced one take 2,708 and 18,552 clocks (docs/mfma_efficiency.md). A run's
clock is its clocks over its seconds.

  python -m simgpu.tools.benchmarks.clock_fit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu import hardware

SIDE, STEP_CLOCKS = 4096, 2048
OUTSIDE = 2708 + 18552  # clocks of a workgroup outside the loop
DEPTH = {"f16": 64, "f8": 128, "f4": 256}  # of a step


@dataclass(frozen=True)
class PublishedRun:
    """A published run."""

    dtype: str
    k: int  # of the product
    duty: float  # of the loop, 0 to 1
    tflops: float
    source: str  # the README's folder below kernels/gemm

    @property
    def mhz(self) -> float:
        """Clock of the run."""
        clocks = self.k / DEPTH[self.dtype] * STEP_CLOCKS / self.duty + OUTSIDE
        return clocks * self.tflops / (2 * SIDE * SIDE * self.k) * 1e6


RUNS = (
    PublishedRun("f16", 8192, 0.25, 541, "a16w16 v1"), PublishedRun("f16", 8192, 0.33, 673, "a16w16 v2"),
    PublishedRun("f16", 8192, 0.4166, 755, "a16w16 v3"),
    PublishedRun("f16", 8192, 0.5187, 964, "a16w16 v4"), PublishedRun("f16", 8192, 0.5767, 1034, "a16w16 v5"),
    PublishedRun("f16", 8192, 0.6856, 1221, "a16w16 v5, llir"), PublishedRun("f16", 8192, 0.821, 1393, "a16w16 v7"),
    PublishedRun("f16", 8192, 0.967, 1486, "a16w16 v7, agpr"), PublishedRun("f16", 8192, 0.982, 1505, "a16w16 v7, amdgcnas"),
    PublishedRun("f16", 8192, 0.987, 1425, "a16w16 v9"), PublishedRun("f16", 16384, 0.977, 1460, "a16w16 v9"),
    PublishedRun("f16", 32768, 0.627, 1305, "a16w16 v9"),
    PublishedRun("f16", 8192, 0.998, 1437, "inter_wave/a16w16"), PublishedRun("f16", 16384, 0.998, 1485, "inter_wave/a16w16"),
    PublishedRun("f16", 32768, 0.843, 1291, "inter_wave/a16w16"),
    PublishedRun("f8", 16384, 0.6111, 2723, "intra_wave/a8w8 base"),
    PublishedRun("f8", 16384, 0.9375, 3177, "intra_wave/a8w8 llir"),
    PublishedRun("f8", 16384, 0.9806, 3231, "intra_wave/a8w8 agpr"),
    PublishedRun("f8", 16384, 0.9952, 3232, "intra_wave/a8w8 amdgcnas"),
    PublishedRun("f8", 8192, 0.995, 3043, "intra_wave/a8w8"), PublishedRun("f8", 32768, 0.976, 3059, "intra_wave/a8w8"),
    PublishedRun("f8", 8192, 0.997, 2901, "inter_wave/a8w8"), PublishedRun("f8", 16384, 0.998, 3076, "inter_wave/a8w8"),
    PublishedRun("f8", 32768, 0.99, 3054, "inter_wave/a8w8"), PublishedRun("f8", 16384, 0.9622, 3151, "inter_wave"),
    PublishedRun("f4", 32768, 0.813, 4920, "intra_wave/a4w4 v0"), PublishedRun("f4", 32768, 0.939, 5189, "intra_wave/a4w4 v1"),
    PublishedRun("f4", 32768, 0.938, 5159, "inter_wave/a4w4 v2"), PublishedRun("f4", 32768, 0.6746, 4585, "inter_wave/a4w4 v0"),
    PublishedRun("f4", 32768, 0.751, 4885, "inter_wave/a4w4 v1"),
)  # fmt: skip


def at_full_duty(runs: Sequence[PublishedRun] = RUNS, board: str = "mi355x") -> dict[str, float]:
    """Returns MHz at a duty of 1 by type: of lines from the board's peak at 0, the one with the least squared error."""
    peak, found = hardware.target(board).clock_mhz, {}
    for dtype in DEPTH:
        duty, mhz = np.array([(run.duty, run.mhz) for run in runs if run.dtype == dtype]).T
        found[dtype] = float(((mhz - peak * (1 - duty)) * duty).sum() / (duty * duty).sum())
    return found


def main() -> None:
    """Prints the fit, and the distance of each run from it."""
    peak, full = hardware.target("mi355x").clock_mhz, at_full_duty()
    print(", ".join(f"{dtype} {mhz:.0f} MHz" for dtype, mhz in full.items()))
    for run in RUNS:
        line = peak - (peak - full[run.dtype]) * run.duty
        print(f"{run.dtype:4} K {run.k:6} duty {run.duty:6.1%} {run.mhz:5.0f} MHz, line {line / run.mhz - 1:+.1%}  {run.source}")


if __name__ == "__main__":
    main()
