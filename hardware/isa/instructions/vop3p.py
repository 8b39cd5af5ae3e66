"""VOP3P: packed arithmetic, mixed-precision multiply-add, dot products.

A body with flag `packed` is for one element and is applied to both halves: op_sel and op_sel_hi select each
source's half, neg_lo and neg_hi negate it. Matrix instructions, which share the encoding, are rows of
`simgpu.hardware.mfma`.
"""

from __future__ import annotations

from simgpu.hardware.architectures import GFX950, SINCE_GFX90A
from simgpu.hardware.isa.arithmetic import floats
from simgpu.hardware.isa.arithmetic.dots import dot_bf16, dot_bytes, dot_f16, dot_i16, dot_nibbles
from simgpu.hardware.isa.arithmetic.integers import saturate
from simgpu.hardware.isa.arithmetic.vectors import modifier
from simgpu.hardware.isa.encodings import vop3p
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, ashr, cast, fma, imax, imin, lshr, shl
from simgpu.hardware.isa.types import (
    Type,
    bf16x2,
    f16,
    f16x2,
    f32,
    i16,
    i16x2,
    i32,
    i64,
    u16,
    u16x2,
    u32,
    u32x2,
)

PACKED = (Flag.PACKED,)


def _sum(a: Value, b: Value, type_: Type, clamp: int) -> Value:
    return saturate(cast(a, i32) + cast(b, i32), type_, clamp) if clamp else a + b


def _difference(a: Value, b: Value, type_: Type, clamp: int) -> Value:
    return saturate(cast(a, i32) - cast(b, i32), type_, clamp) if clamp else a - b


def _multiply_add(a: Value, b: Value, c: Value, type_: Type, clamp: int) -> Value:
    if not clamp:
        return a * b + c
    return saturate(cast(a, i64) * cast(b, i64) + cast(c, i64), type_, clamp)


@vop3p(0, flags=PACKED)
def v_pk_mad_i16(a: i16, b: i16, c: i16, clamp: modifier = 0) -> i16:
    return _multiply_add(a, b, c, i16, clamp)


@vop3p(1, flags=PACKED)
def v_pk_mul_lo_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return saturate(cast(a, i64) * cast(b, i64), u16, clamp) if clamp else a * b


@vop3p(2, flags=PACKED)
def v_pk_add_i16(a: i16, b: i16, clamp: modifier = 0) -> i16:
    return _sum(a, b, i16, clamp)


@vop3p(3, flags=PACKED)
def v_pk_sub_i16(a: i16, b: i16, clamp: modifier = 0) -> i16:
    return _difference(a, b, i16, clamp)


@vop3p(4, flags=PACKED)
def v_pk_lshlrev_b16(a: u16, b: u16) -> u16:
    """b << a[3:0]."""
    return shl(b, a)


@vop3p(5, flags=PACKED)
def v_pk_lshrrev_b16(a: u16, b: u16) -> u16:
    """b >> a[3:0]."""
    return lshr(b, a)


@vop3p(6, flags=PACKED)
def v_pk_ashrrev_i16(a: u16, b: i16) -> i16:
    """b >> a[3:0], arithmetic."""
    return ashr(b, a)


@vop3p(7, flags=PACKED)
def v_pk_max_i16(a: i16, b: i16) -> i16:
    return imax(a, b)


@vop3p(8, flags=PACKED)
def v_pk_min_i16(a: i16, b: i16) -> i16:
    return imin(a, b)


@vop3p(9, flags=PACKED)
def v_pk_mad_u16(a: u16, b: u16, c: u16, clamp: modifier = 0) -> u16:
    return _multiply_add(a, b, c, u16, clamp)


@vop3p(10, flags=PACKED)
def v_pk_add_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return _sum(a, b, u16, clamp)


@vop3p(11, flags=PACKED)
def v_pk_sub_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return _difference(a, b, u16, clamp)


@vop3p(12, flags=PACKED)
def v_pk_max_u16(a: u16, b: u16) -> u16:
    return imax(a, b)


@vop3p(13, flags=PACKED)
def v_pk_min_u16(a: u16, b: u16) -> u16:
    return imin(a, b)


@vop3p(14, flags=PACKED)
def v_pk_fma_f16(a: f16, b: f16, c: f16) -> f16:
    """a·b + c, rounded once."""
    return fma(a, b, c)


@vop3p(15, flags=PACKED)
def v_pk_add_f16(a: f16, b: f16) -> f16:
    return a + b


