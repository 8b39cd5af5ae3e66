"""Element of a float's bits, and the bits of an element, in the lane operations.

A float of w bits is an integer modulo 2^w. 0 and -0 are 0, 1.0 is 1, 2.0 is 2, and the other sign is the other sign. Every element
but -2^(w-1) has bits of its own. The highest 16 bits of the float give the lowest 16 bits of the element, by a permutation that is
FpSan's (Triton's floating-point sanitizer) except at 2.0. So bf16, which is the upper half of an f32, has the f32's element modulo
2^16, and a bf16 in the upper half of a register is the f32 with the same element.

The infinity of f32 and f64 has a large element: sums of 16-bit elements, of f16 values say, would else be infinite by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value, as_signed, as_unsigned, ashr, bits, both, cast, const, lshr, shl, unlikely, where
from simgpu.hardware.isa.types import Type

MULTIPLIER = 14940041  # FpSan's: few trailing zeros for common constants
REST = 0x5BD1E995D4A7  # odd: multiplies the bits below the highest 16
TOP = 16  # highest bits of a float, which give the lowest of its element
MAGNITUDE = (1 << TOP - 1) - 1
INFINITE_TOP = {"f32": 0x7F80, "f64": 0x7FF0}  # highest 16 bits of infinity
FAR = 0x9E3779B97F4A  # any number of 48 bits whose highest 16 are far from 0: added to the upper part of infinity's element


@dataclass(frozen=True)
class Scramble:
    """A permutation of 15-bit magnitudes that maps 0, 1.0 and 2.0 to 0, 1 and 2.

    >>> SCRAMBLES["f32"].forward(0x3F80), SCRAMBLES["f32"].backward(2) == 0x4000
    (1, True)
    """

    one: int  # upper half of 1.0 in the type
    two: int  # upper half of 2.0

    @cached_property
    def shift(self) -> int:
        return (self.one & -self.one).bit_length() - 1

    @cached_property
    def last(self) -> int:
        """Multiplier that maps 1.0 to 1."""
        return pow(self._fold(self.one * MULTIPLIER & MAGNITUDE), -1, MAGNITUDE + 1)

    @cached_property
    def image_of_two(self) -> int:
        """Image that 2.0 would have; it changes places with 2."""
        return self._fold(self.two * MULTIPLIER & MAGNITUDE) * self.last & MAGNITUDE

    @cached_property
    def inverses(self) -> tuple[int, int]:
        """Inverses of the first and of the last multiplier."""
        return pow(MULTIPLIER, -1, MAGNITUDE + 1), pow(self.last, -1, MAGNITUDE + 1)

    def _fold(self, x: int) -> int:
        return x ^ x >> self.shift

    def forward(self, x: int) -> int:
        """Returns the image of a magnitude."""
        return self._swap(self._fold(x * MULTIPLIER & MAGNITUDE) * self.last & MAGNITUDE)

    def backward(self, y: int) -> int:
        """Returns the magnitude with an image."""
        first, last = self.inverses
        x, shift = self._swap(y) * last & MAGNITUDE, self.shift
        while shift < TOP:
            x, shift = x ^ x >> shift, 2 * shift
        return x * first & MAGNITUDE

    def _swap(self, y: int) -> int:
        return {2: self.image_of_two, self.image_of_two: 2}.get(y, y)

    def forward_lanes(self, x: Value) -> Value:
        """Returns the image of unsigned magnitudes."""
        x = x * (MULTIPLIER & MAGNITUDE) & MAGNITUDE
        return self._swap_lanes((x ^ lshr(x, self.shift)) * self.last & MAGNITUDE)

    def backward_lanes(self, y: Value) -> Value:
        """Returns the magnitudes with images."""
        first, last = self.inverses
        x, shift = self._swap_lanes(y) * last & MAGNITUDE, self.shift
        while shift < TOP:
            x, shift = x ^ lshr(x, shift), 2 * shift
        return x * first & MAGNITUDE

    def _swap_lanes(self, y: Value) -> Value:
        image = self.image_of_two
        return where(y == 2, const(y, image), where(y == image, const(y, 2), y))


SCRAMBLES = {
    "bf16": Scramble(0x3F80, 0x4000), "f32": Scramble(0x3F80, 0x4000),
    "f16": Scramble(0x3C00, 0x4000), "f64": Scramble(0x3FF0, 0x4000),
}  # fmt: skip
SIGNED = {16: t.i16, 32: t.i32, 64: t.i64}


def element_of(a: Value) -> Value:
    """Returns the elements of f16, bf16, f32 or f64 values, as signed integers of their width."""
    return element_of_bits(as_unsigned(a), a.type)


def element_of_bits(word: Value, type_: Type) -> Value:
    """Returns the elements of floats of `type_` by their bits, unsigned. For types of 16 bits the word may be wider: the bits above
    are zero, and elements are sign-extended."""
    width, spare = type_.bits, word.type.bits - type_.bits
    sign = ashr(as_signed(shl(word, spare) if spare else word), word.type.bits - 1)
    magnitude = word & (1 << width - 1) - 1
    if width == TOP:
        size = SCRAMBLES[type_.name].forward_lanes(magnitude)
    else:
        rest = width - TOP
        factor = REST % (1 << rest) << TOP
        top = lshr(magnitude, rest)
        usual = SCRAMBLES[type_.name].forward_lanes(top) + word * factor + shl(_far(top, type_), TOP)
        # Below the permuted magnitudes: half of these elements end in 0, half in 2^15, which no magnitude gives.
        tiny = magnitude - 1 < (1 << rest) - 1
        size = unlikely(tiny, usual, lambda: shl(magnitude & (1 << rest - 1) - 1, TOP) | shl(lshr(magnitude, rest - 1), TOP - 1))
    return (as_signed(size) ^ sign) - sign


def _far(top: Value, type_: Type) -> Value:
    """Returns what floats with these highest 16 bits, without the sign, have more in the upper part of their element."""
    far = FAR >> 64 - type_.bits
    return where(top == INFINITE_TOP[type_.name], const(top, far), const(top, 0))


def float_of(element: Value, type_: Type) -> Value:
    """Returns the floats of `type_`, f16, bf16, f32 or f64, with elements: signed integers of the type's width."""
    width = type_.bits
    word = as_unsigned(element)
    scramble = SCRAMBLES[type_.name]
    if width == TOP:
        sign = ashr(element, width - 1)
        size = scramble.backward_lanes(as_unsigned((element ^ sign) - sign) & MAGNITUDE)
        return bits(size | word & 1 << width - 1, type_)
    rest = width - TOP
    sign = ashr(as_signed(shl(word, rest)), width - 1)
    size = as_unsigned((element ^ sign) - sign)
    inverse = pow(REST, -1, 1 << rest)
    top = scramble.backward_lanes(size & MAGNITUDE)
    usual = shl(top, rest) | (lshr(size, TOP) - _far(top, type_)) * inverse & (1 << rest) - 1 | as_unsigned(sign) & 1 << width - 1

    def tiny() -> Value:
        sign = ashr(element, width - 1)
        size = as_unsigned((element ^ sign) - sign)
        low = lshr(size, TOP) & (1 << rest - 1) - 1 | shl(lshr(size, TOP - 1) & 1, rest - 1)
        return low | as_unsigned(sign) & 1 << width - 1

    edge = both((word & MAGNITUDE) == 0, word != 0)
    return bits(unlikely(edge, usual, tiny), type_)


def resize(element: Value, type_: Type) -> Value:
    """Returns elements sign-extended or cut to the width of a float type: conversion between types."""
    return cast(element, SIGNED[type_.bits])
