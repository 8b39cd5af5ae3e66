"""Two instruction streams as one: fillers spread between the instructions that they hide behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

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
