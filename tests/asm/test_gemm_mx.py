"""GEMM of MX formats on the simulated GPU: every pair of types, edges of every dimension, scales that differ by block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as board
from simgpu.hardware.dtypes import dtype, numpy_dtype, pack
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators import ComputeVisitor, GemmProblem, TiledComputation, microscale, reference
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.limits import Tiling, by_lines
from simgpu.operators.gemm.plan import with_tiling
from simgpu.tools.cases.operators import workload
from simgpu.tools.shared.faithful import likeness
from tests.asm.test_line_ring import ring_accesses
from tests.asm.test_scalar_plans import assert_planned
from tests.operators.test_gemm_layout import accesses
from tests.support.devices import device
from tests.support.exhaustive import examples, left_out

PAIRS = (("fp8", "fp8"), ("fp4", "fp4"), ("fp6", "fp6"), ("bf8", "fp4"), ("bf6", "fp8"))  # each type, and pairs of widths
GUARD = 3  # bytes before and after an operand: rows begin anywhere


def rows_in_memory(values, name, stride, around=GUARD):
    """Returns elements in rows `stride` elements apart, with bytes of 0xff around them: fp8's NaNs, or the largest value of
    other types.
    """
    *outer, columns = values.shape
    memory = np.full((*outer, dtype(name).packed_bytes(stride)), 0xFF, np.uint8)
    memory[..., : dtype(name).packed_bytes(columns)] = pack(values, name)
    guard = np.full(around, 0xFF, np.uint8)
    return np.concatenate([guard, memory.ravel(), guard])


def mx(m, n, k, a_type="fp4", b_type=None, pads=(0, 0), batch=1, group_rows=(), tiling=None, check=False, edit=None,
       around=GUARD, **more):  # fmt: skip
    """Runs a GEMM. Returns (result, float64 reference, bound, typical error, kernel, runs). pads: of lda and ldb, in fours."""
    rng, b_type = np.random.default_rng(m * 90001 + n * 301 + k), b_type or a_type
    outer, each = () if batch == 1 else (batch,), (len(group_rows),) if group_rows else ()
    strides = {"lda": k + 4 * pads[0], "ldb": k + 4 * pads[1]}
    problem = GemmProblem(m, n, k, a_type, trans_b=True, scales="mx", dtype_b=b_type, batch=batch, groups=len(group_rows),
                          **strides, **more)  # fmt: skip
    tree = TiledComputation.of(problem, board("gfx950"))
    if tiling is not None:
        tree.derivation = with_tiling(problem, tree.descriptor, "corrected", tiling)
    kernel, gpu = asm.emit(tree), device("gfx950", check)
    a, scale_a = microscale(rng.uniform(-1, 1, (*outer, m, k)) * 2.0 ** rng.integers(-9, 9, (*outer, m, 1)), a_type,
                             problem.mx_rows[0])  # fmt: skip
    b, scale_b = microscale(rng.uniform(-1, 1, (*outer, *each, n, k)) * 2.0 ** rng.integers(-9, 9, k), b_type)
    given = {"scale_a": scale_a, "scale_b": scale_b}
    if edit:
        edit(a, b, scale_a, scale_b)
    if problem.bias:
        given["bias"] = rng.uniform(-1, 1, (*each, n)).astype(numpy_dtype(problem.dtype_addend))
    if group_rows:
        given["group_rows"] = np.array(group_rows, "i4")
    c = np.full((*outer, m, problem.columns_c), np.nan, numpy_dtype(problem.dtype_c))
    memories = [rows_in_memory(a, a_type, problem.lda, around), rows_in_memory(b, b_type, problem.ldb, around), c]
    names = dict.fromkeys(("bias", *given))
    memories = memories[:3] + [given[name].view(np.uint8) if "scale" in name else given[name] for name in names if name in given]
    buffers = [gpu.upload(memory) for memory in memories]
    addresses = [buffer.address + (around if place < 2 else 0) for place, buffer in enumerate(buffers)]
    runs = asm.launch(kernel, gpu, *addresses)
    got = buffers[2].download(c.dtype, c.shape).astype(np.float64)
    for buffer in buffers:
        gpu.free(buffer)
    want = reference.gemm(problem, a, b, **given)
    bound = reference.gemm_error_bound(problem, a, b, None, "gfx950", **given)
    return got, want, bound, reference.gemm_typical_error(problem, a, b, None, "gfx950", **given), kernel, runs


def assert_right(result):
    got, want, bound, typical, _, runs = result
    assert not sum(run.counters.get("lds_bank_conflicts", 0) for run in runs)
    wrong = ~((np.abs(got - want) <= bound) | (np.isnan(got) & np.isnan(want)))
    assert not wrong.any(), (np.argwhere(wrong)[:3], got[wrong][:3], want[wrong][:3])
    if not np.isnan(want).any():
        like = likeness(got, typical)
        assert like.passed, like


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(1, 12) | st.sampled_from((8, 16, 70))),
    kinds=st.sampled_from(PAIRS),
    pads=st.tuples(*[st.integers(0, 3)] * 2),
    batch=st.sampled_from((1, 1, 3)),
    bias=st.booleans(),
    out=st.sampled_from(("f32", "bf16")),
)
def test_any_shape_validates(sizes, kinds, pads, batch, bias, out):
    m, n, blocks = sizes
    assert_right(mx(m, n, 32 * blocks, *kinds, pads, batch, bias=bias, dtype_c=out, alpha=0.5))


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", ["fp8", "fp6", "fp4"])
@pytest.mark.parametrize("tile", [(192, 64, 128), (64, 128, 256), (256, 64, 128)])
def test_every_side_of_a_tile_validates(kind, tile):
    rows, columns, k = tile
    tiling = Tiling(rows, columns, k, 128, 2, 2, stages=2, blocks=1)
    assert_right(mx(rows + 37, columns + 77, 3 * k + 32, kind, "fp4", tiling=tiling))


@pytest.mark.covering(1)
@pytest.mark.parametrize("around", [0, GUARD])
@pytest.mark.parametrize("k", [512, *(left_out(k) for k in (544, 608, 640, 864)), 992, 1120])
def test_lines_of_rows_that_end_anywhere_validate(k, around):
    """6-bit operands by cache lines: aligned (with a last line cut in the middle of a piece as well), and at any byte."""
    tiling = Tiling(64, 64 if k in (544, 640, 992) else 128, 128, 128, 2, 2, stages=2, blocks=1, split_k=1 + (k == 1120))
    result = mx(70, 131, k, "fp6", "bf6", (4, 8), tiling=tiling, check=True, around=around, dtype_c="bf16")
    assert_right(result)
    assert not [str(finding) for run in result[5] for finding in run.findings]


@pytest.mark.slow
def test_lines_of_groups_and_batches_validate():
    for around in (0, GUARD):
        tiling = Tiling(64, 64, 128, 128, 2, 2, stages=2, blocks=1)
        assert_right(mx(40, 70, 608, "bf6", "fp6", batch=3, tiling=tiling, around=around, bias=True))
        assert_right(mx(90, 70, 672, "fp6", group_rows=(0, 41, 1, 48), tiling=tiling, around=around, activation="swiglu"))


def test_checked_mode_finds_nothing():
    for k in (192, 4128):
        result = mx(70, 66, k, "fp6", "fp8", check=True, dtype_c="bf16", activation="swiglu")
        assert bool(result[4].following) == (k == 4128)
        assert_right(result)
        assert not [str(finding) for run in result[5] for finding in run.findings]


def test_groups_have_their_own_b_and_scales():
    assert_right(mx(90, 70, 160, "fp8", "fp4", group_rows=(0, 41, 1, 48), bias=True, dtype_c="bf16"))


@pytest.mark.parametrize("kinds", [("fp4", "fp4"), ("fp6", "fp8")])
def test_each_block_has_its_own_scales(kinds):
    """A product of ones is the sum over blocks of 32 times both scales, so that a wrong scale shows."""
    m, n, k = 40, 50, 416
    powers = np.random.default_rng(1).integers(-3, 4, (m + n, k // 32)).astype(float)

    def ones(a, b, scale_a, scale_b):
        a[...], b[...] = 1, 1
        scale_a[:, :m], scale_b[:, :n] = 2.0 ** powers[:m].T, 2.0 ** powers[m:].T

    got, *_ = mx(m, n, k, *kinds, edit=ones)
    np.testing.assert_allclose(got, 32 * 2.0 ** powers[:m] @ 2.0 ** powers[m:].T, rtol=1e-6)


def test_a_scale_that_is_no_number_makes_its_row_none():
    def spoil(a, b, scale_a, scale_b):
        scale_a.view(np.uint8)[1, 3] = 0xFF

    got, want, *_ = mx(20, 30, 96, "fp4", edit=spoil)
    assert np.isnan(want[3]).all() and (np.isnan(got) == np.isnan(want)).all()


def test_the_tree_and_the_reference_multiply_alike():
    rng = np.random.default_rng(0)
    a, of_a = microscale(rng.uniform(-1, 1, (5, 96)), "fp6")
    b, of_b = microscale(rng.uniform(-1, 1, (7, 96)), "fp4")
    problem = GemmProblem(5, 7, 96, "fp6", trans_b=True, scales="mx", dtype_b="fp4")
    wide_a, wide_b = (np.repeat(scale.astype(float), 32, 0)[:, :rows].T for scale, rows in ((of_a, 5), (of_b, 7)))
    want = (a.astype(float) * wide_a) @ (b.astype(float) * wide_b).T
    np.testing.assert_allclose(reference.gemm(problem, a, b, scale_a=of_a, scale_b=of_b), want, rtol=1e-13)
    tree = TiledComputation.of(problem, board("gfx950"))
    got = ComputeVisitor("block").visit(tree, a, b, None, None, None, of_a, of_b)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "largest"), [("fp8", 448.0), ("bf8", 57344.0), ("fp6", 7.5), ("bf6", 28.0), ("fp4", 6.0)])
def test_microscaled_brings_the_largest_into_the_last_binade(kind, largest):
    x = np.random.default_rng(2).standard_normal((4, 64)) * 2.0 ** np.arange(-4, 4)[::2][:, None]
    x[1, :32] = 0
    elements, scales = microscale(x, kind)
    assert scales.shape == (2, 16) and scales.dtype == numpy_dtype("e8m0") and not scales[:, 4:].view(np.uint8).any()
    scales = scales[:, :4].T
    wide = elements.astype(float).reshape(4, 2, 32)
    tops = np.abs(wide).max(-1)
    assert (tops <= largest).all()
    assert (tops[np.arange(4) != 1] >= 2.0 ** np.floor(np.log2(largest))).all() and not wide[1, 0].any()
    error = np.abs(wide * scales.astype(float)[..., None] - x.reshape(4, 2, 32))
    clipped = np.abs(x.reshape(4, 2, 32)) > largest * scales.astype(float)[..., None]
    most = (scales.astype(float) * tops)[..., None].repeat(32, -1) * 2.0 ** -dtype(kind).significand
    assert (error <= most)[~clipped].all()
    with pytest.raises(LaunchError, match="pad them with zeros"):
        microscale(x[:, :40], kind)


@pytest.mark.parametrize("kinds", [
    ("fp4", "fp4"), left_out(("fp6", "fp6")), left_out(("fp8", "fp8")), ("fp8", "fp4"),
    left_out(("bf6", "fp4")),
])  # fmt: skip
def test_registers_and_lds_are_the_plans_and_no_bank_conflicts(kinds):
    for sizes in ((4096, 4096, 512), (40, 40, 32000)):
        more = {"dtype_b": kinds[1], "trans_b": True, "scales": "mx", "dtype_c": "bf16", "bias": True}
        tree = TiledComputation(*sizes, "gfx950", dtype=kinds[0], **more)
        assert_planned(tree)
        layouts = TileLayouts.of(tree.first())
        lines = by_lines(tree.problem, tree.plan.tiling)
        assert lines == (kinds == ("fp6", "fp6"))
        for layout in (layouts.a, layouts.b):
            of_layout = ring_accesses(layout) if lines else accesses(layout)
            assert sum(lds_banks.conflicts("gfx950", *access) for access in of_layout) == 0, layout


def test_the_operands_of_the_command_pass():
    tree = TiledComputation(33, 20, 96, "gfx950", dtype="fp6", dtype_b="fp4", trans_b=True, scales="mx", lda=104, batch=2)
    work, kernel, gpu = workload(tree, "gfx950", seed=0), asm.emit(tree), device("gfx950")
    buffers = [gpu.upload(array) for array in work.arrays]
    asm.launch(kernel, gpu, *buffers)
    after = buffers[2].download(work.arrays[2].dtype, work.arrays[2].shape)
    assert work.compare(after, "C").passed
    packed = sum(dtype(kind).packed_bytes(2 * rows * 96) for kind, rows in (("fp6", 33), ("fp4", 20)))
    assert 0 <= work.moved_bytes - packed - 2 * (4 * 33 * 20 + 3 * (48 + 32)) <= 2 * 33 * 6, "padded rows of A count too"


@pytest.mark.parametrize(("wrong", "said"), [
    ({"k": 48}, "pad k with zeros to 64"), ({"trans_b": False}, "blocks are of consecutive k"), ({"dtype": "f16"}, "not f16"),
    ({"scales": "none"}, "use scales mx"), ({"scales": "row", "dtype": "fp8", "dtype_b": "fp4"}, "two types: use scales mx"),
    ({"lda": 65}, "begin with a byte"), ({"dtype_b": "i8"}, "not i8"), ({"trans_a": True}, "without trans_a"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words(wrong, said):
    with pytest.raises(LaunchError, match=said):
        GemmProblem(**{"m": 4, "n": 4, "k": 64, "dtype": "fp4", "trans_b": True, "scales": "mx", **wrong})


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942"])
def test_other_targets_refuse_in_words(target):
    with pytest.raises(TargetError, match=r"no matrix instruction with MX scales.*gfx950"):
        TiledComputation(4, 4, 64, target, dtype="fp4", trans_b=True, scales="mx")


def test_the_papers_tiles_have_no_mx_scales():
    with pytest.raises(LaunchError, match="use policy corrected"):
        TiledComputation(4, 4, 64, "gfx950", "published", "fp4", trans_b=True, scales="mx")
