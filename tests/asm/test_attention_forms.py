"""Forms of fused attention on the simulated GPU: any head dimension, V's own, scale, soft cap, ALiBi, log-sum-exp, shared tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as find_target
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators import AttentionProblem, FusedAttention, reference
from simgpu.tools.shared.faithful import likeness
from tests.support.devices import device
from tests.support.exhaustive import examples

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
GUARD = 16  # elements of NaN around every array


def operands(p, arch):
    """Returns Q, K, V and, for ALiBi, slopes."""
    source = np.random.default_rng(p.lq * 7 + p.lk * 31 + p.d)
    kind = numpy_dtype(p.dtype, arch)
    arrays = [source.standard_normal(shape).astype(kind) for shape in (p.q_shape, p.k_shape, p.v_shape)]
    return arrays + [source.uniform(0, 0.5, p.slopes_shape).astype(np.float32)] * p.alibi


def launched(p, target, kernel=None, check=False, arrays=None):
    """Launches on arrays between NaN. Returns R, log-sum-exp and the runs."""
    gpu = device(target, check)
    kernel = kernel or asm.emit(FusedAttention(p, target))
    arrays = operands(p, gpu.arch) if arrays is None else arrays
    results = [np.full(shape, np.nan, np.float32) for shape in (p.r_shape, p.lse_shape)[: 1 + p.lse]]
    memories = [np.full(x.size + 2 * GUARD, np.nan, x.dtype) for x in (*arrays, *results)]
    for memory, x in zip(memories, arrays, strict=False):
        memory[GUARD:-GUARD] = x.ravel()
    buffers = [gpu.upload(memory) for memory in memories]
    runs = asm.launch(kernel, gpu, *(b.address + GUARD * m.itemsize for b, m in zip(buffers, memories, strict=True)))
    found = [buffer.download(np.float32, m.shape) for buffer, m in zip(buffers, memories, strict=True) if m.dtype == np.float32]
    found = found[-len(results) :]
    for buffer in buffers:
        gpu.free(buffer)
    assert all(np.isnan(np.r_[x[:GUARD], x[-GUARD:]]).all() for x in found), "memory around a result was written"
    return [x[GUARD:-GUARD].reshape(y.shape) for x, y in zip(found, results, strict=True)], runs


def right(p, target, got, arrays=None):
    """Returns True if R and log-sum-exp are within their bounds, and R resembles a faithful kernel's."""
    arch = device(target).arch
    q, k, v, *slopes = operands(p, arch) if arrays is None else arrays
    more = {"slopes": slopes[0]} if slopes else {}
    error = np.abs(got[0] - reference.attention(p, q, k, v, **more))
    passed = (error <= reference.attention_error_bound(p, q, k, v, arch=arch, **more)).all()
    passed &= likeness(got[0].astype(float), reference.attention_typical_error(p, q, k, v, arch=arch, **more)).passed
    if p.lse:
        want = reference.attention_lse(p, q, k, **more)
        same = got[1] == want  # -infinity
        error = np.subtract(got[1], want, out=np.zeros_like(want), where=~same)
        passed &= (same | (np.abs(error) <= reference.attention_lse_error_bound(p, q, k, arch=arch, **more))).all()
    return bool(passed)


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 20) | st.integers(1, 100), st.integers(1, 150)),
    widths=st.tuples(*[st.integers(1, 40) | st.integers(41, 140)] * 2),
    heads=st.sampled_from(((1, 1), (2, 1), (8, 1), (14, 2), (3, 1), (20, 1), (3, 3))),
    masks=st.tuples(st.booleans(), st.none() | st.integers(1, 90)),
    scale=st.none() | st.sampled_from((-0.2, 0.0, 0.7)),
    softcap=st.none() | st.sampled_from((1.0, 30.0)),
    flags=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from(("f32", "f16", "bf16")),
    target=st.sampled_from(TARGETS),
)
def test_any_form_validates(sizes, widths, heads, masks, scale, softcap, flags, dtype, target):
    d, dv = widths if dtype == "f32" else (2 * -(-width // 2) for width in widths)
    p = AttentionProblem(*sizes, d, *heads, 2, *masks, scale, dtype, dv, softcap, *flags)
    assert right(p, target, launched(p, target)[0])


@pytest.mark.parametrize(
    "p",
    [
        AttentionProblem(451, 7, 256, scale=0.0, dtype="f16", alibi=True),
        AttentionProblem(192, 24, 64, scale=3.7, dtype="f16", dv=192, softcap=1e-3, alibi=True),
        AttentionProblem(463, 9, 48, heads=8, scale=2.0, dtype="bf16", softcap=0.5),
    ],
    ids=["bias", "small soft cap", "soft cap reached"],
)
def test_rows_of_the_same_weights_have_the_same_errors(p):
    """So the roundings of P are a common factor of R, or its mean. Twice the largest is still told from these."""
    got, _ = launched(p, "gfx942")
    assert right(p, "gfx942", got)
    unit = 2.0**-11 if p.dtype == "f16" else 2.0**-8
    assert not right(p, "gfx942", [got[0] * (1 + 2 * unit)])


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_split_keys_of_shared_tiles(target, dtype):
    """Gives one query of 7 heads that share K and V, which is one Q tile with split keys.

    The second kernel finds rows, columns and logarithms.
    """
    p = AttentionProblem(1, 3000, 70, 14, 2, causal=True, dtype=dtype, dv=38, alibi=True, lse=True)
    kernel = asm.emit(FusedAttention(p, target))
    assert kernel.plan.tile_heads == 7 and kernel.plan.split_kv > 1
    got, runs = launched(p, target, kernel)
    assert right(p, target, got) and len(runs) == 2
    alone = replace(p, kv_heads=14)
    flops = [launched(x, target)[1][0].counters["mfma_flops"] for x in (p, alone)]
    assert flops[0] * 6 < flops[1], "heads that share a tile share its matrix instructions"


@pytest.mark.parametrize("target", TARGETS)
def test_queries_without_keys(target):
    """R = 0 and log-sum-exp = -infinity, with split keys as well."""
    for p in (AttentionProblem(50, 20, 24, causal=True, lse=True), AttentionProblem(9, 3, 24, 8, 1, causal=True, lse=True)):
        got, _ = launched(p, target)
        none = p.lq - p.lk
        assert not got[0][:, :, :none].any() and np.isneginf(got[1][:, :, :none]).all() and np.isfinite(got[1][:, :, none:]).all()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("target", TARGETS)
def test_what_lies_behind_a_row_is_not_read_as_a_column(target, dtype):
    """Rows and heads are further apart than they are long, with NaN between them; in f16 not at multiples of 4 bytes.

    Heads share tiles.
    """
    p = AttentionProblem(3, 70, 42, 4, 2, causal=True, dtype=dtype, dv=22)
    kernel, gpu = asm.emit(FusedAttention(p, replace(find_target(target), num_cus=1))), device(target)
    arrays = operands(p, gpu.arch)
    shapes = (p.q_shape, p.k_shape, p.v_shape, p.r_shape)
    kinds = [*[x.dtype for x in arrays], np.dtype(np.float32)]
    padded = [np.full((shape[1], shape[2] + 3, shape[3] + 5), np.nan, kind) for shape, kind in zip(shapes, kinds, strict=True)]
    for memory, x in zip(padded, arrays, strict=False):
        memory[:, : x.shape[2], : x.shape[3]] = x[0]
    rows, heads = [x.strides[1] for x in padded], [x.strides[0] for x in padded]
    buffers = [gpu.upload(x) for x in padded]
    scalars = (*kernel.scalars[:2], *rows, *heads, *kernel.scalars[10:])
    gpu.load(kernel.assemble())[kernel.name].launch(grid=kernel.grid, block=kernel.block, args=[*buffers, *scalars])
    after = buffers[3].download(np.float32, padded[3].shape)
    assert right(p, target, [after[None, :, : p.lq, : p.dv]])
    assert np.isnan(after[:, p.lq :]).all() and np.isnan(after[:, :, p.dv :]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_checked_mode_finds_nothing(target):
    """There is no pointer past the keys of a row, no store past its columns, no register that was never written."""
    wide = AttentionProblem(20, 300, 70, 6, 2, causal=True, dtype="bf16", dv=38, softcap=20.0, alibi=True, lse=True)
    p = wide if target in ("gfx90a", "gfx950") else AttentionProblem(1, 900, 41, 8, 1, window=800, dv=67, lse=True)
    got, runs = launched(p, target, check=True)
    assert right(p, target, got) and not [finding for run in runs for finding in run.findings]


@pytest.mark.parametrize("form", [{"softcap": 5.0}, {"alibi": True}, {"scale": 0.3}])
def test_a_form_left_out_is_noticed(form):
    """A kernel without the form gives a wrong result."""
    p = AttentionProblem(20, 70, 32, **form)
    arrays = operands(p, "gfx942")
    got, _ = launched(p, "gfx942", arrays=arrays)
    assert right(p, "gfx942", got, arrays)
    plain, _ = launched(AttentionProblem(20, 70, 32), "gfx942", arrays=arrays[:3])
    assert not right(p, "gfx942", plain, arrays)


def test_what_cannot_be_emitted():
    with pytest.raises(LaunchError, match="d = 41 in f16: a row ends within 4 bytes, so pad d to 42"):
        asm.emit(FusedAttention(AttentionProblem(4, 4, 41, dtype="f16")))
    with pytest.raises(LaunchError, match="dv = 3 in bf16"):
        asm.emit(FusedAttention(AttentionProblem(4, 4, 16, dtype="bf16", dv=3)))
