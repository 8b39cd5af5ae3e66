"""Bytes of device memory that a slice read and wrote, as bits: compares slices, and copies written bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import zstandard

if TYPE_CHECKING:
    from simgpu.engine.allocations import DeviceMemory
    from simgpu.memory.table import AllocationTable

# Base address of an allocation -> its bits, uint8, one for each byte from the lowest on.
Bits = Mapping[int, np.ndarray]
# Bits of bytes read and of bytes written, compressed, by base address.
PackedBits = tuple[Sequence[tuple[int, bytes]], Sequence[tuple[int, bytes]]]


@dataclass(frozen=True)
class TouchedBytes:
    """Bytes that were read and written. Untouched allocations are left out."""

    read: Bits
    written: Bits

    @classmethod
    def of(cls, table: AllocationTable) -> TouchedBytes:
        """Reads a launch's bitmaps, before they are cleared."""
        return cls(table.touched_bits(0), table.touched_bits(1))

    def pack(self) -> PackedBits:
        """Compresses the bits."""
        squeeze = zstandard.ZstdCompressor(level=1).compress
        read, written = ([(base, squeeze(bits.tobytes())) for base, bits in kind.items()] for kind in (self.read, self.written))
        return read, written

    @classmethod
    def unpack(cls, packed: PackedBits) -> TouchedBytes:
        """Expands what `pack` returned."""
        expand = zstandard.ZstdDecompressor().decompress
        read, written = ({base: np.frombuffer(expand(data), np.uint8) for base, data in kind} for kind in packed)
        return cls(read, written)

    def __or__(self, other: TouchedBytes) -> TouchedBytes:
        """Unites the bytes that either touched."""
        return TouchedBytes(_union(self.read, other.read), _union(self.written, other.written))


def _union(one: Bits, other: Bits) -> Bits:
    return {**one, **other, **{base: one[base] | other[base] for base in one.keys() & other.keys()}}


def meet(one: Bits, other: Bits) -> bool:
    """True if some bit is set in both."""
    return any(bool(np.bitwise_and(bits, other[base]).any()) for base, bits in one.items() if base in other)


def count(bits: Bits, memory: DeviceMemory) -> int:
    """Returns the number of set bits, without those of padding bytes."""
    total = 0
    for base, packed in bits.items():
        total += int(np.bitwise_count(packed).sum(dtype=np.int64))
        held = memory.find(base)
        assert held is not None
        filling = [*range(held.lead), *range(held.lead + held.nbytes, held.data.size)]
        total -= sum(int(packed[at >> 3]) >> (at & 7) & 1 for at in filling)
    return total


def gather_bytes(bits: np.ndarray, data: np.ndarray) -> bytes:
    """Returns the bytes of `data` (uint8) whose bits are set: first whole groups of eight bytes, then the others, both in
    order."""
    whole, single = _places(bits, data.size)
    return data[: 8 * len(whole)].view(np.uint64)[whole].tobytes() + data[single].tobytes()


def scatter_bytes(bits: np.ndarray, data: np.ndarray, values: bytes) -> None:
    """Writes what `gather_bytes` returned for the same bits into `data`."""
    whole, single = _places(bits, data.size)
    end = 8 * int(np.count_nonzero(whole))
    data[: 8 * len(whole)].view(np.uint64)[whole] = np.frombuffer(values[:end], np.uint64)
    data[single] = np.frombuffer(values[end:], np.uint8)


def _places(bits: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a bool for each group of eight bytes, True if all its bits are set, and the numbers of the other set bits."""
    whole = bits[: size // 8] == 0xFF
    groups = np.flatnonzero((bits != 0) & ~np.append(whole, np.zeros(len(bits) - len(whole), bool)))
    each = np.unpackbits(bits[groups], bitorder="little").reshape(-1, 8)
    rows, columns = np.nonzero(each)
    return whole, 8 * groups[rows] + columns
