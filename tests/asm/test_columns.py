"""Reductions of columns: kernels against float64 at any size, stride and type, in checked mode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import asm, operators
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ColumnProblem, Columns, reference
from simgpu.operators.columns import TYPES
from simgpu.operators.compute import COMBINE
from simgpu.operators.traffic import block_counters
from tests.support.exhaustive import examples
from tests.support.operator_case import assert_right_in_checked_mode

BOARDS = ("mi100", "mi210", "mi300x", "mi355x")


@st.composite
def problems(draw: st.DrawFn) -> tuple[ColumnProblem, str]:
    n = max(1, int(2 ** draw(st.floats(0, 11))) + draw(st.integers(-1, 1)))
    m = draw(st.integers(1, max(1, min(3000, 200000 // n))))
    kind, reduce = draw(st.sampled_from(TYPES)), draw(st.sampled_from(tuple(COMBINE)))
    return ColumnProblem(m, n, kind, n + draw(st.integers(0, 9)), reduce), draw(st.sampled_from(BOARDS))


@given(problems())
@settings(max_examples=examples(15))
def test_any_matrix_is_right_in_checked_mode(case: tuple[ColumnProblem, str]) -> None:
    assert_right_in_checked_mode(Columns(*case), case[1])


@given(problems())
@settings(max_examples=examples(10))
def test_every_level_computes_the_same(case: tuple[ColumnProblem, str]) -> None:
    tree = Columns(*case)
    x = np.random.default_rng(0).standard_normal((case[0].m, case[0].n))
    for level in ("device", "block", "warp", "atom"):
        visitor = operators.ComputeVisitor(level, "problem")
        found = visitor.visit(tree, x.astype(np.float32))
        error = np.abs(found - reference.columns(case[0], x.astype(np.float32)))
        assert np.all(error <= reference.columns_error_bound(case[0], x.astype(np.float32)))
    assert visitor.counters == block_counters(tree)


def test_few_rows_need_no_second_kernel() -> None:
    assert not asm.emit(Columns(ColumnProblem(20, 4000), "mi300x")).following
    assert asm.emit(Columns(ColumnProblem(20000, 4000), "mi300x")).following


def test_what_cannot_be() -> None:
    with pytest.raises(LaunchError, match="unknown dtype 'i8'"):
        ColumnProblem(3, 4, "i8")
    with pytest.raises(LaunchError, match="unknown reduction 'mean'"):
        ColumnProblem(3, 4, reduce="mean")
    with pytest.raises(LaunchError, match="shorter than a row of 4"):
        ColumnProblem(3, 4, ldx=3)
    with pytest.raises(LaunchError, match="so ldx <"):
        Columns(ColumnProblem(64, 64, ldx=1 << 28))
