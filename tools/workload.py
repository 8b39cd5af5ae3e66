"""An operator's inputs and how its result is judged, for whoever launches its kernel: one function an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from operators.gemm import TiledComputation
from tools.errors import UsageError

if TYPE_CHECKING:
    from operators.tree import Root


class Judgement(Protocol):
    """What a comparison with float64 says."""

    @property
    def passed(self) -> bool: ...
    def document(self) -> dict[str, Any]: ...
    def lines(self) -> list[str]: ...


@dataclass(frozen=True)
class Workload:
    """arrays: one for each of the kernel's operands, in order, as they lie in memory before a launch; output: which
    of them is the result; moved_bytes: each operand once; repeatable: a second launch gives the same result;
    compare: the output's array against float64."""

    arrays: tuple[np.ndarray, ...]
    output: int
    moved_bytes: int
    repeatable: bool
    compare: Callable[[np.ndarray], Judgement]


WORKLOADS: dict[type, Callable[[Any, str, int], Workload]] = {}


def workload(tree: Root, arch: str, seed: int) -> Workload:
    """Random inputs of a tree's problem. UsageError for a root that none of the functions here describes."""
    make = WORKLOADS.get(type(tree))
    if make is None:
        known = ", ".join(kind.__name__ for kind in WORKLOADS)
        raise UsageError(f"no workload for a {type(tree).__name__}: there are some for {known}")
    return make(tree, arch, seed)


def _gemm(tree: TiledComputation, arch: str, seed: int) -> Workload:
    from tools.run import Operands, compare

    problem = tree.problem
    operands = Operands.random(problem, arch, seed)
    a, b, c = (operands.matrix(index).nbytes for index in range(3))
    reads_c = problem.beta != 0
    return Workload(
        operands.flat, 2, a + b + c * (2 if reads_c else 1), not reads_c,
        lambda result: compare(problem, operands, result, arch),
    )  # fmt: skip


WORKLOADS[TiledComputation] = _gemm
