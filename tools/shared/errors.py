"""Errors of the command itself; `simgpu.tools.cli` turns them into a line and an exit status."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from simgpu.hardware.errors import SimError


class UsageError(SimError):
    """Raised for a command line that cannot be carried out: status 2."""


class KernelFailed(SimError):
    """Raised for a kernel's own error (memory fault, deadlock, budget, unsupported instruction): status 1."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean NAME?)` for a name near the word, "" if there is none."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""
