"""VOP3-only bodies against scalar references: integers, halves, f32, f64, lanes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY
from tests.hardware.isa.test_vop12 import I16, I32, U16, U32, ldexp, legacy, norm, s16, s24, s32
from tests.support.sweeps import swept
from tests.support.valu_reference import (
    F16,
    F32,
    F64,
    Format,
    check,
    clamped,
    f_add,
    f_convert,
    f_fma,
    f_mad,
    f_max,
    f_min,
    f_mul,
    find,
    first_nan,
    flush,
    order,
    run,
    signed,
)

I64, U64 = (-(1 << 63), (1 << 63) - 1), (0, (1 << 64) - 1)
Reference = Callable[..., Any]


def s64(x: int) -> int:
    return signed(x, 64)


def bytes_of(x: int) -> list[int]:
    return [x >> (8 * i) & 0xFF for i in range(4)]


def sad(a: int, b: int, masked: bool = False) -> int:
    rows = zip(bytes_of(a), bytes_of(b), strict=True)
    return sum(abs(x - y) for x, y in rows if y or not masked)


def windows(a: int, b: int, c: tuple[int, ...], masked: bool) -> list[int]:
    return [sad(a >> (8 * i) & 0xFFFFFFFF, b, masked) + x for i, x in enumerate(c)]


def bfe_u32(a: int, b: int, c: int) -> int:
    return a >> (b % 32) & ((1 << (c % 32)) - 1)


def bfe_i32(a: int, b: int, c: int) -> int:
    width = c % 32
    return signed(s32(a) >> (b % 32), width) if width else 0


def lerp(a: int, b: int, c: int) -> int:
    rows = enumerate(zip(bytes_of(a), bytes_of(b), bytes_of(c), strict=True))
    return sum((x + y + (z & 1)) // 2 << (8 * i) for i, (x, y, z) in rows)


def perm(a: int, b: int, c: int) -> int:
    source = bytes_of(b) + bytes_of(a)

    def select(s: int) -> int:
        if s >= 13:
            return 0xFF
        if s == 12:
            return 0
        if s >= 8:
            return 0xFF if source[(1, 3, 5, 7)[s - 8]] & 0x80 else 0
        return source[s]

    return sum(select(s) << (8 * i) for i, s in enumerate(bytes_of(c)))


def median(*values: int) -> int:
    return sorted(values)[1]


def f_med3(f: Format) -> Reference:
    def reference(a: int, b: int, c: int) -> int:
        if first_nan(f, a, b, c) is not None:
            return f_min(f, f_min(f, a, b), c)
        most = f_max(f, f_max(f, a, b), c)

        def equal(x: int) -> bool:
            return most == x or (most | x) & ~f.sign == 0

        pair = (b, c) if equal(a) else (a, c) if equal(b) else (a, b)
        return f_max(f, *pair)

    return reference


def f_minimum(f: Format, pick: Callable) -> Reference:
    def reference(*values: int) -> int:
        nan = first_nan(f, *values)
        return nan if nan is not None else pick(values, key=lambda x: order(f, x))

    return reference


def mad_legacy(a: int, b: int, c: int) -> int:
    a, b, c = (flush(F32, x) for x in (a, b, c))
    return flush(F32, f_add(F32, flush(F32, legacy(a, b)), c))


def magnitude(x: int) -> Fraction | float:
    return float("inf") if F32.is_inf(x) else abs(F32.value(x))


def negated(x: int) -> int:
    return x ^ F32.sign


def below_zero(x: int) -> bool:
    return F32.negative(x) and x != F32.sign


def cube(which: str) -> Reference:
    """Returns the reference for face, s, t or doubled major axis of a direction without NaNs."""

    def reference(x: int, y: int, z: int) -> int:
        sizes = [magnitude(v) for v in (x, y, z)]
        if sizes[2] >= sizes[0] and sizes[2] >= sizes[1]:
            axis, back = z, below_zero(z)
            face, s, t = (5, negated(x), negated(y)) if back else (4, x, negated(y))
        elif sizes[1] >= sizes[0]:
            axis, back = y, below_zero(y)
            face, s, t = (3, x, negated(z)) if back else (2, x, z)
        else:
            axis, back = x, below_zero(x)
            face, s, t = (1, z, negated(y)) if back else (0, negated(z), negated(y))
        doubled = f_add(F32, axis, axis)
        return {"id": F32.round(Fraction(face)), "sc": s, "tc": t, "ma": doubled}[which]

    return reference


def mad_i64(a: int, b: int, c: int) -> tuple[int, bool]:
    total = s32(a) * s32(b) + s64(c)
    return total, bool(total >> 64 & 1)


def fma(f: Format) -> Reference:
    return lambda a, b, c: f_fma(f, a, b, c)


def shifted_pair(low: int, high: int) -> Reference:
    def reference(a: int, b: int, c: int) -> int:
        x, y = (clamped(s32(v) >> (c % 32), low, high) & 0xFF for v in (a, b))
        return x | y << 8

    return reference


def into_byte(old: int, value: int, index: int) -> int:
    at = 8 * (index % 4)
    return old & ~(0xFF << at) | value << at


def to_u8(a: int) -> int:
    if F32.is_nan(a):
        return 0
    if F32.is_inf(a):
        return 0 if F32.negative(a) else 255
    return clamped(round(F32.value(a)), 0, 255)


REFERENCES: dict[str, Reference] = {
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + s32(c),
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_bfe_u32": bfe_u32,
    "v_bfe_i32": bfe_i32,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_lerp_u8": lerp,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c % 32),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> (8 * (c % 4)),
    "v_min3_i32": lambda *v: min(map(s32, v)),
    "v_max3_i32": lambda *v: max(map(s32, v)),
    "v_med3_i32": lambda *v: median(*map(s32, v)),
    "v_min3_u32": lambda *v: min(v),
    "v_max3_u32": lambda *v: max(v),
    "v_med3_u32": median,
    "v_sad_u8": lambda a, b, c: sad(a, b) + c,
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b) << 16) + c,
    "v_sad_u16": lambda a, b, c: abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_msad_u8": lambda a, b, c: sad(a, b, masked=True) + c,
    "v_qsad_pk_u16_u8": lambda a, b, c: windows(a, b, c, masked=False),
    "v_mqsad_pk_u16_u8": lambda a, b, c: windows(a, b, c, masked=True),
    "v_mqsad_u32_u8": lambda a, b, c: windows(a, b, c, masked=True),
    "v_perm_b32": perm,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b % 32)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c % 32),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_or_b32": lambda a, b, c: a << (b % 32) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_bfm_b32": lambda a, b: ((1 << (a % 32)) - 1) << (b % 32),
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    # halves
    "v_mad_legacy_f16": lambda a, b, c: f_mad(F16, a, b, c),
    "v_mad_f16": lambda a, b, c: f_mad(F16, a, b, c),
    "v_fma_legacy_f16": fma(F16),
    "v_fma_f16": fma(F16),
    "v_mad_legacy_u16": lambda a, b, c: a * b + c,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_legacy_i16": lambda a, b, c: a * b + c,
    "v_mad_i16": lambda a, b, c: a * b + c,
    "v_mad_u32_u16": lambda a, b, c: a * b + c,
    "v_mad_i32_i16": lambda a, b, c: s16(a) * s16(b) + c,
    "v_min3_f16": lambda a, b, c: f_min(F16, f_min(F16, a, b), c),
    "v_max3_f16": lambda a, b, c: f_max(F16, f_max(F16, a, b), c),
    "v_med3_f16": f_med3(F16),
    "v_min3_i16": lambda *v: min(map(s16, v)),
    "v_max3_i16": lambda *v: max(map(s16, v)),
    "v_med3_i16": lambda *v: median(*map(s16, v)),
    "v_min3_u16": lambda *v: min(v),
    "v_max3_u16": lambda *v: max(v),
    "v_med3_u16": median,
    "v_ashr_pk_i8_i32": shifted_pair(-128, 127),
    "v_ashr_pk_u8_i32": shifted_pair(0, 255),
    "v_add_i16": lambda a, b: a + b,
    "v_sub_i16": lambda a, b: a - b,
    "v_pack_b32_f16": lambda a, b: [a, b],
    # f32
    "v_mad_legacy_f32": mad_legacy,
    "v_mad_f32": lambda a, b, c: f_mad(F32, a, b, c),
    "v_fma_f32": fma(F32),
    "v_min3_f32": lambda a, b, c: f_min(F32, f_min(F32, a, b), c),
    "v_max3_f32": lambda a, b, c: f_max(F32, f_max(F32, a, b), c),
    "v_med3_f32": f_med3(F32),
    "v_ldexp_f32": ldexp(F32, 32),
    "v_mul_legacy_f32": legacy,
    "v_minimum3_f32": f_minimum(F32, min),
    "v_maximum3_f32": f_minimum(F32, max),
    # 64 bits
    "v_fma_f64": fma(F64),
    "v_add_f64": lambda a, b: f_add(F64, a, b),
    "v_mul_f64": lambda a, b: f_mul(F64, a, b),
    "v_min_f64": lambda a, b: f_min(F64, a, b),
    "v_max_f64": lambda a, b: f_max(F64, a, b),
    "v_ldexp_f64": ldexp(F64, 32),
    "v_lshlrev_b64": lambda a, b: b << (a % 64),
    "v_lshrrev_b64": lambda a, b: b >> (a % 64),
    "v_ashrrev_i64": lambda a, b: s64(b) >> (a % 64),
    "v_lshl_add_u64": lambda a, b, c: (a << (b % 8)) + c,
    "v_mad_u64_u32": lambda a, b, c: (a * b + c, a * b + c >> 64 != 0),
    "v_mad_i64_i32": mad_i64,
    # conversions
    "v_cvt_pk_u8_f32": lambda a, b, c: into_byte(c, to_u8(a), b),
    "v_cvt_pkaccum_u8_f32": lambda a, b, d: into_byte(d, to_u8(a), b),
    "v_cvt_pknorm_i16_f32": lambda *v: [norm(F32, 32767, -1)(x) for x in v],
    "v_cvt_pknorm_u16_f32": lambda *v: [norm(F32, 65535, 0)(x) for x in v],
    "v_cvt_pknorm_i16_f16": lambda *v: [norm(F16, 32767, -1)(x) for x in v],
    "v_cvt_pknorm_u16_f16": lambda *v: [norm(F16, 65535, 0)(x) for x in v],
    "v_cvt_pkrtz_f16_f32": lambda *v: [f_convert(F32, F16, x, toward_zero=True) for x in v],
    "v_cvt_pk_u16_u32": lambda *v: [min(x, 0xFFFF) for x in v],
    "v_cvt_pk_i16_i32": lambda *v: [clamped(s32(x), *I16) for x in v],
    "v_cvt_pk_f16_f32": lambda *v: [f_convert(F32, F16, x) for x in v],
    "v_cvt_pk_bf16_f32": lambda *v: [f_convert(F32, Format(16, 7), x) for x in v],
}
CLAMPED: dict[str, tuple[Reference, tuple[int, int]]] = {
    "v_mad_i32_i24": (REFERENCES["v_mad_i32_i24"], I32),
    "v_mad_i32_i16": (lambda a, b, c: s16(a) * s16(b) + s32(c), I32),
    "v_mad_legacy_i16": (lambda a, b, c: s16(a) * s16(b) + s16(c), I16),
    "v_mad_i16": (lambda a, b, c: s16(a) * s16(b) + s16(c), I16),
    "v_add_i16": (lambda a, b: s16(a) + s16(b), I16),
    "v_sub_i16": (lambda a, b: s16(a) - s16(b), I16),
    "v_add_i32": (lambda a, b: s32(a) + s32(b), I32),
    "v_sub_i32": (lambda a, b: s32(a) - s32(b), I32),
    **{
        name: (REFERENCES[name], U32)
        for name in ("v_mad_u32_u24", "v_mad_u32_u16", "v_sad_u8", "v_sad_hi_u8", "v_sad_u16",
                     "v_sad_u32", "v_msad_u8")
    },
    **{name: (REFERENCES[name], U16) for name in ("v_mad_legacy_u16", "v_mad_u16")},
}  # fmt: skip
CLAMPED_LISTS = {"v_qsad_pk_u16_u8": U16, "v_mqsad_pk_u16_u8": U16, "v_mqsad_u32_u8": U32}
# Tested in this file below, in test_isa_division.py and in test_isa_small_floats.py.
ELSEWHERE = {
    *(f"v_cube{x}_f32" for x in ("id", "sc", "tc", "ma")),
    "v_bitop3_b32",
    "v_bitop3_b16",
    "v_mbcnt_lo_u32_b32",
    "v_mbcnt_hi_u32_b32",
    "v_readlane_b32",
    "v_writelane_b32",
    "v_trig_preop_f64",
    *(f"v_div_{x}_{f}" for x in ("scale", "fmas", "fixup") for f in ("f32", "f64")),
    "v_div_fixup_f16",
    "v_div_fixup_legacy_f16",
}


@swept("mnemonic", REFERENCES)
def test_body(mnemonic: str) -> None:
    check(vop3(mnemonic), REFERENCES[mnemonic])


def vop3(mnemonic: str) -> Any:
    return next(s for s in REGISTRY.specs if s.encoding == "vop3" and s.mnemonic == mnemonic)


@pytest.mark.parametrize("mnemonic", CLAMPED)
def test_clamp(mnemonic: str) -> None:
    exact, limits = CLAMPED[mnemonic]
    check(vop3(mnemonic), lambda *row: clamped(exact(*row), *limits), clamp=1)


@pytest.mark.parametrize("mnemonic", CLAMPED_LISTS)
def test_clamp_of_packed_sums(mnemonic: str) -> None:
    exact, limits = REFERENCES[mnemonic], CLAMPED_LISTS[mnemonic]
    check(vop3(mnemonic), lambda *row: [clamped(x, *limits) for x in exact(*row)], clamp=1)


def test_clamp_of_wide_multiply_adds() -> None:
    def unsigned(a: int, b: int, c: int) -> tuple[int, bool]:
        return clamped(a * b + c, *U64), a * b + c > U64[1]

    def signed_(a: int, b: int, c: int) -> tuple[int, bool]:
        return clamped(s32(a) * s32(b) + s64(c), *I64), mad_i64(a, b, c)[1]

    check(vop3("v_mad_u64_u32"), unsigned, clamp=1)
    check(vop3("v_mad_i64_i32"), signed_, clamp=1)


def test_every_lane_instruction_has_a_reference() -> None:
    ours = {
        s.mnemonic
        for s in REGISTRY.specs
        if s.encoding == "vop3" and s.kind != "control" and "fp8" not in s.mnemonic
    }
    small = {m for m in ours if "scalef32" in m or "_bf8_" in m or "_sr_" in m}
    assert ours - small == set(REFERENCES) | ELSEWHERE


@pytest.mark.parametrize("which", ["id", "sc", "tc", "ma"])
def test_cube(which: str) -> None:
    spec, rng = find(f"v_cube{which}_f32"), np.random.default_rng(0)
    axes = np.array([0, F32.sign, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 1, F32.inf])
    columns = [[int(x) for x in rng.choice(axes, 400)] for _ in range(3)]
    want = [cube(which)(*row) for row in zip(*columns, strict=True)]
    assert run(spec, columns) == want


@pytest.mark.parametrize("table", [0, 0x80, 0xF0, 0xCC, 0xAA, 0x96, 0xE8, 0x1B, 0xFF])
@pytest.mark.parametrize("bits", [16, 32])
def test_bitop3(table: int, bits: int) -> None:
    def reference(a: int, b: int, c: int) -> int:
        index = [(a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in range(bits)]
        return sum((table >> k & 1) << i for i, k in enumerate(index))

    check(find(f"v_bitop3_b{bits}"), reference, lanes=60, bitop3=table)


def test_mbcnt() -> None:
    rng = np.random.default_rng(1)
    mask = int(rng.integers(0, 1 << 63, dtype=np.uint64))
    low = np.full(64, mask & 0xFFFFFFFF, np.uint32)
    high = np.full(64, mask >> 32, np.uint32)
    partial = evaluate(find("v_mbcnt_lo_u32_b32"), low, np.zeros(64, np.uint32))
    total = evaluate(find("v_mbcnt_hi_u32_b32"), high, partial)
    assert [int(x) for x in total] == [(mask & ((1 << i) - 1)).bit_count() for i in range(64)]


def test_readlane_and_writelane() -> None:
    row = np.arange(1000, 1064, dtype=np.uint32)
    for lane in (0, 5, 63, 64 + 7):
        assert int(evaluate(find("v_readlane_b32"), row, np.uint32(lane))) == 1000 + lane % 64
        written = evaluate(find("v_writelane_b32"), np.uint32(1), np.uint32(lane), row)
        want = row.copy()
        want[lane % 64] = 1
        assert np.array_equal(written, want)


@pytest.mark.parametrize("mnemonic", ["v_min3_f32", "v_max3_f32"])
def test_without_ieee_mode(mnemonic: str) -> None:
    pick = f_min if "min" in mnemonic else f_max
    check(find(mnemonic), lambda a, b, c: pick(F32, pick(F32, a, b, 0), c, 0), ieee=0)


def test_medians_of_nans_follow_the_minimum() -> None:
    spec = find("v_med3_f32")
    nan, one, two = 0x7FC00000, 0x3F800000, 0x40000000
    assert run(spec, [[nan, one, two], [two, nan, one], [one, two, nan]]) == [one, one, one]
