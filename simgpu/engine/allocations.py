"""Device memory: allocations in a 64-bit address space, each with a host array behind it.

Addresses are deterministic, 256-byte aligned as HIP's are, and apart from each other, so that an
access past one allocation never lands in the next.
"""

from __future__ import annotations

import bisect
import ctypes
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.errors import LaunchError, SimError
from simgpu.machine.layout import Entry

FIRST_ADDRESS = 0x0000_0010_0000_0000
ALIGNMENT = 256
GAP = 1 << 16  # unmapped bytes between allocations


@dataclass
class Allocation:
    """One allocation: device address, bytes, and the host array (uint8) that holds them.

    In checked mode, undefined: the bits that nothing wrote, as many bytes; private: whether only
    the lane that wrote a byte reads it; whole: whether all bytes were found to be defined.
    """

    address: int
    nbytes: int
    data: np.ndarray
    writable: bool = True
    label: str = ""
    tracked: bool = True
    undefined: np.ndarray | None = None
    private: bool = False
    whole: bool = False

    def define(self, start: int, stop: int) -> None:
        """Note that the host wrote these bytes."""
        if self.undefined is not None:
            self.undefined[start:stop] = 0

    def has_undefined(self) -> bool:
        """Whether some bits are undefined; once all are defined, they stay so."""
        if not self.whole and self.undefined is not None:
            # Its beginning first: what nobody wrote need not be read through.
            self.whole = not (self.undefined[:4096].any() or self.undefined.any())
        return not self.whole

    @property
    def end(self) -> int:
        return self.address + self.nbytes


def aligned_bytes(nbytes: int) -> np.ndarray:
    """`nbytes` of zeroed host memory, 256-byte aligned."""
    storage = np.zeros(nbytes + ALIGNMENT, dtype=np.uint8)
    skip = -storage.ctypes.data % ALIGNMENT
    return storage[skip : skip + nbytes]


