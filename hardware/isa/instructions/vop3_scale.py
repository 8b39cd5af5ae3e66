"""VOP3 conversions of gfx950 between small floats and wider ones with an E8M0 scale.

The scale is the exponent field of an f32 operand: narrowing divides by 2**(field - 127),
widening multiplies. Families are generated from tables: format x width. All carry `unverified`:
no public evidence settles overflow and stochastic rounding (see `small_floats`).
"""

# No postponed annotations here: the generated bodies' annotations are local objects.

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa.arithmetic import small_floats as small
from simgpu.hardware.isa.arithmetic.small_floats import BF6, BF8, FP4, FP6, FP8, SmallFloat, scale_exponent
from simgpu.hardware.isa.arithmetic.vectors import bf16x32, f16x32, f32x16, f32x32, modifier, u32x6
from simgpu.hardware.isa.encodings import vop3
from simgpu.hardware.isa.instructions.vop1 import prng
from simgpu.hardware.isa.instructions.vop3_cvt import destination_byte, insert_byte
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, cast, const, lshr, shl
from simgpu.hardware.isa.types import Type, bf16, bf16x2, f16, f16x2, f32, f32x2, u16, u32

FLAGS = (Flag.UNVERIFIED,)
KEEP = (Flag.UNVERIFIED, Flag.PRESERVE_HIGH)
PAIRS = {f32: f32x2, f16: f16x2, bf16: bf16x2}
BLOCKS = {f32: f32x32, f16: f16x32, bf16: bf16x32}
Values = tuple[Value, ...]


def _codes(
    values: Values, form: SmallFloat, scale: Value, fp16_ovfl: int = 0, seed: Value | None = None
) -> list[Value]:
    """Codes of the values; with a seed, stochastically, the seed stepping between elements."""
    codes = []
    for value in values:
        wide, field = cast(value, f32), scale_exponent(scale)
        codes.append(small.encode(wide, form, scale=field, seed=seed, fp16_ovfl=fp16_ovfl))
        seed = prng(seed) if seed is not None else None
    return codes


def _decode(code: Value, form: SmallFloat, scale: Value, type_: Type) -> Value:
    return small.decode_scaled(code, form, scale_exponent(scale), type_)


