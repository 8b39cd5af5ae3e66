"""Kernels of odd extents beside those of the next aligned ones, each derived, emitted and timed by the model of time.

The neighbour has every odd extent rounded up to a multiple of ALIGNED. Drawn: m, n and k of a GEMM, with RMSNorm or
without, the channels of a convolution, an operator's row, the queries and keys of attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import AttentionBackwardProblem, AttentionProblem, Conv2dProblem, GemmProblem, RmsNormGemm
from simgpu.tools.cost.emitted import draw_board, modelled_seconds
from simgpu.tools.cost.problems import OF_ROWS, OF_SHAPES
from simgpu.tools.cost.space import ROOTS

ALIGNED = 16
ODD = {"gemm": ("m", "n", "k"), "conv2d": ("ic", "oc"), "softmax": ("n",), "rmsnorm_gemm": ("m", "n", "k"),
       **dict.fromkeys(("attention", "attention_backward"), ("lq", "lk")), **dict.fromkeys(OF_ROWS, ("n",))}  # extents  # fmt: skip
COLUMNS = ("board", "type", "problem", "us", "aligned", "us ", "ratio", "binds")
FIELDS = ("board", "type", "problem", "us", "aligned", "aligned us", "ratio", "binds")


@dataclass(frozen=True)
class OddKernel:
    """A kernel of odd extents and its aligned neighbour, with their modelled seconds."""

    board: str
    dtype: str
    problem: str
    seconds: float
    aligned: str
    aligned_seconds: float
    binds: str  # the constraint that limits the odd kernel's tile

    @property
    def ratio(self) -> float:
        """Time over the neighbour's."""
        return self.seconds / self.aligned_seconds

    def row(self) -> tuple[object, ...]:
        """Returns the values of COLUMNS, and of FIELDS."""
        times = 1e6 * self.seconds, self.aligned, 1e6 * self.aligned_seconds
        return self.board, self.dtype, self.problem, *times, self.ratio, self.binds


def odd_problems(op: str, dtype: str, seed: int, count: int) -> Iterator[Any]:
    """Yields `count` random problems of one type, whose extents of ODD are odd."""
    source = np.random.default_rng(seed)
    for number in range(count):
        yield _odd_problem(op, dtype, number, source)


def odd_cases(op: str, seed: int, count: int) -> Iterator[tuple[str, Any]]:
    """Yields `count` pairs of a random board and a problem as `odd_problems` has, of a random type of the board."""
    source = np.random.default_rng(seed)
    for number in range(count):
        board, dtype = draw_board(op, source)
        yield board, _odd_problem(op, dtype, number, source)


def _odd_problem(op: str, dtype: str, number: int, source: np.random.Generator) -> Any:
    """Draws a problem. number: chooses the layouts and the filters in turn."""

    def odd(low: float, high: float) -> int:
        return 2 * int(2 ** source.uniform(low - 1, high - 1)) + 1

    if op == "gemm":
        return GemmProblem(odd(6, 12), odd(6, 12), odd(6, 12), dtype, trans_a=number % 4 > 1, trans_b=number % 2 > 0)
    if op == "rmsnorm_gemm":
        return RmsNormGemm(odd(6, 12), odd(6, 12), odd(6, 12), dtype, trans_b=number % 2 > 0)
    if op == "conv2d":
        edge, filters = int(2 ** source.uniform(3, 6)), (1, 3)[number % 2]
        return Conv2dProblem(4, odd(4, 8), edge, edge, odd(4, 8), filters, filters, padding=(filters // 2, filters // 2),
                             dtype=dtype, layout=("nchw", "nhwc")[number // 2 % 2])  # fmt: skip
    if op in ("attention", "attention_backward"):
        length = odd(7, 11)
        made = AttentionProblem if op == "attention" else AttentionBackwardProblem
        return made(length, length, (64, 128)[number % 2], 8, dtype=dtype)
    n = odd(7, 16)
    return OF_ROWS[op](min(int(2 ** source.uniform(2, 13)), (1 << 26) // n), n, dtype)


def compare_odd(op: str, problem: Any, chip: HardwareDescriptor) -> OddKernel:
    """Times a problem's kernel and its neighbour's."""
    extents = {name: -(-getattr(problem, name) // ALIGNED) * ALIGNED for name in ODD[op]}
    strides = {name: None for name in ("lda", "ldb", "ldc", "ldx", "ldy") if hasattr(problem, name)}
    aligned = replace(problem, **extents, **strides)
    trees = [ROOTS[op](each, chip) for each in (problem, aligned)]
    times = [modelled_seconds(tree) for tree in trees]
    binding = trees[0].plan.binding.name
    return OddKernel(chip.name, problem.dtype, _text(op, problem), times[0], _text(op, aligned), times[1], binding)


def _text(op: str, problem: Any) -> str:
    if op in OF_SHAPES:
        return f"{problem.m}x{problem.n}x{problem.k} " + "nt"[getattr(problem, "trans_a", False)] + "nt"[problem.trans_b]
    if op == "conv2d":
        return f"{problem.ic}x{problem.ih}x{problem.iw} to {problem.oc}, {problem.kh}x{problem.kw} {problem.layout}"
    return f"{problem.rows}x{problem.n}" if op in OF_ROWS else f"L {problem.lq}, d {problem.d}"
