"""Runs functions that exceptions must not interrupt: those raised in the calling thread meanwhile wait until the end.

A KeyboardInterrupt, a signal's handler or a test's time limit may raise between any two steps of Python in the launching
thread. An object file that LLVM has loaded and nobody recorded, or a half-finished lowering, would harm the next launch.

A thread that can be interrupted so waits only on locks, which C acquires and releases. threading's conditions and
`Thread.start` are Python: an exception inside them leaves their locks held forever, or turns into a RuntimeError.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WAKE = 0.02  # seconds after which a waiting thread sees exceptions that are set in it without a signal
_HERE = threading.local()


def begin(function: Callable[[], object]) -> None:
    """Runs function() in a shielded thread. No other thread knows it, so none can raise an exception in it.

    Raises RuntimeError if the host has no more threads.
    """
    _thread.start_new_thread(_run, (function,))


def _run(function: Callable[[], object]) -> None:
    _HERE.shielded = True
    function()


def run_shielded(function: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Runs function() in another thread; returns its result or raises its exception.

    If an exception is raised in this thread meanwhile, calls `stop`, waits for the function's end, and raises that exception.
    """
    if getattr(_HERE, "shielded", False):
        return function()
    results: list[T] = []
    errors: list[BaseException] = []
    lock, over = _thread.allocate_lock(), _thread.allocate_lock()
    begun = ended = cancelled = False

    def run() -> None:
        nonlocal begun, ended
        with lock:
            if cancelled:
                return
            begun = True
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        ended = True
        over.release()

    raised: BaseException | None = None
    waiting = True
    over.acquire()
    while waiting:
        try:
            if raised is None:
                begin(run)
            else:
                stop()
            with lock:
                cancelled = raised is not None and not begun
            while not ended and not cancelled:
                over.acquire(timeout=WAKE)
            waiting = False
        except BaseException as error:
            raised = raised or error
    if raised is not None:
        raise raised
    if errors:
        raise errors[0]
    return results[0]
