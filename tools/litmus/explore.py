"""All schedules of a litmus test's compiled threads, up to a bound, and their results."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from simgpu.tools.litmus.axioms import allowed_results
from simgpu.tools.litmus.compiled import MachineStep
from simgpu.tools.litmus.form import LitmusTest, Result, format_result, matches
from simgpu.tools.litmus.memory import CacheModel, MemoryState

STATES = 200_000  # states to explore by default


class Outcome(NamedTuple):
    """A result of a test."""

    result: Result
    schedules: int  # number of schedules that end with it
    allowed: bool  # by the model


class LitmusReport(NamedTuple):
    """Results of a test's schedules on a target."""

    test: LitmusTest
    target: str
    outcomes: tuple[Outcome, ...]
    states: int
    whole: bool  # True if all schedules were followed
    claimed: bool | None  # what the model says of the test's claim; None if it has none
    narrow: tuple[str, ...]  # messages about atomics whose instruction has a narrower scope than the source's

    @property
    def wrong(self) -> list[str]:
        """Violations: results that the model forbids, results of `never`, missing results of `sometimes`."""
        seen = [one.result for one in self.outcomes]
        said = list(self.narrow)
        said += [
            f"{format_result(one.result)} is forbidden, and {one.schedules} schedules end with it"
            for one in self.outcomes if not one.allowed
        ]
        said += [
            f"never {format_result(want)}, but it was seen" for want in self.test.never if any(matches(one, want) for one in seen)
        ]
        if self.whole:
            missing = [want for want in self.test.sometimes if not any(matches(one, want) for one in seen)]
            said += [f"sometimes {format_result(want)}, but it was not seen" for want in missing]
        return said


    def document(self) -> dict[str, Any]:
        """Returns the report as plain values, for JSON."""
        outcomes = [{"result": dict(one.result), "schedules": one.schedules, "allowed": one.allowed} for one in self.outcomes]
        claim = {} if self.test.claim is None else {"claim": str(self.test.claim), "holds": self.claimed}
        whole = {"outcomes": outcomes, "states": self.states, "complete": self.whole, "wrong": self.wrong}
        return {"name": self.test.name, **claim, **whole}

    def __str__(self) -> str:
        """Formats a line for each result: the number of schedules that end with it, and whether the model forbids it."""
        bound = "" if self.whole else ", and more that the bound left out"
        lines = [f"{self.test.name} on {self.target}: {self.states} states{bound}"]
        lines += [
            f"  {one.schedules:>10}  {format_result(one.result)}" + ("" if one.allowed else "  forbidden") for one in self.outcomes
        ]
        if self.test.claim is not None:
            ends = sum(one.schedules for one in self.outcomes if self.test.claim.fits(one.result))
            lines.append(f"  {self.test.claim}: {'true' if self.claimed else 'false'} by the model; {ends} schedules end so")
        return "\n".join([*lines, *(f"  wrong: {what}" for what in self.wrong)])


def explore(test: LitmusTest, target: str, threads: list[list[MachineStep]], bound: int = STATES) -> LitmusReport:
    """Follows every schedule, as far as `bound` states allow."""
    model = CacheModel(target, threads, test.place, test.locations)
    order, edges, whole = _reachable_states(model, bound)
    ways: dict[MemoryState, int] = Counter({model.first: 1})
    ends: Counter[Result] = Counter()
    for state in order:
        if model.is_final(state):
            result = tuple(sorted(state.registers, key=lambda one: int(one[0][1:])))
            ends[result] += ways[state]
        for following in edges[state]:
            ways[following] += ways[state]
    fine = allowed_results(test)
    outcomes = tuple(Outcome(result, count, result in fine) for result, count in sorted(ends.items()))
    narrow = tuple(
        f"thread {number}: `{step.text}` has scope {step.scope.words}, the source asks for {step.asked.words}"
        for number, steps in enumerate(threads) for step in steps if step.asked is not None and step.scope < step.asked
    )  # fmt: skip
    claimed = None if test.claim is None else test.claim.holds(fine)
    return LitmusReport(test, target, outcomes, len(order), whole, claimed, narrow)


def _reachable_states(model: CacheModel, bound: int) -> tuple[list[MemoryState], dict[MemoryState, list[MemoryState]], bool]:
    """Returns the states, each after all that lead to it; the successors of each; and whether these are all states."""
    edges: dict[MemoryState, list[MemoryState]] = {}
    done: list[MemoryState] = []
    whole = True
    pending: list[tuple[MemoryState, int]] = [(model.first, 0)]
    while pending:
        state, at = pending.pop()
        if state not in edges:
            if len(edges) >= bound:
                edges[state], whole = [], False
            else:
                edges[state] = list(model.following(state))
        if at < len(edges[state]):
            pending.append((state, at + 1))
            if edges[state][at] not in edges:
                pending.append((edges[state][at], 0))
        else:
            done.append(state)
    return list(dict.fromkeys(reversed(done))), edges, whole
