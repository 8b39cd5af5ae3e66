"""Two instruction streams as one: fillers spread between the instructions that they hide behind, or as many behind each as fit."""

from __future__ import annotations

import contextlib
from collections import deque
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
    """Instructions that hide behind others, in their order, a few behind each; what finds no room waits for the next.

    A matrix unit works on while its wave issues other instructions, but not for long: of many in one place it waits for the last.
    They must leave scalar state to what they hide behind as it was, and come without labels.
    """

    def __init__(self, k: KernelBuilder, room: int) -> None:
        self.k, self.room = k, room
        self.waiting: deque[Item] = deque()

    def hide(self, items: Iterable[Item]) -> None:
        """Emits as many as there is room for of what waits, `items` last."""
        self.waiting.extend(items)
        room = self.room
        while self.waiting and room > 0:
            room -= isinstance(self.waiting[0], Instr)
            self.k.items.append(self.waiting.popleft())

    def emit(self, items: Iterable[Item]) -> None:
        """Emits what is hidden behind, and before it all that waits up to the last that touches the same registers."""
        items = list(items)
        registers = frozenset().union(*(_touched(item) for item in items))
        due = max((n + 1 for n, item in enumerate(self.waiting) if not registers.isdisjoint(_touched(item))), default=0)
        self.k.items += [*(self.waiting.popleft() for _ in range(due)), *items]

    def flush(self) -> None:
        """Emits all that waits."""
        self.k.items += self.waiting
        self.waiting.clear()


def _touched(item: Item) -> frozenset[object]:
    return item.effect.touched if isinstance(item, Instr) and item.effect is not None else frozenset()
