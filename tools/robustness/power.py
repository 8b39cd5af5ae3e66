"""Tests the verdict: faulty results must FAIL, faithful ones must PASS.

    python -m simgpu.tools.robustness.power [--only OP] [--target T ...] [--longest L] [--faithful N] [--seed S]
        [--json] [--cluster WHERE]

Power: for each operator, target, type and length, a kernel runs on normal deviates, 4096 elements or more. Its result must
PASS, and FAIL after each of FAULTS has spoilt it. --faithful N: N random problems of random sizes and
distributions instead, whose results must PASS. Status 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import simgpu
from simgpu import asm
from simgpu.hardware import target as find_target
from simgpu.hardware.errors import ResourceError, UnsupportedInstruction
from simgpu.operators import (
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
)
from simgpu.operators.error_model import as_read
from simgpu.operators.tree import Root
from simgpu.tools.cases.cluster import add_cluster_option, run_tasks
from simgpu.tools.cases.execute import execute
from simgpu.tools.cases.operators import workload
from simgpu.tools.cases.workload import Workload
from simgpu.tools.shared.console import print_json, quiet, show, table
from simgpu.tools.shared.inputs import DISTRIBUTIONS

TARGETS = ("mi100", "mi210", "mi300x", "mi355x")
LENGTHS = (64, 512, 1024, 4096, 8192, 28672, 65536)  # terms of a sum: K, keys, elements of a row
OUTPUTS = 4096
SHARE = 50  # verdicts of --faithful in one task
# Error of a common factor, by type; 2^-9 for types that are not listed.
FACTORS = {"f32": 2.0**-18, "f64": 2.0**-45}
KINDS: dict[str, tuple[str, ...]] = {
    "gemm": ("f32", "f64", "f16", "bf16", "xf32", "fp8", "bf8"),
    "conv2d": ("f32", "f64", "f16", "bf16", "xf32", "fp8", "bf8"),
    "softmax": ("f32", "f16", "bf16"),
    "attention": ("f32", "f16", "bf16"),
    "unfused": ("f32", "f16", "bf16"),
}


@dataclass(frozen=True)
class PowerCase:
    """A computation's operands and its kernel's result."""

    tree: Any
    work: Workload
    after: np.ndarray  # the result's memory

    @property
    def result(self) -> np.ndarray:
        """Elements of the result, in its type."""
        return self._result_array.view

    @property
    def _result_array(self) -> Any:
        return replace(self.work.operands[self.work.result], flat=self.after)

    def passes(self, result: np.ndarray) -> bool:
        """True if other elements would pass as the result."""
        with np.errstate(over="ignore"):
            return self.work.compare(self._result_array.fill(result.astype(self.result.dtype)).flat, "result").passed

    def wide(self) -> np.ndarray:
        """Returns the result in float64."""
        return self.result.astype(np.float64)


# -- faults --------------------------------------------------------------------------------------


def _factor(sign: int, subject: PowerCase) -> np.ndarray:
    """Multiplies by a common factor before rounding to the result's type."""
    exact = subject.wide() if subject.result.dtype.itemsize > 2 else subject.work.want()
    return exact * (1 + sign * FACTORS.get(subject.tree.problem.dtype, 2.0**-9))


def _tile_swapped(subject: PowerCase) -> np.ndarray:
    """Swaps 16 rows by 16 columns with the next 16 rows; with few rows, with the next columns."""
    x = subject.wide()
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if len(rows) >= 32 else rows.T
    rows[:32, :16] = np.roll(rows[:32, :16], 16, axis=0)
    return x


def _neighbours_row(subject: PowerCase) -> np.ndarray:
    x = subject.wide()
    x[..., 1, :] = x[..., 0, :]
    return x


def _toward_zero(subject: PowerCase) -> np.ndarray | None:
    """Rounds toward zero instead of to nearest, if the result is narrower than its accumulator."""
    kind = subject.result.dtype
    if kind.itemsize > 2:
        return None
    exact = subject.work.want()
    nearest = exact.astype(kind)
    past = np.abs(nearest.astype(np.float64)) > np.abs(exact)
    return np.where(past, (nearest.view(np.uint16) - 1).view(kind), nearest).astype(np.float64)


