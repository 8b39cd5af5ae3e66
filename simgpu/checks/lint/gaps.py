"""Measures the gap between an earlier and a later instruction along a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.clauses import KINDS
from simgpu.hardware.timing_rules.waits import ROOM

MET, CLOSED = -1, -2


class Gap:
    """Measure of the code between an earlier and a later instruction: a number that grows along a path."""

    most = 0  # the largest number that is too small
    exact = True  # False if a walk may count the gap as closed although it is not

    def advance(self, step: LintStep) -> int:
        """Returns the amount that an instruction adds to the number."""
        raise NotImplementedError

    def bound(self, step: LintStep) -> int | None:
        """Returns the number at which an instruction closes the gap, None if it never does."""
        return None


@dataclass(frozen=True)
class OperationGap(Gap):
    """Gap after an operation of a queue: the number of operations that its queue issued since."""

    operation: LintStep
    whole: bool  # True if a later operation of the queue that writes all its registers closes the gap

    @property
    def most(self) -> int:  # type: ignore[override]
        queue = self.operation.effect.queue
        return min(ROOM[queue.name].values()) if queue is not None and queue.name in ROOM else 1 << 30

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """False for a flat operation: it is out until both of its counters are waited for, but this gap closes with either."""
        queue = self.operation.effect.queue
        return queue is not None and len(queue.counters) == 1

    def advance(self, step: LintStep) -> int:
        return int(step.effect.queue is self.operation.effect.queue)

    def bound(self, step: LintStep) -> int | None:
        queue = self.operation.effect.queue
        assert queue is not None
        if step.effect.waits is not None:
            counts = [step.effect.waits[name] for name in queue.counters if name in step.effect.waits]
            return min((count for count in counts if queue.in_order or not count), default=None)
        if self.whole and queue.in_order and step.effect.queue is queue and not self.operation.pending & ~step.pending:
            return 0  # a later operation overwrites all its registers
        return None


@dataclass(frozen=True)
class StatesGap(Gap):
    """Gap between two instructions that a hazard rule binds: wait states."""

    needed: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.needed - 1

    def advance(self, step: LintStep) -> int:
        return step.effect.access.states


@dataclass(frozen=True)
class ClauseGap(Gap):
    """Gap between two instructions of a clause of memory instructions: any other instruction closes it."""

    def advance(self, step: LintStep) -> int:
        return int(not KINDS & step.effect.access.classes)


def distance_between(steps: Sequence[LintStep], count: int, earlier: LintStep, later: LintStep, gap: Gap) -> int:
    """Returns the gap at the end of these steps; MET if they reach the later instruction, CLOSED if the gap is large enough.

    count: the gap before these steps.
    """
    for step in steps:
        if step.pc == later.pc:
            return MET
        if step.pc == earlier.pc:
            return CLOSED
        bound = gap.bound(step)
        if bound is not None and count >= bound:
            return CLOSED
        count += gap.advance(step)
        if count > gap.most:
            return CLOSED
    return count
