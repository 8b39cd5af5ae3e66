"""Time of a tiled matrix product whose parameters are known: its instructions (`tile_loop`) on the model of a GPU.

Addresses are assumed to be coalesced and free of bank conflicts. The cache level that serves a load follows from the workgroups
that run together and share a tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.descriptor import CLOCKS_PER_PASS, WAVEFRONT, HardwareDescriptor
from simgpu.hardware.rates.clocks import Busy, sustained_clock
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import Shares
from simgpu.timing.code import CodeColumns, columns
from simgpu.timing.gpu import STEADY_CLOCK, Gpu, Load, Mechanisms, settle
from simgpu.timing.native import state
from simgpu.timing.native.state import STORE
from simgpu.timing.predict import GroupResources
from simgpu.tools.validation.tile_loop import TileKernel, epilogue_issues, prologue_issues, step

STEPS = 40_000  # wave-instructions of a workgroup that are modelled at most; longer loops are extrapolated


def resources(kernel: TileKernel) -> GroupResources:
    """Returns registers and LDS that the tile needs."""
    acc = kernel.results * max(1, kernel.out // 4 if kernel.out > 4 else 1)
    depth = kernel.k if kernel.direct else kernel.atom.k * min(kernel.parts, kernel.parts_ahead + 1)
    parts = (kernel.wave_m + kernel.wave_n) * depth * kernel.element // WAVEFRONT // 4
    loaded = 0 if kernel.direct else sum(load.lane_bytes for load in kernel.load_issues) // 4
    lds = kernel.stages * (kernel.m + kernel.n) * kernel.k * kernel.element
    return GroupResources(min(256, 48 + parts + loaded), min(256, acc), 80, lds, kernel.waves)


CLOCK_PASSES = 3  # iterations of the fixed point of a clock and the matrix work done at it


def at_its_clock(
    kernel: TileKernel, chip: HardwareDescriptor, m: int, n: int, k: int, batch: int = 1, *, on: Mechanisms | None = None,
    warm: bool = False,
) -> tuple[TileTime, float]:  # fmt: skip
    """Models a product at the clock that the board sustains for it; returns that clock in MHz, too."""
    mhz = float(chip.clock_mhz)
    groups = math.ceil(m / kernel.m) * math.ceil(n / kernel.n) * kernel.split * batch
    for _ in range(CLOCK_PASSES):
        found = model(kernel, chip, m, n, k, batch, mhz=mhz, on=on, warm=warm)
        busy = Busy.product(found.efficiency)
        before, mhz = mhz, sustained_clock(chip, busy, min(1.0, groups / chip.num_cus), kernel.atom.a_type).mhz
        if abs(mhz / before - 1) < STEADY_CLOCK:
            break
    return found, mhz


SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)


def tuned_time(
    kernel: TileKernel, chip: HardwareDescriptor, m: int, n: int, k: int, batch: int = 1, *, on: Mechanisms | None = None
) -> TileTime:
    """Models a product with the fastest split of K, as tuning left it: partial sums in f32 that a second kernel adds."""
    best, mhz = at_its_clock(kernel, chip, m, n, k, batch, on=on)
    groups = math.ceil(m / kernel.m) * math.ceil(n / kernel.n) * batch
    for split in SPLITS[1:]:
        if groups * split > 2 * chip.num_cus or k // split < kernel.k:
            break
        part = replace(kernel, split=split, out=4)
        found, mhz = at_its_clock(part, chip, m, n, k, batch, on=on)
        adding = (split * 4 + kernel.out) * m * n * batch / sustained_rates(chip).mall + pipelines(chip.arch).launch_us * 1e-6
        cycles = found.cycles + adding * mhz * 1e6
        if cycles < best.cycles:
            best = replace(found, cycles=cycles)
    return best


@dataclass(frozen=True)
class TileTime:
    """Modelled time of a product."""

    cycles: float  # of the whole launch
    step: float  # clocks of a workgroup's loop step in steady state
    efficiency: float  # fraction of these in which the matrix units work


def model(
    kernel: TileKernel, chip: HardwareDescriptor, m: int, n: int, k: int, batch: int = 1, *, mhz: float | None = None,
    on: Mechanisms | None = None, row: Pipelines | None = None, warm: bool = False,
) -> TileTime:  # fmt: skip
    """Models a product of m, n and k."""
    on, row = on or Mechanisms(), row or pipelines(chip.arch)
    tiles = math.ceil(m / kernel.m), math.ceil(n / kernel.n)
    groups = tiles[0] * tiles[1] * kernel.split * batch
    steps = max(1, math.ceil(k / kernel.split / kernel.k))
    length = len(step(kernel))
    most = max(4, min(steps, STEPS // max(1, length * kernel.waves)))
    resident = min(resources(kernel).resident(chip), math.ceil(groups / chip.num_cus))
    traffic = _traffic(kernel, chip, tiles, groups, resident, warm, on)

    def cycles(count: int) -> tuple[float, state.CuResult]:
        code, work = _build(kernel, row, count, on, min(math.ceil(groups / chip.num_cus), 4 * resident))
        past, late = (np.repeat(np.array(part)[:, None], len(code.unit), 1) for part in traffic)
        past[:, code.flags & STORE != 0] = [[_line_fraction(kernel)], [1.0]]
        shares = Shares(past, late, np.zeros(past.shape[1]))

        def run(load: Load) -> tuple[tuple[Gpu, state.CuResult], Load, float]:
            gpu = Gpu(chip, row, on, code, work, resident, shares, kernel.waves, groups, mhz or chip.clock_mhz, load)
            result = gpu.steady()
            return (gpu, result), gpu.load_of(result), 0.0

        gpu, result = settle(run)
        return gpu.cycles(result), result

    whole, longer = cycles(most)
    less, shorter = cycles(most // 2)
    first = [float(one.ends[0]) for one in (longer, shorter)]
    each = (first[0] - first[1]) / max(1, most - most // 2)
    matrix = kernel.atoms * kernel.atom.passes * CLOCKS_PER_PASS * kernel.waves * resident / chip.simds_per_cu
    total = whole + (steps - most) * (whole - less) / max(1, most - most // 2)
    return TileTime(total, each, matrix / max(1.0, each))


def _traffic(
    kernel: TileKernel, chip: HardwareDescriptor, tiles: tuple[int, int], groups: int, resident: int, warm: bool, on: Mechanisms
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the fractions of the requests that pass L2 and the Infinity Cache, and the fractions that wait for them.

    Workgroups that run together request a shared tile once. All wait, since workgroups that share a tile reach it together.
    """
    if not on.caches:
        return (1.0, 1.0), (1.0, 1.0)
    together = np.arange(min(groups, chip.num_cus * resident))
    width = max(1, kernel.columns)
    inner = tiles[0] * width  # workgroups of a column of `width` tiles of n
    column, rest = together % (tiles[0] * tiles[1]) // inner, together % (tiles[0] * tiles[1]) % inner
    wide = np.minimum(width, tiles[1] - column * width)
    i, j = rest // wide, column * width + rest % wide
    depth = together // (tiles[0] * tiles[1])
    asked = passed = 0
    for xcd in range(chip.xcds):
        mine = together % chip.xcds == xcd
        asked += int(mine.sum()) * (kernel.m + kernel.n)
        passed += kernel.m * _distinct(i[mine], depth[mine]) + kernel.n * _distinct(j[mine], depth[mine])
    fetched = kernel.m * _distinct(i, depth) + kernel.n * _distinct(j, depth)
    past_mall = 0.0 if warm else fetched / max(1, passed)
    known = warm and chip.mall_bytes > 0
    return (passed / max(1, asked), past_mall if chip.mall_bytes else 1.0), (1.0, 0.0 if known else 1.0)


