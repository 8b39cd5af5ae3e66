"""A check's own errors: they carry its name, apart from errors of the kernel."""

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
    """An error of a check itself. name: the check's class, or its formatter. home: see `home`."""

    def __init__(self, check: Any, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.name = name_of(check)
        self.home = home(check)
        said = f"{type(error).__name__}: {error} (at {os.path.basename(frame.filename)}:{frame.lineno})"
        super().__init__(f"internal error of check {self.name}: {said}; please report it with the kernel")


@contextmanager
def blame(check: Any) -> Iterator[None]:
    """Turns errors within into the check's. A SimError is about the kernel, such as an unsupported instruction."""
    try:
        yield
    except SimError:
        raise
    except Exception as error:
        raise CheckFailed(check, error) from error


@contextmanager
def note_failure(kept: dict[str, Any], check: Any) -> Iterator[None]:
    """Records the check's errors within for `failures`. kept: data that checks keep for a launch or a worker."""
    try:
        with blame(check):
            yield
    except CheckFailed as error:
        kept.setdefault(FAILURES, []).append(error)


def name_of(check: Any) -> str:
    """Returns the name of a check, or of a formatter of events, for messages and handlers' keys."""
    return str(_kind(check).__name__)


def home(check: Any) -> str:
    """Returns the file or folder of `simgpu.checks` that contains a check, or the formatter of its events."""
    return ".".join(_kind(check).__module__.split(".")[:3])


def _kind(check: Any) -> Any:
    """Returns the class of a check, or a formatter itself."""
    return check.kind if isinstance(check, Hooks) else check
