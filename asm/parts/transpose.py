"""Transposition in registers: blocks of v rows by u k, loaded with rows contiguous, become v pieces of u consecutive k."""

from __future__ import annotations

from collections.abc import Callable

from simgpu.asm.builder.formula import log2
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.lanes import HIGH_HALVES, LOW_HALVES
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayout
from simgpu.operators.gemm.loads import ROW_LANES

# v_perm_b32 D, S0, S1, selector: byte numbers 0..3 are S1's, 4..7 are S0's (ISA guides, V_PERM_B32).
LOW_BYTES, HIGH_BYTES = 0x05010400, 0x07030602


class Transposition:
    """Emits the writes of transposed staging units; see `TileLayout` for v, u and the places.

    16-bit types need one v_perm_b32 per register, 8-bit types two; 32-bit types are only moved. An LDS write reads its data when
    it is issued, so the registers of a piece can be reused at once. If lanes of odd atoms write each two pieces in reverse order
    (`TileLayout.pairs`), the selectors of halves differ by lane.
    """

    def __init__(self, k: KernelBuilder, layout: TileLayout, staged: Reg) -> None:
        self.k, self.layout, self.staged = k, layout, staged
        self.selectors: dict[int, Reg] = {}
        wanted = {1: (), 2: (LOW_HALVES, HIGH_HALVES), 4: (LOW_HALVES, HIGH_HALVES, LOW_BYTES, HIGH_BYTES)}
        for value in wanted[layout.pack]:
            self.selectors[value] = k.scalar(f"{layout.name} selector", value)
        for value in (LOW_HALVES, HIGH_HALVES) if layout.pairs else ():
            self._select_by_lane(value)

    def _select_by_lane(self, value: int) -> None:
        """Makes a selector of halves a VGPR, in which lanes of odd atoms select the other half."""
        k, uniform = self.k, self.selectors[value]
        selector = self.selectors[value] = k.v.alloc(f"{self.layout.name} selector")
        k.v_bfe_i32(selector, k.work_item, log2(ROW_LANES // 2), 1, note="all bits in lanes of odd atoms")
        k.v_and_b32(selector, LOW_HALVES ^ HIGH_HALVES, selector)
        k.v_xor_b32(selector, uniform, selector)
        k.s.free(uniform)

    def writes(self, address: Reg, base: int) -> list[Callable[[], None]]:
        """Returns one call for each LDS write. `base` is added to every offset."""
        moves: list[Callable[[], None]] = []
        for load in range(self.layout.loads):
            moves += self._unit(load, address, base)
        return moves

    def _unit(self, load: int, address: Reg, base: int) -> list[Callable[[], None]]:
        layout = self.layout
        across, along = layout.vec * layout.element // WORD, max(1, layout.depth * layout.element // WORD)
        first = load * layout.unit_words
        # words[k][w]: register with rows pack·w.. of k. Bytes are interleaved in place before the first write.
        words = [[self.staged[first + j * across + w] for w in range(across)] for j in range(layout.depth)]

        spares: list[Reg] = []

        def write(row: int) -> None:
            if row == 0 and layout.pack == 4:
                spares.append(self._interleave_bytes(words))
            self._write(words, load, row, along, address, base)
            if row == layout.vec - 1:
                self.k.v.free(*spares)

        return [lambda row=row: write(row) for row in range(layout.vec)]  # type: ignore[misc]

    def _perm(self, target: Reg, high: Reg, low: Reg, selector: int) -> None:
        self.k.v_perm_b32(target, high, low, self.selectors[selector])

    def _interleave_bytes(self, words: list[list[Reg]]) -> Reg:
        """Interleaves bytes of pairs of k: (a, b) to bytes a0 b0 a1 b1 and a2 b2 a3 b3.

        Each pair's result uses the register that the previous pair freed. Returns the newly allocated register, which holds a
        word until the unit is written.
        """
        spare = first_spare = self.k.v.alloc("transposed bytes")
        for j in range(0, len(words), 2):
            for w in range(len(words[0])):
                a, b = words[j][w], words[j + 1][w]
                self._perm(spare, b, a, LOW_BYTES)
                self._perm(b, b, a, HIGH_BYTES)
                words[j][w], words[j + 1][w], spare = spare, b, a
        return first_spare

    def _write(self, words: list[list[Reg]], load: int, row: int, along: int, address: Reg, base: int) -> None:
        k, layout = self.k, self.layout
        xor, plus = layout.write_step(load, row)
        w, sub = divmod(row, layout.pack)
        data = words[0][w] if along == 1 and layout.pack == 1 else k.v.alloc("transposed", along)
        for q in range(along):
            if layout.pack == 2:
                self._perm(data[q], words[2 * q + 1][w], words[2 * q][w], HIGH_HALVES if sub else LOW_HALVES)
            elif layout.pack == 4:
                half = sub // 2
                self._perm(data[q], words[4 * q + 2 + half][w], words[4 * q + half][w], HIGH_HALVES if sub % 2 else LOW_HALVES)
            elif along > 1:
                k.v_mov_b32(data[q], words[q][w])
        target = address
        if xor:
            target = k.v.alloc("LDS write address")
            k.v_xor_b32(target, xor, address)
        k.ds_write(target, data, offset=base + plus, note=f"{layout.name} tile to LDS, unit {load}, row {row}")
        if xor:
            k.v.free(target)
        if data is not words[0][w]:
            k.v.free(data)
