"""Integer arithmetic of scalars: division by constants and by an SGPR, 64-bit addresses, a comparison with 0."""

from __future__ import annotations

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.hardware.isa.instruction import Reg


def scalar_divmod(k: KernelBuilder, x: Reg, divisor: int, limit: int, name: str) -> Reg:
    """Emits x = x // divisor, for 0 <= x < limit. Returns a new SGPR with x % divisor, which the caller owns."""
    remainder, value = k.s.alloc(name), of(x, limit)
    k.assign((remainder, x), (value % divisor, value // divisor), (name, ""))
    return remainder


def scalar_digits(k: KernelBuilder, x: Reg, limit: int, *counts: tuple[str, int]) -> dict[str, Reg]:
    """Emits x // all counts, for 0 <= x < limit, and returns the remainders by name, each of what the ones before leave."""
    found = {}
    for name, count in counts:
        found[name] = scalar_divmod(k, x, count, limit, name)
        limit = -(-limit // count)
    return found


# index · stride, unsigned: scalar; a number below 2^63, an SGPR or a pair of SGPRs
WideTerm = tuple[Formula | Operand, Reg | int]


def multiply_wide(k: KernelBuilder, product: Reg, index: Operand, stride: Operand) -> None:
    """Emits product (an SGPR pair) = a `WideTerm`, in 64 bits."""
    low: Operand
    high: Operand
    if isinstance(stride, Reg):
        low, high = stride[0], stride[1] if stride.count == 2 else 0
    else:
        low, high = int(stride) & 0xFFFFFFFF, int(stride) >> 32
    k.s_mul_i32(product[0], index, low)
    k.s_mul_hi_u32(product[1], index, low)
    if high != 0:
        more = k.s.alloc("high words' product")
        k.s_mul_i32(more, index, high)
        k.s_add_u32(product[1], product[1], more)
        k.s.free(more)


def add_product(k: KernelBuilder, base: Reg, index: Operand, stride: Operand) -> None:
    """Emits base (an SGPR pair) += a `WideTerm`, in 64 bits."""
    product = k.s.alloc("product", 2)
    multiply_wide(k, product, index, stride)
    add_wide(k, base, product[0], product[1])
    k.s.free(product)


def add_wide(k: KernelBuilder, base: Reg, low: Operand, high: Operand = 0, note: str = "") -> None:
    """Emits base (an SGPR pair, or a buffer's) += a number of 64 bits, of which `low` and `high` are the words."""
    k.s_add_u32(base[0], base[0], low, note=note)
    k.s_addc_u32(base[1], base[1], high)


def compare_with_zero(k: KernelBuilder, value: Reg, integer: bool) -> str:
    """Returns the condition that a scalar argument of 32 or 64 bits is 0, scc1. A float's sign does not count."""
    magnitude = k.s.alloc("magnitude")
    if integer:
        k.s_mov_b32(magnitude, value)
    else:
        k.s_and_b32(magnitude, value[value.count - 1], 0x7FFFFFFF)
    if value.count == 2:
        k.s_or_b32(magnitude, magnitude, value[0])
    k.s.free(magnitude)
    return k.s_cmp_eq_u32(magnitude, 0)


def scalar_modulo(k: KernelBuilder, result: Reg, value: Reg, divisor: Reg, scratch: Reg) -> None:
    """Emits result = value % divisor for SGPRs below 2^31.

    Uses a reciprocal in f32, one Newton step in integers and two corrections (LLVM's udiv). scratch: three VGPRs.
    """
    a, b, c = (scratch[i] for i in range(3))
    k.v_cvt_f32_u32(a, divisor)
    k.v_rcp_iflag_f32(a, a)
    k.v_mul_f32(a, 4294966784.0, a, note="2^32 less what keeps the quotient from being too large")
    k.v_cvt_u32_f32(a, a)
    k.s_sub_u32(result, 0, divisor)
    k.v_mul_lo_u32(b, result, a)
    k.v_mul_hi_u32(b, a, b)
    k.v_add_u32(a, a, b)
    k.v_mul_hi_u32(a, value, a)
    k.v_mul_lo_u32(a, a, divisor)
    k.v_sub_u32(a, value, a)
    for _ in range(2):
        k.v_subrev_u32(c, divisor, a)
        k.v_min_u32(a, a, c)
    k.v_readfirstlane_b32(result, a)
