"""Errors that a promised type allows: honest sums pass in any order, rounded inputs are recognized, even if their errors average
out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from simgpu.tools.judge.hostile import STYLES, change
from simgpu.tools.judge.tolerance import Expected, OutputComparison, compare, narrow, narrower, unit_of

RNG = np.random.default_rng(5)


def expected(a: np.ndarray, b: np.ndarray) -> Expected:
    """Returns the reference of a matrix product, as the judge computes it."""
    kind = a.dtype
    wide = [x.astype(np.float64) for x in (a, b)]
    want = wide[0] @ wide[1]
    moved = [x * (1 + unit_of(kind) * RNG.uniform(-1, 1, x.shape)) for x in wide]
    narrowed = {name: narrow(wide[0], name) @ narrow(wide[1], name) for name in narrower(kind)}
    return Expected(want, (a.astype("f4") @ b.astype("f4")).astype(kind), np.abs(moved[0] @ moved[1] - want), narrowed)


def sequential(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product whose sums are added one after another, in f32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float32)
    return total


def operands(k: int, positive: bool, kind: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    draw = RNG.random if positive else RNG.standard_normal
    return draw((9, k)).astype(kind), draw((k, 8)).astype(kind)


def of(got: np.ndarray, want: Expected, **how: bool) -> OutputComparison:
    return compare("c", got, want, **how)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("k", [1, 60, 3000])
def test_faithful_sums_pass_and_rounded_inputs_do_not(k: int, positive: bool) -> None:
    a, b = operands(k, positive)
    want = expected(a, b)
    honest = [sequential(a, b), a @ b, sequential(a[:, ::-1], b[::-1])]
    assert all(of(got, want).right and not of(got, want).like for got in honest)
    for name, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        found = of(sequential(a.astype(kind).astype("f4"), b.astype(kind).astype("f4")), want)
        assert not found.right and name in found.like, (name, found)


def test_xf32_is_told_apart_if_its_instructions_ran() -> None:
    a, b = operands(300, True)
    want = expected(a, b)
    got = (narrow(a.astype(np.float64), "xf32") @ narrow(b.astype(np.float64), "xf32")).astype(np.float32)
    assert "xf32" in of(got, want).like and not of(got, want).right
    assert of(got, want, xf32=True).right and of(got, want, xf32=True).reduced
    assert not of((narrow(a.astype("f8"), "bf16") @ b.astype("f8")).astype("f4") * 1.01, want, xf32=True).right


def test_narrow_types_are_rounded_once() -> None:
    a, b = operands(500, False, np.float16)
    want = expected(a, b)
    assert of((a.astype("f4") @ b.astype("f4")).astype(np.float16), want).right
    fp8 = [x.astype(ml_dtypes.float8_e4m3fn).astype("f4") for x in (a, b)]
    assert not of((fp8[0] @ fp8[1]).astype(np.float16), want).right


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_zeros_neighbours_and_poison_are_wrong_at_any_size(size: float) -> None:
    """An absolute tolerance accepts zeros for small results."""
    a, b = operands(40, False)
    want = expected((size * a).astype("f4"), b)
    good = want.promised
    assert of(good, want).right and not of(0 * good, want).right and not of(np.roll(good, 1, 0), want).right
    poison = np.full(good.nbytes, 0xFF, np.uint8).view("f4").reshape(good.shape)
    holes = np.where(np.eye(*good.shape, dtype=bool), poison, good)
    found = compare("c", holes, want, poison)
    assert found.unwritten == 8 and not found.right and "not written" in found.line()


def test_integers_are_exact_and_overflow_is_not_compared() -> None:
    want = np.array([1, 2])
    assert of(want, Expected(want, want, 0.0 * want)).right and not of(want + 1, Expected(want, want, 0.0 * want)).right
    large = Expected(np.array([1e6, 1.0]), np.array([np.inf, 1.0], np.float16), np.zeros(2))
    assert of(np.array([65504, 1], np.float16), large).compared == 1


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_hostile_inputs_keep_the_structure(style: str, kind: type) -> None:
    """Equal elements stay equal, and 0 stays 0: symmetric and triangular matrices stay what they are."""
    x = RNG.standard_normal((40, 40))
    matrix = np.tril(x + x.T).astype(kind)
    made = change(matrix + np.tril(matrix, -1).T, style)
    assert made.dtype == kind and made.shape == (40, 40)
    np.testing.assert_array_equal(made.astype("f8"), made.T.astype("f8"))
    assert not np.triu(change(matrix, style), 1).astype("f8").any()
    assert np.isnan(made.astype("f8")).any() == np.isinf(made.astype("f8")).any() == STYLES[style].special
    assert change(np.arange(4), style).tolist() == [0, 1, 2, 3]
