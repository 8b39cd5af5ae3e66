"""Attention, fused and unfused: every level against an independent loop, masks, grouped heads, counters, limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, ResourceError
from simgpu.operators import (
    AttentionProblem,
    ComputeVisitor,
    FeasibilityVisitor,
    FusedAttention,
    UnfusedAttention,
    plan_attention,
    reference,
)
from simgpu.operators.attention.reductions import tile_heads
from simgpu.operators.tree import Extent
from tests.support.exhaustive import examples

LEVELS = ("device", "block", "warp", "atom")
problems = st.builds(
    lambda lq, lk, d, kv, group, batch, causal, window: AttentionProblem(lq, lk, 16 * d, kv * group, kv, batch, causal, window),
    st.integers(1, 90),
    st.integers(1, 150),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 60)),
)


def operands(p: AttentionProblem, dtype: str = "f64", arch: str = "gfx950") -> list[np.ndarray]:
    rng = np.random.default_rng(p.lq * 1000 + p.lk)
    return [rng.standard_normal(shape).astype(numpy_dtype(dtype, arch)) for shape in (p.q_shape, p.k_shape, p.v_shape)]


def loop(p: AttentionProblem, q: np.ndarray, k: np.ndarray, v: np.ndarray, slopes: np.ndarray | None = None) -> np.ndarray:
    """Returns R by a loop over queries, from the definition of visible keys.

    For a problem with `lse`, log(sum(exp)) follows R's columns.
    """
    out = np.zeros((*p.q_shape[:3], p.dv + 1))
    out[..., -1] = -np.inf
    for b, h, i in np.ndindex(*p.q_shape[:3]):
        g, at = h // (p.heads // p.kv_heads), i + p.lk - p.lq
        seen = [j for j in range(p.lk) if (not p.causal or j <= at) and (p.window is None or abs(j - at) < p.window)]
        if seen:
            s = p.scale * (k[b, g, seen] @ q[b, h, i])
            s = s if p.softcap is None else p.softcap * np.tanh(s / p.softcap)
            s = s if slopes is None else s - slopes[b, h] * np.abs(np.array(seen) - at)
            e = np.exp(s - s.max())
            out[b, h, i] = *(e @ v[b, g, seen] / e.sum()), s.max() + np.log(e.sum())
    return out if p.lse else out[..., :-1]


@given(problems, st.sampled_from(["corrected", "published"]), st.sampled_from(["mi100", "mi355x"]))
@settings(max_examples=examples(20))
def test_every_level_fused(p: AttentionProblem, policy: str, target: str) -> None:
    q, k, v = operands(p)
    want = loop(p, q, k, v)
    np.testing.assert_allclose(reference.attention(p, q, k, v), want, atol=1e-12)
    tree, seen = FusedAttention(p, target, policy), {}
    for level in LEVELS:
        visitor = ComputeVisitor(level)
        np.testing.assert_allclose(visitor.visit(tree, q, k, v), want, atol=1e-12)
        seen[level] = visitor.counters
    assert all(c.flops == p.flops and c.hbm_bytes == p.bytes_once for c in seen.values())
    assert seen["block"].global_bytes == seen["warp"].global_bytes == seen["atom"].global_bytes
    f32 = [x.astype("f4") for x in (q, k, v)]
    error = np.abs(ComputeVisitor("warp", "problem").visit(tree, *f32) - reference.attention(p, *f32))
    assert (error <= reference.attention_error_bound(p, *f32)).all()


@given(problems, st.integers(1, 70), st.none() | st.floats(0.5, 50), st.booleans(), st.sampled_from(LEVELS))
@settings(max_examples=examples(15))
def test_every_level_of_other_forms(p: AttentionProblem, dv: int, softcap: float | None, alibi: bool, level: str) -> None:
    """Any d and dv, a scale, a soft cap, ALiBi. Several heads share a tile if queries are few."""
    p = replace(p, d=p.d - p.lk % 16, dv=dv, scale=-0.3, softcap=softcap, alibi=alibi, lse=True)
    arrays = operands(p)
    slopes = np.random.default_rng(1).uniform(0, 0.3, p.slopes_shape) if alibi else None
    want = loop(p, *arrays, slopes)
    np.testing.assert_allclose(reference.attention(p, *arrays, slopes=slopes), want[..., :-1], atol=1e-12)
    np.testing.assert_allclose(reference.attention_lse(p, *arrays[:2], slopes=slopes), want[..., -1], atol=1e-12)
    visitor = ComputeVisitor(level)
    np.testing.assert_allclose(visitor.visit(FusedAttention(p), *arrays, slopes), want[..., :-1], atol=1e-12)
    assert visitor.counters.hbm_bytes == p.bytes_once


def test_what_other_forms_refuse() -> None:
    with pytest.raises(LaunchError, match="softcap = -1: use a positive number"):
        AttentionProblem(4, 4, 16, softcap=-1.0)
    with pytest.raises(LaunchError, match="scale = inf: use a finite number"):
        AttentionProblem(4, 4, 16, scale=float("inf"))
    with pytest.raises(LaunchError, match="policy published has no alibi"):
        FusedAttention(AttentionProblem(4, 4, 16, alibi=True), policy="published")
    with pytest.raises(LaunchError, match="unfused attention has no lse"):
        UnfusedAttention(AttentionProblem(4, 4, 16, lse=True))
    with pytest.raises(LaunchError, match="published takes one head dimension, a multiple of 16"):
        FusedAttention(AttentionProblem(4, 4, 17), policy="published")
    biased = AttentionProblem(4, 4, 16, alibi=True)
    with pytest.raises(LaunchError, match=r"slopes has shape \(0,\)"):
        ComputeVisitor("device").visit(FusedAttention(biased), *operands(biased))


@given(st.integers(1, 200), st.integers(1, 40), st.sampled_from((16, 32, 64)))
def test_heads_share_tiles_where_that_saves_tiles(lq: int, group: int, tile: int) -> None:
    p = AttentionProblem(lq, 100, 16, 2 * group, 2)
    heads = tile_heads(p, tile)
    assert group % heads == 0 and heads <= tile
    counts = {n: 2 * group // n * -(-lq // (tile // (1 << (n - 1).bit_length()))) for n in range(1, tile + 1) if group % n == 0}
    assert counts[heads] == min(counts.values())
    assert heads == 1 or counts[heads] < counts[1]


@given(problems, st.sampled_from(LEVELS))
@settings(max_examples=examples(15))
def test_every_level_unfused(p: AttentionProblem, level: str) -> None:
    q, k, v = operands(p)
    tree = UnfusedAttention(p)
    visitor = ComputeVisitor(level)
    np.testing.assert_allclose(visitor.visit(tree, q, k, v), loop(p, q, k, v), atol=1e-12)
    assert visitor.counters.hbm_bytes == tree.bytes_once == p.bytes_once + 4 * tree.score_bytes
    assert FeasibilityVisitor(hardware.target("mi300x")).visit(tree).feasible


@given(problems)
def test_pairs_and_visible_keys(p: AttentionProblem) -> None:
    keep = p.keep(Extent.whole(p.lq), Extent.whole(p.lk))
    assert p.pairs == p.batch * p.heads * keep.sum() and p.flops == 4 * p.d * p.pairs
    for rows in Extent.whole(p.lq).split(32):
        seen, part = p.visible(rows), np.flatnonzero(p.keep(rows, Extent.whole(p.lk)).any(0))
        assert (len(part) == 0 and (len(seen) == 0 or not p.keep(rows, seen).any())) or (seen.min_, seen.max_ - 1) == (
            part[0],
            part[-1],
        )


@pytest.mark.parametrize(
    ("target", "kind"), [("mi100", "f16"), ("mi300x", "bf16"), ("mi300x", "fp8"), ("mi210", "f64"), ("mi300x", "xf32")]
)
def test_other_types_stay_in_the_bound(target: str, kind: str) -> None:
    p = AttentionProblem(50, 300, 64, 2, 1, causal=True, dtype=kind)
    arrays = operands(p, kind, hardware.target(target).arch)
    got = ComputeVisitor("warp", "problem").visit(FusedAttention(p, target), *arrays)
    error, bound = np.abs(got - reference.attention(p, *arrays)), reference.attention_error_bound(p, *arrays)
    assert ((error <= bound).all() and kind == "fp8") or np.median(bound) < 0.2


CASES = [(t, k) for t in hardware.targets() for k in hardware.target(t).dtypes() if k in ("f64", "f32", "xf32", "f16", "bf16")]


@given(st.sampled_from(CASES), st.integers(1, 40), st.integers(1, 40000), st.integers(1, 40000), st.integers(1, 64))
@settings(max_examples=examples(200))
def test_independent_accounting(where: tuple[str, str], d16: int, lq: int, lk: int, heads: int) -> None:
    d, p = hardware.target(where[0]), AttentionProblem(lq, lk, 16 * d16, heads, dtype=where[1])
    plan = plan_attention(p, d)
    e, acc_words = p.element.bytes, {"f64": 2}.get(p.dtype_c, 1)
    queries, keys = plan.tile_Q, plan.tile_KV // 4
    assert queries % 16 == keys % 16 == 0

    def fits(queries: int) -> bool:
        """Counts the bytes of the arrays, not the plan's own list: Q, K, V, S, P, O, three statistics, the fixed rest."""
        scores, packed, atoms = queries * keys * acc_words // 64, queries * keys * e // 256, p.d // 16
        widths = (atoms >= 16 // e) + (atoms % (16 // e)).bit_count()
        rows = keys // 4 * -(-atoms * e // 4)
        arch = queries * p.d * e // 256 + keys * p.d * e // 256 + rows + 3 * queries // 16 * acc_words + 5 + widths + 8
        acc = queries * p.d * acc_words // 64
        if e < 4:
            arch += keys * p.d * e // 256 + packed
            arch += scores if d.unified_vgprs else -(-queries // 32) * keys // 4
        else:
            arch += scores
        acc += 0 if d.unified_vgprs else scores + 4
        return acc <= 256 and arch <= 256

    if plan.shared:
        width = max(64, 1 << (p.d - 1).bit_length())
        rows = plan.tile_Q // plan.waves_q
        held = rows * (width * 2 + 64 * (4 + 2) + width * 4)  # bytes of a wave's Q, S and P, O
        staged = 2 * 64 * width * 2  # bytes of a workgroup's K and V
        words = (held + staged // plan.waves_q) // 256 + 12 * 4 + 3 * (rows // 16) + 1 + 2 + 10 + 8 + (width // 64) * (p.d != width)
        assert words == plan.resources.arch_vgprs + plan.resources.acc_vgprs <= 256 and plan.feasible
        assert 2 * staged == plan.resources.lds_bytes <= d.lds_bytes and plan.split_kv == 1
        return
    assert plan.feasible == fits(queries)
    if plan.feasible and plan.tile_Q_max < 64:
        assert not fits(2 * plan.tile_Q_max), "a larger tile fits"
    if plan.feasible:
        assert 1 <= plan.split_kv <= -(-lk // plan.tile_KV) and 0 < plan.eta <= 1
        part = p.batch * p.heads * p.lq * (16 * d16 + 2) * 4 * acc_words  # O, a maximum and a sum
        assert plan.partial_bytes == (2 * plan.split_kv * part if plan.split_kv > 1 else 0)
    else:
        assert plan.remedy and not plan.binding.satisfied


def test_swapping_the_descriptor_changes_nothing_else() -> None:
    tree = FusedAttention(AttentionProblem(100, 200, 64, 4, 2))
    moved = tree.on(hardware.target("mi300x"))
    assert moved.problem == tree.problem and moved.derivation.policy == tree.derivation.policy
    report = FeasibilityVisitor(hardware.target("mi300x")).visit(tree)
    assert report.tiles == moved.plan.sizes and [n.level for n in report.nodes] == ["device", "block", "warp", "atom"]


def test_trees() -> None:
    text = FusedAttention(AttentionProblem(4096, 4096, 128, 32, 8, causal=True)).tree()
    for part in (
        "finite floor",
        "mask: causal",
        "query heads per head of K and V: 4",
        "BlockAttentionNode",
        "live between the products",
    ):
        assert part in text
    assert UnfusedAttention(AttentionProblem(512, 512, 64)).tree().count("CU grid") == 3


def test_errors() -> None:
    with pytest.raises(ResourceError, match=r"ArchVGPR needs .* d <= 304 fits"):
        FusedAttention(AttentionProblem(4096, 4096, 4096)).tree()
    for bad, message in (
        (dict(heads=6, kv_heads=4), "6 heads"),
        (dict(window=0), "window"),
        (dict(dtype="i8"), "floating-point"),
        (dict(lk=0), "lk = 0"),
    ):
        with pytest.raises(LaunchError, match=message):
            AttentionProblem(**{**dict(lq=8, lk=8, d=16), **bad})  # type: ignore[arg-type]
