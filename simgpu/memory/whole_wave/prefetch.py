"""Fetching into the host's caches what loads will want next, between the matrix instructions that come before them.

Waves take turns and tiles are rows far apart, which a host's own prefetchers do not follow. Fetched all at once, lines wait
for each other: a core has some 16 on their way at most. So a load leaves the places of its next lines in its worker's queue,
and matrix instructions, which seldom touch the host's memory, fetch one every few nanoseconds.
"""

from __future__ import annotations

from llvmlite import ir

from simgpu.machine import intrinsics, layout
from simgpu.machine.frame import Frame
from simgpu.machine.values import I32, I64, IrValue

PLACES = layout.AHEAD_PLACES
HINTS = (0, 2, 1)  # a read, of data, and not into the first cache, which accumulators need
PRODUCTS = 256  # multiplications of a matrix instruction for each place that it fetches: 3 ns of f32, at best
MOST = 16  # places that an instruction fetches: as many lines as a core has on their way


class PrefetchQueue:
    """`head` and `tail` point to counts (i64) of the places that were fetched and left; place i is entry i mod PLACES."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.build = frame.build
        self.head, self.tail, self.entries = (frame.context_at(layout.CTX_AHEAD + offset) for offset in (0, 8, 64))

    def count(self, place: IrValue) -> IrValue:
        """What `head` or `tail` points to."""
        return place.load(I64, 8)

    def leave(self, places: IrValue) -> None:
        """places: <16 x i64>, host addresses; fetched at once if there is no room, as where there are no matrix instructions."""
        tail = self.count(self.tail)
        with self.build.if_else(self._room(tail, places.lanes)) as (later, now):
            with later:
                self._append(tail, places)
            with now:
                for number in range(places.lanes):
                    self._fetch(places[number])

    def offer(self, places: IrValue) -> None:
        """The same, but forgotten if there is no room: what the host's own prefetchers may follow too."""
        tail = self.count(self.tail)
        with self.build.if_then(self._room(tail, places.lanes)):
            self._append(tail, places)

    def _room(self, tail: IrValue, count: int) -> IrValue:
        return (tail - self.count(self.head)).unsigned <= PLACES - count

    def _append(self, tail: IrValue, places: IrValue) -> None:
        self._entry(tail).store(places, 64)
        self.tail.store(tail + places.lanes, 8)

    def fetch(self, products: int) -> None:
        """As many places as fit beside so many multiplications, if there are so many."""
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
