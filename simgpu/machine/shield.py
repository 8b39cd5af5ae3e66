"""Runs what must not be broken off half done: exceptions that are raised in the calling thread meanwhile wait for its end.

A KeyboardInterrupt, a signal's handler or a test's time limit may raise between any two steps of Python in the thread that
launches; an object file that LLVM has taken and nobody noted, or a lowering that stopped midway, would harm the next launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WAKE = 0.02  # seconds after which a thread that waits sees exceptions that are set in it without a signal


class Shielded(threading.Thread):
    """A thread that nobody outside knows, so that no exception is raised in it from there."""


def unbroken(function: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Returns function() or raises what it does, but first what was raised in this thread meanwhile, after `stop` and its end."""
    if isinstance(threading.current_thread(), Shielded):
        return function()
    results: list[T] = []
    errors: list[BaseException] = []
    changed = threading.Condition()
    begun = ended = cancelled = False

    def run() -> None:
        nonlocal begun, ended
        with changed:
            if cancelled:
                return
            begun = True
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        with changed:
            ended = True
            changed.notify()

    raised: BaseException | None = None
    waiting = True
    thread = Shielded(target=run)
    while waiting:
        try:
            if raised is None:
                thread.start()
            else:
                stop()
            with changed:
                cancelled = raised is not None and not begun
                while not ended and not cancelled:
                    changed.wait(WAKE)
                waiting = False
        except BaseException as error:
            raised = raised or error
    if raised is not None:
        raise raised
    if errors:
        raise errors[0]
    return results[0]
