"""Bands around a predicted time, and the reasons that are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simgpu import hardware
from simgpu.timing.band import PredictionFacts, doubts

PRODUCT = PredictionFacts(
    hardware.target("mi355x"), {"matrix": 0.9, "vector cache": 0.7, "LDS": 0.3, "HBM": 0.2}, seconds=1e-3, dtype="bf16",
    channels=1.0, atomics=0.0, remembered=0.0,
)  # fmt: skip
IDLE = {"matrix": 0.0, "vector cache": 0.2, "LDS": 0.0, "HBM": 0.0}


def test_a_long_product_has_no_doubt() -> None:
    assert list(doubts(PRODUCT)) == []
    assert list(doubts(replace(PRODUCT, chip=hardware.target("mi300x")))) == []


@pytest.mark.parametrize(
    "told, said, wider",
    [
        (replace(PRODUCT, seconds=5e-6), "16% of this time", 0.16),
        (replace(PRODUCT, shares={**PRODUCT.shares, "matrix": 0.5}), "vector cache", 0.1),
        (replace(PRODUCT, channels=0.25), "25% of memory's channels", 0.25),
        (replace(PRODUCT, remembered=0.4), "40% of what a first round misses", 0.1),
        (replace(PRODUCT, updated=0.9, load=0.8), "updated in place", 0.25),
        (replace(PRODUCT, moved=0.4), "move for 40% of this time", 0.15),
        (replace(PRODUCT, atomics=8), "atomics on the same lines", 0.08),
        (replace(PRODUCT, atomics=65536), "65,536 requests by atomics", 0.25),
        (replace(PRODUCT, shares=IDLE, waits=True), "waits for loads decide", 0.1),
        (replace(PRODUCT, dtype="i8"), "no clock under i8 work", 0.05),
        (replace(PRODUCT, chip=hardware.target("mi300x"), shares={**PRODUCT.shares, "LDS": 0.6}), "LDS works more", 0.05),
    ],
)  # fmt: skip
def test_each_doubt_is_told_and_widens_the_band(told: PredictionFacts, said: str, wider: float) -> None:
    [doubt] = doubts(told)
    assert said in doubt.note and doubt.wider == pytest.approx(wider)


@pytest.mark.parametrize(
    ("board", "busy", "count"), [("mi250x", 0.75, 1), ("mi100", 0.75, 1), ("mi250x", 0.6, 0), ("mi300x", 0.75, 0)]
)
def test_memory_that_limits_is_doubted_on_boards_without_an_infinity_cache(board: str, busy: float, count: int) -> None:
    """MI250X served stencils along z at 1.17 TB/s by their counters, and streams at 1.3."""
    found = list(doubts(replace(PRODUCT, chip=hardware.target(board), shares={**IDLE, "HBM": busy})))
    assert [doubt.wider for doubt in found if "many planes" in doubt.note] == [0.15] * count


def test_idle_channels_do_not_matter_to_a_launch_that_hardly_uses_memory() -> None:
    assert not list(doubts(replace(PRODUCT, channels=0.06, shares={**PRODUCT.shares, "HBM": 0.01})))


def test_waits_of_products_are_those_that_were_measured() -> None:
    assert not list(doubts(replace(PRODUCT, waits=True)))


def test_types_do_not_matter_to_idle_matrix_units() -> None:
    assert not list(doubts(replace(PRODUCT, dtype="i8", shares=IDLE)))
    assert not list(doubts(replace(PRODUCT, dtype="", shares=IDLE)))
    assert not list(doubts(replace(PRODUCT, dtype=None)))


def test_an_update_in_place_is_doubted_only_where_memory_is_busy_and_there_is_an_infinity_cache() -> None:
    told = replace(PRODUCT, updated=0.9, load=0.8)
    others = (replace(told, load=0.3), replace(told, updated=0.2), replace(told, chip=hardware.target("mi210"), dtype=None))
    assert [list(doubts(one)) for one in others] == [[], [], []]
