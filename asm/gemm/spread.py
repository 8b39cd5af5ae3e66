"""Places of a tile's LDS writes, the loads after them and the next tile's first reads among its matrix instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Move = Callable[[], None]


@dataclass(frozen=True)
class SpreadUnit:
    """LDS writes of one staging unit of a work-item, and the loads that reuse its registers (`Staging.loads`)."""

    writes: Sequence[Move]  # its LDS writes
    loads: Sequence[Move]  # loads that reuse its registers
    pace: float  # twice the matrix instructions in which LDS accepts one of the writes from all waves


def add_writes_and_loads(
    add: Callable[[int, Move], None], units: Sequence[SpreadUnit], room: int, count: int, behind: int, waited: int
) -> int:
    """Adds each unit's LDS writes before number `room` of the tile's `count`, and its loads after them, evenly spread.

    Loads end `behind` matrix instructions before the tile's end, and `waited` before the unit's first write in the next tile.
    Returns the last load's number. A transposed unit's registers are all free only after its last write, and all needed at its
    first. So its writes go at half the speed of LDS.
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
    """Returns the numbers of the matrix instructions that the loads follow, in order.

    Loads are spread evenly. None is before its `begins`, and each is at or before its `ends` if possible.
    """
    following, numbers = 0.0, []
    for place, begin in enumerate(begins):
        following = max(begin, following)
        numbers.append(int(following))
        following += max(0.0, min((end - following) / count for count, end in enumerate(ends[place:], 1)))
    return numbers


@dataclass(frozen=True)
class Read:
    """A read of a fragment in a turn."""

    first: int  # number of the turn's first matrix instruction that uses it
    last: int  # number of the last one
    pace: float  # matrix instructions in which LDS delivers it to all waves


def read_numbers(reads: Sequence[Read], turn: int, count: int, barriers: tuple[int, int], ahead: int) -> list[int]:
    """Returns the numbers of the matrix instructions that the reads of the next tile's first turn follow.

    Numbers from `count` on are matrix instructions of the next tile; such reads come before its barrier. Each read follows the
    barrier and the last use of its registers. Reads are issued no faster than LDS serves them, because a wave that waits in LDS's
    queue issues nothing else; but each comes `ahead` matrix instructions before its first use.

    turn: matrix instructions of a turn. count: matrix instructions of a tile, whose last turn frees the registers. barriers:
    `Fragments.barriers`.
    """
    early, barrier = barriers
    place, numbers = 0.0, []
    for read in reads:
        least, latest = max(barrier, count - turn + read.last), count - 1 + min(early, read.first - ahead)
        place = max(place, least)
        numbers.append(max(least, min(int(place), latest)))
        place += read.pace
    return numbers
