"""A check's own errors: they bear its name, and what the kernel does is told apart from them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simgpu.hardware.errors import SimError
from simgpu.machine.frame import Hooks

FAILURES = "failures"  # among what checks keep


class CheckFailed(SimError):
    """An error of a check's own. name: the check's class, or its formatter; home: see there."""

    def __init__(self, check: Any, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.name = name_of(check)
        self.home = home(check)
        said = f"{type(error).__name__}: {error} (at {os.path.basename(frame.filename)}:{frame.lineno})"
        super().__init__(f"internal error of check {self.name}: {said}; please report it with the kernel")


@contextmanager
def blamed(check: Any) -> Iterator[None]:
    """Errors within are the check's; a SimError says something of the kernel, as of an instruction that is not supported."""
    try:
        yield
    except SimError:
        raise
    except Exception as error:
        raise CheckFailed(check, error) from error


@contextmanager
def noted(kept: dict[str, Any], check: Any) -> Iterator[None]:
    """The check's errors within go to `failures`; kept: what checks keep for a launch or a worker."""
    try:
        with blamed(check):
            yield
    except CheckFailed as error:
        kept.setdefault(FAILURES, []).append(error)


def name_of(check: Any) -> str:
    """The name by which messages and handlers' keys know a check, or a formatter of events."""
    return str(_kind(check).__name__)


def home(check: Any) -> str:
    """The file or folder of `simgpu.checks` in which a check has all that it is, or a formatter of its events lies."""
    return ".".join(_kind(check).__module__.split(".")[:3])


def _kind(check: Any) -> Any:
    """The class of a check, or a formatter itself."""
    return check.kind if isinstance(check, Hooks) else check
