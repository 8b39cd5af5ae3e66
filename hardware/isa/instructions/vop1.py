"""VOP1: moves, bit operations, rounding, transcendentals. Conversions are in `vop1_cvt`."""

from __future__ import annotations

from simgpu.hardware.architectures import BEFORE_GFX942, GFX950, SINCE_GFX90A, SINCE_GFX942
from simgpu.hardware.isa.arithmetic import approx, floats
from simgpu.hardware.isa.encodings import vop1
from simgpu.hardware.isa.instructions import vop1_cvt  # noqa: F401  (vop1_cvt registers)
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.lane import (
    Value,
    as_unsigned,
    bitreverse,
    cast,
    ceil,
    const,
    ctlz,
    cttz,
    floor,
    gather,
    lane_id,
    lshr,
    read_lane,
    rint,
    shl,
    trunc,
    where,
)
from simgpu.hardware.isa.types import EXEC, f16, f32, f64, i16, i32, s32, u32, u64

WIDE = (Flag.NO_SDWA,)  # 64-bit operands have no SDWA form
E32_ONLY = (Flag.NO_SDWA, Flag.NO_DPP, Flag.NO_E64)
TRANS = (Flag.TRANS, Flag.BOUNDED)
# The hardware's f64 results are coarse seeds, those here are accurate: they differ, within the documented bound.
WIDE_TRANS = (Flag.TRANS, Flag.BOUNDED, Flag.NO_SDWA)


@vop1(0, control=ControlKind.NOP, flags=(Flag.NO_SDWA, Flag.NO_DPP))
def v_nop() -> None:
    """Does nothing."""


@vop1(53, control=ControlKind.NOP, flags=(Flag.NO_SDWA, Flag.NO_DPP))
def v_clrexcp() -> None:
    """Clears exception state, which the simulator does not keep."""


@vop1(55)
def v_screen_partition_4se_b32(a: u32) -> u32:
    """Returns the shader engines, of four, that own tiles of a rectangle of 32 x 32-pixel tiles, one bit each.

    a: x_min, y_min, x_max, y_max, two bits each from bit 7 down, all modulo 4. Tile (x, y) belongs to engine
    {x[0] ^ y[1], y[0] ^ x[1]} (Vega ISA guide: the formula of its table of 256 entries).
    """
    covered = const(a, 0)
    for tile in range(16):
        x, y = tile & 3, tile >> 2
        inside = _in_ring(x, lshr(a, 6) & 3, lshr(a, 2) & 3) & _in_ring(y, lshr(a, 4) & 3, a & 3)
        engine = ((x & 1) ^ (y >> 1)) << 1 | ((y & 1) ^ (x >> 1))
        covered = covered | where(inside, const(a, 1 << engine), 0)
    return covered


def _in_ring(at: int, low: Value, high: Value) -> Value:
    """True if at is between low and high, counted upwards modulo 4."""
    return ((const(low, at) - low) & 3) <= ((high - low) & 3)


@vop1(1)
def v_mov_b32(a: u32) -> u32:
    return a


@vop1(56, targets=SINCE_GFX942, flags=WIDE)
def v_mov_b64(a: u64) -> u64:
    return a


@vop1(82, targets=SINCE_GFX90A, flags=(*E32_ONLY, Flag.ACC))
def v_accvgpr_mov_b32(a: u32) -> u32:
    """AccVGPR to AccVGPR."""
    return a


@vop1(81, flags=(*E32_ONLY, Flag.SWAP))
def v_swap_b32(a: u32, vdst: u32) -> (u32, u32):
    """vdst and src0 exchange; the second result goes to src0's register."""
    return a, vdst


@vop1(2, kind="wave", flags=E32_ONLY)
def v_readfirstlane_b32(a: u32, active: EXEC) -> s32:
    """Returns the lowest active lane's value, lane 0 if none is active."""
    return read_lane(a, cttz(active))


def _swap_rows(a: Value, vdst: Value, distance: int) -> tuple[Value, Value]:
    """Returns a and vdst after an exchange, lanes of vdst with the `distance` bit set for lanes of a without it, as (vdst, a)."""
    lane = lane_id(a)
    upper, partner = (lane & distance) != 0, lane ^ distance
    return where(upper, gather(a, partner), vdst), where(upper, a, gather(vdst, partner))


@vop1(89, targets=GFX950, kind="wave", flags=(Flag.NO_SDWA, Flag.NO_DPP, Flag.SWAP))
def v_permlane16_swap_b32(a: u32, vdst: u32) -> (u32, u32):
    """Odd rows of 16 lanes of vdst exchange with even rows of src0."""
    return _swap_rows(a, vdst, 16)


