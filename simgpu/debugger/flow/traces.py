"""What the waves of a workgroup executed and accessed, read from the streams that `native.noting` wrote."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.native.clock import Ordinals
from simgpu.debugger.native.noting import EXEC, HEAD, JUMP, SPACES
from simgpu.hardware.errors import LaunchError
from simgpu.machine.layout import LANES

if TYPE_CHECKING:
    from simgpu.debugger.replay import Replay


@dataclass(frozen=True)
class AccessNote:
    """One access. retired: of its wave before the instruction; lanes: mask; size: bytes a lane; addresses: of each lane, in device
    memory or LDS; order: among all waves' accesses."""

    wave: int
    retired: int
    lanes: int
    size: int
    space: str
    reads: bool
    writes: bool
    order: int
    addresses: np.ndarray


@dataclass
class WaveTrace:
    """A wave's run. records, accesses: by retired instructions; exec_at, exec_is: after so many retired EXEC is this."""

    records: np.ndarray
    exec_at: list[int]
    exec_is: list[int]
    accesses: dict[int, list[AccessNote]] = field(default_factory=dict)

    def exec_before(self, retired: int) -> int:
        """EXEC as the instruction finds it that is executed after so many."""
        return self.exec_is[bisect_left(self.exec_at, retired + 1) - 1]


def traces(replay: Replay) -> list[WaveTrace]:
    """What each wave did, after a replay on a device with `Flow` has run. Raises LaunchError where it was too much to be noted."""
    streams, _ = replay.worker.checks["flow"]
    if streams.overflows:
        raise LaunchError("the workgroup executes too much to be followed: its memory accesses do not fit the trace")
    items = [min(block, size - at * block) for block, size, at in
             zip(replay.launch.geometry.block, replay.launch.geometry.global_size, replay.group, strict=True)]  # fmt: skip
    count = items[0] * items[1] * items[2]
    return [
        _trace(replay, wave, streams.drain(wave), (1 << min(64, count - 64 * wave)) - 1) for wave in range(len(replay))
    ]


def _trace(replay: Replay, wave: int, stream: np.ndarray, lanes: int) -> WaveTrace:
    ordinals: Ordinals = replay.ordinals
    before = ordinals.table[:, 0]
    entry, retired = replay.launch.entry, 0
    pieces: list[np.ndarray] = []
    made = WaveTrace(np.zeros(0, np.int64), [0], [lanes])
    at = 0
    while at < len(stream):
        kind, record = int(stream[at]) >> 32, int(stream[at]) & 0xFFFFFFFF
        here = retired + int(before[record] - before[entry])
        if kind == JUMP:
            pieces.append(ordinals.order[before[entry] : before[record] + 1])
            retired, entry = here + 1, int(stream[at + 1])
        elif kind == EXEC:
            made.exec_at.append(here + 1)
            made.exec_is.append(int(stream[at + 1]) & (1 << 64) - 1)
        else:
            how = int(stream[at + 2])
            made.accesses.setdefault(here, []).append(AccessNote(
                wave, here, int(stream[at + 1]) & (1 << 64) - 1, how & 0xFFFF, SPACES[how >> 16 & 15], bool(how >> 20 & 1),
                bool(how >> 21 & 1), how >> 24, stream[at + HEAD : at + HEAD + LANES],
            ))  # fmt: skip
            at += LANES
        at += HEAD
    rest = replay.retired(wave) - retired
    pieces.append(ordinals.order[before[entry] : before[entry] + rest])
    made.records = np.concatenate(pieces)
    return made
