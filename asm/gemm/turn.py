"""Order in which a turn of a k tile multiplies its atoms, and the matrix instructions that writes, loads and reads follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.mx_scales import MxScales
from simgpu.asm.parts.line_ring import LineStaging
from simgpu.asm.parts.staging import StagedFragment, Staging
from simgpu.hardware.descriptor import CLOCKS_PER_PASS
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.limits import POOL_ATOMS
from simgpu.operators.gemm.plan import GemmPlan

LDS_CLOCKS = 128  # clocks of an LDS access, assumed (facts: 60 to 130); affects distances, not correctness
# Clocks of a load when memory is busy [GPUB: 640 to 670 with misses of the TLB; GLUON: 1000 under load]. Affects
# distances, not correctness.
MEMORY_CLOCKS = {"gfx908": 640, "gfx90a": 640, "gfx942": 1000, "gfx950": 1000}

LATER = 3  # matrix instructions from an atom's last one until its products are available

Product = tuple[int, int, int, int]  # an atom's number, mt, nt, and index among its registers

ISSUE_CLOCKS = 4  # clocks from one instruction of a wave to its next
MovedOperand = Staging | LineStaging | MxScales
Place = tuple[int, MovedOperand, StagedFragment]  # number of the matrix instruction that a read follows; operand and fragment read
Move = Callable[[], None]


@dataclass(frozen=True)
class Turn:
    """Matrix instructions between two fillings of the fragment registers."""

    plan: GemmPlan
    operands: TileLayouts

    @property
    def clocks(self) -> int:
        """Clocks of a matrix instruction."""
        return self.plan.atom.passes * CLOCKS_PER_PASS

    @cached_property
    def count(self) -> int:
        """Number of matrix instructions in a tile."""
        return len(self.order) * self.operands.a.turns

    @property
    def lds_wait(self) -> int:
        """Matrix instructions in the time of an LDS access."""
        return -(-LDS_CLOCKS // self.clocks)

    @property
    def memory_wait(self) -> int:
        """Matrix instructions in the time of a load that misses L2."""
        return -(-MEMORY_CLOCKS[self.plan.descriptor.arch] // self.clocks)

    @property
    def fragment_words(self) -> int:
        """Registers of a fragment of A."""
        a = self.operands.a
        return a.wide * a.operand if a.lines else a.kw

    @property
    def room(self) -> int:
        """Other instructions that a wave can issue per matrix instruction, less one for an s_waitcnt.

        With block scales none is reserved, because most of them add scaled products and need no wait.
        """
        return max(1, self.clocks // ISSUE_CLOCKS - (1 if self.plan.problem.scales == "block" else 2))

    def read_pace(self, words: int) -> float:
        """Returns the matrix instructions in which LDS delivers fragments of `words` registers to all waves."""
        return WORD * words * self.plan.threads / sustained_rates(self.plan.descriptor).rates.lds_read / self.clocks

    @property
    def write_rate(self) -> float:
        """Bytes that LDS accepts in the time of a matrix instruction."""
        return sustained_rates(self.plan.descriptor).rates.lds_write * self.clocks

    @cached_property
    def order(self) -> list[tuple[int, int, int]]:
        """Triples (step, mt, nt) of a turn's matrix instructions: steps outermost, so that accumulators are independent.

        A step goes column by column through the first half of the rows, then through the second half. So a turn begins with half
        of A's fragments and one of B's, and needs another one of B's at regular distances. Its last step frees them in the same
        order. From a fragment's last use to its first use in the next turn, LDS has nearly half a step to deliver it.

        If that is too short, two atoms alternate through all their steps, and LDS has nearly half a turn. With block scales they
        always alternate, so that few products wait to be scaled.
        """
        steps = range(self.operands.a.steps)
        if self.plan.problem.scales != "block" and self._half_a_step_brings_fragments():
            return [(step, *place) for step in steps for place in self.atoms]
        return [(step, *place) for pair in self.pairs for step in steps for place in pair]

    def _half_a_step_brings_fragments(self) -> bool:
        """True if half a step is long enough for LDS's latency and all waves' reads of B's fragments."""
        a, b = self.operands.a, self.operands.b
        return a.atoms // 2 * b.atoms >= LDS_CLOCKS / self.clocks + b.atoms * self.read_pace(self.fragment_words)

    @cached_property
    def pairs(self) -> list[list[tuple[int, int]]]:
        """Atoms in pairs. The last of an odd number joins the pair before it.

        With block scales it is on its own, because the pool holds two pairs.
        """
        count = len(self.atoms)
        starts = list(range(0, count - 1 if count > 1 and self.plan.problem.scales != "block" else count, 2))
        return [self.atoms[first:end] for first, end in zip(starts, [*starts[1:], count], strict=True)]

    @cached_property
    def atoms(self) -> list[tuple[int, int]]:
        """Pairs (mt, nt) of atoms, column by column through the first half of the rows, then through the second half."""
        a, b = self.operands.a, self.operands.b
        half = -(-a.atoms // 2)
        return [(mt, nt) for rows in (range(half), range(half, a.atoms)) for nt in range(b.atoms) for mt in rows]

    def atom_number(self, turn: int, mt: int, nt: int) -> int:
        """Returns an atom's number among those of all turns of a tile, in the order in which they end."""
        return turn * len(self.atoms) + self.atoms.index((mt, nt))

    def scaled_products(self) -> list[tuple[int, Product]]:
        """Returns (number, product) for all products of a tile: scaling follows the matrix instruction of that number.

        The products of a pair of atoms are spread among the matrix instructions of the next pair.
        """
        steps, registers, found = self.operands.a.steps, range(self.plan.atom.acc_registers), []
        for turn in range(self.operands.a.turns):
            for pair in self.pairs:
                first = turn * len(self.order) + self.order.index((steps - 1, *pair[0])) + LATER
                for number, ((mt, nt), r) in enumerate(product(pair, registers)):
                    found.append((first + number * steps // len(registers), (self.atom_number(turn, mt, nt), mt, nt, r)))
        return found

    def carried_products(self) -> list[tuple[int, Product]]:
        """Returns (number in the next tile, product) for the products that are scaled after a tile's last matrix instruction.

        Empty if the number of atoms is not a multiple of POOL_ATOMS, because the next tile's first atoms would use their registers.
        """
        turns = self.operands.a.turns
        if turns * len(self.atoms) % POOL_ATOMS:
            return []
        count = turns * len(self.order)
        return [(number - count, which) for number, which in self.scaled_products() if number >= count]


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
