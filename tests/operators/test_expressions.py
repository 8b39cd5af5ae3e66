"""Expressions of leaves: numpy, the error bound and the emitted instructions agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.errors import LaunchError
from simgpu.operators import expressions
from simgpu.operators.expressions import (
    F32,
    FUNCTIONS,
    NUMPY,
    SYMBOLS,
    Value,
    arguments,
    evaluate,
    exp,
    maximum,
    operations,
    rsqrt,
    select,
    sqrt,
    trace,
)
from simgpu.operators.running_error import ARITHMETIC, Bounded
from tests.support.exhaustive import examples

X, Y = (Value("argument", name=name) for name in "xy")
SINGLE = ("absolute", "sqrt", "rsqrt", "exp", "log", "binade")


def values(depth: int = 3) -> st.SearchStrategy[Value]:
    leaf = st.sampled_from((X, Y)) | st.floats(0.25, 4).map(lambda number: Value("constant", constant=number))

    def grown(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
        one = st.tuples(st.sampled_from(SINGLE), inner).map(lambda given: Value(given[0], (given[1],)))
        two = st.sampled_from((*SYMBOLS, "maximum", "minimum"))
        three = st.tuples(inner, inner, inner).map(lambda given: Value("select", given))
        return one | st.tuples(two, inner, inner).map(lambda given: Value(given[0], given[1:])) | three

    return st.recursive(leaf, grown, max_leaves=2**depth)


@settings(max_examples=examples(60), deadline=None)
@given(values(), st.integers(0, 99))
def test_the_bound_holds_for_f32(value: Value, seed: int) -> None:
    """numpy's f32 rounds each operation like the instructions, or nearer."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.uniform(-3, 3, 64).astype(np.float32) for name in "xy"}
    with np.errstate(all="ignore"):
        got = np.asarray(evaluate(value, drawn, F32), np.float32).astype(np.float64)
        exact = {name: Bounded.exact(array.astype(np.float64)) for name, array in drawn.items()}
        found = evaluate(value, exact, ARITHMETIC)
        want = np.asarray(evaluate(value, {name: one.value for name, one in exact.items()}, NUMPY), np.float64)
        error = np.abs(got - want)
        held = (error <= found.error) | ~np.isfinite(want) | (np.abs(want) > 3e38)
    assert np.all(held), f"{value}: {error.max()} past {found.error}"


def test_a_bound_is_not_loose() -> None:
    found = evaluate(X * rsqrt(Y / 64 + 1e-5), {name: Bounded.exact(np.full(4, 3.0)) for name in "xy"}, ARITHMETIC)
    assert np.all(found.error / found.value < 16 * 2.0**-24)


def test_text_keeps_the_order_of_operations() -> None:
    chosen = select(X - Y, 1, X)
    for value in ((X - Y) * X, X - (Y - X), X / (Y * X), -(X + 1) / 2, maximum(X * X, 0) - exp(-X), sqrt(abs(X) / 3), chosen):
        names = {name: getattr(expressions, name) for name in FUNCTIONS}
        again = eval(str(value), {"x": X, "y": Y, **names})
        given = {"x": np.float64(1.7), "y": np.float64(0.3)}
        assert evaluate(again, given, NUMPY) == evaluate(value, given, NUMPY)


def test_operations_are_shared_and_in_order() -> None:
    square = X * X
    assert [one.op for one in operations(square + Y, square)] == ["multiply", "add"]
    assert square == X**2 and X**1 == X
    assert arguments(square + Y) == {"x", "y"}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x > 0 else 0, "select\\(x - y, a, b\\) is"),
        (lambda x: x if x <= 0 else 0, "select"),
        (lambda x: 1 if x else 0, "maximum, minimum and select"),
        (lambda x: float(x), "not math or numpy"),
        (lambda x: np.sqrt(x), "sqrt, rsqrt, exp, .* not math or numpy"),
        (lambda x: x * "2", "no number"),
        (lambda x: x**0.5, "an integer from 1"),
        (lambda x: x + 1e39, r"the constant 1e\+39 is no normal f32"),
        (lambda x: x * rsqrt(x * x + 1e-50), "the constant 1e-50 is no normal f32: give 0, or 1.18e-38 to 3.4e"),
        (lambda x, y: x, "y"),
        (lambda x: x.mean(), "mean"),
    ],
)
def test_what_a_leaf_cannot_do_is_said(function: Callable[..., Value], said: str) -> None:
    with pytest.raises(LaunchError, match=said) as raised:
        trace("Mine.result", function, ("x",))
    assert str(raised.value).startswith("Mine.result(x): ")


def test_a_value_is_compared_by_structure() -> None:
    assert X * 2 == X * 2 != X * 3 and hash(X * 2) == hash(replace(X * 2))
