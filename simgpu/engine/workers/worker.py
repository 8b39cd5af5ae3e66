"""State of a worker, and the wave at which it stopped.

`scheduler` defines the layout of `job` and `slots`, `layout` that of a wave.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.workers.desk import Desk
from simgpu.engine.workers.initial_state import LaunchInputs
from simgpu.engine.workers.scheduler import BUSY, PAUSED, Slot, WorkerJob
from simgpu.machine import layout
from simgpu.machine.layout import Status, Wave

if TYPE_CHECKING:
    from simgpu.engine.hostcall.packets import HostCalls


@dataclass
class Worker:
    """State and counts of the part of a launch that one host thread runs."""

    job: WorkerJob
    slots: ctypes.Array[Slot]
    desk: Desk
    # (3, records + 1) int64, by record: control transfers to it, control transfers away from it, and lanes active in it if it is
    # a memory instruction.
    counts: np.ndarray
    given: LaunchInputs
    host: HostCalls | None  # its buffer for host calls
    storage: list[np.ndarray]  # bytes of its waves, and of their LDS
    checks: dict[str, Any] = field(default_factory=dict)  # data that each check keeps
    status: int = PAUSED  # last status of the loop
    error: BaseException | None = None  # error that ended its thread

    @property
    def context(self) -> np.ndarray:
        """See `Desk`."""
        return self.desk.context

    @property
    def entries(self) -> np.ndarray:
        return self.counts[0]

    @property
    def exits(self) -> np.ndarray:
        return self.counts[1]

    def set_context(self, offset: int, value: int) -> None:
        """Sets an i64 field of the context."""
        self.context[offset // 8] = value


@dataclass(frozen=True)
class StoppedWave:
    """Fields of a stopped wave."""

    status: int
    resume: int  # record at which it continues
    entry: int  # record at which it began
    fault_kind: int
    fault_address: int
    fault_lane: int  # -1 if the fault is not a lane's
    wave: int  # number in the workgroup
    group: tuple[int, int, int]  # workgroup id
    mode: int  # MODE register


def wave_bytes_of(worker: Worker, slot: int, wave: int) -> np.ndarray:
    """Returns the bytes of one wave of a worker, without those of checks."""
    at = (slot * worker.job.waves + wave) * worker.job.wave_bytes
    return worker.storage[0][at : at + layout.WAVE_BYTES]


def wave_of(worker: Worker, slot: int, wave: int) -> Wave:
    """Returns the fields of one wave of a worker."""
    return Wave.from_buffer(wave_bytes_of(worker, slot, wave).data)


def place_of_wave(worker: Worker) -> tuple[int, int]:
    """Returns the slot and the wave number in its workgroup that a worker currently runs."""
    return worker.job.current, worker.job.wave


def live_waves(worker: Worker) -> Iterator[Wave]:
    """Yields the resident waves that have not ended."""
    for number in range(worker.job.open):
        slot = worker.slots[number]
        for index in range(slot.waves if slot.state == BUSY else 0):
            wave = wave_of(worker, number, index)
            if wave.status != Status.ENDED:
                yield wave


def current_wave(worker: Worker) -> StoppedWave:
    """Returns the state of the wave that a worker currently runs."""
    slot, wave = place_of_wave(worker)
    state = wave_of(worker, slot, wave)
    x, y, z = worker.slots[slot].group
    fault = state.fault_kind, state.fault_address, state.fault_lane
    return StoppedWave(state.status, state.resume, state.entry, *fault, wave, (x, y, z), state.mode)
