"""Integer arithmetic: division by constants in VGPRs and SGPRs and by an SGPR, 64-bit addresses, a scalar compared with 0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.hardware.isa.instruction import Reg

DIVIDEND_LIMIT = 1 << 31  # numbers that `division_words` divides are below


def log2(value: int) -> int | None:
    """Returns the exponent of a power of two, else None."""
    return value.bit_length() - 1 if value > 0 and not value & (value - 1) else None


def vector_divmod(k: KernelBuilder, x: Reg, divisor: int, limit: int, name: str) -> tuple[Reg, Reg]:
    """Emits x // divisor and x % divisor, for 0 <= x < limit. Returns them in two new VGPRs, which the caller owns."""
    quotient, remainder = k.v.alloc(f"{name} quotient"), k.v.alloc(f"{name} remainder")
    shift = log2(divisor)
    if shift is not None:
        k.v_lshrrev_b32(quotient, shift, x)
        k.v_and_b32(remainder, divisor - 1, x)
        return quotient, remainder
    magic, bits = division_magic(divisor, limit)
    k.v_mul_u32_u24(quotient, magic, x)
    k.v_lshrrev_b32(quotient, bits, quotient, note=f"/ {divisor}")
    k.v_mul_u32_u24(remainder, divisor, quotient)
    k.v_sub_u32(remainder, x, remainder)
    return quotient, remainder


def division_magic(divisor: int, limit: int) -> tuple[int, int]:
    """Returns (magic, bits): x // divisor = x · magic >> bits for 0 <= x < limit. magic has 24 bits, the product 32.

    Exact if limit · (magic · divisor - 2^bits) < 2^bits (Granlund and Montgomery 1994, theorem 4.2).
    """
    for bits in range(32):
        magic = -(-(1 << bits) // divisor)
        if magic >> 24 or limit * magic > 1 << 32:
            break
        if limit * (magic * divisor - (1 << bits)) < 1 << bits:
            return magic, bits
    raise TargetError(f"no 24-bit multiplier divides numbers below {limit} by {divisor}")


def division_words(divisor: int) -> tuple[int, int, int]:
    """Returns (d, magic, shift): x // d = (2x · magic >> 32) >> shift for 0 <= x < DIVIDEND_LIMIT.

    magic = ceil(2^(31+l)/d), l = ceil(log2 d) (Granlund and Montgomery 1994, theorem 4.2, N = 31).
    """
    shift = (divisor - 1).bit_length()
    return divisor, -(-(1 << 31 + shift) // divisor), shift


def scalar_divmod(k: KernelBuilder, x: Reg, divisor: int, limit: int, name: str) -> Reg:
    """Emits x = x // divisor, for 0 <= x < limit. Returns a new SGPR with x % divisor, which the caller owns.

    x // d = mul_hi(x, m) with m = ceil(2^32 / d) is exact if limit · (m·d - 2^32) < 2^32 (Granlund and Montgomery 1994, theorem
    4.2). Other divisions are by `division_words`. LaunchError if the limit is above DIVIDEND_LIMIT.
    """
    remainder = k.s.alloc(name)
    shift = log2(divisor)
    if shift is not None:
        k.s_and_b32(remainder, x, divisor - 1, note=name)
        k.s_lshr_b32(x, x, shift)
        return remainder
    magic, quotient = -(-(1 << 32) // divisor), k.s.alloc("quotient")
    if limit * (magic * divisor - (1 << 32)) < 1 << 32:
        k.s_mul_hi_u32(quotient, x, magic)
    elif limit <= DIVIDEND_LIMIT:
        _, magic, shift = division_words(divisor)
        k.s_lshl_b32(quotient, x, 1)
        k.s_mul_hi_u32(quotient, quotient, magic)
        k.s_lshr_b32(quotient, quotient, shift)
    else:
        raise LaunchError(f"{limit} workgroups do not divide by {divisor} in 32 bits: split the problem")
    k.s_mul_i32(remainder, quotient, divisor)
    k.s_sub_u32(remainder, x, remainder, note=name)
    k.s_mov_b32(x, quotient)
    k.s.free(quotient)
    return remainder


Term = tuple[Operand, Reg | int]  # index · stride, unsigned: an SGPR or 0; a number below 2^63, an SGPR or a pair of SGPRs


def multiply_wide(k: KernelBuilder, product: Reg, index: Operand, stride: Reg | int) -> None:
    """Emits product (an SGPR pair) = a `Term`, in 64 bits."""
    low: Operand
    high: Operand
    if isinstance(stride, int):
        low, high = stride & 0xFFFFFFFF, stride >> 32
    else:
        low, high = stride[0], stride[1] if stride.count == 2 else 0
    k.s_mul_i32(product[0], index, low)
    k.s_mul_hi_u32(product[1], index, low)
    if high != 0:
        more = k.s.alloc("high words' product")
        k.s_mul_i32(more, index, high)
        k.s_add_u32(product[1], product[1], more)
        k.s.free(more)


@contextmanager
def wide_product(k: KernelBuilder, index: Operand, stride: Reg | int) -> Iterator[tuple[Operand, Operand]]:
    """Yields the low and the high word of a `Term`, for the code inside the `with` block."""
    if stride == 1:
        yield index, 0
        return
    product = k.s.alloc("product", 2)
    multiply_wide(k, product, index, stride)
    yield product[0], product[1]
    k.s.free(product)


def add_product(k: KernelBuilder, base: Reg, index: Operand, stride: Reg | int) -> None:
    """Emits base (an SGPR pair) += a `Term`, in 64 bits."""
    with wide_product(k, index, stride) as (low, high):
        k.s_add_u32(base[0], base[0], low)
        k.s_addc_u32(base[1], base[1], high)


def branch_if_zero(k: KernelBuilder, value: Reg, integer: bool, label: str) -> None:
    """Branches to `label` if a scalar argument of 32 or 64 bits is 0. A float's sign does not count."""
    magnitude = k.s.alloc("magnitude")
    if integer:
        k.s_mov_b32(magnitude, value)
    else:
        k.s_and_b32(magnitude, value[value.count - 1], 0x7FFFFFFF)
    if value.count == 2:
        k.s_or_b32(magnitude, magnitude, value[0])
    k.s_cmp_eq_u32(magnitude, 0)
    k.s_cbranch_scc1(label)
    k.s.free(magnitude)


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
