"""VOP2: two-operand arithmetic, logic, shifts, carries, multiply-accumulate."""

from __future__ import annotations

from simgpu.hardware.architectures import BEFORE_GFX942, GFX908, GFX950, SINCE_GFX90A, SINCE_GFX942
from simgpu.hardware.isa.arithmetic import floats
from simgpu.hardware.isa.arithmetic.dots import dot_bf16, dot_bytes, dot_f16, dot_i16, dot_nibbles
from simgpu.hardware.isa.arithmetic.integers import add, add_carry, low24_signed, low24_unsigned, multiply, saturate, sub_borrow
from simgpu.hardware.isa.arithmetic.vectors import modifier
from simgpu.hardware.isa.encodings import vop2
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import ashr, cast, either, fma, imax, imin, lshr, mul_hi, shl, where
from simgpu.hardware.isa.types import (
    bf16x2,
    f16,
    f16x2,
    f32,
    f64,
    i16,
    i16x2,
    i32,
    mask,
    u16,
    u32,
)

NO_SDWA = (Flag.NO_SDWA,)
LITERAL = (Flag.NO_SDWA, Flag.NO_DPP, Flag.NO_E64)


@vop2(0)
def v_cndmask_b32(a: u32, b: u32, sel: mask) -> u32:
    """b in lanes whose bit of sel is set, else a."""
    return where(sel, b, a)


@vop2(1)
def v_add_f32(a: f32, b: f32) -> f32:
    return a + b


@vop2(2)
def v_sub_f32(a: f32, b: f32) -> f32:
    return a - b


@vop2(3)
def v_subrev_f32(a: f32, b: f32) -> f32:
    return b - a


@vop2(4, targets=GFX908)
def v_mul_legacy_f32(a: f32, b: f32) -> f32:
    """a·b with 0·x = 0 for every x."""
    return where(either(a == 0.0, b == 0.0), 0.0, a * b)


@vop2(4, targets=SINCE_GFX90A, flags=NO_SDWA)
def v_fmac_f64(a: f64, b: f64, vdst: f64) -> f64:
    return fma(a, b, vdst)


@vop2(5)
def v_mul_f32(a: f32, b: f32) -> f32:
    return a * b


@vop2(6)
def v_mul_i32_i24(a: i32, b: i32, clamp: modifier = 0) -> i32:
    return multiply(low24_signed(a), low24_signed(b), clamp)


@vop2(7)
def v_mul_hi_i32_i24(a: i32, b: i32) -> i32:
    return mul_hi(low24_signed(a), low24_signed(b))


@vop2(8)
def v_mul_u32_u24(a: u32, b: u32, clamp: modifier = 0) -> u32:
    return multiply(low24_unsigned(a), low24_unsigned(b), clamp)


@vop2(9)
def v_mul_hi_u32_u24(a: u32, b: u32) -> u32:
    return mul_hi(low24_unsigned(a), low24_unsigned(b))


@vop2(10)
def v_min_f32(a: f32, b: f32, ieee: modifier = 1) -> f32:
    return floats.minimum_number(a, b, ieee)


@vop2(11)
def v_max_f32(a: f32, b: f32, ieee: modifier = 1) -> f32:
    return floats.maximum_number(a, b, ieee)


@vop2(12)
def v_min_i32(a: i32, b: i32) -> i32:
    return imin(a, b)


@vop2(13)
def v_max_i32(a: i32, b: i32) -> i32:
    return imax(a, b)


@vop2(14)
def v_min_u32(a: u32, b: u32) -> u32:
    return imin(a, b)


@vop2(15)
def v_max_u32(a: u32, b: u32) -> u32:
    return imax(a, b)


@vop2(16)
def v_lshrrev_b32(a: u32, b: u32) -> u32:
    return lshr(b, a)


@vop2(17)
def v_ashrrev_i32(a: u32, b: i32) -> i32:
    return ashr(b, a)


@vop2(18)
def v_lshlrev_b32(a: u32, b: u32) -> u32:
    return shl(b, a)


