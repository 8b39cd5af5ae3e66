"""Schedule of a tile's fragment reads: the numbers of the matrix instructions that the reads and the barrier follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.asm.gemm.mx_scales import MxScales
from simgpu.asm.gemm.spread import Read, read_numbers
from simgpu.asm.gemm.turn import Turn
from simgpu.asm.parts.line_ring import LineStaging
from simgpu.asm.parts.staging import StagedFragment, Staging

MovedOperand = Staging | LineStaging | MxScales
Place = tuple[int, MovedOperand, StagedFragment]  # number of the matrix instruction that a read follows; operand and fragment read


@dataclass(frozen=True)
class Fragments:
    """Fragments of a tile's turns, and the matrix instructions after which they are read."""

    turn: Turn
    moved: tuple[MovedOperand, ...]  # operands that the main loop moves

    @cached_property
    def first(self) -> list[tuple[MovedOperand, StagedFragment]]:
        """Fragments of a tile's first turn."""
        return [(staging, fragment) for staging in self.moved for fragment in staging.fragments(0)]

    @staticmethod
    def read_of_turn(staging: MovedOperand, fragment: StagedFragment, turn: int) -> StagedFragment:
        """Returns the read of a later turn that uses the same registers."""
        return next(other for other in staging.fragments(turn) if other.registers == fragment.registers)

    def uses(self, staging: MovedOperand, fragment: StagedFragment) -> tuple[int, int]:
        """Returns the numbers of the first and the last matrix instruction of a turn that use the fragment."""
        which = 1 if staging.layout is self.turn.operands.a else 2
        numbers = [number for number, place in enumerate(self.turn.order) if (place[which], place[0]) in fragment.feeds]
        return min(numbers), max(numbers)

    @cached_property
    def barriers(self) -> tuple[int, int]:
        """Numbers of the matrix instructions that the barrier follows, with Prefetch.ANY and with Prefetch.WHOLE.

        The barrier follows the last use of the first fragment that the last turn frees. With Prefetch.WHOLE it is later if the
        last load would otherwise have too little time to arrive from memory. It still leaves time for half of the next turn's
        reads, or for all of them with block scales.
        """
        turn, share = self.turn, 1 if self.turn.plan.problem.scales == "block" else 0.5
        first = turn.count - len(turn.order) + min(self.uses(*item)[1] for item in self.first)
        latest = turn.count - turn.lds_wait - int(turn.read_pace(turn.fragment_words) * len(self.first) * share)
        return first, max(first, min(latest, turn.lds_wait + turn.memory_wait))

    @cached_property
    def next_reads(self) -> list[Place]:
        """Reads of the next tile's first turn, in the order in which registers become free.

        Reads with numbers of at least `turn.count` are left to the next tile.
        """
        turn, barrier = self.turn, self.barriers[1]

        def free(item: tuple[MovedOperand, StagedFragment]) -> tuple[int, int]:
            first, last = self.uses(*item)
            return max(barrier, turn.count - len(turn.order) + last), first

        order = sorted(self.first, key=free)
        reads = [Read(*self.uses(*item), turn.read_pace(item[1].registers.count)) for item in order]
        numbers = read_numbers(reads, len(turn.order), turn.count, self.barriers, turn.lds_wait)
        return [(number, *item) for number, item in zip(numbers, order, strict=True)]

    @cached_property
    def inherited_reads(self) -> list[Place]:
        """Reads of a tile's first turn that the previous tile leaves to it, and the numbers that they follow."""
        count = self.turn.count
        return [(number - count, moved, read) for number, moved, read in self.next_reads if number >= count]
