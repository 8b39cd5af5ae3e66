"""Errors of the command itself; `simgpu.tools.cli` turns them into a line and an exit status."""

from __future__ import annotations

from simgpu.hardware.errors import SimError


class UsageError(SimError):
    """A command line that cannot be carried out: status 2."""


class KernelFailed(SimError):
    """The kernel ran into an error (memory fault, deadlock, budget, unsupported instruction): status 1."""
