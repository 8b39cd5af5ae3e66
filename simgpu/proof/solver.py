"""Limits of a proof, and questions to the solver within them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.proof.terms import NotModelled

Term = Any
STEPS = 5_000_000  # of the solver in a unit of effort: about a second of an idle core
MOST_STEPS = (1 << 32) - 1  # that the solver takes as a limit


@dataclass(frozen=True)
class Limits:
    """Limits of a proof. Effort is counted, not measured: a verdict does not depend on what else the machine does."""

    effort: float = 60.0  # of the solver for everything, in units of `STEPS`
    rounds: int = 64  # of a loop whose end depends on inputs; of one loop in all launches, if its length is known
    seconds: float = math.inf  # for everything, however much the machine does in that time


DEFAULT = Limits()


@contextmanager
def own_terms() -> Iterator[None]:
    """Gives a proof terms of its own: the solver's way depends on their numbers, and so on earlier queries."""
    before, z3.z3._main_ctx = z3.main_ctx(), z3.Context()
    try:
        yield
    finally:
        z3.z3._main_ctx = before


class Budget:
    """Remaining effort and time of a proof."""

    def __init__(self, limits: Limits) -> None:
        self._meter = z3.Solver()
        self._last = self._steps() + int(limits.effort * STEPS)
        self._end = time.monotonic() + limits.seconds

    def _steps(self) -> int:
        """Returns the steps of this process's solvers so far, and of simplifying terms."""
        self._meter.check()
        return int(self._meter.statistics().get_key_value("rlimit count"))

    @property
    def left(self) -> int:
        """Steps of the solver, at least one."""
        return max(1, self._last - self._steps())

    def check(self) -> None:
        """Raises NotModelled if nothing is left."""
        if self.reason == "time" or self._steps() > self._last:
            raise NotModelled(self.reason)

    @property
    def reason(self) -> str:
        """Why the solver did not answer."""
        return "time" if time.monotonic() > self._end else "effort"

    def limit(self, solver: Any, most: float = math.inf) -> None:
        """Limits a solver's next answer. most: effort for it."""
        solver.set("rlimit", int(min(MOST_STEPS, self.left, most * STEPS)))
        left = self._end - time.monotonic()
        if left < math.inf:
            solver.set("timeout", max(10, int(1000 * left)))


def solve(formulas: Sequence[Term], budget: Budget, most: float = math.inf) -> tuple[Any, Any]:
    """Returns sat with a model, unsat or unknown. most: effort for this question."""
    solver = z3.Solver()
    budget.limit(solver, most)
    solver.add(*formulas)
    result = solver.check()
    return result, solver.model() if result == z3.sat else None
