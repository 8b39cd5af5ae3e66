"""Reads instructions and accesses of a workgroup's waves from the streams that `native.noting` wrote."""

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
    """Access of a wave. An instruction may make several."""

    wave: int
    retired: int  # instructions that its wave had retired before it
    lanes: int  # mask
    size: int  # bytes a lane
    space: str  # one of SPACES
    reads: bool
    writes: bool
    order: int  # position among all waves' accesses
    addresses: np.ndarray  # int64 (64,): of each lane, in device memory or LDS


@dataclass
class WaveTrace:
    """A wave's run."""

    records: np.ndarray  # of its instructions, in order: records[n] is executed after n others
    exec_at: list[int]  # counts of retired instructions from which on EXEC has the value in `exec_is`
    exec_is: list[int]
    accesses: dict[int, list[AccessNote]] = field(default_factory=dict)  # by number of instructions retired before them

    def exec_before(self, retired: int) -> int:
        """Returns EXEC before the instruction that runs after `retired` others."""
        return self.exec_is[bisect_left(self.exec_at, retired + 1) - 1]


def traces(replay: Replay) -> list[WaveTrace]:
    """Returns the trace of each wave, after a replay on a device with `FlowNotes`. Raises LaunchError if the trace overflowed."""
    streams, _ = replay.worker.checks["flow"]
    if streams.overflows:
        raise LaunchError("the workgroup executes too many memory accesses to trace: they do not fit the trace buffer")
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
    rest = replay.retired_count(wave) - retired
    pieces.append(ordinals.order[before[entry] : before[entry] + rest])
    made.records = np.concatenate(pieces)
    return made
