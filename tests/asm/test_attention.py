"""Register-chained attention kernels on the simulated GPU: results, text, resources."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm
from simgpu.asm.attention.frame import check
from simgpu.asm.builder.interleave import interleave, stream
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.waits import Label
from simgpu.hardware import target as find_target
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, ResourceError, UnsupportedInstruction
from simgpu.operators import AttentionProblem, FusedAttention, reference
from simgpu.tools.shared.faithful import likeness
from simgpu.tools.tables.schedule_report import predictions
from tests.support.devices import device
from tests.support.exhaustive import examples

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
DTYPES = ("f32", "f16", "bf16")
GUARD = 12  # elements around every array; 4-byte aligned for 2-byte types too


ONE_CU = {name: replace(find_target(name), num_cus=1) for name in TARGETS}  # keys are not split over idle CUs


def operands(p, target, scale=1.0):
    source = np.random.default_rng(p.lq * 9001 + p.lk * 31 + p.d)
    kind = numpy_dtype(p.dtype, device(target).arch)
    return [(scale * source.standard_normal(shape)).astype(kind) for shape in (p.q_shape, p.k_shape, p.v_shape)]


def guarded(array):
    """Returns memory with the array's elements between NaN elements."""
    memory = np.full(array.size + 2 * GUARD, np.nan, array.dtype)
    memory[GUARD:-GUARD] = array.ravel()
    return memory


def attention(p, target, arrays=None, board=None, split=0):
    """Runs the kernel, with the plan's split of the keys or another. Returns its result, the float64 result and its bound."""
    arrays = operands(p, target) if arrays is None else arrays
    tree = FusedAttention(p, board or target)
    if split:
        tree.derivation = replace(tree.derivation, split_kv=split)
    kernel = asm.emit(tree)
    gpu, size = device(target), int(np.prod(p.q_shape))
    before = np.full(size + 2 * GUARD, np.nan, np.float32)
    memories = [*map(guarded, arrays), before]
    buffers = [gpu.upload(memory) for memory in memories]
    places = [buffer.address + GUARD * memory.itemsize for buffer, memory in zip(buffers, memories)]
    runs = asm.launch(kernel, gpu, *places)
    after = buffers[3].download(np.float32, before.shape)
    for buffer in buffers:
        gpu.free(buffer)
    edges = np.r_[after[:GUARD], after[-GUARD:]]
    return SimpleNamespace(
        got=after[GUARD:-GUARD].reshape(p.q_shape), want=reference.attention(p, *arrays), run=runs[0], runs=runs, kernel=kernel,
        bound=reference.attention_error_bound(p, *arrays, arch=device(target).arch), untouched=np.isnan(edges).all(),
        typical=reference.attention_typical_error(p, *arrays, arch=device(target).arch),
    )  # fmt: skip


def assert_right(result):
    error = np.abs(result.got - result.want)
    assert (error <= result.bound).all(), f"largest error {np.nanmax(error)}, {np.isnan(error).sum()} NaN"
    assert result.untouched, "memory around R was written"
    assert likeness(result.got.astype(float), result.typical).passed


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(*[st.integers(1, 150) | st.integers(1, 20) | st.sampled_from((16, 64, 128))] * 2),
    d=st.sampled_from((16, 32, 48, 64, 80, 128)),
    heads=st.sampled_from(((1, 1), (2, 1), (6, 2), (3, 3))),
    batch=st.integers(1, 2),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 90),
    dtype=st.sampled_from(DTYPES),
    target=st.sampled_from(TARGETS),
)
def test_any_shape_validates(sizes, d, heads, batch, causal, window, dtype, target):
    assert_right(attention(AttentionProblem(*sizes, d, *heads, batch, causal, window, dtype=dtype), target))


@pytest.mark.parametrize("heads", [3, 6, 12])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_alternate_between_six_xcds(heads, causal):
    """MI300A: 3 or 6 heads alternate in the order of dispatch, no power of two."""
    problem = AttentionProblem(40, 40, 16, heads, causal=causal, dtype="f16")
    assert_right(attention(problem, "gfx942", board=find_target("mi300a")))


