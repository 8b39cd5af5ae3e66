"""Runs what must not be broken off half done: exceptions that are raised in the calling thread meanwhile wait for its end.

A KeyboardInterrupt, a signal's handler or a test's time limit may raise between any two steps of Python in the thread that
launches; an object file that LLVM has taken and nobody noted, or a lowering that stopped midway, would harm the next launch.

Whoever may be struck so waits by locks alone, which C takes and gives. threading's conditions and `Thread.start` are Python: an
exception that strikes within leaves their locks taken for ever, or hides behind a RuntimeError.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WAKE = 0.02  # seconds after which a thread that waits sees exceptions that are set in it without a signal
_HERE = threading.local()


def begin(function: Callable[[], object]) -> None:
    """function() in a shielded thread: one that nobody outside knows, so that no exception is raised in it from there.

    RuntimeError: the host has no more threads.
    """
    _thread.start_new_thread(_run, (function,))


def _run(function: Callable[[], object]) -> None:
    _HERE.shielded = True
    function()


def unbroken(function: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Returns function() or raises what it does, but first what was raised in this thread meanwhile, after `stop` and its end."""
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