@vop2(19)
def v_and_b32(a: u32, b: u32) -> u32:
    return a & b


@vop2(20)
def v_or_b32(a: u32, b: u32) -> u32:
    return a | b


@vop2(21)
def v_xor_b32(a: u32, b: u32) -> u32:
    return a ^ b


@vop2(61)
def v_xnor_b32(a: u32, b: u32) -> u32:
    return ~(a ^ b)


@vop2(22, targets=BEFORE_GFX942, flags=NO_SDWA)
def v_mac_f32(a: f32, b: f32, vdst: f32) -> f32:
    """a·b + vdst, rounded twice; denormals are flushed independently of MODE (LLVM)."""
    return floats.multiply_add(a, b, vdst)


@vop2(23, targets=BEFORE_GFX942, flags=LITERAL)
def v_madmk_f32(a: f32, k: f32, b: f32) -> f32:
    """a·k + b; see v_mac_f32."""
    return floats.multiply_add(a, k, b)


@vop2(24, targets=BEFORE_GFX942, flags=LITERAL)
def v_madak_f32(a: f32, b: f32, k: f32) -> f32:
    """a·b + k; see v_mac_f32."""
    return floats.multiply_add(a, b, k)


@vop2(23, targets=SINCE_GFX942, flags=LITERAL)
def v_fmamk_f32(a: f32, k: f32, b: f32) -> f32:
    return fma(a, k, b)


@vop2(24, targets=SINCE_GFX942, flags=LITERAL)
def v_fmaak_f32(a: f32, b: f32, k: f32) -> f32:
    return fma(a, b, k)


@vop2(59, flags=NO_SDWA)
def v_fmac_f32(a: f32, b: f32, vdst: f32) -> f32:
    """a·b + vdst, rounded once."""
    return fma(a, b, vdst)


@vop2(25)
def v_add_co_u32(a: u32, b: u32, clamp: modifier = 0) -> (u32, mask):
    return add_carry(a, b, None, clamp)


@vop2(26)
def v_sub_co_u32(a: u32, b: u32, clamp: modifier = 0) -> (u32, mask):
    return sub_borrow(a, b, None, clamp)


@vop2(27)
def v_subrev_co_u32(a: u32, b: u32, clamp: modifier = 0) -> (u32, mask):
    return sub_borrow(b, a, None, clamp)


@vop2(28)
def v_addc_co_u32(a: u32, b: u32, carry: mask, clamp: modifier = 0) -> (u32, mask):
    return add_carry(a, b, carry, clamp)


@vop2(29)
def v_subb_co_u32(a: u32, b: u32, borrow: mask, clamp: modifier = 0) -> (u32, mask):
    return sub_borrow(a, b, borrow, clamp)


@vop2(30)
def v_subbrev_co_u32(a: u32, b: u32, borrow: mask, clamp: modifier = 0) -> (u32, mask):
    return sub_borrow(b, a, borrow, clamp)


@vop2(52)
def v_add_u32(a: u32, b: u32, clamp: modifier = 0) -> u32:
    return add(a, b, clamp)


@vop2(53)
def v_sub_u32(a: u32, b: u32, clamp: modifier = 0) -> u32:
    return sub_borrow(a, b, None, clamp)[0]


@vop2(54)
def v_subrev_u32(a: u32, b: u32, clamp: modifier = 0) -> u32:
    return sub_borrow(b, a, None, clamp)[0]


@vop2(31)
def v_add_f16(a: f16, b: f16) -> f16:
    return a + b


@vop2(32)
def v_sub_f16(a: f16, b: f16) -> f16:
    return a - b


@vop2(33)
def v_subrev_f16(a: f16, b: f16) -> f16:
    return b - a


@vop2(34)
def v_mul_f16(a: f16, b: f16) -> f16:
    return a * b


@vop2(35, flags=NO_SDWA)
def v_mac_f16(a: f16, b: f16, vdst: f16) -> f16:
    """a·b + vdst, rounded twice, denormals flushed; vdst's high half becomes 0 (CDNA4 guide; LLVM does not rely on it)."""
    return floats.multiply_add(a, b, vdst)


