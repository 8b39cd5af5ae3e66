"""Matrix instructions at the range limits of their fast paths: cancelling sums, denormal results, C far from products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from simgpu.hardware.mfma import find
from simgpu.hardware.mfma.instruction import BITS
from simgpu.matrix.one_mfma import DTYPES
from tests.support.mfma_operands import F8F6F4_FORMATS, assert_same, executed, expected, moderate, operands, rng_of


@pytest.mark.parametrize("ends", [(-52, -48), (-50, 10), (0, 0), (-6, 60), (57, 62)], ids=str)
@pytest.mark.parametrize("name, formats", F8F6F4_FORMATS[:2], ids=str)
def test_scales_at_the_ends_of_the_fast_path(name, formats, ends):
    """Some blocks have only zero products; C nearly cancels, or is tiny, huge or 0."""
    rng = rng_of(name, formats, ends)
    for fp8 in (False, True):
        row = find(name, "gfx950").with_formats(*((0, 0) if fp8 else formats))
        made = operands(row, rng, moderate)
        total = rng.integers(ends[0], ends[1] + 1, (1, row.m, row.k // 32))
        made["SCALE_A"] = (127 + total // 2).astype(np.uint64)
        made["SCALE_B"] = np.full_like(made["SCALE_B"], 127 + int(ends[1]) // 2)
        made["SCALE_B"][:, :, ::2] = 127 + int(ends[0]) - int(ends[0]) // 2
        made["A"].reshape(1, row.m, -1, 32)[:, ::3, ::2] = 0
        made["A"].reshape(1, row.m, -1, 32)[:, 5] = 0
        for kind in range(4):
            c = expected(row, made | {"C": np.zeros_like(made["C"])}).astype(np.uint64) ^ np.uint64(1 << 31)
            if kind == 1:
                c = rng.integers(0, 1 << 32, c.shape, dtype=np.uint64)
            elif kind:
                c = (c & np.uint64(1 << 31)) | np.uint64({2: 20 << 23, 3: 0}[kind])
            made["C"] = c
            assert_same(row, executed(row, made, **({} if fp8 else {"cbsz": formats[0], "blgp": formats[1]})), expected(row, made))


@pytest.mark.parametrize("name, formats", F8F6F4_FORMATS[:2], ids=str)
@pytest.mark.parametrize("lowest", [145, 195, 254])
@pytest.mark.parametrize("which", ["SCALE_A", "SCALE_B"])
def test_nan_scale_beside_small_ones(name, formats, lowest, which):
    """A NaN's byte, 255, and the other operand's make a sum that finite scales have, too."""
    rng = rng_of(name, formats, lowest, which)
    row = find(name, "gfx950").with_formats(*formats)
    made = operands(row, rng, moderate)
    for scale in ("SCALE_A", "SCALE_B"):
        low, high = (lowest, 255) if scale == which else (58, 60)
        made[scale] = rng.integers(low, high, made[scale].shape).astype(np.uint64)
    made[which].flat[-1] = 255
    wanted = expected(row, made)
    assert np.isnan(wanted.astype(np.uint32).view(np.float32)).any() and not (wanted == 0x7FC00000).all()
    assert_same(row, executed(row, made, cbsz=formats[0], blgp=formats[1]), wanted)


@pytest.mark.parametrize("least", [-102, -90, -89, -88, -87, -70])
def test_bf16_of_cdna2_at_the_exponents_where_results_may_be_denormal(least):
    """Products go down to 2^least; C nearly cancels sums, or is denormal itself."""
    row = find("v_mfma_f32_32x32x8bf16_1k", "gfx90a")
    rng = rng_of("flush", least)
    made = operands(row, rng, moderate)
    for name, low in (("A", least // 2), ("B", least - least // 2)):
        exponent = rng.integers(low, low + 3, made[name].shape) + 127
        made[name] = made[name] & np.uint64(0x807F) | exponent.astype(np.uint64) << np.uint64(7)
    zero = made | {"C": np.zeros_like(made["C"])}
    made["C"] = expected(row, zero).astype(np.uint64) ^ np.uint64(1 << 31)
    nudge = rng.integers(-2, 3, made["C"].shape)
    made["C"] = (made["C"].astype(np.int64) + nudge).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    made["C"][..., ::5] = rng.integers(0, 1 << 23, made["C"][..., ::5].shape, dtype=np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


EDGES = [
    ("v_mfma_f32_16x16x16_bf16", (-40, 46)),
    ("v_mfma_f32_16x16x8_xf32", (-40, 46)),
    ("v_mfma_f32_16x16x16_f16", (-14, 15)),
    ("v_mfma_f32_16x16x32_fp8_bf8", (-7, 7)),
]


@pytest.mark.parametrize("name, edge", EDGES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ends", [False, True])
def test_sums_at_the_ends_of_the_range_of_the_fast_path(name, edge, seed, ends):
    """Exponents at and past the limits, and zeros; C is the negative sum or zero.

    Past the fast path's limit, C is tiny, huge or infinite.
    """
    row = find(name, "gfx942")
    rng = rng_of(name, seed)
    made = operands(row, rng, moderate)
    for operand, kind in (("A", row.a_type), ("B", row.b_type)):
        if kind in ("bf16", "xf32"):
            fraction = 7 if kind == "bf16" else 23
            span = (edge[0], edge[0] + 3) if seed == 0 else (edge[1] - 3, edge[1]) if seed == 1 else (-5, 5)
            exponent = rng.integers(span[0], span[1] + 1, made[operand].shape) + 127
            if seed == 2:
                exponent.flat[0] += {"A": edge[0] - 6, "B": edge[1] + 6}[operand]
            keep = np.uint64((1 << (BITS[kind] - 1)) | (1 << fraction) - 1)
            made[operand] = made[operand] & keep | exponent.astype(np.uint64) << np.uint64(fraction)
        made[operand] = np.where(rng.random(made[operand].shape) < 0.2, 0, made[operand]).astype(np.uint64)
    made["A"][:, 3] = 0  # a row of D without a product
    cancelling = expected(row, made | {"C": np.zeros_like(made["C"])}).astype(np.uint64) ^ np.uint64(1 << 31)
    made["C"] = np.where(np.isnan(cancelling.astype(np.uint32).view(np.float32)), 0, cancelling).astype(np.uint64)
    if not ends:
        tiny = made["C"] & np.uint64(0x7FFFFFFF) < 50 << 23
        made["C"][tiny | (rng.random(tiny.shape) < 0.5)] = 0
        assert_same(row, executed(row, made), expected(row, made))
        return
    bounds = [0, 1 << 31, 1, (47 << 23) - 1, 47 << 23, (1 << 31) | (46 << 23), (1 << 31) | (48 << 23) | 5]
    for at, bits in enumerate([*bounds, 0x7F7FFFFF]):
        made["C"][..., at::16] = np.where(rng.random(made["C"][..., at::16].shape) < 0.5, bits, made["C"][..., at::16])
    made["C"][:, 3] = rng.integers(0, 1 << 23, made["C"][:, 3].shape)
    assert_same(row, executed(row, made), expected(row, made))
    made["C"][0, 5, 7], made["C"][0, 6, 1] = 0x7F800000, 0xFFC00000
    assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("large", [40, 46, 47, 60, 87])
@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x8_xf32"])
def test_zero_times_a_large_number_is_no_product(name, large):
    """Zeros come next to small products: the exponents of their operands are the largest."""
    row = find(name, "gfx942")
    rng = rng_of(name, "zeros", large)
    made = operands(row, rng, moderate)
    fraction = 7 if row.a_type == "bf16" else 23
    keep = np.uint64((1 << (BITS[row.a_type] - 1)) | (1 << fraction) - 1)
    for operand in "AB":
        exponent = rng.integers(-40, -38, made[operand].shape) + 127
        made[operand] = made[operand] & keep | exponent.astype(np.uint64) << np.uint64(fraction)
    made["A"][..., 1] = 0
    made["B"][:, 1] = np.uint64((127 + large) << fraction)
    made["C"][:] = 0
    assert_same(row, executed(row, made), expected(row, made))


SUMS = ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x8_xf32", "v_mfma_f32_16x16x32_fp8_fp8"]


@pytest.mark.parametrize("name", SUMS)
def test_a_small_c_beside_products_that_cancel(name):
    """Products are 1 and −1, C is ±2^(i − 33): truncation toward −∞ is all that remains; FP8 drops C altogether."""
    row = find(name, "gfx942")
    rng = rng_of("small", name)
    made = {operand: np.zeros_like(values) for operand, values in operands(row, rng, moderate).items()}
    for operand, kind, places in (("A", row.a_type, [(..., 0), (..., 2)]), ("B", row.b_type, [np.s_[:, 0], np.s_[:, 2]])):
        ones = np.array([1, -1 if operand == "B" else 1], DTYPES[kind])
        for place, one in zip(places, ones.view(f"u{ones.itemsize}"), strict=True):
            made[operand][place] = one
    shape = made["C"].shape
    mantissa = rng.choice([1, 1 + 2.0**-23, 1.5, 2 - 2.0**-23], shape) * rng.choice([1, -1], shape)
    made["C"] = (mantissa * 2.0 ** (np.arange(16) - 33)[:, None]).astype(np.float32).view(np.uint32).astype(np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("step, least", [(1, -8), (1, -36), (3, -20)])
def test_c_at_every_distance_from_the_products(name, step, least):
    """Row i of D adds C of 2^(step·i + least) times the products; few bits of each are set, so sums are often ties."""
    row = find(name, "gfx942")
    rng = rng_of(name, step, least)
    made = operands(row, rng, moderate)
    for operand, kind in (("A", row.a_type), ("B", row.b_type)):
        shape = made[operand].shape
        values = rng.choice([0.0, 1.0, -1.0, 1.5, 2.0**-6, -(2.0**-7), 1.875], shape).astype(DTYPES[kind])
        made[operand] = values.view(f"u{values.itemsize}").astype(np.uint64)
    shape = made["C"].shape
    apart = 2.0 ** (step * np.arange(16) + least)
    last = rng.choice([0, 1, 1 << 22, (1 << 23) - 1, 3 << 21, 2], shape)
    mantissa = rng.choice([1.0, -1.0], shape) * (1 + last / (1 << 23))
    made["C"] = (mantissa * apart[:, None]).astype(np.float32).view(np.uint32).astype(np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


INTEGERS = [
    ("v_mfma_f32_16x16x32_f16", (0, 0), "gfx950"),
    ("v_mfma_f32_32x32x8_bf16", (0, 0), "gfx942"),
    ("v_mfma_f32_16x16x32_fp8_bf8", (0, 0), "gfx942"),
    ("v_mfma_f32_16x16x128_f8f6f4", (0, 0), "gfx950"),
    ("v_mfma_scale_f32_32x32x64_f8f6f4", (0, 1), "gfx950"),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (4, 4), "gfx950"),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (3, 2), "gfx950"),
]


def integers_of(rng: np.random.Generator, kind: str, shape: tuple[int, ...], span: int) -> np.ndarray:
    """Draws integers below 2^(span + 1), as far as the type has them in units of a denormal: small ones and multiples of others."""
    mantissa = ml_dtypes.finfo(DTYPES[kind]).nmant
    exponents = rng.integers(0, max(span - mantissa, 0) + 1, shape)
    return rng.choice([-1.0, 1.0], shape) * rng.integers(0, 2 << min(span, mantissa), shape) * 2.0**exponents


def put_values(made: dict[str, np.ndarray], operand: str, kind: str, values: np.ndarray) -> float:
    """Stores integers as elements in units of their type's least denormal, or of 2^-12. Returns the largest power of two of
    which all are multiples."""
    unit = max(float(ml_dtypes.finfo(DTYPES[kind]).smallest_subnormal), 2.0**-12)
    stored = (values * unit).astype(DTYPES[kind])
    made[operand] = stored.view(f"u{stored.itemsize}").astype(np.uint64)
    bits = int(np.bitwise_or.reduce(np.abs(stored.astype(np.float64) / unit).astype(np.int64), axis=None))
    return unit * (bits & -bits)


def bits_of(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32).astype(np.uint64)


@pytest.mark.parametrize("name, formats, target", INTEGERS, ids=str)
@pytest.mark.parametrize("span", [0, 2, 5, 11, 12, 13])
def test_sums_of_integers(name, formats, target, span):
    """Products without a cut bit: C is a multiple of their unit or not, small, near 2^30 units, or special.

    Scales are alike, or as far apart as the unit of the least allows, and farther. The first products are the largest.
    """
    rng = rng_of("integers", name, formats, span)
    row = find(name, target)
    row = row.with_formats(*formats) if "f8f6f4" in name else row
    mods = {"cbsz": formats[0], "blgp": formats[1]} if any(formats) else {}
    for apart in sorted({0, 1, 23 - 2 * span, 24 - 2 * span, 25 - 2 * span, 26 - 2 * span}) if row.scaled else (0,):
        made = operands(row, rng, moderate)
        unit = 1.0
        for operand, kind, first in (("A", row.a_type, np.s_[..., 0]), ("B", row.b_type, np.s_[:, 0])):
            values = integers_of(rng, kind, made[operand].shape, span)
            values[first] = 2.0**span
            unit *= put_values(made, operand, kind, values)
        if row.scaled:
            made["SCALE_A"][:] = 127
            made["SCALE_B"][:] = 127
            made["SCALE_B"][:, 0] = 127 + max(apart, 0)
        shape = made["C"].shape
        total = expected(row, made | {"C": np.zeros_like(made["C"])}).astype(np.uint32).view(np.float32)
        signs = rng.choice([-1.0, 1.0], shape)
        choices = [
            np.zeros(shape), -total, signs * rng.integers(0, 4, shape) * unit, signs * rng.integers(0, 1 << 24, shape) * unit,
            signs * (2.0**30 - rng.integers(0, 3, shape) * 64) * unit, signs * (2.0**30 + rng.integers(-1, 2, shape) * 128) * unit,
            signs * rng.integers(0, 1 << 24, shape) * unit / 2,
            rng.choice([-0.0, 2.0**-149, -(2.0**-149), 2.0**-126, 2.0**127, np.inf, -np.inf, np.nan], shape),
        ]  # fmt: skip
        for c in (*choices, np.choose(rng.integers(0, len(choices), shape), choices)):
            made["C"] = bits_of(c)
            assert_same(row, executed(row, made, **mods), expected(row, made))


@pytest.mark.parametrize("name, formats, target", INTEGERS, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("above", [0, 1])
def test_largest_sums_of_integers(name, formats, target, sign, above):
    """Elements are the largest of their type with 13 bits, and C is at most 2^30 units, or a little more: 32 bits overflow."""
    row = find(name, target)
    row = row.with_formats(*formats) if "f8f6f4" in name else row
    mods = {"cbsz": formats[0], "blgp": formats[1]} if any(formats) else {}
    made = operands(row, rng_of("largest", name, formats), moderate)
    unit = 1.0
    for operand, kind in (("A", row.a_type), ("B", row.b_type)):
        largest = (2.0 - 2.0 ** -ml_dtypes.finfo(DTYPES[kind]).nmant) * 4096
        values = np.full(made[operand].shape, largest)
        values.flat[3] = 1
        unit *= put_values(made, operand, kind, values)
    for scale in ("SCALE_A", "SCALE_B") if row.scaled else ():
        made[scale][:] = 127
    steps = np.arange(made["C"].size).reshape(made["C"].shape) % 5 - 4 + above
    made["C"] = bits_of(sign * (2.0**30 + 64 * steps) * unit)
    assert_same(row, executed(row, made, **mods), expected(row, made))
