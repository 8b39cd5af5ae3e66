"""A launch's view of device memory: the table of allocations that handlers search, and bitmaps of the bytes they touch.

The table's cost to a launch does not grow with the size of the allocations. Rows are copied only if allocations changed since the
last launch. All bitmaps are in one block of memory, which is zero between launches. A handler that sets bits records their page
(`any_lanes.note_page`), so only such pages are counted and cleared.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import AllocationEntry

COLUMNS = layout.ALLOC_BYTES // 8
PAGE = 1 << layout.BITMAP_PAGE
BATCH = 64  # pages that are copied at a time to count their bits: all of a large launch would be tens of MiB
SPARE = 64  # bytes of a bitmap after its last bit: handlers read whole words and lines
BASE, SIZE, READ, WRITTEN, LEAD, ASKED = (
    place // 8
    for place in (
        layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_READ, layout.ALLOC_WRITTEN, layout.ALLOC_LEAD, layout.ALLOC_ASKED,
    )
)  # fmt: skip


class Bitmaps:
    """Memory for the bitmaps of one launch at a time.

    bits: (pages, PAGE) uint8. touched: for each page, 1 if an access set bits that begin there (they may end in the next page).
    address: host address of `bits`. page_zero: the address that the byte of `was_touched` would have for the page at address 0,
    modulo 2^64.
    """

    def __init__(self, pages: int) -> None:
        self.bits = aligned_bytes(pages * PAGE, PAGE).reshape(pages, PAGE)
        self.touched = np.zeros(pages, np.uint8)
        self.address = int(self.bits.ctypes.data)
        self.page_zero = (self.touched.ctypes.data - (self.address >> layout.BITMAP_PAGE)) % (1 << 64)

    def used_pages(self) -> np.ndarray:
        """Returns the numbers of pages that may have set bits, in order: those touched, and the page after each."""
        (first,) = self.touched.nonzero()
        if not len(first):
            return first
        used = np.zeros(first[-1] + 2, np.bool_)
        used[first] = used[first + 1] = True
        return np.flatnonzero(used)

    def clear(self) -> None:
        """Zeroes the bits that were set."""
        used = self.used_pages()
        if len(used):
            self.bits[used] = 0
            self.touched[used[:-1]] = 0


class AllocationTable:
    """Allocations of a launch, sorted by address.

    rows: (entries, COLUMNS) int64, one `AllocationEntry` each. The first is empty: the search for an address below all
    allocations ends there. tracked: for each row, True if its bytes are counted. bitmaps: memory for them, None if no bytes are.
    """

    def __init__(self, rows: np.ndarray, tracked: np.ndarray, bitmaps: Bitmaps | None) -> None:
        self.rows = rows
        self.address = int(rows.ctypes.data)
        self.bitmaps = bitmaps
        self._counted = np.flatnonzero(tracked) if bitmaps else np.zeros(0, np.int64)
        if bitmaps is None:
            return
        spans = pages_of(rows[self._counted, SIZE])
        # first page of each allocation's bitmap of bytes read, and their end
        self._starts = np.concatenate([[0], np.cumsum(spans)])
        self._half = int(self._starts[-1])
        rows[self._counted, READ] = bitmaps.address + PAGE * self._starts[:-1]
        rows[self._counted, WRITTEN] = rows[self._counted, READ] + PAGE * self._half

    @property
    def entries(self) -> Any:
        """Rows as a ctypes array of `AllocationEntry`."""
        return (AllocationEntry * len(self.rows)).from_buffer(self.rows.data)

    @property
    def page_zero(self) -> int:
        """See `Bitmaps`; 0 without any."""
        return self.bitmaps.page_zero if self.bitmaps else 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def half_bytes(self) -> int:
        """Bytes of the bitmaps of bytes read, which precede those of bytes written; 0 without any."""
        return PAGE * self._half if self.bitmaps is not None else 0

    def spans(self) -> dict[int, tuple[int, int]]:
        """Returns (first bit in the bitmaps of bytes read, number of bits) of each tracked allocation, by base address."""
        rows = self.rows[self._counted]
        places = zip(rows[:, SIZE].tolist(), self._starts.tolist(), strict=False)
        return {base: (8 * PAGE * start, size) for base, (size, start) in zip(rows[:, BASE].tolist(), places, strict=True)}

    def unique_bytes(self) -> tuple[int, int]:
        """Returns the numbers of bytes of tracked memory that were read and that were written, without padding bytes."""
        assert self.bitmaps is not None
        used = self.bitmaps.used_pages()
        if not len(used):
            return 0, 0
        batches = (self.bitmaps.bits[used[first : first + BATCH]] for first in range(0, len(used), BATCH))
        ones = np.concatenate([np.bitwise_count(bits.view(np.uint64)).sum(axis=1, dtype=np.int64) for bits in batches])
        reads = int(np.searchsorted(used, self._half))
        bits = self.bitmaps.bits.reshape(-1)
        places, shifts = self._filling_bits
        beside = (bits[places] >> shifts & 1).sum(axis=1).tolist()
        return int(ones[:reads].sum()) - beside[0], int(ones[reads:].sum()) - beside[1]

    @functools.cached_property
    def _filling_bits(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of the bitmaps that hold padding bytes' bits, (2, bits): of bytes read and of bytes written; and their places in
        these bytes."""
        rows, starts = self.rows[self._counted], 8 * PAGE * self._starts[:-1]
        lead, size = rows[:, LEAD], rows[:, SIZE]
        left = size - lead - rows[:, ASKED]
        before = [starts[lead > at] + at for at in range(int(lead.max(initial=0)))]
        behind = [(starts + size)[left > at] - at - 1 for at in range(int(left.max(initial=0)))]
        filling = np.concatenate([*before, *behind, np.zeros(0, np.int64)])
        return (filling >> 3) + np.array([[0], [PAGE * self._half]]), (filling & 7).astype(np.uint8)

    def _packed_bits(self, which: int, number: int) -> np.ndarray:
        """Returns a counted allocation's bits, of bytes read (0) or written (1)."""
        assert self.bitmaps is not None
        first, end = (int(page) + which * self._half for page in self._starts[number : number + 2])
        size = int(self.rows[self._counted[number], SIZE])
        return self.bitmaps.bits[first:end].reshape(-1)[: -(-size // 8)]

    def _bits(self, which: int, number: int) -> np.ndarray:
        """Returns the bits of `_packed_bits` as one byte each, 0 or 1."""
        size = int(self.rows[self._counted[number], SIZE])
        return np.unpackbits(self._packed_bits(which, number), count=size, bitorder="little")

    def touched_bits(self, which: int) -> dict[int, np.ndarray]:
        """Returns the packed bits (uint8) of bytes read (0) or written (1), by base address, of tracked allocations with any."""
        assert self.bitmaps is not None
        found: dict[int, np.ndarray] = {}
        numbers = np.unique(np.searchsorted(self._starts + which * self._half, self.bitmaps.used_pages(), side="right") - 1)
        for number in numbers[(numbers >= 0) & (numbers < len(self._counted))].tolist():
            bits = self._packed_bits(which, number)
            if bits.any():
                found[int(self.rows[self._counted[number], BASE])] = bits.copy()
        return found

    def was_padding_written(self, base: int) -> bool:
        """True if something was written into the padding of the allocation at a base.

        An atomic did so, or else a store that a finding reports.
        """
        found = np.flatnonzero(self.rows[self._counted, BASE] == base)
        if not len(found):
            return False
        row = self.rows[self._counted[found[0]]]
        bits, first = self._bits(1, int(found[0])), int(row[LEAD])
        return bool(bits[:first].any() or bits[first + int(row[ASKED]) :].any())

    def written_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yields ranges of tracked memory that may have been written: an allocation's base, and a range of bytes in it."""
        assert self.bitmaps is not None
        for page in self.bitmaps.used_pages().tolist():
            number = int(np.searchsorted(self._starts, page - self._half, "right")) - 1
            if page < self._half or number >= len(self._counted):
                continue
            base, size = (int(self.rows[self._counted[number], column]) for column in (BASE, SIZE))
            first = (page - self._half - int(self._starts[number])) * 8 * PAGE
            if first < size:
                yield base, first, min(size, first + 8 * PAGE)

    def was_written(self, address: int) -> bool:
        """True if the byte at a device address, in tracked memory, was written."""
        base, size = self.rows[self._counted, BASE], self.rows[self._counted, SIZE]
        found = np.flatnonzero((base <= address) & (address < base + size))
        if self.bitmaps is None or not len(found):
            return False
        number = int(found[0])
        at = address - int(self.rows[self._counted[number], BASE])
        bits = self.bitmaps.bits.reshape(-1)[PAGE * (int(self._starts[number]) + self._half) + at // 8]
        return bool(bits >> at % 8 & 1)

    def dependence(self) -> int | None:
        """Returns the device address of a byte of tracked memory that was both read and written; None if there is none."""
        assert self.bitmaps is not None
        used = self.bitmaps.used_pages()
        read = used[used < self._half]
        both = self.bitmaps.bits[read] & self.bitmaps.bits[read + self._half]
        found = np.flatnonzero(both.any(axis=1))
        if not len(found):
            return None
        row, page = both[found[0]], int(read[found[0]])
        number = int(np.searchsorted(self._starts, page, "right")) - 1
        byte = int(np.flatnonzero(np.unpackbits(row, bitorder="little"))[0])
        return int(self.rows[self._counted[number], BASE]) + (page - int(self._starts[number])) * 8 * PAGE + byte

    def was_touched(self, address: int) -> bool:
        """True if any byte was accessed in the last tracked allocation that begins at or before the address."""
        found = np.flatnonzero(self.rows[self._counted, BASE] <= address)
        return bool(len(found) and any(self._bits(which, int(found[-1])).any() for which in (0, 1)))


def pages_of(sizes: np.ndarray) -> np.ndarray:
    """Returns the number of pages of each bitmap, for allocations of these sizes in bytes."""
    return (sizes // 8 + SPARE) // PAGE + 1


class LaunchTables:
    """Tables of a device's launches. The last one is kept for the next launch, or its bitmaps if allocations changed.

    counts: True if bytes are counted.
    """

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._kept: tuple[int, AllocationTable] | None = None

    def take(self, version: int, rows: np.ndarray, tracked: np.ndarray) -> AllocationTable:
        """Returns a table of a copy of the rows. version: a number that is unique to these rows."""
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
        """Takes back a table that no launch uses any more. version: as for `take`."""
        if table.bitmaps is not None:
            table.bitmaps.clear()
        with self._lock:
            self._kept = version, table
