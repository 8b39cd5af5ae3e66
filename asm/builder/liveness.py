"""Live registers: those that later instructions may still read. A listing shows them in its last column."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.waits import Item, blocks_of
from simgpu.hardware.timing_rules.register_use import Register

Live = frozenset[Register]


def live_registers(items: Sequence[Item]) -> list[Live]:
    """Returns the registers that are live after each instruction of `items`, in order. Every instruction must have its effect.

    Walks basic blocks backwards to a fixed point. A write counts as a write of all lanes, whatever EXEC is, so before it the
    register is not live.
    """
    blocks = blocks_of(items)
    entering: list[Live] = [frozenset() for _ in blocks.nodes]
    behind: dict[int, Live] = {}
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks.nodes) - 1, -1, -1):
            live = frozenset().union(*(entering[successor] for successor in blocks.following[index]))
            for at in reversed(blocks.nodes[index]):
                behind[at] = live
                live = _live_before(items[at], live)
            changed |= live != entering[index]
            entering[index] = live
    return [behind[at] for at, item in enumerate(items) if isinstance(item, Instr)]


def _live_before(item: Item, live: Live) -> Live:
    if not isinstance(item, Instr) or item.effect is None:
        return live
    access = item.effect.access
    return (live - access.writes - item.effect.pending) | access.read()


def ranges(live: Live) -> str:
    """Returns a text such as `v0-3,7 a0-63 s4`: registers by file, then named state."""
    parts = []
    for file in "vas":
        numbers = sorted(register[1] for register in live if not isinstance(register, str) and register[0] == file)
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][1] + 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        if runs:
            parts.append(file + ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs))
    return " ".join([*parts, *sorted(register for register in live if isinstance(register, str))])
