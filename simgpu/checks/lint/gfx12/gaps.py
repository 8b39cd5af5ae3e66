"""Measures the gap between an operation of gfx1250 and an instruction that comes too early."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.checks.lint.gaps import Gap
from simgpu.checks.lint.gfx12.pending import IN_ORDER, ROOM, VA_VDST, VM_VSRC
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.kinds import ControlKind


@dataclass(frozen=True)
class CountGap(Gap):
    """Gap after an operation that a counter counts: the number of operations that it counted since."""

    counter: str
    operation: LintStep
    whole: bool = False  # True if a later operation with the same registers closes the gap

    @property
    def most(self) -> int:  # type: ignore[override]
        return ROOM[self.counter] - 1 if self.counter in ROOM else 1 << 30

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """False if waits for other counters can close the gap."""
        return self.counter != VM_VSRC

    def advance(self, step: LintStep) -> int:
        access, queue = step.effect.access, step.effect.queue
        if self.counter == VA_VDST:
            return access.states if "valu" in access.classes else 0
        if self.counter == VM_VSRC:
            return int(queue is not None and not access.classes.isdisjoint(("vmem", "ds")))
        return int(queue is not None and self.counter in queue.counters)

    def bound(self, step: LintStep) -> int | None:
        waits = step.effect.waits
        if waits is not None:
            counts = [waits[self.counter]] if self.counter in waits else []
            if self.counter == VM_VSRC and self.operation.effect.queue is not None:
                counts += [0 for name in self.operation.effect.queue.counters if waits.get(name) == 0]
            return min((count for count in counts if not count or self.counter in IN_ORDER), default=None)
        if self.whole and not self.operation.writes & ~step.writes and self.advance(step):
            return 0
        return 0 if step.control is ControlKind.BARRIER and self.operation.control is ControlKind.BARRIER_SIGNAL else None
