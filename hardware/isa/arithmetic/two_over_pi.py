"""Bits of 2/π that V_TRIG_PREOP_F64 returns for argument reduction."""

from __future__ import annotations

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value, cast, const, lshr, shl, where

BITS = 1201  # ISA guide, V_TRIG_PREOP_F64
_WORDS = 38


def _fraction_words() -> tuple[int, ...]:
    """Returns the first BITS fraction bits of 2/π as 32-bit words, most significant first, zero-padded.

    π is computed by Machin's formula in integers with 64 guard bits.
    """
    scale = 1 << (BITS + 64)

    def arctan_inverse(n: int) -> int:
        total, power, k = 0, scale // n, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    fraction = ((2 * scale << BITS) // pi) << (32 * _WORDS - BITS)
    return tuple(fraction >> 32 * i & 0xFFFFFFFF for i in reversed(range(_WORDS)))


TWO_OVER_PI = _fraction_words()


def _word(index: Value) -> Value:
    """Returns the word at bit `index` (u32, a multiple of 32), widened to u64; 0 past the end."""
    word = const(index, 0)
    for i, value in enumerate(TWO_OVER_PI):
        word = where(index == 32 * i, const(index, value), word)
    return cast(word, t.u64)


def fifty_three_bits(shift: Value) -> Value:
    """Returns bits shift .. shift + 52 of 2/π after the binary point, as a u64 integer; shift: u32."""
    index, offset = shift & 0xFFFFFFE0, cast(shift & 31, t.u64)
    first, second, third = _word(index), _word(index + 32), _word(index + 64)
    top = shl(shl(first, 32) | second, offset) | lshr(shl(third, offset), 32)
    return lshr(top, 11)
