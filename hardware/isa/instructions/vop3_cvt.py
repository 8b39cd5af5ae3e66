"""VOP3-only conversions; gfx950's with a scale are in `vop3_scale`."""

from __future__ import annotations

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa.arithmetic import small_floats as small
from simgpu.hardware.isa.arithmetic.floats import to_f16_toward_zero
from simgpu.hardware.isa.arithmetic.integers import clamp_to
from simgpu.hardware.isa.arithmetic.small_floats import SmallFloat
from simgpu.hardware.isa.arithmetic.vectors import modifier
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.instructions.vop1_cvt import to_snorm16, to_unorm16
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, cast, const, imin, rint, shl
from simgpu.hardware.isa.types import (
    bf16,
    bf16x2,
    f16,
    f16x2,
    f32,
    i16,
    i16x2,
    i32,
    u16,
    u16x2,
    u32,
)

KEEP = (Flag.PRESERVE_HIGH,)


def insert_byte(old: Value, value: Value, index: Value) -> Value:
    """Returns `old` with byte index[1:0] replaced by the low byte of `value`."""
    at = shl(index & 3, 3)
    return (old & ~shl(const(old, 0xFF), at)) | shl(value & 0xFF, at)


def to_u8(a: Value) -> Value:
    """Returns an f32 rounded to the nearest integer in 0..255, ties to even; 0 for a NaN.

    The guides do not document the rounding; to nearest, MODE's default, is assumed.
    """
    return imin(cast(rint(a), u32), 255)


@vop3(477, flags=(Flag.UNVERIFIED,))
def v_cvt_pk_u8_f32(a: f32, b: u32, c: u32) -> u32:
    """c with byte b[1:0] replaced by a as an 8-bit integer; see `to_u8`."""
    return insert_byte(c, to_u8(a), b)


@vop3(496, flags=(Flag.UNVERIFIED,))
def v_cvt_pkaccum_u8_f32(a: f32, b: u32, vdst: u32) -> u32:
    """vdst with byte b[1:0] replaced by a as an 8-bit integer; see `to_u8`."""
    return insert_byte(vdst, to_u8(a), b)


@vop3(660)
def v_cvt_pknorm_i16_f32(a: f32, b: f32) -> i16x2:
    return to_snorm16(a), to_snorm16(b)


@vop3(661)
def v_cvt_pknorm_u16_f32(a: f32, b: f32) -> u16x2:
    return to_unorm16(a), to_unorm16(b)


@vop3(665)
def v_cvt_pknorm_i16_f16(a: f16, b: f16) -> i16x2:
    return to_snorm16(a), to_snorm16(b)


@vop3(666)
def v_cvt_pknorm_u16_f16(a: f16, b: f16) -> u16x2:
    return to_unorm16(a), to_unorm16(b)


@vop3(662)
def v_cvt_pkrtz_f16_f32(a: f32, b: f32) -> f16x2:
    """Rounds both toward zero, whatever MODE is."""
    return to_f16_toward_zero(a), to_f16_toward_zero(b)


@vop3(663)
def v_cvt_pk_u16_u32(a: u32, b: u32) -> u16x2:
    """Limits both to 65535."""
    return cast(imin(a, 0xFFFF), u16), cast(imin(b, 0xFFFF), u16)


@vop3(664)
def v_cvt_pk_i16_i32(a: i32, b: i32) -> i16x2:
    """Limits both to -32768..32767."""
    return clamp_to(a, i16), clamp_to(b, i16)


@vop3(615, targets=GFX950)
def v_cvt_pk_f16_f32(a: f32, b: f32) -> f16x2:
    """Rounds both to nearest even."""
    return cast(a, f16), cast(b, f16)


@vop3(616, targets=GFX950)
def v_cvt_pk_bf16_f32(a: f32, b: f32) -> bf16x2:
    """Rounds both to nearest even."""
    return cast(a, bf16), cast(b, bf16)


@vop3(678, targets=GFX950, flags=(*KEEP, Flag.UNVERIFIED))
def v_cvt_sr_f16_f32(a: f32, b: u32) -> f16:
    """Stochastic rounding with random bits b."""
    return small.stochastic_f16(a, b)


@vop3(679, targets=GFX950, flags=(*KEEP, Flag.UNVERIFIED))
def v_cvt_sr_bf16_f32(a: f32, b: u32) -> bf16:
    """Stochastic rounding with random bits b."""
    return small.stochastic_bf16(a, b)


def destination_byte(op_sel: int) -> int:
    """Returns the byte of vdst that op_sel[3:2] selects: bit 3 is the high bit of the index."""
    return op_sel >> 2 & 3


def _define_to_fp8(form: SmallFloat, target: str, pack: int, stochastic: int) -> None:
    @vop3(pack, targets=(target,), flags=KEEP, name=f"v_cvt_pk_{form.name}_f32")
    def pack_pair(a: f32, b: f32, fp16_ovfl: modifier = 0) -> u16:
        """Converts a to the low byte and b to the high byte, to nearest even; op_sel[3] selects the half of vdst."""
        low, high = (small.encode(v, form, fp16_ovfl=fp16_ovfl) for v in (a, b))
        return cast(low | shl(high, 8), u16)

    @vop3(stochastic, targets=(target,), flags=(Flag.UNVERIFIED,), name=f"v_cvt_sr_{form.name}_f32")
    def round_stochastic(a: f32, b: u32, vdst: u32, op_sel: modifier = 0, fp16_ovfl: modifier = 0) -> u32:
        """Stochastic rounding with random bits b into byte op_sel[3:2] of vdst."""
        code = small.encode(a, form, seed=b, fp16_ovfl=fp16_ovfl)
        return insert_byte(vdst, code, const(vdst, destination_byte(op_sel)))


for _fp8, _bf8, _target in (
    (small.FP8_FNUZ, small.BF8_FNUZ, "gfx942"),
    (small.FP8, small.BF8, "gfx950"),
):
    _define_to_fp8(_fp8, _target, 674, 676)
    _define_to_fp8(_bf8, _target, 675, 677)
