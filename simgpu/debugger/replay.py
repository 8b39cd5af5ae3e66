"""Replays one workgroup from its beginning, stop after stop, in the same way every time.

The workgroup runs alone on one thread. Its waves run in a fixed order and in slices that stops do not change, so the number of
retired instructions of one wave determines the places of all. `restart` restores device memory as it was at the workgroup's
beginning.

If workgroups wait for later ones, the whole launch runs, also on one thread, and only the workgroup in focus is stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.armed import ArmedPoints, Point
from simgpu.debugger.native.clock import BASE, GO_ON, NEVER, ORDINALS, PASSES, Ordinals, RetiredClock
from simgpu.debugger.native.points import ARRIVED, HIT, WAVE, arrival, place_words
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

PIECE = 1 << 17  # record steps between checks for a signal: about 10 ms at most


@dataclass(frozen=True)
class Halt:
    """Reason why the replay returned."""

    # "points" (a wave is before an instruction with points that hit), "arrived" (at its goal), "wave ended", "ended", "fault"
    # or "interrupted"
    kind: str
    wave: int  # number of the wave
    points: tuple[Point, ...] = ()  # points that were hit
    message: str = ""  # text of a fault


def debugging(kernel: Kernel, checks: Sequence[Check] = ()) -> Kernel:
    """Returns the kernel on a device that shares the memory, counts retired instructions and prints nothing."""
    module = kernel.module
    device = module.device
    device = device.sharing([*(device.checks if device.seeded else ()), RetiredClock(), *checks])
    return Kernel(module.on(device), kernel.info)


class Replay:
    """Runs one workgroup of a launch any number of times.

    kernel: from `debugging`. group: the workgroup's id. initial: memory at its beginning. whole: True if all workgroups run.
    """

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int], initial: Initial,
        whole: bool = False,
    ) -> None:  # fmt: skip
        self.group, self.whole = group, whole
        self.number = geometry.number(group)
        # The debugger reads registers between instructions.
        parts = () if whole else [range(self.number, self.number + 1)]
        self.launch = Launch(kernel, geometry, args, parts=parts, threads=1, fuse=False)
        self.device = self.launch.device
        items = [min(b, size - at * b) for b, size, at in zip(geometry.block, geometry.global_size, group, strict=True)]
        self._count = -(-items[0] * items[1] * items[2] // layout.LANES)
        self.initial = initial
        self.armed: dict[int, ArmedPoints] = {}  # by the address of a program's records
        self._wanted: list[tuple[int, Point]] = []  # points by record, lowered or not
        self.ordinals: Ordinals
        self._version = -1
        self._stopping = False
        (self.worker,) = self.launch.begin()
        focus: np.ndarray = self.worker.checks["focus"]
        focus["sole"], focus["group"], self.goals = whole, group, focus["goals"][0]
        self._slot = -1  # slot of the workgroup; -1 before it begins
        self._views: dict[int, list[tuple[np.ndarray, Wave, np.ndarray]]] = {}  # waves of a slot: bytes, fields, words
        initial.keep()  # private memory, and other allocations of the launch
        self._arrivals: list[tuple[int, Point]] = []
        self.count_lowered()

    def close(self) -> None:
        """Restores memory, frees the launch's resources, and removes all points from the code."""
        for record, point in list(self._wanted):
            self.remove(record, point)
        self.initial.undo(self.launch.table)
        self.launch.end(False)

    # -- the waves -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the number of waves in the workgroup; a partial one has fewer than others."""
        return self._count

    def _view(self, wave: int, slot: int = -1) -> tuple[np.ndarray, Wave, np.ndarray]:
        slot = max(0, self._slot) if slot < 0 else slot
        if slot not in self._views:
            held = [wave_bytes_of(self.worker, slot, number) for number in range(self.launch.waves)]
            self._views[slot] = [(raw, Wave.from_buffer(raw.data), raw[: layout.ADDRESSES].view(np.int64)) for raw in held]
        return self._views[slot][wave]

    def wave(self, number: int) -> Wave:
        """Returns the fields of a wave."""
        return self._view(number)[1]

    def bytes_of(self, number: int) -> np.ndarray:
        """Returns the bytes of a wave, without those of checks."""
        return self._view(number)[0]

    def retired_count(self, wave: int) -> int:
        """Returns the number of instructions that a wave has retired."""
        if self._slot < 0:
            return 0
        _, state, words = self._view(wave)
        ended = state.status == Status.ENDED  # it stays at its last instruction
        return int(words[BASE // 8]) + self._table_of[state.resume, 0] - self._offset + ended

    def place(self, wave: int) -> WavePlace:
        """Returns the place of a wave."""
        return WavePlace(self.group, wave, self.retired_count(wave))

    def _has_turn(self) -> bool:
        """True if the last wave that ran is of this workgroup."""
        job = self.worker.job
        return self._slot >= 0 and job.current == self._slot and self.worker.slots[self._slot].state == scheduler.BUSY

    @property
    def running(self) -> int:
        """Wave that has the turn, or had it last."""
        return min(int(self.worker.job.wave), len(self) - 1) if self._slot < 0 or self._has_turn() else 0

    @property
    def waves_left(self) -> int:
        """Number of waves that have not ended."""
        return int(self.worker.slots[self._slot].left) if self._slot >= 0 else len(self)

    def lds(self) -> np.ndarray:
        """Returns the workgroup's LDS, uint8."""
        first = max(0, self._slot) * int(self.worker.job.lds_stride)
        return self.worker.storage[1][first : first + self.launch.lds_bytes]

    # -- points --------------------------------------------------------------------------------

    def scratch(self, wave: int) -> int:
        """Returns the device address of a wave's private memory."""
        job = self.worker.job
        return int(job.scratch) + (max(0, self._slot) * int(job.waves) + wave) * int(job.scratch_wave)

    def add(self, record: int, point: Point) -> None:
        """Adds a point at a record, also if the record is lowered only later."""
        self._wanted.append((record, point))
        for armed in self.armed.values():
            if record in armed.program.instructions:
                armed.add(record, point)

    def remove(self, record: int, point: Point) -> None:
        """Removes a point."""
        self._wanted.remove((record, point))
        for armed in self.armed.values():
            armed.remove(record, point)

    def lower(self, record: int) -> None:
        """Lowers the code from a record on, before a wave comes there."""
        self.launch.program.lower(record)
        self.count_lowered()

    def count_lowered(self) -> None:
        """Updates ordinals, counts and goals if code was lowered since the last call, and adds points at the new records."""
        version = sum(program.version for program in self.launch.programs.values())
        if version == self._version:
            return
        self._version = version
        before = getattr(self, "ordinals", None)
        self.ordinals = Ordinals.of(self.launch.programs.values())
        self.worker.set_context(ORDINALS, self.ordinals.table.ctypes.data)
        self._table_of = self.ordinals.table.data  # fast access
        self._offset = self._table_of[self.launch.entry, 0]  # excess of BASE's count over the retired count
        if before is not None:
            old, new = before.table, self.ordinals.table
            for slot, held in enumerate(self.worker.slots):
                for wave in range(held.waves if held.state == scheduler.BUSY else 0):
                    _, state, words = self._view(wave, slot)
                    at = state.entry  # the retired count here is the same by the old and the new ordinals
                    moved = (old[at, 0] - old[self.launch.entry, 0]) - (new[at, 0] - new[self.launch.entry, 0])
                    words[BASE // 8] += int(moved)
            self.goals[self.goals != NEVER] += int(new[self.launch.entry, 0] - old[self.launch.entry, 0])
        for program in self.launch.programs.values():
            if program.address not in self.armed:
                self.armed[program.address] = ArmedPoints(program)
            armed = self.armed[program.address]
            for record, point in self._wanted:
                if record in program.instructions and point not in armed.at(record):
                    armed.add(record, point)

    # -- running -------------------------------------------------------------------------------

    def restart(self) -> None:
        """Returns to the beginning: no wave has begun."""
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
        for check in self.device.checks:
            check.restart(launch, self.worker)
        for slot in self.worker.slots:
            slot.empty()
        self._slot = -1
        (part,) = launch.parts
        launch.shared.counter, job.groups = part.start, part.stop
        launch.shared.budget = self.device.max_instructions

    def resume(self, passes: int = 0) -> Halt:
        """Runs to the next stop. passes: number of stops at points to pass; goals always stop."""
        self._forget_hits(passes)
        if self._has_turn():
            self._let_on(self.running)
        for wave in np.flatnonzero(self.goals != NEVER).tolist():
            if self._slot >= 0:
                self._aim(wave)
            else:
                self._arm_goal(wave, self.launch.entry, self._offset)
        try:
            with self._interruptible():
                return self._resume()
        finally:
            self._forget_arrivals()

    def _forget_hits(self, passes: int) -> None:
        """Makes the next `passes` stops at points pass, and the points not hit yet."""
        self.worker.set_context(PASSES, passes + 1)
        for _, point in self._wanted:
            point.words[HIT] = 0

    def _let_on(self, wave: int) -> None:
        """Lets the stopped wave, which has the turn, continue."""
        _, state, words = self._view(wave)
        if state.status == Status.BREAK:
            state.status = Status.RUNNING
        if not self._armed_for(state).at(state.resume):
            words[GO_ON // 8] = 0

    def step(self, wave: int, retired: int) -> Halt | None:
        """Runs one instruction of the wave that has the turn. retired: its retired count afterwards.

        Returns None and does nothing if another wave has the turn, or if the code does not say where the wave goes: use
        `resume` then.
        """
        job = self.worker.job
        if job.wave != wave or not self._has_turn():
            return None
        state = self._view(wave)[1]
        if state.status not in (Status.BREAK, Status.RUNNING):
            return None
        armed = self._armed_for(state)
        after = armed.arm_next(state.resume, wave)
        if not after:
            return None
        try:
            self._forget_hits(0)
            self._let_on(wave)
            job.pause = PIECE
            status = running.run_worker(job, self.worker.slots)
        finally:
            armed.disarm(after)
        if status == scheduler.NEED_PYTHON and state.status == Status.BREAK and state.resume in after and job.wave == wave:
            return Halt("arrived", wave)
        self.aim(wave, retired)
        self._aim(wave)
        try:
            with self._interruptible():
                return self._resume(status)
        finally:
            self.aim(wave, None)
            self._forget_arrivals()

    @property
    def passes_left(self) -> int:
        """1 + `passes` of the last `resume`, minus the number of stops at points since then."""
        return int(self.worker.context[PASSES // 8])

    def _armed_for(self, state: Wave) -> ArmedPoints:
        """Returns the points of the program that a wave runs."""
        return self.armed[state.records]

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Makes Ctrl-C interrupt the replay in a `with` block, if this is the main thread."""
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
        """Makes the replay return soon. May be called from any thread."""
        self._stopping = True
        self.worker.job.stop = 1

    def _resume(self, status: int = scheduler.PAUSED) -> Halt:
        """Runs to the next halt. status: the scheduler's last status."""
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
                halt = self._answer(status)
            except SimError as error:
                return Halt("fault", self.running, message=f"{type(error).__name__}: {error}")
            if halt is not None:
                return halt
            status = scheduler.PAUSED

    def _find(self) -> None:
        """Finds the workgroup's slot. After its end, the slot remains the last one."""
        for number, slot in enumerate(self.worker.slots):
            if slot.state == scheduler.BUSY and tuple(slot.group) == self.group:
                self._slot = number

    def _answer(self, status: int) -> Halt | None:
        """Handles a return of the scheduler. Returns None if the workgroup continues."""
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
                return Halt("wave ended", wave) if self.waves_left else Halt("ended", wave)
        elif status == scheduler.NEED_PYTHON:
            state = current_wave(worker)
            if state.status == Status.BREAK:
                return self._at_breakpoint(state.wave, state.resume)
            self.launch.serve(worker)
            self.count_lowered()
            if self._has_turn():
                self._aim(state.wave)
        return None

    def _at_breakpoint(self, wave: int, record: int) -> Halt | None:
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
        """Makes the replay return when a wave has retired `retired_count` instructions; None removes the goal."""
        self.goals[wave] = NEVER if retired is None else retired + self._offset

    def _aim(self, wave: int) -> None:
        _, state, words = self._view(wave)
        at = state.resume
        if state.status != Status.ENDED:
            self._arm_goal(wave, at, int(words[BASE // 8] + self.ordinals.table[at, 0]))

    def _arm_goal(self, wave: int, at: int, counted: int) -> None:
        """Puts a point at the wave's goal if the goal is in the straight-line code from record `at` on.

        counted: the wave's count of instructions at `at`
        """
        self._forget_arrivals(wave)
        goal = int(self.goals[wave])
        away = goal - counted
        if 0 <= away < self.ordinals.table[at, 1]:
            record = self.ordinals.record_after(at, away)
            point = Point(arrival(self.device.compiler), wave, place_words(record, self.launch.entry, goal - self._offset))
            self.add(record, point)
            self._arrivals.append((record, point))

    def _forget_arrivals(self, wave: int = -1) -> None:
        """Removes the arrival points of a wave, or of all."""
        for record, point in self._arrivals:
            if wave in (-1, int(point.words[WAVE])):
                self.remove(record, point)
        self._arrivals = [one for one in self._arrivals if wave not in (-1, int(one[1].words[WAVE]))]
