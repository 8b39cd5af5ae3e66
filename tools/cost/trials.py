"""Number of trials that a search of tiles needs, from the closed form and from random starts: the paper's warm start.

A trial measures one tile, by the cost model or on a GPU. The search is plain descent. From a start it tries the neighbours in a
random order: one size a step up or down, or the split by 4 or 16 indices of its list. It moves to the first that is faster. If
none is, it starts again from a random tile, until the budget is spent. No tile counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from simgpu.tools.cost.space import Space, Tile

STARTS = ("formula", "random")
ENOUGH = 1.02  # multiple of the least time
_FAR = (-16, -4, 4, 16)  # further steps of the split, in indices of its list
Point = tuple[int, ...]  # for each size of a tile the index in its list, the split's last


@dataclass(frozen=True)
class Grid:
    """A space's tiles by their points."""

    tiles: dict[Point, Tile]
    formula: Point  # the closed form's point; its split is the nearest listed one

    @classmethod
    def of(cls, space: Space) -> Grid:
        """Returns the grid of all tiles of a space."""
        lists = [sorted(set(sizes)) for sizes in zip(*space.rows, strict=True)]

        def place(row: Tile) -> Point:
            return tuple(sizes.index(size) for sizes, size in zip(lists, row, strict=True))

        tiles = {
            (*place(row), number): (*row, split)
            for row, times in zip(space.rows, space.seconds, strict=True)
            for number, split in enumerate(space.splits)
            if times[number] < np.inf
        }
        *row, split = space.chosen
        nearest = min(range(len(space.splits)), key=lambda number: abs(space.splits[number] - split))
        return cls(tiles, (*place(tuple(row)), nearest))

    def neighbours(self, at: Point, source: np.random.Generator) -> Iterator[Point]:
        """Yields the points one step away in one size, in a random order; for the split also further ones."""
        last = len(at) - 1
        steps = [(axis, step) for axis in range(len(at)) for step in (-1, 1)] + [(last, step) for step in _FAR]
        for number in source.permutation(len(steps)):
            axis, step = steps[number]
            there = (*at[:axis], at[axis] + step, *at[axis + 1 :])
            if there in self.tiles:
                yield there


def trace(grid: Grid, start: str, budget: int, seed: int, measure: Callable[[Tile], float]) -> list[float]:
    """Returns the least seconds after each trial, until the budget or the tiles run out."""
    source, places = np.random.default_rng(seed), list(grid.tiles)
    budget, tried = min(budget, len(places)), dict[Point, float]()
    best: list[float] = []

    def seconds(point: Point) -> float:
        if point not in tried:
            tried[point] = measure(grid.tiles[point])
            best.append(min(tried[point], best[-1] if best else np.inf))
        return tried[point]

    at = grid.formula if start == "formula" else places[source.integers(len(places))]
    while len(best) < budget:
        here, moved = seconds(at), True
        while moved and len(best) < budget:
            moved = False
            for there in grid.neighbours(at, source):
                if len(best) >= budget:
                    break
                if seconds(there) < here:
                    at, here, moved = there, tried[there], True
                    break
        at = places[source.integers(len(places))]
    return best


def trials_until(best: list[float], least: float, enough: float = ENOUGH) -> int | None:
    """Number of the first trial that is within `enough` of the least seconds; None if none is."""
    return next((number + 1 for number, value in enumerate(best) if value <= enough * least), None)