class Memory:
    """The allocations of one device, and the table of them that handlers search.

    checked: whether they know which of their bits are defined.
    """

    def __init__(self, checked: bool = False) -> None:
        self.checked = checked
        self._next = FIRST_ADDRESS
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: list[tuple[int, int, str]] = []

    @property
    def extent(self) -> int:
        """Bytes of address space handed out, from FIRST_ADDRESS on."""
        return self._next - FIRST_ADDRESS

    def allocate(
        self, nbytes: int, *, data: np.ndarray | None = None, writable: bool = True,
        label: str = "", tracked: bool = True, private: bool = False,
    ) -> Allocation:
        """New memory of `nbytes`; `data` (uint8, that long) is used as it is, else zeros.

        Checked, the zeros of memory that kernels may write count as undefined.
        """
        if nbytes < 0:
            raise LaunchError(f"an allocation of {nbytes} bytes: the size must not be negative")
        try:
            host = aligned_bytes(nbytes) if data is None else data
        except (MemoryError, ValueError) as error:
            raise LaunchError(f"no host memory for an allocation of {nbytes} bytes") from error
        allocation = Allocation(self._next, nbytes, host, writable, label, tracked, private=private)
        if self.checked:
            allocation.undefined = aligned_bytes(nbytes)
            if data is None and writable:
                allocation.undefined[:] = 0xFF
        self._next += -(-(nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        self._bases.append(allocation.address)
        self._allocations.append(allocation)
        return allocation

    def share(self, data: np.ndarray, writable: bool, label: str) -> Allocation:
        """Host memory (uint8) as device memory: its address modulo 256 is the host's, all of it counts as defined."""
        skip = data.ctypes.data % ALIGNMENT
        allocation = Allocation(self._next + skip, data.size, data, writable, label)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
            allocation.whole = True
        self._next += -(-(skip + data.size + GAP) // ALIGNMENT) * ALIGNMENT
        self._bases.append(allocation.address)
        self._allocations.append(allocation)
        return allocation

    def place(self, address: int, data: np.ndarray, writable: bool, label: str) -> Allocation:
        """An allocation at a reserved address (a code object's segment)."""
        allocation = Allocation(address, data.size, data, writable, label, tracked=False)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
        at = bisect.bisect(self._bases, address)
        self._bases.insert(at, address)
        self._allocations.insert(at, allocation)
        return allocation

    def reserve(self, nbytes: int) -> int:
        """Address space for `nbytes`, page aligned, to be filled by `place`."""
        address = -(-self._next // 4096) * 4096
        self._next = -(-(address + nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        return address

    def free(self, allocation: Allocation) -> None:
        """Give an allocation back; its address is never used again."""
        at = bisect.bisect_left(self._bases, allocation.address)
        if at == len(self._bases) or self._allocations[at] is not allocation:
            raise SimError(f"memory at {allocation.address:#x} was freed before")
        del self._bases[at], self._allocations[at]
        if allocation.tracked:
            self._freed.append((allocation.address, allocation.nbytes, allocation.label))

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds `address`."""
        at = bisect.bisect(self._bases, address) - 1
        if at >= 0 and address < self._allocations[at].end:
            return self._allocations[at]
        return None

    def describe(self, address: int) -> str:
        """Words for an address that no allocation holds: what is near."""
        for base, nbytes, label in self._freed:
            if base <= address < base + nbytes:
                return f"inside freed memory ({label or 'a buffer'} of {nbytes} bytes)"
        inside = self.find(address)
        if inside is not None:
            return f"at the end of {_named(inside)}: the access runs past it"
        at = bisect.bisect(self._bases, address) - 1
        if at >= 0 and address - self._allocations[at].end < GAP:
            near = self._allocations[at]
            return f"{address - near.end} bytes past the end of {_named(near)}"
        if at + 1 < len(self._allocations) and self._bases[at + 1] - address < GAP:
            near = self._allocations[at + 1]
            return f"{near.address - address} bytes before {_named(near)}"
        return "near no allocation"

    def table(self) -> Table:
        return Table(list(self._allocations))


def _named(allocation: Allocation) -> str:
    return f"{allocation.label or 'a buffer'} of {allocation.nbytes} bytes at {allocation.address:#x}"


class Table:
    """A launch's view of the allocations, sorted by address, with bitmaps of bytes touched."""

    def __init__(self, allocations: list[Allocation]) -> None:
        self.entries = (Entry * (len(allocations) + 1))()
        self._bitmaps: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by address
        self._allocations = allocations
        # Entry 0 is empty, so that a search for a low address has somewhere to end.
        for number, allocation in enumerate(allocations, start=1):
            host = allocation.data.ctypes.data
            entry = self.entries[number]
            entry.base, entry.size = allocation.address, allocation.nbytes
            entry.delta = host - allocation.address
            entry.writable, entry.private = allocation.writable, allocation.private
            if allocation.undefined is not None:
                entry.shadow = allocation.undefined.ctypes.data - allocation.address
                entry.undefined = allocation.has_undefined()
            if allocation.tracked:
                maps = tuple(np.zeros(allocation.nbytes // 8 + 64, np.uint8) for _ in range(2))
                self._bitmaps[allocation.address] = maps[0], maps[1]
                entry.read, entry.written = maps[0].ctypes.data, maps[1].ctypes.data

    @property
    def address(self) -> int:
        return ctypes.addressof(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def unique_bytes(self) -> tuple[int, int]:
        """Bytes of tracked memory read and written at least once."""
        totals = [0, 0]
        for maps in self._bitmaps.values():
            for kind, bitmap in enumerate(maps):
                totals[kind] += _ones(bitmap)
        return totals[0], totals[1]

    def touched(self, address: int) -> bool:
        """Whether anything was read or written in the tracked allocation that begins at the address or last before it."""
        base = max((base for base in self._bitmaps if base <= address), default=None)
        return base is not None and any(bitmap.any() for bitmap in self._bitmaps[base])


def _ones(bitmap: np.ndarray) -> int:
    usable = bitmap[: bitmap.size // 8 * 8].view(np.uint64)
    return int(np.bitwise_count(usable).sum(dtype=np.int64)) + int(
        np.bitwise_count(bitmap[usable.size * 8 :]).sum(dtype=np.int64)
    )