@vop3p(16, flags=PACKED)
def v_pk_mul_f16(a: f16, b: f16) -> f16:
    return a * b


@vop3p(17, flags=PACKED)
def v_pk_min_f16(a: f16, b: f16, ieee: modifier = 1) -> f16:
    return floats.minimum_number(a, b, ieee)


@vop3p(18, flags=PACKED)
def v_pk_max_f16(a: f16, b: f16, ieee: modifier = 1) -> f16:
    return floats.maximum_number(a, b, ieee)


@vop3p(27, targets=GFX950, flags=PACKED)
def v_pk_minimum3_f16(a: f16, b: f16, c: f16) -> f16:
    """IEEE 754-2019 minimum of three; a NaN if one is."""
    return floats.minimum(floats.minimum(a, b), c)


@vop3p(28, targets=GFX950, flags=PACKED)
def v_pk_maximum3_f16(a: f16, b: f16, c: f16) -> f16:
    """IEEE 754-2019 maximum of three; a NaN if one is."""
    return floats.maximum(floats.maximum(a, b), c)


@vop3p(48, targets=SINCE_GFX90A, flags=PACKED)
def v_pk_fma_f32(a: f32, b: f32, c: f32) -> f32:
    """a·b + c, rounded once."""
    return fma(a, b, c)


@vop3p(49, targets=SINCE_GFX90A, flags=PACKED)
def v_pk_mul_f32(a: f32, b: f32) -> f32:
    return a * b


@vop3p(50, targets=SINCE_GFX90A, flags=PACKED)
def v_pk_add_f32(a: f32, b: f32) -> f32:
    return a + b


@vop3p(51, targets=SINCE_GFX90A)
def v_pk_mov_b32(a: u32x2, b: u32x2, op_sel: modifier = 0) -> u32x2:
    """Register of a that op_sel[0] selects, then register of b that op_sel[1] selects."""
    return a[op_sel & 1], b[op_sel >> 1 & 1]


@vop3p(32, flags=(Flag.MIX,))
def v_fma_mix_f32(a: f32, b: f32, c: f32) -> f32:
    """a·b + c, rounded once; op_sel_hi selects f16 for a source, op_sel then its half."""
    return fma(a, b, c)


@vop3p(33, flags=(Flag.MIX, Flag.PRESERVE_HIGH))
def v_fma_mixlo_f16(a: f32, b: f32, c: f32) -> f16:
    """v_fma_mix_f32's result rounded to f16, in the low half of vdst."""
    return cast(fma(a, b, c), f16)


@vop3p(34, flags=(Flag.MIX, Flag.WRITE_HIGH))
def v_fma_mixhi_f16(a: f32, b: f32, c: f32) -> f16:
    """v_fma_mix_f32's result rounded to f16, in the high half of vdst."""
    return cast(fma(a, b, c), f16)


@vop3p(35, flags=(Flag.UNVERIFIED,))
def v_dot2_f32_f16(a: f16x2, b: f16x2, c: f32) -> f32:
    """c + a.lo·b.lo + a.hi·b.hi, a rounding after each addition."""
    return dot_f16(a, b, c)


@vop3p(26, targets=GFX950, flags=(Flag.UNVERIFIED,))
def v_dot2_f32_bf16(a: bf16x2, b: bf16x2, c: f32) -> f32:
    """c + a.lo·b.lo + a.hi·b.hi, as v_dot2c_f32_bf16; the guide's formula adds the products first."""
    return dot_bf16(a, b, c)


@vop3p(38)
def v_dot2_i32_i16(a: i16x2, b: i16x2, c: i32, clamp: modifier = 0) -> i32:
    return dot_i16(a, b, c, clamp)


@vop3p(39)
def v_dot2_u32_u16(a: u16x2, b: u16x2, c: u32, clamp: modifier = 0) -> u32:
    return dot_i16(a, b, c, clamp)


@vop3p(40)
def v_dot4_i32_i8(a: i32, b: i32, c: i32, clamp: modifier = 0) -> i32:
    return dot_bytes(a, b, c, clamp)


@vop3p(41)
def v_dot4_u32_u8(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    return dot_bytes(a, b, c, clamp)


@vop3p(42)
def v_dot8_i32_i4(a: i32, b: i32, c: i32, clamp: modifier = 0) -> i32:
    return dot_nibbles(a, b, c, clamp)


@vop3p(43)
def v_dot8_u32_u4(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    return dot_nibbles(a, b, c, clamp)
