"""Functions that are compiled together, such as the handlers of a launch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack

from llvmlite import ir

from simgpu.hardware.errors import SimError
from simgpu.machine.compiling.helpers import MOST, WORTH, CompileJob, CompileQueue, Helper, hardware_threads
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import CALLED, CALLED_NAME, Compiler, rejection

LOOK = 0.02  # seconds between checks of `goes_on` while it waits
# Seconds without progress after which helpers and other processes are given up: LLVM takes 12 for a host's slowest function.
PATIENCE = 20.0
DECLARED = re.compile(rf'^declare .*@"({CALLED_NAME.pattern})"', re.MULTILINE)


class Batch:
    """Stands in for the compiler if many functions are needed: it makes their IR at once, and `finish` runs LLVM.

    One thread uses it. Helper processes start when enough functions wait, and end with `finish`.

    background: True if nobody waits for the functions. Then no helpers start, and no other process waits for this one.
    """

    def __init__(self, compiler: Compiler, background: bool = False) -> None:
        self._compiler, self._background = compiler, background
        self._queue = CompileQueue()
        self._promised: list[str] = []  # keys
        self._wanted: set[str] = set()  # keys whose object files are missing
        self._first: dict[str, str] = {}  # by name: the key whose job compiles it; others may have the same IR
        self._made_by: dict[str, str] = {}  # by key: that key
        self._elsewhere: list[CompileJob] = []  # jobs that another process compiles at this moment
        self._claims: dict[str, ExitStack] = {}
        self._failed: dict[str, SimError] = {}
        self._helpers: list[Helper] = []
        self._patient = True  # True while it waits for other processes

    def address(self, key: str, build: Callable[[ir.Module, str], None]) -> int:
        """Returns the address of the function for `key`, or a promise if it must be compiled: a negative number for `settle`."""
        return self.address_of_source(key, lambda name: self._compiler.source(build, name))

    def address_of_source(self, key: str, make: Callable[[str], ModuleSource]) -> int:
        """Returns the address of the function whose source `make(name)` returns, or a promise; see `address`."""
        if self._made_by.get(key) not in self._wanted:
            found = self._find_or_want(key, make)
            if found is not None:
                return found
        self._promised.append(self._made_by[key])
        return -len(self._promised)

    def settle(self, address: int) -> int | None:
        """Returns the address for an address or a promise, None if `finish` has not compiled the function yet.

        Raises SimError if LLVM rejects the function.
        """
        if address >= 0:
            return address
        key = self._promised[-address - 1]
        if key in self._failed:
            raise self._failed[key]
        return self._compiler.find(key)

    def _find_or_want(self, key: str, make: Callable[[str], ModuleSource]) -> int | None:
        """Returns the address of a function. If it must be compiled, returns None and queues the function and those it calls."""
        compiler = self._compiler
        found = compiler.find(key)
        if found is not None:
            return found
        source = compiler.named_source(key, make)
        found = compiler.find(key)  # other sources, or another key, had the same IR
        if found is not None:
            return found
        name = compiler.name(key)
        if self._first.get(name) not in self._wanted:
            self._first[name] = key
        self._made_by[key] = self._first[name]
        if self._made_by[key] != key:
            return None
        self._wanted.add(key)
        calls = DECLARED.findall(source.text)
        self._queue.put(CompileJob(key, name, source, alone=bool(calls) or key in CALLED))
        for called in map(compiler.called_key, calls):
            if called is not None and called not in self._wanted:
                self._find_or_want(called, CALLED[called])
        self._begin_helpers()
        return None

    def _begin_helpers(self) -> None:
        count = 0 if self._background else min(hardware_threads() - 1, MOST, self._queue.size // WORTH)
        while len(self._helpers) < count:
            try:
                self._helpers.append(Helper(self._compiler.host, self._queue, self._begin, self._keep_result, self._requeue))
            except OSError:  # the host starts no more processes
                return

    def finish(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Compiles the remaining functions. Ends early if `goes_on` returns False; the next call compiles the rest."""
        came, self._patient = time.monotonic(), True
        try:
            while self._wanted and goes_on():
                taken = self._queue.take()
                if not taken:
                    if self._wait():
                        came = time.monotonic()
                    elif time.monotonic() > came + PATIENCE:
                        self._end_helpers()  # this process compiles their functions
                        self._patient = False  # and those of other processes
                elif begun := [job for job in taken if self._begin(job)]:
                    for job, code in zip(begun, self._compiler.object_codes([job.source for job in begun]), strict=True):
                        self._keep_result(job, code)
                    came = time.monotonic()
        finally:
            self._end_helpers()
            self._queue.settle()

    def _wait(self) -> bool:
        """Waits LOOK seconds for helpers. Returns True if a job was done.

        Jobs of other processes return to the queue, so that their files are looked up again.
        """
        with self._queue.changed:
            before = len(self._wanted)
            self._queue.changed.wait(LOOK)
            while self._elsewhere:
                self._queue.put(self._elsewhere.pop())
            return len(self._wanted) < before

    def _end_helpers(self) -> None:
        for helper in self._helpers:
            helper.end()
        self._helpers.clear()

    def _begin(self, job: CompileJob) -> bool:
        """True if this process must compile the job: there is no object file yet, and no other process compiles it."""
        claim = ExitStack()
        if not self._background and not claim.enter_context(self._compiler.kept.made_once(job.name, wait=False)) and self._patient:
            with self._queue.changed:
                self._elsewhere.append(job)
            return False
        self._claims[job.key] = claim
        if self._compiler.is_kept(job.key):
            self._finish_job(job)
            return False
        return True

    def _keep_result(self, job: CompileJob, code: bytes | str) -> None:
        """Keeps the result of a job: the object file, or LLVM's error message."""
        if isinstance(code, bytes):
            self._compiler.keep(job.name, code)
        else:
            self._failed[job.key] = rejection(job.name, code)
        self._finish_job(job)

    def _finish_job(self, job: CompileJob) -> None:
        self._claims.pop(job.key).close()
        with self._queue.changed:
            self._wanted.discard(job.key)
            self._queue.changed.notify_all()

    def _requeue(self, job: CompileJob) -> None:
        """Puts a helper's unfinished job back, so that another thread compiles it."""
        self._claims.pop(job.key).close()
        self._queue.put(job)
