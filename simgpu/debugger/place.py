"""Places in a run: a workgroup, one of its waves, and the number of instructions that this wave retired."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simgpu.engine.finding import moment
from simgpu.hardware.errors import LaunchError

_TEXT = re.compile(r"\s*(?:wg\(?\s*(\d+(?:\s*,\s*\d+){0,2})\s*\)?\s+)?(?:w(\d+)\s+)?#\s*(\d+)\s*")


@dataclass(frozen=True, order=True)
class WavePlace:
    """Moment at which a wave has retired `retired` instructions and is about to execute the next.

    In the replay of a workgroup it determines the state of all waves, because they run in a fixed order.
    """

    group: tuple[int, int, int]
    wave: int
    retired: int

    def __str__(self) -> str:
        return moment(self.group, self.wave, self.retired)

    @staticmethod
    def parse(text: str, group: tuple[int, int, int] = (0, 0, 0), wave: int = 0) -> WavePlace:
        """Parses a place, `wg(7,0,0) w0 #52311`. group, wave: defaults if the text omits them. Raises LaunchError for other
        text."""
        match = _TEXT.fullmatch(text)
        if not match:
            raise LaunchError(f"{text!r} is no place: write it as wg(7,0,0) w0 #52311, w0 #52311 or #52311")
        if match[1]:
            ids = [int(part) for part in match[1].split(",")]
            x, y, z = (*ids, 0, 0)[:3]
            group = x, y, z
        return WavePlace(group, wave if match[2] is None else int(match[2]), int(match[3]))
