"""Two instruction streams as one: fillers spread between the instructions that they hide behind, or as many behind each as fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.waits import Item, Label


@contextlib.contextmanager
def stream(k: KernelBuilder) -> Iterator[list[Item]]:
    """What is emitted inside goes to the list that this yields instead of to the kernel."""
    items: list[Item] = []
    here, k.items = k.items, items
    yield items
    assert k.items is items
    k.items = here


def interleave(main: Sequence[Item], filler: Sequence[Item], lead: int = 0) -> list[Item]:
    """`main` with `filler` spread evenly behind its items from number `lead` on; each keeps its order.

    The two must touch disjoint registers, and only one of them scalar state. A label of the filler is where an out-of-line block
    comes back: it stays right behind the branch before it, as the branch skips whatever is between them.
    """
    units: list[list[Item]] = []
    for item in filler:
        if isinstance(item, Label) and units:
            units[-1].append(item)
        else:
            units.append([item])
    lead = min(lead, max(0, len(main) - 1))
    slots = len(main) - lead
    merged: list[Item] = []
    done = 0
    for number, item in enumerate(main):
        merged.append(item)
        due = max(0, number + 1 - lead) * len(units) // slots
        merged += (item for unit in units[done:due] for item in unit)
        done = max(done, due)
    return merged + [item for unit in units[done:] for item in unit]


class Backlog:
    """Instructions that hide behind others, in their order, `room` of them behind each in the mean; what finds no room waits.

    A matrix unit works on while its wave issues other instructions, but not for long: of many in one place it waits for the last.
    They must leave scalar state to what they hide behind as it was, and come without labels. Reads of LDS, whose fragments are soon
    needed, and urgent ones (vector arithmetic whose registers are soon taken again) overtake what waits and touches none of their
    registers, but no barrier.
    """

    def __init__(self, k: KernelBuilder, room: float) -> None:
        self.k, self.room, self.rest = k, room, 0.0
        self.waiting: list[tuple[Item, bool]] = []

    def hide(self, items: Iterable[Item], urgent: Iterable[Item] = ()) -> None:
        """Emits as many as there is room for of what waits; `items` come last, behind `urgent`."""
        self.waiting += [*((item, True) for item in urgent), *((item, _reads_lds(item)) for item in items)]
        self.rest = self.rest % 1 + self.room
        while self.waiting and self.rest >= 1:
            item, _ = self.waiting.pop(self._next())
            self.rest -= isinstance(item, Instr)
            self.k.items.append(item)

    def _next(self) -> int:
        """The first urgent one that may overtake those before it, else the first of all."""
        passed: set[object] = set()
        for number, (item, urgent) in enumerate(self.waiting):
            registers = _touched(item)
            if urgent and passed.isdisjoint(registers):
                return number
            if isinstance(item, Instr) and item.mnemonic == "s_barrier":
                break
            passed |= registers
        return 0

    def emit(self, items: Iterable[Item]) -> None:
        """Emits what is hidden behind, and before it all that waits up to the last that touches the same registers; of urgent ones
        only themselves, where they may overtake."""
        items = list(items)
        registers = frozenset().union(*(_touched(item) for item in items))
        while any(not registers.isdisjoint(_touched(item)) for item, _ in self.waiting):
            self.k.items.append(self.waiting.pop(self._next())[0])
        self.k.items += items

    def flush(self) -> None:
        """Emits all that waits."""
        self.k.items += [item for item, _ in self.waiting]
        self.waiting.clear()


def _touched(item: Item) -> frozenset[object]:
    return item.effect.touched if isinstance(item, Instr) and item.effect is not None else frozenset()


def _reads_lds(item: Item) -> bool:
    return isinstance(item, Instr) and item.mnemonic.startswith("ds_read")
