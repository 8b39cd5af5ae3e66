"""Fetching into the host's caches what loads will want next, between the matrix instructions that come before them.

Waves take turns and tiles are rows far apart, which a host's own prefetchers do not follow. Fetched all at once, lines wait
for each other: a core has some 16 on their way at most. So a load leaves the places of its next lines in its worker's queue,
and matrix instructions, which seldom touch the host's memory, fetch one every few nanoseconds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.machine import intrinsics, layout
from simgpu.machine.frame import PTR, Frame
from simgpu.machine.lane_ops import I32, I64

PLACES = layout.AHEAD_PLACES
HINTS = (0, 2, 1)  # a read, of data, and not into the first cache, which accumulators need
PRODUCTS = 256  # multiplications of a matrix instruction for each place that it fetches: 3 ns of f32, at best
MOST = 16  # places that an instruction fetches: as many lines as a core has on their way


class Queue:
    """`head` and `tail` point to counts (i64) of the places that were fetched and left; place i is entry i mod PLACES."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.build = frame.build
        self.head, self.tail, self.entries = (frame.context_at(layout.CTX_AHEAD + offset) for offset in (0, 8, 64))

    def count(self, place: Any) -> Any:
        """What `head` or `tail` points to."""
        return self.frame.load(place, I64, 8)

    def leave(self, places: Any) -> None:
        """places: <16 x i64>, host addresses; fetched at once if there is no room, as where there are no matrix instructions."""
        build, count = self.build, places.type.count
        tail = self.count(self.tail)
        with build.if_else(self._room(tail, count)) as (later, now):
            with later:
                self._append(tail, places)
            with now:
                for number in range(count):
                    self._fetch(build.extract_element(places, ir.Constant(I32, number)))

    def offer(self, places: Any) -> None:
        """The same, but forgotten if there is no room: what the host's own prefetchers may follow too."""
        tail = self.count(self.tail)
        with self.build.if_then(self._room(tail, places.type.count)):
            self._append(tail, places)

    def _room(self, tail: Any, count: int) -> Any:
        build = self.build
        return build.icmp_unsigned("<=", build.sub(tail, self.count(self.head)), ir.Constant(I64, PLACES - count))

    def _append(self, tail: Any, places: Any) -> None:
        self.frame.store(places, self._entry(tail, 0), 64)
        self.frame.store(self.build.add(tail, ir.Constant(I64, places.type.count)), self.tail, 8)

    def fetch(self, products: int) -> None:
        """As many places as fit beside so many multiplications, if there are so many."""
        build, count = self.build, min(max(1, products // PRODUCTS), MOST)
        head = self.count(self.head)
        after = build.add(head, ir.Constant(I64, count))
        with build.if_then(build.icmp_unsigned("<=", after, self.count(self.tail))):
            for number in range(count):
                self._fetch(self.frame.load(self._entry(head, number), I64, 8))
            self.frame.store(after, self.head, 8)

    def _entry(self, count: Any, further: int) -> Any:
        number = self.build.and_(self.build.add(count, ir.Constant(I64, further)), ir.Constant(I64, PLACES - 1))
        return self.frame.at(self.entries, self.build.shl(number, ir.Constant(I64, 3)))

    def _fetch(self, address: Any) -> None:
        place = self.build.inttoptr(address, PTR)
        intrinsics.call(self.build, "llvm.prefetch.p0", ir.VoidType(), [place, *(ir.Constant(I32, hint) for hint in HINTS)])
