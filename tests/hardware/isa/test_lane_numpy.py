"""Numpy's engine against rationals, Python integers and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.arithmetic.vectors import f16x32, u16x4, u32x6
from simgpu.hardware.isa.lane import Value, cast, fma, lane_id
from simgpu.hardware.isa.lane_numpy import NUMPY, default_nan, unwrap, wrap
from simgpu.hardware.isa.types import Type
from tests.support.exhaustive import examples
from tests.support.valu_reference import (
    BF16,
    F16,
    F32,
    F64,
    SPECIAL_FLOATS,
    Format,
    f_add,
    f_convert,
    f_div,
    f_fma,
    f_mul,
    f_round_int,
    f_sqrt,
    f_sub,
    f_to_int,
    int_patterns,
    patterns,
    signed,
)

FORMATS: dict[Type, Format] = {t.f16: F16, t.f32: F32, t.f64: F64}
LANES = 400


def words(bits: int) -> st.SearchStrategy[int]:
    sign = 1 << (bits - 1)
    special = [x | s for x in SPECIAL_FLOATS[bits] for s in (0, sign)]
    return st.sampled_from(special) | st.integers(0, (1 << bits) - 1)


def array(type_: Type, column: list[int]) -> np.ndarray:
    return np.array(column, {16: np.uint16, 32: np.uint32, 64: np.uint64}[type_.bits])


@pytest.mark.parametrize("type_", FORMATS, ids=str)
@pytest.mark.parametrize(
    ("op", "reference"), [("add", f_add), ("sub", f_sub), ("mul", f_mul), ("div", f_div)]
)
def test_float_binary(type_: Type, op: str, reference: object) -> None:
    rng = np.random.default_rng(1)
    a, b = patterns(type_, LANES, rng), patterns(type_, LANES, rng)
    got = NUMPY.binary(op, type_, array(type_, a), array(type_, b))
    want = [reference(FORMATS[type_], x, y) for x, y in zip(a, b, strict=True)]  # type: ignore[operator]
    assert [int(x) for x in got] == want


@pytest.mark.parametrize(("kind", "form"), [(t.f32, F32), (t.f64, F64)], ids=["f32", "f64"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_fma(kind: Type, form: Format, data: st.DataObject) -> None:
    row = [data.draw(words(kind.bits)) for _ in "abc"]
    got = NUMPY.fma(kind, *(np.array([x], f"u{kind.bits // 8}") for x in row))
    assert int(got[0]) == f_fma(form, *row)


@pytest.mark.parametrize("type_", FORMATS, ids=str)
def test_fma_near_ties(type_: Type) -> None:
    """Products are midpoints with a tiny addend: two roundings would give wrong results."""
    f, rng = FORMATS[type_], np.random.default_rng(2)
    one = f.bias << f.fraction
    a = [one | int(x) for x in rng.integers(0, 1 << min(f.fraction, 30), 200)]
    b = [one | 1 << (f.fraction - 1) for _ in a]
    c = patterns(type_, 200, rng)
    small = [(int(s) << (f.bits - 1)) | 1 for s in rng.integers(0, 2, 200)]
    for addend in (c, small):
        got = NUMPY.fma(type_, array(type_, a), array(type_, b), array(type_, addend))
        assert [int(x) for x in got] == [f_fma(f, *row) for row in zip(a, b, addend, strict=True)]


@pytest.mark.parametrize("type_", FORMATS, ids=str)
def test_float_unary(type_: Type) -> None:
    f = FORMATS[type_]
    a = patterns(type_, LANES, np.random.default_rng(3))
    for how in ("floor", "ceil", "trunc", "rint"):
        got = NUMPY.unary(how, type_, array(type_, a))
        assert [int(x) for x in got] == [f_round_int(f, x, how) for x in a]
    got = NUMPY.unary("sqrt", type_, array(type_, a))
    assert [int(x) for x in got] == [f_sqrt(f, x) for x in a]
    assert [int(x) for x in NUMPY.unary("neg", type_, array(type_, a))] == [x ^ f.sign for x in a]
    assert [int(x) for x in NUMPY.unary("abs", type_, array(type_, a))] == [x & ~f.sign for x in a]


@pytest.mark.parametrize(
    ("source", "target"),
    [(t.f32, t.f16), (t.f16, t.f32), (t.f64, t.f32), (t.f32, t.f64), (t.f32, t.bf16),
     (t.bf16, t.f32), (t.f64, t.f16)],
    ids=str,
)  # fmt: skip
def test_float_conversions(source: Type, target: Type) -> None:
    formats = {**FORMATS, t.bf16: BF16}
    a = patterns(source, 2000, np.random.default_rng(4))
    got = NUMPY.convert(source, target, array(source, a))
    assert [int(x) for x in got] == [f_convert(formats[source], formats[target], x) for x in a]


def test_bf16_agrees_with_ml_dtypes() -> None:
    a = np.random.default_rng(5).integers(0, 1 << 32, 20000, dtype=np.uint32)
    a = a[~np.isnan(a.view(np.float32))]
    want = a.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(NUMPY.convert(t.f32, t.bf16, a), want)


@pytest.mark.parametrize("source", FORMATS, ids=str)
@pytest.mark.parametrize("target", [t.i8, t.u8, t.i16, t.u16, t.i32, t.u32, t.i64, t.u64], ids=str)
def test_float_to_int_saturates(source: Type, target: Type) -> None:
    a = patterns(source, LANES, np.random.default_rng(6))
    low = -(1 << (target.bits - 1)) if target.kind == "signed" else 0
    high = (1 << (target.bits - (target.kind == "signed"))) - 1
    got = NUMPY.convert(source, target, array(source, a))
    mask = (1 << target.bits) - 1
    assert [int(x) for x in got] == [f_to_int(FORMATS[source], x, low, high) & mask for x in a]


@pytest.mark.covering(2)
@pytest.mark.parametrize("source", [t.i16, t.u16, t.i32, t.u32, t.i64, t.u64], ids=str)
@pytest.mark.parametrize("target", FORMATS, ids=str)
def test_int_to_float(source: Type, target: Type) -> None:
    if source.bits == 64 and target is t.f16:
        pytest.skip("rounds twice; no instruction needs it")
    a = int_patterns(source.bits, LANES, np.random.default_rng(7))
    numbers = [signed(x, source.bits) if source.kind == "signed" else x for x in a]
    got = NUMPY.convert(source, target, array(source, a))
    assert [int(x) for x in got] == [FORMATS[target].round(Fraction(n)) for n in numbers]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integers(bits: int) -> None:
    unsigned, sign_type = {16: (t.u16, t.i16), 32: (t.u32, t.i32), 64: (t.u64, t.i64)}[bits]
    rng, mask = np.random.default_rng(8), (1 << bits) - 1
    a, b = int_patterns(bits, LANES, rng), int_patterns(bits, LANES, rng)
    x, y = array(unsigned, a), array(unsigned, b)
    rows = list(zip(a, b, strict=True))

    def check(op: str, type_: Type, want: list[int]) -> None:
        assert [int(v) for v in NUMPY.binary(op, type_, x, y)] == [w & mask for w in want]

    check("add", unsigned, [m + n for m, n in rows])
    check("sub", unsigned, [m - n for m, n in rows])
    check("mul", unsigned, [m * n for m, n in rows])
    check("shl", unsigned, [m << (n % bits) for m, n in rows])
    check("lshr", unsigned, [m >> (n % bits) for m, n in rows])
    check("ashr", sign_type, [signed(m, bits) >> (n % bits) for m, n in rows])
    check("mul_hi", unsigned, [m * n >> bits for m, n in rows])
    check("mul_hi", sign_type, [signed(m, bits) * signed(n, bits) >> bits for m, n in rows])
    check("udiv", unsigned, [m // n if n else 0 for m, n in rows])
    check("min", sign_type, [min(m, n, key=lambda v: signed(v, bits)) for m, n in rows])
    check("max", unsigned, [max(m, n) for m, n in rows])
    for op, want in {
        "ctlz": [bits - m.bit_length() for m in a],
        "cttz": [(m & -m).bit_length() - 1 if m else bits for m in a],
        "ctpop": [m.bit_count() for m in a],
        "bitreverse": [int(f"{m:0{bits}b}"[::-1], 2) for m in a],
    }.items():
        assert [int(v) for v in NUMPY.unary(op, unsigned, x)] == want


def test_default_nans() -> None:
    assert [default_nan(x) for x in (t.f16, t.f32, t.f64, t.bf16)] == [
        0x7E00,
        0x7FC00000,
        0x7FF8000000000000,
        0x7FC0,
    ]


def test_nan_operands_in_order() -> None:
    a, b, c = (np.array([x], np.uint32) for x in (0x7F800001, 0xFFC12345, 0x7FC00007))
    one = np.array([0x3F800000], np.uint32)
    assert int(NUMPY.fma(t.f32, a, b, c)[0]) == 0x7FC00001
    assert int(NUMPY.fma(t.f32, one, b, c)[0]) == 0xFFC12345
    assert int(NUMPY.fma(t.f32, one, one, c)[0]) == 0x7FC00007
    inf = np.array([0x7F800000], np.uint32)
    assert int(NUMPY.binary("sub", t.f32, inf, inf)[0]) == 0x7FC00000


def test_rows() -> None:
    row = np.arange(100, 164, dtype=np.uint32)
    lanes = np.arange(64, dtype=np.uint32)[::-1].copy()
    assert int(NUMPY.read_lane(t.u32, row, np.uint32(64 + 3))) == 103
    written = NUMPY.write_lane(t.u32, row, np.uint32(5), np.uint32(7))
    assert written[5] == 7 and row[5] == 105
    assert list(NUMPY.gather(t.u32, row, lanes)) == list(range(163, 99, -1))
    to_zero = np.zeros(64, np.uint32)
    active = np.arange(64) < 10
    assert int(NUMPY.scatter(t.u32, row, to_zero, active)[0]) == 109
    assert int(NUMPY.ballot(np.arange(64) % 2 == 1)) == 0xAAAAAAAAAAAAAAAA
    assert list(NUMPY.splat(t.u32, np.uint32(9))) == [9] * 64


@pytest.mark.parametrize("type_", [t.f16x2, t.f32x2, u16x4, u32x6, f16x32], ids=str)
def test_wrap_round_trip(type_: Type) -> None:
    rng = np.random.default_rng(9)
    shape = (5,) if type_.bits <= 64 else (type_.bits // 32, 5)
    dtype = np.uint64 if type_.bits == 64 else np.uint32
    raw = rng.integers(0, 1 << 32, shape, dtype=np.uint64).astype(dtype)
    assert np.array_equal(unwrap(type_, wrap(type_, raw)), raw)


def test_scalars_and_misuse() -> None:
    scalar = Value(NUMPY, t.u32, np.asarray(7, np.uint32))
    assert int((scalar + 5).raw) == 12
    assert lane_id(scalar).raw.shape == (64,)
    with pytest.raises(TypeError):
        bool(scalar == 7)
    one = cast(scalar, t.f32)
    assert int(fma(one, one, one).raw) == 0x42600000