@vop1(90, targets=GFX950, kind="wave", flags=(Flag.NO_SDWA, Flag.NO_DPP, Flag.SWAP))
def v_permlane32_swap_b32(a: u32, vdst: u32) -> (u32, u32):
    """Exchanges the upper half of vdst with the lower half of src0."""
    return _swap_rows(a, vdst, 32)


def prng(a: Value) -> Value:
    """Returns the next state of V_PRNG_B32's linear feedback shift register."""
    return shl(a, 1) ^ where((a & 0x80000000) != 0, const(a, 197), 0)


@vop1(88, targets=GFX950)
def v_prng_b32(a: u32) -> u32:
    """a << 1, xor 197 where a's top bit was set."""
    return prng(a)


@vop1(43)
def v_not_b32(a: u32) -> u32:
    return ~a


@vop1(44)
def v_bfrev_b32(a: u32) -> u32:
    return bitreverse(a)


@vop1(45)
def v_ffbh_u32(a: u32) -> u32:
    """Leading zero bits; -1 for 0."""
    return where(a == 0, -1, ctlz(a))


@vop1(46)
def v_ffbl_b32(a: u32) -> u32:
    """Trailing zero bits; -1 for 0."""
    return where(a == 0, -1, cttz(a))


@vop1(47)
def v_ffbh_i32(a: i32) -> u32:
    """Leading bits equal to the sign; -1 where all are."""
    word = as_unsigned(where(a < 0, ~a, a))
    return where(word == 0, -1, ctlz(word))


@vop1(28)
def v_trunc_f32(a: f32) -> f32:
    return trunc(a)


@vop1(29)
def v_ceil_f32(a: f32) -> f32:
    return ceil(a)


@vop1(30)
def v_rndne_f32(a: f32) -> f32:
    """Rounds to the nearest integer, ties to even."""
    return rint(a)


@vop1(31)
def v_floor_f32(a: f32) -> f32:
    return floor(a)


@vop1(27)
def v_fract_f32(a: f32) -> f32:
    """a - floor(a), below 1."""
    return floats.fract(a)


@vop1(23, flags=WIDE)
def v_trunc_f64(a: f64) -> f64:
    return trunc(a)


@vop1(24, flags=WIDE)
def v_ceil_f64(a: f64) -> f64:
    return ceil(a)


@vop1(25, flags=WIDE)
def v_rndne_f64(a: f64) -> f64:
    """Rounds to the nearest integer, ties to even."""
    return rint(a)


@vop1(26, flags=WIDE)
def v_floor_f64(a: f64) -> f64:
    return floor(a)


@vop1(50, flags=WIDE)
def v_fract_f64(a: f64) -> f64:
    """a - floor(a), below 1."""
    return floats.fract(a)


@vop1(68)
def v_floor_f16(a: f16) -> f16:
    return floor(a)


@vop1(69)
def v_ceil_f16(a: f16) -> f16:
    return ceil(a)


@vop1(70)
def v_trunc_f16(a: f16) -> f16:
    return trunc(a)


@vop1(71)
def v_rndne_f16(a: f16) -> f16:
    """Rounds to the nearest integer, ties to even."""
    return rint(a)


@vop1(72)
def v_fract_f16(a: f16) -> f16:
    """a - floor(a), below 1."""
    return floats.fract(a)


@vop1(51)
def v_frexp_exp_i32_f32(a: f32) -> u32:
    return floats.frexp_exponent(a)


@vop1(52)
def v_frexp_mant_f32(a: f32) -> f32:
    return floats.frexp_mantissa(a)


@vop1(48, flags=WIDE)
def v_frexp_exp_i32_f64(a: f64) -> u32:
    return cast(floats.frexp_exponent(a), u32)


@vop1(49, flags=WIDE)
def v_frexp_mant_f64(a: f64) -> f64:
    return floats.frexp_mantissa(a)


@vop1(66)
def v_frexp_mant_f16(a: f16) -> f16:
    return floats.frexp_mantissa(a)


@vop1(67)
def v_frexp_exp_i16_f16(a: f16) -> i16:
    return cast(floats.frexp_exponent(a), i16)


@vop1(32, flags=TRANS)
def v_exp_f32(a: f32) -> f32:
    """2**a, 1 ulp; denormal results are 0."""
    return approx.exp2_f32(a)


@vop1(75, flags=TRANS)
def v_exp_legacy_f32(a: f32) -> f32:
    """2**a, 1 ulp; taken to be v_exp_f32's algorithm."""
    return approx.exp2_f32(a)


@vop1(33, flags=TRANS)
def v_log_f32(a: f32) -> f32:
    """log2(a), 1 ulp; a denormal counts as 0."""
    return approx.log2_f32(a)


