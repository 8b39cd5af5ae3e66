"""VOP3-only f32 instructions."""

from __future__ import annotations

from simgpu.hardware.architectures import BEFORE_GFX942, GFX908, GFX950, SINCE_GFX90A
from simgpu.hardware.isa.arithmetic import division, floats
from simgpu.hardware.isa.arithmetic.vectors import modifier, vcc_lane
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.lane import Value, both, const, either, fma, where
from simgpu.hardware.isa.types import f32, i32, mask


@vop3(448, targets=BEFORE_GFX942)
def v_mad_legacy_f32(a: f32, b: f32, c: f32) -> f32:
    """a·b + c with 0·x = 0 for every x, rounded twice, denormals flushed."""
    x, y, z = floats.flush(a), floats.flush(b), floats.flush(c)
    product = where(either(x == 0.0, y == 0.0), 0.0, floats.flush(x * y))
    return floats.flush(product + z)


@vop3(449, targets=BEFORE_GFX942)
def v_mad_f32(a: f32, b: f32, c: f32) -> f32:
    """a·b + c, rounded twice; denormals are flushed independently of MODE (LLVM)."""
    return floats.multiply_add(a, b, c)


def _major_axis(x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    """Returns whether z is the major axis, |z| >= |x| and |z| >= |y|, and whether |y| >= |x|."""
    return both(abs(z) >= abs(x), abs(z) >= abs(y)), abs(y) >= abs(x)


@vop3(452)
def v_cubeid_f32(a: f32, b: f32, c: f32) -> f32:
    """Cube face of the direction (a, b, c): +x 0, -x 1, +y 2, -y 3, +z 4, -z 5."""
    z_major, y_major = _major_axis(a, b, c)
    face_z = where(c < 0.0, const(c, 5.0), 4.0)
    face_y = where(b < 0.0, const(b, 3.0), 2.0)
    face_x = where(a < 0.0, const(a, 1.0), 0.0)
    return where(z_major, face_z, where(y_major, face_y, face_x))


@vop3(453)
def v_cubesc_f32(a: f32, b: f32, c: f32) -> f32:
    """Returns the s coordinate on the cube face, unscaled."""
    z_major, y_major = _major_axis(a, b, c)
    on_z, on_x = where(c < 0.0, -a, a), where(a < 0.0, c, -c)
    return where(z_major, on_z, where(y_major, a, on_x))


@vop3(454)
def v_cubetc_f32(a: f32, b: f32, c: f32) -> f32:
    """Returns the t coordinate on the cube face, unscaled."""
    z_major, y_major = _major_axis(a, b, c)
    return where(z_major, -b, where(y_major, where(b < 0.0, -c, c), -b))


@vop3(455)
def v_cubema_f32(a: f32, b: f32, c: f32) -> f32:
    """Twice the major axis."""
    z_major, y_major = _major_axis(a, b, c)
    return where(z_major, c, where(y_major, b, a)) * 2.0


@vop3(459)
def v_fma_f32(a: f32, b: f32, c: f32) -> f32:
    """a·b + c, rounded once."""
    return fma(a, b, c)


@vop3(464)
def v_min3_f32(a: f32, b: f32, c: f32, ieee: modifier = 1) -> f32:
    return floats.minimum_number(floats.minimum_number(a, b, ieee), c, ieee)


@vop3(467)
def v_max3_f32(a: f32, b: f32, c: f32, ieee: modifier = 1) -> f32:
    return floats.maximum_number(floats.maximum_number(a, b, ieee), c, ieee)


@vop3(470)
def v_med3_f32(a: f32, b: f32, c: f32, ieee: modifier = 1) -> f32:
    """Median; the minimum if one is a NaN."""
    return floats.median(a, b, c, ieee)


@vop3(478)
def v_div_fixup_f32(a: f32, b: f32, c: f32) -> f32:
    """Quotient c/b by its approximation a, with special cases corrected."""
    return division.fixup(a, b, c)


@vop3(480)
def v_div_scale_f32(a: f32, b: f32, c: f32) -> (f32, mask):
    """a, which is the denominator b or the numerator c, scaled for division; see `division.scale`."""
    return division.scale(a, b, c)


@vop3(482)
def v_div_fmas_f32(a: f32, b: f32, c: f32, undo: vcc_lane) -> f32:
    """a·b + c, scaled back in lanes whose bit of VCC (`undo`) is set; see `division.fmas`."""
    return division.fmas(a, b, c, undo)


@vop3(648)
def v_ldexp_f32(a: f32, b: i32) -> f32:
    """a · 2**b."""
    return floats.ldexp(a, b)


@vop3(673, targets=SINCE_GFX90A)
def v_mul_legacy_f32(a: f32, b: f32) -> f32:
    """a·b with 0·x = 0 for every x."""
    return where(either(a == 0.0, b == 0.0), 0.0, a * b)


@vop3(680, targets=GFX950)
def v_minimum3_f32(a: f32, b: f32, c: f32) -> f32:
    """IEEE 754-2019 minimum of three; a NaN if one is."""
    return floats.minimum(floats.minimum(a, b), c)


@vop3(681, targets=GFX950)
def v_maximum3_f32(a: f32, b: f32, c: f32) -> f32:
    """IEEE 754-2019 maximum of three; a NaN if one is."""
    return floats.maximum(floats.maximum(a, b), c)


# Attribute interpolation of pixel shaders. LLVM decodes these on gfx908; compute kernels do not use them.
for _opcode, _name in {
    624: "v_interp_p1_f32_e64",
    625: "v_interp_p2_f32_e64",
    626: "v_interp_mov_f32_e64",
    628: "v_interp_p1ll_f16",
    629: "v_interp_p1lv_f16",
    630: "v_interp_p2_legacy_f16",
    631: "v_interp_p2_f16",
}.items():

    @vop3(
        _opcode,
        targets=GFX908,
        control=ControlKind.UNSUPPORTED,
        flags=(Flag.INTERP,),
        name=_name,
    )
    def _interpolate(a: f32) -> f32:
        """Pixel attribute interpolation; not for compute kernels."""
