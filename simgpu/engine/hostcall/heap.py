"""Memory for malloc and new in kernels.

ROCm's device library cuts slabs of 2 MiB into blocks. It requests slabs from the host, and also memory that is larger than a
block (ockl/src/dm.cl). Its bookkeeping is in the structure at hidden_heap_v1, which is zero at first. The host hands out pages,
first fit, from one allocation that is mapped before kernels run.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable

import numpy as np

from simgpu.engine.allocations import Allocation, DeviceMemory

ARGUMENT = "hidden_heap_v1"
STRUCTURE_BYTES = 1 << 17
PAGE = 1 << 12  # unit of memory from the host; the device library frees memory outside slabs by its address, a multiple of this
SLAB = 1 << 21


class Heap:
    """A device's heap of `nbytes`, which takes host memory only where kernels touch it."""

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self._lock = threading.Lock()
        self._nbytes = nbytes // SLAB * SLAB
        self.structure = self._place(memory, *memory.reserve(STRUCTURE_BYTES), "the account of the device's heap")
        address, data = memory.reserve(self._nbytes + SLAB)
        lead = -address % SLAB
        base = address + lead
        self.blocks = self._place(memory, base, data[lead : lead + self._nbytes], "the device's heap")
        self._free: list[tuple[int, int]] = [(base, base + self._nbytes)]  # free ranges (start, end) by address
        self._given: dict[int, int] = {}  # address to end
        self.blocks.save = self.save

    @staticmethod
    def _place(memory: DeviceMemory, address: int, data: np.ndarray, label: str) -> Allocation:
        placed = memory.place(address, data, True, label)
        placed.whole = True  # the library writes before it reads; kernels' reads of their blocks are not checked
        return placed

    def request(self, address: int, nbytes: int) -> int:
        """Serves one request of a lane. If `address` is 0, allocates `nbytes` and returns the address, 0 if there is no room.
        Otherwise frees `address` and returns 0."""
        with self._lock:
            return self._give(nbytes) if not address else self._take_back(address)

    def _give(self, nbytes: int) -> int:
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        alignment = SLAB if size % SLAB == 0 else PAGE
        for number, (start, end) in enumerate(self._free):
            first = -(-start // alignment) * alignment
            if first + size <= end:
                self._free[number : number + 1] = [part for part in ((start, first), (first + size, end)) if part[0] < part[1]]
                self._given[first] = first + size
                return first
        return 0

    def _take_back(self, address: int) -> int:
        end = self._given.pop(address, None)
        if end is None:
            return 0  # like free() of a pointer that malloc() did not return: hardware reports nothing either
        at = bisect.bisect(self._free, (address, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == address:
            at -= 1
            address = self._free.pop(at)[0]
        self._free.insert(at, (address, end))
        return 0

    def used_bytes(self) -> int:
        """Returns the number of bytes handed out to the device library."""
        return sum(end - start for start, end in self._given.items())

    def save(self) -> Callable[[], None]:
        """Saves the ranges handed out, with their contents, and returns a function that restores both."""
        base = self.blocks.address
        with self._lock:
            given, free = dict(self._given), list(self._free)
        contents = {start: self.blocks.data[start - base : end - base].copy() for start, end in given.items()}

        def restore() -> None:
            with self._lock:
                self._given, self._free = dict(given), list(free)
            for start, content in contents.items():
                self.blocks.data[start - base : start - base + content.size] = content

        return restore

    def clear(self) -> None:
        """Frees everything."""
        with self._lock:
            self.structure.data[:] = np.uint8(0)
            self._given.clear()
            self._free = [(self.blocks.address, self.blocks.end)]
