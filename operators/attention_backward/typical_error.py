"""Usual distance of a faithful kernel's dQ from float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simgpu.operators.attention.typical_error import tied_fraction
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.attention_backward.reference import HeadValues, given_operands, parts
from simgpu.operators.error_model import (
    FLUSHED_INPUT,
    TYPICAL_ROUNDING,
    UNIT_F32,
    Accumulation,
    Array,
    Rounding,
    TypicalError,
    as_read,
    may_be_nan,
)

ROUNDED = TYPICAL_ROUNDING * UNIT_F32


@may_be_nan
def attention_backward_typical_error(problem: AttentionBackwardProblem, *operands: ArrayLike, arch: str = "gfx908") -> TypicalError:
    """Returns the typical error of a faithful kernel's dQ, (batch,heads,lq,d). operands: Q, K, V, O, dO, L.

    dS is rounded to the operands' type; the signs of K average these errors out. Before, P has the error of its exponent, and
    dP - D that of two sums. All of a row's P share the error of L. dS that gfx90a reads as 0 is a drift.

    >>> import numpy as np
    >>> x = np.ones((1, 1, 1, 8))
    >>> problem = AttentionBackwardProblem(1, 1, 8, dtype="f16")
    >>> bool(attention_backward_typical_error(problem, x, x, x, x, x, [[[8**0.5]]]).expected.any())
    False
    """
    p, shape = problem, problem.q_shape
    given = given_operands(p, operands)
    exact = given["dO"]
    given |= {name: as_read(given[name], p.dtype, arch) for name in ("Q", "K", "V", "dO")}
    found = TypicalError(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros((*shape[:-1], 1)))
    for one in parts(p, given):
        # The sums of rows are not made by matrix units, so O and dO are not read as 0 there.
        head = replace(one, sums=(exact[one.head][one.rows] * one.o).sum(1, keepdims=True))
        for name, value in zip(TypicalError.__dataclass_fields__, _of_head(p, head, arch), strict=True):
            getattr(found, name)[one.head][one.rows] = value
    return found


def _of_head(p: AttentionBackwardProblem, one: HeadValues, arch: str) -> tuple[Array, Array, Array, Array]:
    """Returns expected, deviation, drift and shared deviation of some rows of a head's dQ."""
    assert p.scale is not None
    kind, scale = Accumulation.of(p.dtype, arch), abs(p.scale)
    ds = one.p * (one.dp - one.sums)
    expected, squares = p.scale * ds @ one.k, one.k * one.k
    scores, partial_s, partial_dp = abs(p.scale * (one.q @ one.k.T)), _partial(one.q, one.k, p.d), _partial(one.do, one.v, p.dv)
    exponents = ROUNDED * (4 + 4 * scores + 4 * np.abs(one.logarithm) + 2 * scale * math.sqrt(kind.steps(p.d)) * partial_s)
    of_dp = ROUNDED * (2 * math.sqrt(kind.steps(p.dv)) * partial_dp + 2 * np.abs(one.dp) + 2 * np.abs(one.sums))
    of_sums = ROUNDED * math.sqrt(p.dv) * np.sqrt(((one.do * one.o) ** 2).sum(1, keepdims=True))
    before = np.hypot(exponents * ds, one.p * of_dp)  # errors of dS before it is rounded
    variance = before**2 + Rounding.of(p.dtype, arch).spacing(ds) ** 2 / 12
    accumulated = ROUNDED**2 * kind.steps(p.lk) * (expected**2 + scale**2 * (ds * ds) @ squares) + (4 * ROUNDED * expected) ** 2
    noise = np.sqrt(scale**2 * variance @ squares + accumulated + (scale * of_sums * (one.p @ one.k)) ** 2)
    lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
    size = np.abs(one.k)
    drift = 2 * UNIT_F32 * np.abs(expected) + scale * np.where(np.abs(ds) < lost, np.abs(ds), 0.0) @ size
    drift = drift + (p.lk + 2) * kind.smallest + tied_fraction(one.p) * 4 * scale * np.sqrt(variance) @ size
    largest = scale * np.abs(ds).max(-1, keepdims=True) * size.max(0)
    sums = np.abs(expected) + scale * np.sqrt((ds * ds) @ squares)
    drift = drift + kind.drift(p.lk, sums, largest)
    cut = kind.drift(p.dv, np.abs(one.dp) + partial_dp, partial_dp)  # dP is cut, too
    drift = drift + scale * (one.p * cut) @ size
    expected = np.where(np.abs(expected) < 2.0**-40 * noise, 0.0, expected)  # all noise: its factor says nothing
    of_l = ROUNDED * (4 + 4 * np.abs(one.logarithm))
    return expected, noise, drift, np.hypot(of_l, _common(scale**2 * variance, expected, one.k))


def _common(variance: Array, expected: Array, k: Array) -> Array:
    """Returns the relative standard deviation of the factor that a row's columns share, (rows, 1).

    The columns of a row r of dQ have the errors e of the same dS. Along r, their error e K is e (K r) / (r r) times r.
    """
    size = (expected * expected).sum(1, keepdims=True)
    along = np.sqrt((variance * (expected @ k.T) ** 2).sum(1, keepdims=True))
    return np.divide(along, size, out=np.zeros_like(size), where=size > 0)


def _partial(x: Array, y: Array, width: int) -> Array:
    """Returns the size of partial sums of products of rows: |x| |y| / sqrt(width)."""
    norms = (np.sqrt((z * z).sum(1)) for z in (x, y))
    return np.multiply.outer(*norms) / math.sqrt(width)
