"""Data-flow analysis: computes the state before each basic block of a graph, on all paths that lead there."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from simgpu.checks.lint.graph import Graph
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.code.flow import Blocks

S = TypeVar("S")
T = TypeVar("T")
BUDGET = 20_000_000  # most work of one analysis, in instructions and parts of states: a minute at most


class StraightBlocks(Blocks):
    """Basic blocks of a graph, with their instructions."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.following, graph.entries)
        self.graph = graph
        self.all_steps = [[graph.steps[node] for node in line] for line in self.nodes]

    def steps(self, block: int) -> list[LintStep]:
        """Returns the instructions of a block."""
        return self.all_steps[block]

    @functools.cached_property
    def parts(self) -> list[list[tuple[Sequence[LintStep], bool]]]:
        """Parts of each block, cut after calls that are not followed: the instructions, and True if all code after them is
        followed."""
        found: list[list[tuple[Sequence[LintStep], bool]]] = []
        for line, steps in zip(self.nodes, self.all_steps, strict=True):
            cuts = [at + 1 for at, node in enumerate(line) if node in self.graph.unknown]
            ends = list(dict.fromkeys((*cuts, len(line))))
            found.append([(steps[start:end], end not in cuts) for start, end in zip((0, *ends), ends, strict=False)])
        return found

    @functools.cached_property
    def places(self) -> dict[int, list[int]]:
        """Nodes of each address: several if a function is followed for several calls."""
        found: dict[int, list[int]] = {}
        for line in self.nodes:
            for node in line:
                found.setdefault(self.graph.steps[node].pc, []).append(node)
        return found

    @functools.cached_property
    def spots(self) -> dict[int, tuple[int, int]]:
        """Block and index in the block of each node."""
        return {node: (block, at) for block, line in enumerate(self.nodes) for at, node in enumerate(line)}

    @functools.cached_property
    def nodes_before(self) -> list[list[int]]:
        """Predecessors of each node."""
        found: list[list[int]] = [[] for _ in self.graph.following]
        for node, after in enumerate(self.graph.following):
            for other in after:
                found[other].append(node)
        return found

    @functools.cached_property
    def loops(self) -> list[frozenset[int]]:
        """Blocks of each loop, the smallest loop first: all that lead back to the loop's first block without passing it again."""
        bodies: dict[int, set[int]] = {}
        for block, after in enumerate(self.following):
            for head in after:
                if head <= block:
                    body = bodies.setdefault(head, {head})
                    pending = [block]
                    while pending:
                        member = pending.pop()
                        if member not in body:
                            body.add(member)
                            pending += self.preceding[member]
        return sorted(map(frozenset, bodies.values()), key=len)

    def loop_around(self, *places: int) -> frozenset[int] | None:
        """Returns the blocks of the smallest loop around the instructions at all these addresses, in every call of their
        functions."""
        wanted = {self.spots[node][0] for pc in places for node in self.places[pc]}
        return next((loop for loop in self.loops if wanted <= loop), None)

    def precedes(self, earlier: int, later: int) -> bool:
        """True if every path to the instruction at address `later` passes `earlier` in the same block."""
        befores = {self.spots[node] for node in self.places[earlier]}
        afters = [self.spots[node] for node in self.places[later]]
        return all(any(block == other and at < place for other, at in befores) for block, place in afters)


class PathAnalysis(Generic[S, T]):
    """Base of an analysis. S is the state at a place, T a report."""

    def begin(self, step: LintStep) -> S:
        """Returns the state before the first instruction of an entry."""
        raise NotImplementedError

    def forget(self, state: S) -> S:
        """Returns the state after code that was not followed."""
        raise NotImplementedError

    def transfer(self, state: S, steps: Sequence[LintStep], tell: Callable[[T], None]) -> S:
        """Returns the state after the instructions of a block or part of one. Leaves `state` unchanged and passes reports to
        `tell`."""
        raise NotImplementedError

    def size(self, state: S) -> int:
        """Returns the number of parts of a state."""
        return 1

    def join(self, state: S, other: S) -> S | None:
        """Returns the join of two states, None if it equals the first."""
        raise NotImplementedError

    def along(self, block: int, last: LintStep, taken: bool, state: S) -> S | None:
        """Returns the state after a block in one direction of its last instruction, None if no path goes that way.

        taken: True if the next block is the target of that instruction
        """
        return state


@dataclass(frozen=True)
class FixedPoint(Generic[S, T]):
    """Fixed point of an analysis."""

    before: list[S | None]  # the state before each block, None if no path comes there
    found: list[T]  # the reports


def examine(blocks: StraightBlocks, flow: PathAnalysis[S, T], budget: int = BUDGET) -> FixedPoint[S, T] | None:
    """Returns the fixed point of an analysis, None if that exceeds the budget."""
    before: list[S | None] = [None] * len(blocks.nodes)
    told: list[list[T]] = [[] for _ in blocks.nodes]
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
        state = before[block]
        assert state is not None
        told[block] = []  # the last pass of a block uses its final state, so only its reports count
        for steps, followed in blocks.parts[block]:
            state = flow.transfer(state, steps, told[block].append)
            state = state if followed else flow.forget(state)
        budget -= len(blocks.nodes[block]) + flow.size(state) * (1 + len(blocks.following[block]))
        if budget < 0:
            return None
        last = blocks.steps(block)[-1]
        for other in blocks.following[block]:
            there = flow.along(block, last, blocks.steps(other)[0].pc == last.target, state)
            if there is not None:
                arrive(other, there)
    return FixedPoint(before, [one for found in told for one in found])
