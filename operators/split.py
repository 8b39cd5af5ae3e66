"""How many blocks share one reduction (split-K, split-KV, split-IC), in closed form.

t tiles of `steps` steps each on C CUs, s blocks a tile: t*s blocks, N = ceil(t*s/C) on the busiest CU, B at a time. j blocks that
run together take  fill + steps/s * max(j*step + bare/j, latency) + j*drain:  one's loads are in flight while another computes.
Beside the CUs' time stand that of L2 for what blocks ask, and that of HBM for every byte once, written parts included, at most
`memory_of_cu` a working CU; the longest is the kernel's. A second kernel adds the parts, one load's latency after the other.

Both sides of each crossing fall and rise with s, so the answers are few:

  none       s = 1
  rounds     r blocks a CU, all full: s = floor(r*C/t), r = 1 to 4, and as many as hide each other's loads: ceil(latency/step) <= B
  root       one block takes A/s, A = steps*max(step, latency), which falls; the second pass s*D rises:  s = sqrt(A/D)

The least time decides, of equals the least s (E25).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.rates.sustained import LDS_CLOCKS, Sustained
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint

_ROUNDS = 4  # eta >= 4/5 from four full rounds on
_FILL = 1.5  # memory latencies before a block's first step: its arguments, from nearer, and its first loads


@dataclass(frozen=True)
class Reduction:
    """A grid of reductions. Seconds are of a CU that works for one block alone."""

    tiles: int
    steps: int  # of a tile
    step: float  # seconds of a step: the busiest of matrix units, LDS and vector cache
    drain: float  # seconds in which a block's result leaves
    resident: int  # blocks that a CU holds
    asked_bytes: int  # of L2, parts of results left out
    once_bytes: int  # of these, what differs, and the result
    partial_bytes: int  # of the results of one part, written and read once
    rates: Sustained
    waits: int = 1  # LDS reads of a step that a lone block waits for: behind each barrier one
    sharers: int = 0  # blocks that read the same operands, and no others; 0: those of a grid, which share rows and columns

    @cached_property
    def latency(self) -> float:
        """Seconds from a load to its use: each byte comes from memory once and from L2 ever after."""
        return self.rates.l2_latency + self.missed * (self.rates.memory_latency - self.rates.l2_latency)

    @cached_property
    def missed(self) -> float:
        """Share of the loads that L2 does not have.

        Each byte once, and of c blocks in flight on an XCD that share all, a c-th; that share rows and columns, as square as can
        be, a sqrt(c)-th.
        """
        d = self.rates.descriptor
        in_flight = max(1.0, min(self.resident * d.num_cus, self.sharers or self.tiles) / d.xcds)
        first = self.once_bytes / max(1, self.asked_bytes)
        return min(1.0, max(first, 1 / in_flight if self.sharers else 1 / sqrt(in_flight)))

    @cached_property
    def pipe(self) -> float:
        """Seconds of a step: the busiest of its own pipes, and what the CU draws from behind L2."""
        return max(self.step, self.missed * self.asked_bytes / (self.tiles * self.steps) / self.rates.memory_of_cu)

    def parts(self, split: int) -> int:
        """The split that is left when every block but the last has the same number of steps."""
        return -(-self.steps // -(-self.steps // split))

    def rounds(self, split: int) -> int:
        """Blocks of the busiest CU."""
        return -(-self.tiles * self.parts(split) // self.rates.descriptor.num_cus)

    def cu(self, split: int) -> float:
        """Seconds of the busiest CU."""
        each = self._each(split)
        full, rest = divmod(self.rounds(split), self.resident)
        return full * self._together(self.resident, each) + (self._together(rest, each) if rest else 0.0)

    def l2(self, split: int) -> float:
        """Seconds of L2."""
        return (self.asked_bytes + self._written(split)) / self.rates.l2

    def hbm(self, split: int) -> float:
        """Seconds of HBM, with as many CUs as have work."""
        blocks = self.tiles * self.parts(split)
        busy = min(self.rates.descriptor.num_cus, blocks)
        return (self.once_bytes + self._written(split)) / min(self.rates.hbm, busy * self.rates.memory_of_cu)

    def second_pass(self, split: int) -> float:
        """Seconds of the kernel that adds the parts."""
        parts = self.parts(split)
        return 0.0 if parts == 1 else self.rates.launch + parts * self._part

    def seconds(self, split: int) -> float:
        """Seconds of both kernels."""
        return max(self.cu(split), self.l2(split), self.hbm(split)) + self.second_pass(split)

    @property
    def together(self) -> int:
        """Blocks of a CU that hide each other's loads: as many as have a step in a load's latency, and it holds."""
        return min(self.resident, ceil(self.latency / self.pipe))

    def covered(self, split: int) -> bool:
        """Whether the blocks of the busiest CU that run together take as long as their loads."""
        return min(self.resident, self.rounds(split)) * self.pipe >= self.latency

    def split(self) -> int:
        """Blocks per tile, 1 to `steps` (module docstring)."""
        tiles, cus = self.tiles, self.rates.descriptor.num_cus
        alone = self.steps * max(self.pipe, self.latency)
        full = (rounds * cus // tiles for rounds in (self.together, *range(1, _ROUNDS + 1)))
        wanted = {1, round(sqrt(alone / self._part)), *full}
        answers = {self.parts(max(1, min(split, self.steps))) for split in wanted}
        return min(answers, key=lambda split: (self.seconds(split), split))

    @property
    def _part(self) -> float:
        """Seconds that one part more costs the second pass."""
        return max(self.rates.memory_latency, self.partial_bytes / self.rates.hbm)

    def _each(self, split: int) -> int:
        return -(-self.steps // split)

    def _written(self, split: int) -> int:
        parts = self.parts(split)
        return parts * self.partial_bytes if parts > 1 else 0

    def _together(self, count: int, steps: int) -> float:
        bare = self.waits * LDS_CLOCKS / self.rates.clock / count
        step = max(count * self.pipe + bare, self._wait(count))
        return _FILL * self.rates.memory_latency + steps * step + count * self.drain

    def _wait(self, count: int) -> float:
        """Seconds that a step lasts at least, of blocks that run together: its loads'."""
        return self.latency

    # -- what binds, by how much ----------------------------------------------------------------

    def rows(self, split: int, what: str) -> tuple[Constraint, ...]:
        """Soft rows, microseconds: a level's time against the CUs', this split against none or the best other; what: is split."""
        cu, parts = self.cu(split), self.parts(split)
        blocks = self.tiles * parts
        busy = min(self.rates.descriptor.num_cus, blocks)
        drawn = min(self.rates.hbm, busy * self.rates.memory_of_cu)
        asked = f"{(self.asked_bytes + self._written(split)) / 1e6:,.1f} MB at {self.rates.l2 / 1e12:.3g} TB/s"
        moved = f"{(self.once_bytes + self._written(split)) / 1e6:,.1f} MB, {busy} CUs draw {drawn / 1e12:.3g} TB/s"
        other = 1 if parts > 1 else min(
            (self.parts(max(2, rounds * self.rates.descriptor.num_cus // self.tiles)) for rounds in range(1, _ROUNDS + 1)),
            key=self.seconds,
        )  # fmt: skip
        note = f"{parts} blocks a tile, {1e6 * self.second_pass(split):.3g} us of it the second pass; the limit is unsplit"
        if parts == 1:
            note = f"unsplit; the limit is {other} blocks a tile and a second pass of {1e6 * self.second_pass(other):.3g} us"

        def row(name: str, limit: float, use: float, note: str) -> Constraint:
            return Constraint(name, Level.DEVICE, 1e6 * limit, 1e6 * use, "us", note, hard=False)

        found = [
            row("L2 bandwidth", cu, self.l2(split), f"{asked}; the limit is {self.rounds(split)} round(s) of the CUs"),
            row("HBM bandwidth", cu, self.hbm(split), f"{moved}; the limit is the CUs' time"),
        ]
        if other != parts:
            found.append(row(f"split of {what}", self.seconds(other), self.seconds(split), note))
        return tuple(found)

    def time_rows(self, split: int, what: str, clocks: dict[str, float], at: str) -> tuple[Constraint, ...]:
        """`rows`, a step's LDS and vector cache against its matrix units, and `latency_row`; clocks: a step's, by what they are of;
        at: what a step is, for the notes."""
        note = f"{at}; the limit is the matrix units'"
        step = (
            Constraint(name, Level.BLOCK, clocks["matrix"], clocks[pipe], "clocks", note, hard=False)
            for name, pipe in (("LDS bandwidth", "LDS"), ("vector cache bandwidth", "cache"))
        )
        return (*self.rows(split, what), *step, self.latency_row(split))

    def latency_row(self, split: int) -> Constraint:
        """Soft row, clocks: loads' latency against the steps of the blocks that run together."""
        together = min(self.resident, self.rounds(split))
        note = f"{together} block(s) a CU, a step of {self.step * self.rates.clock:.4g} clocks each"
        limit, use = together * self.step * self.rates.clock, self.latency * self.rates.clock
        return Constraint("load latency", Level.BLOCK, limit, use, "clocks", note, hard=False)


@dataclass(frozen=True)
class StagedReduction(Reduction):
    """One whose blocks have the next step's loads in flight while they compute one, a GEMM's. flight: bytes of these; burst:
    seconds in which they leave the CU, one behind the other.

    A step then lasts no less than latency + burst, the latency memory's: it waits for its slowest load, and of blocks that read
    the same lines the first waits for memory, whose pace the others keep. Nor, of j blocks, less than j*flight/I latencies,
    where a CU has I bytes in flight, which leave in the order in which they came. Under load r = H/T, of HBM's time H in T, a
    miss takes longer by q/2 * r/(1 - r) (`Pipelines.queue_ns`). With n of these behind each other, and A what the steps last
    without:

        T = A + n*q/2 * H/(T - H):    T = (A + H)/2 + sqrt(((A - H)/2)^2 + n*q/2*H)

    Parts of results leave last, when no loads are left to hide them: those of the last turn stand behind it.
    """

    flight: int = 0
    burst: float = 0.0

    @cached_property
    def latency(self) -> float:
        """Seconds from a step's first load to the use of its last."""
        return 1e-9 * self._row.memory_ns + self.burst

    def waiting(self, split: int) -> float:
        """Seconds of the busiest CU if nothing but loads took time, while HBM's load makes them wait for each other."""
        full, rest = divmod(self.rounds(split), self.resident)
        turns, each = ((full, self.resident), (int(rest > 0), rest)), self._each(split)
        alone = sum(n * (_FILL * self.rates.memory_latency + each * self._wait(count) + count * self.drain) for n, count in turns)
        waits = each * sum(n * self._latencies(count) for n, count in turns)
        hbm, queue = self.hbm(split), 1e-9 * self._row.queue_ns
        leaving = self._written(split) / self.rates.hbm / sum(n for n, _ in turns)
        hbm -= leaving
        return leaving + (alone + hbm) / 2 + sqrt((alone - hbm) ** 2 / 4 + waits * queue / 2 * hbm)

    def rows(self, split: int, what: str) -> tuple[Constraint, ...]:
        """Those of any reduction, and the loads' time against the CUs'."""
        together = min(self.resident, self.rounds(split))
        note = f"{1e9 * self._wait(together):,.0f} ns a step, {together} block(s) a CU, HBM idle; the limit is the CUs' time"
        cu, use = 1e6 * self.cu(split), 1e6 * self.waiting(split)
        return *super().rows(split, what), Constraint("loads in flight", Level.DEVICE, cu, use, "us", note, hard=False)

    def seconds(self, split: int) -> float:
        """Seconds of both kernels."""
        return max(self.cu(split), self.l2(split), self.waiting(split)) + self.second_pass(split)

    @cached_property
    def _row(self) -> Pipelines:
        return pipelines(self.rates.descriptor.arch)

    def _latencies(self, count: int) -> float:
        """Latencies behind each other in a step of so many blocks."""
        return max(1.0, count * self.flight / self._row.in_flight)

    def _wait(self, count: int) -> float:
        return max(self.latency, self._latencies(count) * 1e-9 * self._row.memory_ns)
