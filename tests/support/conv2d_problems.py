"""Convolutions of any shape, for property tests, and the test of their results."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from simgpu.operators import Conv2dProblem
from simgpu.tools.shared.faithful import likeness

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


def problems(
    high: int, wide: int, taps: int, padding: int, dilations: st.SearchStrategy[tuple[int, int]] = PAIR
) -> st.SearchStrategy[Conv2dProblem]:
    """Draws problems with limits on rows and columns beyond the filter's need, taps, and rows of padding each way."""
    return st.builds(
        lambda n, g, ic, oc, ih, iw, kh, kw, stride, padding, dilation: Conv2dProblem(
            n, ic * g, ih + dilation[0] * (kh - 1), iw + dilation[1] * (kw - 1), oc * g, kh, kw, stride, padding, dilation, g
        ),
        st.integers(1, 2), st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, high), st.integers(1, wide),
        st.integers(1, taps), st.integers(1, taps), PAIR, st.tuples(st.integers(0, padding), st.integers(0, padding)), dilations,
    )  # fmt: skip


def assert_right(result: Any) -> None:
    """Asserts both verdicts on a launch's result: `got`, `want` and `bound` in float64, `untouched` memory, a faithful kernel's
    `typical` error or None.

    An infinity or NaN must match exactly, a finite number within its bound: infinite if it may overflow.
    """
    got, want = np.asarray(result.got, float), np.asarray(result.want, float)
    same = (got == want) | np.isnan(got) & np.isnan(want)
    error = np.abs(np.subtract(got, want, out=np.zeros_like(want), where=np.isfinite(want) & ~np.isnan(got)))
    wrong = ~(same | np.isfinite(want) & ~np.isnan(got) & (error <= result.bound))
    assert not wrong.any(), f"{wrong.sum()} wrong: {np.argwhere(wrong)[:3]}: {got[wrong][:3]}, want {want[wrong][:3]}"
    assert result.untouched, "memory behind Y was written"
    assert result.typical is None or likeness(got, result.typical).passed
