"""Arithmetic of a wave on scalars: division by constants, 64-bit addresses of tiles."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.emit import log2
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg


def scalar_divmod(k: KernelBuilder, x: Reg, divisor: int, limit: int, name: str) -> Reg:
    """x becomes x // divisor, for 0 <= x < limit; the SGPR with x % divisor, owned by the caller.

    LaunchError past 32-bit arithmetic. x // d = mul_hi(x, m) with m = ceil(2^32 / d), exact if limit · (m·d - 2^32) < 2^32
    (Granlund and Montgomery 1994, theorem 4.2).
    """
    remainder = k.s.alloc(name)
    shift = log2(divisor)
    if shift is not None:
        k.s_and_b32(remainder, x, divisor - 1, note=name)
        k.s_lshr_b32(x, x, shift)
        return remainder
    magic = -(-(1 << 32) // divisor)
    if limit * (magic * divisor - (1 << 32)) >= 1 << 32:
        raise LaunchError(f"{limit} workgroups do not divide by {divisor} in 32 bits: split the problem")
    quotient = k.s.alloc("quotient")
    k.s_mul_hi_u32(quotient, x, magic)
    k.s_mul_i32(remainder, quotient, divisor)
    k.s_sub_u32(remainder, x, remainder, note=name)
    k.s_mov_b32(x, quotient)
    k.s.free(quotient)
    return remainder


def add_product(k: KernelBuilder, base: Reg, index: Reg, stride: int) -> None:
    """base (an SGPR pair) += index · stride, in 64 bits; stride: below 2^63, unsigned index."""
    low, high = k.s.alloc("product"), k.s.alloc("product, high word")
    k.s_mul_i32(low, index, stride & 0xFFFFFFFF)
    k.s_mul_hi_u32(high, index, stride & 0xFFFFFFFF)
    if stride >> 32:
        more = k.s.alloc("high words' product")
        k.s_mul_i32(more, index, stride >> 32)
        k.s_add_u32(high, high, more)
        k.s.free(more)
    k.s_add_u32(base[0], base[0], low)
    k.s_addc_u32(base[1], base[1], high)
    k.s.free(low, high)
