"""Stores shadows: an f64 number for each float in registers, LDS and memory.

A shadow is valid only while the bits that it belongs to are unchanged. So untracked moves, integer operations and memory that
another workgroup wrote need no extra code: such numbers count as exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.checks.numerics.shadow.trace import REGISTERS
from simgpu.machine.layout import LANES

NOBODY = -1


@dataclass
class Shadows:
    """Shadows of dwords and their halves, in any shape."""

    bits: np.ndarray  # u32 (...,): the bits that the shadows belong to
    whole: np.ndarray  # f64 (...,), of an f32; NaN if none
    link: np.ndarray  # i64 (...,): maker of the number, `NOBODY` if none; see `origins`
    half: np.ndarray  # f64 (..., 2), of f16 or bf16 in the low and the high half
    half_link: np.ndarray  # i64 (..., 2)

    @classmethod
    def empty(cls, *shape: int) -> Shadows:
        return cls(
            np.zeros(shape, np.uint32), np.full(shape, np.nan), np.full(shape, NOBODY, np.int64), np.full((*shape, 2), np.nan),
            np.full((*shape, 2), NOBODY, np.int64),
        )  # fmt: skip

    def take(self, at: Any) -> Shadows:
        """Returns the shadows at a NumPy index."""
        return Shadows(self.bits[at], self.whole[at], self.link[at], self.half[at], self.half_link[at])

    def put(self, at: Any, other: Shadows) -> None:
        """Overwrites the shadows at an index."""
        self.bits[at], self.whole[at], self.link[at] = other.bits, other.whole, other.link
        self.half[at], self.half_link[at] = other.half, other.half_link

    def holding(self, bits: np.ndarray) -> Shadows:
        """Returns the shadows that remain valid for these bits."""
        same = self.bits == bits
        halves = np.stack([(self.bits ^ bits) & 0xFFFF == 0, (self.bits ^ bits) >> 16 == 0], -1)
        return Shadows(
            bits.copy(), np.where(same, self.whole, np.nan), np.where(same, self.link, NOBODY),
            np.where(halves, self.half, np.nan), np.where(halves, self.half_link, NOBODY),
        )  # fmt: skip


class Dwords:
    """Shadows of memory or LDS by dword number (address / 4). Dwords that were never stored have none."""

    def __init__(self) -> None:
        self.place: dict[int, int] = {}
        self.shadows = Shadows.empty(1024)

    def store(self, dwords: np.ndarray, shadows: Shadows) -> None:
        places = np.array([self.place.setdefault(int(dword), len(self.place)) for dword in dwords], np.int64)
        while len(self.place) > len(self.shadows.bits):
            grown = Shadows.empty(2 * len(self.shadows.bits))
            grown.put(slice(0, len(self.shadows.bits)), self.shadows)
            self.shadows = grown
        self.shadows.put(places, shadows)

    def shadows_at(self, dwords: np.ndarray) -> Shadows:
        """Returns the shadows of dwords and the bits that were stored with them."""
        places = np.array([self.place.get(int(dword), -1) for dword in dwords], np.int64)
        found = self.shadows.take(np.maximum(places, 0))
        found.put(places < 0, Shadows.empty(int((places < 0).sum())))
        return found

    def load(self, dwords: np.ndarray, bits: np.ndarray) -> Shadows:
        """Returns the shadows of dwords that are still valid for the loaded bits."""
        return self.shadows_at(dwords).holding(bits)


def file() -> Shadows:
    """Returns empty shadows of a wave's vector registers."""
    return Shadows.empty(REGISTERS, LANES)
