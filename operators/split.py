"""How many blocks share one reduction (split-K, split-KV, split-IC), in closed form.

t tiles of `steps` steps each on C CUs, s blocks a tile: t*s blocks, of which B reside on a CU. Their time is `operators.cost`'s.
Both sides of each crossing fall and rise with s, so the answers are few:

  none       s = 1
  rounds     r blocks a CU, all full: s = floor(r*C/t), r = 1 to 4, and as many as hide each other's loads: ceil(wait/step) <= B
  tail       s = 2 to 4, if t > C: no round is full, but a block of the last one is s times shorter
  root       one block takes A/s, A = steps*max(step, wait), which falls; the second pass s*D rises:  s = sqrt(A/D)

The least time decides, of equals the least s (E25).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, sqrt
from typing import Any

import numpy as np

from simgpu.operators.cost import KernelCost, parts_of, second_pass, stack_costs
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint

# Of the least time: what is this near counts as equal, and fewer bytes decide, which also take less power.
TOLERANCE = 1.05
_ROUNDS = 4  # eta >= 4/5 from four full rounds on, or from four parts of a tile if tiles alone fill the CUs


@dataclass(frozen=True)
class Reduction:
    """A grid of reductions. first: the kernel's cost, if so many blocks share each tile: a number, or an array."""

    tiles: int
    steps: int  # of a tile
    elements: int  # of the results
    partial_bytes: int  # of the results of one part, written and read once
    result_bytes: int
    first: Callable[[Any], KernelCost]
    _terms: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def unsplit(self) -> KernelCost:
        """The first kernel, of one block a tile."""
        return self.first(1)

    def kernel(self, split: int) -> KernelCost:
        """The first kernel."""
        return self.first(self.parts(split))

    def terms(self, split: int) -> dict[str, Any]:
        """The first kernel's seconds by term (`KernelCost.terms`)."""
        parts = self.parts(split)
        if parts not in self._terms:
            self._terms[parts] = self.first(parts).terms()
        return self._terms[parts]

    def parts(self, split: int) -> int:
        """The split that is left when every block but the last has the same number of steps."""
        return int(parts_of(self.steps, split)[0])

    def rounds(self, split: int) -> int:
        """Blocks of the busiest CU."""
        return -(-self.tiles * self.parts(split) // self.unsplit.rates.descriptor.num_cus)

    def asked_bytes(self, split: int) -> float:
        """Bytes that L2 is asked for and takes."""
        kernel = self.kernel(split)
        return float(kernel.asked * kernel.workgroups * kernel.steps + kernel.written_bytes)

    def second_pass(self, split: int) -> float:
        """Seconds of the kernel that adds the parts."""
        found = second_pass(self.unsplit.rates, self.parts(split), self.elements, self.partial_bytes, self.result_bytes)
        return float(found)

    def seconds(self, split: int) -> float:
        """Seconds of both kernels, without the first one's launch."""
        terms = self.terms(split)
        return float(terms["total"]) - float(terms["launch"]) + self.second_pass(split)

    @property
    def resident(self) -> int:
        """Blocks that a CU holds."""
        return int(self.unsplit.resident)

    @property
    def step(self) -> float:
        """Clocks of a step of one block: the busiest unit's."""
        return float(max(self.unsplit.matrix, self.unsplit.units))

    @property
    def wait(self) -> float:
        """Clocks, at the peak clock, from a step's first load to the use of its last, memory idle."""
        rates = self.unsplit.rates
        return float(rates.memory_latency * rates.clock + self.unsplit.burst)

    def hides_loads(self, split: int) -> bool:
        """Whether the blocks of the busiest CU that run together take as long as their loads."""
        return min(self.resident, self.rounds(split)) * self.step >= self.wait

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """Blocks per tile that may be best, 1 to `steps` (module docstring)."""
        rates = self.unsplit.rates
        cus, alone = rates.descriptor.num_cus, self.steps * max(self.step, self.wait) / rates.clock
        together = min(self.resident, ceil(self.wait / self.step))
        part = max(rates.memory_latency, self.partial_bytes / rates.hbm)  # that one part more costs the second pass
        tail = range(2, _ROUNDS + 1) if self.tiles > cus else ()
        full = (rounds * cus // self.tiles for rounds in (together, *range(1, _ROUNDS + 1)))
        wanted = {1, round(sqrt(alone / part)), *tail, *full}
        return tuple(sorted({self.parts(max(1, min(split, self.steps))) for split in wanted}))

    def split(self) -> int:
        """Blocks per tile: the answer of least time."""
        price([self])
        return min(self.answers, key=lambda split: (self.seconds(split), split))

    # -- what binds, by how much ----------------------------------------------------------------

    def rows(self, split: int, what: str) -> tuple[Constraint, ...]:
        """Soft rows, microseconds: a term's time against the CUs', this split against none or the best other; what: is split."""
        terms, parts, cus = self.terms(split), self.parts(split), self.unsplit.rates.descriptor.num_cus
        kernel, rates = self.kernel(split), self.unsplit.rates
        limits = f"the limit is the CUs' time, {self.rounds(split)} round(s) at {terms['MHz']:,.0f} MHz"
        notes = {
            "L2": f"{self.asked_bytes(split) / 1e6:,.1f} MB; {limits}",
            "HBM": f"{(kernel.hbm_bytes + kernel.written_bytes) / 1e6:,.1f} MB at {rates.hbm / 1e12:.3g} TB/s; {limits}",
            "loads": f"{min(self.resident, self.rounds(split))} block(s) a CU; {limits}",
        }
        names = {"L2": "L2 bandwidth", "HBM": "HBM bandwidth", "loads": "loads in flight"}

        def row(name: str, limit: float, use: float, note: str) -> Constraint:
            return Constraint(name, Level.DEVICE, 1e6 * limit, 1e6 * use, "us", note, hard=False)

        found = [row(names[term], float(terms["CU"]), float(terms[term]), note) for term, note in notes.items()]
        if rates.descriptor.mall_bytes:
            note = f"{(kernel.missed_bytes + kernel.written_bytes) / 1e6:,.1f} MB at {rates.mall / 1e12:.3g} TB/s; {limits}"
            found.append(row("Infinity Cache bandwidth", float(terms["CU"]), float(terms["Infinity Cache"]), note))
        other = 1 if parts > 1 else min(
            (self.parts(max(2, rounds * cus // self.tiles)) for rounds in range(1, _ROUNDS + 1)), key=self.seconds
        )  # fmt: skip
        note = f"{parts} blocks a tile, {1e6 * self.second_pass(split):.3g} us of it the second pass; the limit is unsplit"
        if parts == 1:
            note = f"unsplit; the limit is {other} blocks a tile and a second pass of {1e6 * self.second_pass(other):.3g} us"
        if other != parts:
            found.append(row(f"split of {what}", self.seconds(other), self.seconds(split), note))
        return tuple(found)

    def time_rows(self, split: int, what: str, clocks: dict[str, float], at: str) -> tuple[Constraint, ...]:
        """`rows`, a step's LDS and vector cache against its matrix units, and its loads' latency. clocks: a step's, by unit; at:
        what a step is, for the notes."""
        note = f"{at}; the limit is the matrix units'"
        step = (
            Constraint(name, Level.BLOCK, clocks["matrix"], clocks[pipe], "clocks", note, hard=False)
            for name, pipe in (("LDS bandwidth", "LDS"), ("vector cache bandwidth", "cache"))
        )
        together = min(self.resident, self.rounds(split))
        steps = f"{together} block(s) a CU, a step of {self.step:.4g} clocks each"
        latency = Constraint("load latency", Level.BLOCK, together * self.step, self.wait, "clocks", steps, hard=False)
        return (*self.rows(split, what), *step, latency)


def price(works: Sequence[Reduction]) -> None:
    """Prices all answers of several reductions of one board and type at once: a call of numpy costs more than its numbers."""
    works = [work for work in works if not all(split in work._terms for split in work.answers)]
    if not works:
        return
    # Grids may have more blocks than 64 bits count.
    terms = stack_costs([work.first(np.array(work.answers, float)) for work in works]).terms()
    rows = zip(*(column.tolist() for column in np.broadcast_arrays(*terms.values())), strict=True)
    for work in works:
        for split in work.answers:
            work._terms[split] = dict(zip(terms, next(rows), strict=True))
