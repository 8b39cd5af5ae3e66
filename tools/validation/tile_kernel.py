"""A tiled matrix product as instructions, where only its parameters are known: the loop that a kernel's name describes.

Every wave loads its part of the next tiles of A and B, multiplies what LDS holds, stores the tiles to LDS and meets the others;
memory instructions are spread among the matrix instructions, as Tensile and hand-written loops do. Addresses are taken to be
coalesced and free of bank conflicts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.descriptor import CLOCKS_PER_PASS, HardwareDescriptor
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.timing_rules.issue import SLOT, Issue, Kind, Unit
from simgpu.timing import cu
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.predict import Gpu, Load, Mechanisms, Resources, resident_groups, settled

WAVE = 64
FIRST, SECOND = 0.6, 0.85  # of a step's matrix instructions: until loads must be there, until LDS holds the next tile
PARTS = 4  # of a tile's depth that is read ahead of its step: one
STEPS = 40_000  # wave-instructions of a workgroup that are modelled at most; longer loops are extrapolated


@dataclass(frozen=True)
class TileKernel:
    """m, n: of a workgroup's tile; k: of a step; wave_m, wave_n: of a wave's; split: workgroups that share a tile's K.

    load, lds: bytes of a lane's load from memory, and of its read of LDS; direct: whether loads go to LDS by themselves; stages:
    tiles in LDS at once; ahead: steps between a load and its use; columns: `WGM`, tiles of n that workgroups go through first.
    """

    atom: MatrixInstruction
    element: int  # bytes
    out: int  # bytes of a result
    m: int
    n: int
    k: int
    wave_m: int
    wave_n: int
    split: int = 1
    load: int = 16
    lds: int = 16
    direct: bool = False
    stages: int = 1
    ahead: int = 1
    columns: int = 1

    @property
    def waves(self) -> int:
        """Of a workgroup."""
        return (self.m // self.wave_m) * (self.n // self.wave_n)

    @property
    def atoms(self) -> int:
        """Matrix instructions of a wave's step."""
        each = self.atom.m * self.atom.n * self.atom.blocks * self.atom.k
        return max(1, self.wave_m * self.wave_n * self.k // each)

    def loads(self) -> tuple[int, int]:
        """Loads of A and B of a wave's step."""
        each = self.waves * WAVE * self.load
        return math.ceil(self.m * self.k * self.element / each), math.ceil(self.n * self.k * self.element / each)

    def resources(self) -> Resources:
        """Registers and LDS, by what the tile needs."""
        acc = self.wave_m * self.wave_n // WAVE * max(1, self.out // 4 if self.out > 4 else 1)
        parts = (self.wave_m + self.wave_n) * self.k * self.element // WAVE // 4
        arch = min(256, 48 + parts + 0 if self.direct else 48 + parts + sum(self.loads()) * self.load // 4)
        return Resources(arch, min(256, acc), 80, self.stages * (self.m + self.n) * self.k * self.element, self.waves)


@dataclass(frozen=True)
class Modelled:
    """cycles: of the whole launch; step: clocks of a workgroup's loop step in steady state; efficiency: the share of these in which
    the matrix units work."""

    cycles: float
    step: float
    efficiency: float


def model(
    kernel: TileKernel, chip: HardwareDescriptor, m: int, n: int, k: int, batch: int = 1, *, mhz: float | None = None,
    on: Mechanisms | None = None, row: Pipelines | None = None, warm: bool = False,
) -> Modelled:  # fmt: skip
    """What a product of m, n and k takes."""
    on, row = on or Mechanisms(), row or pipelines(chip.arch)
    tiles = math.ceil(m / kernel.m), math.ceil(n / kernel.n)
    groups = tiles[0] * tiles[1] * kernel.split * batch
    steps = max(1, math.ceil(k / kernel.split / kernel.k))
    length = len(_loop(kernel))
    most = max(4, min(steps, STEPS // max(1, length * kernel.waves)))
    resident = min(resident_groups(chip, kernel.resources()), math.ceil(groups / chip.num_cus))
    traffic = _traffic(kernel, chip, tiles, groups, resident, warm, on)

    def cycles(count: int) -> tuple[float, cu.CuResult]:
        code, work = _built(kernel, row, count, on, min(math.ceil(groups / chip.num_cus), 4 * resident))
        past, late = (np.repeat(np.array(part)[:, None], len(code.unit), 1) for part in traffic)
        shares = Shares(past, late)

        def run(load: Load) -> tuple[tuple[Gpu, cu.CuResult], Load, float]:
            gpu = Gpu(chip, row, on, code, work, resident, shares, kernel.waves, groups, mhz or chip.clock_mhz, load)
            result = gpu.steady()
            return (gpu, result), gpu.load_of(result), 0.0

        gpu, result = settled(run)
        return gpu.cycles(result), result

    whole, longer = cycles(most)
    less, shorter = cycles(most // 2)
    first = [float(one.ends[0]) for one in (longer, shorter)]
    each = (first[0] - first[1]) / max(1, most - most // 2)
    matrix = kernel.atoms * kernel.atom.passes * CLOCKS_PER_PASS * kernel.waves * resident / chip.simds_per_cu
    total = whole + (steps - most) * (whole - less) / max(1, most - most // 2)
    return Modelled(total, each, matrix / max(1.0, each))


def _traffic(
    kernel: TileKernel, chip: HardwareDescriptor, tiles: tuple[int, int], groups: int, resident: int, warm: bool, on: Mechanisms
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Shares of the requests that pass L2 and the Infinity Cache: workgroups that run together ask for a shared tile once; and
    shares that wait for these: all, as those that share a tile come to it together."""
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


def _loop(kernel: TileKernel) -> list[Issue]:
    """A wave's step."""
    atom = kernel.atom
    clocks = atom.passes * CLOCKS_PER_PASS
    delay = CLOCKS_PER_PASS if atom.coexec_delay is None else atom.coexec_delay
    matrix = Issue(Unit.MATRIX, Kind.MATRIX, clocks, shadow=clocks if delay < 0 else max(SLOT, delay))
    count = sum(kernel.loads())
    load = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=kernel.load, counts_vm=True, dma=kernel.direct)
    store = Issue(Unit.LDS, Kind.LDS, lane_bytes=kernel.load, store=True, counts_lgkm=True)
    read = Issue(Unit.LDS, Kind.LDS, lane_bytes=kernel.lds, counts_lgkm=True)
    reads = max(1, math.ceil((kernel.wave_m + kernel.wave_n) * kernel.k * kernel.element / (WAVE * kernel.lds)))
    barrier, scalar = Issue(Unit.NONE, Kind.BARRIER), Issue(Unit.SCALAR)
    early = reads - max(1, reads // PARTS)  # reads of the tile's later parts, the others are ahead of their step
    first, second = round(FIRST * kernel.atoms), round(SECOND * kernel.atoms)
    arrived = Issue(Unit.NONE, Kind.WAIT, vm=count * (kernel.ahead - 1))
    made = _spread([matrix] * first, [*_merged([load] * count, [read] * early), scalar, scalar])
    made += [arrived, *_spread([matrix] * (second - first), [] if kernel.direct else [store] * count)]
    made += [Issue(Unit.NONE, Kind.WAIT, lgkm=0), barrier]
    made += [*_spread([matrix] * (kernel.atoms - second), [read] * (reads - early)), Issue(Unit.NONE, Kind.WAIT, lgkm=0)]
    return [*made, scalar, Issue(Unit.BRANCH, Kind.BRANCH)]


def _merged(one: list[Issue], other: list[Issue]) -> list[Issue]:
    """Both, evenly mixed."""
    keyed = [((at + 0.5) / len(part), issue) for part in (one, other) for at, issue in enumerate(part)]
    return [issue for _, issue in sorted(keyed, key=lambda pair: pair[0])]


def _spread(matrix: list[Issue], others: list[Issue]) -> list[Issue]:
    """The others between the matrix instructions, evenly."""
    made: list[Issue] = []
    placed = 0
    for at, one in enumerate(matrix, start=1):
        made.append(one)
        due = len(others) * at // len(matrix)
        made += others[placed:due]
        placed = due
    return made + others[placed:]


def _built(kernel: TileKernel, row: Pipelines, steps: int, on: Mechanisms, groups: int) -> tuple[cu.Code, cu.Work]:
    loop = _loop(kernel)
    loads = [issue for issue in loop if issue.kind is Kind.VMEM]
    start = [*[Issue(Unit.VALU)] * 40, *[Issue(Unit.SCALAR)] * 40, *loads * kernel.ahead, Issue(Unit.NONE, Kind.WAIT, vm=0)]
    results = kernel.wave_m * kernel.wave_n // WAVE
    nbytes = min(16, kernel.out * 4)
    store = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=nbytes, store=True, counts_vm=True)
    end = [part for _ in range(max(1, results * kernel.out // nbytes)) for part in (*[Issue(Unit.VALU)] * 6, store)]
    issues = [*start, *loop, *end, Issue(Unit.NONE, Kind.END)]
    code = columns({number: (issue, 1) for number, issue in enumerate(issues)}, len(issues), row)
    first, behind = len(start), len(start) + len(loop)
    trace = np.array([*range(first), *list(range(first, behind)) * steps, *range(behind, len(issues))], np.int64)
    kinds = code.accesses
    rows = np.zeros((len(issues), 3), np.int32)
    for number, issue in enumerate(issues):
        if issue.kind is Kind.LDS:
            rate = 256 if row.lds_port_overhead == 0 and not issue.store else 128
            rows[number, 0] = math.ceil(WAVE * issue.lane_bytes / rate)
        elif issue.kind is Kind.VMEM:
            line = 64 if issue.store else row.cache_line
            rows[number] = WAVE * issue.lane_bytes // 64, *[math.ceil(WAVE * issue.lane_bytes / line)] * 2
    if not on.lds:
        rows[code.kind == Kind.LDS, 0] = 0
    accesses = rows[trace[kinds[trace]]]
    zeros = np.zeros(kernel.waves, np.int64)
    return code, cu.Work(trace, zeros, zeros + len(trace), accesses, zeros, kernel.waves, np.zeros(groups, np.int64))
