"""An executor of processes of this machine, for slices of launches and other tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from simgpu.hardware.errors import LaunchError

DEATHS = 3  # most deaths of workers that one task may be involved in
MEMORY = Path("/dev/shm")  # a file system in memory, on Linux


class Processes(Executor):
    """An executor with `workers` processes. If a process dies, all are replaced, and the unfinished tasks run again.

    folder: where workers find bytes by their hash, so that these are not sent. `shutdown`, or leaving the `with` block, ends the
    processes; an exception in the block also ends running tasks.

    >>> with Processes(2) as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise LaunchError(f"{workers} processes: at least one is needed")
        self.workers = workers or os.cpu_count() or 1
        self._folder = tempfile.TemporaryDirectory(prefix="simgpu-", dir=MEMORY if MEMORY.is_dir() else None)
        self.folder = Path(self._folder.name)
        self._lock = threading.Lock()
        self._closed = False
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        # Ctrl-C goes to all processes of a terminal; the caller's process decides. Forked processes would hold its
        # threads' locks.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))

    @property
    def pids(self) -> list[int]:
        """Process ids of the current workers."""
        return list(self._pool._processes or {})

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`; raises RuntimeError after `shutdown`."""
        result: Future[Any] = Future()
        self._start(result, DEATHS, fn, args, kwargs)
        return result

    def _start(self, result: Future[Any], tries: int, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the processes were shut down")
            pool = self._pool
            try:
                inner = pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                pool = self._pool = self._new()
                inner = pool.submit(fn, *args, **kwargs)

        def copy_result(inner: Future[Any]) -> None:
            if inner.cancelled():
                result.cancel()
                result.set_running_or_notify_cancel()
                return
            error = inner.exception()
            if isinstance(error, BrokenExecutor) and tries > 1 and not self._closed:
                self._renew(pool)
                self._start(result, tries - 1, fn, args, kwargs)
            elif result.set_running_or_notify_cancel():
                if error is not None:
                    result.set_exception(error)
                else:
                    result.set_result(inner.result())

        inner.add_done_callback(copy_result)

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is broken and not self._closed:
                self._pool = self._new()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        with self._lock:
            self._closed = True
        processes = list((self._pool._processes or {}).values())
        if cancel_futures:
            for process in processes:
                process.terminate()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._folder.cleanup()

    def __exit__(self, kind: object, *about: object) -> None:
        self.shutdown(cancel_futures=kind is not None)
