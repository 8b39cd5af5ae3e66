"""Clock of MI355X by what its units do, from published runs: the calibration of `hardware.rates.clocks`.

ROCm/gfx950-gluon-tutorials gives for its kernels TFLOPS of the whole launch. From thread traces it gives the fraction of the
loop's clocks in which matrix instructions ran. All multiply 4096 x 4096 x K in one workgroup of 256 x 256 a CU, whose step is
2,048 matrix clocks. Prologue and epilogue of the traced one take 2,708 and 18,552 clocks (docs/mfma_efficiency.md). A run's
clock is its clocks over its seconds.

Attention has more VALU and LDS work than products. Its runs give what these units draw (`beyond_products`). The same tutorials
have six, of 64 heads with 16,320 queries and keys, d = 128, f16, in workgroups of 256 queries, 16 a CU. HipKittens gives times of
AITER's kernel, whose code object the model ran: six of its rows calibrate, and the others, with fewer heads of K and V, do not.

  python -m simgpu.tools.benchmarks.clock_fit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu import hardware
from simgpu.hardware.rates.clocks import LDS_OF_PRODUCTS, Busy, clock_line, sustained_clock

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


@dataclass(frozen=True)
class AttentionRun:
    """A published run of attention: fractions of clocks in which units are busy, and the clock."""

    matrix: float
    valu: float
    lds: float
    mhz: float
    source: str


_QUERIES, _COLUMNS, _HEADS, _PASSES, _GROUPS = 16320, 128, 64, 126, 16  # passes of the loop; workgroups of a CU
_READS = 2048  # LDS clocks of a pass: eight waves read two tiles of K and of V, 64 x 128, at 256 bytes a clock


def _gluon(tflops: float, clocks: float, loop: float, matrix: float, valu: int, source: str, board: float = 1.0) -> AttentionRun:
    """clocks: of a pass. loop: its part of a workgroup's clocks. valu: clocks of a wave for a tile. board: how much faster the
    board of the other runs is."""
    seconds = 4 * _HEADS * _QUERIES**2 * _COLUMNS / tflops / 1e12
    mhz = _GROUPS * _PASSES * clocks / loop / seconds / 1e6 * board
    return AttentionRun(matrix, 4 * valu / clocks, _READS / clocks, mhz, f"GLUON attention, {source}")


ATTENTION = (
    # note.md, 3.15; VALU of a tile by README.md: 304 + 336 clocks as compiled, or 192 + 448 and 448 + 448 by operation
    _gluon(1245.5, 4306.1, 0.951, 0.951, 640, "fmha_v4"), _gluon(1231.2, 4419.2, 0.952, 0.927, 650, "fmha_v4, scale in the loop"),
    _gluon(1167.1, 4801.7, 0.954, 0.853, 870, "fmha_v3: 972 of VALU, partly packed"),
    _gluon(1242.4, 4747.5, 0.968, 0.863, 640, "FlyDSL, lazy rescale"), _gluon(1043.8, 6694.5, 0.975, 0.612, 896, "FlyDSL"),
    # note.md, 1.1, on another board that is 3.8 % slower (3.10); 29,000 clocks outside the loop, as in the others
    _gluon(1322, 4105, 0.947, 0.998, 0, "matrix instructions only", board=1.0376),
    # HipKittens, analysis/attn/fwd/benchmark: 16 heads. Units by the model, whose clocks take the measured time at this clock.
    AttentionRun(0.86, 0.73, 0.43, 1417, "AITER, 16384"), AttentionRun(0.84, 0.72, 0.42, 1436, "AITER, 16384, causal"),
    AttentionRun(0.85, 0.72, 0.42, 1420, "AITER, 8192"), AttentionRun(0.81, 0.71, 0.41, 1434, "AITER, 8192, causal"),
    AttentionRun(0.81, 0.70, 0.41, 1424, "AITER, 4096"), AttentionRun(0.74, 0.68, 0.38, 1465, "AITER, 4096, causal"),
)  # fmt: skip


def beyond_products(runs: Sequence[AttentionRun] = ATTENTION, board: str = "mi355x") -> tuple[float, float]:
    """Returns MHz by which the clock falls below the products' line if VALU, and if LDS beyond products, is always busy."""
    idle, full = clock_line(hardware.target(board), "f16")
    busy = np.array([(run.valu, run.lds - LDS_OF_PRODUCTS * run.matrix) for run in runs])
    below = np.array([idle - (idle - full) * run.matrix - run.mhz for run in runs])
    valu, lds = np.linalg.lstsq(busy, below, rcond=None)[0]
    return float(valu), float(lds)


def main() -> None:
    """Prints the fits, and the distance of each run from them."""
    peak, full = hardware.target("mi355x").clock_mhz, at_full_duty()
    print(", ".join(f"{dtype} {mhz:.0f} MHz" for dtype, mhz in full.items()))
    for run in RUNS:
        line = peak - (peak - full[run.dtype]) * run.duty
        print(f"{run.dtype:4} K {run.k:6} duty {run.duty:6.1%} {run.mhz:5.0f} MHz, line {line / run.mhz - 1:+.1%}  {run.source}")
    print("VALU {:.0f} MHz, LDS {:.0f} MHz".format(*beyond_products()))
    for one in ATTENTION:
        held = sustained_clock(hardware.target("mi355x"), Busy(one.matrix, one.valu, one.lds), 1.0, "f16").mhz
        units = f"matrix {one.matrix:.0%}, VALU {one.valu:.0%}, LDS {one.lds:.0%}"
        print(f"{units}: {one.mhz:.0f} MHz, model {held / one.mhz - 1:+.1%}  {one.source}")


if __name__ == "__main__":
    main()
