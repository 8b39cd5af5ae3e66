"""What lies between an earlier and a later instruction, counted along a way, and what of it makes up for all that lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.clauses import KINDS
from simgpu.hardware.timing_rules.waits import ROOM

MET, CLOSED = -1, -2


class Gap:
    """What lies between an earlier and a later instruction: a number that walks count."""

    most = 0  # that may lie between them while something lacks
    exact = True  # no: it may be closed for a walk where something still lacks

    def passed(self, step: LintStep) -> int:
        """How much an instruction adds to the number."""
        raise NotImplementedError

    def bound(self, step: LintStep) -> int | None:
        """The number at which an instruction makes up for all that lacks; None if it never does."""
        return None


@dataclass(frozen=True)
class OperationGap(Gap):
    """After an operation of a queue: the operations that its queue was given since. whole: whether one that writes all of its
    registers anew ends it."""

    operation: LintStep
    whole: bool

    @property
    def most(self) -> int:  # type: ignore[override]
        queue = self.operation.effect.queue
        return min(ROOM[queue.name].values()) if queue is not None and queue.name in ROOM else 1 << 30

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """A flat operation is out until both of its counters are waited for; here, until either is."""
        queue = self.operation.effect.queue
        return queue is not None and len(queue.counters) == 1

    def passed(self, step: LintStep) -> int:
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
    """Between two instructions that a hazard rule binds: wait states."""

    needed: int

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.needed - 1

    def passed(self, step: LintStep) -> int:
        return step.effect.access.states


@dataclass(frozen=True)
class ClauseGap(Gap):
    """Between two instructions of a clause of memory instructions: nothing else."""

    def passed(self, step: LintStep) -> int:
        return int(not KINDS & step.effect.access.classes)


def between(steps: Sequence[LintStep], count: int, earlier: LintStep, later: LintStep, gap: Gap) -> int:
    """What lies between the earlier instruction and the end of these steps; MET at the later one, CLOSED where nothing lacks.

    count: what lies before these steps.
    """
    for step in steps:
        if step.pc == later.pc:
            return MET
        if step.pc == earlier.pc:
            return CLOSED
        bound = gap.bound(step)
        if bound is not None and count >= bound:
            return CLOSED
        count += gap.passed(step)
        if count > gap.most:
            return CLOSED
    return count
