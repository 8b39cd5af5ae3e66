"""The levels of the machine that a tree cuts a computation for."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """The levels of the machine, outermost first."""

    DEVICE = "device"
    BLOCK = "block"
    WARP = "warp"
    ATOM = "atom"

    @property
    def depth(self) -> int:
        """0 for the device, 3 for the atom."""
        return list(Level).index(self)