@pytest.mark.parametrize(("d", "dtype"), [(256, "f32"), (256, "f16"), (160, "bf16"), (176, "f32")])
def test_wide_heads(d, dtype):
    assert_right(attention(AttentionProblem(40, 150, d, dtype=dtype), "gfx90a"))


@pytest.mark.parametrize(("target", "dtype", "sizes"), [
    ("gfx908", "f32", (62, 300, 128)), ("gfx908", "f16", (270, 300, 128)), ("gfx950", "f32", (512, 300, 32)),
    ("gfx950", "f16", (300, 300, 32)),
])  # fmt: skip
def test_four_query_atoms(target, dtype, sizes):
    """With few CUs, a workgroup has 64 queries. Several steps, an edge."""
    p = AttentionProblem(*sizes, dtype=dtype)
    result = attention(p, target, board=ONE_CU[target])
    assert result.kernel.plan.tile_Q == 64
    assert_right(result)


@pytest.mark.parametrize("sign", [1, -1])
def test_large_scores_move_the_reference(sign):
    """Keys are sorted so that every step's maximum exceeds the last by more than the lazy threshold, and all scores are far
    below 0.
    """
    p = AttentionProblem(33, 400, 16)
    q = np.full(p.q_shape, 3.0, np.float32)
    k = np.linspace(-60, -1, 400, dtype=np.float32)[None, None, ::sign, None] * np.ones(p.k_shape, np.float32)
    assert_right(attention(p, "gfx908", [q, k, operands(p, "gfx908")[2]]))


def test_special_values_as_the_reference():
    p = AttentionProblem(40, 100, 32)
    q, k, v = operands(p, "gfx942")
    q[0, 0, 3, 5] = np.nan
    k[0, 0, 70, 2] = np.inf  # an infinite score of either sign for each query
    v[0, 0, 20, 9] = np.nan
    v[0, 0, 21, 11] = np.inf
    with np.errstate(invalid="ignore"):
        result = attention(p, "gfx942", [q, k, v])
    finite = np.isfinite(result.want)
    assert not finite.all() and finite.any()
    np.testing.assert_array_equal(np.isfinite(result.got), finite)
    np.testing.assert_array_equal(np.isnan(result.got), np.isnan(result.want))


def test_rows_without_keys_are_zero():
    result = attention(AttentionProblem(90, 20, 16, causal=True), "gfx908")
    assert not result.got[0, 0, :70].any() and result.got[0, 0, 70:].all()
    assert_right(result)
    q, k, v = operands(AttentionProblem(20, 20, 16), "gfx908")
    k[:], q[:] = -np.inf, 1  # every score -inf
    with np.errstate(invalid="ignore"):
        assert not attention(AttentionProblem(20, 20, 16), "gfx908", [q, k, v]).got.any()


def test_causal_skips_masked_steps():
    """Counters show products of visible steps only, slightly more than half of the whole."""
    whole = attention(AttentionProblem(512, 512, 16), "gfx908", board=ONE_CU["gfx908"]).run.counters["mfma_flops"]
    causal = attention(AttentionProblem(512, 512, 16, causal=True), "gfx908", board=ONE_CU["gfx908"]).run.counters["mfma_flops"]
    narrow = AttentionProblem(512, 512, 16, causal=True, window=1)
    window = attention(narrow, "gfx908", board=ONE_CU["gfx908"]).run.counters["mfma_flops"]
    assert 0.5 < causal / whole < 0.6 and window / whole < 0.2


def test_strides():
    """Rows and heads are further apart than they are long. Only the arguments differ; the code object is the same."""
    p = AttentionProblem(50, 70, 32, heads=2)
    arrays = operands(p, "gfx908")
    kernel, gpu = asm.emit(FusedAttention(p, ONE_CU["gfx908"])), device("gfx908")
    padded = [np.full((x.shape[1], x.shape[2] + 3, p.d + 5), np.nan, np.float32) for x in (*arrays, arrays[0])]
    for memory, x in zip(padded, arrays):
        memory[:, : x.shape[2], : p.d] = x[0]
    rows, heads = [4 * (p.d + 5)] * 4, [memory.strides[0] for memory in padded]
    buffers = [gpu.upload(memory) for memory in padded]
    scalars = (*kernel.scalars[:2], *rows, *heads, *kernel.scalars[10:])
    gpu.load(kernel.assemble())[kernel.name].launch(grid=kernel.grid, block=kernel.block, args=[*buffers, *scalars])
    after = buffers[3].download(np.float32, padded[3].shape)
    error = np.abs(after[:, : p.lq, : p.d] - reference.attention(p, *arrays)[0])
    assert (error <= reference.attention_error_bound(p, *arrays)[0]).all()
    assert np.isnan(after[:, p.lq :]).all() and np.isnan(after[:, :, p.d :]).all()


