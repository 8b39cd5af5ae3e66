"""Runs helper processes: each compiles functions that a thread of this process sends it from a queue.

llvmlite holds a lock around each call into LLVM, so threads would not help. A helper is a fresh Python that runs
`object_file.py` and imports only LLVM; a process with threads is not forked. If a helper process dies or never starts,
this process compiles its functions instead, and the launch is only slower.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from simgpu.machine.compiling import object_file
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.host import Host

# Sizes are characters of IR.
WORTH = 1 << 18  # waiting jobs of this size are worth a process: LLVM takes 0.15 s for them, as long as a process takes to start
AHEAD = 1 << 15  # a process gets more jobs while its unfinished ones are smaller, so that it never waits for this process
# Functions below SMALL are compiled together, up to GROUP: LLVM takes 2 ms to begin an object file.
SMALL, GROUP = 1 << 14, 1 << 15
MOST = 3  # most processes: more would compile IR faster than this process makes it


def hardware_threads() -> int:
    """Returns the number of hardware threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(order=True)
class CompileJob:
    """A function to compile. The largest comes first, so that all processes end at about the same time.

    alone: True if it needs a separate object file. Functions that others call by name are loaded before their callers; a function
    that calls others may not be loadable in a process that needs another function of its file.
    """

    order: int = field(init=False)
    key: str
    name: str
    source: ModuleSource = field(compare=False)
    alone: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        self.order = -self.size

    @property
    def size(self) -> int:
        return len(self.source.text)

    @property
    def joins(self) -> bool:
        """True if it is compiled together with others."""
        return self.size < SMALL and not self.alone and not self.source.loops


class CompileQueue:
    """Jobs for the threads that compile them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._jobs: list[CompileJob] = []
        self.size = 0  # of all jobs since `settle`

    def put(self, job: CompileJob) -> None:
        with self.changed:
            heapq.heappush(self._jobs, job)
            self.size += job.size
            self.changed.notify_all()

    def settle(self) -> None:
        """Resets `size` to the jobs that still wait."""
        with self.changed:
            self.size = sum(job.size for job in self._jobs)

    def take(self) -> list[CompileJob]:
        """Returns the largest job, or some small ones that are compiled together; none if nothing waits."""
        with self.changed:
            taken: list[CompileJob] = [heapq.heappop(self._jobs)] if self._jobs else []
            while taken and taken[0].joins and self._jobs and self._jobs[0].joins and sum(job.size for job in taken) < GROUP:
                taken.append(heapq.heappop(self._jobs))
            return taken


class Helper:
    """A process and the thread that feeds it, until `end`.

    begin(job): returns True if the process should compile a job; called before it is sent. made(job, code): receives
    the result, the object file or LLVM's error message. back(job): receives each unfinished job when the process ends.
    """

    def __init__(
        self, host: Host, queue: CompileQueue,
        begin: Callable[[CompileJob], bool], made: Callable[[CompileJob, bytes | str], None], back: Callable[[CompileJob], None],
    ) -> None:  # fmt: skip
        self._queue, self._begin, self._made, self._back = queue, begin, made, back
        self._given: list[CompileJob] = []  # unfinished jobs, in the order of the answers
        self._ending = False
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # Without `site`: the path already has its additions, and its other code is not needed.
        self._process = subprocess.Popen(
            [sys.executable, "-S", object_file.__file__, host.triple, host.cpu, host.features],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the process at once; `back` gets its unfinished jobs."""
        with self._queue.changed:
            self._ending = True
            self._queue.changed.notify_all()
        self._process.kill()
        self._thread.join()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # data that could not be written any more
                pipe.close()  # type: ignore[union-attr]

    def _feed(self) -> None:
        try:
            while self._give():
                answer = object_file.read(self._process.stdout)  # type: ignore[arg-type]
                if answer is None:
                    break
                well, content = answer
                self._made(self._given.pop(0), content if well else content.decode(errors="replace"))
        except OSError:  # the process has ended
            pass
        finally:
            for job in self._given:
                self._back(job)

    def _give(self) -> bool:
        """Sends the process jobs up to AHEAD; waits for one while it has none. Returns False at the end."""
        while not self._given or sum(job.size for job in self._given) < AHEAD:
            taken = self._next_jobs()
            if not taken:
                break
            begun = [job for job in taken if self._begin(job)]
            if begun:
                self._given += begun
                object_file.request(self._process.stdin, [job.source for job in begun])  # type: ignore[arg-type]
        return bool(self._given)

    def _next_jobs(self) -> list[CompileJob]:
        """Returns the next jobs to send, none if nothing waits and it has some; waits while it has none."""
        with self._queue.changed:
            while not (taken := self._queue.take()) and not self._given and not self._ending:
                self._queue.changed.wait()
        return taken
