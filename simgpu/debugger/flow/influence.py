"""Finds the source bits that an instruction's result depends on, by executing it again with other bits.

The only definition of the result is the handler's computation, modifiers and modes included. A source's byte (a scalar's bit)
counts if one of a few changes of it, with all other bits as they were, changes the result bits in question.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from simgpu.engine.lowering.handlers import handler_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import compiler
from simgpu.machine.layout import LANES
from simgpu.machine.mode import Mode
from simgpu.matrix.one_mfma import return_handler

SCC = layout.SCC // 4  # as a scalar register: SCC is stored after the file
PATTERNS = (0xFFFFFFFF, 0x3C6EF372, 0x80000001)  # bits that are flipped in a word, and in a byte
BYTE_PATTERNS = (0xFF, 0x80, 0x31, 0x01)
Word = tuple[str, int, int]  # file, register, lane; scalars have lane 0


def place_of(word: Word) -> int:
    """Returns the offset in bytes of a register's word in a wave's state."""
    file, number, lane = word
    return 4 * number if file == "s" else layout.vector_register(file, number) + 4 * lane


class Alone:
    """Instruction that neither jumps nor touches memory, executed on a separate wave."""

    def __init__(self, inst: Instruction, mode: Mode) -> None:
        address, slots = handler_of(inst, mode, compiler())
        self._context = aligned_bytes(layout.CTX_BYTES)
        self._records = aligned_bytes(layout.RECORD * (1 + inst.size // 4)).view(np.uint32).reshape(-1, layout.SLOTS)
        self._records[0, 2 : 2 + len(slots)] = slots
        self._records[-1, :2].view(np.uint64)[0] = return_handler(compiler())
        self._wave = aligned_bytes(layout.WAVE_BYTES)
        self._wave[layout.CONTEXT : layout.CONTEXT + 8].view(np.uint64)[0] = self._context.ctypes.data
        self._words = self._wave.view(np.uint32)
        self._call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
        self._at = self._wave.ctypes.data, self._records.ctypes.data

    def load(self, scalars: np.ndarray, rows: Iterable[tuple[int, np.ndarray]]) -> None:
        """Loads the wave's scalar file with SCC, and rows by their offset."""
        self._words[: len(scalars)] = scalars
        self._rows = list(rows)
        self._scalars = scalars
        for offset, row in self._rows:
            self._words[offset // 4 : offset // 4 + LANES] = row

    def _result(self, wanted: int, mask: int, changed: int, bits: int, restored: Sequence[int]) -> int:
        """Returns the result's bits with some bits of a source flipped, and restores the wave.

        wanted, changed, restored: indices of dwords in the wave's state.
        """
        words = self._words
        words[changed] ^= np.uint32(bits)
        self._call(*self._at)
        result = int(words[wanted]) & mask
        for at in restored:
            words[at : at + LANES] = self._held[at]
        words[: len(self._scalars)] = self._scalars
        return result

    def sources(self, result: Word, mask: int, candidates: Sequence[Word], written: Sequence[int]) -> list[tuple[Word, int]]:
        """Returns the candidates that the result's bits depend on, and the bits of each: all 32 if only changes of several bytes
        (a scalar's bits) have an effect.

        written: offsets of rows that the instruction writes, which must be restored, as the loaded ones are.
        """
        restored = sorted({offset // 4 for offset in written} | {offset // 4 for offset, _ in self._rows})
        self._held = {at: self._words[at : at + LANES].copy() for at in restored}
        wanted = place_of(result) // 4
        usual = self._result(wanted, mask, wanted, 0, restored)
        found: list[tuple[Word, int]] = []
        for word in candidates:
            at = place_of(word) // 4

            def differs(bits: int, at: int = at) -> bool:
                return self._result(wanted, mask, at, bits, restored) != usual

            if word[0] == "s":  # bit by bit: it may be a mask of lanes
                part = sum(1 << bit for bit in range(32) if differs(1 << bit))
            else:
                part = sum(0xFF << 8 * byte for byte in range(4) if any(differs(bits << 8 * byte) for bits in BYTE_PATTERNS))
            if part or any(map(differs, PATTERNS)):
                found.append((word, part or 0xFFFFFFFF))
        return found
