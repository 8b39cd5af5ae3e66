"""A check's own errors, which carry its name and are kept apart from errors of the kernel."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simgpu.hardware.errors import SimError
from simgpu.machine.frame import Hooks

FAILURES = "failures"  # key among the data that checks keep


class CheckFailed(SimError):
    """An internal error of a check. name: the check's class, or its formatter. home: see `home`."""

    def __init__(self, check: Any, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.name = name_of(check)
        self.home = home(check)
        said = f"{type(error).__name__}: {error} (at {os.path.basename(frame.filename)}:{frame.lineno})"
        super().__init__(f"internal error of check {self.name}: {said}; please report it with the kernel")


@contextmanager
def blame(check: Any) -> Iterator[None]:
    """Turns an exception in its block into `CheckFailed`. A SimError passes, as it is about the kernel."""
    try:
        yield
    except SimError:
        raise
    except Exception as error:
        raise CheckFailed(check, error) from error


@contextmanager
def note_failure(kept: dict[str, Any], check: Any) -> Iterator[None]:
    """Records the check's own errors in its block for `check.failures`. kept: data that checks keep for a launch or a worker."""
    try:
        with blame(check):
            yield
    except CheckFailed as error:
        kept.setdefault(FAILURES, []).append(error)


def name_of(check: Any) -> str:
    """Returns the name of a check's class, or of a formatter, for messages."""
    return str(_kind(check).__name__)


def home(check: Any) -> str:
    """Returns the module, cut to three names such as `simgpu.checks.races`, of a check or of its events' formatter."""
    return ".".join(_kind(check).__module__.split(".")[:3])


def _kind(check: Any) -> Any:
    """Returns the class of a check, or a formatter itself."""
    return check.kind if isinstance(check, Hooks) else check
