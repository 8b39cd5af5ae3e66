"""Limits of a proof, and questions to the solver within them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.proof.terms import NotModelled

Term = Any


@dataclass(frozen=True)
class Limits:
    """Limits of a proof."""

    seconds: float = 60.0  # for everything
    rounds: int = 64  # of a loop whose end depends on inputs


@dataclass
class Deadline:
    """The time by which a proof must end."""

    end: float

    @classmethod
    def of(cls, limits: Limits) -> Deadline:
        return cls(time.monotonic() + limits.seconds)

    @property
    def left(self) -> float:
        """Seconds, at least a little."""
        return max(0.01, self.end - time.monotonic())

    def check(self) -> None:
        if time.monotonic() > self.end:
            raise NotModelled("time")


def solve(formulas: Sequence[Term], deadline: Deadline, most: float = float("inf")) -> tuple[Any, Any]:
    """Returns sat with a model, unsat or unknown. most: seconds for this question."""
    solver = z3.Solver()
    solver.set("timeout", max(10, int(1000 * min(most, deadline.left))))
    solver.add(*formulas)
    result = solver.check()
    return result, solver.model() if result == z3.sat else None
