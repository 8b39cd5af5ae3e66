"""Problems of the three operators, drawn by a seed. Sizes are multiples of 16, as Triton compiles others apart."""

from __future__ import annotations

import random
from collections.abc import Callable

from simgpu.operators import AttentionProblem, GemmProblem, SoftmaxProblem

Problem = GemmProblem | SoftmaxProblem | AttentionProblem
ELEMENTS = 1 << 26  # of an array, at most


def _size(rng: random.Random, least: int, most: int, step: int) -> int:
    """Draws a multiple of `step`, uniform in its logarithm."""
    return max(least, round(least * (most / least) ** rng.random() / step) * step)


def gemm(rng: random.Random) -> GemmProblem:
    rows = rng.random() < 0.3  # few rows, as in decoding
    return GemmProblem(
        _size(rng, 16, 128, 16) if rows else _size(rng, 256, 8192, 16), _size(rng, 256, 8192, 16), _size(rng, 128, 8192, 64),
        dtype="f16",
    )  # fmt: skip


def softmax(rng: random.Random) -> SoftmaxProblem:
    n = _size(rng, 64, 131072, 16)
    return SoftmaxProblem(max(16, min(_size(rng, 16, 262144, 16), ELEMENTS // n)), n, dtype="f16")


def attention(rng: random.Random) -> AttentionProblem:
    length = _size(rng, 128, 16384, 16)
    return AttentionProblem(length, length, rng.choice((64, 128)), heads=rng.choice((4, 8, 16, 32, 64)), dtype="f16")


DRAW: dict[str, Callable[[random.Random], Problem]] = {"gemm": gemm, "softmax": softmax, "attention": attention}


def draw(operator: str, seed: int, count: int) -> list[Problem]:
    """Returns `count` problems of an operator.

    >>> draw("gemm", 8, 2) == draw("gemm", 8, 3)[:2]
    True
    """
    rng = random.Random(f"{operator}:{seed}")
    return [DRAW[operator](rng) for _ in range(count)]
