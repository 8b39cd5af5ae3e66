"""Elements of floats: a bijection with the laws that docs/explanation/ring.md promises, against Python's integers."""

import ml_dtypes
import numpy as np
import pytest

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value, bits, cast
from simgpu.hardware.isa.ring import functions
from simgpu.hardware.isa.ring.arrays import OPS, TYPES, WORDS, elements, floats, value_of, words
from simgpu.hardware.isa.ring.elements import element_of, float_of

SIGNED = {t.f16: t.i16, t.bf16: t.i16, t.f32: t.i32, t.f64: t.i64}
KINDS = [*TYPES]
EDGES = (0, 1, 2, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x10000, 0x7F800000, 0x3F800000)


def drawn(kind: np.dtype, count: int = 5000) -> np.ndarray:
    """All bits of a 16-bit type; else random ones, with all edges of the halves."""
    width = 8 * kind.itemsize
    if width == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    word = WORDS[width]
    rng = np.random.default_rng(width)
    some = rng.integers(0, 1 << width, count, dtype=word)
    high = some[: count // 2] & word((1 << width) - (1 << width - 16))
    low = some[: count // 2] & word((1 << width - 16) - 1)
    edges = np.array([edge for edge in EDGES if edge < 1 << width], word)
    return np.concatenate([some, high, low, low | word(1 << width - 1), edges, edges | word(1 << width - 1)])


def signed(e: Value) -> np.ndarray:
    return np.asarray(e.raw).view({16: np.int16, 32: np.int32, 64: np.int64}[e.type.bits])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_floats_and_elements_are_one_to_one(kind: np.dtype) -> None:
    """All bits but those of -0, which is 0, come back from their element, and all elements from their bits."""
    type_, word = TYPES[kind], WORDS[8 * kind.itemsize]
    given = drawn(kind)
    back = np.asarray(float_of(element_of(Value(OPS, type_, given)), type_).raw)
    negative_zero = word(1 << type_.bits - 1)
    np.testing.assert_array_equal(back, np.where(given == negative_zero, word(0), given))
    lost = given == negative_zero  # the lowest integer shares the bits of -0
    again = np.asarray(element_of(float_of(Value(OPS, SIGNED[type_], given), type_)).raw)
    np.testing.assert_array_equal(again[~lost], given[~lost])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_zero_one_two_and_signs(kind: np.dtype) -> None:
    type_ = TYPES[kind]
    small = np.array([0, 1, 2, -1, -2, -0.0]).astype(kind)
    assert signed(element_of(value_of(small))).tolist() == [0, 1, 2, -1, -2, 0]
    given = drawn(kind)
    sign = given.dtype.type(1 << type_.bits - 1)
    plus, minus = (signed(element_of(Value(OPS, type_, array))) for array in (given, given ^ sign))
    np.testing.assert_array_equal(plus.view(given.dtype), given.dtype.type(0) - minus.view(given.dtype))


def test_a_bf16_is_the_upper_half_of_the_same_f32() -> None:
    """Code widens bf16 by a shift, and narrows it by the highest 16 bits: elements are sign-extended, or cut. Not infinity's."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[halves & 0x7FFF != 0x7F80]
    wide = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
    np.testing.assert_array_equal(elements(wide), elements(halves.view(ml_dtypes.bfloat16)))
    some = drawn(np.dtype(np.float32)).view(np.float32)
    upper = elements((some.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)) & 0xFFFF
    low = elements(some) & 0xFFFF
    np.testing.assert_array_equal(upper[low != 0x8000], low[low != 0x8000])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sums_and_products_are_those_of_integers(kind: np.dtype) -> None:
    type_ = TYPES[kind]
    modulus = 1 << type_.bits
    a, b, c = (np.random.default_rng(n).permutation(drawn(kind))[:300] for n in range(3))
    x, y, z = (Value(OPS, type_, array) for array in (a, b, c))
    i, j, k = ([int(v) for v in signed(element_of(v))] for v in (x, y, z))
    got = {
        "add": x + y, "sub": x - y, "mul": x * y, "fma": Value(OPS, type_, OPS.fma(type_, a, b, c)), "twice": x * 2.0,
    }  # fmt: skip
    want = {
        "add": [p + q for p, q in zip(i, j, strict=True)], "sub": [p - q for p, q in zip(i, j, strict=True)],
        "mul": [p * q for p, q in zip(i, j, strict=True)], "fma": [p * q + r for p, q, r in zip(i, j, k, strict=True)],
        "twice": [p + p for p in i],
    }  # fmt: skip
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(a.view(kind)) & np.isfinite(b.view(kind)) & np.isfinite(c.view(kind))
    for name, found in got.items():
        expected = np.array([v % modulus for v in want[name]], a.dtype)
        right = np.asarray(float_of(Value(OPS, SIGNED[type_], expected), type_).raw).view(kind)
        assert (words(np.asarray(found.raw).view(kind)) == words(right))[finite].all(), name


def test_infinities_absorb_and_mask() -> None:
    x = value_of(np.float32([0.3, -7.0, 1e30, 0.0]))
    low = value_of(np.full(4, -np.inf, np.float32))
    two = value_of(np.full(4, 2.0, np.float32))
    for masked in (x + low, low - x, low * 2.0, Value(OPS, t.f32, OPS.fma(t.f32, low.raw, two.raw, x.raw))):
        assert np.isneginf(np.asarray(masked.raw).view(np.float32)).all()
        assert not np.asarray(functions.exp2(masked).raw).any()
    np.testing.assert_array_equal(functions.greater(x, low).raw, x.raw)
    np.testing.assert_array_equal(functions.smaller(x, low).raw, low.raw)


@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_no_sum_of_16_bit_elements_is_infinite(kind: type) -> None:
    """Found in a sum over f16 values of Triton's layer norm, of which 1 in 65,536 partial sums became infinite, and stayed so."""
    size = np.arange(1 << 22, dtype=np.int64).astype(f"i{np.dtype(kind).itemsize}")
    for sums in (size, -size):
        given = floats(sums.view(f"u{sums.itemsize}"), np.dtype(kind))
        assert not np.isinf(given).any()
        np.testing.assert_array_equal(elements(given).view(sums.dtype), sums)


@pytest.mark.parametrize("width", (16, 32, 64))
def test_laws_of_exp2_and_inverses(width: int) -> None:
    kind = {16: t.i16, 32: t.i32, 64: t.i64}[width]
    draw = np.random.default_rng(width).integers
    x, y = (Value(OPS, kind, draw(0, 1 << width, 400, dtype=WORDS[width])) for _ in range(2))
    base = 1 + (1 << width // 4)
    assert [int(v) for v in functions.power(x).raw] == [pow(base, int(v), 1 << width) for v in x.raw]
    np.testing.assert_array_equal(functions.power(x + y).raw, (functions.power(x) * functions.power(y)).raw)
    np.testing.assert_array_equal(functions.inverse(functions.inverse(x)).raw, x.raw)
    odd = Value(OPS, kind, x.raw | WORDS[width](1))
    assert [int(v) for v in functions.inverse(odd).raw] == [pow(int(v), -1, 1 << width) for v in odd.raw]
    shared = (functions.inverse(odd * y) * odd).raw, functions.inverse(y).raw
    np.testing.assert_array_equal(*shared)  # (c·x)/(c·y) = x/y
    c, s = functions.rotation(x)
    np.testing.assert_array_equal((c * c + s * s).raw, np.ones(400, WORDS[width]))


def test_order_is_total_and_comparisons_with_range_limits_are_false() -> None:
    x = value_of(drawn(np.dtype(np.float32)).view(np.float32))
    assert not np.asarray((x != x).raw).any() and not np.asarray(OPS.compare("uno", t.f32, x.raw, x.raw)).any()
    largest = value_of(np.float32([-np.inf, np.finfo(np.float32).min, 5.0, np.finfo(np.float32).max, np.inf]))
    assert (np.diff(signed(functions.order_key(largest)).astype(np.int64)) > 0).all()
    limit = value_of(np.full(x.raw.shape, -126, np.float32))
    assert not np.asarray((x < limit).raw).any() and not np.asarray((x > limit).raw).any()


def test_conversions_between_types() -> None:
    given = drawn(np.dtype(np.float32)).view(np.float32)
    given = given[np.isfinite(given)]
    for kind in (np.float16, np.float64):
        got = np.asarray(cast(value_of(given), TYPES[np.dtype(kind)]).raw).view(kind)
        np.testing.assert_array_equal(words(got), words(floats(elements(given), np.dtype(kind))))
    rounded = bits(value_of(given), t.u32)
    odd = (rounded.raw >> np.uint32(16)) & np.uint32(1)
    code = functions.rounded_high_half(rounded, Value(OPS, t.u32, odd), Value(OPS, t.u32, np.full(odd.shape, 0x7FFF, np.uint32)))
    np.testing.assert_array_equal(code.raw, rounded.raw)
    half_away = functions.rounded_high_half(rounded, *(Value(OPS, t.u32, np.full(odd.shape, n, np.uint32)) for n in (0x7FFF, 1)))
    np.testing.assert_array_equal(half_away.raw, rounded.raw)
