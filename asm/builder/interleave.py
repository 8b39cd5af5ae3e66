"""Merges two instruction streams: fillers go between matrix instructions, spread evenly or a limited number after each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.waits import Item, Label


@contextlib.contextmanager
def stream(k: KernelBuilder) -> Iterator[list[Item]]:
    """Yields a list that collects the instructions emitted inside the `with` block, instead of the kernel."""
    items: list[Item] = []
    here, k.items = k.items, items
    yield items
    assert k.items is items
    k.items = here


def interleave(main: Sequence[Item], filler: Sequence[Item], lead: int = 0) -> list[Item]:
    """Returns `main` with `filler` spread evenly after its items from number `lead` on. Each stream keeps its order.

    The two streams must use disjoint registers, and only one of them may use scalar state. A label of the filler marks
    the return of an out-of-line block. It stays right after the branch before it, because the branch skips everything
    between them.
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


def overlap(k: KernelBuilder, lead: int, products: Callable[[], object], *fillers: Callable[[], object]) -> None:
    """Emits products that hide the instructions of the fillers, from product number `lead` on.

    Scalar instructions and accesses to LDS precede a barrier among the products.
    """
    with stream(k) as main:
        products()
    with stream(k) as hidden:
        for filler in fillers:
            filler()
    end = len(main)
    if any(getattr(item, "mnemonic", "").startswith(("s_", "ds_")) for item in hidden):
        end = next((n for n, item in enumerate(main) if getattr(item, "mnemonic", "") == "s_barrier"), end)
    k.items += interleave(main[:end], hidden, lead) + main[end:]


class Backlog:
    """Queue of instructions that are emitted after others, on average `room` of them after each. The rest waits.

    A matrix unit keeps working while its wave issues other instructions, but a long run of them makes the unit wait.
    Queued instructions must preserve the scalar state of the instructions that hide them, and have no labels.

    Two kinds overtake queued instructions that use none of their registers, but no barrier: LDS reads, because their
    fragments are needed soon, and urgent ones (vector arithmetic whose registers are soon reused).
    """

    def __init__(self, k: KernelBuilder, room: float) -> None:
        self.k, self.room, self.rest = k, room, 0.0
        self.waiting: list[tuple[Item, bool]] = []

    def hide(self, items: Iterable[Item], urgent: Iterable[Item] = ()) -> None:
        """Queues `urgent`, then `items`, and emits as many queued instructions as there is room for."""
        self.waiting += [*((item, True) for item in urgent), *((item, _reads_lds(item)) for item in items)]
        self.rest = self.rest % 1 + self.room
        while self.waiting and self.rest >= 1:
            item, _ = self.waiting.pop(self._next())
            self.rest -= isinstance(item, Instr)
            self.k.items.append(item)

    def _next(self) -> int:
        """Returns the index of the first urgent item that may overtake those before it, else 0."""
        passed: set[object] = set()
        for number, (item, urgent) in enumerate(self.waiting):
            registers = _registers_of(item)
            if urgent and passed.isdisjoint(registers):
                return number
            if isinstance(item, Instr) and item.mnemonic == "s_barrier":
                break
            passed |= registers
        return 0

    def emit(self, items: Iterable[Item]) -> None:
        """Emits `items`, usually a matrix instruction, after queued items until none of the rest uses the same registers."""
        items = list(items)
        registers = frozenset().union(*(_registers_of(item) for item in items))
        while any(not registers.isdisjoint(_registers_of(item)) for item, _ in self.waiting):
            self.k.items.append(self.waiting.pop(self._next())[0])
        self.k.items += items

    def flush(self) -> None:
        """Emits the whole queue."""
        self.k.items += [item for item, _ in self.waiting]
        self.waiting.clear()


def _registers_of(item: Item) -> frozenset[object]:
    return item.effect.registers if isinstance(item, Instr) and item.effect is not None else frozenset()


def _reads_lds(item: Item) -> bool:
    return isinstance(item, Instr) and item.mnemonic.startswith("ds_read")