def _distinct(*columns: np.ndarray) -> int:
    return len({*zip(*columns, strict=True)})


def _build(kernel: TileKernel, row: Pipelines, steps: int, on: Mechanisms, groups: int) -> tuple[CodeColumns, state.Work]:
    start, loop = prologue_issues(kernel), step(kernel)
    issues = [*start, *loop, *epilogue_issues(kernel), Issue(Unit.NONE, Kind.END)]
    code = columns({number: (issue, 1) for number, issue in enumerate(issues)}, len(issues), row)
    first, last = len(start), len(start) + len(loop)
    trace = np.array([*range(first), *list(range(first, last)) * steps, *range(last, len(issues))], np.int64)
    kinds = code.accesses
    rows = np.zeros((len(issues), 3), np.int32)
    for number, issue in enumerate(issues):
        if issue.kind is Kind.LDS:
            rate = 256 if row.lds_port_overhead == 0 and not issue.store else 128
            rows[number, 0] = math.ceil(WAVEFRONT * issue.lane_bytes / rate)
        elif issue.kind is Kind.VMEM:
            rows[number] = _store_cost(kernel, issue) if issue.store else _load_cost(issue, row)
    if not on.lds:
        rows[code.kind == Kind.LDS, 0] = 0
    accesses = rows[trace[kinds[trace]]]
    zeros = np.zeros(kernel.waves, np.int64)
    return code, state.Work(trace, zeros, zeros + len(trace), accesses, zeros, kernel.waves, np.zeros(groups, np.int64))


def _line_fraction(kernel: TileKernel) -> float:
    """Fraction of a line that a store of results fills: L2 joins the parts before it writes them back."""
    store = next(issue for issue in epilogue_issues(kernel) if issue.store)
    return WAVEFRONT * store.lane_bytes / (64 * _store_cost(kernel, store)[1])


def _load_cost(issue: Issue, row: Pipelines) -> tuple[int, int, int]:
    """Clocks of the coalescer and lines of a load with adjacent lanes."""
    lines = math.ceil(WAVEFRONT * issue.lane_bytes / row.cache_line)
    return WAVEFRONT * issue.lane_bytes // 64, lines, lines


def _store_cost(kernel: TileKernel, issue: Issue) -> tuple[int, int, int]:
    """Clocks of the coalescer and lines of a store of results, in the layout of matrix instructions.

    A store writes columns, or rows, as many as the instruction has. Lanes pass 16 a clock, and a line a clock.
    """
    columns = kernel.atom.n if kernel.in_rows else WAVEFRONT // kernel.atom.m
    lines = columns * math.ceil(WAVEFRONT // columns * issue.lane_bytes / 64)
    return max(WAVEFRONT // 16, lines), lines, lines
