"""Where a tile's LDS writes and the loads behind them go among its matrix instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Move = Callable[[], None]


@dataclass(frozen=True)
class Unit:
    """A staging unit: its LDS writes, the loads that take its registers, and twice the matrix instructions in which LDS takes one
    of the writes from all waves."""

    writes: Sequence[Move]
    loads: Sequence[Move]
    pace: float


@dataclass(frozen=True)
class _Span:
    """Loads of a unit, and the numbers of the matrix instructions between which they go."""

    begin: float
    end: float
    loads: Sequence[Move]


def add_writes_and_loads(
    add: Callable[[int, Move], None], units: Sequence[Unit], room: int, count: int, waited: int
) -> int:
    """Adds each unit's LDS writes before number `room` of the tile's `count`, and behind them its loads, evenly, but `waited`
    matrix instructions before its first write in the next tile. Returns the number behind the last load, one of the tile's.

    All of a transposed unit's registers are free only behind its last write, and all are needed at its first: its writes go half as
    fast as LDS takes them.
    """
    all_writes, before = sum(len(unit.writes) for unit in units), 0
    spans = []
    for unit in units:
        first = last = before * room / all_writes
        for number, write in enumerate(unit.writes):
            last = first + number * min(unit.pace, room / all_writes)
            add(int(last), write)
        spans.append(_Span(last, min(count, count + first - waited), unit.loads))
        before += len(unit.writes)
    following = 0.0
    for number, span in enumerate(spans):
        for done, load in enumerate(span.loads):
            following = max(span.begin, following)
            add(int(following), load)
            following += _step(following, spans[number:], done)
    return min(count - 1, int(following))


def _step(number: float, spans: Sequence[_Span], done: int) -> float:
    """Matrix instructions from a load at `number` to the next, so that all come in time; done: of the first span's."""
    left = accumulate(len(span.loads) for span in spans)
    return max(0.0, min((span.end - number) / (count - done) for span, count in zip(spans, left, strict=True)))
