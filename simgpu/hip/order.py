"""Order of a program's work on its GPUs: which accesses of two streams, or of a stream and the host, nothing orders.

Work follows other work by a happens-before relation, after CuSan (Hück et al., "Compiler-aided correctness checking of CUDA-aware
MPI applications", SC-W 2024) and vector clocks (Mattern 1989). A stream's clock has the last ticket of each other stream that its
work follows. The library logs all that changes clocks (`library/work/order.c`); launches come with their `Footprint`. The host is
one thread of control here, so two host threads order their calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simgpu.engine.footprint import Footprint
from simgpu.hip.protocol import Change, WorkKind
from simgpu.hip.record import CallFinding

HOST = 0  # as a stream: what the host does at once
MOST = 4096  # works that are remembered; older ones are forgotten

Clock = dict[int, int]  # by stream: tickets up to this one come before


@dataclass(eq=False)
class StreamWork:
    """A launch, copy, fill or release of memory."""

    kind: WorkKind
    device: int
    stream: int
    null: bool  # True if the stream is a device's null stream
    ticket: int
    number: int  # in the order of the program's calls
    before: Clock
    sites: tuple[int, ...]  # return addresses of its call
    name: str = ""  # of a kernel
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    footprint: Footprint | None = None  # None until it is known

    def follows(self, other: StreamWork) -> bool:
        """True if this begins only after the other one has ended."""
        if self.stream == other.stream:
            return self.ticket > other.ticket
        return self.before.get(other.stream, 0) >= other.ticket

    @property
    def title(self) -> str:
        """Returns the work in words."""
        where = "the host waits" if self.stream == HOST else "the null stream" if self.null else f"stream {self.stream}"
        what = f"kernel {self.name}" if self.kind is WorkKind.KERNEL else self.kind.title
        return f"{what} ({where})"

    def verb_at(self, address: int) -> str:
        """Returns a verb for its access to a byte that it touches."""
        if self.kind is WorkKind.RELEASE:
            return "frees"
        return "writes" if self.footprint and self.footprint.writes_at(address) else "reads"


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

    def join(self, other: Clock, after: int) -> None:
        """Makes all work after a ticket follow what the clock says."""
        joined = joined_clocks(self.now, other)
        if joined == self.now:
            return
        if self._from[-1] == after + 1:
            self._clocks[-1] = joined
        else:
            self._from.append(after + 1)
            self._clocks.append(joined)


def joined_clocks(a: Clock, b: Clock) -> Clock:
    """Returns the clock of work that follows what both follow.

    >>> joined_clocks({1: 4, 2: 1}, {2: 3})
    {1: 4, 2: 3}
    """
    return a | {stream: max(ticket, a.get(stream, 0)) for stream, ticket in b.items()}


class WorkOrder:
    """Works of a program that may clash with later ones, and their order."""

    def __init__(self) -> None:
        self.streams = 0  # made so far, beyond the null streams
        self._known = True  # False if values in memory order streams
        self._histories: dict[int, StreamHistory] = {}
        self._host: Clock = {}
        self._made = 0  # works so far
        self._works: list[StreamWork] = []  # whose footprints are known
        self._open: dict[tuple[int, int], StreamWork] = {}  # launches that have not run, by stream and ticket
        self._last: StreamWork | None = None  # the work whose bytes the log tells next

    @property
    def matters(self) -> bool:
        """True if work may be without order, so that footprints are wanted."""
        return self._known and self.streams > 0

    def apply(self, entry: Any) -> Iterator[WorkClash]:
        """Applies an entry of the log. Yields clashes of copies, fills and releases."""
        change, address, nbytes = Change(int(entry["kind"])), int(entry["address"]), int(entry["bytes"])
        if change in (Change.READS, Change.WRITES):
            self._add_bytes(change, address, nbytes, int(entry["number"]), int(entry["home"]))
            return
        yield from self.settle()
        if change is Change.STREAM:
            self.streams += 1
        elif change is Change.QUEUED:
            self._queue(entry, address, nbytes)
        elif change is Change.WAITS:
            self._wait(address, nbytes, int(entry["number"]), int(entry["home"]))
        elif change is Change.SEEN:
            self._host = joined_clocks(self._host, self._through(address, nbytes))
            self._forget()
        elif change is Change.UNKNOWN:
            self._known = False
            self._works.clear()

    def settle(self) -> Iterator[WorkClash]:
        """Ends the last work, whose bytes are complete now. Yields its clashes."""
        done, self._last = self._last, None
        if done is not None:
            done.footprint = Footprint.of(done.reads, done.writes)
            yield from self._enter(done)

    def ran(self, stream: int, ticket: int, name: str, footprint: Footprint | None) -> Iterator[WorkClash]:
        """Notes the footprint of a launch, None if it has none. Yields its clashes."""
        launch = self._open.pop((stream, ticket), None)
        if launch is not None and footprint is not None:
            launch.name, launch.footprint = name, footprint
            yield from self._enter(launch)
        self._forget()

    def _queue(self, entry: Any, stream: int, ticket: int) -> None:
        if not self._known:
            return
        history = self._histories.setdefault(stream, StreamHistory())
        history.join(self._host, ticket - 1)
        self._made += 1
        made = StreamWork(
            WorkKind(int(entry["memory"])), int(entry["device"]), stream, bool(entry["coarse"]), ticket, self._made, history.now,
            tuple(int(site) for site in entry["sites"]),
        )  # fmt: skip
        if made.kind is WorkKind.KERNEL:
            self._open[stream, ticket] = made
        else:
            self._last = made
        if stream == HOST:
            self._host = joined_clocks(self._host, {HOST: ticket})

    def _add_bytes(self, change: Change, address: int, width: int, count: int, pitch: int) -> None:
        if self._last is not None:
            ranges = self._last.reads if change is Change.READS else self._last.writes
            ranges += [(start, start + width) for start in range(address, address + count * (pitch or 1), pitch or 1)]

    def _wait(self, stream: int, after: int, other: int, ticket: int) -> None:
        self._histories.setdefault(stream, StreamHistory()).join(self._through(other, ticket), after)

    def _through(self, stream: int, ticket: int) -> Clock:
        """Returns the clock of what follows a ticket."""
        return joined_clocks(self._histories.setdefault(stream, StreamHistory()).at(ticket), {stream: ticket})

    def _enter(self, work: StreamWork) -> Iterator[WorkClash]:
        """Adds a work whose footprint is known. Yields its clashes with others."""
        assert work.footprint is not None
        for other in self._works:
            if self._may_clash(work, other) and other.footprint is not None:
                bytes_ = work.footprint.clash(other.footprint)
                if bytes_ is not None:
                    earlier, later = sorted((other, work), key=lambda each: each.number)
                    yield WorkClash(earlier, later, bytes_[0], bytes_[1] - bytes_[0])
        self._works = [*self._works[1 - MOST :], work]

    def _may_clash(self, a: StreamWork, b: StreamWork) -> bool:
        """True if nothing orders two works. Kernels of two GPUs may order themselves, by flags: `checks.races` looks at these."""
        both = a.kind is b.kind is WorkKind.KERNEL and a.device != b.device
        return not both and not a.follows(b) and not b.follows(a)

    def _forget(self) -> None:
        """Forgets works that all to come follows."""
        waiting = list(self._open.values())
        self._works = [
            work for work in self._works
            if self._host.get(work.stream, 0) < work.ticket or any(not launch.follows(work) for launch in waiting)
        ]  # fmt: skip
