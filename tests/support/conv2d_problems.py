"""Convolutions of any shape, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from simgpu.operators import Conv2dProblem

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


def problems(
    high: int, wide: int, taps: int, padding: int, dilations: st.SearchStrategy[tuple[int, int]] = PAIR
) -> st.SearchStrategy[Conv2dProblem]:
    """Of up to so many rows and columns beyond what the filter takes, taps and rows of padding each way."""
    return st.builds(
        lambda n, g, ic, oc, ih, iw, kh, kw, stride, padding, dilation: Conv2dProblem(
            n, ic * g, ih + dilation[0] * (kh - 1), iw + dilation[1] * (kw - 1), oc * g, kh, kw, stride, padding, dilation, g
        ),
        st.integers(1, 2), st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, high), st.integers(1, wide),
        st.integers(1, taps), st.integers(1, taps), PAIR, st.tuples(st.integers(0, padding), st.integers(0, padding)), dilations,
    )  # fmt: skip