def _pack(codes: list[Value], width: int) -> Values:
    """Codes of `width` bits packed from bit 0 into 32-bit words."""
    words = []
    for word in range(len(codes) * width // 32):
        total = const(codes[0], 0)
        for i, code in enumerate(codes):
            at = i * width - 32 * word
            if -width < at < 32:
                total = total | (shl(code, at) if at >= 0 else lshr(code, -at))
        words.append(total)
    return tuple(words)


def _unpack(words: Values, width: int) -> list[Value]:
    """Reverses `_pack`."""
    codes = []
    for first in range(0, 32 * len(words), width):
        word, at = divmod(first, 32)
        code = lshr(words[word], at)
        if at + width > 32:
            code = code | shl(words[word + 1], 32 - at)
        codes.append(code & ((1 << width) - 1))
    return codes


def _source_byte(a: Value, op_sel: int) -> Value:
    """Returns the byte of a that op_sel[1:0] selects."""
    return lshr(a, 8 * (op_sel & 3)) & 0xFF


def _pair_to_fp8(form: SmallFloat, type_: Type, opcode: int) -> None:
    pair = PAIRS[type_]

    @vop3(opcode, targets=GFX950, flags=KEEP, name=f"v_cvt_scalef32_pk_{form.name}_{type_.name}")
    def body(a: pair, scale: f32, fp16_ovfl: modifier = 0) -> u16:
        """Converts both halves of a, into the half of vdst that op_sel[3] selects."""
        low, high = _codes(a, form, scale, fp16_ovfl)
        return cast(low | shl(high, 8), u16)


def _f32_to_fp8(form: SmallFloat, opcode: int) -> None:
    @vop3(opcode, targets=GFX950, flags=KEEP, name=f"v_cvt_scalef32_pk_{form.name}_f32")
    def body(a: f32, b: f32, scale: f32, fp16_ovfl: modifier = 0) -> u16:
        """a low, b high, into the half of vdst that op_sel[3] names."""
        low, high = _codes((a, b), form, scale, fp16_ovfl)
        return cast(low | shl(high, 8), u16)


def _stochastic_fp8(form: SmallFloat, type_: Type, opcode: int) -> None:
    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_sr_{form.name}_{type_.name}")
    def body(a: type_, b: u32, scale: f32, vdst: u32, op_sel: modifier = 0, fp16_ovfl: modifier = 0) -> u32:
        """Stochastically with random bits b, into byte op_sel[3:2] of vdst."""
        (code,) = _codes((a,), form, scale, fp16_ovfl, seed=b)
        return insert_byte(vdst, code, const(vdst, destination_byte(op_sel)))


def _fp8_to_pair(form: SmallFloat, type_: Type, opcode: int) -> None:
    pair = PAIRS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_pk_{type_.name}_{form.name}")
    def body(a: u32, scale: f32, op_sel: modifier = 0) -> pair:
        """Converts the two codes in the half of a that op_sel[0] selects."""
        half = lshr(a, 16 * (op_sel & 1))
        codes = (half & 0xFF, lshr(half, 8) & 0xFF)
        return tuple(_decode(code, form, scale, type_) for code in codes)


def _fp8_to_one(form: SmallFloat, type_: Type, opcode: int) -> None:
    flags = KEEP if type_ is f16 else FLAGS

    @vop3(opcode, targets=GFX950, flags=flags, name=f"v_cvt_scalef32_{type_.name}_{form.name}")
    def body(a: u32, scale: f32, op_sel: modifier = 0) -> type_:
        """Converts the code in byte op_sel[1:0] of a; an f16 goes to the half that op_sel[3] selects."""
        return _decode(_source_byte(a, op_sel), form, scale, type_)


def _into_byte(vdst: Value, codes: list[Value], op_sel: int) -> Value:
    """vdst with two 4-bit codes in byte op_sel[3:2]."""
    low, high = codes
    return insert_byte(vdst, low | shl(high, 4), const(vdst, destination_byte(op_sel)))


@vop3(573, targets=GFX950, flags=FLAGS)
def v_cvt_scalef32_pk_fp4_f32(a: f32, b: f32, scale: f32, vdst: u32, op_sel: modifier = 0) -> u32:
    """a low, b high, into byte op_sel[3:2] of vdst."""
    return _into_byte(vdst, _codes((a, b), FP4, scale), op_sel)


def _pair_to_fp4(type_: Type, opcode: int) -> None:
    pair = PAIRS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_pk_fp4_{type_.name}")
    def body(a: pair, scale: f32, vdst: u32, op_sel: modifier = 0) -> u32:
        """Converts both elements of a, into byte op_sel[3:2] of vdst."""
        return _into_byte(vdst, _codes(a, FP4, scale), op_sel)


def _stochastic_fp4(type_: Type, opcode: int) -> None:
    pair = PAIRS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_sr_pk_fp4_{type_.name}")
    def body(a: pair, b: u32, scale: f32, vdst: u32, op_sel: modifier = 0) -> u32:
        """Converts both elements of a, stochastically with random bits b, into byte op_sel[3:2] of vdst."""
        return _into_byte(vdst, _codes(a, FP4, scale, seed=b), op_sel)


def _fp4_to_pair(type_: Type, opcode: int) -> None:
    pair = PAIRS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_pk_{type_.name}_fp4")
    def body(a: u32, scale: f32, op_sel: modifier = 0) -> pair:
        """Converts the two codes in byte op_sel[1:0] of a."""
        codes = _source_byte(a, op_sel)
        return tuple(_decode(code, FP4, scale, type_) for code in (codes & 15, lshr(codes, 4)))


def _interleaved_to_fp6(form: SmallFloat, opcode: int) -> None:
    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_2xpk16_{form.name}_f32")
    def body(a: f32x16, b: f32x16, scale: f32) -> u32x6:
        """32 codes: a's and b's elements in turn."""
        values = tuple(value for both in zip(a, b, strict=True) for value in both)
        return _pack(_codes(values, form, scale), 6)


def _block_to_fp6(form: SmallFloat, type_: Type, opcode: int) -> None:
    block = BLOCKS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_pk32_{form.name}_{type_.name}")
    def body(a: block, scale: f32) -> u32x6:
        """32 elements to packed codes."""
        return _pack(_codes(a, form, scale), 6)


def _stochastic_fp6(form: SmallFloat, type_: Type, opcode: int) -> None:
    block = BLOCKS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_sr_pk32_{form.name}_{type_.name}")
    def body(a: block, b: u32, scale: f32) -> u32x6:
        """32 elements to packed codes, stochastically with random bits b."""
        return _pack(_codes(a, form, scale, seed=b), 6)


def _fp6_to_block(form: SmallFloat, type_: Type, opcode: int) -> None:
    block = BLOCKS[type_]

    @vop3(opcode, targets=GFX950, flags=FLAGS, name=f"v_cvt_scalef32_pk32_{type_.name}_{form.name}")
    def body(a: u32x6, scale: f32) -> block:
        """32 packed codes to elements."""
        return tuple(_decode(code, form, scale, type_) for code in _unpack(a, 6))


for _step, _form in enumerate((FP8, BF8)):
    _f32_to_fp8(_form, 565 + _step)
    _pair_to_fp8(_form, f16, 576 + _step)
    _pair_to_fp8(_form, bf16, 580 + _step)
    _stochastic_fp8(_form, f32, 567 + _step)
    _stochastic_fp8(_form, f16, 578 + _step)
    _stochastic_fp8(_form, bf16, 582 + _step)
    _fp8_to_pair(_form, f32, 569 + _step)
    _fp8_to_pair(_form, f16, 584 + _step)
    _fp8_to_pair(_form, bf16, 617 + _step)
    _fp8_to_one(_form, f32, 571 + _step)
    _fp8_to_one(_form, f16, 586 + _step)
for _type, _narrow, _stochastic, _wide in (
    (f32, None, 574, 575),
    (f16, 588, 590, 592),
    (bf16, 589, 591, 593),
):
    if _narrow is not None:
        _pair_to_fp4(_type, _narrow)
    _stochastic_fp4(_type, _stochastic)
    _fp4_to_pair(_type, _wide)
for _step, _form in enumerate((FP6, BF6)):
    _interleaved_to_fp6(_form, 594 + _step)
    _stochastic_fp6(_form, f32, 596 + _step)
    _fp6_to_block(_form, f32, 598 + _step)
    for _more, _type in enumerate((f16, bf16)):
        _block_to_fp6(_form, _type, 600 + 2 * _step + _more)
        _stochastic_fp6(_form, _type, 604 + 2 * _step + _more)
        _fp6_to_block(_form, _type, 608 + 2 * _step + _more)
