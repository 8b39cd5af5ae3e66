"""Unfused attention kernels: three kernels and their memory traffic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.operators import AttentionProblem, UnfusedAttention, reference
from simgpu.tools.shared.faithful import likeness
from tests.support.exhaustive import examples

TARGETS, DTYPES = ("gfx908", "gfx90a", "gfx942", "gfx950"), ("f32", "f16", "bf16")


def operands(p, target):
    source = np.random.default_rng(p.lq + 7 * p.lk)
    kind = numpy_dtype(p.dtype, target)
    return [source.standard_normal(shape).astype(kind) for shape in (p.q_shape, p.k_shape, p.v_shape)]


def unfused(p, target, arrays=None, check=False, damage=lambda kernel: kernel):
    arrays = arrays or operands(p, target)
    tree, gpu = UnfusedAttention(p, target), simgpu.Device(target, check=check)
    kernel = damage(asm.emit(tree))
    buffers = [gpu.upload(x) for x in (*arrays, np.full(p.q_shape, np.nan, np.float32))]
    runs = asm.launch(kernel, gpu, *buffers)
    got, want = buffers[3].download(np.float32, p.q_shape), reference.attention(p, *arrays)
    bound = reference.attention_error_bound(p, *arrays, arch=target)
    like = likeness(got.astype(float), reference.attention_typical_error(p, *arrays, arch=target))
    return SimpleNamespace(tree=tree, kernel=kernel, runs=runs, got=got, want=want, bound=bound, like=like)


def right(result):
    return (np.abs(result.got - result.want) <= result.bound).all() and result.like.passed


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 90), st.integers(1, 90), st.sampled_from((16, 48)), st.sampled_from(((1, 1), (4, 2))),
    st.booleans(), st.none() | st.integers(1, 60), st.sampled_from(TARGETS), st.sampled_from(DTYPES),
)  # fmt: skip
def test_any_shape_validates(lq, lk, d, heads, causal, window, target, dtype):
    assert right(unfused(AttentionProblem(lq, lk, d, *heads, 2, causal, window, dtype=dtype), target))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("target", TARGETS)
def test_narrow_types_in_checked_mode(target, dtype):
    """Every target and type, with masks, shared heads, odd lengths. There are no findings."""
    result = unfused(AttentionProblem(35, 77, 80, 4, 2, 1, True, 50, dtype=dtype), target, check=True)
    assert right(result) and [run.findings for run in result.runs] == [[]] * 3


@pytest.mark.parametrize("lk", [3000, 40001])
def test_small_weights_are_kept(lk):
    """gfx90a reads f16 below 2^-14 as 0. P of a long row is that small, and is stored 2^15 times as large.

    Resident and streamed rows.
    """
    p = AttentionProblem(3, lk, 16, dtype="f16")
    q, k, v = operands(p, "gfx90a")
    result = unfused(p, "gfx90a", [q * np.float16(0.1), k, np.abs(v)])
    assert right(result) and np.abs(result.got / result.want - 1).max() < 1e-3


def test_special_values_as_the_reference():
    p = AttentionProblem(20, 33, 16, dtype="bf16")
    q, k, v = operands(p, "gfx942")
    q[0, 0, 3, 5], v[0, 0, 7, 2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        result = unfused(p, "gfx942", [q, k, v])
    assert np.isnan(result.got[0, 0, 3]).all() and np.isposinf(np.delete(result.got[0, 0, :, 2], 3)).all()
    np.testing.assert_array_equal(np.isfinite(result.got), np.isfinite(result.want))
    rows = unfused(AttentionProblem(30, 10, 16, causal=True, dtype="f16"), "gfx908")  # the first 20 queries see no key
    assert right(rows) and not rows.got[0, 0, :20].any()


def test_a_lost_gain_is_noticed():
    """Without the division by 2^15 the result is out of its bound."""

    def damage(kernel):
        values = kernel.following[1]
        assert 2.0**-15 in values.scalars
        scalars = tuple(1.0 if x == 2.0**-15 else x for x in values.scalars)
        return replace(kernel, following=(kernel.following[0], replace(values, scalars=scalars)))

    assert not right(unfused(AttentionProblem(20, 33, 16, dtype="f16"), "gfx908", damage=damage))


def test_traffic_is_what_the_tree_says():
    """Four passes over S and one each over Q, K, V, R (E19), however few tiles the products have."""
    result = unfused(AttentionProblem(512, 512, 64), "gfx908")
    assert len(result.runs) == 3 and moved(result.runs) == result.tree.bytes_once == 4 * (4 * 512 * 512 + 4 * 512 * 64)
    assert result.kernel.scratch == (("S", 512 * 512 * 4),)


def test_traffic_of_narrow_types():
    """S in f32 and P in two bytes are written and read; Q, K, V have two bytes, R is f32."""
    result = unfused(AttentionProblem(256, 256, 64, dtype="bf16"), "gfx942")
    assert moved(result.runs) == result.tree.bytes_once == 256 * 256 * (2 * 4 + 2 * 2) + 256 * 64 * (3 * 2 + 4)
    assert result.kernel.scratch == (("S", 256 * 256 * 4), ("P", 256 * 256 * 2))


def moved(runs):
    return sum(run.counters["unique_read_bytes"] + run.counters["unique_write_bytes"] for run in runs)


def test_other_types_are_refused():
    with pytest.raises(UnsupportedInstruction, match="softmax kernels are emitted for f32, f16, bf16, f64, not for fp8"):
        asm.emit(UnfusedAttention(AttentionProblem(32, 32, 32, dtype="fp8"), "gfx942"))
