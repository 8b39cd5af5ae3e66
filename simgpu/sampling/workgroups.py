"""Runs single workgroups of a launch, each wave up to a limit, and returns their waves' streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.path_trace.check import PathStorage
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch, Supervisor
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import Deadlock
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import VECTOR_UNITS, Kind, Unit
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.timing.code import CodeColumns, code_of
from simgpu.timing.native.state import ATOMIC, STORE
from simgpu.timing.trace import Trace, traces_of

LOOKED_AT, POLLING = 256, 32  # a wave's last accesses that are examined for polling; most instructions per access if it polls
COMPUTING = (*VECTOR_UNITS, Unit.MATRIX, Unit.VMEM, Unit.LDS)


@dataclass(frozen=True)
class Streams:
    """Streams of one workgroup."""

    group: int  # its number in the order of dispatch
    streams: list[np.ndarray]  # one per wave (`simgpu.checks.path_trace`)
    complete: bool  # True if all its waves ended
    executed: int  # records that its waves executed
    kept: int  # records in the streams

    @property
    def words(self) -> int:
        """Words of the streams; waves that request more lines of memory have more."""
        return sum(map(len, self.streams))


class AllStopped(Exception):
    """Raised when all waves of a workgroup reached their limit or ended."""


class Sampling(Supervisor):
    """Runs single workgroups of a launch, each wave up to a limit."""

    stopped = 0  # waves of the workgroup that reached their limit
    waited = False  # True if they stopped because the workgroup waits for others
    further = 0  # second limit, in records, of waves that do not wait for others

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self.launch = Launch(kernel, geometry, args, threads=1, fuse=False, supervisor=self)
        self._columns: tuple[int, CodeColumns] | None = None  # the program's version, and the columns of its instructions

    def serve(self, launch: Launch, worker: Worker) -> None:
        if current_wave(worker).status != Status.PATH:
            launch.serve(worker)
            return
        wave, storage = wave_of(worker, *place_of_wave(worker)), worker.checks["path_trace"]
        assert isinstance(storage, PathStorage)
        if self.further > storage.block.limit and not self._waits(storage.streams.drain(wave.wave_id)):
            storage.block.limit, wave.status = self.further, Status.RUNNING
            return
        # The other waves continue until they reach their limit or wait for this one.
        wave.status = Status.WAITING
        worker.job.turn, self.stopped = -1, self.stopped + 1
        if self.stopped + int(storage.tallies["ended"].sum()) == worker.slots[worker.job.current].waves:
            raise AllStopped

    @property
    def code(self) -> CodeColumns:
        """Columns of the instructions that were lowered so far."""
        program = self.launch.program
        if self._columns is None or self._columns[0] != program.version:
            made = code_of(dict(program.instructions), program.count + 1, pipelines(self.launch.device.arch))
            self._columns = program.version, made
        return self._columns[1]

    def path(self, stream: np.ndarray) -> tuple[CodeColumns, Trace]:
        """Returns the code's columns, and a wave's stream as a trace."""
        return self.group_path(Streams(0, [stream], False, 1, 1))

    def group_path(self, one: Streams) -> tuple[CodeColumns, Trace]:
        """Returns the code's columns, and a workgroup's streams as a trace."""
        code = self.code
        (trace,) = traces_of(code, [one.streams], self.launch.entry, [one.complete], [one.group], [one.executed / max(1, one.kept)])
        return code, trace

    def _waits(self, stream: np.ndarray) -> bool:
        """True if a wave only requests the same lines repeatedly, in a short loop, and stores nothing."""
        code, trace = self.path(stream)
        last = trace.steps[-POLLING * LOOKED_AT :]
        if (code.kind[last] == Kind.SMEM).any() and not np.isin(code.unit[last], COMPUTING).any():
            self.waited = True  # only scalar loads, whose values are only compared
            return True
        places = np.flatnonzero(code.accesses[trace.steps])[-LOOKED_AT:]
        numbers = trace.steps[places]
        if len(places) < LOOKED_AT or len(trace) - places[0] > POLLING * LOOKED_AT:
            return False
        if (code.flags[numbers] & (STORE | ATOMIC) == STORE).any():
            return False
        asked: dict[int, set[tuple[int, ...]]] = {}
        for number, (_, first, count, *_) in zip(numbers.tolist(), trace.accesses[-LOOKED_AT:].tolist(), strict=True):
            asked.setdefault(number, set()).add(tuple(trace.lines[first : first + count].tolist()))
        self.waited = all(len(lines) == 1 for lines in asked.values())
        return self.waited

    def begin(self) -> None:
        """Prepares the launch; call `launch.end` afterwards, even after an exception."""
        (self.worker,) = self.launch.begin()

    def sample(self, group: int, steps: int, keep: int | None = None, further: int = 0) -> Streams:
        """Runs a workgroup, each wave for `steps` records, or `further` records if it does not wait for others.

        keep: records of a wave after which its stream ends (default: `steps`).
        """
        worker, storage = self.worker, self.worker.checks["path_trace"]
        assert isinstance(storage, PathStorage)
        storage.begin(self.launch.entry, steps if keep is None else keep, steps)
        job = worker.job
        job.taken = job.current = job.wave = 0
        job.turn = layout.SLICE
        for number in range(job.open):  # the others are empty; a GPU of many CUs has thousands
            worker.slots[number].empty()
        job.open = 1
        self.stopped, self.waited, self.further = 0, False, further
        try:
            self.launch.run_groups([worker], group, group + 1)
        except AllStopped:
            worker.error = None
        except Deadlock:  # others wait for waves that stopped
            if not self.stopped:
                raise
            worker.error = None
        tallies = storage.tallies
        streams = [storage.streams.drain(wave).copy() for wave in range(len(tallies))]
        executed, closed = tallies["steps"], tallies["closed"]
        kept = np.where(closed > 0, closed, executed)
        # A wave that a partial workgroup lacks executes nothing.
        complete = bool(((tallies["ended"] > 0) | (storage.streams.requested_words == 0)).all())
        return Streams(group, streams, complete, int(executed.sum()), int(kept.sum()))
