"""VOP3-only instructions on 16-bit elements, and with 16-bit factors and 32-bit sums.

Those with flag PRESERVE_HIGH keep the half of vdst that they do not write; the `_legacy_` ones clear it.
"""

from __future__ import annotations

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa.arithmetic import floats
from simgpu.hardware.isa.arithmetic.division import fixup
from simgpu.hardware.isa.arithmetic.integers import multiply_add, saturate
from simgpu.hardware.isa.arithmetic.vectors import modifier
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.instructions.vop3_int import bit_table, middle
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, ashr, cast, fma, imax, imin, shl
from simgpu.hardware.isa.types import Type, f16, f16x2, i16, i32, i64, u16, u32

KEEP = (Flag.PRESERVE_HIGH,)


def _mad16(a: Value, b: Value, c: Value, type_: Type, clamp: int) -> Value:
    """Returns a·b + c in 16 bits. The exact sum of u16 does not fit a signed 32-bit integer."""
    if not clamp:
        return a * b + c
    return saturate(cast(a, i64) * cast(b, i64) + cast(c, i64), type_, clamp)


@vop3(490)
def v_mad_legacy_f16(a: f16, b: f16, c: f16) -> f16:
    """a·b + c, rounded twice, denormals flushed (LLVM uses it only where MODE flushes them)."""
    return floats.multiply_add(a, b, c)


@vop3(491)
def v_mad_legacy_u16(a: u16, b: u16, c: u16, clamp: modifier = 0) -> u16:
    return _mad16(a, b, c, u16, clamp)


@vop3(492)
def v_mad_legacy_i16(a: i16, b: i16, c: i16, clamp: modifier = 0) -> i16:
    return _mad16(a, b, c, i16, clamp)


@vop3(494)
def v_fma_legacy_f16(a: f16, b: f16, c: f16) -> f16:
    return fma(a, b, c)


@vop3(495)
def v_div_fixup_legacy_f16(a: f16, b: f16, c: f16) -> f16:
    """See v_div_fixup_f16."""
    return fixup(a, b, c)


@vop3(497)
def v_mad_u32_u16(a: u16, b: u16, c: u32, clamp: modifier = 0) -> u32:
    return multiply_add(cast(a, u32), cast(b, u32), c, clamp)


@vop3(498)
def v_mad_i32_i16(a: i16, b: i16, c: i32, clamp: modifier = 0) -> i32:
    return multiply_add(cast(a, i32), cast(b, i32), c, clamp)


@vop3(500, flags=KEEP)
def v_min3_f16(a: f16, b: f16, c: f16, ieee: modifier = 1) -> f16:
    return floats.minimum_number(floats.minimum_number(a, b, ieee), c, ieee)


@vop3(501, flags=KEEP)
def v_min3_i16(a: i16, b: i16, c: i16) -> i16:
    return imin(imin(a, b), c)


@vop3(502, flags=KEEP)
def v_min3_u16(a: u16, b: u16, c: u16) -> u16:
    return imin(imin(a, b), c)


@vop3(503, flags=KEEP)
def v_max3_f16(a: f16, b: f16, c: f16, ieee: modifier = 1) -> f16:
    return floats.maximum_number(floats.maximum_number(a, b, ieee), c, ieee)


@vop3(504, flags=KEEP)
def v_max3_i16(a: i16, b: i16, c: i16) -> i16:
    return imax(imax(a, b), c)


@vop3(505, flags=KEEP)
def v_max3_u16(a: u16, b: u16, c: u16) -> u16:
    return imax(imax(a, b), c)


@vop3(506, flags=KEEP)
def v_med3_f16(a: f16, b: f16, c: f16, ieee: modifier = 1) -> f16:
    return floats.median(a, b, c, ieee)


@vop3(507, flags=KEEP)
def v_med3_i16(a: i16, b: i16, c: i16) -> i16:
    return middle(a, b, c)


@vop3(508, flags=KEEP)
def v_med3_u16(a: u16, b: u16, c: u16) -> u16:
    return middle(a, b, c)


@vop3(515, flags=KEEP)
def v_mad_f16(a: f16, b: f16, c: f16) -> f16:
    """See v_mad_legacy_f16."""
    return floats.multiply_add(a, b, c)


@vop3(516, flags=KEEP)
def v_mad_u16(a: u16, b: u16, c: u16, clamp: modifier = 0) -> u16:
    return _mad16(a, b, c, u16, clamp)


@vop3(517, flags=KEEP)
def v_mad_i16(a: i16, b: i16, c: i16, clamp: modifier = 0) -> i16:
    return _mad16(a, b, c, i16, clamp)


@vop3(518, flags=KEEP)
def v_fma_f16(a: f16, b: f16, c: f16) -> f16:
    return fma(a, b, c)


@vop3(519, flags=KEEP)
def v_div_fixup_f16(a: f16, b: f16, c: f16) -> f16:
    """Quotient c/b by its approximation a, with special cases corrected."""
    return fixup(a, b, c)


@vop3(563, targets=GFX950, flags=KEEP)
def v_bitop3_b16(a: u16, b: u16, c: u16, bitop3: modifier = 0) -> u16:
    """Applies the truth table `bitop3` to a, b and c."""
    return bit_table(a, b, c, bitop3)


def _packed_shift(a: Value, b: Value, c: Value, low: int, high: int) -> Value:
    """Returns a >> c (low byte) and b >> c (high byte), each limited to low..high, as u16."""
    x, y = (cast(imax(imin(ashr(v, c), high), low), u16) & 0xFF for v in (a, b))
    return x | shl(y, 8)


@vop3(613, targets=GFX950, flags=KEEP)
def v_ashr_pk_i8_i32(a: i32, b: i32, c: u32) -> u16:
    """a >> c[4:0] and b >> c[4:0] limited to -128..127, packed."""
    return _packed_shift(a, b, c, -128, 127)


@vop3(614, targets=GFX950, flags=KEEP)
def v_ashr_pk_u8_i32(a: i32, b: i32, c: u32) -> u16:
    """a >> c[4:0] and b >> c[4:0] limited to 0..255, packed."""
    return _packed_shift(a, b, c, 0, 255)


@vop3(670, flags=KEEP)
def v_add_i16(a: i16, b: i16, clamp: modifier = 0) -> i16:
    return saturate(cast(a, i32) + cast(b, i32), i16, clamp)


@vop3(671, flags=KEEP)
def v_sub_i16(a: i16, b: i16, clamp: modifier = 0) -> i16:
    return saturate(cast(a, i32) - cast(b, i32), i16, clamp)


@vop3(672)
def v_pack_b32_f16(a: f16, b: f16) -> f16x2:
    """a low, b high."""
    return a, b
