"""Results of a litmus test that the source's model allows, by axioms: LLVM's memory model, with AMDGPUMemoryModel's scopes.

The model tries for each load each write that it may read from, and for each location each order of its writes. It accepts an
execution if

* happens-before has no cycle, and nothing reads a later write, or one that a write in between hides,
* atomics of one location, at scopes that include each other, are coherent, and a read-modify-write follows the write that it read,
* sequentially consistent operations have one order (RC11's axiom, over accesses and fences).

A release synchronises with an acquire that reads from it, or from the read-modify-writes that follow it, if the scopes of both
sides, and of the accesses themselves, include the other thread. Racing plain accesses may read any write, not any value.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import NamedTuple

from simgpu.hardware.memory_model import ACQUIRES, RELEASES
from simgpu.tools.litmus.form import NEEDED, LitmusStep, LitmusTest, Result

Pairs = set[tuple[int, int]]


class AccessEvent(NamedTuple):
    """A step in a thread. Locations' initial writes are in thread -1."""

    number: int
    thread: int
    step: LitmusStep

    @property
    def reads(self) -> bool:
        return self.step.kind in ("load", "add")

    @property
    def writes(self) -> bool:
        return self.step.kind in ("store", "add")

    @property
    def atomic(self) -> bool:
        return self.step.order is not None


def allowed_results(test: LitmusTest) -> set[Result]:
    """Returns all results that the model allows."""
    start = [LitmusStep("store", location) for location in test.locations]
    steps = [(-1, step) for step in start] + [(number, step) for number, thread in enumerate(test.threads) for step in thread]
    events = [AccessEvent(number, thread, step) for number, (thread, step) in enumerate(steps)]
    before = {
        (a.number, b.number) for a in events for b in events
        if a.number < b.number and (a.thread == b.thread or a.thread == -1 != b.thread)
    }  # fmt: skip
    model = _Model(test, events, before)
    return model.results()


