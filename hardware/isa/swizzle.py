"""Text of ds_swizzle_b32's pattern: the same on all architectures (LLVM, AMDGPUInstPrinter::printSwizzle)."""

from __future__ import annotations


def swizzle(offset: int) -> str:
    """Returns the text of ds_swizzle_b32's pattern."""
    if offset >= 0xE000:
        return f"swizzle(FFT,{offset & 31})"
    if offset >= 0xC000:
        return f"swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset & 0xFF00 == 0x8000:
        lanes = ",".join(str(offset >> shift & 3) for shift in (0, 2, 4, 6))
        return f"swizzle(QUAD_PERM,{lanes})"
    if offset & 0x8000:
        return str(offset)
    keep, force, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    if keep == 31 and force == 0 and flip.bit_count() == 1:
        return f"swizzle(SWAP,{flip})"
    if keep == 31 and force == 0 and flip and flip + 1 & flip == 0:
        return f"swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if group > 1 and group & group - 1 == 0 and force < group and flip == 0:
        return f"swizzle(BROADCAST,{group},{force})"
    return f'swizzle(BITMASK_PERM,"{_bit_pattern(keep, force, flip)}")'


def _bit_pattern(keep: int, force: int, flip: int) -> str:
    """Returns a letter for each bit of the lane number, high bit first: 0, 1, p (kept) or i (inverted)."""
    zero, one = (bit & keep | force for bit in (0, 31))
    zero, one = zero ^ flip, one ^ flip
    letters = {(0, 0): "0", (1, 1): "1", (0, 1): "p", (1, 0): "i"}
    return "".join(letters[zero >> i & 1, one >> i & 1] for i in (4, 3, 2, 1, 0))
