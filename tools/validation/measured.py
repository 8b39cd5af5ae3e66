"""Microbenchmarks as the model runs them: LDS reads, tiles bound by bytes in flight, products bound by memory, rates,
latencies.

Kernels of a few instructions are written here from their sources. The rest of the table (HIP, Triton and CK kernels without a
code object) is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simgpu import hardware
from simgpu.hardware import mfma
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.clocks import Busy, sustained_clock
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.gpu import Gpu, Load, Mechanisms, settle
from simgpu.timing.native import state
from simgpu.tools.validation import own_kernels
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.rows import Measurement
from simgpu.tools.validation.tile_kernel import at_its_clock
from simgpu.tools.validation.tile_loop import TileKernel

BOARDS = {
    "MI100": "mi100", "MI210": "mi210", "MI250X": "mi250x", "MI250": "mi210", "MI300X": "mi300x", "MI300A": "mi300a",
    "MI355X": "mi355x", "MI325X": "mi325x",
}  # fmt: skip
TIMES = 64  # passes of a microbenchmark's loop


@dataclass(frozen=True)
class MeasuredLoop:
    """Instructions that every wave repeats."""

    body: Sequence[Issue]
    access: tuple[int, int, int] = (0, 0, 0)  # clocks, requests and misses of each access
    past: float = 1.0  # fraction of the vector cache's misses that also miss L2


def clocks_of(
    loop: MeasuredLoop, chip: HardwareDescriptor, waves: int, *, groups: int = 1, resident: int = 1, mhz: float = 0.0,
    on: Mechanisms | None = None, row: Pipelines | None = None,
) -> float:  # fmt: skip
    """Clocks of a CU for a pass of every wave, in steady state."""
    on, row = on or Mechanisms(), row or pipelines(chip.arch)
    code = columns({n: (issue, 1) for n, issue in enumerate((*loop.body, Issue(Unit.NONE, Kind.END)))}, len(loop.body) + 1, row)

    def run(times: int) -> float:
        steps = np.array([*list(range(len(loop.body))) * times, len(loop.body)], np.int64)
        zeros, count = np.zeros(waves, np.int64), int(code.accesses[steps].sum())
        access = (0, *loop.access[1:]) if not on.lds else loop.access
        rows, order = np.full((count, 3), access, np.int32), np.zeros(resident, np.int64)
        work = state.Work(steps, zeros, zeros + len(steps), rows, zeros, waves, order)
        beyond = np.full((2, len(code.unit)), loop.past)
        shares = Shares(beyond, beyond, np.zeros(beyond.shape[1]))

        def at(load: Load) -> tuple[state.CuResult, Load, float]:
            gpu = Gpu(chip, row, on, code, work, resident, shares, waves, groups, mhz or chip.clock_mhz, load)
            result = gpu.run(resident, gpu.sharing)
            return result, gpu.load_of(result), 0.0

        return float(settle(at).clocks)

    return (run(3 * TIMES) - run(TIMES)) / (2 * TIMES)


def chip_of(row: Measurement) -> HardwareDescriptor:
    """Returns the board of a row. Raises NotJudged for an unknown one."""
    name = next((board for said, board in BOARDS.items() if row.board.startswith(said)), None)
    if name is None:
        raise NotJudged(f"board {row.board!r} is not known")
    return hardware.target(name)


def predict_row(row: Measurement, on: Mechanisms | None = None) -> float:
    """Returns the model's figure in the row's unit. NotJudged says why there is none."""
    if (found := own_kernels.predict_row(row, chip_of(row), on)) is not None:
        return found
    for pattern, judge in JUDGES:
        if re.match(pattern, row.kernel) and (found := judge(row, chip_of(row), on)) is not None:
            return found
    raise NotJudged(f"{row.kernel.split()[0]}: no code object is published with the measurement")


def _lds(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    waves = int(row.shape[0])
    ways = re.search(r"(\d+)-way", row.shape)
    banks = 64 if "unaligned" in row.shape else 4 * int(ways[1]) if ways else 4
    read = Issue(Unit.LDS, Kind.LDS, lane_bytes=16, counts_lgkm=True)
    return clocks_of(MeasuredLoop([read] * 16, (banks, 0, 0)), chip, waves, on=on) / 16


GLUON = "v_mfma_f32_16x16x32_f16"  # instruction of all its f16 kernels


def _tile(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    """Returns the percentage of a tile loop's clocks in which the matrix units work. Its operands, 134 MB at most, are already
    in the Infinity Cache."""
    m, n, k = (int(part) for part in (*row.kernel.split()[-1].split("x"), "64"))
    ahead = 3 if 3 * (m + n) * k * 2 <= chip.lds_bytes else 2
    sides = max(32, m // 2), max(32, n // 2)
    tile = TileKernel(mfma.find(GLUON, chip.arch), 2, 2, m, n, k, *sides, direct=True, stages=ahead, ahead=ahead, columns=4)
    return 100 * at_its_clock(tile, chip, 16 * m, 16 * n, 8192, on=on, warm=True)[0].efficiency


def _ladder(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    """Models a product of 32 rows, 256 columns per workgroup, that streams B from memory: GB/s of the needed bytes."""
    m, k, columns = 32, 8192, 256
    n = columns * int(re.search(r"(\d+) workgroups", row.shape)[1])  # type: ignore[index]
    atom = mfma.find(GLUON, chip.arch)
    tile = TileKernel(atom, 2, 2, m, columns, 64, m // 2, columns // 2, direct=True, stages=2, ahead=2, columns=n // columns)
    found, mhz = at_its_clock(tile, chip, m, n, k, on=on)
    return 2 * (m * k + k * n + m * n) / (found.cycles / mhz + pipelines(chip.arch).launch_us) / 1e3


def _rate(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    """Models ipc.hip: 1,000 instructions of one kind by each of 1,024 x 2^20 threads, in ms."""
    matrix = Issue(Unit.MATRIX, Kind.MATRIX, 64, shadow=4)
    kinds = {
        "vmov": Issue(Unit.VALU), "smov": Issue(Unit.SCALAR), "snop": Issue(Unit.NONE), "mfma_f32_32x32x8bf16_1k": matrix,
    }  # fmt: skip
    kernel, groups = row.kernel.split()[-1], 1 << 20
    issue = kinds.get(kernel)
    if issue is None:
        return None
    clocks = clocks_of(MeasuredLoop([issue] * 20), chip, 16, resident=2, on=on) / 20 / 2  # for a workgroup's instruction
    busy = Busy(matrix=float(issue.unit is Unit.MATRIX), valu=float(issue.unit is Unit.VALU))
    mhz = sustained_clock(chip, busy, 1.0, "bf16").mhz
    return clocks * 1000 * groups / chip.num_cus / mhz / 1e3


def _latency(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    """Models gpu-latency: a pointer chase of one wave, in clocks."""
    size = int(re.search(r"working set (\d+) kB", row.shape)[1]) << 10  # type: ignore[index]
    figures = pipelines(chip.arch)
    misses, past = int(size > figures.cache_bytes), float(size > chip.l2_bytes)
    body = [Issue(Unit.VMEM, Kind.VMEM, lane_bytes=8, counts_vm=True), Issue(Unit.NONE, Kind.WAIT, vm=0)]
    return clocks_of(MeasuredLoop(body, (1, 1, misses), past), chip, 1, on=on)


JUDGES: Sequence[tuple[str, Callable[[Measurement, HardwareDescriptor, Mechanisms | None], float | None]]] = (
    ("LDS ds_read", _lds), ("gluon TCP-bound tile", _tile), ("gluon memory-bound", _ladder), ("ipc.hip", _rate),
    ("gpu-latency", _latency),
)  # fmt: skip
