"""Finds the shortest possible path from one instruction to another with too small a gap (waits or wait states).

The search goes forwards and tracks all known scalar values on each path: counters of loops with constant bounds, tests that two
branches share, the number of the wave. A path that it cannot exclude within its limit counts as possible.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simgpu.checks.lint.conditions import NO_FACTS, Conditions, Facts
from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.gaps import CLOSED, MET, Gap, distance_between
from simgpu.checks.lint.steps import LintStep
from simgpu.checks.lint.undefined import Ways

LIMIT = 2_000  # most visits of blocks in a search
CHAIN = 8  # most blocks before the first block of a search from which facts are computed
Way = list[LintStep]


@dataclass(frozen=True)
class Visit:
    """A block on a path."""

    block: int
    at: int  # index of the first step
    before: int  # index of the visit before it, -1 if none


class PathSearch:
    """Searches for paths in one kernel. Results are cached."""

    def __init__(self, blocks: StraightBlocks, facts: Callable[[], Conditions], before: Sequence[Ways | None] | None) -> None:
        """Takes the kernel's blocks.

        facts: makes conditions that track all scalar values that can be known. before: the facts before each block, None if their
        analysis was given up.
        """
        self.blocks, self.before = blocks, before
        self._make, self._found = facts, dict[tuple[int, int, Gap], Way | None]()

    @functools.cached_property
    def facts(self) -> Conditions:
        """Conditions, made when a search first needs them: few kernels need a search."""
        return self._make()

    def way(self, earlier: LintStep, later: LintStep, gap: Gap) -> Way | None:
        """Returns the instructions of the shortest path, including both ends; None if there is no path.

        Returns [] if that is unknown: the search reached its limit, or the gap is not exact and no block contains the path.
        """
        key = earlier.pc, later.pc, gap
        if key not in self._found:
            found = self._in_block(earlier, later, gap)
            self._found[key] = found if found or not gap.exact else self._search(earlier, later, gap)
        return self._found[key]

    def before_it(self, step: LintStep) -> Sequence[LintStep]:
        """Returns the instructions of the same block before an instruction, from the last s_waitcnt on."""
        block, at = self.blocks.spots[self.blocks.places[step.pc][0]]
        steps = self.blocks.steps(block)[:at]
        waits = [place for place, one in enumerate(steps) if one.effect.waits is not None]
        return steps[waits[-1] :] if waits else steps

    def _in_block(self, earlier: LintStep, later: LintStep, gap: Gap) -> Way:
        for node in self.blocks.places[earlier.pc]:
            block, at = self.blocks.spots[node]
            steps = self.blocks.steps(block)[at + 1 :]
            if distance_between(steps, 0, earlier, later, gap) == MET:
                return [earlier, *_steps_until(steps, later)]
        return []

    def _search(self, earlier: LintStep, later: LintStep, gap: Gap) -> Way | None:
        visits: list[Visit] = []
        work: list[tuple[int, int, Visit, Facts, int]] = []  # length, a number that breaks ties, visit, facts there, gap so far
        for node in self.blocks.places[earlier.pc]:
            block, at = self.blocks.spots[node]
            known = {way for facts in self._ways(block) for way in self.facts.transfer(facts, self.blocks.steps(block)[: at + 1])}
            work += [(0, number, Visit(block, at + 1, -1), way, 0) for number, way in enumerate(known, len(work))]
        seen: dict[tuple[int, Facts], int] = {}
        number = len(work)
        while work:
            length, _, visit, facts, count = heapq.heappop(work)
            visits.append(visit)
            if len(visits) > LIMIT:
                return []
            steps = self.blocks.steps(visit.block)[visit.at :]
            count = distance_between(steps, count, earlier, later, gap)
            if count == MET:
                return [earlier, *self._steps(visits, later)]
            ways = [] if count == CLOSED else self.facts.transfer(facts, steps)
            last = self.blocks.steps(visit.block)[-1]
            for other in self.blocks.following[visit.block]:
                taken = self.blocks.steps(other)[0].pc == last.target
                for there in {way for facts in ways if (way := self.facts.along(last, taken, facts)) is not None}:
                    if count < seen.get((other, there), count + 1):
                        seen[other, there] = count
                        number += 1
                        heapq.heappush(work, (length + len(steps), number, Visit(other, 0, len(visits) - 1), there, count))
        return None

    def _steps(self, visits: Sequence[Visit], later: LintStep) -> Way:
        """Returns the instructions of the visits that lead to the last one, up to the later instruction there."""
        visit = visits[-1]
        parts = [_steps_until(self.blocks.steps(visit.block)[visit.at :], later)]
        while visit.before >= 0:
            visit = visits[visit.before]
            parts.append(self.blocks.steps(visit.block)[visit.at :])
        return [step for part in reversed(parts) for step in part]

    def _ways(self, block: int, chain: int = CHAIN) -> set[Facts]:
        """Returns the facts that may hold before a block, from the chain of single predecessors."""
        if self.before is None:
            return {NO_FACTS}
        ways = self.before[block]
        before = self.blocks.preceding[block]
        if ways is None or chain == 0 or len(before) != 1 or block in self.blocks.entries:
            return set() if ways is None else set(ways.by_facts)
        steps = self.blocks.steps(before[0])
        last = steps[-1]
        taken = self.blocks.steps(block)[0].pc == last.target
        known = {way for facts in self._ways(before[0], chain - 1) for way in self.facts.transfer(facts, steps)}
        return {way for facts in known if (way := self.facts.along(last, taken, facts)) is not None}


def _steps_until(steps: Sequence[LintStep], later: LintStep) -> Way:
    """Returns the steps up to and including an instruction."""
    end = next(at for at, step in enumerate(steps) if step.pc == later.pc)
    return list(steps[: end + 1])
