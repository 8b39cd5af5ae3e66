"""Levels of the machine for which a tree cuts a computation."""

from __future__ import annotations

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
