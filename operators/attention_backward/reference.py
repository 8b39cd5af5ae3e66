"""Gradients of attention in float64, and bounds on a kernel's error.

They are functions of all of the kernels' operands: O and L are used as they are passed, not computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.problem import GAINS
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.error_model import FLUSHED_INPUT, LARGEST_EXPONENT, SMALLEST_F32, STEPS, UNIT_F32, gamma, may_be_nan
from simgpu.operators.tree import Extent

Array = NDArray[np.float64]
OPERANDS = ("Q", "K", "V", "O", "dO", "L")
RESULTS = ("dQ", "dK", "dV")
ROWS = 1 << 22  # scores that are held at once


@dataclass(frozen=True)
class HeadValues:
    """Values of one query head for some of its queries, in float64."""

    head: tuple[int, int]  # batch and query head
    shared: tuple[int, int]  # batch and head of K and V
    rows: slice  # queries
    q: Array
    k: Array
    v: Array
    do: Array
    o: Array
    logarithm: Array  # log-sum-exp, a column
    p: Array  # P
    dp: Array  # dP
    sums: Array  # D, a column


def parts(problem: AttentionBackwardProblem, operands: dict[str, Array]) -> Iterator[HeadValues]:
    """Yields the values of each query head, some queries at a time."""
    p = problem
    assert p.scale is not None
    step = max(1, ROWS // p.lk)
    for b, h in np.ndindex(p.batch, p.heads):
        shared = b, h // p.group
        k, v = operands["K"][shared], operands["V"][shared]
        for block in Extent.whole(p.lq).split(step):
            rows = block.slice
            q, do, o, logarithm = (operands[name][b, h, rows] for name in ("Q", "dO", "O", "L"))
            keep, held = p.keep(block, Extent.whole(p.lk)), np.where(np.isneginf(logarithm), 0.0, logarithm)[:, None]
            weights = np.where(keep, np.exp(np.minimum(p.scale * (q @ k.T) - held, LARGEST_EXPONENT)), 0.0)
            yield HeadValues((b, h), shared, rows, q, k, v, do, o, held, weights, do @ v.T, (do * o).sum(1, keepdims=True))


def given_operands(problem: AttentionBackwardProblem, arrays: tuple[ArrayLike, ...]) -> dict[str, Array]:
    """Returns Q, K, V, O, dO and L by name, in float64. LaunchError if a shape does not match."""
    return {
        name: expect_shape(name, array, problem.shapes[name]).astype(np.float64)
        for name, array in zip(OPERANDS, arrays, strict=True)
    }


def empty_results(problem: AttentionBackwardProblem) -> dict[str, Array]:
    """Returns zeros for the gradients, by name."""
    return {name: np.zeros(problem.shapes[name]) for name in RESULTS}


@may_be_nan
def attention_backward(problem: AttentionBackwardProblem, *operands: ArrayLike) -> dict[str, Array]:
    """Returns dQ, dK and dV in float64, by name. operands: Q, K, V, O, dO, L, of the problem's shapes.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionBackwardProblem, reference
    >>> x = np.ones((1, 1, 1, 8))
    >>> found = reference.attention_backward(AttentionBackwardProblem(1, 1, 8, dtype="f16"), x, x, x, x, x, [[[8**0.5]]])
    >>> {name: float(x[0, 0, 0, 0].round(9)) for name, x in found.items()}
    {'dQ': 0.0, 'dK': 0.0, 'dV': 1.0}
    """
    found = empty_results(problem)
    assert problem.scale is not None
    for one in parts(problem, given_operands(problem, operands)):
        ds = one.p * (one.dp - one.sums)
        found["dQ"][one.head][one.rows] = problem.scale * ds @ one.k
        found["dK"][one.shared] += problem.scale * ds.T @ one.q
        found["dV"][one.shared] += one.p.T @ one.do
    return found


@may_be_nan
def attention_backward_error_bound(
    problem: AttentionBackwardProblem, *operands: ArrayLike, arch: str = "gfx908"
) -> dict[str, Array]:
    """Returns bounds on |kernel - `attention_backward`|, by name, for any order of additions.

    An exponent's error is that of scale * S and of L, and two roundings. P then has that relative error, dP and D that of
    their sums. P and dS are rounded once more, to the operands' type. gfx90a reads subnormal operands as 0.

    >>> import numpy as np
    >>> from simgpu.operators import AttentionBackwardProblem, reference
    >>> x = np.ones((1, 1, 1, 8))
    >>> problem = AttentionBackwardProblem(1, 1, 8, dtype="f16")
    >>> bool((reference.attention_backward_error_bound(problem, x, x, x, x, x, [[[8**0.5]]])["dQ"] < 1e-2).all())
    True
    """
    p, found = problem, empty_results(problem)
    assert p.scale is not None
    unit, scale = STEPS[p.dtype].step, abs(p.scale)
    narrow = 2.0**-p.element.significand
    lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    smallest = 2.0**-24 if p.dtype == "f16" else 2.0**-126
    tiny_p, tiny_ds = max(lost, smallest) / GAINS.get(p.dtype, 1.0), max(lost, smallest)
    for one in parts(p, given_operands(p, operands)):
        q, k, v, do, o = (np.abs(x) for x in (one.q, one.k, one.v, one.do, one.o))
        scores, of_dp = q @ k.T, do @ v.T
        flushed = lost * (q.sum(1)[:, None] + k.sum(1) + p.d * lost)
        size = scale * scores + np.abs(one.logarithm) + 16
        exponent = scale * (gamma(p.d + 4, unit) * scores + flushed) + 8 * UNIT_F32 * size
        relative = np.expm1(2 * np.minimum(exponent, LARGEST_EXPONENT)) + 8 * UNIT_F32
        sums = (do * o).sum(1, keepdims=True)
        of_difference = (
            gamma(p.dv + 4, unit) * of_dp + lost * (do.sum(1)[:, None] + v.sum(1) + p.dv * lost)
            + gamma(p.dv + 4, UNIT_F32) * sums + 4 * UNIT_F32 * (np.abs(one.dp) + np.abs(one.sums))
        )  # fmt: skip
        difference = np.abs(one.dp - one.sums) + of_difference
        of_p = one.p * relative
        of_ds = of_p * difference + one.p * of_difference + (one.p + of_p) * 2.0**-120
        p_most, ds_most = one.p + of_p, one.p * np.abs(one.dp - one.sums) + of_ds
        of_p, of_ds = of_p + narrow * p_most + tiny_p, of_ds + narrow * ds_most + tiny_ds
        chain = gamma(max(p.lq * p.group, p.lk) + 8, unit) + 8 * UNIT_F32
        found["dQ"][one.head][one.rows] = scale * _product(of_ds, ds_most, k, chain, lost) + SMALLEST_F32
        found["dK"][one.shared] += scale * _product(of_ds.T, ds_most.T, q, chain, lost) + SMALLEST_F32
        found["dV"][one.shared] += _product(of_p.T, p_most.T, do, chain, lost) + SMALLEST_F32
    return found


def _product(error: Array, size: Array, other: Array, chain: float, lost: float) -> Array:
    """Returns the bound of a sum of products: `size` has `error`, `other` is exact except values that are read as 0."""
    return np.asarray((error + chain * (size + error)) @ other + (size + error) @ np.full_like(other, lost))
