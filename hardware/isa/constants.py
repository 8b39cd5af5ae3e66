"""Inline constants: the bits that a number in an operand field (128 to 208, 240 to 248) stands for, by operand type.

The rule is LLVM's (AMDGPUBaseInfo.cpp, `getInlineEncodingV216` and `isInlinableLiteral*`), because the guides mislead:

* an inline integer is sign-extended to the operand's 32 or 64 bits, also for packed operands;
* an inline float in a float operand has the operand's format, in the low bits, with zeros above: a packed operand has it only in
  the low half;
* an inline float in an operand of 16-bit or narrower integers, packed or not, has the f32 bits. A 16-bit operand reads their low
  half, which is 0 except for 1/(2 pi) (LLVM, pull request 198005: "inline 1.0 will materialize 0x0000 on gfx8/gfx9"). With op_sel
  and in packed operands, the high half is read too;
* an inline float in an operand of 64-bit integers has the f64 bits.

For the high register of a packed f32 operand, nothing confirms these rules: no compiler reads it.
"""

from __future__ import annotations

from typing import NamedTuple

from simgpu.hardware.isa.types import Type


class FloatBits(NamedTuple):
    """Bits of an inline float in each format."""

    f16: int
    bf16: int
    f32: int
    f64: int


INTEGERS = {**{128 + i: i for i in range(65)}, **{192 + i: -i for i in range(1, 17)}}
FLOATS = {
    240: FloatBits(0x3800, 0x3F00, 0x3F000000, 0x3FE0000000000000),  # 0.5
    241: FloatBits(0xB800, 0xBF00, 0xBF000000, 0xBFE0000000000000),
    242: FloatBits(0x3C00, 0x3F80, 0x3F800000, 0x3FF0000000000000),  # 1
    243: FloatBits(0xBC00, 0xBF80, 0xBF800000, 0xBFF0000000000000),
    244: FloatBits(0x4000, 0x4000, 0x40000000, 0x4000000000000000),  # 2
    245: FloatBits(0xC000, 0xC000, 0xC0000000, 0xC000000000000000),
    246: FloatBits(0x4400, 0x4080, 0x40800000, 0x4010000000000000),  # 4
    247: FloatBits(0xC400, 0xC080, 0xC0800000, 0xC010000000000000),
    248: FloatBits(0x3118, 0x3E22, 0x3E22F983, 0x3FC45F306DC9C882),  # 1 / (2 pi)
}
# Format of inline floats by operand type; f32 for all others.
FORMATS = {
    "f16": "f16", "f16x2": "f16",
    "bf16": "bf16", "bf16x2": "bf16",
    "f64": "f64", "i64": "f64", "u64": "f64", "u16x4": "f64",
}  # fmt: skip
# Sources with f16 constants although the body reads integers (mnemonic, form, name): in LLVM, these operands are f16.
F16_SOURCES = frozenset({("v_ldexp_f16", "e64", "src1")})


def is_inline(code: int) -> bool:
    """True if a number in an operand field is an inline constant."""
    return code in INTEGERS or code in FLOATS


def inline_bits(code: int, type_: Type, bits: int) -> int:
    """Returns the bits of inline constant `code` in an operand of `type_` and 32 or 64 `bits`. Raises KeyError for other codes."""
    if code in INTEGERS:
        return INTEGERS[code] & (1 << bits) - 1
    return int(getattr(FLOATS[code], FORMATS.get(type_.name, "f32")))
