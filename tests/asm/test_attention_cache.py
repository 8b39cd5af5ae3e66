"""Attention over a cache on the simulated GPU: pages found by block tables, sequences of different lengths, 8-bit K and V."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators import AttentionProblem, ComputeVisitor, FusedAttention, reference
from simgpu.operators.attention.cache import Cache
from simgpu.tools.shared.faithful import likeness
from tests.support.devices import device
from tests.support.exhaustive import examples
from tests.support.resources import assert_takes

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
GUARD = 16  # elements of NaN around R
NOBODY = -1  # table entry without a page


def operands(p, arch, lengths=None):
    """Returns Q, K, V, slopes and the cache's arrays. Pool rows without a key are NaN, and pages are in random order."""
    source = np.random.default_rng(p.lq * 7 + p.lk * 31 + p.d)
    kind, held = numpy_dtype(p.dtype, arch), numpy_dtype(p.dtype_kv, arch)
    q = source.standard_normal(p.q_shape).astype(kind)
    slopes = source.uniform(0, 0.5, p.slopes_shape).astype(np.float32) if p.alibi else None
    scales = [source.uniform(0.25, 2, p.kv_heads).astype(np.float32) if p.narrow_kv else None for _ in range(2)]
    if not p.page:
        k, v = (source.standard_normal(shape).astype(held) for shape in (p.k_shape, p.v_shape))
        return SimpleNamespace(q=q, k=k, v=v, slopes=slopes, cache=Cache(None, None, *scales))
    lengths = np.asarray(source.integers(0, p.lk, p.batch, endpoint=True) if lengths is None else lengths, np.int32)
    numbers = source.permutation(p.batch * p.pages + 2)
    blocks = numbers[: p.batch * p.pages].reshape(p.batch, p.pages).astype(np.int32)
    pools = [np.full((len(numbers), p.page, p.kv_heads, width), np.nan) for width in (p.d, p.dv)]
    for row, length in zip(blocks, lengths, strict=True):
        for key in range(length):
            for pool in pools:
                pool[row[key // p.page], key % p.page] = source.standard_normal(pool.shape[2:])
    blocks[np.arange(p.pages) * p.page >= lengths[:, None]] = NOBODY
    k, v = (pool.astype(held) for pool in pools)
    return SimpleNamespace(q=q, k=k, v=v, slopes=slopes, cache=Cache(blocks, lengths, *scales))


def launched(p, target, given, check=False, kernel=None):
    """Returns R, log-sum-exp and the runs."""
    gpu, kernel = device(target, check), kernel or asm.emit(FusedAttention(p, target))
    arrays = [given.q, given.k, given.v, given.slopes, *vars(given.cache).values()]
    buffers = [gpu.upload(array) for array in arrays if array is not None]
    results = [np.full(int(np.prod(shape)) + GUARD, np.nan, np.float32) for shape in (p.r_shape, p.lse_shape)[: 1 + p.lse]]
    buffers += [gpu.upload(array) for array in results]
    runs = asm.launch(kernel, gpu, *buffers)
    found = [b.download(np.float32, x.shape) for b, x in zip(buffers[-len(results) :], results, strict=True)]
    for buffer in buffers:
        gpu.free(buffer)
    assert all(np.isnan(x[-GUARD:]).all() for x in found), "memory behind a result was written"
    return [x[:-GUARD].reshape(shape) for x, shape in zip(found, (p.r_shape, p.lse_shape), strict=False)], runs


def right(p, target, got, given):
    """Returns True if R and log-sum-exp are within their bounds, and R resembles a faithful kernel's."""
    arch, more = device(target).arch, {"slopes": given.slopes, "cache": given.cache}
    arrays = given.q, given.k, given.v
    error = np.abs(got[0] - reference.attention(p, *arrays, **more))
    passed = (error <= reference.attention_error_bound(p, *arrays, arch=arch, **more)).all()
    passed &= likeness(got[0].astype(float), reference.attention_typical_error(p, *arrays, arch=arch, **more)).passed
    if p.lse:
        want = reference.attention_lse(p, *arrays[:2], **more)
        same = got[1] == want
        error = np.subtract(got[1], want, out=np.zeros_like(want), where=~same)
        passed &= (same | (np.abs(error) <= reference.attention_lse_error_bound(p, *arrays[:2], arch=arch, **more))).all()
    return bool(passed)


@settings(max_examples=examples(16), suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
@given(
    sizes=st.tuples(st.integers(1, 5) | st.integers(1, 70), st.integers(1, 300)),
    widths=st.tuples(*[st.integers(1, 20) | st.integers(1, 40)] * 2),
    heads=st.sampled_from(((1, 1), (8, 1), (14, 2), (6, 3))),
    masks=st.tuples(st.booleans(), st.none() | st.integers(1, 90)),
    softcap=st.none() | st.just(5.0),
    flags=st.tuples(st.booleans(), st.booleans()),
    page=st.sampled_from((0, 16, 16, 32, 64, 256)),
    where=st.sampled_from([
        *((target, kind, kind) for target in TARGETS for kind in ("f32", "f16", "bf16")),
        *((target, kind, narrow) for target in TARGETS[2:] for kind in ("f16", "bf16") for narrow in ("fp8", "bf8")),
    ]),
)  # fmt: skip
def test_any_cache_validates(sizes, widths, heads, masks, softcap, flags, page, where):
    target, dtype, dtype_kv = where
    d, dv = (4 * width for width in widths)
    p = AttentionProblem(*sizes, d, *heads, 2, *masks, None, dtype, dv, softcap, *flags, page, dtype_kv)
    given = operands(p, device(target).arch)
    assert right(p, target, launched(p, target, given)[0], given)


DECODE = AttentionProblem(1, 700, 64, 16, 2, batch=3, dtype="bf16", page=16, dtype_kv="fp8")


@pytest.mark.covering(1)
@pytest.mark.parametrize("more", [
    {}, {"page": 0, "lq": 40, "causal": True}, {"dtype_kv": "bf16", "page": 64, "lq": 33, "lse": True}, {"dv": 36, "lse": True},
    {"dtype": "f32", "dtype_kv": "f32", "page": 32},
])  # fmt: skip
@pytest.mark.parametrize("target", TARGETS[2:])
def test_checked_mode_finds_nothing(target, more):
    p = replace(DECODE, **more)
    given = operands(p, device(target).arch, (p.lk, 1, 331))
    got, runs = launched(p, target, given, check=True)
    assert right(p, target, got, given)
    assert not [str(finding) for run in runs for finding in run.findings]


@pytest.mark.parametrize(("target", "d"), [("gfx942", 72), ("gfx950", 80)])
def test_rows_of_eight_bits_begin_at_even_registers(target, d):
    """Rows of 80 bytes have five registers; loads of two of them must begin at an even one from gfx90a on."""
    p = replace(DECODE, d=d, lk=130)
    given = operands(p, device(target).arch)
    assert right(p, target, launched(p, target, given)[0], given)


def test_decode_splits_keys_and_shares_tiles():
    tree = FusedAttention(replace(DECODE, lk=8192, batch=1), "gfx942")
    assert tree.plan.split_kv > 1 and tree.plan.tile_heads == 8 and not tree.plan.shared


def test_a_sequence_without_keys_is_zero():
    p = replace(DECODE, lse=True)
    given = operands(p, "gfx942", (0, 700, 16))
    (r, lse), _ = launched(p, "gfx942", given)
    assert (r[0] == 0).all() and np.isneginf(lse[0]).all() and right(p, "gfx942", (r, lse), given)


@pytest.mark.parametrize("spoilt", ["blocks", "lengths", "scale_k", "scale_v"])
def test_every_array_of_the_cache_counts(spoilt):
    """Exchanging two pages of a table, one key more, or a scale an eighth larger: the test notices each."""
    given = operands(DECODE, "gfx942", (700, 300, 40))
    held = vars(given.cache)
    wrong = {"blocks": held["blocks"].copy(), "lengths": held["lengths"] - 30, "scale_k": held["scale_k"] * 1.125,
             "scale_v": held["scale_v"] * 1.125}[spoilt]  # fmt: skip
    if spoilt == "blocks":
        wrong[0, 0] = wrong[0, 1]
    other = SimpleNamespace(**{**vars(given), "cache": replace(given.cache, **{spoilt: wrong})})
    assert not right(DECODE, "gfx942", launched(DECODE, "gfx942", other)[0], given)
    assert right(DECODE, "gfx942", launched(DECODE, "gfx942", given)[0], given)


def test_only_the_pages_of_a_sequence_are_read():
    p = replace(DECODE, dtype_kv="bf16", lk=4096, heads=2, batch=2)
    given = operands(p, "gfx942", (4096, 100))
    runs = launched(p, "gfx942", given)[1]
    rows = 2 * (4096 + 100) * 2 * 64 * 2  # for K and V, two heads of 64 elements of 2 bytes
    assert rows <= runs[0].counters["unique_read_bytes"] <= rows + 20_000


def test_eight_bits_are_half_of_the_bytes():
    read = {}
    for kind in ("bf16", "fp8"):
        p = replace(DECODE, dtype_kv=kind, lk=2048, batch=1)
        read[kind] = launched(p, "gfx942", operands(p, "gfx942", (2048,)))[1][0].counters["unique_read_bytes"]
    assert 0.49 < read["fp8"] / read["bf16"] < 0.52


@pytest.mark.parametrize("level", ["device", "block", "warp"])
def test_every_level_is_the_attention(level):
    p = replace(DECODE, lq=20, causal=True, alibi=True)
    given = operands(p, "gfx942", (300, 20, 7))
    got = ComputeVisitor(level).visit(FusedAttention(p, "gfx942"), given.q, given.k, given.v, given.slopes, given.cache)
    want = reference.attention(p, given.q, given.k, given.v, slopes=given.slopes, cache=given.cache)
    assert np.allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("target", TARGETS[2:])
@pytest.mark.parametrize("more", [{}, {"page": 0}, {"dtype_kv": "bf16"}, {"alibi": True, "softcap": 3.0, "lse": True}])
def test_the_code_object_takes_what_the_plan_says(target, more):
    tree = FusedAttention(replace(DECODE, **more), target)
    assert_takes(asm.emit(tree), tree.plan.resources, tree.descriptor.sgpr_granule)


def test_what_cannot_be():
    cases = {
        "page = 24: a page has a power of two": {"page": 24}, "page = 8": {"page": 8}, "d = 66: rows of fp8": {"d": 66, "dv": 64},
        "K and V in f16, Q in bf16": {"dtype_kv": "f16"}, "become f16 or bf16, and Q is f32": {"dtype": "f32"},
    }  # fmt: skip
    for message, more in cases.items():
        with pytest.raises(LaunchError, match=message):
            replace(DECODE, **more)
    with pytest.raises(TargetError, match="gfx90a has no instruction that widens fp8"):
        FusedAttention(DECODE, "gfx90a")
    with pytest.raises(LaunchError, match="policy published has no page"):
        FusedAttention(replace(DECODE, dtype_kv="bf16"), "gfx942", "published")
    given = operands(DECODE, "gfx942")
    for cache, message in (
        (Cache(), "give `blocks`"),
        (replace(given.cache, scale_k=None), "give `scale_k`"),
        (replace(given.cache, lengths=[800, 1, 1]), "0 to lk = 700 keys"),
        (replace(given.cache, blocks=np.full((3, 44), 10**6), lengths=[1, 1, 1]), "the pools have"),
    ):
        with pytest.raises(LaunchError, match=message):
            reference.attention(DECODE, given.q, given.k, given.v, cache=cache)
