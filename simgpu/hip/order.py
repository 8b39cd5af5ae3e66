"""Order of a program's work on its GPUs: which accesses of two streams, or of a stream and the host, nothing orders.

Work follows other work by a happens-before relation, after CuSan (Hück et al., "Compiler-aided correctness checking of CUDA-aware
MPI applications", SC-W 2024) and vector clocks (Mattern 1989). A stream's clock has the last ticket of each other stream that its
work follows. The library logs all that changes clocks (`library/work/order.c`); launches come with their `Footprint`. The host is
one thread of control here, so two host threads order their calls.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simgpu.engine.footprint import Footprint
from simgpu.hip.protocol import Change, WorkKind
from simgpu.hip.record import CallFinding

HOST = 0  # as a stream: what the host does at once
MOST = 4096  # works that are remembered; older ones are forgotten
FEW = 64  # streams whose tickets are kept though they have no work
SIGNALS = 64  # latest launches that may have told the host something
GAP = 1 << 16  # bytes between allocations, at least

Clock = dict[int, int]  # by stream: tickets up to this one come before


@dataclass(eq=False)
class StreamWork:
    """A launch, copy or fill, or an allocation or release of memory in the order of a stream."""

    kind: WorkKind
    device: int
    stream: int
    shown: int  # the stream by the number that users know; another one in a graph, whose branches are streams of their own
    null: bool  # True if that is a device's null stream
    ticket: int
    number: int  # in the order of the program's calls
    before: Clock
    sites: tuple[int, ...]  # return addresses of its call
    name: str = ""  # of a kernel
    reads: list[tuple[int, int]] = field(default_factory=list)  # of all but a launch
    writes: list[tuple[int, int]] = field(default_factory=list)
    launched: Footprint | None = None  # footprint of a launch that has run

    @cached_property
    def footprint(self) -> Footprint:
        """Bytes that it touches."""
        return self.launched or Footprint.of(self.reads, self.writes)

    @cached_property
    def boxes(self) -> list[tuple[int, int]]:
        """Ranges that hold all bytes that it touches: about one for each allocation."""
        ranges = [*self.reads, *self.writes]
        return ranges if 0 < len(ranges) <= 2 else self.footprint.boxes(GAP)

    def follows(self, other: StreamWork) -> bool:
        """True if this begins only after the other one has ended."""
        if self.stream == other.stream:
            return self.ticket > other.ticket
        return self.before.get(other.stream, 0) >= other.ticket

    @property
    def place(self) -> str:
        """Returns the stream in words."""
        where = "the host waits" if self.stream == HOST else "the null stream" if self.null else f"stream {self.shown}"
        return where if self.stream == self.shown else f"a graph in {where}"

    @property
    def title(self) -> str:
        """Returns the work in words."""
        what = f"kernel {self.name}" if self.kind is WorkKind.KERNEL else self.kind.title
        return f"{what} ({self.place})"

    def verb_at(self, address: int) -> str:
        """Returns a verb for its access to a byte that it touches."""
        if self.kind in (WorkKind.RELEASE, WorkKind.ALLOCATION):
            return "frees" if self.kind is WorkKind.RELEASE else "allocates"
        return "writes" if self.footprint.writes_at(address) else "reads"


class WorkClash(NamedTuple):
    """Two works that touch the same bytes, without an order. address, nbytes: the first of these bytes."""

    earlier: StreamWork  # the one that the program asked for first
    later: StreamWork
    address: int
    nbytes: int

    def finding(self, place: str, earlier: str, later: str) -> CallFinding:
        """Returns the finding. place: the first byte, in words. earlier, later: lines of the calls, "" if unknown"""
        text = (
            f"{self.later.title} {self.later.verb_at(self.address)} {self.nbytes} bytes from {place} on, "
            f"which {self.earlier.title} {self.earlier.verb_at(self.address)}: nothing orders them; "
        )
        if HOST in (self.earlier.stream, self.later.stream):
            text += "put hipStreamSynchronize between"
        elif self.earlier.place == self.later.place:
            text += "one node of the graph must depend on the other"
        else:
            text += "record an event after the first, and let the other stream wait for it"
        return CallFinding("stream-race", text, 0, "", source=later, other_source=earlier)


class StreamHistory:
    """Clocks of a stream: what its work follows, from which ticket on."""

    def __init__(self) -> None:
        self._from: list[int] = [0]
        self._clocks: list[Clock] = [{}]

    @property
    def now(self) -> Clock:
        return self._clocks[-1]

    def at(self, ticket: int) -> Clock:
        """Returns what the work of a ticket follows."""
        return self._clocks[bisect_right(self._from, ticket) - 1]

    def keep(self, streams: Set[int]) -> None:
        """Forgets the tickets of all other streams."""
        self._clocks = [of_streams(clock, streams) for clock in self._clocks]

    def join(self, other: Clock, after: int) -> None:
        """Makes all work after a ticket follow what the clock says."""
        joined = joined_clocks(self.now, other)
        if joined == self.now:
            return
        if self._from[-1] > after:
            self._clocks[-1] = joined
        else:
            self._from.append(after + 1)
            self._clocks.append(joined)


def of_streams(clock: Clock, streams: Set[int]) -> Clock:
    """Returns the part of a clock that says something of these streams."""
    return {stream: ticket for stream, ticket in clock.items() if stream in streams}


def joined_clocks(a: Clock, b: Clock) -> Clock:
    """Returns the clock of work that follows what both follow.

    >>> joined_clocks({1: 4, 2: 1}, {2: 3})
    {1: 4, 2: 3}
    """
    return a | {stream: max(ticket, a.get(stream, 0)) for stream, ticket in b.items()}


class WorkTable:
    """Works by the addresses that they touch."""

    def __init__(self) -> None:
        self._works: dict[int, StreamWork] = {}  # by number, in the order in which they came
        self._boxes = np.zeros((256, 3), np.int64)  # first byte, end and work of each box; 0, 0 if the work has left
        self._count = 0

    def add(self, work: StreamWork) -> None:
        """Adds a work that touches memory, and drops those that came first if there are more than MOST."""
        boxes = work.boxes
        if not boxes:
            return
        if self._count + len(boxes) > len(self._boxes):
            self._make_room(len(boxes))
        self._boxes[self._count : self._count + len(boxes)] = [(first, end, work.number) for first, end in boxes]
        self._count += len(boxes)
        self._works[work.number] = work
        if len(self._works) > MOST:
            self.remove([*self._works.values()][: MOST // 2])

    def remove(self, works: Sequence[StreamWork]) -> None:
        """Removes works that may be there."""
        for work in works:
            self._works.pop(work.number, None)
        boxes = self._boxes[: self._count]
        boxes[np.isin(boxes[:, 2], [work.number for work in works]), :2] = 0

    def near(self, work: StreamWork) -> list[StreamWork]:
        """Returns the works with a box that one of this work's meets, in the order of the program's calls."""
        first, end, number = self._boxes[: self._count].T
        found: set[int] = set()
        for low, high in work.boxes:
            found.update(number[(first < high) & (end > low)].tolist())
        return [self._works[each] for each in sorted(found)]

    def _make_room(self, more: int) -> None:
        there = self._boxes[: self._count]
        there = there[there[:, 1] != 0]
        self._boxes = np.zeros((max(256, 4 * (len(there) + more)), 3), np.int64)
        self._boxes[: len(there)], self._count = there, len(there)


class WorkOrder:
    """Works of a program that may clash with later ones, and their order."""

    def __init__(self) -> None:
        self.streams = 0  # made so far, beyond the null streams
        self._known = True  # False if values in memory order streams
        self._histories: defaultdict[int, StreamHistory] = defaultdict(StreamHistory)
        self._host: Clock = {}
        self._signals: deque[StreamWork] = deque(maxlen=SIGNALS)  # launches whose stores the host may have polled
        self._made = 0  # works so far
        self._works = WorkTable()  # works whose bytes are known
        self._of_stream: defaultdict[int, deque[StreamWork]] = defaultdict(deque)  # these by stream, by ticket
        self._open: dict[tuple[int, int], StreamWork] = {}  # launches that have not run, by stream and ticket
        self._last: StreamWork | None = None  # the work whose bytes the log tells next

    @property
    def matters(self) -> bool:
        """True if work may be without order, so that footprints are wanted."""
        return self._known and self.streams > 0

    def apply(self, entry: Any) -> Iterator[WorkClash]:
        """Applies an entry of the log. Yields clashes of all works but launches."""
        kind, device, memory, coarse, _, _, address, nbytes, number, sites, home = entry.item()
        if kind in (Change.READS, Change.WRITES):
            if self._last is not None:
                ranges = self._last.reads if kind == Change.READS else self._last.writes
                pitch = home or 1
                ranges += [(start, start + nbytes) for start in range(address, address + number * pitch, pitch)]
            return
        yield from self.settle()
        if kind == Change.STREAM:
            self.streams += 1
        elif kind == Change.QUEUED:
            if self._known:
                self._made += 1
                before = self._clock_of_next(address, nbytes)
                self._queue(
                    StreamWork(
                        WorkKind(memory), device, address, number, bool(coarse), nbytes, self._made, before, tuple(sites.tolist())
                    )
                )
        elif kind == Change.WAITS:
            self._histories[address].join(self._through(number, home), nbytes)
        elif kind == Change.SEEN:
            self._host = joined_clocks(self._host, self._through(address, nbytes))
            self._forget()
        elif kind == Change.UNKNOWN:
            self._known = False
            self._works = WorkTable()
            self._of_stream.clear()
            self._open.clear()

    def settle(self) -> Iterator[WorkClash]:
        """Ends the last work, whose bytes are complete now. Yields its clashes."""
        done, self._last = self._last, None
        if done is not None:
            yield from self._enter(done)

    def ran(self, stream: int, ticket: int, name: str, footprint: Footprint | None, signals: bool = False) -> Iterator[WorkClash]:
        """Notes the footprint of a launch, None if it has none. Yields its clashes.

        signals: True if the host may have polled what the launch wrote, and asked for later work because of it
        """
        launch = self._open.pop((stream, ticket), None)
        if launch is not None and footprint is not None:
            launch.name, launch.launched = name, footprint
            if signals:
                self._signals.append(launch)
            yield from self._enter(launch)
        if not self._open:
            self._forget()

    def _queue(self, work: StreamWork) -> None:
        if work.kind is WorkKind.KERNEL:
            self._open[work.stream, work.ticket] = work
        else:
            self._last = work
        if work.stream == HOST:
            self._host = joined_clocks(self._host, {HOST: work.ticket})
            self._forget()

    def _clock_of_next(self, stream: int, ticket: int) -> Clock:
        """Returns what a stream's new work follows, which the program asks for now."""
        history = self._histories[stream]
        history.join(self._host, ticket - 1)
        return history.now

    def _through(self, stream: int, ticket: int) -> Clock:
        """Returns the clock of what follows a ticket."""
        return joined_clocks(self._histories[stream].at(ticket), {stream: ticket})

    def _enter(self, work: StreamWork) -> Iterator[WorkClash]:
        """Adds a work whose bytes are known. Yields its clashes with others."""
        for other in self._works.near(work):
            found = work.footprint.clash(other.footprint) if self._may_clash(work, other) else None
            if found is not None:
                earlier, later = sorted((other, work), key=lambda each: each.number)
                yield WorkClash(earlier, later, found[0], found[1] - found[0])
        self._works.add(work)
        insort(self._of_stream[work.stream], work, key=lambda each: each.ticket)

    def _may_clash(self, a: StreamWork, b: StreamWork) -> bool:
        """True if nothing orders two works. Kernels of two GPUs may order themselves, by flags: `checks.races` looks at these."""
        both = a.kind is b.kind is WorkKind.KERNEL and a.device != b.device
        earlier, later = (a, b) if a.number < b.number else (b, a)
        return not (both or a.follows(b) or b.follows(a) or self._may_be_polled(earlier, later))

    def _may_be_polled(self, earlier: StreamWork, later: StreamWork) -> bool:
        """True if a value in memory may have told the host that the earlier work is done, before it asked for the later one."""
        signals = [signal for signal in self._signals if signal.number < later.number]
        return any(signal is earlier or signal.follows(earlier) for signal in signals)

    def _forget(self) -> None:
        """Forgets works that all further ones follow, and tickets of streams without works."""
        waiting, done = list(self._open.values()), list[StreamWork]()
        for stream, works in [*self._of_stream.items()]:
            seen = self._host.get(stream, 0)
            while works and works[0].ticket <= seen and all(launch.follows(works[0]) for launch in waiting):
                done.append(works.popleft())
            if not works:
                del self._of_stream[stream]
        if done:
            self._works.remove(done)
        if not waiting:
            kept = (signal for signal in self._signals if signal.ticket > self._host.get(signal.stream, 0))
            self._signals = deque(kept, SIGNALS)
        live = {*self._of_stream, *(stream for stream, _ in self._open), *([self._last.stream] if self._last else [])}
        if len(self._host) > 2 * len(live) + FEW:
            self._host = of_streams(self._host, live)
            for history in self._histories.values():
                history.keep(live)
