"""Instructions of a wave of a tiled matrix product with known parameters: before the loop, a step, and after the loop.

There are two schedules. `direct`: loads go directly to LDS and are spread through the step. Otherwise Tensile's (ROCm/Tensile,
ScheduleIterAlg 3): loads go to registers, one after each matrix instruction from the step's start on. Their data is stored to
LDS as late as the last part's reads allow, each store after a wait for its load; a barrier follows. A part of K is read in the
part before it. With two tiles ahead (PrefetchGlobalRead 2) a register is loaded again as soon as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.hardware.descriptor import CLOCKS_PER_PASS, WAVEFRONT
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.timing_rules.issue import SLOT, Issue, Kind, Unit

# Fractions of a direct step's matrix instructions that precede the wait for loads, and the barrier after which LDS has the next
# tile.
FIRST, SECOND = 0.6, 0.85
PARTS = 4  # parts of a direct step's depth, one of them read ahead
# Number of vector and of scalar instructions before the loop: the best of 40, 200, 500 and 1,000 on the tenth of Tensile's rows
# that may calibrate.
SET_UP, DIRECT_SET_UP = 500, 40
WORD = 4  # bytes of a register
MOST_LGKM = 15  # most that s_waitcnt can leave in flight

VALU, SCALAR = Issue(Unit.VALU), Issue(Unit.SCALAR)
BARRIER = Issue(Unit.NONE, Kind.BARRIER)


def wait(vm: int = -1, lgkm: int = -1) -> Issue:
    """Returns an s_waitcnt."""
    return Issue(Unit.NONE, Kind.WAIT, vm=vm, lgkm=lgkm)


@dataclass(frozen=True)
class TileKernel:
    """Parameters of a tiled product's kernel."""

    atom: MatrixInstruction
    element: int  # bytes
    out: int  # bytes of a result
    m: int  # of a workgroup's tile, as n
    n: int
    k: int  # of a step
    wave_m: int  # of a wave's part, as wave_n
    wave_n: int
    split: int = 1  # workgroups that share a tile's K
    load_a: int = 16  # bytes of a lane's load from memory, as load_b
    load_b: int = 16
    read_a: int = 16  # bytes of a lane's read of LDS, as read_b
    read_b: int = 16
    direct: bool = False  # loads go directly to LDS
    stages: int = 1  # tiles in LDS at once
    ahead: int = 1  # steps between a load and its use
    columns: int = 1  # `WGM`: tiles of n that workgroups go through first
    each_matrix: float = 1.0  # loads after a matrix instruction
    stored: int = 1  # results of a lane that are stored together
    in_rows: bool = False  # these are consecutive in a lane, not in neighbouring lanes
    parts_ahead: int = 1  # parts of a step that are read from LDS before they are multiplied

    @property
    def waves(self) -> int:
        """Number of waves in a workgroup."""
        return (self.m // self.wave_m) * (self.n // self.wave_n)

    @property
    def atoms(self) -> int:
        """Matrix instructions of a wave's step."""
        each = self.atom.m * self.atom.n * self.atom.blocks * self.atom.k
        return max(1, self.wave_m * self.wave_n * self.k // each)

    @property
    def results(self) -> int:
        """Number of results per lane."""
        return self.wave_m * self.wave_n // WAVEFRONT

    def loads(self) -> tuple[int, int]:
        """Number of loads of A and B in a wave's step."""
        sides = (self.m, self.load_a), (self.n, self.load_b)
        a, b = (math.ceil(side * self.k * self.element / (self.waves * WAVEFRONT * nbytes)) for side, nbytes in sides)
        return a, b

    @property
    def load_issues(self) -> Sequence[Issue]:
        """Loads of a wave's step."""
        return [
            Issue(Unit.VMEM, Kind.VMEM, lane_bytes=nbytes, counts_vm=True, dma=self.direct)
            for count, nbytes in zip(self.loads(), (self.load_a, self.load_b), strict=True) for _ in range(count)
        ]  # fmt: skip

    @property
    def parts(self) -> int:
        """Number of parts of a step's K, each as deep as a matrix instruction."""
        return max(1, self.k // self.atom.k)

    def reads(self) -> tuple[int, int]:
        """Number of LDS reads in a wave's step, for A and B."""
        sides = (self.wave_m, self.read_a), (self.wave_n, self.read_b)
        a, b = (max(1, math.ceil(side * self.k * self.element / (WAVEFRONT * nbytes))) for side, nbytes in sides)
        return a, b

    def reading(self, part: int) -> list[Issue]:
        """Returns the reads of a part of a step: as many as its matrix instructions need."""
        made: list[Issue] = []
        for count, nbytes in zip(self.reads(), (self.read_a, self.read_b), strict=True):
            mine = count * (part + 1) // self.parts - count * part // self.parts
            made += [Issue(Unit.LDS, Kind.LDS, lane_bytes=nbytes, counts_lgkm=True)] * mine
        return made

    @property
    def packs(self) -> int:
        """Number of vector instructions in a part that join narrow reads, two at a time."""
        counts = zip(self.reads(), (self.read_a, self.read_b), strict=True)
        return sum(count // 2 for count, nbytes in counts if nbytes < WORD) // self.parts


def matrix_of(kernel: TileKernel) -> Issue:
    """Returns the kernel's matrix instruction."""
    clocks = kernel.atom.passes * CLOCKS_PER_PASS
    delay = CLOCKS_PER_PASS if kernel.atom.coexec_delay is None else kernel.atom.coexec_delay
    return Issue(Unit.MATRIX, Kind.MATRIX, clocks, shadow=clocks if delay < 0 else max(SLOT, delay))


def store_of(load: Issue) -> Issue:
    """Returns the store of a load's data to LDS."""
    return Issue(Unit.LDS, Kind.LDS, lane_bytes=load.lane_bytes, store=True, counts_lgkm=True)


def step(kernel: TileKernel) -> list[Issue]:
    """Returns a wave's step."""
    return [*(_direct(kernel) if kernel.direct else _staged_issues(kernel)), SCALAR, Issue(Unit.BRANCH, Kind.BRANCH)]


def prologue_issues(kernel: TileKernel) -> list[Issue]:
    """Returns the instructions before the loop."""
    count = DIRECT_SET_UP if kernel.direct else SET_UP
    made = [*[VALU] * count, *[SCALAR] * count, *list(kernel.load_issues) * kernel.ahead]
    if kernel.direct:
        return [*made, wait(vm=0)]
    made += [wait(vm=len(kernel.load_issues) * (kernel.ahead - 1)), *map(store_of, kernel.load_issues), wait(lgkm=0), BARRIER]
    return [*made, *kernel.reading(0), wait(lgkm=0), *[VALU] * kernel.packs]


def epilogue_issues(kernel: TileKernel) -> list[Issue]:
    """Returns the instructions after the loop: results are scaled, rounded and stored."""
    store = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=min(16, kernel.stored * kernel.out), store=True, counts_vm=True)
    together = max(1, store.lane_bytes // kernel.out)
    each = [*[VALU] * (ROUNDING.get((kernel.atom.a_type, kernel.out), 2) * together + 2), store]
    return each * max(1, kernel.results // together)


# Vector instructions of a result in addition to its scaling: before gfx950, none of these chips rounds to bf16 by itself.
ROUNDING = {("bf16", 2): 7, ("f16", 2): 3}


def _staged_issues(kernel: TileKernel) -> list[Issue]:
    count, parts, loaded = kernel.atoms, min(kernel.parts, kernel.atoms), kernel.load_issues
    last = count * (parts - 1) // parts if parts > 1 else count // 2  # where the last part begins
    slots: list[list[Issue]] = [[] for _ in range(count)]
    first = max(0, last - len(loaded))  # where stores to LDS begin
    if kernel.ahead == 1:
        _place(slots, loaded, 0, min(count, math.ceil(len(loaded) / kernel.each_matrix)))
    if kernel.stages == 1:  # all of this tile is read before the next one is stored
        _place(slots, [read for part in range(1, parts) for read in kernel.reading(part)], 0, max(1, first))
        slots[max(0, first - 1)] += [wait(lgkm=0), BARRIER]
    else:
        for part in range(parts - 1):
            begin, end = count * part // parts, count * (part + 1) // parts
            _place(slots, kernel.reading(part + 1), begin, max(begin + 1, (begin + end) // 2))
    for at, load in enumerate(loaded):
        slot = slots[first + (last - first) * at // len(loaded)] if last > first else slots[first]
        slot += [wait(vm=len(loaded) - 1 - (at if kernel.ahead == 1 else 0)), store_of(load)]
        if kernel.ahead > 1:
            slot.append(load)
    slots[max(0, last - 1)] += [wait(lgkm=0), BARRIER]
    _place(slots, kernel.reading(0), last, max(last + 1, (last + count) // 2))
    made: list[Issue] = []
    begins = {count * part // parts for part in range(1, parts)}
    for at, slot in enumerate(slots):
        if at in begins:
            made += [wait(lgkm=_since_read(made)), *[VALU] * kernel.packs]
        made += [matrix_of(kernel), *slot]
    return [*made, wait(lgkm=0), *[VALU] * kernel.packs]


def _place(slots: list[list[Issue]], issues: Sequence[Issue], begin: int, end: int) -> None:
    """Puts the issues evenly after the matrix instructions from `begin` to before `end`."""
    for at, issue in enumerate(issues):
        slots[min(len(slots) - 1, begin + (end - begin) * at // len(issues))].append(issue)


def _since_read(made: Sequence[Issue]) -> int:
    """Counts the stores to LDS after the last read: a wait for reads may leave them in flight."""
    found = 0
    for issue in reversed(made):
        if issue.kind is Kind.LDS:
            if not issue.store:
                break
            found += 1
    return min(MOST_LGKM, found)


def _direct(kernel: TileKernel) -> list[Issue]:
    matrix, loaded, reads = (
        matrix_of(kernel),
        kernel.load_issues,
        [read for part in range(kernel.parts) for read in kernel.reading(part)],
    )
    early = len(reads) - max(1, len(reads) // PARTS)  # reads of the tile's later parts; the others are ahead of their step
    first, second = round(FIRST * kernel.atoms), round(SECOND * kernel.atoms)
    made = _spread([matrix] * first, [*_merge(loaded, reads[:early]), SCALAR, SCALAR])
    made += [wait(vm=len(loaded) * (kernel.ahead - 1)), *[matrix] * (second - first), wait(lgkm=0), BARRIER]
    return [*made, *_spread([matrix] * (kernel.atoms - second), reads[early:]), wait(lgkm=0)]


def _merge(one: Sequence[Issue], other: Sequence[Issue]) -> list[Issue]:
    """Merges two sequences, each spread evenly over the result."""
    keyed = [((at + 0.5) / len(part), issue) for part in (one, other) for at, issue in enumerate(part)]
    return [issue for _, issue in sorted(keyed, key=lambda pair: pair[0])]


def _spread(matrix: list[Issue], others: list[Issue]) -> list[Issue]:
    """Puts the others between the matrix instructions, evenly."""
    made: list[Issue] = []
    placed = 0
    for at, one in enumerate(matrix, start=1):
        made.append(one)
        due = len(others) * at // len(matrix)
        made += others[placed:due]
        placed = due
    return made + others[placed:]