def _weights(subject: PowerCase) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns P of the first query, and V."""
    tree = subject.tree
    if isinstance(tree, Softmax):
        return subject.work.want()[0], np.eye(1)
    if not isinstance(tree, FusedAttention | UnfusedAttention):
        return None
    q, k, v = (as_read(operand.view, tree.problem.dtype, tree.descriptor.arch)[0, 0] for operand in subject.work.operands[:3])
    scores = tree.problem.scale * (k @ q[0])
    weights = np.exp(scores - scores.max())
    return weights / weights.sum(), v


def _drop_keys(subject: PowerCase, dropped: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """Removes some keys from the first row; dropped: their indices, from P."""
    found = _weights(subject)
    if found is None:
        return None
    weights, values = found
    gone, x = dropped(weights), subject.wide()
    if isinstance(subject.tree, Softmax):
        x[0, gone] = 0
        x[0] /= 1 - weights[gone].sum()
    else:
        x[0, 0, 0] = (x[0, 0, 0] - weights[gone] @ values[gone]) / (1 - weights[gone].sum())
    return x


def _largest_dropped(subject: PowerCase) -> np.ndarray | None:
    return _drop_keys(subject, lambda weights: np.array([int(weights.argmax())]))


def _step_dropped(subject: PowerCase) -> np.ndarray | None:
    """Removes 16 terms of the sum in the first row."""
    tree = subject.tree
    if not isinstance(tree, TiledComputation):
        return _drop_keys(subject, lambda weights: np.arange(min(16, len(weights) // 2)))
    a, b = (as_read(operand.view, tree.problem.dtype, tree.descriptor.arch) for operand in subject.work.operands[:2])
    x = subject.wide()
    x[0] -= a[0, :16] @ b[:16]
    return x


FAULTS: dict[str, Callable[[PowerCase], np.ndarray | None]] = {
    "too large": lambda subject: _factor(1, subject),
    "too small": lambda subject: _factor(-1, subject),
    "largest weight dropped": _largest_dropped,
    "one step dropped": _step_dropped,
    "tiles swapped": _tile_swapped,
    "zeros": lambda subject: np.zeros(subject.result.shape),
    "a neighbour's row": _neighbours_row,
    "rounded toward zero": _toward_zero,
}


# -- problems ------------------------------------------------------------------------------------


def problem(op: str, target: str, kind: str, length: int) -> Root:
    """Makes a tree whose sums have `length` terms and whose result has OUTPUTS elements or more."""
    if op == "gemm":
        return TiledComputation(64, OUTPUTS // 64, length, dtype=kind, target=target)
    if op == "conv2d":
        channels, side = (max(1, length // 9), 3) if length >= 64 else (length, 1)
        padding = (side // 2, side // 2)
        return Conv2d(Conv2dProblem(1, channels, 8, 8, OUTPUTS // 64, side, side, padding=padding, dtype=kind), target)
    if op == "softmax":
        return Softmax(SoftmaxProblem(max(2, OUTPUTS // length), length, kind), target)
    attention = AttentionProblem(OUTPUTS // 64, length, 64, dtype=kind)
    return FusedAttention(attention, target) if op == "attention" else UnfusedAttention(attention, target)


def random_problem(rng: np.random.Generator) -> Root:
    """Draws a small tree of any operator, target and type."""
    op, target = str(rng.choice(list(KINDS))), str(rng.choice(TARGETS))
    kinds = [kind for kind in KINDS[op] if _has(target, kind)]
    kind = str(rng.choice(kinds))
    m, n, d = (int(x) for x in rng.integers(1, 97, 3))
    length = int(2 ** rng.uniform(0, 11))
    if op == "gemm":
        beta, alpha = float(rng.choice([0.0, 0.5])), float(rng.choice([1.0, 0.7]))
        activation, bias = str(rng.choice(["none", "none", "relu", "gelu", "silu"])), bool(rng.integers(2))
        return TiledComputation(m, n, length, dtype=kind, target=target, alpha=alpha, beta=beta, bias=bias, activation=activation)
    if op == "conv2d":
        side = int(rng.integers(1, 4))
        sizes = (int(rng.integers(1, 3)), 1 + length // 16, side + m % 20, side + n % 20, d, side, side)
        return Conv2d(Conv2dProblem(*sizes, padding=(side // 2, side // 2), dtype=kind), target)
    if op == "softmax":
        return Softmax(SoftmaxProblem(m, length, kind, scale=float(rng.choice([1.0, 0.3]))), target)
    p = AttentionProblem(m, length, 16 * (1 + d % 8), causal=bool(rng.integers(2)), dtype=kind)
    return FusedAttention(p, target) if op == "attention" else UnfusedAttention(p, target)


def _has(target: str, kind: str) -> bool:
    return any(atom.dtype_in == kind for atom in find_target(target).atoms)


def run_case(tree: Any, seed: int, distribution: str, kernel: Any = None) -> PowerCase:
    """Runs a tree's kernel on random operands."""
    device = simgpu.Device(tree.descriptor.name)
    work = workload(tree, device.arch, seed, distribution)
    return PowerCase(tree, work, execute(device, kernel or asm.emit(tree), work)[0][0])


