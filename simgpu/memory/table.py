"""A launch's view of device memory: the table of allocations that handlers search, and bitmaps of the bytes they touch.

What a table costs a launch does not grow with the memory that is allocated. Its rows are copied where allocations changed, else
kept. Bitmaps lie one behind the other in memory that is all zero between launches; a handler that sets bits notes their page
(`any_lanes.note_page`), so that only such pages are counted and cleared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import AllocationEntry

COLUMNS = layout.ALLOC_BYTES // 8
PAGE = 1 << layout.BITMAP_PAGE
SPARE = 64  # bytes of a bitmap behind its last bit: handlers look at whole words and lines
BASE, SIZE, READ, WRITTEN, LEAD, ASKED = (
    place // 8
    for place in (
        layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_READ, layout.ALLOC_WRITTEN, layout.ALLOC_LEAD, layout.ALLOC_ASKED,
    )
)  # fmt: skip


class Bitmaps:
    """Zeroed memory for the bitmaps of one launch at a time.

    bits: (pages, PAGE) uint8; touched: for each page whether bits were set from there on; address: of the first bit; page_zero:
    where the byte of `touched` would lie for the page at address 0, modulo 2^64.
    """

    def __init__(self, pages: int) -> None:
        self.bits = aligned_bytes(pages * PAGE, PAGE).reshape(pages, PAGE)
        self.touched = np.zeros(pages, np.uint8)
        self.address = int(self.bits.ctypes.data)
        self.page_zero = (self.touched.ctypes.data - (self.address >> layout.BITMAP_PAGE)) % (1 << 64)

    def used(self) -> np.ndarray:
        """Pages that may have bits, in order: those touched, and those behind them."""
        (first,) = self.touched.nonzero()
        if not len(first):
            return first
        used = np.zeros(first[-1] + 2, np.bool_)
        used[first] = used[first + 1] = True
        return np.flatnonzero(used)

    def clear(self) -> None:
        """Zero what was set."""
        used = self.used()
        if len(used):
            self.bits[used] = 0
            self.touched[used[:-1]] = 0


class AllocationTable:
    """The allocations of a launch, sorted by address.

    rows: (entries, COLUMNS) int64, one `AllocationEntry` each, after an empty one,
    so that a search for a low address has somewhere to end;
    tracked: whether each one's bytes are counted; bitmaps: room for them, None where nobody counts.
    """

    def __init__(self, rows: np.ndarray, tracked: np.ndarray, bitmaps: Bitmaps | None) -> None:
        self.rows = rows
        self.address = int(rows.ctypes.data)
        self.bitmaps = bitmaps
        self._counted = np.flatnonzero(tracked) if bitmaps else np.zeros(0, np.int64)
        if bitmaps is None:
            return
        spans = pages_of(rows[self._counted, SIZE])
        self._starts = np.concatenate([[0], np.cumsum(spans)])  # the first page of each one's bitmap of bytes read, and their end
        self._half = int(self._starts[-1])
        rows[self._counted, READ] = bitmaps.address + PAGE * self._starts[:-1]
        rows[self._counted, WRITTEN] = rows[self._counted, READ] + PAGE * self._half

    @property
    def entries(self) -> Any:
        """The rows as a ctypes array of `AllocationEntry`."""
        return (AllocationEntry * len(self.rows)).from_buffer(self.rows.data)

    @property
    def page_zero(self) -> int:
        """See `Bitmaps`; 0 without any."""
        return self.bitmaps.page_zero if self.bitmaps else 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def half_bytes(self) -> int:
        """Bytes of the bitmaps of bytes read, which lie before those of bytes written; 0 without any."""
        return PAGE * self._half if self.bitmaps is not None else 0

    def spans(self) -> dict[int, tuple[int, int]]:
        """Where the bits of each tracked allocation lie among those of bytes read: its first bit and how many, by base address."""
        rows = self.rows[self._counted]
        places = zip(rows[:, SIZE].tolist(), self._starts.tolist(), strict=False)
        return {base: (8 * PAGE * start, size) for base, (size, start) in zip(rows[:, BASE].tolist(), places, strict=True)}

    def unique_bytes(self) -> tuple[int, int]:
        """Bytes of tracked memory read and written at least once, of those that were asked for."""
        assert self.bitmaps is not None
        used = self.bitmaps.used()
        if not len(used):
            return 0, 0
        ones = np.bitwise_count(self.bitmaps.bits[used].view(np.uint64)).sum(axis=1, dtype=np.int64)
        read, filling = used < self._half, self._filling_bits()
        bits = self.bitmaps.bits.reshape(-1)
        beside = [int((bits[(at := filling + first) >> 3] >> (at & 7) & 1).sum()) for first in (0, 8 * PAGE * self._half)]
        return int(ones[read].sum()) - beside[0], int(ones[~read].sum()) - beside[1]

    def _filling_bits(self) -> np.ndarray:
        """Bits, of bytes read, that stand for bytes which nobody asked for: of dwords that are filled up."""
        rows, starts = self.rows[self._counted], 8 * PAGE * self._starts[:-1]
        lead, size = rows[:, LEAD], rows[:, SIZE]
        left = size - lead - rows[:, ASKED]
        before = [starts[lead > at] + at for at in range(int(lead.max(initial=0)))]
        behind = [(starts + size)[left > at] - at - 1 for at in range(int(left.max(initial=0)))]
        return np.concatenate([*before, *behind, np.zeros(0, np.int64)])

    def _packed(self, which: int, number: int) -> np.ndarray:
        """A counted allocation's bits, of bytes read (0) or written (1)."""
        assert self.bitmaps is not None
        first, end = (int(page) + which * self._half for page in self._starts[number : number + 2])
        size = int(self.rows[self._counted[number], SIZE])
        return self.bitmaps.bits[first:end].reshape(-1)[: -(-size // 8)]

    def _bits(self, which: int, number: int) -> np.ndarray:
        """The same, a byte each (bool)."""
        size = int(self.rows[self._counted[number], SIZE])
        return np.unpackbits(self._packed(which, number), count=size, bitorder="little")

    def touched_bits(self, which: int) -> dict[int, np.ndarray]:
        """The bits of bytes read (0) or written (1), uint8, by base address, of the tracked allocations that have any."""
        assert self.bitmaps is not None
        found: dict[int, np.ndarray] = {}
        numbers = np.unique(np.searchsorted(self._starts + which * self._half, self.bitmaps.used(), side="right") - 1)
        for number in numbers[(numbers >= 0) & (numbers < len(self._counted))].tolist():
            bits = self._packed(which, number)
            if bits.any():
                found[int(self.rows[self._counted[number], BASE])] = bits.copy()
        return found

    def exchanged(self, base: int) -> bool:
        """Whether something was written into the bytes that fill up the dwords of the allocation at a base: by an atomic,
        or else by a store that a finding tells."""
        found = np.flatnonzero(self.rows[self._counted, BASE] == base)
        if not len(found):
            return False
        row = self.rows[self._counted[found[0]]]
        bits, first = self._bits(1, int(found[0])), int(row[LEAD])
        return bool(bits[:first].any() or bits[first + int(row[ASKED]) :].any())

    def written(self) -> Iterator[tuple[int, int, int]]:
        """Where something may have been written in tracked memory: an allocation's base, and a range of bytes in it."""
        assert self.bitmaps is not None
        for page in self.bitmaps.used().tolist():
            number = int(np.searchsorted(self._starts, page - self._half, "right")) - 1
            if page < self._half or number >= len(self._counted):
                continue
            base, size = (int(self.rows[self._counted[number], column]) for column in (BASE, SIZE))
            first = (page - self._half - int(self._starts[number])) * 8 * PAGE
            if first < size:
                yield base, first, min(size, first + 8 * PAGE)

    def was_written(self, address: int) -> bool:
        """Whether the byte at a device address, in tracked memory, was written."""
        base, size = self.rows[self._counted, BASE], self.rows[self._counted, SIZE]
        found = np.flatnonzero((base <= address) & (address < base + size))
        if self.bitmaps is None or not len(found):
            return False
        number = int(found[0])
        at = address - int(self.rows[self._counted[number], BASE])
        bits = self.bitmaps.bits.reshape(-1)[PAGE * (int(self._starts[number]) + self._half) + at // 8]
        return bool(bits >> at % 8 & 1)

    def dependence(self) -> int | None:
        """The device address of a byte of tracked memory that was both read and written; None where there is none."""
        assert self.bitmaps is not None
        used = self.bitmaps.used()
        read = used[used < self._half]
        both = self.bitmaps.bits[read] & self.bitmaps.bits[read + self._half]
        found = np.flatnonzero(both.any(axis=1))
        if not len(found):
            return None
        row, page = both[found[0]], int(read[found[0]])
        number = int(np.searchsorted(self._starts, page, "right")) - 1
        byte = int(np.flatnonzero(np.unpackbits(row, bitorder="little"))[0])
        return int(self.rows[self._counted[number], BASE]) + (page - int(self._starts[number])) * 8 * PAGE + byte

    def touched(self, address: int) -> bool:
        """Whether anything was read or written in the tracked allocation that begins at the address or last before it."""
        found = np.flatnonzero(self.rows[self._counted, BASE] <= address)
        return bool(len(found) and any(self._bits(which, int(found[-1])).any() for which in (0, 1)))


def pages_of(sizes: np.ndarray) -> np.ndarray:
    """Pages of a bitmap for allocations of so many bytes."""
    return (sizes // 8 + SPARE) // PAGE + 1


class LaunchTables:
    """The tables of a device's launches. The last one is kept for the next launch, or its bitmaps where allocations changed.

    counts: whether bytes are counted.
    """

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._kept: tuple[int, AllocationTable] | None = None

    def take(self, version: int, rows: np.ndarray, tracked: np.ndarray) -> AllocationTable:
        """A table of the rows, which are copied; version: another one for other rows."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and kept[0] == version:
            return kept[1]
        room = None
        if self._counts:
            pages = 2 * int(pages_of(rows[tracked, SIZE]).sum()) + 1
            room = kept[1].bitmaps if kept is not None else None
            if room is None or len(room.touched) < pages:
                room = Bitmaps(2 * pages)
        return AllocationTable(rows.copy(), tracked, room)

    def give_back(self, version: int, table: AllocationTable) -> None:
        """A table that no launch uses any more; version: its own."""
        if table.bitmaps is not None:
            table.bitmaps.clear()
        with self._lock:
            self._kept = version, table
