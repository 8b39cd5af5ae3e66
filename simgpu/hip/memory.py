"""A device's memory inside the program's arena: the same bytes, at the same addresses."""

from __future__ import annotations

import mmap
import os
import threading

import numpy as np

from simgpu.engine.allocations import GRANULE, Allocation, DeviceMemory, whole_granules
from simgpu.machine.host_memory import NORESERVE, aligned_bytes

PAGE = 4096
GAP = 1 << 16  # unmapped bytes after a reservation
# In checked mode undefined memory holds this dword, a NaN as f16, f32 and f64. The host can store to device memory without a call,
# as to any memory; a dword with another value was stored. No constant of `memset` equals it, and no arithmetic yields it.
UNDEFINED_FILL = 0xFFF3FEA7


class Arena:
    """Arena of the program, a file that this process also maps. Code objects and kernels' heaps are at its end.

    base: address of its first byte in the program. shadow: a file of the same size with the undefined bits.
    """

    def __init__(self, file: int, shadow: int, base: int, nbytes: int, module_bytes: int) -> None:
        self.base = base
        self._file, self._nbytes = file, nbytes
        self._next = base + nbytes - module_bytes
        self._lock = threading.Lock()  # for `_next`
        self.bytes = _map(file, nbytes)
        self.undefined = _map(shadow, nbytes)
        self._shared: dict[int, np.ndarray] = {}  # other processes' bytes, by their address here

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """Returns the bytes at an address of the arena."""
        start = address - self.base
        return self.bytes[start : start + nbytes]

    def shadow(self, address: int, nbytes: int) -> np.ndarray:
        """Returns the undefined bits of bytes of the arena."""
        start = address - self.base
        return self.undefined[start : start + nbytes]

    def register(self, address: int, nbytes: int) -> np.ndarray:
        """Returns bytes of the program's registered memory. In the file, the page at address p is at the arena's size + p."""
        page = address // PAGE * PAGE
        length = -(-(address + nbytes - page) // PAGE) * PAGE
        pages = mmap.mmap(self._file, length, mmap.MAP_SHARED, offset=self._nbytes + page)
        return np.frombuffer(pages, np.uint8)[address - page : address - page + nbytes]

    def share(self, address: int, nbytes: int, offset: int, process: int, file: int) -> None:
        """Maps bytes of another process's arena, `offset` bytes into its file, at an address of this one.

        Raises OSError if the process has ended or belongs to another user.
        """
        opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._shared[address] = np.frombuffer(mmap.mmap(opened, nbytes, mmap.MAP_SHARED, offset=offset), np.uint8)
        finally:
            os.close(opened)

    def shared_bytes(self, address: int) -> np.ndarray:
        """Returns the bytes of another process at an address."""
        return self._shared[address]

    def unshare(self, address: int) -> None:
        """Unmaps bytes of another process."""
        del self._shared[address]

    def reserve(self, nbytes: int) -> tuple[int, np.ndarray]:
        """Reserves address space for `nbytes`, page aligned; returns its address and its bytes, which are zero."""
        with self._lock:
            address = self._next
            self._next += -(-(nbytes + GAP) // PAGE) * PAGE
        return address, self.view(address, nbytes)


def _map(file: int, nbytes: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(file, nbytes, mmap.MAP_SHARED | NORESERVE), np.uint8)


class ArenaMemory(DeviceMemory):
    """A device's memory: it adopts the program's allocations, and puts code objects where the program sees them."""

    def __init__(self, arena: Arena, checked: bool) -> None:
        super().__init__(checked, unique_bytes=False)  # reports use the requested bytes
        self._arena = arena
        self.advice = "the host's own memory must be pinned, registered or managed for a kernel to reach it"

    def adopt(self, address: int, nbytes: int, label: str, reachable: int) -> Allocation:
        """Adopts an allocation of the program. reachable: bytes from its address on that kernels may access."""
        size = whole_granules(max(nbytes, reachable))
        allocation = Allocation(address, nbytes, self._arena.view(address, size), label=label)
        if self.checked:
            allocation.undefined, allocation.fill = self._arena.shadow(address, size), UNDEFINED_FILL
        return self._insert(allocation)

    def adopt_mapped(self, address: int, nbytes: int, label: str, home: int, writable: bool) -> Allocation:
        """Adopts memory that the program mapped; home: the address of its bytes in the arena."""
        allocation = Allocation(address, nbytes, self._arena.view(home, nbytes), writable, label)
        if self.checked:
            allocation.undefined, allocation.fill = self._arena.shadow(home, nbytes), UNDEFINED_FILL
        return self._insert(allocation)

    def adopt_shared(self, address: int, nbytes: int, label: str) -> Allocation:
        """Adopts memory of another process; all of it counts as defined."""
        allocation = Allocation(address, nbytes, self._arena.shared_bytes(address)[: whole_granules(nbytes)], label=label)
        if self.checked:
            allocation.undefined = self._arena.shadow(address, whole_granules(nbytes))
        return self._insert(allocation)

    def adopt_registered(self, address: int, nbytes: int, label: str) -> Allocation:
        """Adopts the program's own memory that it registered; all of it counts as defined."""
        lead = address % GRANULE
        data = self._arena.register(address - lead, whole_granules(lead + nbytes))
        allocation = Allocation(address, nbytes, data, label=label, lead=lead, host=True)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
            allocation.whole = True
        return self._insert(allocation)

    def reserve(self, nbytes: int) -> tuple[int, np.ndarray]:
        return self._arena.reserve(nbytes)
