"""VOP3-only instructions on 64-bit operands, and v_readlane and v_writelane."""

from __future__ import annotations

from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.isa.arithmetic import division, floats
from simgpu.hardware.isa.arithmetic.two_over_pi import fifty_three_bits
from simgpu.hardware.isa.arithmetic.vectors import modifier, vcc_lane
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import (
    as_signed,
    as_unsigned,
    ashr,
    cast,
    const,
    differ,
    fma,
    imax,
    lshr,
    read_lane,
    shl,
    where,
    write_lane,
)
from simgpu.hardware.isa.types import f64, i32, i64, mask, s32, u32, u64


@vop3(460)
def v_fma_f64(a: f64, b: f64, c: f64) -> f64:
    """a·b + c, rounded once."""
    return fma(a, b, c)


@vop3(640)
def v_add_f64(a: f64, b: f64) -> f64:
    return a + b


@vop3(641)
def v_mul_f64(a: f64, b: f64) -> f64:
    return a * b


@vop3(642)
def v_min_f64(a: f64, b: f64, ieee: modifier = 1) -> f64:
    return floats.minimum_number(a, b, ieee)


@vop3(643)
def v_max_f64(a: f64, b: f64, ieee: modifier = 1) -> f64:
    return floats.maximum_number(a, b, ieee)


@vop3(644)
def v_ldexp_f64(a: f64, b: i32) -> f64:
    """a · 2**b."""
    return floats.ldexp(a, b)


@vop3(479)
def v_div_fixup_f64(a: f64, b: f64, c: f64) -> f64:
    """Quotient c/b by its approximation a, with special cases corrected."""
    return division.fixup(a, b, c)


@vop3(481)
def v_div_scale_f64(a: f64, b: f64, c: f64) -> (f64, mask):
    """a, which is the denominator b or the numerator c, scaled for division; see `division.scale`."""
    return division.scale(a, b, c)


@vop3(483)
def v_div_fmas_f64(a: f64, b: f64, c: f64, undo: vcc_lane) -> f64:
    """a·b + c, scaled back in lanes whose bit of VCC (`undo`) is set; see `division.fmas`."""
    return division.fmas(a, b, c, undo)


@vop3(658)
def v_trig_preop_f64(a: f64, b: u32) -> f64:
    """Segment b[4:0], of 53 bits, of 2/π for the reduction of a, with its weight; a's exponent selects the first bit."""
    exponent = cast(floats.exponent_field(a), i32)
    shift = as_signed(b & 31) * 53 + imax(exponent - 1077, 0)
    scale = -53 - shift + where(exponent >= 1968, const(shift, 128), 0)
    return floats.ldexp(cast(fifty_three_bits(as_unsigned(shift)), f64), scale)


@vop3(655)
def v_lshlrev_b64(a: u32, b: u64) -> u64:
    """b << a[5:0]."""
    return shl(b, a)


@vop3(656)
def v_lshrrev_b64(a: u32, b: u64) -> u64:
    """b >> a[5:0]."""
    return lshr(b, a)


@vop3(657)
def v_ashrrev_i64(a: u32, b: i64) -> i64:
    """b >> a[5:0], arithmetic."""
    return ashr(b, a)


@vop3(520, targets=SINCE_GFX942)
def v_lshl_add_u64(a: u64, b: u32, c: u64) -> u64:
    """(a << b[2:0]) + c; the guide documents shifts of 0 to 7 (LLVM uses 0 to 4)."""
    return shl(a, b & 7) + c


@vop3(488)
def v_mad_u64_u32(a: u32, b: u32, c: u64, clamp: modifier = 0) -> (u64, mask):
    """a·b + c and its carry, bit 64."""
    total = cast(a, u64) * cast(b, u64) + c
    carry = total < c
    return (where(carry, const(c, -1), total) if clamp else total), carry


@vop3(489)
def v_mad_i64_i32(a: i32, b: i32, c: i64, clamp: modifier = 0) -> (i64, mask):
    """a·b + c, signed, and bit 64 of the 65-bit sum."""
    product = cast(a, i64) * cast(b, i64)
    total = product + c
    overflow = ((product ^ total) & (c ^ total)) < 0
    bound = as_signed(where(c < 0, const(c, 1 << 63, u64), (1 << 63) - 1))
    result = where(overflow, bound, total) if clamp else total
    return result, differ(total < 0, overflow)


@vop3(649, kind="wave", flags=(Flag.IGNORE_EXEC,))
def v_readlane_b32(a: u32, lane: s32) -> s32:
    """Value of a in lane `lane` mod 64, active or not."""
    return read_lane(a, lane)


@vop3(650, kind="wave", flags=(Flag.IGNORE_EXEC,))
def v_writelane_b32(value: s32, lane: s32, vdst: u32) -> u32:
    """vdst with `value` in lane `lane` mod 64, active or not."""
    return write_lane(vdst, lane, value)
