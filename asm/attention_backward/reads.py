"""Reads of operands from LDS, some products before their use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention_backward.plan import FRAGMENTS

Read = Callable[[Reg], None]


class Reads:
    """A step's reads into a ring of registers for FRAGMENTS operands. `take` and `refill` are called in turn, once for each.

    With `cross`, the ring goes on with the next step: after the last read of a step, there is a barrier, then `cross`, which
    emits the next step's addresses. The first reads are then emitted here, before the loop. Without it, each step begins with
    them.
    """

    def __init__(self, k: KernelBuilder, reads: Sequence[Read], ring: Reg, cross: Callable[[], None] | None) -> None:
        self.k, self.ring, self.cross, self.taken = k, ring, cross, 0
        # A place that no read uses ends the step, so that each step's reads begin at the ring's beginning.
        self.reads: list[Read | None] = [*reads, *[None] * (-len(reads) % FRAGMENTS)]
        if cross:
            self._first()

    @property
    def crosses(self) -> bool:
        """True if the ring goes on with the next step."""
        return self.cross is not None

    def _first(self) -> None:
        for number in range(FRAGMENTS):
            self._emit(number)

    def _emit(self, number: int) -> None:
        read = self.reads[number]
        if read is not None:
            read(self._place(number))

    def _place(self, number: int) -> Reg:
        return self.ring.group(number % FRAGMENTS, 4)

    def take(self) -> Reg:
        """Returns the next operand's registers."""
        if self.taken == 0 and self.cross is None:
            self._first()
        return self._place(self.taken)

    def refill(self) -> None:
        """Emits the read that reuses the registers of the operand that `take` returned."""
        self._ahead()
        while self.taken and self.reads[self.taken] is None:
            self._ahead()

    def _ahead(self) -> None:
        ahead = self.taken + FRAGMENTS
        self.taken = (self.taken + 1) % len(self.reads)
        if ahead == len(self.reads) and self.cross is not None:
            self.k.s_barrier(note="all waves have the step's operands; the next step's rows are in LDS")
            self.cross()
        if ahead < len(self.reads) or self.cross is not None:
            self._emit(ahead % len(self.reads))
