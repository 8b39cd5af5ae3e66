"""Samples that represent the workgroups of a launch."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.timing.dispatch import last_queues, nearest_samples, spread

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


def test_the_cu_with_most_lines_is_modelled_beside_the_one_that_ends_last() -> None:
    """An edge's workgroup takes longest and moves little; the other moves most, and the first leaves it its part of memory."""
    clocks, records, lines = (np.array(pair, float) for pair in ((100, 90), (50, 40), (10, 100)))
    queues = last_queues(clocks, [records, lines], np.array([0, 1]), 2, 1, 1)
    assert [queue.order.tolist() for queue in queues] == [[0], [1]]
    assert [queue.busy for queue in queues] == pytest.approx([45 / 50, 55 / 100])
    (alike,) = last_queues(clocks, [records], np.array([0, 1]), 2, 1, 1)
    assert alike.order.tolist() == [0]
