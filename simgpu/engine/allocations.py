"""Device memory: allocations in a 64-bit address space, each with a host array behind it.

Addresses are deterministic, 256-byte aligned as HIP's are, and apart from each other, so that an
access past one allocation never lands in the next; memory that is shared with the host lies where the host has it. What
accesses may reach are whole dwords, as atomics on 8 and 16 bits exchange the dword that holds them.
"""

from __future__ import annotations

import bisect
import ctypes
from collections import deque
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.errors import LaunchError, SimError
from simgpu.machine.layout import Entry

FIRST_ADDRESS = 0x0000_0010_0000_0000
ALIGNMENT = 256
GAP = 1 << 16  # unmapped bytes between allocations
GRANULE = 4  # bytes: what accesses may reach are multiples
FREED = 1024  # allocations freed last, which an error message can name


@dataclass
class Allocation:
    """One allocation: device address, bytes, and the host array (uint8) that holds them.

    data: of whole granules, from `lead` bytes before the address on; host: whether the host owns the memory. In checked
    mode, undefined: the bits that nothing wrote, as many bytes; private: whether only the lane that wrote a byte reads it;
    whole: whether all bytes were found to be defined.
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
    lead: int = 0
    host: bool = False

    def define(self, start: int, stop: int) -> None:
        """Note that the host wrote these bytes."""
        if self.undefined is not None:
            self.undefined[self.lead + start : self.lead + stop] = 0

    def has_undefined(self) -> bool:
        """Whether some bits are undefined; once all are defined, they stay so."""
        if not self.whole and self.undefined is not None:
            # Its beginning first: what nobody wrote need not be read through.
            self.whole = not (self.undefined[:4096].any() or self.undefined.any())
        return not self.whole

    @property
    def base(self) -> int:
        """The device address of `data`."""
        return self.address - self.lead

    @property
    def end(self) -> int:
        """The device address behind `data`."""
        return self.base + self.data.size


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
        self.advice = ""  # for pointers to nowhere
        self._next = FIRST_ADDRESS
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=FREED)

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
            host = aligned_bytes(whole_granules(nbytes)) if data is None else data
        except (MemoryError, ValueError) as error:
            raise LaunchError(f"no host memory for an allocation of {nbytes} bytes") from error
        allocation = Allocation(self._next, nbytes, host, writable, label, tracked, private=private)
        if self.checked:
            allocation.undefined = aligned_bytes(host.size)
            if data is None and writable:
                allocation.undefined[:] = 0xFF
        self._next += -(-(nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        return self._inserted(allocation)

    def share(self, address: int, nbytes: int, writable: bool, label: str) -> Allocation:
        """`nbytes` of the host's own memory, used as it is, at the host's address; all of it counts as defined.

        A granule that it has in part is reached as a whole; it lies on the same page.
        """
        lead = address % GRANULE
        whole = (ctypes.c_uint8 * whole_granules(lead + nbytes)).from_address(address - lead)
        data = np.frombuffer(memoryview(whole), np.uint8)
        allocation = Allocation(address, nbytes, data, writable, label, lead=lead, host=True)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
            allocation.whole = True
        return self._inserted(allocation)

    def _inserted(self, allocation: Allocation) -> Allocation:
        """The allocation, where no other one is."""
        at = bisect.bisect(self._bases, allocation.base)
        if (at and self._allocations[at - 1].end > allocation.base) or (
            at < len(self._bases) and self._bases[at] < allocation.end
        ):
            raise LaunchError(f"the host's memory at {allocation.address:#x} lies where the device has its own: allocate it again")
        self._bases.insert(at, allocation.base)
        self._allocations.insert(at, allocation)
        return allocation

    def place(self, address: int, data: np.ndarray, writable: bool, label: str) -> Allocation:
        """An allocation at a reserved address (a code object's segment)."""
        allocation = Allocation(address, data.size, data, writable, label, tracked=False)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
        return self._inserted(allocation)

    def reserve(self, nbytes: int) -> int:
        """Address space for `nbytes`, page aligned, to be filled by `place`."""
        address = -(-self._next // 4096) * 4096
        self._next = -(-(address + nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        return address

    def free(self, allocation: Allocation) -> None:
        """Give an allocation back; the device's own address is never used again."""
        at = self._place(allocation)
        if at is None:
            raise SimError(f"memory at {allocation.address:#x} was freed before")
        del self._bases[at], self._allocations[at]
        if allocation.tracked and not allocation.host:
            self._freed.append((allocation.address, allocation.nbytes, allocation.label))

    def _place(self, allocation: Allocation) -> int | None:
        at = bisect.bisect_left(self._bases, allocation.base)
        while at < len(self._bases) and self._bases[at] == allocation.base:  # one of no bytes may lie before another
            if self._allocations[at] is allocation:
                return at
            at += 1
        return None

    def holds(self, allocation: Allocation) -> bool:
        """Whether it is this memory's, and not freed."""
        return self._place(allocation) is not None

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
            return f"{address - near.address - near.nbytes} bytes past the end of {_named(near)}"
        if at + 1 < len(self._allocations) and self._bases[at + 1] - address < GAP:
            near = self._allocations[at + 1]
            return f"{near.address - address} bytes before {_named(near)}"
        return "near no allocation" + (f"; {self.advice}" if self.advice else "")

    def table(self) -> Table:
        return Table(list(self._allocations))


def _named(allocation: Allocation) -> str:
    return f"{allocation.label or 'a buffer'} of {allocation.nbytes} bytes at {allocation.address:#x}"


def whole_granules(nbytes: int) -> int:
    """Bytes in as many granules as hold so many."""
    return -(-nbytes // GRANULE) * GRANULE


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
            entry.base, entry.size = allocation.base, allocation.data.size
            entry.lead, entry.asked = allocation.lead, allocation.nbytes
            entry.delta = host - allocation.base
            entry.writable, entry.private = allocation.writable, allocation.private
            if allocation.undefined is not None:
                entry.shadow = allocation.undefined.ctypes.data - allocation.base
                entry.undefined = allocation.has_undefined()
            if allocation.tracked:
                maps = tuple(np.zeros(allocation.data.size // 8 + 64, np.uint8) for _ in range(2))
                self._bitmaps[allocation.base] = maps[0], maps[1]
                entry.read, entry.written = maps[0].ctypes.data, maps[1].ctypes.data

    @property
    def address(self) -> int:
        return ctypes.addressof(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def unique_bytes(self) -> tuple[int, int]:
        """Bytes of tracked memory read and written at least once, of those that were asked for."""
        totals = [0, 0]
        for allocation in self._allocations:
            for kind, bitmap in enumerate(self._bitmaps.get(allocation.base, ())):
                totals[kind] += _ones(bitmap) - sum(_bit(bitmap, at) for at in _filling(allocation))
        return totals[0], totals[1]

    def exchanged(self, base: int) -> bool:
        """Whether something was written into the bytes that fill up the dwords of the allocation at a base: by an atomic,
        or else by a store that a finding tells."""
        found = next((allocation for allocation in self._allocations if allocation.base == base), None)
        maps = self._bitmaps.get(base)
        return found is not None and maps is not None and any(_bit(maps[1], at) for at in _filling(found))

    def touched(self, address: int) -> bool:
        """Whether anything was read or written in the tracked allocation that begins at the address or last before it."""
        base = max((base for base in self._bitmaps if base <= address), default=None)
        return base is not None and any(bitmap.any() for bitmap in self._bitmaps[base])


def _filling(allocation: Allocation) -> list[int]:
    """Offsets of the bytes that nobody asked for."""
    asked = range(allocation.lead, allocation.lead + allocation.nbytes)
    return [*range(asked.start), *range(asked.stop, allocation.data.size)]


def _bit(bitmap: np.ndarray, at: int) -> int:
    return int(bitmap[at >> 3]) >> (at & 7) & 1


def _ones(bitmap: np.ndarray) -> int:
    usable = bitmap[: bitmap.size // 8 * 8].view(np.uint64)
    return int(np.bitwise_count(usable).sum(dtype=np.int64)) + int(
        np.bitwise_count(bitmap[usable.size * 8 :]).sum(dtype=np.int64)
    )