# -- traffic and resources -----------------------------------------------------------------------


def test_traffic():
    """Q, K, V are read and R is written once each. Only the partial O and statistics pass LDS, whatever the number of keys."""
    counters = [attention(AttentionProblem(64, lk, 64), "gfx908", board=ONE_CU["gfx908"]).run.counters for lk in (256, 1024)]
    for lk, counted in zip((256, 1024), counters):
        assert counted["unique_read_bytes"] == 4 * 64 * (64 + 2 * lk) and counted["unique_write_bytes"] == 4 * 64 * 64
        assert counted["mfma_flops"] == 4 * 64 * lk * 64
    assert counters[0]["lds_write_bytes"] == counters[1]["lds_write_bytes"]
    assert counters[0]["lds_read_bytes"] == counters[1]["lds_read_bytes"]


def test_rescales_are_rare():
    """With random scores the reference hardly moves after the first step, so the instruction count grows by the plain step's."""
    valu = [
        attention(AttentionProblem(32, lk, 64), "gfx908", board=ONE_CU["gfx908"]).run.counters["instructions_valu"]
        for lk in (256, 512, 1024)  # two blocks would share 2,048 keys
    ]
    assert 1.9 < (valu[2] - valu[1]) / (valu[1] - valu[0]) < 2.1
    assert (valu[2] - valu[1]) / (4 * 8) < 60  # a wave's step: 32 queries x 16 keys are 8 registers of scores


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_split_keys_merge(dtype):
    """Parts of the keys have their own workgroups. Includes masks and parts that see nothing: a tile's keys are 4 or 8 steps."""
    p = AttentionProblem(70, 2000, 48, 2, 1, causal=True, window=400, dtype=dtype)
    result = attention(p, "gfx942", split=6)
    assert len(result.runs) == 2
    assert_right(result)
    whole = attention(p, "gfx942", board=ONE_CU["gfx942"])
    assert len(whole.runs) == 1
    each = [r.runs[0].counters["mfma_flops"] / (-(-70 // r.kernel.plan.tile_Q) * r.kernel.plan.tile_Q) for r in (whole, result)]
    assert each[0] <= each[1], "for a query of a tile"


def test_a_damaged_merge_is_noticed():
    """Without the rescale of parts, the result is out of its bound."""
    p = AttentionProblem(16, 900, 16)
    arrays = operands(p, "gfx942", 3.0)
    kernel = asm.emit(FusedAttention(p, "gfx942"))
    (merge,) = kernel.following
    broken = replace(merge, text=merge.text.replace("v_mul_f32 v", "v_max_f32 v", 10))  # in the first two parts
    gpu = device("gfx942")
    buffers = [gpu.upload(x) for x in (*arrays, np.zeros(p.q_shape, np.float32))]
    bound, want = reference.attention_error_bound(p, *arrays), reference.attention(p, *arrays)
    for following, right in ((merge, True), (broken, False)):
        asm.launch(replace(kernel, following=(following,)), gpu, *buffers)
        assert (np.abs(buffers[3].download(np.float32, p.q_shape) - want) <= bound).all() == right


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("d", [16, 32, 64, 80, 128, 256])
@pytest.mark.parametrize("heads", [64, 1])
def test_the_code_object_takes_what_the_plan_says(target, dtype, d, heads):
    tree = FusedAttention(AttentionProblem(16384, 16384, d, heads=heads, dtype=dtype), target)
    kernel, plan = asm.emit(tree), tree.plan.resources
    assert kernel.resources.vgprs == plan.arch_vgprs and kernel.resources.agprs == plan.acc_vgprs
    assert kernel.resources.lds == plan.lds_bytes
    assert kernel.resources.sgprs <= plan.sgprs
    read = CodeObject.parse(kernel.assemble()).kernels[kernel.name]
    assert read.group_segment_size == plan.lds_bytes and read.agpr_count == plan.acc_vgprs


def test_what_cannot_be_emitted():
    with pytest.raises(UnsupportedInstruction, match="f32, f16, bf16, not for f64"):
        asm.emit(FusedAttention(AttentionProblem(64, 64, 64, dtype="f64"), "gfx90a"))
    with pytest.raises(LaunchError, match="use a positive one"):
        asm.emit(FusedAttention(AttentionProblem(64, 64, 64, scale=-1.0), policy="published"))
    with pytest.raises(LaunchError, match="lk < 4194304"):
        check(FusedAttention(AttentionProblem(64, 1 << 22, 128)))
    with pytest.raises(ResourceError, match="d <= 304 fits"):
        asm.emit(FusedAttention(AttentionProblem(64, 64, 512)))


# -- interleaving --------------------------------------------------------------------------------


@given(st.integers(0, 40), st.lists(st.booleans(), max_size=40), st.integers(0, 9))
def test_interleaving_keeps_both_orders_and_returns(main, labels, lead):
    """Each stream keeps its order, nothing is lost, and nothing is between a branch and the label that it returns to."""
    k = KernelBuilder("x", "gfx908", 64)
    with stream(k) as first:
        for _ in range(main):
            k.s_nop(0)
    with stream(k) as second:
        for number, is_label in enumerate(labels):
            k.label(f"l{number}") if is_label else k.s_nop(1)
    assert not k.items
    merged = interleave(first, second, lead)
    assert [item for item in merged if any(item is x for x in first)] == first
    assert [item for item in merged if any(item is x for x in second)] == second
    for before, item in itertools.pairwise(merged):
        if isinstance(item, Label) and item is not second[0]:
            assert any(before is x for x in second)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_checked_mode_finds_nothing(target, dtype):
    p = AttentionProblem(20, 1200, 32, 2, 1, causal=True, dtype=dtype)
    gpu = simgpu.Device(target, check=True)
    arrays = operands(p, target)
    buffers = [gpu.upload(x) for x in arrays]
    runs = asm.launch(asm.emit(FusedAttention(p, target)), gpu, *buffers, gpu.alloc(4 * int(np.prod(p.q_shape))))
    assert len(runs) == 2 and not [finding for run in runs for finding in run.findings]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", ["corrected", "mfma"])
@pytest.mark.parametrize(("below", "keys"), [(10.0, 16383), (17.0, 2047), (0.0, 4095)])
def test_small_weights_in_f16_keep_their_sum(target, values, below, keys):
    """Scores one key `below` above all others, with V = 1. The result is 1, however small the others' P are.

    gfx90a reads a subnormal f16 as 0.
    """
    p = AttentionProblem(16, keys + 1, 16, scale=1.0, dtype="f16")
    q, k = np.zeros(p.q_shape, np.float16), np.zeros(p.k_shape, np.float16)
    q[..., 0], k[..., 7, 0] = 1, below
    policy = {} if values == "corrected" else {"policy": "published", "values": values}
    kernel = asm.emit(FusedAttention(p, target, **policy))
    gpu = device(target)
    buffers = [gpu.upload(x) for x in (q, k, np.ones(p.k_shape, np.float16), np.zeros(p.q_shape, np.float32))]
    asm.launch(kernel, gpu, *buffers)
    assert abs(buffers[3].download(np.float32, p.q_shape) - 1).max() < 2e-4
    for buffer in buffers:
        gpu.free(buffer)


def test_two_series_of_tiles_balance_under_a_causal_mask():
    """16 heads on 8 XCDs are two series of workgroups. A CU has one of each: a long one and a short one."""
    whole = AttentionProblem(1024, 1024, 64, 16)
    trees = [FusedAttention(replace(whole, causal=causal), "mi300x") for causal in (False, True)]
    times = [sum(one.seconds for one in predictions(tree).values()) for tree in trees]
    assert times[1] < 0.62 * times[0], "0.78 if both series began with the tiles that see most keys"
