"""One workgroup from its beginning, stop after stop, the same every time.

The workgroup runs alone on one thread. Its waves run in a fixed order and by slices that stops do not change, so a number of
retired instructions of one wave says where all of them are. `restart` puts device memory back as it was before the workgroup.
Where workgroups wait for later ones the whole launch runs, on one thread as well, and only the one in focus is stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.armed import Armed, Point
from simgpu.debugger.native.clock import BASE, GO_ON, NEVER, ORDINALS, PASSES, Ordinals, RetiredClock
from simgpu.debugger.native.points import ARRIVED, HIT, WAVE, always, arrival, place_words
from simgpu.debugger.place import WavePlace
from simgpu.engine.device import Kernel
from simgpu.engine.faults import all_wait
from simgpu.engine.launch import Launch
from simgpu.engine.workers import running, scheduler
from simgpu.engine.workers.worker import current_wave, wave_bytes_of
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
    device = module.device.sharing([RetiredClock(), *checks])
    return Kernel(module.on(device), kernel.info)


class Replay:
    """Runs one workgroup of a launch as often as is asked. kernel: of `debugging`; whole: the others run, too."""

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int], initial: Initial,
        whole: bool = False,
    ) -> None:  # fmt: skip
        self.group, self.whole = group, whole
        self.number = geometry.number(group)
        # Registers are looked at between instructions.
        parts = () if whole else [range(self.number, self.number + 1)]
        self.launch = Launch(kernel, geometry, args, parts=parts, threads=1, fuse=False)
        self.device = self.launch.device
        items = [min(b, size - at * b) for b, size, at in zip(geometry.block, geometry.global_size, group, strict=True)]
        self._count = -(-items[0] * items[1] * items[2] // layout.LANES)
        self.initial = initial
        self.armed: dict[int, Armed] = {}  # by the program's number
        self._wanted: list[tuple[int, Point]] = []  # points by record, lowered or not
        self.ordinals: Ordinals
        self._version = -1
        self._stopping = False
        (self.worker,) = self.launch.begin()
        focus: np.ndarray = self.worker.checks["focus"]
        focus["sole"], focus["group"], self.goals = whole, group, focus["goals"][0]
        self._slot = -1  # where the workgroup is; -1 before it begins
        self._views: dict[int, list[tuple[np.ndarray, Wave, np.ndarray]]] = {}  # of the waves of a slot: bytes, fields, words
        initial.keep()  # private memory, and what else the launch allocated
        self._arrivals: list[tuple[int, Point]] = []
        self._stepper = Point(always(self.device.compiler))
        self.count_lowered()

    def close(self) -> None:
        """Puts memory back as it was, gives back what the launch took, and leaves no points in the code."""
        for record, point in list(self._wanted):
            self.remove(record, point)
        self.initial.undo(self.launch.table)
        self.launch.end(False)

    # -- the waves -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Waves that the workgroup has; a partial one has fewer than others."""
        return self._count

    def _view(self, wave: int, slot: int = -1) -> tuple[np.ndarray, Wave, np.ndarray]:
        slot = max(0, self._slot) if slot < 0 else slot
        if slot not in self._views:
            held = [wave_bytes_of(self.worker, slot, number) for number in range(self.launch.waves)]
            self._views[slot] = [(raw, Wave.from_buffer(raw.data), raw[: layout.ADDRESSES].view(np.int64)) for raw in held]
        return self._views[slot][wave]

    def wave(self, number: int) -> Wave:
        """The fields of a wave."""
        return self._view(number)[1]

    def bytes_of(self, number: int) -> np.ndarray:
        """All bytes of a wave."""
        return self._view(number)[0]

    def retired(self, wave: int) -> int:
        """How many instructions a wave has retired."""
        if self._slot < 0:
            return 0
        _, state, words = self._view(wave)
        ended = state.status == Status.ENDED  # it stays at its last instruction
        return int(words[BASE // 8]) + self._table_of[state.resume, 0] - self._offset + ended

    def place(self, wave: int) -> WavePlace:
        """Where a wave is."""
        return WavePlace(self.group, wave, self.retired(wave))

    def _has_turn(self) -> bool:
        """Whether a wave of the workgroup was the last that ran."""
        job = self.worker.job
        return self._slot >= 0 and job.current == self._slot and self.worker.slots[self._slot].state == scheduler.BUSY

    @property
    def running(self) -> int:
        """The wave whose turn it is, or its last was."""
        return min(int(self.worker.job.wave), len(self) - 1) if self._slot < 0 or self._has_turn() else 0

    @property
    def left(self) -> int:
        """Waves that have not ended."""
        return int(self.worker.slots[self._slot].left) if self._slot >= 0 else len(self)

    def lds(self) -> np.ndarray:
        """The workgroup's LDS, uint8."""
        first = max(0, self._slot) * int(self.worker.job.lds_stride)
        return self.worker.storage[1][first : first + self.launch.lds_bytes]

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
        version = sum(program.version for program in self.launch.programs.values())
        if version == self._version:
            return
        self._version = version
        before = getattr(self, "ordinals", None)
        self.ordinals = Ordinals.of(self.launch.programs.values())
        self.worker.set_context(ORDINALS, self.ordinals.table.ctypes.data)
        self._table_of, self._order_of = self.ordinals.table.data, self.ordinals.order.data  # quick to look at
        self._offset = self._table_of[self.launch.entry, 0]  # what BASE's count is ahead of what is retired
        if before is not None:
            old, new = before.table, self.ordinals.table
            for slot, held in enumerate(self.worker.slots):
                for wave in range(held.waves if held.state == scheduler.BUSY else 0):
                    _, state, words = self._view(wave, slot)
                    at = state.entry  # its straight-line code was counted up to here before and is now
                    moved = (old[at, 0] - old[self.launch.entry, 0]) - (new[at, 0] - new[self.launch.entry, 0])
                    words[BASE // 8] += int(moved)
            self.goals[self.goals != NEVER] += int(new[self.launch.entry, 0] - old[self.launch.entry, 0])
        for number, program in self.launch.programs.items():
            if number not in self.armed:
                self.armed[number] = Armed(program)
            armed = self.armed[number]
            for record, point in self._wanted:
                if record in program.instructions and point not in armed.at(record):
                    armed.add(record, point)

    # -- running -------------------------------------------------------------------------------

    def restart(self) -> None:
        """To the beginning: no wave has begun."""
        launch = self.launch
        self.initial.undo(launch.table)
        if launch.table.bitmaps is not None:
            launch.table.bitmaps.clear()
        else:
            self.initial.restore()
        launch.clear_counts([self.worker])
        if self.worker.host is not None:
            self.worker.host.reset(launch.output, self.device.made_heap)
        self.worker.storage[0][:] = 0
        job = self.worker.job
        job.taken = job.current = job.wave = job.exhausted = job.turns = job.clock = job.spent = job.active = job.stop = 0
        job.turn, job.open = layout.SLICE, 1
        for slot in self.worker.slots:
            slot.state, slot.used, slot.met = scheduler.EMPTY, 0, 0
        self._slot = -1
        (part,) = launch.parts
        launch.shared.counter, job.groups = part.start, part.stop
        launch.shared.budget = self.device.max_instructions

    def resume(self, passes: int = 0) -> Halt:
        """Runs on to the next stop. passes: stops at points to let pass, all but arrivals at goals."""
        self._let_on(passes)
        for wave in np.flatnonzero(self.goals != NEVER).tolist():
            if self._slot >= 0:
                self._aim(wave)
            else:
                self._arm_goal(wave, self.launch.entry, self._offset)
        try:
            with self._interruptible():
                return self._resumed()
        finally:
            self._forget_arrivals()

    def _let_on(self, passes: int) -> None:
        """The wave that stopped may go on."""
        self.worker.set_context(PASSES, passes + 1)
        for _, point in self._wanted:
            point.words[HIT] = 0
        if self._has_turn():
            _, state, words = self._view(self.running)
            if state.status == Status.BREAK:
                state.status = Status.RUNNING
            if not self._armed_for(state).at(state.resume):
                words[GO_ON // 8] = 0

    def advance(self, wave: int, count: int) -> Halt | None:
        """Has the wave whose turn it is execute `count` instructions, or fewer where something stops it; None, and nothing done,
        where it is another's turn or its code up to there does not lie in one piece: `resume` goes there."""
        if self.worker.job.wave != wave or not self._has_turn():
            return None
        state = self.wave(wave)
        at, job = state.resume, self.worker.job
        if state.status not in (Status.BREAK, Status.RUNNING) or not 0 < count < self._table_of[at, 1]:
            return None
        record, armed = self._order_of[self._table_of[at, 0] + count], self._armed_for(state)
        if not armed.once(record, self._stepper):
            return None
        self.aim(wave, self.retired(wave) + count)  # should it jump away
        self._let_on(0)
        self._stepper.words[WAVE] = wave
        self._stopping = False
        job.pause = PIECE
        status = running.run_worker(job, self.worker.slots)
        armed.disarm(record)
        if status == scheduler.NEED_PYTHON and state.status == Status.BREAK and state.resume == record and job.wave == wave:
            self.goals[wave] = NEVER
            return Halt("arrived", wave)
        if self._has_turn():
            self._aim(self.running)
        try:
            with self._interruptible():
                return self._resumed(status)
        finally:
            self.aim(wave, None)
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

    def _resumed(self, status: int = scheduler.PAUSED) -> Halt:
        """Runs on until there is something to tell. status: with which the scheduler came back last."""
        worker = self.worker
        while True:
            if status == scheduler.PAUSED:
                worker.job.pause = PIECE
                status = running.run_worker(worker.job, worker.slots)
            worker.job.stop = 0
            if self.whole or self._slot < 0:
                self._find()
            if self._stopping:
                if status == scheduler.NEED_PYTHON and self._has_turn() and self.wave(self.running).status == Status.BREAK:
                    self.wave(self.running).status = Status.RUNNING
                return Halt("interrupted", self.running)
            try:
                halt = self._answered(status)
            except SimError as error:
                return Halt("fault", self.running, message=f"{type(error).__name__}: {error}")
            if halt is not None:
                return halt
            status = scheduler.PAUSED

    def _find(self) -> None:
        """Looks for the workgroup among those that run; where it ran last, once it ended."""
        for number, slot in enumerate(self.worker.slots):
            if slot.state == scheduler.BUSY and tuple(slot.group) == self.group:
                self._slot = number

    def _answered(self, status: int) -> Halt | None:
        """What the scheduler came back with; None where the workgroup goes on."""
        worker = self.worker
        if status == scheduler.FINISHED:
            return Halt("ended", len(self) - 1)
        if status == scheduler.IDLE:
            raise all_wait(self.launch, worker)
        if status == scheduler.LIMIT:
            self.launch.refill([worker])
        elif status == scheduler.STOPPED and self._has_turn():
            wave = self.running
            if self.wave(wave).status == Status.ENDED:
                return Halt("wave ended", wave) if self.left else Halt("ended", wave)
        elif status == scheduler.NEED_PYTHON:
            state = current_wave(worker)
            if state.status == Status.BREAK:
                return self._broken(state.wave, state.resume)
            self.launch.serve(worker)
            self.count_lowered()
            if self._has_turn():
                self._aim(state.wave)
        return None

    def _broken(self, wave: int, record: int) -> Halt | None:
        _, state, words = self._view(wave)
        if words[GO_ON // 8] != record + 1:  # at a jump, shortly before its goal
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

    def _aim(self, wave: int) -> None:
        _, state, words = self._view(wave)
        at = state.resume
        if state.status != Status.ENDED:
            self._arm_goal(wave, at, int(words[BASE // 8] + self.ordinals.table[at, 0]))

    def _arm_goal(self, wave: int, at: int, counted: int) -> None:
        """Have the wave stop at its goal if it lies in the straight-line code from a record on, where it has `counted`."""
        self._forget_arrivals(wave)
        goal = int(self.goals[wave])
        away = goal - counted
        if 0 <= away < self.ordinals.table[at, 1]:
            record = self.ordinals.further(at, away)
            point = Point(arrival(self.device.compiler), wave, place_words(record, self.launch.entry, goal - self._offset))
            self.add(record, point)
            self._arrivals.append((record, point))

    def _forget_arrivals(self, wave: int = -1) -> None:
        """Of a wave, or all."""
        for record, point in self._arrivals:
            if wave in (-1, int(point.words[WAVE])):
                self.remove(record, point)
        self._arrivals = [one for one in self._arrivals if wave not in (-1, int(one[1].words[WAVE]))]
