"""`simgpu.mfma`: takes arrays of every dtype, returns the instruction's D, explains errors."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError, TargetError, ToolchainError
from simgpu.hardware.mfma import find, instructions, multiply
from simgpu.matrix.one_mfma import DTYPES
from simgpu.tools.benchmarks.mfma import measure

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
# A cheap instruction for each combination of element types.
TYPED = [
    ("v_mfma_f32_16x16x4f32", "gfx908"),
    ("v_mfma_f32_16x16x4_f32", "gfx950"),
    ("v_mfma_f32_16x16x8_xf32", "gfx942"),
    ("v_mfma_f64_16x16x4f64", "gfx90a"),
    ("v_mfma_f32_16x16x16f16", "gfx908"),
    ("v_mfma_f32_32x32x8bf16_1k", "gfx90a"),
    ("v_mfma_f32_16x16x16_bf16", "gfx942"),
    ("v_mfma_i32_16x16x32_i8", "gfx942"),
    ("v_mfma_f32_16x16x32_fp8_bf8", "gfx942"),
    ("v_mfma_f32_16x16x32_bf8_fp8", "gfx950"),
]


def integers(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Draws small integers: every type holds them, and their sums are exact."""
    return rng.integers(-2, 3, shape).astype(kind)


@pytest.mark.parametrize("name, target", TYPED)
def test_values_and_raw_bits(name, target):
    row, rng = find(name, target), np.random.default_rng(3)
    a = integers(rng, (row.m, row.k), DTYPES[row.a_type])
    b = integers(rng, (row.k, row.n), DTYPES[row.b_type])
    c = integers(rng, (row.m, row.n), DTYPES[row.cd_type])
    d = simgpu.mfma(name, a, b, c, target)
    assert d.dtype == DTYPES[row.cd_type] and d.shape == (row.m, row.n)
    assert (d == a.astype(np.float64) @ b.astype(np.float64) + c).all()
    raw = (x.view(f"u{x.itemsize}") for x in (a, b, c))
    assert (simgpu.mfma(name, *raw, target) == d).all()


@pytest.mark.parametrize("target", TARGETS)
def test_every_blocked_instruction_multiplies_each_block(target):
    """Integers are distinct: a product that is right for every block is the product."""
    rng = np.random.default_rng(5)
    for row in instructions(target):
        if row.blocks == 1 or row.cd_type == "i32" or row.m == 32:
            continue
        a = integers(rng, (row.blocks, row.m, row.k), DTYPES[row.a_type])
        b = integers(rng, (row.blocks, row.k, row.n), DTYPES[row.b_type])
        c = rng.permutation(row.blocks * row.m * row.n).reshape(row.blocks, row.m, row.n)
        d = simgpu.mfma(row.mnemonic, a, b, c.astype(DTYPES[row.cd_type]), target)
        assert (d == a.astype(np.float64) @ b.astype(np.float64) + c).all(), row.mnemonic
        flat = simgpu.mfma(row.mnemonic, a[0], b[0], c[0].astype(DTYPES[row.cd_type]), target)
        assert flat.shape == (row.m, row.n) and (flat == d[0]).all()
        mixed = simgpu.mfma(row.mnemonic, a, b[0], c[0].astype(DTYPES[row.cd_type]), target)
        assert mixed.shape == d.shape and (mixed[0] == d[0]).all()


def test_aliases_boards_and_order_of_memory():
    a = np.arange(256, dtype=np.float16).reshape(16, 16)
    zero = np.zeros((16, 16), np.float32)
    eye = np.eye(16, dtype=np.float16)
    for name, target in (
        ("v_mfma_f32_16x16x16f16", "mi300x"),
        ("v_mfma_f32_16x16x16_f16", "gfx942"),
        ("V_MFMA_F32_16x16x16F16", "mi210"),
    ):
        assert (simgpu.mfma(name, a, eye, zero, target) == a).all()
        assert (simgpu.mfma(name, a.T, eye, zero, target) == a.T).all()
    bf16 = eye.astype(ml_dtypes.bfloat16)
    for name in ("v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16bf16_1k"):
        assert (simgpu.mfma(name, bf16, bf16, zero, "gfx942") == eye).all()


def test_modifiers_are_those_of_the_arithmetic():
    rng = np.random.default_rng(11)
    name, target = "v_mfma_f32_4x4x1f32", "gfx908"
    row = find(name, target)
    a, b, c = (rng.standard_normal((16, 4, n)).astype(np.float32) for n in (1, 4, 4))
    b = b[:, :1]
    for mods in ({"cbsz": 2, "abid": 1, "blgp": 1}, {"blgp": 7}):
        wanted = multiply(row, *(x.view(np.uint32) for x in (a, b, c)), **mods).view(np.float32)
        assert (simgpu.mfma(name, a, b, c, target, **mods) == wanted).all()
    x, y, z = (rng.standard_normal(shape) for shape in ((16, 4), (4, 16), (16, 16)))
    got = simgpu.mfma("v_mfma_f64_16x16x4_f64", x, y, z, "gfx942", neg=(1, 0, 1))
    assert np.allclose(got, -x @ y - z, rtol=1e-12)


