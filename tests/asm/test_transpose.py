"""Transposes: kernels are exact at any size, stride and type, in checked mode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import operators
from simgpu.hardware.errors import LaunchError
from simgpu.operators import Transpose, TransposeProblem
from simgpu.operators.traffic import block_counters
from simgpu.operators.transpose import TYPES
from tests.support.exhaustive import examples
from tests.support.operator_case import assert_right_in_checked_mode

BOARDS = ("mi100", "mi210", "mi300x", "mi355x")


@st.composite
def problems(draw: st.DrawFn) -> tuple[TransposeProblem, str]:
    target = draw(st.sampled_from(BOARDS))
    m, n = (max(1, int(2 ** draw(st.floats(0, 8.5))) + draw(st.integers(-1, 1))) for _ in "mn")
    kinds = [kind for kind in TYPES if target in ("mi300x", "mi355x") or kind not in ("fp8", "bf8")]
    return TransposeProblem(m, n, draw(st.sampled_from(kinds)), n + draw(st.integers(0, 9)), m + draw(st.integers(0, 9))), target


@given(problems())
@settings(max_examples=examples(15))
def test_any_matrix_is_exact_in_checked_mode(case: tuple[TransposeProblem, str]) -> None:
    assert_right_in_checked_mode(Transpose(*case), case[1])


@given(problems())
@settings(max_examples=examples(10))
def test_every_level_moves_the_same(case: tuple[TransposeProblem, str]) -> None:
    tree = Transpose(*case)
    x = np.random.default_rng(0).standard_normal((case[0].m, case[0].n))
    for level in ("device", "block", "warp", "atom"):
        visitor = operators.ComputeVisitor(level)
        assert np.array_equal(visitor.visit(tree, x), x.T)
    assert visitor.counters == block_counters(tree)


def test_what_cannot_be() -> None:
    with pytest.raises(LaunchError, match="unknown dtype 'f64'"):
        TransposeProblem(3, 4, "f64")
    with pytest.raises(LaunchError, match="shorter than a row of 4"):
        TransposeProblem(3, 4, ldx=3)
    with pytest.raises(LaunchError, match="use strides below"):
        Transpose(TransposeProblem(64, 64, ldx=1 << 28))
