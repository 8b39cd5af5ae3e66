"""One workgroup from its beginning, stop after stop, the same every time.

The workgroup runs alone on one thread. Its waves run in a fixed order and by slices that stops do not change, so a number of
retired instructions of one wave says where all of them are. `restart` puts device memory back as it was before the workgroup.
"""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.native.clock import BASE, GO_ON, NEVER, ORDINALS, PASSES, Clock, Ordinals
from simgpu.debugger.native.points import ARRIVED, HIT, WAVE, Armed, Point, arrival, place_words
from simgpu.debugger.place import Place
from simgpu.engine.device import Kernel
from simgpu.engine.faults import all_wait
from simgpu.engine.launch import Launch
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.worker import current_wave, wave_bytes_of, wave_of
from simgpu.hardware.errors import SimError
from simgpu.machine import layout
from simgpu.machine.layout import Status, Wave

if TYPE_CHECKING:
    from simgpu.debugger.focus import Initial
    from simgpu.engine.check import Check
    from simgpu.hardware.code_object.arguments import Geometry

PIECE = 1 << 17  # record steps after which a signal is looked for: some 10 ms at most


@dataclass(frozen=True)
class Halt:
    """Why a replay came back. kind: "points" (a wave stands before an instruction with points that hit), "arrived" (at its goal),
    "wave ended", "ended" (all waves did), "fault" or "interrupted"; wave: which; message: of a fault."""

    kind: str
    wave: int
    points: tuple[Point, ...] = ()
    message: str = ""


def debugging(kernel: Kernel, checks: Sequence[Check] = ()) -> Kernel:
    """The kernel on a device that shares the memory, counts what waves retire and prints nothing."""
    module = kernel.module
    device = module.device.sharing([Clock(), *checks])
    device.stdout = device.stderr = io.StringIO()  # the launch itself has printed
    return Kernel(module.on(device), kernel.info)


