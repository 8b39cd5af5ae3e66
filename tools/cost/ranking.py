"""Tiles of the closed form compared with the best of an exhaustive search (`space`), both priced by the cost model.

The product never searches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Any

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.tools.cost.space import Tile, space

SUMMARY = ("kind", "problems", "geometric mean", "worst", "above 1.25")


@dataclass(frozen=True)
class TileRanking:
    """A problem's tile by the closed form and the best that the search found, in the numbers of `space.TILES`."""

    problem: str
    kind: str
    chosen: Tile
    seconds: float  # of the chosen tile
    best: Tile
    least: float  # seconds of the best tile

    @property
    def regret(self) -> float:
        """Seconds over the least seconds, at least 1 if the search covers the closed form."""
        return self.seconds / self.least


def rank(op: str, problem: Any, descriptor: HardwareDescriptor, kind: str = "") -> TileRanking:
    """Compares the closed form's tile of a problem with the best of all."""
    found = space(op, problem, descriptor)
    return TileRanking(found.problem, kind, found.chosen, found.chosen_seconds, *found.best())


def summarise(kind: str, rows: Iterable[TileRanking]) -> tuple[str, int, float, float, int]:
    """Returns kind, problems, geometric mean and worst of the regret, problems above 1.25."""
    every = [row.regret for row in rows]
    return kind, len(every), exp(sum(map(log, every)) / len(every)), max(every), sum(value > 1.25 for value in every)
