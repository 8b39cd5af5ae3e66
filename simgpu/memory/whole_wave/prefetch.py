"""Prefetches lines of the next loads into the host's caches, from the matrix instructions before them.

Waves take turns, and a tile's rows are far apart: a host's own prefetchers do not follow that. Lines that are fetched all at
once wait for each other: a core has at most some 16 in flight. So a load puts the addresses of its next lines in its worker's
queue. Matrix instructions, which rarely touch the host's memory, fetch a line every few nanoseconds.
"""

from __future__ import annotations

from llvmlite import ir

from simgpu.machine import intrinsics, layout
from simgpu.machine.frame import Frame
from simgpu.machine.values import I32, I64, IrValue

PLACES = layout.AHEAD_PLACES
HINTS = (0, 2, 1)  # llvm.prefetch's arguments: a read, not into the first cache, which accumulators need, of data
PRODUCTS = 256  # multiplications of a matrix instruction for each line that it fetches: 3 ns of f32, at best
MOST = 16  # most lines that an instruction fetches: those that a core has in flight


class PrefetchQueue:
    """A worker's queue of places: host addresses whose lines will be fetched.

    `head` and `tail` point to i64 counts of places fetched and queued; place i is in entry i mod PLACES.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.build = frame.build
        self.head, self.tail, self.entries = (frame.context_at(layout.CTX_AHEAD + offset) for offset in (0, 8, 64))

    def count(self, place: IrValue) -> IrValue:
        """Loads the count at `head` or `tail`."""
        return place.load(I64, 8)

    def leave(self, places: IrValue) -> None:
        """Queues places (<16 x i64>), or fetches them at once if the queue is full, as in kernels without matrix instructions."""
        tail = self.count(self.tail)
        with self.build.if_else(self._room(tail, places.lanes)) as (later, now):
            with later:
                self._append(tail, places)
            with now:
                for number in range(places.lanes):
                    self._fetch(places[number])

    def offer(self, places: IrValue) -> None:
        """Queues places (<16 x i64>), or drops them if the queue is full: the host's own prefetchers may follow these too."""
        tail = self.count(self.tail)
        with self.build.if_then(self._room(tail, places.lanes)):
            self._append(tail, places)

    def _room(self, tail: IrValue, count: int) -> IrValue:
        return (tail - self.count(self.head)).unsigned <= PLACES - count

    def _append(self, tail: IrValue, places: IrValue) -> None:
        self._entry(tail).store(places, 64)
        self.tail.store(tail + places.lanes, 8)

    def fetch(self, products: int) -> None:
        """Prefetches as many places as `products` multiplications leave time for, if the queue has that many."""
        count = min(max(1, products // PRODUCTS), MOST)
        head = self.count(self.head)
        after = head + count
        with self.build.if_then(after.unsigned <= self.count(self.tail)):
            for number in range(count):
                self._fetch(self._entry(head + number).load(I64, 8))
            self.head.store(after, 8)

    def _entry(self, count: IrValue) -> IrValue:
        return self.entries.at((count & PLACES - 1) << 3)

    def _fetch(self, address: IrValue) -> None:
        arguments = [address.pointer(), *(ir.Constant(I32, hint) for hint in HINTS)]
        intrinsics.call(self.build, "llvm.prefetch.p0", ir.VoidType(), arguments)
