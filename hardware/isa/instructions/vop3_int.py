"""VOP3-only 32-bit integer instructions: bit fields, three-operand sums, byte sums."""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa.arithmetic.integers import (
    absolute_difference,
    add3,
    add_carry,
    byte,
    clamp_to,
    low24_signed,
    low24_unsigned,
    multiply_add,
    saturate,
    unsigned_field,
)
from simgpu.hardware.isa.arithmetic.vectors import modifier, u16x4, u32x4
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.lane import (
    Value,
    ashr,
    cast,
    const,
    ctpop,
    imax,
    imin,
    lane_id,
    lshr,
    mul_hi,
    replaceable,
    shl,
    unlikely,
    where,
)
from simgpu.hardware.isa.types import i32, i64, u32, u64


@vop3(450)
def v_mad_i32_i24(a: i32, b: i32, c: i32, clamp: modifier = 0) -> i32:
    return multiply_add(low24_signed(a), low24_signed(b), c, clamp)


@vop3(451)
def v_mad_u32_u24(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    return multiply_add(low24_unsigned(a), low24_unsigned(b), c, clamp)


@vop3(456)
def v_bfe_u32(a: u32, b: u32, c: u32) -> u32:
    """Field of c[4:0] bits of a, from bit b[4:0] up."""
    return lshr(a, b) & (shl(const(a, 1), c) - 1)


@vop3(457)
def v_bfe_i32(a: i32, b: u32, c: u32) -> i32:
    """Field of c[4:0] bits of a, from bit b[4:0] up, sign-extended; 0 if it has no bits."""
    width = c & 31
    fill = 32 - width
    return where(width == 0, 0, ashr(shl(ashr(a, b), fill), fill))


@vop3(458)
def v_bfi_b32(a: u32, b: u32, c: u32) -> u32:
    """b where a has ones, c elsewhere."""
    return (a & b) | (~a & c)


@vop3(461)
def v_lerp_u8(a: u32, b: u32, c: u32) -> u32:
    """For each byte, (a + b + (c & 1)) >> 1."""
    result = const(a, 0)
    for i in range(4):
        total = byte(a, i) + byte(b, i) + (byte(c, i) & 1)
        result = result | shl(lshr(total, 1), 8 * i)
    return result


def _funnel(a: Value, b: Value, count: Value) -> Value:
    """Returns the low 32 bits of {a, b} >> count, count < 32."""
    return cast(lshr(shl(cast(a, u64), 32) | cast(b, u64), count), u32)


@vop3(462)
def v_alignbit_b32(a: u32, b: u32, c: u32) -> u32:
    """{a, b} >> c[4:0]."""
    return _funnel(a, b, c & 31)


@vop3(463)
def v_alignbyte_b32(a: u32, b: u32, c: u32) -> u32:
    """{a, b} >> 8·c[1:0]."""
    return _funnel(a, b, shl(c & 3, 3))


@vop3(465)
def v_min3_i32(a: i32, b: i32, c: i32) -> i32:
    return imin(imin(a, b), c)


@vop3(466)
def v_min3_u32(a: u32, b: u32, c: u32) -> u32:
    return imin(imin(a, b), c)


@vop3(468)
def v_max3_i32(a: i32, b: i32, c: i32) -> i32:
    return imax(imax(a, b), c)


@vop3(469)
def v_max3_u32(a: u32, b: u32, c: u32) -> u32:
    return imax(imax(a, b), c)


def middle(a: Value, b: Value, c: Value) -> Value:
    """Returns the median of three integers."""
    return imax(imin(a, b), imin(imax(a, b), c))


@vop3(471)
def v_med3_i32(a: i32, b: i32, c: i32) -> i32:
    return middle(a, b, c)


@vop3(472)
def v_med3_u32(a: u32, b: u32, c: u32) -> u32:
    return middle(a, b, c)


def _byte_differences(a: Value, b: Value, masked: bool) -> Value:
    """Returns Σ |a.byte - b.byte|; if masked, without the bytes where b is 0."""
    total = const(a, 0)
    for i in range(4):
        x, y = byte(a, i), byte(b, i)
        term = absolute_difference(x, y)
        total = total + (where(y == 0, 0, term) if masked else term)
    return total


def _sum(a: Value, b: Value, clamp: int) -> Value:
    return add_carry(a, b, None, clamp)[0]


@vop3(473)
def v_sad_u8(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    """c + Σ |a.byte - b.byte|."""
    return _sum(_byte_differences(a, b, masked=False), c, clamp)


@vop3(474)
def v_sad_hi_u8(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    """c + (Σ |a.byte - b.byte| << 16)."""
    return _sum(shl(_byte_differences(a, b, masked=False), 16), c, clamp)


@vop3(475)
def v_sad_u16(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    """c + Σ |a.half - b.half|."""
    low, high = (absolute_difference(unsigned_field(a, i, 16), unsigned_field(b, i, 16)) for i in (0, 1))
    return _sum(low + high, c, clamp)


@vop3(476)
def v_sad_u32(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    """c + |a - b|."""
    return _sum(absolute_difference(a, b), c, clamp)


@vop3(484)
def v_msad_u8(a: u32, b: u32, c: u32, clamp: modifier = 0) -> u32:
    """c + Σ |a.byte - b.byte| over bytes where b is not 0."""
    return _sum(_byte_differences(a, b, masked=True), c, clamp)


def _windows(a: Value, b: Value, masked: bool) -> list[Value]:
    """Returns the sums of byte differences between b and the 32-bit windows of a (u64) at bytes 0 to 3."""
    return [_byte_differences(cast(lshr(a, 8 * i), u32), b, masked) for i in range(4)]


def _add_to_halves(sums: list[Value], c: tuple[Value, ...], clamp: int) -> tuple[Value, ...]:
    return tuple(
        saturate(cast(total + cast(addend, u32), i32), addend.type, clamp)
        for total, addend in zip(sums, c, strict=True)
    )


@vop3(485)
def v_qsad_pk_u16_u8(a: u64, b: u32, c: u16x4, clamp: modifier = 0) -> u16x4:
    """v_sad_u8 of b with four byte windows of a, each added to a 16-bit element of c."""
    return _add_to_halves(_windows(a, b, masked=False), c, clamp)


@vop3(486)
def v_mqsad_pk_u16_u8(a: u64, b: u32, c: u16x4, clamp: modifier = 0) -> u16x4:
    """v_msad_u8 of b with four byte windows of a, each added to a 16-bit element of c."""
    return _add_to_halves(_windows(a, b, masked=True), c, clamp)


@vop3(487)
def v_mqsad_u32_u8(a: u64, b: u32, c: u32x4, clamp: modifier = 0) -> u32x4:
    """v_msad_u8 of b with four byte windows of a, each added to a 32-bit element of c."""
    return tuple(
        _sum(total, addend, clamp) for total, addend in zip(_windows(a, b, masked=True), c, strict=True)
    )


def _of_eight(a: Value, b: Value, selector: Value) -> Value:
    """Returns byte `selector`, 0 to 7, of {a, b}, in which b is the low half."""
    word = where((selector & 4) != 0, a, b)
    return lshr(word, shl(selector & 3, 3)) & 0xFF


def _permuted_byte(a: Value, b: Value, selector: Value) -> Value:
    """Returns the byte for a selector: 0..7 a byte of {a, b}, 8..11 the sign of b.half0, b.half1, a.half0 or a.half1 in all
    bits, 12 zero, above 12 all ones."""
    sign_word = where((selector & 2) != 0, a, b)
    sign_at = where((selector & 1) != 0, const(a, 31), 15)
    sign = where((lshr(sign_word, sign_at) & 1) != 0, const(a, 0xFF), 0)
    constant = where(selector == 12, const(a, 0), 0xFF)
    return where(selector < 8, _of_eight(a, b, selector), where(selector < 12, sign, constant))


def _bytes_by(c: Value, one: Callable[[Value], Value]) -> Value:
    """Returns the word whose bytes are `one` of the bytes of c."""
    result = const(c, 0)
    for i in range(4):
        result = result | shl(one(byte(c, i)), 8 * i)
    return result


@replaceable
def selected_bytes(a: Value, b: Value, c: Value) -> Value:
    """Returns for each byte of c, 0 to 7, that byte of {a, b}; zero for 12."""
    return _bytes_by(c, lambda selector: where((selector & 8) != 0, const(a, 0), _of_eight(a, b, selector)))


@vop3(493)
def v_perm_b32(a: u32, b: u32, c: u32) -> u32:
    """Selects a byte of {a, b} for each byte of c; see `_permuted_byte`."""
    not_twelve = shl(c, 3) | shl(c, 2) | ~shl(c, 1)  # in bit 3 of a byte
    special = (c & 0xF0F0F0F0 | c & not_twelve & 0x08080808) != 0
    return unlikely(special, selected_bytes(a, b, c), lambda: _bytes_by(c, lambda selector: _permuted_byte(a, b, selector)))


@vop3(499)
def v_xad_u32(a: u32, b: u32, c: u32) -> u32:
    """(a ^ b) + c."""
    return (a ^ b) + c


@vop3(509)
def v_lshl_add_u32(a: u32, b: u32, c: u32) -> u32:
    """(a << b[4:0]) + c."""
    return shl(a, b) + c


@vop3(510)
def v_add_lshl_u32(a: u32, b: u32, c: u32) -> u32:
    """(a + b) << c[4:0]."""
    return shl(a + b, c)


@vop3(511)
def v_add3_u32(a: u32, b: u32, c: u32) -> u32:
    return add3(a, b, c)


@vop3(512)
def v_lshl_or_b32(a: u32, b: u32, c: u32) -> u32:
    """(a << b[4:0]) | c."""
    return shl(a, b) | c


@vop3(513)
def v_and_or_b32(a: u32, b: u32, c: u32) -> u32:
    """(a & b) | c."""
    return (a & b) | c


@vop3(514)
def v_or3_b32(a: u32, b: u32, c: u32) -> u32:
    return a | b | c


def bit_table(a: Value, b: Value, c: Value, table: int) -> Value:
    """Returns a bitwise function of three words: bit 4a + 2b + c of `table` for bits a, b, c."""
    result = const(a, 0)
    for i in range(8):
        if table >> i & 1:
            terms = zip((a, b, c), (4, 2, 1), strict=True)
            x, y, z = (word if i & weight else ~word for word, weight in terms)
            result = result | (x & y & z)
    return result


@vop3(564, targets=GFX950)
def v_bitop3_b32(a: u32, b: u32, c: u32, bitop3: modifier = 0) -> u32:
    """Applies the truth table `bitop3` to a, b and c; see `bit_table`."""
    return bit_table(a, b, c, bitop3)


@vop3(645)
def v_mul_lo_u32(a: u32, b: u32) -> u32:
    return a * b


@vop3(646)
def v_mul_hi_u32(a: u32, b: u32) -> u32:
    return mul_hi(a, b)


@vop3(647)
def v_mul_hi_i32(a: i32, b: i32) -> i32:
    return mul_hi(a, b)


@vop3(651)
def v_bcnt_u32_b32(a: u32, b: u32) -> u32:
    """Number of ones of a, plus b."""
    return ctpop(a) + b


@vop3(652)
def v_mbcnt_lo_u32_b32(a: u32, b: u32) -> u32:
    """Number of ones of a below this lane's bit (of all of a from lane 32 on), plus b."""
    lane = lane_id(a)
    below = where(lane < 32, shl(const(a, 1), lane) - 1, -1)
    return ctpop(a & below) + b


@vop3(653)
def v_mbcnt_hi_u32_b32(a: u32, b: u32) -> u32:
    """Number of ones of a, whose bits are lanes 32 to 63, below this lane's bit, plus b."""
    lane = lane_id(a)
    below = where(lane < 32, 0, shl(const(a, 1), lane) - 1)
    return ctpop(a & below) + b


@vop3(659)
def v_bfm_b32(a: u32, b: u32) -> u32:
    """Mask of a[4:0] ones, from bit b[4:0] up."""
    return shl(shl(const(a, 1), a) - 1, b)


@vop3(668)
def v_add_i32(a: i32, b: i32, clamp: modifier = 0) -> i32:
    return clamp_to(cast(a, i64) + cast(b, i64), i32) if clamp else a + b


@vop3(669)
def v_sub_i32(a: i32, b: i32, clamp: modifier = 0) -> i32:
    return clamp_to(cast(a, i64) - cast(b, i64), i32) if clamp else a - b
