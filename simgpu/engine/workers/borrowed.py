"""Resources of one launch, which it returns or drops when it is over."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from simgpu.engine.allocations import Allocation, DeviceMemory
from simgpu.engine.workers.kept import ReusePool, no_release
from simgpu.machine.host_memory import Room, aligned_room

T = TypeVar("T")


class LaunchLoan:
    """Resources of one launch: left in `kept` by earlier launches, or new. If `kept` is None, all are new and later dropped."""

    def __init__(self, memory: DeviceMemory, kept: ReusePool | None) -> None:
        self._memory, self._kept = memory, kept
        self.allocations: list[Allocation] = []  # device memory
        self._taken: list[tuple[Hashable, Any, int, Callable[[Any], None]]] = []  # as for `Kept.give_back`
        self._returns: list[Callable[[], None]] = []
        self._ends: list[Callable[[bool], None]] = []

    def take(self, key: Hashable, nbytes: int, make: Callable[[], T], drop: Callable[[T], None] = no_release) -> T:
        """Returns a resource kept under the key, or a new one from `make`. nbytes: its size. drop: frees it."""
        kept = self._kept
        thing = make() if kept is None else kept.take(key, make)
        self._taken.append((key, thing, nbytes, drop))
        return thing

    def host(self, purpose: str, nbytes: int) -> Room:
        """Returns aligned host memory of at least `nbytes`: the next power of 2, 4 KiB or more. It is zeroed only if it is new."""
        size = 1 << max(nbytes - 1, 4095).bit_length()
        return self.take((purpose, size), size, lambda: aligned_room(size))

    def device(self, nbytes: int, data: bytes, label: str, writable: bool = False, private: bool = False) -> int:
        """Returns the device address of memory that begins with the data. The rest may hold an earlier launch's bytes.

        writable: True if kernels may write it. private: True if each lane reads only bytes that it wrote
        """
        size = max(nbytes, 16)

        def make() -> Allocation:
            return self._memory.allocate(size, writable=writable, label=label, tracked=False, private=private)

        allocation = self.take(("device", size, label), size, make, self._memory.free)
        allocation.data.data[: len(data)] = data
        allocation.define(0, len(data))
        self.allocations.append(allocation)
        return allocation.address

    @property
    def nbytes(self) -> int:
        """Bytes of all resources taken so far."""
        return sum(nbytes for _, _, nbytes, _ in self._taken)

    def leave(self) -> None:
        """Makes a launch that ended well the owner of its resources, which `end` drops. Calls the functions of `add_return`."""
        self._kept = None
        returns, self._returns = self._returns, []
        for each in returns:
            each()

    def add_return(self, give_back: Callable[[], None]) -> None:
        """Registers a function to call after the launch, if it ends without an error."""
        self._returns.append(give_back)

    def add_end(self, end: Callable[[bool], None]) -> None:
        """Registers a function to call after the launch in every case, with True if it ended without an error."""
        self._ends.append(end)

    def end(self, well: bool) -> None:
        """Gives all resources back to `kept`, or drops them if there is none or if the launch failed and their state is unknown.

        well: True if the launch ended without an error. Raises the first error after all resources are handled.
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
        for each in (*(self._returns if well else ()), *(functools.partial(end, well) for end in self._ends)):
            try:
                each()
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised
