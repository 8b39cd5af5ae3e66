"""Memory for malloc and new in kernels.

ROCm's device library cuts slabs of 2 MiB into blocks, and asks the host for slabs and for whatever is larger than a block
(ockl/src/dm.cl). It keeps account of them in the structure that hidden_heap_v1 points to, all zero at first. What the host gives
lies in one allocation, so that kernels that run see it at once; it is handed out in pages, first fit.
"""

from __future__ import annotations

import bisect
import threading

import numpy as np

from simgpu.engine.allocations import Allocation, DeviceMemory

ARGUMENT = "hidden_heap_v1"
STRUCTURE_BYTES = 1 << 17
PAGE = 1 << 12  # what is not of a slab is freed as such by its address, a multiple of this
SLAB = 1 << 21


class Heap:
    """A device's heap of `nbytes`, which takes host memory where kernels touch it."""

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self._lock = threading.Lock()
        self._nbytes = nbytes // SLAB * SLAB
        self.structure = self._placed(memory, *memory.reserve(STRUCTURE_BYTES), "the account of the device's heap")
        address, data = memory.reserve(self._nbytes + SLAB)
        lead = -address % SLAB
        base = address + lead
        self.blocks = self._placed(memory, base, data[lead : lead + self._nbytes], "the device's heap")
        self._free: list[tuple[int, int]] = [(base, base + self._nbytes)]  # ranges in order
        self._given: dict[int, int] = {}  # address to end

    @staticmethod
    def _placed(memory: DeviceMemory, address: int, data: np.ndarray, label: str) -> Allocation:
        placed = memory.place(address, data, True, label)
        placed.whole = True  # the library writes before it reads; what kernels read in their blocks is not followed
        return placed

    def request(self, address: int, nbytes: int) -> int:
        """New memory for address 0, and its address, or 0 where there is none; else gives it back, and returns 0."""
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
            return 0  # as free() of what malloc() did not give: nobody tells on hardware either
        at = bisect.bisect(self._free, (address, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == address:
            at -= 1
            address = self._free.pop(at)[0]
        self._free.insert(at, (address, end))
        return 0

    def used(self) -> int:
        """Bytes that kernels hold."""
        return sum(end - start for start, end in self._given.items())

    def clear(self) -> None:
        """Forget all that was allocated."""
        with self._lock:
            self.structure.data[:] = np.uint8(0)
            self._given.clear()
            self._free = [(self.blocks.address, self.blocks.end)]
