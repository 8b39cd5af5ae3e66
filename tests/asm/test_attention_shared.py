"""Attention whose waves share K and V through LDS: results, resources, and findings of checked mode on broken kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.attention.shape import AttentionShape
from simgpu.asm.attention.shared.wave import FRAGMENT_WORDS, SharedWave
from simgpu.hardware import target as find_target
from simgpu.operators import AttentionProblem, FusedAttention, plan_attention
from simgpu.operators.attention.plan import with_queries
from simgpu.operators.attention.reductions import shared_clocks, shared_tile, tail
from simgpu.operators.attention.shared_registers import LONG_TAIL, SHORT_TAIL
from tests.asm.test_attention_forms import launched, operands, right
from tests.support.exhaustive import examples, left_out, one_in

TARGETS = ("gfx90a", "gfx942", "gfx950")


def emitted(p, target):
    """Returns the shared kernel, whatever its plan would have chosen."""
    tree = FusedAttention(p, target)
    tree.derivation = with_queries(tree.derivation, shared_tile(p, find_target(target)))
    return asm.emit(tree)


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 40) | st.integers(200, 300), st.integers(1, 70) | st.integers(1, 300)),
    widths=st.tuples(st.sampled_from((8, 64, 72, 128)), st.integers(1, 64).map(lambda half: 2 * half)),
    heads=st.sampled_from(((1, 1), (3, 1), (16, 2))),
    masks=st.tuples(st.booleans(), st.none() | st.integers(1, 90)),
    softcap=st.none() | st.just(10.0),
    flags=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from(("f16", "bf16")),
    target=st.sampled_from(TARGETS),
)
def test_any_form_validates(sizes, widths, heads, masks, softcap, flags, dtype, target):
    p = AttentionProblem(*sizes, widths[0], *heads, 1, *masks, None, dtype, widths[1], softcap, *flags)
    assert right(p, target, launched(p, target, emitted(p, target))[0])


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("lse", [False, True])
def test_scores_that_rise_and_fall(lse, dtype, target):
    """Scores go from -400 to 400 over five steps, then down and up again: m moves in most steps, but not for all queries."""
    p = AttentionProblem(20, 640, 64, dtype=dtype, lse=lse, scale=1.0)
    q, key, v = operands(p, target)
    q[..., 0] = np.where(np.arange(p.lq) % 3, 1, 0.5)
    key[..., 1:] /= 8
    steps = np.repeat((-400, -150, 0, 5, 30, 400, 390, 100, -300, 399.5), 64)
    key[..., 0] = steps + np.linspace(-8, 8, p.lk)
    got, (run,) = launched(p, target, emitted(p, target), check=True, arrays=[q, key, v])
    assert right(p, target, got, arrays=[q, key, v]) and not run.findings


@pytest.mark.parametrize("target", TARGETS)
def test_infinity_and_nan_stay_in_their_rows(target):
    """A score that is infinite or NaN makes its query's row NaN, as in the formula, and no other row."""
    p = AttentionProblem(40, 200, 64, dtype="bf16")
    arrays = operands(p, target)
    arrays[0][..., 3, :] = np.inf
    arrays[0][..., 17, 5] = np.nan
    got = launched(p, target, emitted(p, target), arrays=arrays)[0][0]
    bad = np.isnan(got).all(-1)[0, 0]
    assert bad[[3, 17]].all() and np.isfinite(np.delete(got[0, 0], (3, 17), 0)).all()


@pytest.mark.parametrize(("keys", "d"), [
    (1, 128), (65, 128), (200, 256), *(left_out(keys, 64) for keys in (64, 128)),
])  # fmt: skip
def test_every_number_of_steps(keys, d):
    """Takes one step, two, an odd number, and the widest head for which LDS holds two stages."""
    p = AttentionProblem(300, keys, d, dtype="bf16")
    got, _ = launched(p, "gfx950", emitted(p, "gfx950"))
    assert right(p, "gfx950", got)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", one_in(2, TARGETS))
@pytest.mark.parametrize(("d", "dv"), one_in(3, [(128, 128), (64, 64), (64, 128), (40, 24)]))
def test_resources_as_derived_and_no_bank_conflict(target, d, dv):
    resources_as_derived(target, d, dv, 256)


@pytest.mark.parametrize(("d", "dv"), [left_out(256, 256), (192, 128)])
def test_wide_heads_have_half_the_queries(d, dv):
    """Registers hold 16 queries a wave, not 32; gfx950's LDS holds two stages."""
    resources_as_derived("gfx950", d, dv, 128)
    p = AttentionProblem(270, 300, d, 2, 1, causal=True, dtype="f16", dv=dv, lse=True)
    got, (run,) = launched(p, "gfx950", emitted(p, "gfx950"), check=True)
    assert right(p, "gfx950", got) and not run.findings
    assert plan_attention(AttentionProblem(4096, 4096, d, 16, dtype="bf16", dv=dv), find_target("mi355x")).tile_Q == 128


