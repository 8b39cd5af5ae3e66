"""Unfused attention as emitted: three kernels and what crosses memory between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asm
from hardware.errors import UnsupportedInstruction
from operators import AttentionProblem, UnfusedAttention, reference

simgpu = pytest.importorskip("simgpu")


def unfused(p, target):
    source = np.random.default_rng(p.lq + 7 * p.lk)
    arrays = [source.standard_normal(shape).astype(np.float32) for shape in (p.q_shape, p.kv_shape, p.kv_shape)]
    tree, gpu = UnfusedAttention(p, target), simgpu.Device(target)
    kernel = asm.emit(tree)
    buffers = [gpu.upload(x) for x in (*arrays, np.full(p.q_shape, np.nan, np.float32))]
    runs = asm.launch(kernel, gpu, *buffers)
    error = np.abs(buffers[3].download(np.float32, p.q_shape) - reference.attention(p, *arrays))
    assert (error <= reference.attention_error_bound(p, *arrays)).all()
    return tree, kernel, runs


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 90), st.integers(1, 90), st.sampled_from((16, 48)), st.sampled_from(((1, 1), (4, 2))),
    st.booleans(), st.none() | st.integers(1, 60), st.sampled_from(("gfx908", "gfx90a", "gfx942", "gfx950")),
)  # fmt: skip
def test_any_shape_validates(lq, lk, d, heads, causal, window, target):
    unfused(AttentionProblem(lq, lk, d, *heads, 2, causal, window), target)


def test_traffic_is_what_the_tree_says():
    """Four passes over S and one each over Q, K, V, R (E19), however few tiles the products have."""
    tree, kernel, runs = unfused(AttentionProblem(512, 512, 64), "gfx908")
    moved = sum(run.counters["unique_read_bytes"] + run.counters["unique_write_bytes"] for run in runs)
    assert len(runs) == 3 and moved == tree.bytes_once == 4 * (4 * 512 * 512 + 4 * 512 * 64)
    assert kernel.scratch == (("S", 512 * 512 * 4),)


def test_narrow_types_are_refused():
    with pytest.raises(UnsupportedInstruction, match="emitted for f32"):
        asm.emit(UnfusedAttention(AttentionProblem(32, 32, 32, dtype="f16")))
