"""What one launch uses, and gives back or up when it is over."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from simgpu.engine.allocations import Allocation, DeviceMemory
from simgpu.engine.workers.kept import Kept, nothing
from simgpu.machine.host_memory import Room, aligned_room

T = TypeVar("T")


class Borrowed:
    """Things for one launch: what an earlier launch left in `kept`, or new ones; with None, new ones for this launch alone."""

    def __init__(self, memory: DeviceMemory, kept: Kept | None) -> None:
        self._memory, self._kept = memory, kept
        self.allocations: list[Allocation] = []  # of device memory
        self._taken: list[tuple[Hashable, Any, int, Callable[[Any], None]]] = []  # as for `Kept.give_back`
        self._returns: list[Callable[[], None]] = []

    def take(self, key: Hashable, nbytes: int, make: Callable[[], T], drop: Callable[[T], None] = nothing) -> T:
        """A thing of the key and size, or what `make` makes; drop: what gives it up."""
        kept = self._kept
        thing = make() if kept is None else kept.take(key, make)
        self._taken.append((key, thing, nbytes, drop))
        return thing

    def host(self, purpose: str, nbytes: int) -> Room:
        """Aligned host memory of so many bytes, or up to twice as many; zeroed when it is new."""
        size = 1 << max(nbytes - 1, 4095).bit_length()
        return self.take((purpose, size), size, lambda: aligned_room(size))

    def device(self, nbytes: int, data: bytes, label: str, writable: bool = False, private: bool = False) -> int:
        """The address of device memory with the data at its begin; writable: for kernels; private: each lane has its own."""
        size = max(nbytes, 16)

        def make() -> Allocation:
            return self._memory.allocate(size, writable=writable, label=label, tracked=False, private=private)

        allocation = self.take(("device", size, label), size, make, self._memory.free)
        allocation.data.data[: len(data)] = data
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
        kept = self._kept if well else None
        for key, thing, nbytes, drop in self._taken:
            try:
                if kept is None:
                    drop(thing)
                else:
                    kept.give_back(key, thing, nbytes, drop)
            except BaseException as error:
                raised = raised or error
        for each in self._returns if well else ():
            try:
                each()
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised
