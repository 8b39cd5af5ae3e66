"""Attention's closed cost: the keys that masks leave, and the split of keys that follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.operators import AttentionProblem, FusedAttention, plan_attention
from simgpu.operators.attention.cost import attention_cost, attention_seconds
from simgpu.operators.attention.plan import with_queries
from simgpu.operators.attention.reductions import key_steps, mask_instructions, slowest_steps
from simgpu.operators.tree import Extent
from simgpu.tools.cost.emitted import modelled_seconds
from simgpu.tools.cost.space import space
from tests.support.exhaustive import examples


@settings(max_examples=examples(60))
@given(
    sizes=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    heads=st.sampled_from(((1, 1), (6, 2), (3, 3))),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 300),
    dtype=st.sampled_from(["f32", "f16"]),
)
def test_steps_are_those_of_the_trees_blocks(
    sizes: tuple[int, int], heads: tuple[int, int], causal: bool, window: int | None, dtype: str
) -> None:
    problem = AttentionProblem(*sizes, 64, *heads, causal=causal, window=window, dtype=dtype)
    tree = FusedAttention(problem, replace(hardware.target("mi300x"), num_cus=1))  # keys are not split over idle CUs
    plan = tree.derivation
    steps = [-(-len(block.views[1].rows) // plan.tile_KV) for block in tree.children()]
    mean, most = key_steps(problem, plan.tile_Q, plan.tile_KV)
    assert most == max(1, *steps) and mean == pytest.approx(max(1, sum(steps) / len(steps)))


def test_a_window_of_few_keys_is_not_split() -> None:
    """Two queries see 30 of 24,242 keys: one step."""
    few = AttentionProblem(2, 24242, 64, 4, causal=True, window=29, dtype="bf16")
    assert plan_attention(few, hardware.target("mi355x")).split_kv == 1
    assert plan_attention(replace(few, window=None), hardware.target("mi355x")).split_kv > 8


def test_blocks_have_pairs_of_tiles_only_if_tiles_differ() -> None:
    """Tiles of 256 queries under a causal mask see 1 to 16 times 256 keys; with a window of 512 keys, 256 to 767."""
    p, d = AttentionProblem(4096, 4096, 128, 16, causal=True, dtype="f16"), hardware.target("mi300x")
    plans = [with_queries(plan_attention(each, d), 256) for each in (p, replace(p, window=512), replace(p, causal=False))]
    assert [plan.blocks_of_head for plan in plans] == [8, 16, 16]
    pairs, single = (float(attention_cost(plan.problem, d, 256, 64, 1, True).workgroups) for plan in plans[:2])
    assert (pairs, single) == (8 * 16, 16 * 16)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_causal_mask_halves_long_launches(dtype: str) -> None:
    d = hardware.target("mi300x")
    whole = AttentionProblem(8192, 8192, 128, 64, dtype=dtype)
    times = [
        float(attention_cost(problem, d, 32, 64 if dtype == "f32" else 128, 1, False).terms()["total"])
        for problem in (whole, replace(whole, causal=True))
    ]
    assert times[1] == pytest.approx(times[0] / 2, rel=0.05)


@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, 40), (False, 700), (True, 300), (False, None)])
def test_masks_are_those_of_steps_that_an_edge_cuts(causal: bool, window: int | None) -> None:
    """Counts, for waves of 32 queries in tiles of 256, the steps with a score that the mask hides."""
    p = AttentionProblem(1024, 1024, 64, causal=causal, window=window, dtype="f16")
    cut = steps = 0
    for first in range(0, p.lq, 256):
        seen = p.visible(Extent(first, first + 256, p.lq))
        for low, wave in product(range(seen.min_, seen.max_, 64), range(first, first + 256, 32)):
            steps += 1
            cut += low + 64 > p.lk or not p.keep(Extent(wave, wave + 32, p.lq), Extent(low, low + 64, p.lk)).all()
    assert mask_instructions(p, 256, 64, 32) == pytest.approx(2 * (1 + (window is not None)) * cut / steps)


def test_narrow_windows_leave_k_and_v_to_waves_of_their_own() -> None:
    """By the model of time, waves that share K and V take 47 us for the first problem, waves with keys of their own 31."""
    p = AttentionProblem(2607, 2607, 64, 31, causal=True, window=34, dtype="bf16")
    assert not plan_attention(p, hardware.target("mi325x")).shared
    assert plan_attention(replace(p, window=None, batch=4), hardware.target("mi325x")).shared


def test_cus_take_causal_blocks_in_turn() -> None:
    """Two heads of 1, 2, 3, 4 steps are dispatched as 1 2 3 4 and 4 3 2 1, to three CUs: 1 + 4 + 2, 2 + 4 + 1 and 3 + 3 steps."""
    few = replace(hardware.target("mi100"), num_cus=3)
    p = AttentionProblem(64, 64, 64, heads=2, causal=True)
    assert slowest_steps(p, few, 16, 16, 1) == 7
    assert slowest_steps(p, replace(few, num_cus=8), 16, 16, 1) == 4
    # In halves of 1 + 0, 1 + 1, 2 + 1 and 2 + 2 steps: series 1 1 2 2, 2 1 1 0, 1 1 2 2 and 2 1 1 0.
    assert slowest_steps(p, few, 16, 16, 2) == 1 + 2 + 1 + 1 + 2 + 0


@pytest.mark.parametrize(("heads", "length", "d", "tile"), [(2, 379, 128, (16, 3)), (4, 1583, 64, (32, 1))])
def test_causal_blocks_that_begin_at_once_take_as_long_as_the_slowest_cu(
    heads: int, length: int, d: int, tile: tuple[int, int]
) -> None:
    """CUs have one or two blocks here. Their mean, which was the cost before, is 0.65 to 0.72 of the model's time."""
    p, board = AttentionProblem(length, length, d, heads, causal=True), hardware.target("mi250x")
    tree = space("attention", p, board).tree(tile)
    cost = attention_cost(p, board, tile[0], tree.plan.tile_KV, tile[1], False)
    assert cost.slowest > 0 and cost.resident > 1
    assert 0.85 < attention_seconds(p, board, tile[0], tree.plan.tile_KV, tile[1])["total"] / modelled_seconds(tree) < 1.1
