"""Chooses tiles: f32 and f64 matrix instructions that run as one.

A single f32 MFMA loads and stores each accumulator for only k = 1 to 4, and loads its operands for one D. That takes longer than
the multiplications. So the first instruction of a tile also does the work of the next ones on the same D, in order, and of others
that read the same registers as A at each step, for another D. These do nothing. The result is exact under three conditions. No
instruction between them accesses their D's or writes their sources. None of them reads registers that another one writes. All of
them run in sequence, in straight-line code that no branch enters or leaves.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.machine import layout
from simgpu.matrix.fma_tile import MOST_SPREAD, widest
from simgpu.matrix.instruction import chainable, row_of

BLOCK = 64  # registers of an entry of `register_blocks`
BLOCK_WORDS = 1 + BLOCK // 4
WINDOW = 256  # greatest distance between the instructions of a tile
# Control that changes no registers and no MODE.
LEAVES_REGISTERS = (ControlKind.NOP, ControlKind.WAITCNT, ControlKind.BARRIER, ControlKind.SETPRIO)

PlacedInstruction = tuple[int, Instruction]


@dataclass(frozen=True)
class Tile:
    """Instructions that the first of them executes."""

    steps: tuple[tuple[PlacedInstruction, ...], ...]  # steps[s][d]: record and instruction of step s on D number d

    @property
    def records(self) -> tuple[int, ...]:
        return tuple(sorted(index for step in self.steps for index, _ in step))

    @property
    def first(self) -> Instruction:
        return self.steps[0][0][1]

    @property
    def table(self) -> list[int]:
        """Number of steps, D's, and for each step A, the B's and the instructions' records; registers as offsets into a wave."""
        d = [_offset(inst, "vdst") for _, inst in self.steps[0]]
        words = [len(self.steps), *d]
        for step in self.steps:
            words += [_offset(step[0][1], "src0"), *(_offset(inst, "src1") for _, inst in step), *(index for index, _ in step)]
        return words


def factor_lists(run: Sequence[PlacedInstruction], found: Sequence[Tile]) -> list[list[int]]:
    """Returns words for the table of each tile of a run, in order: the number of its factors, the number of new ones, 1 if all must
    be new, and the offsets of all, new ones first.

    A factor is new if no earlier tile has converted it since it was written.
    """
    by_first = {tile.records[0]: tile for tile in found}
    lists, converted = [], 0
    for at, inst in run:
        if at in by_first:
            factors = {_offset(each, name): registers_of(each, (name,)) for step in by_first[at].steps
                       for _, each in step for name in ("src0", "src1")}  # fmt: skip
            new = [offset for offset, bit in factors.items() if not bit & converted]
            lists.append([len(factors), len(new), int(not converted), *new, *(offset for offset in factors if offset not in new)])
            converted |= functools.reduce(operator.or_, factors.values())
        converted &= ~RegisterMask.of(inst).written
        if inst.spec.kind == "control" and inst.spec.control not in LEAVES_REGISTERS:
            converted = 0
    return lists


def register_blocks(tile: Tile) -> list[int]:
    """Returns words for the table of a tile that checks test: the number of entries, and for each the number of a block of 64
    registers, AccVGPRs from 256, and a byte for each of them, 0xff if the tile uses it."""
    used = functools.reduce(operator.or_, (registers_of(inst) for step in tile.steps for _, inst in step))
    states = np.array([0xFF * (used >> register & 1) for register in range(2 * 256)], np.uint8)
    masks = states.view(np.uint32).reshape(-1, BLOCK // 4)
    chosen = np.flatnonzero(masks.any(axis=1))
    return [len(chosen), *(word for block in chosen for word in (block, *masks[block]))]


def registers_of(inst: Instruction, names: Sequence[str] = ()) -> int:
    """Returns the vector registers of an instruction's operands as bits. names: of the operands; default: all."""
    return _bits(inst, names or tuple(inst.args))


def _offset(inst: Instruction, name: str) -> int:
    reg = inst.args[name]
    assert isinstance(reg, Reg)
    return layout.vector_register(reg.file, reg.index)


class RegisterMask(NamedTuple):
    """Vector registers that an instruction accesses, as bits."""

    kind: object  # equal for the instructions of a tile; None for one that cannot be part of a tile
    d: int
    sources: int  # A and B
    touched: int  # read or written
    written: int

    @classmethod
    def of(cls, inst: Instruction) -> RegisterMask:
        touched = _bits(inst, tuple(inst.args))
        if inst.spec.kind != "matrix":
            return cls(None, 0, 0, touched, touched)
        d = _bits(inst, ("vdst",))
        kind = (inst.mnemonic, inst.src_mods.neg, sorted(inst.mods.items())) if chainable(inst) else None
        return cls(kind, d, _bits(inst, ("src0", "src1")), touched, d)


def _bits(inst: Instruction, names: Sequence[str]) -> int:
    bits = 0
    for name in names:
        reg = inst.args[name]
        if isinstance(reg, Reg) and reg.file != "s":
            bits |= ((1 << reg.count) - 1) << (reg.index + (256 if reg.file == "a" else 0))
    return bits


def tiles(run: Sequence[PlacedInstruction], fused: Container[int], ring: bool = False) -> Iterator[Tile]:
    """Yields tiles of two or more instructions in straight-line code. fused: records that already belong to a tile."""
    registers = [RegisterMask.of(inst) for _, inst in run]
    taken = {at for at, (index, _) in enumerate(run) if index in fused}
    for first in range(len(run)):
        if first in taken or registers[first].kind is None:
            continue
        longest, *others = _chains(registers, first, taken)
        longest = longest[: MOST_SPREAD if row_of(run[first][1]).cd_type == "f64" else WINDOW]
        a = [run[at][1].args["src0"] for at in longest]
        beside = [chain for chain in others if [run[at][1].args["src0"] for at in chain[: len(longest)]] == a]
        steps = list(zip(longest, *beside[: widest(run[first][1], ring) - 1], strict=False))
        if len(steps) * len(steps[0]) > 1:
            taken.update(at for step in steps for at in step)
            yield Tile(tuple(tuple(run[at] for at in step) for step in steps))


def _chains(registers: Sequence[RegisterMask], first: int, taken: Container[int]) -> list[list[int]]:
    """Returns positions of instructions that may all be executed at `first`: a list for each D, that of `first` first."""
    chains: dict[int, list[int]] = {}
    read = written = 0  # by these instructions
    touched = changed = 0  # by the others
    for at in range(first, min(first + WINDOW, len(registers))):
        kind, d, sources, _, _ = other = registers[at]
        apart = kind == registers[first].kind and (d in chains or not d & written)
        if apart and at not in taken and not d & (touched | read) and not sources & (changed | written):
            chains.setdefault(d, []).append(at)
            read, written = read | sources, written | d
            continue
        touched |= other.touched
        changed |= other.written
        if all(d & touched for d in chains):
            break
    return list(chains.values())
