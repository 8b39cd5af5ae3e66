"""What a check is: hooks at compile time around an instruction's body, and around a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.hardware.isa.instruction import Instruction

if TYPE_CHECKING:
    from simgpu.engine.finding import Finding
    from simgpu.engine.launch import Launch
    from simgpu.engine.worker import Worker
    from simgpu.machine.frame import Frame
    from simgpu.machine.hooks import Access
    from simgpu.machine.operands import Plan


class Check:
    """One kind of checking.

    An instance keeps nothing: handlers that it emits are shared by all launches. What a worker needs
    lies in `worker.checks`, in context and wave fields of `layout`, and in the wave's shadow block.
    """

    def concerns(self, inst: Instruction) -> bool:
        """Whether the check emits anything for the instruction; without any it shares plain handlers."""
        return True

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """What `before` and `after` need; may add slots and parts of the handler's key to the plan."""
        return None

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit ahead of the instruction's body."""

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit behind the body, where the wave goes on with the next instruction."""

    def access(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` made an access to memory or LDS that passed its bounds checks."""

    def overwrite(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` is about to store to LDS; `access` follows."""

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        """Emit where control goes from record `index` to record `target` (i32 values)."""

    def end(self, frame: Frame, index: Any) -> None:
        """Emit where a wave ends at record `index`."""

    def prepare(self, launch: Launch, worker: Worker) -> None:
        """Before a launch runs, for each of its workers."""

    def together(self, launch: Launch) -> int:
        """How many workgroups may run before `ran` is called and the next ones start; 1 or more."""
        return launch.groups

    def ran(self, launch: Launch, first: int, last: int) -> None:
        """After workgroups first to last - 1 ended, before any later one starts."""

    def finish(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        """After a launch ended or failed: findings that were not reported as events."""
        return []
