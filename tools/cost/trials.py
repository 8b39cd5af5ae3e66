"""How many trials a search of GEMM tiles needs from the closed form and from random starts: the paper's warm start.

A trial prices one tile by the cost model, as a run on the hardware would measure one. The search is plain descent: from a start it
tries the neighbours in a random order, one coordinate a step up or down (the split of K by 4 or 16 places of its list, too), moves
to the first that is faster, and starts anew from a random tile where none is, until the budget is spent. No tile counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.sustained import sustained
from simgpu.operators.gemm.plan import plan_gemm
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.tools.cost.candidates import candidates
from simgpu.tools.cost.gemm import gemm_seconds

STARTS = ("formula", "random")
ENOUGH = 1.02  # of the least time
Point = tuple[int, int, int, int]  # indices of tM, tN, tK and the split


@dataclass(frozen=True)
class Space:
    """All tiles of one problem with their times."""

    seconds: dict[Point, float]
    formula: Point  # the closed form's, its split the nearest that is listed

    @classmethod
    def of(cls, problem: GemmProblem, descriptor: HardwareDescriptor) -> Space:
        """Of what the emitter takes."""
        plan = plan_gemm(problem, descriptor)
        every = candidates(plan)
        times = gemm_seconds(problem, sustained(descriptor), every.tiles)["total"]
        unit = 2 * plan.atom.m
        seconds = {
            (row[0] // unit, row[1] // unit, row[2] // plan.warp_k, number): float(times[index, number])
            for index, row in enumerate(every.rows)
            for number in range(len(every.splits))
        }
        nearest = min(range(len(every.splits)), key=lambda number: abs(every.splits[number] - plan.split_k))
        return cls(seconds, (plan.tile_m // unit, plan.tile_n // unit, plan.tile_k // plan.warp_k, nearest))

    def neighbours(self, at: Point, source: np.random.Generator) -> Iterator[Point]:
        """Tiles one step away in one coordinate, in a random order; of the split further ones."""
        steps = [(axis, step) for axis in range(4) for step in (-1, 1)] + [(3, step) for step in (-16, -4, 4, 16)]
        for number in source.permutation(len(steps)):
            axis, step = steps[number]
            there = (*at[:axis], at[axis] + step, *at[axis + 1 :])
            if there in self.seconds:
                yield there  # type: ignore[misc]


def trace(space: Space, start: str, budget: int, seed: int) -> list[float]:
    """The least time over the best of all, after each trial."""
    source, places, least = np.random.default_rng(seed), list(space.seconds), min(space.seconds.values())
    best: list[float] = []
    tried: set[Point] = set()

    def measure(point: Point) -> float:
        if point not in tried:
            tried.add(point)
            best.append(min(space.seconds[point] / least, best[-1] if best else np.inf))
        return space.seconds[point]

    at = space.formula if start == "formula" else places[source.integers(len(places))]
    while len(best) < min(budget, len(places)):
        here, moved = measure(at), True
        while moved and len(best) < budget:
            moved = False
            for there in space.neighbours(at, source):
                if len(best) >= budget:
                    break
                if measure(there) < here:
                    at, here, moved = there, space.seconds[there], True
                    break
        at = places[source.integers(len(places))]
    return best[:budget]


def trials_until(best: list[float], enough: float = ENOUGH) -> int | None:
    """The first trial that is within `enough` of the best; None if none is."""
    return next((number + 1 for number, value in enumerate(best) if value <= enough), None)
