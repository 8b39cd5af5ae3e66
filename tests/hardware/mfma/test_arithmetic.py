"""Matrix arithmetic, bit for bit: the hardware-validated vectors, exact rationals, distinct integers."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma import MatrixInstruction, find, instructions, multiply
from simgpu.hardware.mfma.arithmetic import fma_f32, fma_f64
from simgpu.hardware.mfma.numbers import FORMATS, decode, to_f32
from tests.support.exhaustive import examples
from tests.support.places import SHARED
from tests.support.sweeps import swept

VECTORS = SHARED / "oracles" / "mfma_numerics.json.gz"
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
OF_ARCH = {"CDNA1": "gfx908", "CDNA2": "gfx90a", "CDNA3": "gfx942"}
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "xf32": np.float32,
    "f64": np.float64,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "fp8_fnuz": ml_dtypes.float8_e4m3fnuz,
    "bf8_fnuz": ml_dtypes.float8_e5m2fnuz,
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
    "i8": np.int8,
    "i32": np.int32,
}


def raw(values: np.ndarray, name: str) -> np.ndarray:
    """Returns bits of small numbers that the format holds exactly."""
    x = np.asarray(values).astype(DTYPES[name])
    assert (x.astype(np.float64) == values).all()
    return x.view(f"u{x.dtype.itemsize}")


def value(row: MatrixInstruction, d: np.ndarray) -> np.ndarray:
    return d.view(DTYPES[row.cd_type]).astype(np.float64)


def same(row: MatrixInstruction, got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns where bits are equal, NaN payloads aside."""
    kind = DTYPES[row.cd_type]
    return (got == wanted) | (np.isnan(got.view(kind)) & np.isnan(wanted.view(kind)))


