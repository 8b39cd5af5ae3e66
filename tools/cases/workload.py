"""A computation's inputs and how its result is judged, for whoever launches its kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu.operators.gemm.tree import TiledComputation
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.verdict import Verdict, judge

if TYPE_CHECKING:
    from simgpu.operators.tree import Root


@dataclass(frozen=True)
class Workload:
    """arrays: one for each of the kernel's operands, in order, as they lie in memory before a launch; output: which
    of them is the result; moved_bytes: each operand once; repeatable: a second launch gives the same result;
    compare: the output's array against float64."""

    arrays: tuple[np.ndarray, ...]
    output: int
    moved_bytes: int
    repeatable: bool
    compare: Callable[[np.ndarray], Verdict]


def workload(tree: Root, arch: str, seed: int) -> Workload:
    """Random inputs of a tree's problem. UsageError for a root that none of the functions here describes."""
    if isinstance(tree, TiledComputation):
        return _gemm(tree, arch, seed)
    from simgpu.tools.cases.operators import CASES

    if type(tree) not in CASES:
        known = ", ".join(kind.__name__ for kind in CASES)
        raise UsageError(f"no inputs for a {type(tree).__name__}: there are some for {known}")
    case = CASES[type(tree)](tree, arch, np.random.default_rng(seed))
    result = case.operands[case.result]

    def compare(after: np.ndarray) -> Verdict:
        got = replace(result, flat=after).view.astype(np.float64)
        return judge(got, case.want(), case.bound(), result.touched(after), "result")

    moved = sum(operand.view.nbytes for operand in case.operands)
    return Workload(tuple(operand.flat for operand in case.operands), case.result, moved, True, compare)


def _gemm(tree: TiledComputation, arch: str, seed: int) -> Workload:
    from simgpu.tools.verbs.run import Operands, compare

    problem = tree.problem
    operands = Operands.random(problem, arch, seed)
    a, b, c = (operands.matrix(index).nbytes for index in range(3))
    reads_c = problem.beta != 0
    return Workload(
        operands.flat, 2, a + b + c * (2 if reads_c else 1), not reads_c,
        lambda result: compare(problem, operands, result, arch),
    )  # fmt: skip

