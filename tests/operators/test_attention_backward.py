"""Attention's backward: problem, plan, tree and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.errors import LaunchError
from simgpu.operators import AttentionBackward, AttentionBackwardProblem, ComputeVisitor, reference
from simgpu.operators.attention_backward.cost import gradient_seconds
from simgpu.operators.attention_backward.plan import gradient_plans
from simgpu.operators.attention_backward.tree import partners
from simgpu.operators.traffic import block_counters
from tests.support.sweeps import swept

Array = np.ndarray[Any, Any]


def operands(p: AttentionBackwardProblem, kind: Any, finish: bool = True, drawn: tuple[Array, ...] = ()) -> tuple[Array, ...]:
    """Draws Q, K, V and dO; if `finish`, rounds them and returns Q, K, V, O, dO, L of them."""
    source = np.random.default_rng(p.lq + 7 * p.lk)
    q, k, v, do = drawn or (source.standard_normal(p.shapes[name]).astype(kind) for name in ("Q", "K", "V", "dO"))
    if not finish:
        return q, k, v, do
    q, k, v, do = (x.astype(kind) for x in (q, k, v, do))
    single = np.float32 if np.dtype(kind).itemsize < 8 else float
    return q, k, v, reference.attention(p, q, k, v).astype(kind), do, reference.attention_lse(p, q, k).astype(single)


def gradients(p: AttentionBackwardProblem, q: Array, k: Array, v: Array, do: Array) -> dict[str, Array]:
    """Returns the gradients by the chain rule, head by head: the softmax's Jacobian, and neither O nor L."""
    q, k, v, do = (np.asarray(x).astype(float) for x in (q, k, v, do))
    found = {"dQ": np.zeros(q.shape), "dK": np.zeros(k.shape), "dV": np.zeros(v.shape)}
    for b in range(p.batch):
        for h in range(p.heads):
            g = h * p.kv_heads // p.heads
            for i in range(p.lq):
                seen = slice(0, max(0, min(p.lk, i + p.lk - p.lq + 1)) if p.causal else p.lk)
                if seen.stop == 0:
                    continue
                keys, values = k[b, g, seen], v[b, g, seen]
                e = np.exp(p.scale * (keys @ q[b, h, i]))
                weights = e / e.sum()
                jacobian = np.diag(weights) - np.outer(weights, weights)
                ds = p.scale * (jacobian @ (values @ do[b, h, i]))
                found["dQ"][b, h, i] = ds @ keys
                found["dK"][b, g, seen] += np.outer(ds, q[b, h, i])
                found["dV"][b, g, seen] += np.outer(weights, do[b, h, i])
    return found


BOARDS = [name for name in hardware.targets() if "f16" in hardware.target(name).dtypes()]
CASES = st.builds(
    lambda lq, lk, d, dv, heads, causal: AttentionBackwardProblem(lq, lk, d, *heads, 2, causal, dtype="bf16", dv=dv),
    st.integers(1, 40), st.integers(1, 40), st.sampled_from((8, 24)), st.sampled_from((0, 16)),
    st.sampled_from(((1, 1), (4, 2))), st.booleans(),
)  # fmt: skip


@settings(max_examples=15)
@given(CASES)
def test_float64_is_the_chain_rule(p: AttentionBackwardProblem) -> None:
    arrays = operands(p, float)
    found = reference.attention_backward(p, *arrays)
    for name, want in gradients(p, *arrays[:3], arrays[4]).items():
        np.testing.assert_allclose(found[name], want, atol=1e-12)


def test_float64_is_the_slope_of_the_forward() -> None:
    """Differentiates the sum of R * dO by central differences."""
    p = AttentionBackwardProblem(9, 12, 8, 2, 1, causal=True, dtype="f16")
    q, k, v, o, do, logarithm = operands(p, float)
    found = reference.attention_backward(p, q, k, v, o, do, logarithm)
    for name, place in (("dQ", (0, 1, 4, 3)), ("dK", (0, 0, 2, 5)), ("dV", (0, 0, 7, 1))):
        sums = []
        for step in (1e-5, -1e-5):
            moved = {"dQ": q, "dK": k, "dV": v} | {name: {"dQ": q, "dK": k, "dV": v}[name].copy()}
            moved[name][place] += step
            sums.append((reference.attention(p, *moved.values()) * do).sum())
        assert (sums[0] - sums[1]) / 2e-5 == pytest.approx(found[name][place], rel=1e-6)


