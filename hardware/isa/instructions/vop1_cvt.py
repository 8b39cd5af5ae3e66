"""VOP1 conversions between number formats."""

from __future__ import annotations

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa.arithmetic import small_floats as small
from simgpu.hardware.isa.arithmetic.integers import byte, signed_field
from simgpu.hardware.isa.encodings import vop1
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import (
    Value,
    as_unsigned,
    cast,
    floor,
    imax,
    imin,
    lshr,
    rint,
    shl,
    where,
)
from simgpu.hardware.isa.types import bf16, f16, f32, f32x2, f64, i16, i16x2, i32, u16, u32

WIDE = (Flag.NO_SDWA,)  # 64-bit operands have no SDWA form


@vop1(3, flags=WIDE)
def v_cvt_i32_f64(a: f64) -> i32:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, i32)


@vop1(4, flags=WIDE)
def v_cvt_f64_i32(a: i32) -> f64:
    return cast(a, f64)


@vop1(5)
def v_cvt_f32_i32(a: i32) -> f32:
    return cast(a, f32)


@vop1(6)
def v_cvt_f32_u32(a: u32) -> f32:
    return cast(a, f32)


@vop1(7)
def v_cvt_u32_f32(a: f32) -> u32:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, u32)


@vop1(8)
def v_cvt_i32_f32(a: f32) -> i32:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, i32)


@vop1(10)
def v_cvt_f16_f32(a: f32) -> f16:
    return cast(a, f16)


@vop1(11)
def v_cvt_f32_f16(a: f16) -> f32:
    return cast(a, f32)


@vop1(12)
def v_cvt_rpi_i32_f32(a: f32) -> i32:
    """floor(a + 0.5), the sum rounded to f32 as the ISA guide writes it."""
    return cast(floor(a + 0.5), i32)


@vop1(13)
def v_cvt_flr_i32_f32(a: f32) -> i32:
    """floor(a)."""
    return cast(floor(a), i32)


@vop1(14)
def v_cvt_off_f32_i4(a: u32) -> f32:
    """Returns the signed low 4 bits over 16: -0.5 to 0.4375."""
    return cast(signed_field(a, 0, 4), f32) * 0.0625


@vop1(15, flags=WIDE)
def v_cvt_f32_f64(a: f64) -> f32:
    return cast(a, f32)


@vop1(16, flags=WIDE)
def v_cvt_f64_f32(a: f32) -> f64:
    return cast(a, f64)


@vop1(17)
def v_cvt_f32_ubyte0(a: u32) -> f32:
    return cast(byte(a, 0), f32)


@vop1(18)
def v_cvt_f32_ubyte1(a: u32) -> f32:
    return cast(byte(a, 1), f32)


@vop1(19)
def v_cvt_f32_ubyte2(a: u32) -> f32:
    return cast(byte(a, 2), f32)


@vop1(20)
def v_cvt_f32_ubyte3(a: u32) -> f32:
    return cast(byte(a, 3), f32)


@vop1(21, flags=WIDE)
def v_cvt_u32_f64(a: f64) -> u32:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, u32)


@vop1(22, flags=WIDE)
def v_cvt_f64_u32(a: u32) -> f64:
    return cast(a, f64)


@vop1(57)
def v_cvt_f16_u16(a: u16) -> f16:
    return cast(a, f16)


@vop1(58)
def v_cvt_f16_i16(a: i16) -> f16:
    return cast(a, f16)


@vop1(59)
def v_cvt_u16_f16(a: f16) -> u16:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, u16)


@vop1(60)
def v_cvt_i16_f16(a: f16) -> i16:
    """Toward zero, saturating, NaN to 0."""
    return cast(a, i16)


def to_snorm16(a: Value) -> Value:
    """Returns the i16 n with n / 32767 nearest to a (f16 or f32) limited to [-1, 1], ties to even; 0 for a NaN."""
    wide = cast(a, f32)
    limited = where(wide > 1.0, 1.0, where(wide < -1.0, -1.0, wide))
    return cast(rint(limited * 32767.0), i16)


def to_unorm16(a: Value) -> Value:
    """Returns the u16 n with n / 65535 nearest to a (f16 or f32) limited to [0, 1], ties to even; 0 for a NaN."""
    wide = cast(a, f32)
    limited = where(wide > 1.0, 1.0, where(wide < 0.0, 0.0, wide))
    return cast(rint(limited * 65535.0), u16)


@vop1(77)
def v_cvt_norm_i16_f16(a: f16) -> i16:
    return to_snorm16(a)


@vop1(78)
def v_cvt_norm_u16_f16(a: f16) -> u16:
    return to_unorm16(a)


@vop1(79)
def v_sat_pk_u8_i16(a: i16x2) -> u16:
    """Limits both signed halves to 0..255, packed into 16 bits."""
    low, high = (as_unsigned(imax(imin(half, 255), 0)) for half in a)
    return low | shl(high, 8)


@vop1(91, targets=GFX950)
def v_cvt_f32_bf16(a: bf16) -> f32:
    return cast(a, f32)


# Conversions from 8-bit floats: opcode, opcode of the packed form, format on gfx942, format on gfx950.
_FROM_FP8 = (
    (84, 86, small.FP8_FNUZ, small.FP8),
    (85, 87, small.BF8_FNUZ, small.BF8),
)


def _define_from_fp8(opcode: int, packed: int, form: small.SmallFloat, target: str) -> None:
    @vop1(opcode, targets=(target,), name=f"v_cvt_f32_{form.name}")
    def convert_one(a: u32) -> f32:
        """Converts the low byte (SDWA selects another); exact."""
        return small.decode(a & 0xFF, form)

    @vop1(packed, targets=(target,), name=f"v_cvt_pk_f32_{form.name}")
    def two(a: u32) -> f32x2:
        """Converts the two low bytes (SDWA selects the other two); exact."""
        return small.decode(a & 0xFF, form), small.decode(lshr(a, 8) & 0xFF, form)


for _one, _two, _fnuz, _ocp in _FROM_FP8:
    _define_from_fp8(_one, _two, _fnuz, "gfx942")
    _define_from_fp8(_one, _two, _ocp, "gfx950")
