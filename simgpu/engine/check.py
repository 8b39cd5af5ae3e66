"""Interface of checks: hooks at compile time around an instruction's body (`machine.frame.Hooks`), and around a launch.

A check's own errors carry its name and do no harm (`GuardedCheck`): the launch's result is that of plain mode. After an error while
a handler is compiled, all later handlers of the program omit the check (`Program`). Errors around a launch are collected. In
both cases the launch has one finding of kind "internal-error" for the check, and drops its other findings, which may be wrong.
The error ends the launch only if it cannot continue without the check (`prepare`, `resume`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from simgpu.engine.dispatch import Dispatch
from simgpu.engine.failures import FAILURES, blame, note_failure
from simgpu.engine.finding import CHECK_FAILED, Finding
from simgpu.engine.positions import finding_at
from simgpu.machine.frame import Hooks

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


class Check(Hooks):
    """Base class of the checks of checked mode.

    A check has no state of its own, because all launches share the handlers that it emits. Its data is in `worker.checks`, in
    its fields of contexts, waves and allocations (`engine.workers.fields`), and in extra bytes after each wave's state.
    """

    undefined = False  # True if the check needs device memory to track undefined bits
    exact_lds = False  # True if LDS ends where the launch asks, not at a granule's end, and loads from outside it are faults
    wave_bytes = 0  # extra bytes after each wave's state; at most one check of a device may have them

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        """Prepares each worker before a launch runs."""

    def restart(self, launch: Dispatch, worker: Worker) -> None:
        """Returns a worker to the state after `prepare`, for another run of the launch; checks that only look need nothing."""

    def resume(self, launch: Dispatch, worker: Worker) -> bool:
        """True if the worker's current wave, which stopped with Status.PATH, may continue."""
        return False

    def conflicts(self, workers: list[Worker]) -> dict[int, int] | None:
        """Returns clocks lost to LDS bank conflicts by record, None if the check does not count them."""
        return None

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        """Returns findings that were not reported as events, after a launch ended or failed."""
        return []


def failures(launch: Dispatch, workers: list[Worker]) -> dict[str, Finding]:
    """Returns a finding for each check that failed, in its handlers or around the launch: its first error, by `failures.home`."""
    compiled = [failure for program in launch.programs.values() for failure in program.failures]
    around = [error for kept in (launch.checks, *(worker.checks for worker in workers)) for error in kept.get(FAILURES, ())]
    found: dict[str, Finding] = {}
    for record, error in [*compiled, *((launch.entry, error) for error in around)]:
        message = f"{error}. The launch keeps its result. This check reports nothing more for it"
        found.setdefault(error.home, finding_at(launch, record, CHECK_FAILED, message))
    return found


def guard(check: Check) -> GuardedCheck:
    """Wraps a check in `GuardedCheck`, unless it is one."""
    return check if isinstance(check, GuardedCheck) else GuardedCheck(check)


class GuardedCheck(Check):
    """Wraps a check and raises or records its own errors as `CheckFailed`. kind: the check's class."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.wave_bytes, self.undefined, self.exact_lds = check.wave_bytes, check.undefined, check.exact_lds
        self.sums, self.tiles, self.moves, self.values = check.sums, check.tiles, check.moves, check.values

    @functools.cached_property
    def kind(self) -> type[Hooks]:
        return self.check.kind

    @property
    def settings(self) -> Hashable:
        return self.check.settings

    def __eq__(self, other: object) -> bool:
        """True for checks that emit the same code: of one class, with the same settings."""
        return isinstance(other, GuardedCheck) and self.kind is other.kind and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(self.kind)

    def looks_at_rows(self) -> bool:
        return self.check.looks_at_rows()

    def takes_rows(self) -> bool:
        return self.check.takes_rows()

    def conflicts(self, workers: list[Worker]) -> dict[int, int] | None:
        with note_failure(workers[0].checks, self):
            return self.check.conflicts(workers)
        return None

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        with note_failure(launch.checks, self):
            return self.check.finish(launch, workers)
        return []


def _guard_method(name: str) -> Callable[..., Any]:
    """Returns the check's method of that name, whose errors carry the check's name."""

    def call(self: GuardedCheck, *arguments: Any) -> Any:
        with blame(self):
            return getattr(self.check, name)(*arguments)

    return call


for _name in (
    "concerns", "plan", "leans", "before", "after", "on_result", "on_flush", "on_sums", "passes_tile", "access", "overwrite",
    "move", "approach", "row", "transfer", "end", "prepare", "restart", "resume",
):  # fmt: skip
    setattr(GuardedCheck, _name, _guard_method(_name))
