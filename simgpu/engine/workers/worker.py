"""A worker's state, and the wave at which it stopped.

The layout of `job` and `slots` is the scheduler's, that of a wave `layout`'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.workers.initial_state import Given
from simgpu.engine.workers.scheduler import BUSY, PAUSED, Slot, WorkerJob
from simgpu.machine import layout
from simgpu.machine.layout import Status, Wave

if TYPE_CHECKING:
    from simgpu.engine.hostcall.packets import HostCalls


@dataclass
class Worker:
    """One host thread's share of a launch: its state and its counts; `checks`: what each check keeps.

    counts: (3, records + 1) int64, of each record: entered, control transfers to it, exited, those from it, lanes, the active
    lanes of memory instructions; given: what its waves find in memory; host: where they call the host; storage: bytes of its waves
    and of their LDS; status: with which the loop came back last; error: what ended its thread.
    """

    job: WorkerJob
    slots: ctypes.Array[Slot]
    context: np.ndarray
    programs: ctypes.Array[ctypes.c_int64]
    counts: np.ndarray
    given: Given
    host: HostCalls | None
    storage: list[np.ndarray]
    checks: dict[str, Any] = field(default_factory=dict)
    status: int = PAUSED
    error: BaseException | None = None

    @property
    def entered(self) -> np.ndarray:
        return self.counts[0]

    @property
    def exited(self) -> np.ndarray:
        return self.counts[1]

    def set_context(self, offset: int, value: int) -> None:
        """Set an i64 field of the context."""
        self.context[offset // 8] = value


@dataclass(frozen=True)
class WaveState:
    """The fields of a stopped wave that an error message needs."""

    status: int
    resume: int
    entry: int
    fault_kind: int
    fault_address: int
    fault_lane: int
    wave: int
    group: tuple[int, int, int]
    mode: int


def wave_bytes_of(worker: Worker, slot: int, wave: int) -> np.ndarray:
    """All bytes of one wave of a worker."""
    at = (slot * worker.job.waves + wave) * worker.job.wave_bytes
    return worker.storage[0][at : at + layout.WAVE_BYTES]


def wave_of(worker: Worker, slot: int, wave: int) -> Wave:
    """The fields of one wave of a worker."""
    return Wave.from_buffer(wave_bytes_of(worker, slot, wave).data)


def place_of_wave(worker: Worker) -> tuple[int, int]:
    """Slot of the workgroup that a worker runs, and the wave in it."""
    return worker.job.current, worker.job.wave


def live_waves(worker: Worker) -> Iterator[Wave]:
    """The resident waves that have not ended."""
    for number in range(worker.job.open):
        slot = worker.slots[number]
        for index in range(slot.waves if slot.state == BUSY else 0):
            wave = wave_of(worker, number, index)
            if wave.status != Status.ENDED:
                yield wave


def current_wave(worker: Worker) -> WaveState:
    slot, wave = place_of_wave(worker)
    state = wave_of(worker, slot, wave)
    x, y, z = worker.slots[slot].group
    fault = state.fault_kind, state.fault_address, state.fault_lane
    return WaveState(state.status, state.resume, state.entry, *fault, wave, (x, y, z), state.mode)
