"""Operand types with several elements, and the modifier type.

A parameter or result whose type has kind `pair` is a Python tuple of `bits // element.bits` values inside a body,
element 0 in the low bits of the first register.

A parameter of type `modifier` is a Python int that is known when code is generated from the body. It is the instruction's
modifier of that name (`op_sel`, `bitop3`, `clamp`), or a bit of MODE (`ieee`, `fp16_ovfl`). The parameter's default applies
if the instruction does not set it. An integer body with a `clamp` parameter saturates its result itself.
"""

from __future__ import annotations

from simgpu.hardware.isa.types import Type, bf16, f16, f32, u16, u32

u16x4 = Type("u16x4", 64, "pair", element=u16)
u32x4 = Type("u32x4", 128, "pair", element=u32)
u32x6 = Type("u32x6", 192, "pair", element=u32)
f32x16 = Type("f32x16", 512, "pair", element=f32)
f16x32 = Type("f16x32", 512, "pair", element=f16)
bf16x32 = Type("bf16x32", 512, "pair", element=bf16)
f32x32 = Type("f32x32", 1024, "pair", element=f32)

modifier = Type("modifier", 32, "unsigned", state="modifier")

# VCC, read without an operand field, one bit a lane: a condition in the body.
vcc_lane = Type("vcc_lane", 64, "mask", state="vcc")