def test_smfmac():
    rng = np.random.default_rng(2)
    dense = np.zeros((16, 32))
    index = np.zeros((16, 8), np.uint8)
    kept = rng.integers(-4, 5, (16, 16)).astype(np.float16)
    for i in range(16):
        for group in range(8):
            low, high = sorted(rng.choice(4, 2, replace=False))
            index[i, group] = low | high << 2
            dense[i, 4 * group + low], dense[i, 4 * group + high] = kept[i, 2 * group : 2 * group + 2]
    b, c = rng.integers(-4, 5, (32, 16)).astype(np.float16), rng.integers(-9, 9, (16, 16)).astype(np.float32)
    for abid in (0, 2):
        got = simgpu.mfma("v_smfmac_f32_16x16x32_f16", kept, b, c, "gfx942", index=index, abid=abid)
        assert (got == dense @ b + c).all()
    with pytest.raises(LaunchError, match=r"index fields, shape \(16, 8\)"):
        simgpu.mfma("v_smfmac_f32_16x16x32_f16", kept, b, c, "gfx942")


def test_f8f6f4_by_suffix_and_by_modifier_and_scales():
    rng = np.random.default_rng(4)
    a = rng.choice([-1, 0, 1, 2], (16, 128)).astype(ml_dtypes.float6_e2m3fn)
    b = rng.choice([-1, 0, 1, 2], (128, 16)).astype(ml_dtypes.float4_e2m1fn)
    c = np.zeros((16, 16), np.float32)
    product = a.astype(np.float32) @ b.astype(np.float32)
    name = "v_mfma_scale_f32_16x16x128_f8f6f4"
    two = np.full((16, 4), 128, np.uint8)
    half = np.full((4, 16), 0.5, ml_dtypes.float8_e8m0fnu)
    scales = {"scale_a": two, "scale_b": half}
    assert (simgpu.mfma(f"{name}:fp6:fp4", a, b, c, "gfx950", **scales) == product).all()
    got = simgpu.mfma(name, a.view(np.uint8), b, c, "mi355x", cbsz=2, blgp=4, scale_a=two, scale_b=two.T)
    assert (got == 4 * product).all()


BAD = [
    (lambda f: f("v_mfma_f32_16x16x4f33"), TargetError, "v_mfma_f32_16x16x4_f32"),
    (lambda f: f(target="gfx1100"), TargetError, "unknown target"),
    (lambda f: f(A=np.zeros((16, 5), np.float32)), LaunchError, r"A has shape \(16, 5\); it must be \(16, 4\)"),
    (lambda f: f(A=np.zeros((16, 4))), LaunchError, "A is float64; on gfx942 it must be float32 or raw bits in uint32"),
    (lambda f: f(B=np.zeros((4, 16), np.int32)), LaunchError, "B is int32"),
    (lambda f: f(C=np.zeros((2, 16, 16), np.float32)), LaunchError, r"\(1, 16, 16\)"),
    (lambda f: f(cbsz=1), TargetError, "takes no cbsz"),
    (lambda f: f(blgp=8), TargetError, "0 to 7"),
    (lambda f: f(neg=(1, 0, 0)), TargetError, "only f64"),
    (lambda f: f(index=np.zeros((16, 1), np.uint8)), LaunchError, "takes no index"),
    (lambda f: f(scale_a=np.zeros((16, 1), np.uint8)), LaunchError, "takes no scale_a"),
]


@pytest.mark.parametrize("call, kind, words", BAD, ids=lambda case: case if isinstance(case, str) else "")
def test_errors_in_words(call, kind, words):
    zeros = {"A": np.zeros((16, 4), np.float32), "B": np.zeros((4, 16), np.float32)}
    zeros["C"] = np.zeros((16, 16), np.float32)

    def run(name: str = "v_mfma_f32_16x16x4_f32", target: str = "gfx942", **more: object) -> np.ndarray:
        arrays = {key: more.pop(key, zeros[key]) for key in "ABC"}
        return simgpu.mfma(name, *arrays.values(), target, **more)

    with pytest.raises(kind, match=words):
        call(run)


def test_other_generations_formats_are_refused():
    a, c = np.zeros((16, 32), ml_dtypes.float8_e4m3fn), np.zeros((16, 16), np.float32)
    with pytest.raises(LaunchError, match="float8_e4m3fnuz"):
        simgpu.mfma("v_mfma_f32_16x16x32_fp8_fp8", a, a.T, c, "gfx942")
    six = np.full((16, 128), 64, np.uint8)
    with pytest.raises(LaunchError, match="6 bits"):
        simgpu.mfma("v_mfma_f32_16x16x128_f8f6f4", six, six.T, c, "gfx950", cbsz=2, blgp=2)


@pytest.mark.parametrize("only", ["gfx942 v_mfma_f32_32x32x16_fp8_fp8", "gfx942 v_mfma_i32_32x32x16_i8", "gfx90a v_mfma_f64"])
def test_the_benchmarks_products_are_exact(only):
    try:
        # a clock: sgemm takes a second, a product four
        records, sgemm = measure(512, 1, only, itertools.accumulate(itertools.cycle((0, 1, 0, 4))).__next__)
    except ToolchainError as error:
        pytest.skip(str(error))
    assert [record["data"] for record in records] == (["integers", "normal"] if "fp8" in only else ["integers"])
    for record in records:
        assert record["exact"] and record["share"] == pytest.approx(record["gflops"] / sgemm) and record["share"] == 0.25
