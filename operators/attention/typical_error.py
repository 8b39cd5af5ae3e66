"""Usual distance of a faithful attention kernel from float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from simgpu.hardware.dtypes import DType, numpy_dtype
from simgpu.operators.attention.cache import Cache, Sequence, each_sequence, sequences
from simgpu.operators.attention.problem import GAINS, AttentionProblem
from simgpu.operators.attention.reference import expected_parts
from simgpu.operators.error_model import (
    FLUSHED_INPUT,
    TYPICAL_ROUNDING,
    UNIT,
    UNIT_F32,
    Accumulation,
    Array,
    Rounding,
    TypicalError,
    as_read,
    may_be_nan,
)
from simgpu.operators.softmax.typical_error import constant_error
from simgpu.operators.tree import Extent

CAP_ROUNDINGS = 2.0  # roundings of a soft cap: cap - 2 cap / (1 + e), whose terms are as large as the cap
SMALL_WEIGHT = 2.0**-12  # of a row's largest: smaller ones hardly count
PAIRS = 16  # of consecutive rows that `alike_fraction` compares
LANES = 16  # least number of lanes that share a row's sum


@may_be_nan
def attention_typical_error(
    problem: AttentionProblem,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    arch: str = "gfx908",
    queries: Extent | None = None,
    slopes: ArrayLike | None = None,
    cache: Cache | None = None,
) -> TypicalError:
    """Returns the typical error of a faithful kernel's R, (batch,heads,lq,dv), for these queries, fused or not.

    P is rounded to the operands' type after multiplication by GAINS. Each weight then has a relative error, which the signs of V
    average out. Exponents, sums of P and sums of P V round as the accumulator does. P that gfx90a reads as 0 is a drift.

    >>> attention_typical_error(AttentionProblem(lq=1, lk=1, d=1), [[[[1.0]]]], [[[[1.0]]]], [[[[2.0]]]]).expected
    array([[[[2.]]]])
    """
    p = problem
    rows = queries or Extent.whole(p.lq)
    if p.cached:
        return _of_sequences(p, rows, arch, lambda: sequences(p, q, k, v, slopes, cache))
    q, k, v = (as_read(x, p.dtype, arch) for x in (q, k, v))
    kind, unit = Accumulation.of(p.dtype, arch), UNIT.get(p.dtype, UNIT_F32)
    expected, weights, scores, values = expected_parts(p, q, k, v, rows, slopes)
    assert p.scale is not None
    top = weights.max(-1, keepdims=True)
    held = np.divide(weights, top, out=np.zeros_like(weights), where=top > 0)  # relative to the row's largest
    squares = values * values
    # An element without weight has no error: ALiBi subtracts thousands from the scores of far keys.
    size = np.abs(np.where(weights >= 2.0**-40 * top, scores, 0.0)).max(-1, keepdims=True)
    rounded = TYPICAL_ROUNDING * unit
    constant = 2 * constant_error(p.scale, unit) * size
    exponents = rounded * _exponent_roundings(p, q[:, :, rows.slice], k, size, kind) + constant
    variance, common = (exponents * weights) ** 2, np.sqrt(((exponents * weights) ** 2).sum(-1, keepdims=True))
    drift = 2 * unit * np.abs(expected) + 2.0**-126 * np.abs(values).sum(-2, keepdims=True) + (p.lk + 2) * kind.smallest
    alike = alike_fraction(weights, 2.0**-p.element.significand)
    if p.dtype == "xf32":
        cut = as_read(weights, p.dtype, arch)
        expected = cut @ values
        variance = variance + (weights * 2.0**-10) ** 2 / 12
        drift = drift + 2.0**-12 * np.abs(expected)
    elif p.dtype not in ("f32", "f64"):
        gain = GAINS.get(p.dtype, 1.0)
        rounding, common = (x * top / gain for x in _narrow_rounding(held * gain, p.element, arch))
        variance = variance + rounding**2
        lost = FLUSHED_INPUT.get(p.dtype, 0.0) if arch == "gfx90a" else 0.0
        drift = drift + np.where(held * gain < lost, weights, 0.0) @ np.abs(values)
        # With tied scores, all rows have the same errors: a factor. Those of weights that other rows have, too, also differ from
        # column to column.
        drift = drift + 4 * tied_fraction(weights) * common * np.abs(expected)
        drift = drift + 4 * alike * np.sqrt(rounding**2 @ squares / p.dv)
    shared = np.sqrt(common**2 + (rounded * (4 + 2 * size + math.sqrt(p.lk / LANES + 16)) + constant) ** 2)
    drift = drift + 4 * alike * shared * np.abs(expected)  # rows of the same weights have the same errors of their sums
    sums = (weights * weights) @ squares
    accumulated = (rounded**2 * kind.steps(p.lk)) * (expected * expected + sums) + (4 * rounded * expected) ** 2
    noise = np.sqrt(variance @ squares + accumulated)
    product = top * np.abs(values).max(-2, keepdims=True)
    drift = drift + kind.drift(p.lk, np.abs(expected) + np.sqrt(sums), np.broadcast_to(product, expected.shape))
    return TypicalError(expected, noise, drift, shared)


def _of_sequences(p: AttentionProblem, rows: Extent, arch: str, operands: Callable[[], Iterator[Sequence]]) -> TypicalError:
    """Returns the errors of a cached problem: each sequence's, times scale_v, plus the roundings of that product."""
    found = {}
    for name in TypicalError.__dataclass_fields__:

        def field(one: Sequence, name: str = name) -> Array:
            made = attention_typical_error(one.problem, one.q, one.k, one.v, arch, rows, one.slopes)
            size = abs(one.scale_v) * np.abs(made.expected)
            own = {"expected": one.scale_v * made.expected, "shared": made.shared,
                   "deviation": np.hypot(one.scale_v * made.deviation, UNIT_F32 * size),
                   "drift": abs(one.scale_v) * made.drift + UNIT_F32 * size}  # fmt: skip
            return np.asarray(own[name])

        found[name] = each_sequence(p, rows, (1 if name == "shared" else p.dv,), 0.0, field, operands())
    return TypicalError(**found)


