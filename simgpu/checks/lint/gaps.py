"""Measures the gap between an earlier and a later instruction along a path, and finds what closes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.clauses import KINDS
from simgpu.hardware.timing_rules.waits import ROOM

MET, CLOSED = -1, -2


class Gap:
    """Measure of the code between an earlier and a later instruction: a number that walks count."""

    most = 0  # largest number at which something still lacks
    exact = True  # False if a walk may see the gap closed while something still lacks

    def advance(self, step: LintStep) -> int:
        """Returns how much an instruction adds to the number."""
        raise NotImplementedError

    def bound(self, step: LintStep) -> int | None:
        """Returns the number at which an instruction closes the gap, None if it never does."""
        return None


@dataclass(frozen=True)
class OperationGap(Gap):
    """Gap after an operation of a queue: the number of operations issued to its queue since."""

    operation: LintStep
    whole: bool  # True if an operation that writes all of its registers anew ends it

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
            return 0  # a later operation writes all of it anew
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
    """Returns the gap from the earlier instruction to the end of these steps; MET at the later one, CLOSED if nothing lacks.

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
