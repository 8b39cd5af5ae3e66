"""Chains of f32 matrix instructions on the same accumulators, run as one.

A step of f32 MFMA loads and stores each accumulator for k = 2 or 4: half of its time. The first
instruction of a chain therefore does the work of those that follow it on the same D, in order, and
they do nothing. That is exact where nothing between them touches D or writes what they read, and
where all are reached one after the other: within a straight run that no branch enters or leaves.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from hardware.isa.instruction import Instruction, Reg
from simgpu.matrix import chainable

LONGEST = 4  # instructions of a chain; a record has slots for five
WINDOW = 64  # how far the instructions of a chain may lie apart

Registers = frozenset[tuple[str, int]]
Placed = tuple[int, Instruction]


def chains(run: Sequence[Placed], fused: Container[int]) -> Iterator[tuple[int, ...]]:
    """Records of chains of two or more in a straight run; those in `fused` belong to one already.

    The first of a chain does the work.
    """
    taken = {at for at, (index, _) in enumerate(run) if index in fused}
    for first, (_, inst) in enumerate(run):
        if first in taken or not chainable(inst):
            continue
        members = _followers(run, first, taken)
        if len(members) > 1:
            taken.update(members)
            yield tuple(run[at][0] for at in members)


def _followers(run: Sequence[Placed], first: int, taken: set[int]) -> list[int]:
    """Positions of the instructions that can be done at `first`, it included."""
    inst = run[first][1]
    accumulators = _written(inst)
    changed: set[tuple[str, int]] = set()
    members = [first]
    for at in range(first + 1, min(first + WINDOW, len(run))):
        other = run[at][1]
        if at not in taken and _same(inst, other):
            if _sources(other) & changed:
                break
            members.append(at)
            if len(members) == LONGEST:
                break
        elif _touched(other) & accumulators:
            break
        else:
            changed |= _written(other)
    return members


def _same(first: Instruction, other: Instruction) -> bool:
    return (
        chainable(other)
        and other.mnemonic == first.mnemonic
        and other.args["vdst"] == first.args["vdst"]
        and other.mods == first.mods
    )


def _registers(inst: Instruction, names: Sequence[str]) -> Registers:
    regs = (inst.args[name] for name in names)
    return frozenset(
        (reg.file, reg.index + part) for reg in regs if isinstance(reg, Reg) for part in range(reg.count)
    )


def _touched(inst: Instruction) -> Registers:
    return _registers(inst, list(inst.args))


def _sources(inst: Instruction) -> Registers:
    return _registers(inst, ("src0", "src1"))


def _written(inst: Instruction) -> Registers:
    """What a matrix instruction writes; of another, every register that it names."""
    return _registers(inst, ("vdst",)) if inst.spec.kind == "matrix" else _touched(inst)