class _Model:
    def __init__(self, test: LitmusTest, events: list[AccessEvent], before: Pairs) -> None:
        self.test, self.events, self.before = test, events, before
        self.needed = NEEDED[test.place]

    def results(self) -> set[Result]:
        """Returns the results of all executions that the model accepts."""
        found: set[Result] = set()
        reads = [event for event in self.events if event.reads]
        sources = [
            [w for w in self.events if w.writes and w.step.location == r.step.location and w.number != r.number] for r in reads
        ]
        orders = [self._orders(location) for location in self.test.locations]
        for chosen in product(*sources):
            source = {read.number: write for read, write in zip(reads, chosen, strict=True)}
            values = self._values(source)
            if values is None:
                continue
            result = tuple((event.step.register, values[event.number][0]) for event in reads)
            sorted_result = tuple(sorted(result, key=lambda one: int(one[0][1:])))
            if sorted_result not in found and any(self._stands(source, order) for order in product(*orders)):
                found.add(sorted_result)
        return found

    def _orders(self, location: str) -> list[tuple[AccessEvent, ...]]:
        writes = [event for event in self.events if event.writes and event.step.location == location]
        return [(writes[0], *rest) for rest in permutations(writes[1:])]

    def _values(self, source: dict[int, AccessEvent]) -> dict[int, tuple[int, int]] | None:
        """Returns the values that each event reads and writes; None if a value would come out of thin air."""
        values: dict[int, tuple[int, int]] = {}
        left = list(self.events)
        while left:
            ready = [e for e in left if not e.reads or source[e.number].number in values]
            if not ready:
                return None
            for event in ready:
                got = values[source[event.number].number][1] if event.reads else 0
                values[event.number] = got, event.step.value + (got if event.step.kind == "add" else 0)
                left.remove(event)
        return values

    def _inclusive(self, *events: AccessEvent) -> bool:
        """True if the scopes of events of two threads include the other, or if they are of one thread."""
        others = [event for event in events if event.thread >= 0]
        return len({event.thread for event in others}) <= 1 or all(event.step.scope >= self.needed for event in others)

    def _synchronises(self, source: dict[int, AccessEvent]) -> Pairs:
        """Returns pairs of a release and an acquire that reads from it, or from its release sequence."""
        found: Pairs = set()
        for number, first in source.items():
            read, write, seen = self.events[number], first, set[int]()
            while write.thread >= 0 and write.number not in seen:
                seen.add(write.number)
                for let in self._side(write, RELEASES, True):
                    for saw in self._side(read, ACQUIRES, False):
                        if write.atomic and read.atomic and self._inclusive(let, saw, write, read):
                            found.add((let.number, saw.number))
                if write.step.kind != "add":
                    break
                write = source[write.number]
        return found

    def _side(self, access: AccessEvent, orders: tuple[str, ...], ahead: bool) -> Iterator[AccessEvent]:
        """Yields the access itself and its thread's fences ahead of it or after it, if they have one of `orders`."""
        for event in self.events:
            fence = event.step.kind == "fence" and event.thread == access.thread and (event.number < access.number) == ahead
            if (event == access or fence) and event.step.order in orders:
                yield event

    def _stands(self, source: dict[int, AccessEvent], orders: tuple[tuple[AccessEvent, ...], ...]) -> bool:
        happens = transitive_closure(self.before | self._synchronises(source))
        if any(a == b for a, b in happens):
            return False
        place = {event.number: at for order in orders for at, event in enumerate(order)}
        writes = [event for order in orders for event in order]
        for a, b in happens:  # writes of a location follow its order
            if a in place and b in place and self.events[a].step.location == self.events[b].step.location and place[a] > place[b]:
                return False
        for number, write in source.items():
            if (number, write.number) in happens:
                return False
            same = [w for w in writes if w.step.location == write.step.location]
            if any((write.number, w.number) in happens and (w.number, number) in happens for w in same):
                return False
            if self.events[number].step.kind == "add" and place[number] != place[write.number] + 1:
                return False
        coherent = self._coherence(source, place, writes)
        if any((b, a) in happens for a, b in coherent):
            return False
        return self._one_order(happens, coherent)

    def _coherence(self, source: dict[int, AccessEvent], place: dict[int, int], writes: list[AccessEvent]) -> Pairs:
        """Returns ordered pairs of one location's atomics, at inclusive scopes: its order of writes and the reads order them."""
        pairs: Pairs = set()
        for a in writes:
            for b in writes:
                if a.step.location == b.step.location and place[a.number] < place[b.number]:
                    pairs.add((a.number, b.number))
            for number, write in source.items():
                if write.step.location == a.step.location and number != a.number:
                    if place[a.number] <= place[write.number]:
                        pairs.add((a.number, number))
                    else:
                        pairs.add((number, a.number))
        for one, first in source.items():
            for two, second in source.items():
                same = first.step.location == second.step.location and place[first.number] < place[second.number]
                plain = any(write.thread >= 0 and not write.atomic for write in (first, second))
                if same and not plain and self._inclusive(first, second, self.events[one], self.events[two]):
                    pairs.add((one, two))
        events = self.events
        return {
            (a, b) for a, b in pairs
            if (events[a].atomic or events[a].thread < 0) and events[b].atomic and self._inclusive(events[a], events[b])
        }  # fmt: skip

    def _one_order(self, happens: Pairs, coherent: Pairs) -> bool:
        """True if sequentially consistent events, at scopes that include all threads, have one order."""
        firm = [e for e in self.events if e.step.order == "seq_cst" and e.step.scope >= self.needed]
        related = happens | coherent
        pairs: Pairs = set()
        for a in firm:
            ahead = {a.number} | ({b for x, b in happens if x == a.number} if a.step.kind == "fence" else set())
            for b in firm:
                behind = {b.number} | ({x for x, y in happens if y == b.number} if b.step.kind == "fence" else set())
                if a != b and any((x, y) in related for x in ahead for y in behind):
                    pairs.add((a.number, b.number))
        return not any(a == b for a, b in transitive_closure(pairs))


def transitive_closure(pairs: Pairs) -> Pairs:
    """Returns the transitive closure."""
    found = set(pairs)
    while True:
        more = {(a, d) for a, b in found for c, d in found if b == c} - found
        if not more:
            return found
        found |= more
