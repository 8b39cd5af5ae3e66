"""Number of blocks that share one reduction (split-K, split-KV, split-IC), in closed form.

Each of t tiles has `steps` steps and is shared by s blocks. The t*s blocks run on C CUs, at most B at a time on each. Their time
is that of `operators.cost`. Only these values of s can be best:

  none       s = 1
  rounds     r blocks on every CU: s = floor(r*C/t), r = 1 to 4, and r = min(B, ceil(wait/step)), which hides loads
  tail       s = 2 to 4, if t > C: the last round is not full, but its blocks are s times shorter
  even       s = C/gcd(t, C): all rounds are full
  root       one block takes A/s, A = steps*max(step, wait), the second pass s*D:  their sum is least for s = sqrt(A/D)
  batches    multiples of the parts that a second pass loads together, next to the root

The least time decides; ties go to the least s (E25).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, gcd, sqrt
from typing import Any

import numpy as np

from simgpu.operators.cost import TOGETHER, KernelCost, parts_of, second_pass, seconds_a_part, stack_costs
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint

# Times within this factor of the least count as equal: fewer bytes, which also take less power, then decide.
TOLERANCE = 1.05
# The row of a plan for each term of `KernelCost.terms`. The CUs' time has none of its own: it is the limit of the others.
TERM_ROWS = {
    "CU": "occupancy", "L2": "L2 bandwidth", "HBM": "HBM bandwidth", "loads": "loads in flight",
    "Infinity Cache": "Infinity Cache bandwidth",
}  # fmt: skip
_ROUNDS = 4  # from four full rounds on, eta >= 4/5; likewise from four blocks per tile on, if t > C


@dataclass(frozen=True)
class Reduction:
    """A kernel whose every tile is a reduction that several blocks may share. `split` is the number of blocks per tile."""

    tiles: int  # number of tiles
    steps: int  # steps of a tile's loop
    elements: int  # number of results
    partial_bytes: int  # bytes of one part of all results, written and read once
    result_bytes: int  # bytes of the final results
    first: Callable[[Any], KernelCost]  # cost of the first kernel by blocks per tile: a number or an array
    _terms: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def unsplit(self) -> KernelCost:
        """Cost of the kernel with one block per tile."""
        return self.first(1)

    def kernel(self, split: int) -> KernelCost:
        """Returns the cost of the first kernel, without the second pass."""
        return self.first(self.parts(split))

    def terms(self, split: int) -> dict[str, Any]:
        """Returns the first kernel's seconds by term (`KernelCost.terms`)."""
        parts = self.parts(split)
        if parts not in self._terms:
            self._terms[parts] = self.first(parts).terms()
        return self._terms[parts]

    def parts(self, split: int) -> int:
        """Returns the blocks per tile that have work, if all but the last have the same number of steps; at most `split`."""
        return int(parts_of(self.steps, split)[0])

    def rounds(self, split: int) -> int:
        """Returns the number of blocks that the busiest CU runs."""
        return -(-self.tiles * self.parts(split) // self.unsplit.rates.descriptor.num_cus)

    def asked_bytes(self, split: int) -> float:
        """Returns the bytes that the first kernel's loads request from L2, plus those that it writes."""
        kernel = self.kernel(split)
        return float(kernel.asked * kernel.workgroups * kernel.steps + kernel.written_bytes)

    def second_pass(self, split: int) -> float:
        """Returns seconds of the kernel that adds the parts; 0 if unsplit."""
        found = second_pass(self.unsplit.rates, self.parts(split), self.elements, self.partial_bytes, self.result_bytes)
        return float(found)

    def seconds(self, split: int) -> float:
        """Returns seconds of both kernels, without the launch overhead of the first."""
        terms = self.terms(split)
        return float(terms["total"]) - float(terms["launch"]) + self.second_pass(split)

    @property
    def resident(self) -> int:
        """Blocks that fit on a CU at a time."""
        return int(self.unsplit.resident)

    @property
    def step(self) -> float:
        """Clocks of a step of one block: the busiest unit's."""
        return float(max(self.unsplit.matrix, self.unsplit.units))

    @property
    def wait(self) -> float:
        """Clocks, at the peak clock, from a step's first load to the use of its last, memory idle."""
        rates, first = self.unsplit.rates, self.unsplit
        later = first.near * rates.l2_latency + (1 - first.near) * rates.memory_latency
        return float((rates.memory_latency + first.again * later) * rates.clock + first.burst)

    def hides_loads(self, split: int) -> bool:
        """True if a step of the blocks that run together on the busiest CU takes at least as long as its loads."""
        return min(self.resident, self.rounds(split)) * self.step >= self.wait

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """Blocks per tile that may be best, 1 to `steps` (module docstring)."""
        rates = self.unsplit.rates
        cus, alone = rates.descriptor.num_cus, self.steps * max(self.step, self.wait) / rates.clock
        together = min(self.resident, ceil(self.wait / self.step))
        root = sqrt(alone / seconds_a_part(rates, self.partial_bytes))
        batches = (TOGETHER * round_(root / TOGETHER) for round_ in (floor, ceil))
        tail = range(2, _ROUNDS + 1) if self.tiles > cus else ()
        full = (rounds * cus // self.tiles for rounds in (together, *range(1, _ROUNDS + 1)))
        wanted = {1, round(root), cus // gcd(self.tiles, cus), *batches, *tail, *full}
        return tuple(sorted({self.parts(max(1, min(split, self.steps))) for split in wanted}))

    def split(self) -> int:
        """Returns the blocks per tile of least time, one of `answers`."""
        price([self])
        return min(self.answers, key=lambda split: (self.seconds(split), split))

    # -- diagnostic rows ------------------------------------------------------------------------

    def rows(self, split: int, what: str) -> tuple[Constraint, ...]:
        """Returns soft rows in microseconds.

        They compare each memory term with the CUs' time, and this split with no split; an unsplit kernel is compared with the
        best split by full rounds. what: name of the split dimension.
        """
        terms, parts, cus = self.terms(split), self.parts(split), self.unsplit.rates.descriptor.num_cus
        kernel, rates = self.kernel(split), self.unsplit.rates
        limits = f"the limit is the CUs': {self.rounds(split)} round(s), {terms['MHz']:,.0f} MHz"
        notes = {
            "L2": f"{self.asked_bytes(split) / 1e6:,.1f} MB; {limits}",
            "HBM": f"{(kernel.hbm_bytes + kernel.written_bytes) / 1e6:,.1f} MB at {rates.hbm / 1e12:.3g} TB/s; {limits}",
            "loads": f"{min(self.resident, self.rounds(split))} block(s) a CU; {limits}",
        }

        def row(name: str, limit: float, use: float, note: str) -> Constraint:
            return Constraint(name, Level.DEVICE, 1e6 * limit, 1e6 * use, "us", note, hard=False)

        found = [row(TERM_ROWS[term], float(terms["CU"]), float(terms[term]), note) for term, note in notes.items()]
        if rates.descriptor.mall_bytes:
            note = f"{(kernel.missed_bytes + kernel.written_bytes) / 1e6:,.1f} MB at {rates.mall / 1e12:.3g} TB/s; {limits}"
            found.append(row(TERM_ROWS["Infinity Cache"], float(terms["CU"]), float(terms["Infinity Cache"]), note))
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
        """Returns `rows`, a step's LDS and vector cache clocks against its matrix clocks, and its clocks against load latency.

        clocks: clocks of a step by unit: "matrix", "LDS", "cache". at: description of a step, for the notes.
        """
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
    """Computes the terms of all `answers` of several reductions of one board and type in one call of `KernelCost.terms`.

    With so few numbers, each numpy call costs more than its arithmetic.
    """
    works = [work for work in works if not all(split in work._terms for split in work.answers)]
    if not works:
        return
    # Floats, as the number of blocks may exceed 64 bits.
    terms = stack_costs([work.first(np.array(work.answers, float)) for work in works]).terms()
    rows = zip(*(column.tolist() for column in np.broadcast_arrays(*terms.values())), strict=True)
    for work in works:
        for split in work.answers:
            work._terms[split] = dict(zip(terms, next(rows), strict=True))
