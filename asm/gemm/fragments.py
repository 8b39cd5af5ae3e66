"""When a tile's fragments are read again: the barrier, and the numbers of the matrix instructions that the reads follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.asm.gemm.mx_scales import MxScales
from simgpu.asm.gemm.spread import Read, read_numbers
from simgpu.asm.gemm.turn import Turn
from simgpu.asm.parts.line_ring import LineStaging
from simgpu.asm.parts.staging import StagedFragment, Staging

Moved = Staging | LineStaging | MxScales
Place = tuple[int, Moved, StagedFragment]  # the number of the matrix instruction that a fragment's read follows


@dataclass(frozen=True)
class Fragments:
    """All fragments of a turn. moved: what the main loop moves."""

    turn: Turn
    moved: tuple[Moved, ...]

    @cached_property
    def first(self) -> list[tuple[Moved, StagedFragment]]:
        """Those of a tile's first turn."""
        return [(staging, fragment) for staging in self.moved for fragment in staging.fragments(0)]

    @staticmethod
    def later(staging: Moved, fragment: StagedFragment, turn: int) -> StagedFragment:
        """The read of a later turn that takes the same registers."""
        return next(other for other in staging.fragments(turn) if other.registers == fragment.registers)

    def uses(self, staging: Moved, fragment: StagedFragment) -> tuple[int, int]:
        """Numbers of the turn's first and last matrix instruction that read the fragment."""
        which = 1 if staging.layout is self.turn.operands.a else 2
        numbers = [number for number, place in enumerate(self.turn.order) if (place[which], place[0]) in fragment.feeds]
        return min(numbers), max(numbers)

    @cached_property
    def barriers(self) -> tuple[int, int]:
        """Numbers that the barrier follows in tiles with any loads, and in whole ones.

        It comes with the first free register of the last turn; in whole tiles later, where the last load would else have too little
        time to come from memory, but it leaves LDS half of the next turn's reads, the half that it begins with; all of them with
        block scales.
        """
        turn, share = self.turn, 1 if self.turn.plan.problem.scales == "block" else 0.5
        first = turn.count - len(turn.order) + min(self.uses(*item)[1] for item in self.first)
        latest = turn.count - turn.lds_wait - int(turn.read_pace(turn.fragment_words) * len(self.first) * share)
        return first, max(first, min(latest, turn.lds_wait + turn.memory_wait))

    @cached_property
    def next_reads(self) -> list[Place]:
        """The reads of the next tile's first turn, what is free first before the others: from this tile's count on they are left to
        the next tile."""
        turn, barrier = self.turn, self.barriers[1]

        def free(item: tuple[Moved, StagedFragment]) -> tuple[int, int]:
            first, last = self.uses(*item)
            return max(barrier, turn.count - len(turn.order) + last), first

        order = sorted(self.first, key=free)
        reads = [Read(*self.uses(*item), turn.read_pace(item[1].registers.count)) for item in order]
        numbers = read_numbers(reads, len(turn.order), turn.count, self.barriers, turn.lds_wait)
        return [(number, *item) for number, item in zip(numbers, order, strict=True)]

    @cached_property
    def left(self) -> list[Place]:
        """The reads of a tile's first turn that the tile before leaves to it, and the numbers that they follow in it."""
        count = self.turn.count
        return [(number - count, moved, read) for number, moved, read in self.next_reads if number >= count]
