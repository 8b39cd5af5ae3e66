"""Runs a launch's workers on threads, until they are done or the launch's time limit is over.

The memory that workers use is freed when the launch is over, however it ends. So an exception in the launching thread, such as
a KeyboardInterrupt or a test's time limit, leaves it only after all workers have stopped.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from simgpu.engine.workers import running, scheduler
from simgpu.engine.workers.worker import Worker
from simgpu.hardware.errors import LaunchError
from simgpu.machine import layout, shield
from simgpu.machine.shield import WAKE

# A worker in the launching thread returns to Python after a number of record steps in these bounds, about once in SECONDS.
FEWEST, MOST, SECONDS = layout.PIECE, 1 << 17, 0.01
UNBOUNDED = 1 << 62


class TeamCancelled(Exception):
    """Raised when the team must stop; never leaves it."""


class TimeOver(Exception):
    """Raised when the launch exceeds its time limit."""


class Team:
    """Runs the workers of one launch. timeout: seconds from now that the launch may last, None for no limit."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._lock = threading.Lock()
        self._working = self._left = 0  # workers whose threads run, and workers that have not ended
        self._over = threading.Lock()  # held until all workers have ended
        self._turn = 0  # number of the call of `run`: a thread that begins too late belongs to an earlier one
        self._stopping = self._alone = self._open = False
        self._steps = 4 * FEWEST
        self._workers: Sequence[Worker] = ()

    def goes_on(self) -> bool:
        """True if there is time left and the team need not stop."""
        return not self._stopping and time.monotonic() < self._deadline

    def check(self) -> None:
        """Raises TeamCancelled if the team must stop, TimeOver if its time is over."""
        if self._stopping:
            raise TeamCancelled
        if time.monotonic() >= self._deadline:
            raise TimeOver

    def stop(self) -> None:
        """Makes all workers return soon."""
        self._stopping = True
        for worker in self._workers:
            worker.job.stop = 1

    def run(self, workers: Sequence[Worker], work: Callable[[Worker], None]) -> None:
        """Calls work(worker) for each worker, on separate threads, or on this one if there is only one worker.

        Returns when all calls have returned. Only then does it raise TimeOver, or an exception of this thread meanwhile.
        """
        self._workers, self._stopping, self._alone, self._open = workers, False, len(workers) == 1, False
        for worker in workers:
            worker.job.stop = 0
        if self._alone:
            work(workers[0])
            return
        self._turn += 1
        self._opened = threading.Condition(self._lock)  # for the workers' threads, which no exception interrupts
        self._left, self._over = len(workers), threading.Lock()
        self._over.acquire()
        try:
            for worker in workers:
                _begin(partial(self._thread, worker, work, self._turn))
            with self._lock:
                # All workers begin only after all threads have started. In CPython 3.11 an exception set in this thread by its
                # number may hit a thread that is just starting instead, and callers set it once the kernel runs.
                self._open = True
                self._opened.notify_all()
            while self._left:
                self._over.acquire(timeout=WAKE)
                if time.monotonic() >= self._deadline:
                    raise TimeOver
        finally:
            self._end()

    def advance(self, worker: Worker) -> None:
        """Runs a worker until its `status` is not PAUSED. Raises TeamCancelled or TimeOver; another call continues from there.

        A worker on the launching thread returns to Python about every 10 ms, so that signals are handled.
        """
        while True:
            self.check()
            worker.job.pause = self._steps if self._alone else UNBOUNDED
            begun = time.monotonic()
            worker.status = running.run_worker(worker.job, worker.slots)
            if worker.status != scheduler.PAUSED:
                return
            took = time.monotonic() - begun
            if took < SECONDS / 2:
                self._steps = min(2 * self._steps, MOST)
            elif took > SECONDS:
                self._steps = max(self._steps // 2, FEWEST)

    def attempt(self, worker: Worker) -> bool:
        """Runs a worker on this thread, once and for a few ms at most. True if it finished; otherwise `run` continues it."""
        worker.job.pause = self._steps
        worker.status = running.run_worker(worker.job, worker.slots)
        return worker.status == scheduler.FINISHED

    def _thread(self, worker: Worker, work: Callable[[Worker], None], turn: int) -> None:
        with self._lock:
            if turn != self._turn:
                return
            self._working += 1
            while not self._open and not self._stopping:
                self._opened.wait(WAKE)
            works = not self._stopping
        try:
            if works:
                work(worker)
        finally:
            with self._lock:
                self._working -= 1
                self._left -= 1
                if not self._left:
                    self._over.release()

    def _end(self) -> None:
        """Waits until no thread runs. Ignores further exceptions: one is already being raised."""
        while True:
            try:
                if self._left:
                    self.stop()
                    with self._lock:
                        self._turn += 1
                while self._working:
                    time.sleep(1e-4)
                return
            except BaseException:  # a second Ctrl-C
                continue


def _begin(function: Callable[[], None]) -> None:
    try:
        shield.begin(function)
    except RuntimeError as error:
        raise LaunchError(f"the host has no more threads ({error}): give the Device fewer, threads=1") from None