@dataclass(frozen=True)
class Mistake:
    """A wrong verdict."""

    title: str
    what: str  # the fault that passed, or the distribution on which a faithful result failed


CaseVerdicts = tuple[str, int, list[Mistake]]  # of a problem: its title, the number of verdicts, and the wrong ones
SpoiltCase = tuple[str, str, str, int]  # operator, target, type and length of a problem


def spoil(ops: list[str], targets: list[str], longest: int) -> list[SpoiltCase]:
    """Returns the problems whose results are spoilt."""
    pairs = product(ops, targets)
    lengths = [length for length in LENGTHS if length <= longest]
    return [(op, target, kind, length) for op, target in pairs for kind in KINDS[op] if _has(target, kind) for length in lengths]


def power(of: SpoiltCase, seed: int) -> list[CaseVerdicts]:
    """Returns the verdicts on one problem."""
    with quiet():
        return [judge(run_case(problem(*of), seed, "normal"))]


def faithful_share(share: tuple[int, np.random.SeedSequence]) -> list[CaseVerdicts]:
    """Runs `faithful` for one task."""
    with quiet():
        return list(faithful(*share))


def judge(subject: PowerCase) -> CaseVerdicts:
    """Returns the verdicts on a subject and on its spoilt results."""
    title = subject.tree.derivation.title
    mistakes, asked = [], 1
    if not subject.passes(subject.result):
        mistakes.append(Mistake(title, "normal"))
    for name, fault in FAULTS.items():
        spoilt = fault(subject)
        if spoilt is None:
            continue
        asked += 1
        if subject.passes(spoilt):
            mistakes.append(Mistake(title, name))
    return title, asked, mistakes


def faithful(count: int, seed: int | np.random.SeedSequence) -> Iterator[CaseVerdicts]:
    """Yields the verdicts on random problems, each on every distribution."""
    rng = np.random.default_rng(seed)
    while count > 0:
        tree: Any = random_problem(rng)
        try:
            kernel = asm.emit(tree)
        except (ResourceError, UnsupportedInstruction):
            continue
        mistakes, asked = [], 0
        for distribution in DISTRIBUTIONS[:count]:
            subject = run_case(tree, int(rng.integers(1 << 31)), distribution, kernel)
            asked += 1
            if not subject.passes(subject.result):
                mistakes.append(Mistake(tree.derivation.title, distribution))
        count -= asked
        yield tree.derivation.title, asked, mistakes


def _verdicts(options: argparse.Namespace, ops: list[str]) -> Iterator[list[CaseVerdicts]]:
    if options.faithful:
        counts = [min(SHARE, options.faithful - first) for first in range(0, options.faithful, SHARE)]
        shares = list(zip(counts, np.random.SeedSequence(options.seed).spawn(len(counts)), strict=True))
        for _, future in run_tasks(options.cluster, faithful_share, shares, f"times {SHARE} verdicts"):
            yield future.result()
        return
    each = partial(power, seed=options.seed)
    for _, future in run_tasks(options.cluster, each, spoil(ops, options.target, options.longest), "problems"):
        yield future.result()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its status."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.power", description="Tests the verdict on results.")
    parser.add_argument("--only", choices=tuple(KINDS), help="one operator (default: all)")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="boards (default: one a generation)")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], metavar="L", help="sums of up to L terms (default: 65536)")
    parser.add_argument("--faithful", type=int, default=0, metavar="N", help="N random problems that must pass instead")
    parser.add_argument("--seed", type=int, default=0, help="seed of sizes and inputs (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    add_cluster_option(parser)
    options = parser.parse_args(arguments)
    ops = [options.only] if options.only else list(KINDS)
    mistakes: list[Mistake] = []
    total = 0
    for told in _verdicts(options, ops):
        for _, asked, found in told:
            total += asked
            mistakes += found
    if options.json:
        print_json({"verdicts": total, "wrong": [vars(mistake) for mistake in mistakes]})
    else:
        if mistakes:
            rows = [(mistake.title, mistake.what) for mistake in mistakes]
            show(table("Wrong verdicts", ("problem", "fault or inputs"), rows, left=2))
        show(f"{total:,} verdicts, {len(mistakes)} wrong")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