def resources_as_derived(target, d, dv, tile_q):
    """Asserts registers and LDS as planned, no bank conflict, and that Q, K and V are read once."""
    p = AttentionProblem(256, 256, d, dtype="bf16", dv=dv)
    kernel = emitted(p, target)
    plan = kernel.plan.resources
    assert kernel.plan.tile_Q == tile_q
    assert (kernel.resources.vgprs, kernel.resources.agprs, kernel.resources.lds) == (
        plan.arch_vgprs, plan.acc_vgprs, plan.lds_bytes
    )  # fmt: skip
    assert kernel.resources.sgprs <= plan.sgprs and plan.waves_per_simd == 2
    counters = launched(p, target, kernel, check="performance")[1][0].counters
    assert counters["lds_bank_conflicts"] == 0
    assert counters["unique_read_bytes"] == 2 * 256 * (2 * d + dv)


@pytest.mark.parametrize("target", one_in(2, TARGETS))
def test_checked_mode_finds_nothing(target):
    p = AttentionProblem(270, 300, 72, 2, 1, causal=True, dtype="bf16", dv=66, lse=True)
    got, (run,) = launched(p, target, emitted(p, target), check=True)
    assert right(p, target, got) and not run.findings


@pytest.mark.parametrize("lq", [200, *(left_out(lq) for lq in (256, 400)), 700])
def test_causal_blocks_have_two_tiles(lq):
    """A block has the first and the last tile left; the middle tile of an odd number is on its own. All blocks see as many keys."""
    p = AttentionProblem(lq, lq, 64, causal=True, dtype="bf16", lse=True)
    kernel = emitted(p, "gfx950")
    got, (run,) = launched(p, "gfx950", kernel, check=True)
    assert right(p, "gfx950", got) and not run.findings
    assert kernel.plan.tiles == kernel.grid[0] == (1 if lq <= 512 else 2)


@pytest.mark.parametrize("which", ["all reads have come", "V is in LDS"])
def test_a_missing_barrier_is_a_race(which):
    p = AttentionProblem(256, 300, 64, dtype="bf16")
    kernel = emitted(p, "gfx942")
    lines = kernel.text.split("\n")
    broken = replace(kernel, text="\n".join(line for line in lines if which not in line))
    assert broken.text != kernel.text
    _, (run,) = launched(p, "gfx942", broken, check=True)
    assert "race" in {finding.kind for finding in run.findings}


def test_both_stages_are_needed(monkeypatch):
    """Waves that write a stage while others still read it race."""
    monkeypatch.setattr(SharedWave, "flip", lambda self, *addresses: None)
    p = AttentionProblem(256, 300, 64, dtype="bf16")
    _, (run,) = launched(p, "gfx942", emitted(p, "gfx942"), check=True)
    assert "race" in {finding.kind for finding in run.findings}


def test_the_way_of_keys_and_values_is_a_crossing_of_two_times():
    """Sharing wins if queries are many and a step waits for the coalescer. Registers win if queries are few, or keys wide."""
    for target, lq, dtype, wanted in (
        ("mi355x", 8192, "bf16", True),
        ("mi300x", 8192, "f16", True),
        ("mi355x", 64, "bf16", False),
        ("mi300x", 8192, "f32", False),
        ("mi100", 8192, "bf16", False),
    ):
        plan = plan_attention(AttentionProblem(lq, lq, 128, 32, dtype=dtype), find_target(target))
        assert plan.shared == wanted and plan.feasible
        rows = {row.name: row for row in plan.constraints}
        assert ("way of K and V" in rows) == (dtype != "f32" and target != "mi100")
        if "way of K and V" in rows:
            assert rows["way of K and V"].satisfied, "the way that was taken takes less time"
    clocks = shared_clocks(AttentionProblem(1, 1, 128, dtype="bf16"), find_target("mi355x"), 256)
    assert clocks["matrix"] == 2048 and max(clocks.values()) == clocks["matrix"]


def test_the_tail_of_a_step_is_a_crossing_of_two_units():
    """Counts products in the tail. It is long if products take a step's time, and short if the softmax does.

    The kernel has as many products after its barrier.
    """
    for target, d, dtype, wanted in (
        ("mi300x", 64, "bf16", SHORT_TAIL),
        ("mi300x", 128, "bf16", LONG_TAIL),
        ("mi355x", 64, "f16", SHORT_TAIL),
        ("mi355x", 128, "bf16", LONG_TAIL),
        ("mi210", 64, "f16", LONG_TAIL),
    ):
        p = AttentionProblem(8192, 8192, d, 16, dtype=dtype)
        assert tail(p, find_target(target), 256) == wanted
        plan = plan_attention(p, find_target(target))
        row = next(row for row in plan.constraints if row.name == "vector unit")
        assert row.satisfied == (wanted == LONG_TAIL)
        text = emitted(p, target).text
        shape = AttentionShape.of(FusedAttention(p, target))
        products = text[text.index("all reads have come", text.index("keys_0:")) :]
        count = products[: products.index("s_setprio 0")].count("v_mfma")
        assert count == wanted * shape.nq * FRAGMENT_WORDS // shape.score.registers("A")
