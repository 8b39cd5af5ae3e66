"""The simulated GPU as a user meets it: the engine's device, with the checks of checked mode by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.engine import device as engine
from simgpu.engine.device import Buffer, Kernel, Module
from simgpu.hardware.errors import LaunchError

if TYPE_CHECKING:
    from simgpu.engine.check import Check

__all__ = ["Buffer", "Device", "Kernel", "Module"]


class Device(engine.Device):
    """A simulated GPU.

    target: gfx908, gfx90a, gfx942, gfx950 or a board's name (see `hardware.targets`).
    check: True looks for what the hardware would not forgive, see `Run.findings` and docs/check.md; "performance" adds notes on
    what costs time.
    threads: host threads (default: all cores).
    max_instructions: budget of a launch, in wave-instructions, all workgroups together; docs/engine.md says how closely it is kept.
    timeout: seconds that a launch may last, None for any.

    Raises TargetError for an unknown target, LaunchError for other bad arguments.
    """

    def __init__(
        self,
        target: str,
        *,
        check: bool | str = False,
        threads: int | None = None,
        max_instructions: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if check not in (False, True, "performance"):
            raise LaunchError(f"check={check!r}: give False, True or \"performance\"")
        super().__init__(
            target, check=check, checks=_checks(check), threads=threads, max_instructions=max_instructions, timeout=timeout
        )


def _checks(check: bool | str) -> tuple[Check, ...]:
    """What the mode looks for; imported here, as plain mode starts faster without it."""
    if not check:
        return ()
    from simgpu.checks.suite import CHECKS, NOTES

    return NOTES if check == "performance" else CHECKS
