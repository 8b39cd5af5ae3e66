"""A launch of chosen workgroups, one at a time, each wave as far as is asked: what the waves did, as streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.path_trace import PathStorage
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch, Supervisor
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import Deadlock
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Kind, Unit
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.timing.code import ATOMIC, STORE, CodeColumns, code_of
from simgpu.timing.trace import Trace, trace_of

LOOKED_AT, POLLING = 256, 32  # last accesses of a wave that tell whether it waits; instructions for each if it does
COMPUTING = (Unit.VALU, Unit.MATRIX, Unit.ALONE)


@dataclass(frozen=True)
class Streams:
    """A workgroup's number, the streams of its waves, whether all of them ended; records: executed, and those in the streams."""

    group: int
    streams: list[np.ndarray]
    complete: bool
    executed: int
    kept: int

    @property
    def words(self) -> int:
        """Of the streams: more, the more lines of memory its waves ask for."""
        return sum(map(len, self.streams))


class AllStopped(Exception):
    """All waves of a workgroup went as far as they shall, or ended."""


class Sampling(Supervisor):
    """A launch of chosen workgroups, one at a time, each wave as far as is asked."""

    stopped = 0  # waves of the workgroup that went as far as they shall
    waited = False  # whether that was because it waits for others
    further = 0  # records that waves go on to, where they do not wait for others

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self.launch = Launch(kernel, geometry, args, threads=1, fuse=False, supervisor=self)

    def serve(self, launch: Launch, worker: Worker) -> None:
        if current_wave(worker).status != Status.PATH:
            launch.serve(worker)
            return
        wave, storage = wave_of(worker, *place_of_wave(worker)), worker.checks["path_trace"]
        assert isinstance(storage, PathStorage)
        if self.further > storage.block.limit and not self._waits(storage.streams.drain(wave.wave_id)):
            storage.block.limit, wave.status = self.further, Status.RUNNING
            return
        # The other waves go on, until they went as far or wait for this one.
        wave.status = Status.WAITING
        worker.job.turn, self.stopped = -1, self.stopped + 1
        if self.stopped + int(storage.tallies["ended"].sum()) == worker.slots[worker.job.current].waves:
            raise AllStopped

    @property
    def code(self) -> CodeColumns:
        """The instructions that were executed so far."""
        program = self.launch.program
        return code_of(dict(program.instructions), program.count + 1, pipelines(self.launch.device.arch))

    def path(self, stream: np.ndarray) -> tuple[CodeColumns, Trace]:
        """What one wave did, by its stream."""
        code = self.code
        return code, trace_of(code, [stream], self.launch.entry, False, 0)

    def _waits(self, stream: np.ndarray) -> bool:
        """Whether a wave only asks for the same lines again and again, in a short loop, and stores nothing."""
        code, trace = self.path(stream)
        last = trace.steps[-POLLING * LOOKED_AT :]
        if (code.kind[last] == Kind.SMEM).any() and not (code.accesses[last] | np.isin(code.unit[last], COMPUTING)).any():
            self.waited = True  # scalar loads alone, and nothing that is done with them but to look at them
            return True
        places = np.flatnonzero(code.accesses[trace.steps])[-LOOKED_AT:]
        numbers = trace.steps[places]
        if len(places) < LOOKED_AT or len(trace) - places[0] > POLLING * LOOKED_AT:
            return False
        if (code.flags[numbers] & (STORE | ATOMIC) == STORE).any():
            return False
        asked: dict[int, set[tuple[int, ...]]] = {}
        for number, (_, first, count) in zip(numbers.tolist(), trace.accesses[-LOOKED_AT:].tolist(), strict=True):
            asked.setdefault(number, set()).add(tuple(trace.lines[first : first + count].tolist()))
        self.waited = all(len(lines) == 1 for lines in asked.values())
        return self.waited

    def begin(self) -> None:
        """Makes the launch ready; `launch.end` follows, whatever is raised."""
        (self.worker,) = self.launch.begin()

    def sample(self, group: int, steps: int, keep: int | None = None, further: int = 0) -> Streams:
        """A workgroup, each wave over so many records, and up to `further` where it does not wait for others then; keep: those
        after which its stream ends (default: all)."""
        worker, storage = self.worker, self.worker.checks["path_trace"]
        assert isinstance(storage, PathStorage)
        storage.begin(self.launch.entry, steps if keep is None else keep, steps)
        job = worker.job
        job.taken = job.current = job.wave = 0
        job.turn = layout.SLICE
        job.open = 1
        for slot in worker.slots:
            slot.state = scheduler.EMPTY
        self.stopped, self.waited, self.further = 0, False, further
        try:
            self.launch.run_groups([worker], group, group + 1)
        except AllStopped:
            worker.error = None
        except Deadlock:  # where others wait for those that stopped
            if not self.stopped:
                raise
            worker.error = None
        tallies = storage.tallies
        streams = [storage.streams.drain(wave).copy() for wave in range(len(tallies))]
        executed, closed = tallies["steps"], tallies["closed"]
        kept = np.where(closed > 0, closed, executed)
        # A wave that a partial workgroup lacks executes nothing.
        complete = bool(((tallies["ended"] > 0) | (storage.streams.wanted == 0)).all())
        return Streams(group, streams, complete, int(executed.sum()), int(kept.sum()))
