"""Forecasts of `tools/benchmarks/scaling.py`: no speed-up beyond the cores, and the largest loss by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.tools.benchmarks.scaling import Measured, forecast

MUCH = 1 << 40  # work that pays for any number of threads


def measured(wall: float, processor: tuple[float, float], groups: int, amount: int = MUCH) -> Measured:
    return Measured("work", (wall, wall / 2), processor, groups, amount, 0)


@given(
    st.floats(1e-6, 10), st.tuples(st.floats(1e-6, 10), st.floats(1e-6, 10)), st.integers(1, 5000), st.integers(0, MUCH),
    st.integers(1, 64), st.floats(0, 1e-3), st.floats(0, 1e-4),
)  # fmt: skip
def test_speed_up_is_at_most_the_cores(
    wall: float, processor: tuple[float, float], groups: int, amount: int, cores: int, serial: float, each: float
) -> None:
    found = forecast(measured(wall, processor, groups, amount), cores, serial, lambda threads: threads * each)
    assert 0 < found.speedup <= cores * (1 + 1e-9) + serial / wall * cores


@pytest.mark.parametrize(
    "groups, amount, processor, serial, each, limit, speedup",
    [
        (64, MUCH, (1.0, 1.0), 0.1, 0.0, "serial", 6.769),
        (4, MUCH, (1.0, 1.0), 0.0, 0.0, "workgroups", 4.0),
        (17, MUCH, (1.0, 1.0), 0.0, 0.0, "rounds", 8.5),
        (64, MUCH, (1.0, 1.5), 0.0, 0.0, "contention", 10.667),
        (64, 1 << 16, (1.0, 1.0), 0.0, 0.0, "threads", 4.0),
        (64, MUCH, (1.0, 1.0), 0.0, 1e-2, "threads", 4.494),
    ],
)
def test_the_largest_loss_is_the_limit(
    groups: int, amount: int, processor: tuple[float, float], serial: float, each: float, limit: str, speedup: float
) -> None:
    """Covers one second of work on 16 cores."""
    found = forecast(measured(1.0 + serial, processor, groups, amount), 16, serial, lambda threads: threads * each)
    assert found.limit == limit and found.speedup == pytest.approx(speedup, rel=1e-3)