@vop2(36, flags=LITERAL)
def v_madmk_f16(a: f16, k: f16, b: f16) -> f16:
    """a·k + b; see v_mac_f16."""
    return floats.multiply_add(a, k, b)


@vop2(37, flags=LITERAL)
def v_madak_f16(a: f16, b: f16, k: f16) -> f16:
    """a·b + k; see v_mac_f16."""
    return floats.multiply_add(a, b, k)


@vop2(38)
def v_add_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return saturate(cast(a, i32) + cast(b, i32), u16, clamp)


@vop2(39)
def v_sub_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return saturate(cast(a, i32) - cast(b, i32), u16, clamp)


@vop2(40)
def v_subrev_u16(a: u16, b: u16, clamp: modifier = 0) -> u16:
    return saturate(cast(b, i32) - cast(a, i32), u16, clamp)


@vop2(41)
def v_mul_lo_u16(a: u16, b: u16) -> u16:
    return a * b


@vop2(42)
def v_lshlrev_b16(a: u16, b: u16) -> u16:
    return shl(b, a)


@vop2(43)
def v_lshrrev_b16(a: u16, b: u16) -> u16:
    return lshr(b, a)


@vop2(44)
def v_ashrrev_i16(a: u16, b: i16) -> i16:
    return ashr(b, a)


@vop2(45)
def v_max_f16(a: f16, b: f16, ieee: modifier = 1) -> f16:
    return floats.maximum_number(a, b, ieee)


@vop2(46)
def v_min_f16(a: f16, b: f16, ieee: modifier = 1) -> f16:
    return floats.minimum_number(a, b, ieee)


@vop2(47)
def v_max_u16(a: u16, b: u16) -> u16:
    return imax(a, b)


@vop2(48)
def v_max_i16(a: i16, b: i16) -> i16:
    return imax(a, b)


@vop2(49)
def v_min_u16(a: u16, b: u16) -> u16:
    return imin(a, b)


@vop2(50)
def v_min_i16(a: i16, b: i16) -> i16:
    return imin(a, b)


@vop2(51)
def v_ldexp_f16(a: f16, b: i16) -> f16:
    """a · 2**b."""
    return floats.ldexp(a, b)


@vop2(55, flags=(*NO_SDWA, Flag.UNVERIFIED))
def v_dot2c_f32_f16(a: f16x2, b: f16x2, vdst: f32) -> f32:
    """vdst + a.lo·b.lo + a.hi·b.hi, a rounding after each addition."""
    return dot_f16(a, b, vdst)


@vop2(22, targets=GFX950, flags=(*NO_SDWA, Flag.UNVERIFIED))
def v_dot2c_f32_bf16(a: bf16x2, b: bf16x2, vdst: f32) -> f32:
    """vdst + a.lo·b.lo + a.hi·b.hi, a rounding after each addition."""
    return dot_bf16(a, b, vdst)


@vop2(56, flags=NO_SDWA)
def v_dot2c_i32_i16(a: i16x2, b: i16x2, vdst: i32, clamp: modifier = 0) -> i32:
    return dot_i16(a, b, vdst, clamp)


@vop2(57, flags=NO_SDWA)
def v_dot4c_i32_i8(a: i32, b: i32, vdst: i32, clamp: modifier = 0) -> i32:
    return dot_bytes(a, b, vdst, clamp)


@vop2(58, flags=NO_SDWA)
def v_dot8c_i32_i4(a: i32, b: i32, vdst: i32, clamp: modifier = 0) -> i32:
    return dot_nibbles(a, b, vdst, clamp)


@vop2(60)
def v_pk_fmac_f16(a: f16x2, b: f16x2, vdst: f16x2) -> f16x2:
    """a·b + vdst in both halves, rounded once."""
    return fma(a[0], b[0], vdst[0]), fma(a[1], b[1], vdst[1])
