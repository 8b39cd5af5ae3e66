"""What a check is: hooks at compile time around an instruction's body (`machine.hooks`), and around a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.machine.hooks import Hooks

if TYPE_CHECKING:
    from simgpu.engine.finding import Finding
    from simgpu.engine.launch import Launch
    from simgpu.engine.workers.worker import Worker


class Check(Hooks):
    """One kind of checking.

    An instance keeps nothing: handlers that it emits are shared by all launches. What a worker needs
    lies in `worker.checks`, in fields of its own (`engine.fields`), and in what it wants behind each wave's state.
    """

    wave_bytes = 0  # wanted behind each wave's state; one check of a device may want any

    def prepare(self, launch: Launch, worker: Worker) -> None:
        """Before a launch runs, for each of its workers."""

    def together(self, launch: Launch) -> int:
        """How many workgroups may run before `ran` is called and the next ones start; 1 or more."""
        return launch.groups

    def resume(self, launch: Launch, worker: Worker) -> bool:
        """Whether the check lets the worker's current wave go on, which stopped with Status.PATH."""
        return False

    def ran(self, launch: Launch, first: int, last: int) -> None:
        """After workgroups first to last - 1 ended, before any later one starts."""

    def conflicts(self, workers: list[Worker]) -> dict[int, int] | None:
        """Clocks lost to LDS bank conflicts by record; None where the check does not count them."""
        return None

    def finish(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        """After a launch ended or failed: findings that were not reported as events."""
        return []
