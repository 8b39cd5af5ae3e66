"""Conversions to and from 8-, 6- and 4-bit floats against ml_dtypes and rationals."""

from __future__ import annotations

import itertools
from bisect import bisect
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.hardware.isa.types import f32 as f32_type
from tests.support.valu_reference import (
    BF16,
    F16,
    F32,
    Format,
    f_convert,
    find,
    patterns,
    run,
    to_raw,
)

DTYPES = {
    ("fp8", "gfx942"): ml_dtypes.float8_e4m3fnuz,
    ("bf8", "gfx942"): ml_dtypes.float8_e5m2fnuz,
    ("fp8", "gfx950"): ml_dtypes.float8_e4m3fn,
    ("bf8", "gfx950"): ml_dtypes.float8_e5m2,
    ("fp6", "gfx950"): ml_dtypes.float6_e2m3fn,
    ("bf6", "gfx950"): ml_dtypes.float6_e3m2fn,
    ("fp4", "gfx950"): ml_dtypes.float4_e2m1fn,
}
WIDTHS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
LARGEST = {"fp8": 448, "bf8": 57344, "fp6": Fraction(15, 2), "bf6": 28, "fp4": 6}
FORMATS = {"f32": F32, "f16": F16, "bf16": BF16}
ONE = 0x3F800000


@cache
def codes(name: str, target: str = "gfx950") -> dict[int, Fraction]:
    """Returns the value of every finite code."""
    raw = np.arange(1 << WIDTHS[name], dtype=np.uint8)
    values = raw.view(DTYPES[name, target]).astype(np.float64)
    return {int(c): Fraction(float(v)) for c, v in zip(raw, values, strict=True) if np.isfinite(v)}


def special(name: str, target: str, what: str, negative: bool) -> int:
    """Returns the code of an infinity, a NaN or a finite number out of range."""
    sign = negative << (WIDTHS[name] - 1)
    if target == "gfx942":
        return 0x80
    if name in ("fp6", "bf6", "fp4"):
        return sign | (1 << (WIDTHS[name] - 1)) - 1
    if name == "fp8":
        return sign | 0x7F
    return sign | (0x7E if what == "nan" else 0x7C)


def nearest(name: str, target: str = "gfx950", largest: int = 0) -> Callable[[Fraction], int]:
    """Returns a function to the nearest code, ties to even. Out of range: `largest` if given, else the special code."""
    table = codes(name, target)
    positive = sorted((v, c) for c, v in table.items() if not c >> (WIDTHS[name] - 1))
    quantum = positive[-1][0] - positive[-2][0]
    top = positive[-1][0]

    values = [value for value, _ in positive]

    def reference(number: Fraction) -> int:
        size, sign = abs(number), (number < 0) << (WIDTHS[name] - 1)
        if size >= top + quantum / 2:
            at_tie_to_even = size == top + quantum / 2 and not positive[-1][1] & 1
            if not at_tie_to_even:
                return sign | largest if largest else special(name, target, "big", number < 0)
        at = bisect(values, size)
        rows = positive[at - 1 : at + 1]  # the neighbours
        value, code = min(rows, key=lambda row: (abs(row[0] - size), row[1] & 1))
        return 0 if target == "gfx942" and value == 0 else sign | code

    return reference


def to_small(name: str, target: str, source: Format, ovfl: bool = False) -> Callable[[int, int], int]:
    """Returns the reference of a narrowing by a scale's exponent field, nearest even."""
    top = max(codes(name, target), key=lambda c: codes(name, target)[c])
    pick = nearest(name, target, top if ovfl else 0)

    def reference(a: int, field: int = 127) -> int:
        negative = source.negative(a)
        if source.is_nan(a) or field == 255:
            return special(name, target, "nan", negative)
        if source.is_inf(a):
            return special(name, target, "inf", negative)
        number = source.value(a) / Fraction(2) ** (field - 127)
        if number == 0:
            return 0 if target == "gfx942" else negative << (WIDTHS[name] - 1)
        code = pick(number)
        if code == 0 and negative and target == "gfx950":
            return 1 << (WIDTHS[name] - 1)
        return code

    return reference


