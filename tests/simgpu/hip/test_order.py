"""Work of streams that nothing orders: clocks against reachability, and programs with and without an order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.engine.footprint import Footprint
from simgpu.hip.order import HOST, WorkClash, WorkOrder
from simgpu.hip.protocol import ENTRY, Change, WorkKind
from tests.support.forks import hip
from tests.support.hip_compiler import program

# Cases of stream_races.hip, and parts of the finding in the wrong one.
CASES = {
    "kernels": "kernel twice(float const*, float*) (stream 3) reads 4096 bytes from byte 0 of hipMalloc 1 (stream_races.hip:28) "
    "on, which kernel fill(float*, float) (stream 2) writes: nothing orders them; record an event after the first",
    "early-event": "which kernel fill(float*, float) (stream 2) writes",
    "copy": "which a copy (stream 2) writes",
    "null-stream": "a copy (the host waits) reads 4096 bytes from byte 0 of hipMalloc 1 (stream_races.hip:28) on, which kernel "
    "fill(float*, float) (stream 2) writes: nothing orders them; put hipStreamSynchronize between\n"
    "  at stream_races.hip:60\n  earlier stream_races.hip:58",
    "fill": "a fill (stream 3) writes 4 bytes from byte 2048 of hipMalloc 2",
    "free": "hipFreeAsync (stream 3) frees 4096 bytes",
    "allocate": "kernel fill(float*, float) (stream 3) writes 4096 bytes from byte 0 of hipMalloc 3 (stream_races.hip:75) "
    "on, which hipMallocAsync (stream 2) allocates",
    "graph": "kernel twice(float const*, float*) (a graph in stream 2) reads 4096 bytes from byte 0 of hipMalloc 1 "
    "(stream_races.hip:28) on, which kernel fill(float*, float) (a graph in stream 2) writes: nothing orders them; one node of the",
    "after-graph": "which kernel twice(float const*, float*) (a graph in stream 2) writes: nothing orders them; record an event",
    "halves": "writes 4 bytes from byte 2044 of hipMalloc 1",
    "atomics": "kernel fill(float*, float) (stream 3) writes 4 bytes from byte 0 of hipMalloc 1 (stream_races.hip:28) on, which "
    "kernel count(int*) (stream 2) writes",
    "polled": "a fill (stream 3) writes 4 bytes from byte 0 of hipMalloc 1",
    "parts": "writes 2 bytes from byte 0 of hipMalloc 1",
    "chain": "kernel fill(float*, float) (stream 3) writes 4096 bytes from byte 0 of hipMalloc 2 (stream_races.hip:29) on, which "
    "kernel fill(float*, float) (the null stream) writes",
}


@pytest.mark.parametrize("name", CASES)
def test_streams_that_nothing_orders(name: str) -> None:
    path = program("stream_races", "gfx942")
    wrong = hip("--check", path, name, "wrong")
    assert wrong.returncode == 1 and wrong.stderr.count("error: ") == 1, wrong.stderr
    assert "error: stream-race: " in wrong.stderr and CASES[name] in wrong.stderr, wrong.stderr
    right = hip("--check", path, name, "right")
    assert (right.returncode, right.stderr) == (0, "")


def test_streams_of_a_program_with_two_gpus() -> None:
    """Launches of several GPUs share shadows: each launch finds its own accesses there."""
    path = program("stream_races", "gfx942")
    wrong = hip("--check", "--devices", 2, path, "halves", "wrong")
    assert wrong.returncode == 1 and CASES["halves"] in wrong.stderr, wrong.stderr
    right = hip("--check", "--devices", 2, path, "halves", "right")
    assert (right.returncode, right.stderr) == (0, "")


def test_plain_mode_says_nothing_of_streams() -> None:
    done = hip(program("stream_races", "gfx942"), "kernels", "wrong")
    assert (done.returncode, done.stderr) == (0, "")


class DrawnProgram:
    """Calls of a program with three streams, the log that the library writes of them, and a graph of their order."""

    def __init__(self) -> None:
        self.log: list[tuple[Change, dict[str, int]]] = []
        self.works: list[tuple[int, int, bool]] = []  # stream, ticket, True if the host may poll what it writes
        self.after: list[set[int]] = []  # by node: the nodes that it follows at once
        self.last = {stream: self._node() for stream in (HOST, 1, 2, 3)}  # last node of the host and of each stream
        self.nodes: dict[tuple[int, int], int] = {}  # by stream and ticket
        self.submitted = dict.fromkeys((1, 2, 3), 0)
        self.of_work: list[int] = []

    def _node(self, *after: int) -> int:
        self.after.append(set(after))
        return len(self.after) - 1

    def _submit(self, stream: int) -> int:
        self.submitted[stream] += 1
        node = self.last[stream] = self._node(self.last[stream], self.last[HOST])
        self.nodes[stream, self.submitted[stream]] = node
        return node

    def work(self, stream: int, signals: bool) -> None:
        node = self._submit(stream)
        self.log.append((Change.QUEUED, {"address": stream, "bytes": self.submitted[stream], "memory": WorkKind.KERNEL}))
        self.works.append((stream, self.submitted[stream], signals))
        self.of_work.append(node)

    def event(self, stream: int) -> tuple[int, int]:
        self._submit(stream)
        return stream, self.submitted[stream]

    def wait(self, stream: int, event: tuple[int, int]) -> None:
        self.log.append(
            (Change.WAITS, {"address": stream, "bytes": self.submitted[stream], "number": event[0], "home": event[1]})
        )
        self.last[stream] = self._node(self.last[stream], self.last[HOST], self.nodes[event])

    def see(self, event: tuple[int, int]) -> None:
        self.log.append((Change.SEEN, {"address": event[0], "bytes": event[1]}))
        self.last[HOST] = self._node(self.last[HOST], self.nodes[event])

    def ordered(self, first: int, second: int) -> bool:
        """True if a path leads from one work to the other, or to one that may have signalled to the host before the other."""
        signals = [at for at in range(second) if self.works[at][2]]
        return any(self.leads(self.of_work[first], self.of_work[end]) for end in (second, *signals))

    def leads(self, first: int, second: int) -> bool:
        """True if a path leads from one node to the other."""
        found, left = set[int](), [second]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += self.after[node]
        return first in found


@st.composite
def drawn_programs(draw: st.DrawFn) -> DrawnProgram:
    made, events = DrawnProgram(), list[tuple[int, int]]()
    streams = st.sampled_from((1, 2, 3))
    for _ in range(draw(st.integers(2, 40))):
        what = draw(st.sampled_from(("work", "event", "event", "wait", "wait", "see")))
        if what == "work":
            made.work(draw(streams), draw(st.integers(0, 9)) == 0)
        elif what == "event":
            events.append(made.event(draw(streams)))
        elif events:
            event = draw(st.sampled_from(events))
            if what == "see":
                made.see(event)
            elif (stream := draw(streams)) != event[0]:
                made.wait(stream, event)
    return made


def entry(kind: Change, **fields: int) -> np.ndarray:
    made = np.zeros((), ENTRY)
    made["kind"] = kind
    for name, value in fields.items():
        made[name] = value
    return made


def entries(made: DrawnProgram) -> Iterator[np.ndarray]:
    for kind, fields in ((Change.STREAM, dict[str, int]()), *made.log):
        yield entry(kind, **fields)


def apply_all(order: WorkOrder, *log: np.ndarray) -> list[WorkClash]:
    return [clash for each in log for clash in order.apply(each)] + [*order.settle()]


def test_streams_by_the_hundred_are_forgotten_with_their_work_only() -> None:
    order = WorkOrder()
    copy = WorkKind.COPY
    for stream in range(1, 500):
        log = entry(Change.QUEUED, address=stream, bytes=1, memory=copy), entry(Change.WRITES, address=7, bytes=1, number=1)
        assert apply_all(order, *log, entry(Change.SEEN, address=stream, bytes=1)) == []
        assert apply_all(order, entry(Change.QUEUED, bytes=stream, memory=copy), log[1]) == []
    late = entry(Change.QUEUED, address=3, bytes=2, memory=copy), entry(Change.WRITES, address=7, bytes=1, number=1)
    assert apply_all(order, *late) == []
    (clash,) = apply_all(order, entry(Change.QUEUED, address=4, bytes=2, memory=copy), late[1])
    assert (clash.earlier.stream, clash.later.stream, clash.address, clash.nbytes) == (3, 4, 7, 1)


@pytest.mark.parametrize("pitch", [100, 1 << 17])
def test_copies_of_many_rows(pitch: int) -> None:
    """Rows in one allocation, and rows so far apart that each could be in another."""
    order = WorkOrder()
    rows = entry(Change.WRITES, address=1000, bytes=60, number=2000, home=pitch)
    assert apply_all(order, entry(Change.QUEUED, address=1, bytes=1, memory=WorkKind.COPY), rows) == []
    for stream, (first, nbytes) in enumerate(((60, pitch - 60), (1999 * pitch + 59, 1)), 2):
        asked = entry(Change.QUEUED, address=stream, bytes=1, memory=WorkKind.FILL)
        clashes = apply_all(order, asked, entry(Change.WRITES, address=1000 + first, bytes=nbytes, number=1))
        assert [(clash.address, clash.nbytes) for clash in clashes] == ([] if first == 60 else [(1000 + first, 1)])


@settings(max_examples=1000, deadline=None)
@given(drawn_programs(), st.randoms(use_true_random=False))
def test_two_works_clash_if_no_path_leads_from_one_to_the_other(made: DrawnProgram, random: object) -> None:
    """Launches end in any order that their streams allow, at any moment after the program asked for them."""
    order, clashes, ran, byte = WorkOrder(), list[WorkClash](), 0, Footprint.of([], [(0, 1)])
    log, waiting = list(entries(made)), list(made.works)
    queued = [0, *np.cumsum([kind is Change.QUEUED for kind, _ in made.log])]  # launches that each entry has before it
    for at, entry in enumerate(log):
        clashes += order.apply(entry)
        while ran < queued[min(at, len(queued) - 1)] and random.random() < 0.5:  # type: ignore[attr-defined]
            stream, ticket, signals = waiting[ran]
            clashes += order.ran(stream, ticket, "k", byte, signals)
            ran += 1
    for stream, ticket, signals in waiting[ran:]:
        clashes += order.ran(stream, ticket, "k", byte, signals)
    numbers = {(stream, ticket): n for n, (stream, ticket, _) in enumerate(made.works)}
    found = sorted(tuple(numbers[work.stream, work.ticket] for work in clash[:2]) for clash in clashes)
    wanted = [(a, b) for b in range(len(made.works)) for a in range(b) if not made.ordered(a, b)]
    assert found == sorted(wanted)


def test_a_launch_that_touches_no_memory() -> None:
    order = WorkOrder()
    for stream in (1, 2):
        assert apply_all(order, entry(Change.QUEUED, address=stream, bytes=1, memory=WorkKind.KERNEL)) == []
        assert [*order.ran(stream, 1, "k", Footprint.of([], []))] == []