@vop1(76, flags=TRANS)
def v_log_legacy_f32(a: f32) -> f32:
    """log2(a), 1 ulp; taken to be v_log_f32's algorithm."""
    return approx.log2_f32(a)


@vop1(34, flags=TRANS)
def v_rcp_f32(a: f32) -> f32:
    """1/a, 1 ulp; denormals count as 0."""
    return approx.rcp_f32(a)


@vop1(35, flags=TRANS)
def v_rcp_iflag_f32(a: f32) -> f32:
    """1/a, 1 ulp, for integer division (differs from v_rcp_f32 in exceptions only)."""
    return approx.rcp_f32(a)


@vop1(36, flags=TRANS)
def v_rsq_f32(a: f32) -> f32:
    """1/sqrt(a), 1 ulp; denormals count as 0."""
    return approx.rsq_f32(a)


@vop1(39, flags=TRANS)
def v_sqrt_f32(a: f32) -> f32:
    """sqrt(a), 1 ulp; denormals count as 0."""
    return approx.sqrt_f32(a)


@vop1(41, targets=SINCE_GFX942, flags=TRANS)
def v_sin_f32(a: f32) -> f32:
    """sin(2πa); the CDNA4 guide: "full range input is supported"."""
    return approx.sin_f32(a)


@vop1(41, targets=BEFORE_GFX942, flags=TRANS, name="v_sin_f32")
def v_sin_f32_in_range(a: f32) -> f32:
    """sin(2πa), |a| <= 256."""
    return approx.within_trig_range(a, approx.sin_f32(a), 0.0)


@vop1(42, targets=SINCE_GFX942, flags=TRANS)
def v_cos_f32(a: f32) -> f32:
    """cos(2πa); the CDNA4 guide: "full range input is supported"."""
    return approx.cos_f32(a)


@vop1(42, targets=BEFORE_GFX942, flags=TRANS, name="v_cos_f32")
def v_cos_f32_in_range(a: f32) -> f32:
    """cos(2πa), |a| <= 256."""
    return approx.within_trig_range(a, approx.cos_f32(a), 1.0)


@vop1(37, flags=WIDE_TRANS)
def v_rcp_f64(a: f64) -> f64:
    """1/a; documented to 2**29 ulp, a seed for Newton steps."""
    return approx.rcp_f64(a)


@vop1(38, flags=WIDE_TRANS)
def v_rsq_f64(a: f64) -> f64:
    """1/sqrt(a); documented to 2**29 ulp, a seed for Newton steps."""
    return approx.rsq_f64(a)


@vop1(40, flags=WIDE_TRANS)
def v_sqrt_f64(a: f64) -> f64:
    """sqrt(a); documented to 2**29 ulp, a seed for Newton steps."""
    return approx.root(a)


@vop1(61, flags=TRANS)
def v_rcp_f16(a: f16) -> f16:
    """1/a, 1 ulp."""
    return approx.rcp_f16(a)


@vop1(62, flags=TRANS)
def v_sqrt_f16(a: f16) -> f16:
    """sqrt(a), 1 ulp."""
    return approx.root(a)


@vop1(63, flags=TRANS)
def v_rsq_f16(a: f16) -> f16:
    """1/sqrt(a), 1 ulp."""
    return approx.rsq_f16(a)


@vop1(64, flags=TRANS)
def v_log_f16(a: f16) -> f16:
    """log2(a), 1 ulp."""
    return approx.log2_f16(a)


@vop1(65, flags=TRANS)
def v_exp_f16(a: f16) -> f16:
    """2**a, 1 ulp."""
    return approx.exp2_f16(a)


@vop1(73, targets=SINCE_GFX942, flags=TRANS)
def v_sin_f16(a: f16) -> f16:
    """sin(2πa); the CDNA4 guide: "full range input is supported"."""
    return approx.sin_f16(a)


@vop1(73, targets=BEFORE_GFX942, flags=TRANS, name="v_sin_f16")
def v_sin_f16_in_range(a: f16) -> f16:
    """sin(2πa), |a| <= 256."""
    return approx.within_trig_range(a, approx.sin_f16(a), 0.0)


@vop1(74, targets=SINCE_GFX942, flags=TRANS)
def v_cos_f16(a: f16) -> f16:
    """cos(2πa); the CDNA4 guide: "full range input is supported"."""
    return approx.cos_f16(a)


@vop1(74, targets=BEFORE_GFX942, flags=TRANS, name="v_cos_f16")
def v_cos_f16_in_range(a: f16) -> f16:
    """cos(2πa), |a| <= 256."""
    return approx.within_trig_range(a, approx.cos_f16(a), 1.0)