class Replay(Launch):
    """Runs one workgroup of a launch as often as is asked. kernel: of `debugging`."""

    fuse = False  # registers are looked at between instructions

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int], initial: Initial
    ) -> None:
        super().__init__(kernel, geometry, args)
        self.workers = self.groups = 1  # waves, LDS and private memory of one workgroup
        self.group = group
        gx, gy, _ = geometry.groups
        self.number = group[0] + gx * (group[1] + gy * group[2])
        self.initial = initial
        self.armed: dict[int, Armed] = {}  # by the program's number
        self._wanted: list[tuple[int, Point]] = []  # points by record, lowered or not
        self.ordinals: Ordinals
        self._version = -1
        self._stopping = False
        (self.worker,) = self.begin()
        self.goals: np.ndarray = self.worker.checks["goals"]
        self._bytes = [wave_bytes_of(self.worker, 0, number) for number in range(self.waves)]
        self._states = [wave_of(self.worker, 0, number) for number in range(self.waves)]
        initial.keep()  # private memory, and what else the launch allocated
        self._arrivals: list[tuple[int, Point]] = []
        self.count_lowered()

    def close(self) -> None:
        """Puts memory back as it was, gives back what the launch took, and leaves no points in the code."""
        for record, point in list(self._wanted):
            self.remove(record, point)
        assert self._table is not None
        self.initial.undo(self._table[1])
        self.end(False)

    # -- the waves -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Waves that the workgroup has; a partial one has fewer than others."""
        return int(self.worker.slots[0].waves)

    def wave(self, number: int) -> Wave:
        """The fields of a wave."""
        return self._states[number]

    def bytes_of(self, number: int) -> np.ndarray:
        """All bytes of a wave."""
        return self._bytes[number]

    def _field(self, wave: int, offset: int) -> np.ndarray:
        return self.bytes_of(wave)[offset : offset + 8].view(np.int64)

    def retired(self, wave: int) -> int:
        """How many instructions a wave has retired."""
        state, table = self.wave(wave), self.ordinals.table
        ended = int(state.status == Status.ENDED)  # it stays at its last instruction
        return int(self._field(wave, BASE)[0] + table[state.resume, 0] - table[self.entry, 0]) + ended

    def place(self, wave: int) -> Place:
        """Where a wave is."""
        return Place(self.group, wave, self.retired(wave))

    @property
    def running(self) -> int:
        """The wave whose turn it is."""
        return min(int(self.worker.job.wave), len(self) - 1)

    @property
    def left(self) -> int:
        """Waves that have not ended."""
        return int(self.worker.slots[0].left)

    def lds(self) -> np.ndarray:
        """The workgroup's LDS, uint8."""
        return self.worker.storage[1][: self.lds_bytes]

    # -- points --------------------------------------------------------------------------------

    def add(self, record: int, point: Point) -> None:
        """Stop before the instruction at a record when the point's test says so."""
        self._wanted.append((record, point))
        for armed in self.armed.values():
            if record in armed.program.instructions:
                armed.add(record, point)

    def remove(self, record: int, point: Point) -> None:
        """The opposite."""
        self._wanted.remove((record, point))
        for armed in self.armed.values():
            armed.remove(record, point)

    def count_lowered(self) -> None:
        """Have new code counted and given its points."""
        version = sum(program.version for program in self.programs.values())
        if version == self._version:
            return
        self._version = version
        before = getattr(self, "ordinals", None)
        self.ordinals = Ordinals.of(self.programs.values())
        self.worker.set_context(ORDINALS, self.ordinals.table.ctypes.data)
        if before is not None:
            old, new = before.table, self.ordinals.table
            for wave in range(len(self)):
                at = self.wave(wave).entry  # its straight-line code was counted up to here before and is now
                moved = (old[at, 0] - old[self.entry, 0]) - (new[at, 0] - new[self.entry, 0])
                self._field(wave, BASE)[0] += int(moved)
            self.goals[self.goals != NEVER] += int(new[self.entry, 0] - old[self.entry, 0])
        for number, program in self.programs.items():
            if number not in self.armed:
                self.armed[number] = Armed(program)
            armed = self.armed[number]
            for record, point in self._wanted:
                if record in program.instructions and point not in armed.at(record):
                    armed.add(record, point)

    # -- running -------------------------------------------------------------------------------

    def restart(self) -> None:
        """To the beginning: no wave has begun."""
        assert self._table is not None
        self.initial.undo(self._table[1])
        if self._table[1].bitmaps is not None:
            self._table[1].bitmaps.clear()
        else:
            self.initial.restore()
        self._clear_counts([self.worker])
        if self.worker.host is not None:
            self.worker.host.reset(self.output, self.device.made_heap)
        self.worker.storage[0][: self.waves * self.stride] = 0
        job = self.worker.job
        job.taken = job.current = job.wave = job.exhausted = job.clock = job.spent = job.active = job.stop = 0
        job.turn, job.open = layout.SLICE, 1
        for slot in self.worker.slots:
            slot.state = scheduler.EMPTY
        self.worker.slots[0].turns = 0
        self.counter[0], job.groups = self.number, self.number + 1
        self.budget[0] = self.device.max_instructions

    def run(self) -> Any:  # not as a launch runs
        raise NotImplementedError("a replay is resumed")

    def resume(self, passes: int = 0) -> Halt:
        """Runs on to the next stop. passes: stops at points to let pass, all but arrivals at goals."""
        self.worker.set_context(PASSES, passes + 1)
        for point in {id(p): p for _, p in self._wanted}.values():
            point.words[HIT] = 0
        if self.worker.slots[0].state == scheduler.BUSY:
            state = self.wave(self.running)
            if state.status == Status.BREAK:
                state.status = Status.RUNNING
            if not self._armed_for(state).at(state.resume):
                self._field(self.running, GO_ON)[0] = 0
        try:
            with self._interruptible():
                return self._resumed()
        finally:
            self._forget_arrivals()

    @property
    def passes_left(self) -> int:
        """What is left of one more than `passes` of the last `resume`."""
        return int(self.worker.context[PASSES // 8])

    def _armed_for(self, state: Wave) -> Armed:
        """The points of the program that a wave runs."""
        return next(armed for armed in self.armed.values() if armed.address == state.records)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C makes the replay come back at the next jump, in the main thread."""
        self._stopping = False
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, lambda *_: self.interrupt())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def interrupt(self) -> None:
        """Have it come back soon; from any thread."""
        self._stopping = True
        self.worker.job.stop = 1

    def _resumed(self) -> Halt:
        worker = self.worker
        begun = worker.slots[0].state == scheduler.BUSY
        for wave in np.flatnonzero(self.goals != NEVER).tolist():
            if begun:
                self._aim(wave)
            else:
                self._arm_goal(wave, self.entry, self._offset)
        while True:
            worker.job.pause = PIECE
            status = scheduler.run_worker(worker.job, worker.slots)
            worker.job.stop = 0
            if self._stopping:
                if status == scheduler.NEED_PYTHON and self.wave(self.running).status == Status.BREAK:
                    self.wave(self.running).status = Status.RUNNING
                return Halt("interrupted", self.running)
            try:
                halt = self._answered(status)
            except SimError as error:
                return Halt("fault", self.running, message=f"{type(error).__name__}: {error}")
            if halt is not None:
                return halt

    def _answered(self, status: int) -> Halt | None:
        """What the scheduler came back with; None where the workgroup goes on."""
        worker = self.worker
        if status == scheduler.FINISHED:
            return Halt("ended", len(self) - 1)
        if status == scheduler.IDLE:
            raise all_wait(self, worker)
        if status == scheduler.LIMIT:
            self._refill([worker])
        elif status == scheduler.STOPPED:
            wave = self.running
            if self.wave(wave).status == Status.ENDED:
                return Halt("wave ended", wave) if self.left else Halt("ended", wave)
        elif status == scheduler.NEED_PYTHON:
            state = current_wave(worker)
            if state.status == Status.BREAK:
                return self._broken(state.wave, state.resume)
            self._serve(worker)
            self.count_lowered()
            self._aim(state.wave)
        return None

    def _broken(self, wave: int, record: int) -> Halt | None:
        state = self.wave(wave)
        if self._field(wave, GO_ON)[0] != record + 1:  # at a jump, shortly before its goal
            state.status = Status.RUNNING
            self._aim(wave)
            return None
        points = tuple(point for point in self._armed_for(state).at(record) if point.hit)
        ordinary = tuple(point for point in points if point.words[HIT] != ARRIVED)
        return Halt("arrived" if len(ordinary) < len(points) else "points", wave, ordinary)

    # -- goals ---------------------------------------------------------------------------------

    def aim(self, wave: int, retired: int | None) -> None:
        """Have the replay come back when a wave has retired so many instructions; None: no more."""
        self.goals[wave] = NEVER if retired is None else retired + self._offset

    @property
    def _offset(self) -> int:
        """What BASE's count is ahead of the retired instructions: nothing is retired at the entry."""
        return int(self.ordinals.table[self.entry, 0])

    def _aim(self, wave: int) -> None:
        state = self.wave(wave)
        at = state.resume
        if state.status != Status.ENDED:
            self._arm_goal(wave, at, int(self._field(wave, BASE)[0] + self.ordinals.table[at, 0]))

    def _arm_goal(self, wave: int, at: int, counted: int) -> None:
        """Have the wave stop at its goal if it lies in the straight-line code from a record on, where it has `counted`."""
        self._forget_arrivals(wave)
        goal = int(self.goals[wave])
        away = goal - counted
        if 0 <= away < self.ordinals.table[at, 1]:
            record = self.ordinals.further(at, away)
            point = Point(arrival(self.device.compiler), wave, place_words(record, self.entry, goal - self._offset))
            self.add(record, point)
            self._arrivals.append((record, point))

    def _forget_arrivals(self, wave: int = -1) -> None:
        """Of a wave, or all."""
        for record, point in self._arrivals:
            if wave in (-1, int(point.words[WAVE])):
                self.remove(record, point)
        self._arrivals = [one for one in self._arrivals if wave not in (-1, int(one[1].words[WAVE]))]
