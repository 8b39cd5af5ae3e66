"""Data flow: straight lines of a graph, and what holds before each of them on the paths that lead there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from simgpu.checks.lint.graph import Graph
from simgpu.checks.lint.steps import Step

S = TypeVar("S")
T = TypeVar("T")
BUDGET = 20_000_000  # instructions passed and parts of states joined, of one analysis: half a minute
K = TypeVar("K")


class Blocks:
    """Straight lines: `nodes` of each, `following` and `preceding` by number, in an order in which loops are the only way back."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        into = [0] * len(graph.steps)
        for behind in graph.following:
            for node in behind:
                into[node] += 1
        leaders = set(graph.entries)
        for behind in graph.following:
            leaders.update(node for node in behind if len(behind) > 1 or into[node] > 1)
        self.nodes: list[list[int]] = []
        of_leader: dict[int, int] = {}
        for leader in self._order(leaders):
            of_leader[leader] = len(self.nodes)
            line = [leader]
            while len(behind := graph.following[line[-1]]) == 1 and behind[0] not in leaders:
                line.append(behind[0])
            self.nodes.append(line)
        self._steps = [[graph.steps[node] for node in line] for line in self.nodes]
        self.following = [[of_leader[node] for node in graph.following[line[-1]]] for line in self.nodes]
        self.entries = [of_leader[node] for node in graph.entries]

    def steps(self, block: int) -> list[Step]:
        """The instructions of a block."""
        return self._steps[block]

    def precedes(self, earlier: int, later: int) -> bool:
        """Whether whoever comes to the instruction at address `later` has come past `earlier` on the straight line to it."""
        lines = ([step.pc for step in steps] for steps in self._steps)
        return all(earlier in line[: line.index(later)] for line in lines if later in line)

    def _order(self, leaders: set[int]) -> list[int]:
        """Leaders by the reverse of the order in which a depth-first walk leaves them."""
        seen: set[int] = set()
        left: list[int] = []
        for entry in self.graph.entries:
            stack = [(entry, iter(self.graph.following[entry]))] if entry not in seen else []
            seen.add(entry)
            while stack:
                node, behind = stack[-1]
                following = next((other for other in behind if other not in seen), None)
                if following is None:
                    left.append(node)
                    stack.pop()
                else:
                    seen.add(following)
                    stack.append((following, iter(self.graph.following[following])))
        return [node for node in reversed(left) if node in leaders]


def fewest(mine: dict[K, int], theirs: Mapping[K, int]) -> None:
    """Lowers and adds what `theirs` has less of, or alone."""
    for key, count in theirs.items():
        if count < mine.get(key, count + 1):
            mine[key] = count


class Flow(Generic[S, T]):
    """One analysis: S is what holds at a place, T what it tells of."""

    def begin(self, step: Step) -> S:
        """What holds before the first instruction of an entry."""
        raise NotImplementedError

    def forget(self, state: S) -> S:
        """What holds behind code that was not followed."""
        raise NotImplementedError

    def copy(self, state: S) -> S:
        """A state that `pass_by` may change."""
        return state

    def pass_by(self, state: S, step: Step, tell: Callable[[T], None] | None) -> S:
        """What holds behind an instruction."""
        raise NotImplementedError

    def size(self, state: S) -> int:
        """How many parts a state has."""
        return 1

    def join(self, state: S, other: S) -> S | None:
        """What holds by either of two ways; None if that is the first."""
        raise NotImplementedError

    def along(self, last: Step, taken: bool, state: S) -> S | None:
        """What holds behind a block's last instruction that branched or did not; None where no path goes that way."""
        return state


def examine(blocks: Blocks, flow: Flow[S, T], tell: Callable[[T], None], budget: int = BUDGET) -> bool:
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


def _through(blocks: Blocks, block: int, flow: Flow[S, T], state: S | None, tell: Callable[[T], None] | None) -> S:
    assert state is not None
    state = flow.copy(state)
    for node in blocks.nodes[block]:
        state = flow.pass_by(state, blocks.graph.steps[node], tell)
        if node in blocks.graph.unknown:
            state = flow.forget(state)
    return state