def _exponent_roundings(p: AttentionProblem, q: Array, k: Array, size: Array, kind: Accumulation) -> Array:
    """Returns the error of exponents in roundings. size: of each row's largest score.

    A score's partial sums are about as large as the norms suggest: |q| |k| / sqrt(d).
    """
    assert p.scale is not None
    norm_q, norm_k = (np.sqrt((x * x).sum(-1)) for x in (q, k))
    longest = np.repeat(norm_k.max(-1), p.heads // p.kv_heads, axis=1)[..., None, None]
    partial = abs(p.scale) * norm_q[..., None] * longest / math.sqrt(p.d)
    return np.asarray(4 + 4 * size + CAP_ROUNDINGS * (p.softcap or 0.0) + 2 * math.sqrt(kind.steps(p.d)) * partial)


def _narrow_rounding(weights: Array, kind: DType, arch: str) -> tuple[Array, Array]:
    """Returns the standard deviations of the errors of weights that round to a narrow type, and of each row's sum of them,
    (..., 1). Equal weights (tied scores) round alike."""
    narrow, rounding = weights.astype(numpy_dtype(kind.name, arch)), Rounding.of(kind.name, arch)
    keys = weights.shape[-1]
    held = np.sort(narrow.view(f"u{kind.bytes}"), axis=-1, kind="stable").reshape(-1)
    fresh = np.flatnonzero(np.concatenate(([True], (held[1:] != held[:-1]) | (np.arange(1, len(held)) % keys == 0))))
    steps = rounding.spacing(held[fresh].view(narrow.dtype).astype(np.float64)) * np.diff(np.append(fresh, len(held)))
    squares = np.bincount(fresh // keys, weights=steps * steps, minlength=len(held) // keys)
    return rounding.spacing(weights) / math.sqrt(12), np.sqrt(squares / 12).reshape(*weights.shape[:-1], 1)


def tied_fraction(weights: Array) -> float:
    """Returns the fraction of the middle row's weights, rounded to f32, that repeat an earlier one."""
    row = weights.reshape(-1, weights.shape[-1])[weights[..., 0].size // 2]
    seen = row[row > 0].astype(np.float32)
    return 1 - len(np.unique(seen)) / max(1, len(seen))


def alike_fraction(weights: Array, unit: float) -> float:
    """Returns the fraction of some rows' weights that are those of the next row times one factor, up to `unit`.

    So it is if a bias or a soft cap decides them.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    some = np.unique(np.linspace(0, len(rows) - 2, PAIRS).astype(int)) if len(rows) > 1 else np.zeros(0, int)
    alike = 0.0
    for one, other in zip(rows[some], rows[some + 1], strict=True):
        used = (one > SMALL_WEIGHT * one.max()) & (other > SMALL_WEIGHT * other.max())
        if used.any():
            factors = other[used] / one[used]
            near = np.abs(factors / np.median(factors) - 1) < unit
            alike += float(one[used][near].sum() / one.sum())
    return alike / max(1, len(some))
