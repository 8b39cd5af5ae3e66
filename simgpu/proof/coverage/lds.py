"""Accesses to LDS: where the words of each work-item are."""

from __future__ import annotations

import numpy as np

from simgpu.hardware.isa.instruction import Instruction
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.pieces import WORD as WORD_BITS
from simgpu.proof.coverage.values import Array
from simgpu.proof.terms import NotModelled

WORD = WORD_BITS // 8  # bytes


def words_of(inst: Instruction, base: Array, pieces: int, size: int) -> list[list[Array]]:
    """Returns where the words of each data operand are in LDS: numbers of pieces, by work-item and piece of a word.

    base: the address of each work-item that accesses LDS. pieces: of a word. size: pieces of LDS. Raises Violation, NotModelled.
    """
    memory = inst.spec.memory
    assert memory is not None
    if memory.bits % WORD_BITS:
        raise NotModelled("an access of this kind")
    scale = memory.stride * memory.bits // 8
    offsets = [scale * int(inst.mods.get(f"offset{at}", 0)) for at in (0, 1)] if scale else [int(inst.mods.get("offset", 0))]
    found = []
    for offset in offsets:
        words = range(memory.bits // WORD_BITS * (1 if scale else memory.count))
        addresses = [base + offset + WORD * word for word in words]
        first = [address // WORD * pieces for address in addresses]
        if any(np.any(address % WORD) or np.any(address < 0) or np.any(address // WORD * pieces >= size) for address in addresses):
            raise Violation("an address outside LDS")
        found.append([each[:, None] + np.arange(pieces) for each in first])
    return found
