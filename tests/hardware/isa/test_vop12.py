"""VOP1 and VOP2 bodies against scalar references over special and random bit patterns."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.hardware.isa.types import EXEC, f16x2, i16x2
from tests.support.sweeps import swept
from tests.support.valu_reference import (
    BF16,
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
    f_round_int,
    f_sub,
    f_to_int,
    find,
    int_patterns,
    joined,
    run,
    signed,
)

I16, U16 = (-(1 << 15), (1 << 15) - 1), (0, (1 << 16) - 1)
I32, U32 = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)


def s16(x: int) -> int:
    return signed(x, 16)


def s24(x: int) -> int:
    return signed(x, 24)


def s32(x: int) -> int:
    return signed(x, 32)


def frexp_mant(f: Format) -> Callable[[int], int]:
    def reference(a: int) -> int:
        if f.is_nan(a):
            return a | f.quiet_bit
        if f.is_inf(a) or a & ~f.sign == 0:
            return a
        return f.round(Fraction(math.frexp(float(f.value(a)))[0]))

    return reference


def frexp_exp(f: Format) -> Callable[[int], int]:
    def reference(a: int) -> int:
        if f.is_nan(a) or f.is_inf(a):
            return 0
        return math.frexp(float(f.value(a)))[1]

    return reference


def fract(f: Format) -> Callable[[int], int]:
    def reference(a: int) -> int:
        if f.is_nan(a):
            return a | f.quiet_bit
        if f.is_inf(a):
            return f.nan
        below_one = (f.bias << f.fraction) - 1
        return min(f.round(f.value(a) - math.floor(f.value(a))), below_one)

    return reference


def rounder(f: Format, how: str) -> Callable[[int], int]:
    return lambda a: f_round_int(f, a, how)


def from_int(f: Format, number: int) -> int:
    return f.round(Fraction(number))


def ffbh_i32(a: int) -> int:
    for i in range(1, 32):
        if (a >> (31 - i) & 1) != a >> 31:
            return i
    return -1


def norm(f: Format, scale: int, low: int) -> Callable[[int], int]:
    def reference(a: int) -> int:
        if f.is_nan(a):
            return 0
        if f.is_inf(a):
            return low * scale if f.negative(a) else scale
        limited = min(max(f.value(a), Fraction(low)), Fraction(1))
        product = F32.value(F32.round(limited * scale))  # the product is an f32
        return round(product)

    return reference


def decode_fp8(dtype: Any) -> Callable[[int], int]:
    def reference(a: int) -> int:
        value = np.array([a & 0xFF], np.uint8).view(dtype).astype(np.float32)
        if np.isnan(value[0]):
            negative_nan = a & 0x80 and "fnuz" not in np.dtype(dtype).name
            return 0xFFC00000 if negative_nan else 0x7FC00000
        return int(value.view(np.uint32)[0])

    return reference


def decode_two(dtype: Any) -> Callable[[int], tuple[int, int]]:
    one = decode_fp8(dtype)
    return lambda a: (one(a), one(a >> 8))


def rpi(a: int) -> int:
    return f_to_int(F32, f_round_int(F32, f_add(F32, a, 0x3F000000), "floor"), *I32)


def screen_partition(a: int) -> int:
    x0, y0, x1, y1 = (a >> shift & 3 for shift in (6, 4, 2, 0))
    tiles = ((x, y) for x in range(x0, x0 + (x1 - x0) % 4 + 1) for y in range(y0, y0 + (y1 - y0) % 4 + 1))
    engines = {((x ^ y >> 1) & 1) << 1 | (y ^ x >> 1) & 1 for x, y in tiles}
    return sum(1 << engine for engine in engines)


VOP1: dict[str, Callable[..., Any]] = {
    "v_screen_partition_4se_b32": screen_partition,
    "v_mov_b32": lambda a: a,
    "v_mov_b64": lambda a: a,
    "v_accvgpr_mov_b32": lambda a: a,
    "v_swap_b32": lambda a, vdst: (a, vdst),
    "v_prng_b32": lambda a: (a << 1) ^ (197 if a >> 31 else 0),
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1,
    "v_ffbh_i32": ffbh_i32,
    "v_cvt_i32_f64": lambda a: f_to_int(F64, a, *I32),
    "v_cvt_u32_f64": lambda a: f_to_int(F64, a, *U32),
    "v_cvt_f64_i32": lambda a: from_int(F64, s32(a)),
    "v_cvt_f64_u32": lambda a: from_int(F64, a),
    "v_cvt_f32_i32": lambda a: from_int(F32, s32(a)),
    "v_cvt_f32_u32": lambda a: from_int(F32, a),
    "v_cvt_u32_f32": lambda a: f_to_int(F32, a, *U32),
    "v_cvt_i32_f32": lambda a: f_to_int(F32, a, *I32),
    "v_cvt_f16_f32": lambda a: f_convert(F32, F16, a),
    "v_cvt_f32_f16": lambda a: f_convert(F16, F32, a),
    "v_cvt_f32_f64": lambda a: f_convert(F64, F32, a),
    "v_cvt_f64_f32": lambda a: f_convert(F32, F64, a),
    "v_cvt_f32_bf16": lambda a: f_convert(BF16, F32, a),
    "v_cvt_rpi_i32_f32": rpi,
    "v_cvt_flr_i32_f32": lambda a: f_to_int(F32, f_round_int(F32, a, "floor"), *I32),
    "v_cvt_off_f32_i4": lambda a: F32.round(Fraction(signed(a, 4), 16)),
    **{f"v_cvt_f32_ubyte{i}": lambda a, i=i: from_int(F32, a >> (8 * i) & 0xFF) for i in range(4)},
    "v_cvt_f16_u16": lambda a: from_int(F16, a),
    "v_cvt_f16_i16": lambda a: from_int(F16, s16(a)),
    "v_cvt_u16_f16": lambda a: f_to_int(F16, a, *U16),
    "v_cvt_i16_f16": lambda a: f_to_int(F16, a, *I16),
    "v_cvt_norm_i16_f16": norm(F16, 32767, -1),
    "v_cvt_norm_u16_f16": norm(F16, 65535, 0),
    "v_sat_pk_u8_i16": lambda a: clamped(s16(a[0]), 0, 255) | clamped(s16(a[1]), 0, 255) << 8,
    **{
        f"v_{name}_{suffix}": rounder(f, how)
        for suffix, f in (("f16", F16), ("f32", F32), ("f64", F64))
        for name, how in (
            ("trunc", "trunc"),
            ("ceil", "ceil"),
            ("rndne", "rint"),
            ("floor", "floor"),
        )
    },
    **{f"v_fract_{suffix}": fract(f) for suffix, f in (("f16", F16), ("f32", F32), ("f64", F64))},
    "v_frexp_exp_i32_f32": frexp_exp(F32),
    "v_frexp_exp_i32_f64": frexp_exp(F64),
    "v_frexp_exp_i16_f16": frexp_exp(F16),
    "v_frexp_mant_f16": frexp_mant(F16),
    "v_frexp_mant_f32": frexp_mant(F32),
    "v_frexp_mant_f64": frexp_mant(F64),
}
# Approximations (test_isa_approx.py) and instructions of wave kind (below).
APPROXIMATE = {s.mnemonic for s in REGISTRY.specs if "bounded" in s.flags}
WAVE = {"v_readfirstlane_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32"}
FP8 = {"v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"}


def dot_float(f: Format, a: tuple[int, int], b: tuple[int, int], c: int) -> int:
    for x, y in zip(a, b, strict=True):
        c = f_fma(F32, f_convert(f, F32, x), f_convert(f, F32, y), c)
    return c


def fields(a: int, width: int, is_signed: bool) -> list[int]:
    parts = [a >> i & ((1 << width) - 1) for i in range(0, 32, width)]
    return [signed(x, width) for x in parts] if is_signed else parts


def dot_fields(a: int, b: int, c: int, width: int, is_signed: bool = True) -> int:
    x, y = fields(a, width, is_signed), fields(b, width, is_signed)
    return (s32(c) if is_signed else c) + sum(m * n for m, n in zip(x, y, strict=True))


def legacy(a: int, b: int) -> int:
    zero = 0x7FFFFFFF
    return 0 if a & zero == 0 or b & zero == 0 else f_mul(F32, a, b)


def ldexp(f: Format, exponent_bits: int) -> Callable[[int, int], int]:
    def reference(a: int, b: int) -> int:
        if f.is_nan(a):
            return a | f.quiet_bit
        if f.is_inf(a):
            return a
        power = clamped(signed(b, exponent_bits), -5000, 5000)
        return f.round(f.value(a) * Fraction(2) ** power, f.negative(a))

    return reference


def carried(total: int) -> tuple[int, bool]:
    return total, total >> 32 != 0


def borrowed(total: int) -> tuple[int, bool]:
    return total, total < 0


VOP2: dict[str, Callable[..., Any]] = {
    "v_cndmask_b32": lambda a, b, sel: b if sel else a,
    "v_add_f32": lambda a, b: f_add(F32, a, b),
    "v_sub_f32": lambda a, b: f_sub(F32, a, b),
    "v_subrev_f32": lambda a, b: f_sub(F32, b, a),
    "v_mul_f32": lambda a, b: f_mul(F32, a, b),
    "v_mul_legacy_f32": legacy,
    "v_fmac_f64": lambda a, b, d: f_fma(F64, a, b, d),
    "v_fmac_f32": lambda a, b, d: f_fma(F32, a, b, d),
    "v_fmamk_f32": lambda a, k, b: f_fma(F32, a, k, b),
    "v_fmaak_f32": lambda a, b, k: f_fma(F32, a, b, k),
    "v_mac_f32": lambda a, b, d: f_mad(F32, a, b, d),
    "v_madmk_f32": lambda a, k, b: f_mad(F32, a, k, b),
    "v_madak_f32": lambda a, b, k: f_mad(F32, a, b, k),
    "v_mac_f16": lambda a, b, d: f_mad(F16, a, b, d),
    "v_madmk_f16": lambda a, k, b: f_mad(F16, a, k, b),
    "v_madak_f16": lambda a, b, k: f_mad(F16, a, b, k),
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_min_f32": lambda a, b: f_min(F32, a, b),
    "v_max_f32": lambda a, b: f_max(F32, a, b),
    "v_min_f16": lambda a, b: f_min(F16, a, b),
    "v_max_f16": lambda a, b: f_max(F16, a, b),
    "v_min_i32": lambda a, b: min(s32(a), s32(b)),
    "v_max_i32": lambda a, b: max(s32(a), s32(b)),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i16": lambda a, b: min(s16(a), s16(b)),
    "v_max_i16": lambda a, b: max(s16(a), s16(b)),
    "v_min_u16": min,
    "v_max_u16": max,
    "v_lshrrev_b32": lambda a, b: b >> (a % 32),
    "v_ashrrev_i32": lambda a, b: s32(b) >> (a % 32),
    "v_lshlrev_b32": lambda a, b: b << (a % 32),
    "v_lshrrev_b16": lambda a, b: b >> (a % 16),
    "v_ashrrev_i16": lambda a, b: s16(b) >> (a % 16),
    "v_lshlrev_b16": lambda a, b: b << (a % 16),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_add_co_u32": lambda a, b: carried(a + b),
    "v_sub_co_u32": lambda a, b: borrowed(a - b),
    "v_subrev_co_u32": lambda a, b: borrowed(b - a),
    "v_addc_co_u32": lambda a, b, c: carried(a + b + c),
    "v_subb_co_u32": lambda a, b, c: borrowed(a - b - c),
    "v_subbrev_co_u32": lambda a, b, c: borrowed(b - a - c),
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add_f16": lambda a, b: f_add(F16, a, b),
    "v_sub_f16": lambda a, b: f_sub(F16, a, b),
    "v_subrev_f16": lambda a, b: f_sub(F16, b, a),
    "v_mul_f16": lambda a, b: f_mul(F16, a, b),
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_ldexp_f16": ldexp(F16, 16),
    "v_dot2c_f32_f16": lambda a, b, d: dot_float(F16, a, b, d),
    "v_dot2c_f32_bf16": lambda a, b, d: dot_float(BF16, a, b, d),
    "v_dot2c_i32_i16": lambda a, b, d: dot_fields(joined(i16x2, a), joined(i16x2, b), d, 16),
    "v_dot4c_i32_i8": lambda a, b, d: dot_fields(a, b, d, 8),
    "v_dot8c_i32_i4": lambda a, b, d: dot_fields(a, b, d, 4),
    "v_pk_fmac_f16": lambda a, b, d: [f_fma(F16, *row) for row in zip(a, b, d, strict=True)],
}
# With clamp the exact result saturates: (reference of the exact value, limits).
CLAMPED: dict[str, tuple[Callable[..., int], tuple[int, int]]] = {
    "v_add_u32": (lambda a, b: a + b, U32),
    "v_sub_u32": (lambda a, b: a - b, U32),
    "v_subrev_u32": (lambda a, b: b - a, U32),
    "v_add_u16": (lambda a, b: a + b, U16),
    "v_sub_u16": (lambda a, b: a - b, U16),
    "v_subrev_u16": (lambda a, b: b - a, U16),
    "v_mul_i32_i24": (lambda a, b: s24(a) * s24(b), I32),
    "v_mul_u32_u24": (lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF), U32),
    "v_dot2c_i32_i16": (VOP2["v_dot2c_i32_i16"], I32),
    "v_dot4c_i32_i8": (VOP2["v_dot4c_i32_i8"], I32),
    "v_dot8c_i32_i4": (VOP2["v_dot8c_i32_i4"], I32),
}
CLAMPED_CARRY: dict[str, Callable[..., int]] = {
    "v_add_co_u32": lambda a, b: a + b,
    "v_sub_co_u32": lambda a, b: a - b,
    "v_subrev_co_u32": lambda a, b: b - a,
    "v_addc_co_u32": lambda a, b, c: a + b + c,
    "v_subb_co_u32": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32": lambda a, b, c: b - a - c,
}


@swept("mnemonic", [*VOP1, *VOP2])
def test_body(mnemonic: str) -> None:
    reference = VOP1.get(mnemonic) or VOP2[mnemonic]
    check(find(mnemonic), reference)


@pytest.mark.parametrize("mnemonic", CLAMPED)
def test_clamp(mnemonic: str) -> None:
    exact, limits = CLAMPED[mnemonic]
    check(find(mnemonic), lambda *row: clamped(exact(*row), *limits), clamp=1)


@pytest.mark.parametrize("mnemonic", CLAMPED_CARRY)
def test_clamp_keeps_the_carry(mnemonic: str) -> None:
    exact = CLAMPED_CARRY[mnemonic]

    def reference(*row: int) -> tuple[int, bool]:
        total = exact(*row)
        return clamped(total, *U32), not 0 <= total <= U32[1]

    check(find(mnemonic), reference, clamp=1)


@pytest.mark.parametrize("mnemonic", ["v_min_f32", "v_max_f32", "v_min_f16", "v_max_f16"])
def test_without_ieee_mode_a_signaling_nan_loses_too(mnemonic: str) -> None:
    f = F32 if mnemonic.endswith("f32") else F16
    reference = f_min if "min" in mnemonic else f_max
    check(find(mnemonic), lambda a, b: reference(f, a, b, ieee=0), ieee=0)


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_widening_every_8_bit_float(name: str, target: str) -> None:
    dtype = {
        ("fp8", "gfx942"): ml_dtypes.float8_e4m3fnuz,
        ("bf8", "gfx942"): ml_dtypes.float8_e5m2fnuz,
        ("fp8", "gfx950"): ml_dtypes.float8_e4m3fn,
        ("bf8", "gfx950"): ml_dtypes.float8_e5m2,
    }[name, target]
    codes = list(range(256))
    rubbish = [0xABCD0000 | x << 8 | x for x in codes]
    assert run(find(f"v_cvt_f32_{name}", target), [rubbish]) == [decode_fp8(dtype)(x) for x in codes]
    check(find(f"v_cvt_pk_f32_{name}", target), decode_two(dtype))


def test_every_lane_instruction_has_a_reference() -> None:
    for encoding, table in (("vop1", {**VOP1, **dict.fromkeys(WAVE | FP8)}), ("vop2", VOP2)):
        ours = {
            s.mnemonic
            for s in REGISTRY.specs
            if s.encoding == encoding and s.kind != "control" and s.mnemonic not in APPROXIMATE
        }
        assert ours - set(table) == set()


def test_clamp_parameters_are_all_tested() -> None:
    with_clamp = {
        s.mnemonic
        for s in REGISTRY.specs
        if s.encoding == "vop2" and any(p.name == "clamp" for p in s.params)
    }
    assert with_clamp == set(CLAMPED) | set(CLAMPED_CARRY)


@pytest.mark.parametrize("active", [0, 1, 0x8000000000000000, 0xF0, 1 << 33])
def test_readfirstlane(active: int) -> None:
    spec = find("v_readfirstlane_b32")
    assert spec.params[1].type is EXEC
    row = np.arange(1000, 1064, dtype=np.uint32)
    lane = (active & -active).bit_length() - 1 if active else 0
    assert int(evaluate(spec, row, np.uint64(active))) == 1000 + lane


@pytest.mark.parametrize("distance", [16, 32])
def test_permlane_swaps(distance: int) -> None:
    rng = np.random.default_rng(0)
    a, d = (np.array(int_patterns(32, 64, rng), np.uint32) for _ in range(2))
    new_d, new_a = evaluate(find(f"v_permlane{distance}_swap_b32"), a, d)
    want_a, want_d = a.copy(), d.copy()
    for lane in range(64):
        if not lane & distance:
            want_a[lane], want_d[lane + distance] = d[lane + distance], a[lane]
    assert np.array_equal(new_a, want_a) and np.array_equal(new_d, want_d)


def test_pair_operands_are_low_half_first() -> None:
    spec = find("v_dot2c_f32_f16")
    one_two, three_zero = joined(f16x2, [0x3C00, 0x4000]), joined(f16x2, [0x4200, 0])
    got = evaluate(spec, np.uint32(one_two), np.uint32(three_zero), np.uint32(0))
    assert int(got) == 0x40400000


def test_screen_partition_is_the_table_of_the_guide() -> None:
    got = run(find("v_screen_partition_4se_b32"), [list(range(256))])
    guide = "1 3 7 f 5 f f f 7 f f f f f f f f 2 6 e f a f f f b f f f f f f"
    assert got[:32] == [int(entry, 16) for entry in guide.split()]
    assert got == [screen_partition(select) for select in range(256)]
