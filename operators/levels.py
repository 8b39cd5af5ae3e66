"""Levels of the machine for which a tree cuts a computation, and the loops that cut it at each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Levels of the machine, outermost first."""

    DEVICE = "device"
    BLOCK = "block"
    WARP = "warp"
    ATOM = "atom"

    @property
    def depth(self) -> int:
        """Depth of the level: 0 for the device, 3 for the atom."""
        return list(Level).index(self)


@dataclass(frozen=True)
class TileLoop:
    """Consecutive tiles of an axis: an iteration each.

    >>> from simgpu.operators import Softmax, SoftmaxProblem
    >>> print(*Softmax(SoftmaxProblem(rows=2, n=1 << 20), "mi300x").first().loops, sep=", ")
    for rows by 1 [parallel], for n by 1024
    """

    axis: str  # name of the axis
    tile: int  # elements of a tile; the axis' end cuts the last one
    parallel: bool = False  # True if the iterations run side by side: workgroups of a grid, waves of a block

    def __str__(self) -> str:
        return f"for {self.axis} by {self.tile}{' [parallel]' * self.parallel}"


Nest = Mapping[Level, tuple[TileLoop, ...]]  # a tree's loops, outermost first, by the level whose nodes they cut
