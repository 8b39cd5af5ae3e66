"""Where a tile's LDS writes, the loads behind them and the next tile's first reads go among its matrix instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Move = Callable[[], None]


@dataclass(frozen=True)
class SpreadUnit:
    """A staging unit: its LDS writes, the loads that take its registers, and twice the matrix instructions in which LDS takes one
    of the writes from all waves."""

    writes: Sequence[Move]
    loads: Sequence[Move]
    pace: float


def add_writes_and_loads(
    add: Callable[[int, Move], None], units: Sequence[SpreadUnit], room: int, count: int, behind: int, waited: int
) -> int:
    """Adds each unit's LDS writes before number `room` of the tile's `count`, and behind them its loads, evenly, but `behind`
    matrix instructions before the tile's end and `waited` before its first write in the next tile. Returns the last load's number.

    All of a transposed unit's registers are free only behind its last write, and all are needed at its first: its writes go half as
    fast as LDS takes them.
    """
    all_writes, before = sum(len(unit.writes) for unit in units), 0
    loads: list[tuple[float, float, Move]] = []
    for unit in units:
        first = last = before * room / all_writes
        for number, write in enumerate(unit.writes):
            last = first + number * min(unit.pace, room / all_writes)
            add(int(last), write)
        loads += [(last, count + min(-behind, first - waited), load) for load in unit.loads]
        before += len(unit.writes)
    begins, ends, moves = zip(*loads, strict=True)
    numbers = load_numbers(begins, ends)
    for number, load in zip(numbers, moves, strict=True):
        add(number, load)
    return numbers[-1]


def load_numbers(begins: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Numbers of the matrix instructions that loads follow, in their order: none before its begin, evenly, and each by its end
    where that can be."""
    following, numbers = 0.0, []
    for place, begin in enumerate(begins):
        following = max(begin, following)
        numbers.append(int(following))
        following += max(0.0, min((end - following) / count for count, end in enumerate(ends[place:], 1)))
    return numbers


@dataclass(frozen=True)
class Read:
    """A fragment of a turn: numbers of the turn's first and last matrix instruction that it feeds, and the matrix instructions in
    which LDS brings it to all waves."""

    first: int
    last: int
    pace: float


def read_numbers(reads: Sequence[Read], turn: int, count: int, barriers: tuple[int, int], ahead: int) -> list[int]:
    """Numbers that the reads of the next tile's first turn follow, counted on into the next tile.

    Each goes behind the barrier and the last use of its registers, and no faster than LDS takes them, since a wave that waits for
    its place in LDS's queue issues nothing else; but `ahead` matrix instructions before its first use. turn: matrix instructions of
    a turn; count: of a tile, whose last turn frees the registers. barriers: numbers of the barrier in tiles with any loads, and in
    whole ones; reads that are left to the next tile come before its barrier.
    """
    early, barrier = barriers
    place, numbers = 0.0, []
    for read in reads:
        least, latest = max(barrier, count - turn + read.last), count - 1 + min(early, read.first - ahead)
        place = max(place, least)
        numbers.append(max(least, min(int(place), latest)))
        place += read.pace
    return numbers