def stack(entry: dict, operand: str, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Returns an operand of every case of the entry, as raw bits."""
    width = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}.get(kind, 1)
    bits = (np.frombuffer(bytes.fromhex(case[operand]), f"<u{width}") for case in entry["cases"])
    return np.stack([b.reshape(shape) for b in bits])


def test_every_vector_of_the_hardware_validated_model():
    if not VECTORS.exists():
        pytest.skip(f"{VECTORS} is absent")
    seen = 0
    for entry in json.loads(gzip.decompress(VECTORS.read_bytes())):
        m, n, k = entry["m"], entry["n"], entry["k"]

        a, b = stack(entry, "A", entry["a_type"], (m, k)), stack(entry, "B", entry["b_type"], (k, n))
        c, d = stack(entry, "C", entry["d_type"], (m, n)), stack(entry, "D", entry["d_type"], (m, n))
        row = find(entry["mfma"], OF_ARCH[entry["arch"]])
        assert row.fidelity() == "exact"
        wrong = ~same(row, multiply(row, a, b, c), d)
        assert not wrong.any(), (entry["arch"], entry["mfma"], np.argwhere(wrong)[:3])
        seen += len(entry["cases"])
    assert seen >= 640


ROWS = [row for target in TARGETS for row in instructions(target)]
VARIANTS = [
    v
    for row in ROWS
    for v in (
        [row.with_formats(*f) for f in itertools.product(range(5), repeat=2)] if row.flexible else [row]
    )
]


@swept("row", VARIANTS, ids=lambda r: f"{r.target}-{r.mnemonic}-{r.a_type}-{r.b_type}")
def test_small_integers_multiply_exactly(row):
    """Every format holds 0 to 2 and their negatives. The sums stay exact in every generation."""
    rng = np.random.default_rng(row.opcode)
    a = rng.integers(-2, 3, (row.blocks, row.m, row.k // (1 + row.sparse)))
    b = rng.integers(-2, 3, (row.blocks, row.k, row.n))
    c = rng.integers(-9, 10, (row.blocks, row.m, row.n))
    options, dense = {}, a
    if row.sparse:
        pairs = np.array([lo | hi << 2 for lo, hi in itertools.combinations(range(4), 2)])
        index = pairs[rng.integers(0, 6, (row.blocks, row.m, row.k // 4))]
        dense = np.zeros((row.blocks, row.m, row.k), int)
        slots = np.stack([index & 3, index >> 2], -1) + 4 * np.arange(row.k // 4)[:, None]
        np.put_along_axis(dense, slots.reshape(a.shape), a, -1)
        options["index"] = index
    scale = np.ones((row.blocks, row.m, row.k, row.n))
    if row.scaled:
        x, y = (
            rng.integers(124, 131, (1, row.m, row.k // 32)),
            rng.integers(124, 131, (1, row.k // 32, row.n)),
        )
        options |= {"scale_a": x, "scale_b": y}
        scale = 2.0 ** (np.repeat(x, 32, 2)[..., None] + np.repeat(y, 32, 1)[:, None] - 254.0)
    d = multiply(row, raw(a, row.a_type), raw(b, row.b_type), raw(c, row.cd_type), **options)
    wanted = (dense[..., None] * b[:, None] * scale).sum(2) + c
    if row.target == "gfx950" and row.scaled:  # scales spread the products beyond exactness
        assert np.allclose(value(row, d), wanted, rtol=1e-5, atol=1e-5)
    else:
        assert (value(row, d) == wanted).all()


def test_fidelity():
    assert find("v_mfma_f32_16x16x16_f16", "gfx942").fidelity() == "exact"
    assert find("v_mfma_f32_16x16x16_f16", "gfx950").fidelity() == "unverified"
    assert find("v_smfmac_f32_16x16x32_f16", "gfx942").fidelity() == "unverified"
    assert find("v_mfma_i32_16x16x64_i8", "gfx950").fidelity() == "exact"


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats_are_the_published_ones(name):
    form = FORMATS[name]
    bits = 1 + form.exponent + form.mantissa
    every = np.arange(1 << bits) if bits <= 16 else np.random.default_rng(1).integers(0, 1 << 32, 20000)
    wanted = every.astype(f"u{max(1, bits // 8)}").view(DTYPES[name]).astype(np.float32)
    got = to_f32(every, name)
    assert (np.isnan(got) == np.isnan(wanted)).all()
    number = ~np.isnan(wanted)
    assert (got.view(np.uint32) == wanted.view(np.uint32))[number].all()
    assert (decode(every, name).nan == np.isnan(wanted)).all()


def rounded_f32(x: Fraction) -> np.float32:
    """Returns x to nearest even in float32, through integers."""
    if x == 0:
        return np.float32(0)
    exponent = max(math.floor(math.log2(abs(x.numerator)) - math.log2(x.denominator)) - 25, -149)
    scaled = x / Fraction(2) ** exponent
    for step in (1, 2, 4, 8):
        if abs(round(scaled / step)) <= 1 << 24:
            return np.float32(math.ldexp(round(scaled / step) * step, exponent))
    raise AssertionError(x)


finite32 = st.integers(0, 2**32 - 1).map(lambda b: np.uint32(b).view(np.float32)).filter(np.isfinite)
modest32 = st.tuples(st.integers(-(1 << 24), 1 << 24), st.integers(-40, 40)).map(
    lambda t: np.float32(math.ldexp(*t))
)
tiny32 = st.integers(-200, 200).map(lambda b: np.float32(b * 2.0**-149))


@settings(max_examples=examples(400))
@given(*[st.one_of(modest32, finite32, tiny32)] * 3)
def test_fma_f32_rounds_once(a, b, c):
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    with np.errstate(all="ignore"):
        got = fma_f32(*(np.array([x]) for x in (a, b, c)))[0]
    if abs(exact) < 2**127:
        assert got == rounded_f32(exact)
    elif abs(exact) >= 2**128:
        assert np.isinf(got)


finite64 = st.floats(allow_nan=False, allow_infinity=False)


@given(st.one_of(finite64, st.floats(-4, 4)), finite64, finite64)
def test_fma_f64_rounds_once(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        wanted = float(exact)
    except OverflowError:
        wanted = math.inf if exact > 0 else -math.inf
    assert fma_f64(a, b, c) == wanted


def test_fma_f64_special_values():
    assert fma_f64(1e300, 1e300, -math.inf) == -math.inf
    assert math.isnan(fma_f64(math.inf, 0.0, 1.0)) and math.isnan(fma_f64(math.inf, 1.0, -math.inf))
    assert math.copysign(1, fma_f64(-0.0, 1.0, -0.0)) == -1 and math.copysign(1, fma_f64(-1.0, 1.0, 1.0)) == 1
    assert math.copysign(1, fma_f64(-1e-300, 1e-300, 0.0)) == -1


def test_integers_wrap_or_clamp():
    row = find("v_mfma_i32_16x16x16i8", "gfx908")
    a, b = np.full((1, 16, 16), 0x80), np.full((1, 16, 16), 0x80)
    c = np.full((1, 16, 16), 0x7FFFFFFF)
    assert (multiply(row, a, b, c) == 0x7FFFFFFF + 16 * 128 * 128).all()
    assert (multiply(row, a, b, c, clamp=True) == 0x7FFFFFFF).all()
    b[:] = 0x7F
    assert (multiply(row, a, b, np.full_like(c, 0x80000000), clamp=True) == 0x80000000).all()


def test_broadcast_lane_pattern_and_neg():
    row = find("v_mfma_f32_4x4x1_16b_f32", "gfx942")
    a, b = (np.arange(64).reshape(shape) + 1 for shape in ((16, 4, 1), (16, 1, 4)))
    zero = raw(np.zeros((16, 4, 4)), "f32")
    got = value(row, multiply(row, raw(a, "f32"), raw(b, "f32"), zero, cbsz=2, abid=3))
    assert (got == a[np.arange(16) // 4 * 4 + 3] * b).all()
    got = value(row, multiply(row, raw(a, "f32"), raw(b, "f32"), zero, blgp=3))
    assert (got == a * np.roll(b.reshape(-1), -16).reshape(b.shape)).all()
    row = find("v_mfma_f64_4x4x4f64", "gfx942")
    a, b, c = (np.full((1, 4, 4), x) for x in (2.0, 3.0, 5.0))
    bits = [raw(x, "f64") for x in (a, b, c)]
    assert (value(row, multiply(row, *bits, neg=(1, 0, 1))) == -29).all()


def test_cdna2_flushes_and_its_neighbours_do_not():
    a = np.zeros((1, 4, 4), np.uint16)
    a[0, :, 0] = 1  # 2^-24, an f16 denormal
    b, c = raw(np.eye(4)[None], "f16"), np.zeros((1, 4, 4), np.uint32)
    found = [
        multiply(find(name, t), a, b, c)[0, 0, 0]
        for name, t in (
            ("v_mfma_f32_4x4x4f16", "gfx908"),
            ("v_mfma_f32_4x4x4f16", "gfx90a"),
            ("v_mfma_f32_4x4x4f16", "gfx942"),
        )
    ]
    assert found == [0x33800000, 0, 0x33800000]


def test_infinite_operands_decide_over_products_that_overflow():
    row = find("v_mfma_f32_4x4x4bf16_1k", "gfx942")
    big = raw(np.array(2.0**100), "bf16")
    a, b = np.zeros((1, 4, 4), np.uint16), np.zeros((1, 4, 4), np.uint16)
    a[0, :, :2], b[0, 0, :], b[0, 1, :] = big, big, big | 0x8000
    c = np.zeros((1, 4, 4), np.uint32)
    assert np.isnan(multiply(row, a, b, c).view(np.float32)).all()
    assert (multiply(row, a, b, c | 0xFF800000) == 0xFF800000).all()
    b[0, 1, :] = 0
    assert (multiply(row, a, b, c) == 0x7F800000).all()


def test_broadcast_needs_every_block():
    zero = np.zeros((1, 4, 4), int)
    row = find("v_mfma_f32_4x4x4f16", "gfx908")
    for modifier in ({"cbsz": 1, "abid": 1}, {"blgp": 1}):
        with pytest.raises(TargetError, match="all 16"):
            multiply(row, zero, zero, zero, **modifier)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"a": np.zeros((1, 16, 4), np.float32)}, ["A", "float32", "raw bits"]),
        ({"a": np.zeros((1, 16, 5), int)}, ["A", "(1, 16, 5)", "(1, 16, 4)"]),
        ({"index": np.zeros((1, 16, 1), int)}, ["index", "None"]),
        ({"scale_a": np.zeros((1, 16, 1), int)}, ["scale_a"]),
        ({"neg": (1, 0, 0)}, ["neg"]),
        ({"cbsz": 1}, ["cbsz"]),
    ],
)
def test_errors_say_what_is_wrong(options, words):
    given_ = {
        "a": np.zeros((1, 16, 4), int),
        "b": np.zeros((1, 4, 16), int),
        "c": np.zeros((1, 16, 16), int),
    } | options
    with pytest.raises(TargetError) as error:
        multiply(find("v_mfma_f32_16x16x4f32", "gfx908"), **given_)
    assert all(word in str(error.value) for word in words)
