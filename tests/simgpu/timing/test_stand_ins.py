"""Samples that represent the workgroups of a launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.timing.dispatch import Dispatcher, Sharing, last_queues, nearest_samples, spread

HEADS, BATCHES, COUNT = 16, 16, 75


@pytest.mark.parametrize("tiles", [4, 8, 16, 32])
def test_workgroups_that_differ_along_an_axis_are_represented_along_it(tiles: int) -> None:
    """A causal mask's work grows with the tile, which is y of a grid of heads, tiles and batches."""
    groups = HEADS * tiles * BATCHES
    sizes = (np.arange(groups) // HEADS % tiles + 1.5) * 1000
    samples = list(spread(groups, COUNT))[:COUNT]
    by_number = nearest_samples(samples, groups)
    found = nearest_samples(samples, groups, sizes[samples], (HEADS, tiles, BATCHES))
    work = [sizes[np.asarray(samples)[each]].sum() / sizes.sum() for each in (by_number, found)]
    assert abs(work[0] - 1) > 0.05 > 0.02 > abs(work[1] - 1)
    assert len(np.unique(found)) > 0.7 * COUNT, "samples with an equal place take turns"


def test_workgroups_that_differ_by_their_number_are_represented_by_it() -> None:
    groups = 4096
    samples = list(spread(groups, COUNT))[:COUNT]
    sizes = np.sqrt(np.arange(groups))[samples]
    assert (nearest_samples(samples, groups, sizes, (groups, 1, 1)) == nearest_samples(samples, groups)).all()


def test_the_cu_with_most_bytes_is_modelled_beside_the_one_that_ends_last() -> None:
    """An edge's workgroup takes longest and moves little; the other moves most, and the first leaves it its part of memory."""
    clocks, works = np.array([100.0, 90.0]), np.array([[50.0, 10, 10, 4, 0], [40, 100, 30, 20, 8]])
    queues = last_queues(clocks, works, np.array([0, 1]), 2, 1, 1)
    assert [queue.order.tolist() for queue in queues] == [[0], [1]]
    expected = (90 / 50, 110 / 10, 40 / 10, 24 / 4, 2), (90 / 40, 110 / 100, 40 / 30, 24 / 20, 1)
    assert [list(queue.sharing) for queue in queues] == [pytest.approx(each) for each in expected]
    assert queues[0].sharing.at_most(2) == pytest.approx((1.8, 2, 2, 2, 2)), "it wants less of memory than an equal part"
    works[:, 1:] = 10
    (alike,) = last_queues(clocks, works, np.array([0, 1]), 2, 1, 1)
    assert alike.order.tolist() == [0]


def test_two_early_ends_on_one_cu_do_not_give_it_two_workgroups_more() -> None:
    """A CU's second workgroup begins a round of dispatches after its first. So other CUs have room before both have ended."""
    cus, places, clocks = 120, 2, np.array([63_750.0, 63_500.0])  # an edge takes less
    stand = np.zeros(338, np.int64)
    stand[[7, 7 + cus]] = 1
    works = np.outer(clocks, np.ones(len(Sharing._fields)))
    for interval, most in ((0.0, 4), (10 / 3, 3)):
        assert max(len(queue.order) for queue in last_queues(clocks, works, stand, cus, 1, places, interval)) == most
    assert -(-len(stand) // cus) == 3


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_a_dispatcher_agrees_with_one_that_goes_clock_by_clock(clocks: list[int], cus: int, places: int, interval: int) -> None:
    dispatcher = Dispatcher(cus, places, interval)
    found = [dispatcher.place(each) for each in clocks]
    ends: list[list[int]] = [[] for _ in range(cus)]
    turn, clock, expected = 0, interval, []
    for each in clocks:
        while not (free := [u % cus for u in range(turn, turn + cus) if sum(end > clock for end in ends[u % cus]) < places]):
            clock += 1
        ends[free[0]].append(clock + each)
        expected.append((free[0], clock + each))
        turn, clock = free[0] + 1, clock + interval
    assert found == expected