def inputs(source: Format, name: str, count: int = 500) -> list[int]:
    """Returns numbers around every code and midpoint of the format, and random bits."""
    rng = np.random.default_rng(len(name) + source.bits)
    values = sorted({abs(v) for v in codes(name).values()})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    beyond = [values[-1] * Fraction(k, 64) for k in (63, 65, 66, 67, 68, 69, 72, 80, 1000)]
    exact = [source.round(v) for v in values + middles + beyond]
    near = [x + d for x in exact for d in (-1, 0, 1) if 0 <= x + d < source.sign]
    rest = [int(x) for x in rng.integers(0, source.sign, count)]
    return [x | (source.sign if rng.integers(2) else 0) for x in near + rest]


@pytest.mark.parametrize("ovfl", [0, 1])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_pack_8_bits(name: str, target: str, ovfl: int) -> None:
    a = inputs(F32, name)
    b = a[::-1]
    one = to_small(name, target, F32, bool(ovfl))
    got = run(find(f"v_cvt_pk_{name}_f32", target), [a, b], fp16_ovfl=ovfl)
    assert got == [one(x) | one(y) << 8 for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_pack_agrees_with_ml_dtypes(name: str, target: str) -> None:
    a = np.random.default_rng(3).integers(0, 1 << 32, 20000, dtype=np.uint32)
    a[::2] = (a[::2] & 0x807FFFFF) | (a[::2] % 40 + 107) << 23
    a = a[~np.isnan(a.view(np.float32))]
    want = a.view(np.float32).astype(DTYPES[name, target]).view(np.uint8)
    got = evaluate(find(f"v_cvt_pk_{name}_f32", target), a, a)
    assert np.array_equal(got & 0xFF, want) and np.array_equal(got >> 8, want)


@cache
def positive_codes(name: str, target: str) -> list[tuple[Fraction, int]]:
    return sorted((v, c) for c, v in codes(name, target).items() if not c >> (WIDTHS[name] - 1))


def neighbours(name: str, target: str, number: Fraction) -> tuple[int, int, Fraction]:
    """Returns the codes below and above |number|, and its position between them (0 to 1)."""
    table = positive_codes(name, target)
    at = bisect([value for value, _ in table], number)
    below, above = table[at - 1], table[at]
    return below[1], above[1], (number - below[0]) / (above[0] - below[0])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_stochastic_rounding_of_8_bits(name: str, target: str) -> None:
    """Rounds up exactly when the position between two codes plus the seed's fraction reaches 1."""
    rng = np.random.default_rng(4)
    low, high = (F32.round(Fraction(x)) for x in (Fraction(1, 64), Fraction(200)))
    a = [int(x) for x in rng.integers(low, high, 400)]
    seeds = [int(x) for x in rng.integers(0, 1 << 32, 400)]
    seeds[:2] = [0, 0xFFFFFFFF]
    old = [0x11223344] * 400
    lost = 23 - (3 if name == "fp8" else 2)
    for byte in range(4):
        got = run(find(f"v_cvt_sr_{name}_f32", target), [a, seeds, old], op_sel=byte << 2)
        for x, seed, result in zip(a, seeds, got, strict=True):
            below, above, at = neighbours(name, target, F32.value(x))
            code = above if at + Fraction(seed >> (32 - lost), 1 << lost) >= 1 else below
            assert result == 0x11223344 & ~(0xFF << 8 * byte) | code << 8 * byte


def test_stochastic_rounding_to_16_bits() -> None:
    rng = np.random.default_rng(5)
    a, seeds = patterns(f32_type, 600, rng), [int(x) for x in rng.integers(0, 1 << 32, 600)]
    for name, f, lost in (("f16", F16, 13), ("bf16", BF16, 16)):
        for x, seed, result in zip(a, seeds, run(find(f"v_cvt_sr_{name}_f32"), [a, seeds]), strict=True):
            if F32.is_nan(x) or F32.is_inf(x):
                assert result == f_convert(F32, f, x)
                continue
            floor = f_convert(F32, f, x, toward_zero=True)
            if floor & ~f.sign >> 1 < 1 << f.fraction:
                continue  # denormal results align the seed differently
            if abs(F32.value(x)) >= f.value(f.inf - 1):
                continue
            step = f.value(floor + 1) - f.value(floor)
            at = (F32.value(x) - f.value(floor)) / step
            up = at + Fraction(seed >> (32 - lost), 1 << lost) >= 1
            assert result == floor + up
    none, all_ = find("v_cvt_sr_f16_f32"), [0xFFFFFFFF]
    assert run(none, [[0x477FFFFF], all_]) == [0x7C00]  # 65535.996 outgrows f16
    assert run(none, [[0x477FFFFF], [0]]) == [0x7BFF]
    assert run(none, [[0x33800000], [0]]) == [1] and run(none, [[0x33000000], [0]]) == [0]


# Scaled conversions of gfx950


def scales(count: int, seed: int = 6) -> list[int]:
    """Returns f32 scales: mostly near 1, with signs and fractions that must not matter, and the extremes."""
    rng = np.random.default_rng(seed)
    near = rng.integers(120, 135, count)
    ends = rng.choice([0, 1, 254, 255], count)
    fields = np.where(rng.integers(0, 8, count) == 0, ends, near)
    return [
        int(f) << 23 | int(r) & 0x807FFFFF
        for f, r in zip(fields, rng.integers(0, 1 << 32, count), strict=True)
    ]


def field(scale: int) -> int:
    return scale >> 23 & 0xFF


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_scaled_pack_8_bits(name: str, source: str) -> None:
    f, spec = FORMATS[source], find(f"v_cvt_scalef32_pk_{name}_{source}")
    a = inputs(f, name)
    b, s = a[::-1], scales(len(a))
    operands = [a, b, s] if source == "f32" else [list(zip(a, b, strict=True)), s]
    one = to_small(name, "gfx950", f)
    want = [one(x, field(z)) | one(y, field(z)) << 8 for x, y, z in zip(a, b, s, strict=True)]
    assert run(spec, operands) == want
    saturated = to_small(name, "gfx950", f, ovfl=True)
    want = [saturated(x, field(z)) | saturated(y, field(z)) << 8 for x, y, z in zip(a, b, s, strict=True)]
    assert run(spec, operands, fp16_ovfl=1) == want


@pytest.mark.parametrize("source", FORMATS)
def test_scaled_pack_4_bits(source: str) -> None:
    f, spec = FORMATS[source], find(f"v_cvt_scalef32_pk_fp4_{source}")
    a = inputs(f, "fp4")
    b, s, old = a[::-1], scales(len(a)), [0xAABBCCDD] * len(a)
    operands = [a, b, s, old] if source == "f32" else [list(zip(a, b, strict=True)), s, old]
    one = to_small("fp4", "gfx950", f)
    for byte in range(4):
        want = [
            0xAABBCCDD & ~(0xFF << 8 * byte) | (one(x, field(z)) | one(y, field(z)) << 4) << 8 * byte
            for x, y, z in zip(a, b, s, strict=True)
        ]
        assert run(spec, operands, op_sel=byte << 2) == want


def widened(name: str, f: Format) -> Callable[[int, int], int]:
    table = codes(name)
    raw = np.arange(1 << WIDTHS[name], dtype=np.uint8).view(DTYPES[name, "gfx950"]).astype(np.float64)

    def reference(code: int, scale: int) -> int:
        negative = bool(code >> (WIDTHS[name] - 1))
        if field(scale) == 255:
            return f.nan
        if np.isnan(raw[code]):
            return f.nan | (f.sign if negative else 0)
        if np.isinf(raw[code]):
            return f.inf | (f.sign if negative else 0)
        return f.round(table[code] * Fraction(2) ** (field(scale) - 127), negative)

    return reference


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_scaled_widening_of_8_bits(name: str, to: str) -> None:
    one = widened(name, FORMATS[to])
    rng = np.random.default_rng(8)
    words, s = [int(x) for x in rng.integers(0, 1 << 32, 600)], scales(600)
    spec = find(f"v_cvt_scalef32_pk_{to}_{name}")
    for half in (0, 1):
        check_pairs(
            spec,
            words,
            s,
            half,
            lambda w, h=half: (w >> 16 * h & 0xFF, w >> 16 * h + 8 & 0xFF),
            one,
        )
    if to == "bf16":
        return
    for byte in range(4):
        got = run(find(f"v_cvt_scalef32_{to}_{name}"), [words, s], op_sel=byte)
        assert got == [one(w >> 8 * byte & 0xFF, z) for w, z in zip(words, s, strict=True)]


def check_pairs(
    spec: Any, words: list[int], s: list[int], op_sel: int, split: Callable, one: Callable
) -> None:
    shift = spec.results[0].element.bits
    want = [one(split(w)[0], z) | one(split(w)[1], z) << shift for w, z in zip(words, s, strict=True)]
    assert run(spec, [words, s], op_sel=op_sel) == want


@pytest.mark.parametrize("to", FORMATS)
def test_scaled_widening_of_4_bits(to: str) -> None:
    rng = np.random.default_rng(9)
    words, s = [int(x) for x in rng.integers(0, 1 << 32, 400)], scales(400)
    spec, one = find(f"v_cvt_scalef32_pk_{to}_fp4"), widened("fp4", FORMATS[to])
    for byte in range(4):
        check_pairs(spec, words, s, byte, lambda w, b=byte: (w >> 8 * b & 15, w >> 8 * b + 4 & 15), one)


def block(f: Format, name: str, lanes: int) -> list[list[int]]:
    pool = inputs(f, name)
    rng = np.random.default_rng(10)
    return [[pool[int(i)] for i in rng.integers(0, len(pool), 32)] for _ in range(lanes)]


def packed(parts: list[int], width: int) -> int:
    return sum(x << (i * width) for i, x in enumerate(parts))


@pytest.mark.parametrize("name", ["fp6", "bf6"])
@pytest.mark.parametrize("source", FORMATS)
def test_blocks_of_6_bits(name: str, source: str) -> None:
    f, s = FORMATS[source], scales(20)
    rows, one = block(f, name, 20), to_small(name, "gfx950", f)
    if source == "f32":
        spec = find(f"v_cvt_scalef32_2xpk16_{name}_f32")
        operands = [[r[0::2] for r in rows], [r[1::2] for r in rows], s]
    else:
        spec, operands = find(f"v_cvt_scalef32_pk32_{name}_{source}"), [rows, s]
    want = [packed([one(x, field(z)) for x in row], 6) for row, z in zip(rows, s, strict=True)]
    assert run(spec, operands) == want

    back, wide = find(f"v_cvt_scalef32_pk32_{source}_{name}"), widened(name, f)
    words = [[w >> 32 * i & 0xFFFFFFFF for i in range(6)] for w in want]
    bits = f.bits
    again = [
        packed([wide(w >> 6 * i & 63, z) for i in range(32)], bits) for w, z in zip(want, s, strict=True)
    ]
    assert run(back, [words, s]) == again


def prng(seed: int) -> int:
    return (seed << 1 ^ (197 if seed >> 31 else 0)) & 0xFFFFFFFF


def stochastic(name: str, f: Format, a: int, scale: int, seed: int) -> int | None:
    """Returns the code of a number whose rounding the specification defines: normal results in range."""
    lost = 23 - {"fp8": 3, "bf8": 2, "fp6": 3, "bf6": 2, "fp4": 1}[name]
    number = abs(f.value(a)) / Fraction(2) ** (field(scale) - 127)
    if number >= Fraction(LARGEST[name]) or number < 1:
        return None
    below, above, at = neighbours(name, "gfx950", number)
    code = above if at + Fraction(seed >> (32 - lost), 1 << lost) >= 1 else below
    return code | f.negative(a) << (WIDTHS[name] - 1)


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4", "fp6", "bf6"])
def test_scaled_stochastic_rounding(name: str, source: str) -> None:
    """Checks every element in order; the seed steps through V_PRNG_B32 between elements."""
    f, rng, lanes = FORMATS[source], np.random.default_rng(11), 60
    n = {"fp8": 1, "bf8": 1, "fp4": 2}.get(name, 32)
    one, top = (f.round(Fraction(x)) for x in (1, 100))
    rows = [[int(x) for x in rng.integers(one, top, n)] for _ in range(lanes)]
    rows = [[x | (f.sign if rng.integers(2) else 0) for x in row] for row in rows]
    s = [int(e) << 23 for e in rng.integers(124, 130, lanes)]
    seeds = [int(x) for x in rng.integers(0, 1 << 32, lanes)]
    stem = {1: f"sr_{name}", 2: "sr_pk_fp4", 32: f"sr_pk32_{name}"}[n]
    spec = find(f"v_cvt_scalef32_{stem}_{source}", "gfx950")
    operands: list[list[Any]] = [[r[0] for r in rows] if n == 1 else rows, seeds, s]
    if n < 32:
        operands.append([0] * lanes)
    decided = 0
    for row, scale, seed, result in zip(rows, s, seeds, run(spec, operands), strict=True):
        for i, x in enumerate(row):
            want = stochastic(name, f, x, scale, seed)
            if want is not None:
                decided += 1
                assert result >> (i * WIDTHS[name]) & ((1 << WIDTHS[name]) - 1) == want
            seed = prng(seed)
    assert decided > lanes // 4


def test_layout_of_blocks() -> None:
    """32 elements of 32 bits are 32 registers, element i in register i."""
    spec = find("v_cvt_scalef32_pk32_f32_fp6")
    words = to_raw(spec.params[0].type, [[0b001000, 0, 0, 0, 0, 0]])  # element 0 is 1.0
    result = evaluate(spec, words, np.array([ONE], np.uint32))
    assert result.shape == (32, 1) and int(result[0, 0]) == ONE and not result[1:].any()


def test_every_small_float_conversion_is_tested() -> None:
    """Compares the names that the tests above build with the table."""
    eight, six, types = ("fp8", "bf8"), ("fp6", "bf6"), tuple(FORMATS)
    scaled = {
        *(f"pk_{n}_{x}" for n in (*eight, "fp4") for x in types),
        *(f"pk_{x}_{n}" for n in (*eight, "fp4") for x in types),
        *(f"{x}_{n}" for n in eight for x in ("f32", "f16")),
        *(f"2xpk16_{n}_f32" for n in six),
        *(f"pk32_{n}_{x}" for n in six for x in ("f16", "bf16")),
        *(f"pk32_{x}_{n}" for n in six for x in types),
        *(f"sr_{n}_{x}" for n in eight for x in types),
        *(f"sr_pk_fp4_{x}" for x in types),
        *(f"sr_pk32_{n}_{x}" for n in six for x in types),
    }
    plain = ("pk_fp8", "pk_bf8", "sr_fp8", "sr_bf8", "sr_f16", "sr_bf16")
    ours = {
        s.mnemonic
        for s in REGISTRY.specs
        if s.encoding == "vop3" and any(x in s.mnemonic for x in ("fp8", "bf8", "scalef32", "_sr_"))
    }
    assert ours == {f"v_cvt_scalef32_{x}" for x in scaled} | {f"v_cvt_{x}_f32" for x in plain}
