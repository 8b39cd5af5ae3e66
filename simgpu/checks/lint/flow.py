"""Data flow: what holds before each basic block of a graph on the paths that lead there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from simgpu.checks.lint.graph import Graph
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.code.flow import Blocks

S = TypeVar("S")
T = TypeVar("T")
BUDGET = 20_000_000  # instructions passed and parts of states joined, of one analysis: half a minute
K = TypeVar("K")


class Lines(Blocks):
    """The basic blocks of a graph, with their instructions."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.following, graph.entries)
        self.graph = graph
        self._steps = [[graph.steps[node] for node in line] for line in self.nodes]

    def steps(self, block: int) -> list[LintStep]:
        """The instructions of a block."""
        return self._steps[block]

    def precedes(self, earlier: int, later: int) -> bool:
        """Whether every path to the instruction at address `later` passes `earlier` in the same block."""
        lines = ([step.pc for step in steps] for steps in self._steps)
        return all(earlier in line[: line.index(later)] for line in lines if later in line)


def fewest(mine: dict[K, int], theirs: Mapping[K, int]) -> None:
    """Lowers and adds what `theirs` has less of, or alone."""
    for key, count in theirs.items():
        if count < mine.get(key, count + 1):
            mine[key] = count


class PathAnalysis(Generic[S, T]):
    """One analysis: S is what holds at a place, T what it tells of."""

    def begin(self, step: LintStep) -> S:
        """What holds before the first instruction of an entry."""
        raise NotImplementedError

    def forget(self, state: S) -> S:
        """What holds behind code that was not followed."""
        raise NotImplementedError

    def copy(self, state: S) -> S:
        """A state that `pass_by` may change."""
        return state

    def pass_by(self, state: S, step: LintStep, tell: Callable[[T], None] | None) -> S:
        """What holds behind an instruction."""
        raise NotImplementedError

    def size(self, state: S) -> int:
        """How many parts a state has."""
        return 1

    def join(self, state: S, other: S) -> S | None:
        """What holds by either of two ways; None if that is the first."""
        raise NotImplementedError

    def along(self, last: LintStep, taken: bool, state: S) -> S | None:
        """What holds behind a block's last instruction that branched or did not; None where no path goes that way."""
        return state


def examine(blocks: Lines, flow: PathAnalysis[S, T], tell: Callable[[T], None], budget: int = BUDGET) -> bool:
    """Carry an analysis to its fixed point, and then tell what it found; returns whether that was within the budget.

    Nothing is told where it was not.
    """
    before: list[S | None] = [None] * len(blocks.nodes)
    waiting: list[int] = []
    listed: set[int] = set()

    def arrive(block: int, state: S) -> None:
        had = before[block]
        joined = state if had is None else flow.join(had, state)
        if joined is not None:
            before[block] = joined
            if block not in listed:
                listed.add(block)
                heapq.heappush(waiting, block)

    for entry in blocks.entries:
        arrive(entry, flow.begin(blocks.steps(entry)[0]))
    while waiting:
        block = heapq.heappop(waiting)
        listed.remove(block)
        behind = _through(blocks, block, flow, before[block], None)
        budget -= len(blocks.nodes[block]) + flow.size(behind) * (1 + len(blocks.following[block]))
        if budget < 0:
            return False
        last = blocks.steps(block)[-1]
        for other in blocks.following[block]:
            there = flow.along(last, blocks.steps(other)[0].pc == last.target, behind)
            if there is not None:
                arrive(other, there)
    for block, state in enumerate(before):
        if state is not None:
            _through(blocks, block, flow, state, tell)
    return True


def _through(blocks: Lines, block: int, flow: PathAnalysis[S, T], state: S | None, tell: Callable[[T], None] | None) -> S:
    assert state is not None
    state = flow.copy(state)
    for node in blocks.nodes[block]:
        state = flow.pass_by(state, blocks.graph.steps[node], tell)
        if node in blocks.graph.unknown:
            state = flow.forget(state)
    return state
