"""Computes, by the time model, the clocks that an operation takes and the clocks until an instruction that does not wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit, issue_of

MOST_BEFORE = 64  # most instructions before the operation that are modelled: they keep its unit busy
LONGEST = 2_000  # most instructions from the operation on; after these it is certainly complete


@dataclass(frozen=True)
class Clocks:
    """Clocks of one path."""

    between: int  # from the operation's issue to the later instruction's
    taken: int  # from the operation's issue to its end


def clocks_of(ways: Sequence[tuple[Sequence[LintStep], Sequence[LintStep]]], arch: str, waves: int) -> list[Clocks]:
    """Returns the clocks of each path, those of the wave that lacks most.

    ways: instructions before the operation, and instructions from the operation to the later one. waves: number of waves that run
    the path at the same time.
    """
    from simgpu.timing.stretches import issue_clocks  # loads the model of time

    issues: dict[int, Issue] = {}

    def issue(step: LintStep, following: LintStep | None) -> Issue:
        number = id(step.inst)
        if number not in issues:
            issues[number] = issue_of(step.inst)
        found = issues[number]
        falls_through = found.kind is Kind.BRANCH and following is not None and following.pc == step.next_address
        return replace(found, kind=Kind.PLAIN) if falls_through else found

    stretches, firsts = [], []
    for before, way in ways:
        lead = [issue(step, step) for step in before[-MOST_BEFORE:]]
        firsts.append(len(lead))
        stretches.append([*lead, *map(issue, way[:LONGEST], (*way[1:LONGEST], None))])
        stretches.append([*lead, issue(way[0], None), _wait(way[0]), Issue(Unit.VALU)])
    times = issue_clocks(stretches, arch, waves) if stretches else []
    found = []
    for first, run, stopped in zip(firsts, times[::2], times[1::2], strict=True):
        between, taken = run[:, -1] - run[:, first], stopped[:, -1] - stopped[:, first]
        worst = int((taken - between).argmax())
        found.append(Clocks(int(between[worst]), int(taken[worst])))
    return found


def _wait(operation: LintStep) -> Issue:
    """Returns an s_waitcnt for all operations of a queue."""
    counters = () if operation.effect.queue is None else operation.effect.queue.counters
    return Issue(Unit.NONE, Kind.WAIT, vm=0 if "vmcnt" in counters else -1, lgkm=0 if "lgkmcnt" in counters else -1)