@settings(max_examples=15)
@given(CASES, st.sampled_from(BOARDS), st.sampled_from(("device", "block", "warp", "atom")))
def test_the_tree_executes_to_float64(p: AttentionBackwardProblem, board: str, level: str) -> None:
    arrays, tree = operands(p, float), AttentionBackward(p, board)
    want = reference.attention_backward(p, *arrays)
    visitor = ComputeVisitor(level)
    for name, found in visitor.visit(tree, *arrays).items():
        np.testing.assert_allclose(found, want[name], atol=1e-12)
    if level != "device":
        assert visitor.counters == block_counters(tree)


@settings(max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 3000), st.booleans())
def test_partners_are_the_pairs_that_are_seen(lq: int, lk: int, causal: bool) -> None:
    """Every pair that is seen is in one block's loops; the first and last rows of a loop have a pair."""
    p = AttentionBackwardProblem(lq, lk, 64, causal=causal, dtype="f16")
    keep = p.keep(*(AttentionBackward(p, "mi300x").parts[1].axes[name] for name in ("queries", "keys")))
    for part in AttentionBackward(p, "mi300x").parts[1:]:
        for block in part.children():
            seen = partners(part.plan, block.axes)
            own = keep[:, block.axes["keys"].slice].any(1) if part.plan.side == "keys" else keep[block.axes["queries"].slice].any(0)
            rows = np.flatnonzero(own)
            assert (seen.min_, seen.max_) == (rows[0], rows[-1] + 1) if len(rows) else len(seen) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dtype": "f32"}, "use one of f16, bf16"), ({"d": 20}, "d = 20: use a multiple of 8 up to 256, such as 24"),
        ({"dv": 300}, "dv = 300: use a multiple of 8 up to 256, such as 256"), ({"window": 5}, "has no window"),
        ({"softcap": 5.0}, "has no softcap"), ({"lq": 1 << 25}, "spans too many bytes"),
    ],
)  # fmt: skip
def test_what_has_no_kernel_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        AttentionBackward(AttentionBackwardProblem(**{"lq": 64, "lk": 64, "d": 64, "dtype": "f16"} | more))


@swept("board, d", [(board, d) for board in BOARDS for d in (8, 64, 128, 192, 256)])
def test_every_width_has_a_plan(board: str, d: int) -> None:
    """A plan fits, and names the limit that stops the next larger tile, unless fewer rows are faster."""
    for dtype in ("f16", "bf16"):
        p = AttentionBackwardProblem(4096, 4096, d, 8, dtype=dtype)
        for part in AttentionBackward(p, board).parts[1:]:
            largest = gradient_plans(p, part.descriptor, part.plan.side)[0]
            assert largest.binding.hard
            assert part.plan.feasible and part.plan.binding.name in (largest.binding.name, "occupancy")


def test_rows_of_a_block_follow_rounds() -> None:
    """A grid of slightly more blocks than CUs needs a second round, so smaller tiles are chosen; a large one keeps its tiles."""
    for heads, rows in ((32, 128), (256, 192)):
        tree = AttentionBackward(AttentionBackwardProblem(2048, 2048, 128, heads, dtype="bf16"), "mi355x")
        assert tree.parts[1].plan.tile == rows
    causal = AttentionBackwardProblem(4096, 4096, 128, 8, causal=True, dtype="bf16")
    assert AttentionBackward(causal, "mi300x").parts[1].plan.tile == 64


@pytest.mark.parametrize("board", ["mi100", "mi300x"])
def test_the_plan_has_the_least_time_of_those_that_fit(board: str) -> None:
    d = hardware.target(board)
    for heads, width in ((1, 64), (24, 96), (200, 128)):
        p = AttentionBackwardProblem(700, 900, width, heads, dtype="f16")
        for part in AttentionBackward(p, d).parts[1:]:
            fitting = gradient_plans(p, d, part.plan.side)
            assert [plan.tile for plan in fitting] == sorted({plan.tile for plan in fitting}, reverse=True)
            assert gradient_seconds(part.plan)["total"] == min(gradient_seconds(plan)["total"] for plan in fitting)
            assert part.plan.binding.name == "occupancy" or part.plan.tile == fitting[0].tile
