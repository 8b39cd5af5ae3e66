"""Device memory: allocations in a 64-bit address space, each with a host array.

Addresses are deterministic. As in HIP, they are 256-byte aligned. At least 64 KiB after each allocation are unmapped, so that
an access that runs past it faults. Memory that is shared with the host keeps the host's address. An allocation that ends inside
a dword is accessible to the end of this dword, because atomics on 8 and 16 bits exchange the dword that holds them.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from simgpu.hardware.errors import LaunchError, SimError
from simgpu.machine import layout
from simgpu.machine.host_memory import ALIGNMENT, LARGE, aligned_bytes, free_bytes
from simgpu.machine.layout import AllocationEntry
from simgpu.memory.table import COLUMNS, AllocationTable, LaunchTables

FIRST_ADDRESS = 0x0000_0010_0000_0000
GAP = 1 << 16  # unmapped bytes between allocations
GRANULE = 4  # bytes: accessible memory consists of whole granules
FREED = 1024  # number of freed allocations that error messages can name: the last ones
UNDEFINED = layout.ALLOC_UNDEFINED // 8


@dataclass
class Allocation:
    """A range of device memory, and the host memory that holds it."""

    address: int  # device address
    nbytes: int  # requested bytes
    data: np.ndarray  # its bytes (uint8) in whole granules, which begin `lead` bytes before `address`
    writable: bool = True  # True if kernels may write it
    label: str = ""  # its name in messages, or ""
    tracked: bool = True  # True for memory of the user or a module: its unique bytes are counted, slices and replays copy it
    undefined: np.ndarray | None = None  # checked mode: bits set where nothing wrote, as many bytes as `data`
    private: bool = False  # True if only the lane that wrote a byte reads it
    fill: int = 0  # the dword that undefined bytes hold until the host stores there without a call; 0: it never does
    whole: bool = False  # True if all bits were found to be defined
    lead: int = 0  # bytes from the start of `data` to `address`
    host: bool = False  # True if the host owns the memory
    fine: bool = True  # False if other devices see accesses only between kernels (coarse-grained memory)
    # Name of the element at an address ("" for none), if the memory's owner knows it better than the launch.
    element: Callable[[int], str] | None = None
    # Saves the contents and the owner's account of them, and returns a function that restores both. None: all bytes are saved.
    save: Callable[[], Callable[[], None]] | None = None

    def define(self, start: int, stop: int) -> None:
        """Records that the host wrote bytes `start` to `stop` - 1, counted from `address`."""
        if self.undefined is not None:
            self.undefined[self.lead + start : self.lead + stop] = 0

    def has_undefined(self) -> bool:
        """True if some bits may be undefined. Once all are defined, they stay so."""
        if not self.whole and self.undefined is not None:
            # Check the beginning first: it saves a scan of memory that nobody wrote.
            self.whole = not (self.undefined[:4096].any() or self.undefined.any())
        return not self.whole

    @property
    def base(self) -> int:
        """Device address of `data`."""
        return self.address - self.lead

    @property
    def end(self) -> int:
        """Device address after `data`."""
        return self.base + self.data.size


@dataclass(frozen=True)
class _AllocationIndex:
    """Allocations of a device, by address.

    A change makes a new object, so an exception from a signal's handler leaves either the old or the new one.
    """

    number: int  # unique
    bases: list[int]
    allocations: list[Allocation]
    rows: np.ndarray  # table rows for launches, after an empty row for "no allocation"
    tracked: np.ndarray  # `Allocation.tracked` by row

    def place(self, allocation: Allocation) -> int | None:
        """Returns the index of the allocation, None if it is not there."""
        at = bisect.bisect_left(self.bases, allocation.base)
        while at < len(self.bases) and self.bases[at] == allocation.base:  # an empty one may precede another at the same address
            if self.allocations[at] is allocation:
                return at
            at += 1
        return None

    def with_one(self, number: int, at: int, allocation: Allocation) -> _AllocationIndex:
        """Returns a copy with this allocation before the one at an index."""
        return _AllocationIndex(
            number,
            [*self.bases[:at], allocation.base, *self.bases[at:]],
            [*self.allocations[:at], allocation, *self.allocations[at:]],
            np.concatenate([self.rows[: at + 1], _row(allocation)[None], self.rows[at + 1 :]]),
            np.concatenate([self.tracked[: at + 1], [allocation.tracked], self.tracked[at + 1 :]]),
        )

    def without_one(self, number: int, at: int) -> _AllocationIndex:
        """Returns a copy without the allocation at an index."""
        rows, tracked = (np.concatenate([each[: at + 1], each[at + 2 :]]) for each in (self.rows, self.tracked))
        bases, allocations = self.bases[:at] + self.bases[at + 1 :], self.allocations[:at] + self.allocations[at + 1 :]
        return _AllocationIndex(number, bases, allocations, rows, tracked)


class DeviceMemory:
    """Allocations of one device, and the table of them that handlers search. Thread-safe.

    checked: True if allocations track which bits are defined. unique_bytes: True if launches count the distinct bytes that they
    touch. first: the lowest address that it chooses.
    """

    def __init__(self, checked: bool = False, unique_bytes: bool = True, first: int = FIRST_ADDRESS) -> None:
        self.checked = checked
        self.counts = unique_bytes
        self.advice = ""  # added to the description of an address that is near no allocation, or far from it for its size
        self._first = self._next = first
        self._numbers = itertools.count(1)
        self._held = _AllocationIndex(0, [], [], np.zeros((1, COLUMNS), np.int64), np.zeros(1, bool))
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=FREED)
        self._tables = LaunchTables(unique_bytes)
        self._lock = threading.RLock()

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Allocations of the device, by address."""
        return tuple(self._held.allocations)

    @property
    def extent(self) -> int:
        """Bytes of address space handed out so far, freed memory and gaps included."""
        return self._next - self._first

    def allocate(
        self, nbytes: int, *, data: np.ndarray | None = None, writable: bool = True,
        label: str = "", tracked: bool = True, private: bool = False,
    ) -> Allocation:
        """Allocates `nbytes` at a new address. data: host memory to use without a copy (uint8, whole granules; default: zeros).

        In checked mode, zeros that kernels may overwrite count as undefined.
        """
        if nbytes < 0:
            raise LaunchError(f"an allocation of {nbytes} bytes: the size must not be negative")
        try:
            host = aligned_bytes(whole_granules(nbytes)) if data is None else data
        except (MemoryError, ValueError) as error:
            raise LaunchError(f"no host memory for an allocation of {nbytes} bytes") from error
        with self._lock:
            allocation = Allocation(self._next, nbytes, host, writable, label, tracked, private=private)
            self._next += -(-(nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        if self.checked:
            allocation.undefined = aligned_bytes(host.size)
            if data is None and writable:
                allocation.undefined[:] = 0xFF
        return self._insert(allocation)

    def share(
        self, address: int, nbytes: int, writable: bool, label: str, element: Callable[[int], str] | None = None
    ) -> Allocation:
        """Shares `nbytes` of the host's memory at the host's address, without a copy. All of it counts as defined.

        Kernels can also access the rest of its first and last granule, which is on the same page.
        """
        lead = address % GRANULE
        whole = (ctypes.c_uint8 * whole_granules(lead + nbytes)).from_address(address - lead)
        data = np.frombuffer(memoryview(whole), np.uint8)
        allocation = Allocation(address, nbytes, data, writable, label, lead=lead, host=True, element=element)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
            allocation.whole = True
        return self._insert(allocation)

    def _insert(self, allocation: Allocation) -> Allocation:
        """Inserts an allocation. Raises LaunchError if another one is there."""

        def insert(held: _AllocationIndex) -> _AllocationIndex:
            at = bisect.bisect(held.bases, allocation.base)
            if (at and held.allocations[at - 1].end > allocation.base) or (
                at < len(held.bases) and held.bases[at] < allocation.end
            ):
                raise LaunchError(f"the memory at {allocation.address:#x} overlaps the device's own memory: allocate it again")
            return held.with_one(next(self._numbers), at, allocation)

        self._change(insert)
        return allocation

    def place(
        self, address: int, data: np.ndarray, writable: bool, label: str, *,
        nbytes: int | None = None, tracked: bool = False, defined: bool = True,
    ) -> Allocation:
        """Returns an allocation at an address that the caller chooses: one from `reserve`, or a host address.

        data: its bytes (uint8, whole granules), used without a copy
        nbytes: requested bytes (default: all)
        tracked: see `Allocation`
        defined: True if the host has written all of it
        """
        allocation = Allocation(address, data.size if nbytes is None else nbytes, data, writable, label, tracked)
        if self.checked:
            allocation.undefined = aligned_bytes(data.size)
            if not defined:
                allocation.undefined[:] = 0xFF
        return self._insert(allocation)

    def reserve(self, nbytes: int) -> tuple[int, np.ndarray]:
        """Returns page-aligned address space for `nbytes`, and zeroed host memory for it (uint8), for `place`."""
        with self._lock:
            address = -(-self._next // 4096) * 4096
            self._next = -(-(address + nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        return address, aligned_bytes(nbytes)

    def free(self, allocation: Allocation) -> None:
        """Frees an allocation. `allocate` and `reserve` never return its address again."""

        def remove(held: _AllocationIndex) -> _AllocationIndex:
            at = held.place(allocation)
            if at is None:
                raise SimError(f"memory at {allocation.address:#x} was freed before")
            return held.without_one(next(self._numbers), at)

        self._change(remove)
        if allocation.tracked and not allocation.host:
            self._freed.append((allocation.address, allocation.nbytes, allocation.label))

    def _change(self, change: Callable[[_AllocationIndex], _AllocationIndex]) -> None:
        """Replaces the allocations by the result of `change`. Repeats if a finalizer of this thread freed something meanwhile."""
        with self._lock:
            while True:
                held = self._held
                changed = change(held)
                if self._held is held:
                    self._held = changed
                    return

    def define(self, address: int, nbytes: int) -> None:
        """Records that the host wrote `nbytes` at an address, which may span allocations. Does nothing in plain mode."""
        if not self.checked:
            return
        held = self._held
        first = max(bisect.bisect(held.bases, address) - 1, 0)
        for one in held.allocations[first : bisect.bisect_left(held.bases, address + nbytes)]:
            start, stop = max(address, one.base), min(address + nbytes, one.end)
            if start < stop:
                one.define(start - one.address, stop - one.address)

    def undefined_bytes(self, address: int, nbytes: int) -> int:
        """Returns how many of `nbytes` at an address, inside one allocation, have undefined bits; 0 in plain mode."""
        held = self.find(address)
        if held is None or held.undefined is None:
            return 0
        at = address - held.base
        return int(np.count_nonzero(held.undefined[at : at + nbytes]))

    def holds(self, allocation: Allocation) -> bool:
        """True if the allocation is in this memory and not freed."""
        return self._held.place(allocation) is not None

    def find(self, address: int) -> Allocation | None:
        """Returns the allocation that holds `address`, None if none does."""
        held = self._held
        at = bisect.bisect(held.bases, address) - 1
        return held.allocations[at] if at >= 0 and address < held.allocations[at].end else None

    def describe(self, address: int, names: Mapping[int, str] = MappingProxyType({})) -> str:
        """Describes an address that a kernel may not access, by the nearest allocation. names: names of allocations without a
        label, by address."""
        for base, nbytes, label in reversed(self._freed):
            if base <= address < base + nbytes:
                return f"inside freed memory ({label or 'a buffer'} of {nbytes} bytes)"
        inside = self.find(address)
        if inside is not None:
            return f"at the end of {allocation_name(inside, names)}: the access runs past it"
        held = self._held
        at = bisect.bisect(held.bases, address) - 1
        advice = f"; {self.advice}" if self.advice else ""
        if at >= 0 and address - held.allocations[at].end < GAP:
            near = held.allocations[at]
            away = address - near.address - near.nbytes
            where = f"{away} bytes past the end of {allocation_name(near, names)}"
        elif at + 1 < len(held.allocations) and held.bases[at + 1] - address < GAP:
            near = held.allocations[at + 1]
            away = near.address - address
            where = f"{away} bytes before {allocation_name(near, names)}"
        else:
            return f"near no allocation{advice}"
        return where if away <= near.nbytes else where + advice

    def table(self) -> tuple[int, AllocationTable]:
        """Returns a number and a launch's view of the current allocations. Both go to `give_back` when the launch is over."""
        held = self._held
        if not self.checked:
            return held.number, self._tables.take(held.number, held.rows, held.tracked)
        rows = held.rows.copy()  # checks have fields in the rows, and undefined bits change
        rows[1:, UNDEFINED] = [allocation.has_undefined() for allocation in held.allocations]
        number = next(self._numbers)
        return number, self._tables.take(number, rows, held.tracked)

    def give_back(self, number: int, table: AllocationTable) -> None:
        """Takes back a view from `table` that nothing uses any more."""
        self._tables.give_back(number, table)


@dataclass(frozen=True)
class SavedMemory:
    """Saved contents of allocations."""

    restorers: list[Callable[[], None]]  # one an allocation

    @classmethod
    def of(cls, memory: DeviceMemory, most: int | None = None) -> SavedMemory:
        """Saves the allocations that kernels may write, except those of more than `most` bytes (default: all).

        Raises LaunchError if the host has no room for them; Linux would end the process.
        """
        owned = [one.save for one in memory.allocations if one.save is not None]
        writable = (one for one in memory.allocations if one.writable and one.save is None)
        wanted = [one for one in writable if most is None or one.nbytes <= most]
        needed = sum(one.nbytes for one in wanted)
        if needed > LARGE and needed > (free := free_bytes()):
            raise LaunchError(
                f"all memory that kernels may write is copied, to restore it: {needed / 1e9:.1f} GB, and the host has "
                f"{free / 1e9:.1f} GB left; use smaller buffers, or free others"
            )
        return cls([*(partial(np.copyto, one.data, one.data.copy()) for one in wanted), *(save() for save in owned)])

    def restore(self) -> None:
        """Restores the contents."""
        for restore in self.restorers:
            restore()


def _row(allocation: Allocation) -> np.ndarray:
    """Returns an allocation's row of the table, without addresses of bitmaps."""
    row = np.zeros(COLUMNS, np.int64)
    entry = AllocationEntry.from_buffer(row.data)
    entry.base, entry.size = allocation.base, allocation.data.size
    entry.lead, entry.asked = allocation.lead, allocation.nbytes
    entry.delta = allocation.data.ctypes.data - allocation.base
    entry.writable, entry.private, entry.fill = allocation.writable, allocation.private, allocation.fill
    if allocation.undefined is not None:
        entry.shadow = allocation.undefined.ctypes.data - allocation.base
    return row


def allocation_name(allocation: Allocation, names: Mapping[int, str] = MappingProxyType({})) -> str:
    """Returns a name for an allocation: its label, the name of its address, or "a buffer", with size and address."""
    label = allocation.label or names.get(allocation.address, "a buffer")
    return f"{label} of {allocation.nbytes} bytes at {allocation.address:#x}"


def whole_granules(nbytes: int) -> int:
    """Rounds bytes up to whole granules."""
    return -(-nbytes // GRANULE) * GRANULE
