"""A launch's workers as they run: together, for as long as the launch may last, and none longer than the caller waits.

What they read and write is freed when the launch is over, however it ends: so whatever is raised in the thread that launched,
a KeyboardInterrupt or a test's time limit, leaves it when no worker runs any more.
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

# A worker in the launching thread comes back to Python after so many record steps at least and at most, about once in SECONDS.
FEWEST, MOST, SECONDS = layout.PIECE, 1 << 17, 0.01
UNBOUNDED = 1 << 62


class Cancelled(Exception):
    """The team is to stop; never leaves it."""


class TimeOver(Exception):
    """The launch lasted longer than it may."""


class Team:
    """The workers of one launch; timeout: seconds from now on that it may last, None for any."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._lock = threading.Lock()
        self._working = self._left = 0  # workers whose threads work, and that have not ended
        self._over = threading.Lock()  # taken until none is left
        self._turn = 0  # of `run`: a thread that begins too late belongs to an earlier one
        self._stopping = self._alone = self._open = False
        self._steps = 4 * FEWEST
        self._workers: Sequence[Worker] = ()

    def goes_on(self) -> bool:
        """Whether neither the time is over nor the team to stop."""
        return not self._stopping and time.monotonic() < self._deadline

    def check(self) -> None:
        """Raise Cancelled where the team is to stop, TimeOver where its time is over."""
        if self._stopping:
            raise Cancelled
        if time.monotonic() >= self._deadline:
            raise TimeOver

    def stop(self) -> None:
        """Have all workers come back soon."""
        self._stopping = True
        for worker in self._workers:
            worker.job.stop = 1

    def run(self, workers: Sequence[Worker], work: Callable[[Worker], None]) -> None:
        """work(worker) for each, on threads of their own unless there is one only; returns when all have.

        Raises TimeOver, and whatever is raised in this thread meanwhile, after all have returned.
        """
        self._workers, self._stopping, self._alone, self._open = workers, False, len(workers) == 1, False
        for worker in workers:
            worker.job.stop = 0
        if self._alone:
            work(workers[0])
            return
        self._turn += 1
        self._opened = threading.Condition(self._lock)  # for the workers' threads, which nothing strikes
        self._left, self._over = len(workers), threading.Lock()
        self._over.acquire()
        try:
            for worker in workers:
                _begin(partial(self._thread, worker, work, self._turn))
            with self._lock:
                # All begin together: an exception that is set in this thread by its number may strike one that just starts instead
                # (CPython 3.11), and whoever waits for the kernel to run would set it then.
                self._open = True
                self._opened.notify_all()
            while self._left:
                self._over.acquire(timeout=WAKE)
                if time.monotonic() >= self._deadline:
                    raise TimeOver
        finally:
            self._end()

    def advance(self, worker: Worker) -> None:
        """Run a worker until its `status` is another than PAUSED. Raises Cancelled and TimeOver, after which it may go on.

        Alone, it comes back to Python now and then, which handles signals between.
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
        """Wait until no thread works, whatever else is raised here meanwhile: an exception is on its way already."""
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
