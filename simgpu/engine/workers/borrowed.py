"""What one launch uses, and gives back or up when it is over."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np

from simgpu.engine.allocations import Allocation, Memory
from simgpu.engine.workers.kept import Kept
from simgpu.machine.host_memory import aligned_bytes

T = TypeVar("T")


class Borrowed:
    """Things for one launch: what an earlier launch left in `kept`, or new ones; with None, new ones for this launch alone."""

    def __init__(self, memory: Memory, kept: Kept | None) -> None:
        self._memory, self._kept = memory, kept
        self.allocations: list[Allocation] = []  # of device memory
        self._returns: list[Callable[[], None]] = []
        self._drops: list[Callable[[], None]] = []

    def take(self, key: Hashable, nbytes: int, make: Callable[[], T], drop: Callable[[T], None] = lambda thing: None) -> T:
        """A thing of the key and size, or what `make` makes; drop: what gives it up."""
        kept = self._kept
        thing = make() if kept is None else kept.take(key, make)
        self._drops.append(lambda: drop(thing))
        self._returns.append(self._drops[-1] if kept is None else lambda: kept.give_back(key, thing, nbytes, drop))
        return thing

    def host(self, purpose: str, nbytes: int) -> np.ndarray:
        """Aligned host memory of so many bytes, or up to twice as many; zeroed when it is new."""
        size = 1 << max(nbytes - 1, 4095).bit_length()
        return self.take((purpose, size), size, lambda: aligned_bytes(size))

    def device(self, nbytes: int, data: bytes, label: str, writable: bool = False, private: bool = False) -> int:
        """The address of device memory with the data at its begin; writable: for kernels; private: each lane has its own."""
        size = max(nbytes, 16)

        def make() -> Allocation:
            return self._memory.allocate(size, writable=writable, label=label, tracked=False, private=private)

        allocation = self.take(("device", size, label), size, make, self._memory.free)
        allocation.data[: len(data)] = np.frombuffer(data, np.uint8)
        allocation.define(0, len(data))
        self.allocations.append(allocation)
        return allocation.address

    def also(self, give_back: Callable[[], None]) -> None:
        """Have this done when the launch ended well."""
        self._returns.append(give_back)

    def end(self, well: bool) -> None:
        """Give back what was used, or, where the launch failed, give it up: nobody knows in which state it is.

        Raises what the first failed with, after all the others.
        """
        raised: BaseException | None = None
        for each in self._returns if well else self._drops:
            try:
                each()
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised
