"""States (m, delta) of rows: merges of lanes, of a row's waves through LDS, of a split row's parts through memory."""

from __future__ import annotations

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import WAVEFRONT
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.lanes import lane_number
from simgpu.asm.rows.arithmetic import RowArithmetic
from simgpu.asm.rows.frame import RowFrame
from simgpu.hardware.isa.instruction import Reg


class RowState:
    """State of a row: the maximum m of scores, and delta, the sum of exp(score - m). First a lane's, then after merges the row's.

    running: True if lanes keep an m of their own to the row's end.
    """

    def __init__(self, frame: RowFrame, arithmetic: RowArithmetic, running: bool) -> None:
        self.frame, self.arithmetic, self.running = frame, arithmetic, running
        self.k, self.lanes, k, words = frame.k, frame.lanes, frame.k, arithmetic.words
        self.bytes = 2 * words * WORD
        self.registers = k.v.alloc("m, delta", 2 * words)
        self.m, self.delta = self.registers.group(0, words), self.registers.group(1, words)
        self.kept = arithmetic.temporary(2)

    def empty(self) -> None:
        """Emits the empty state."""
        self.arithmetic.floor(self.m)
        self.arithmetic.move(self.delta, 0)

    def keep(self) -> None:
        """Saves m before it changes."""
        self.arithmetic.move(self.kept, self.m)

    def rescale(self) -> None:
        """Rescales delta from the m that `keep` saved to m. Leaves their exponential where m was saved."""
        self.arithmetic.exp((self.kept,), self.m)
        self.arithmetic.multiply(self.delta, self.kept, self.delta)

    def reduce_maximum(self) -> None:
        """Emits m = the largest of the row's lanes' m."""
        self._reduce_maximum(self.lanes)

    def _reduce_maximum(self, lanes: int) -> None:
        self.arithmetic.reduce("max", self.m, lanes, "m")

    def _reduce_sum(self, lanes: int) -> None:
        self.arithmetic.reduce("add", self.delta, lanes, "delta")

    def merge_lanes(self) -> None:
        """Merges the states of the lanes that share the row in a wave."""
        self.k.comment(f"the states of {self.lanes} lanes merge")
        if self.running:
            self._merge(self.lanes)
        else:
            self._reduce_sum(self.lanes)

    def _merge(self, lanes: int) -> None:
        """Merges the states of each group of lanes."""
        self.keep()
        self._reduce_maximum(lanes)
        self.rescale()
        self._reduce_sum(lanes)

    def merge_waves(self) -> None:
        """Merges the states of the row's waves through LDS. Leaves exp(m of the wave - m) where `keep` saves."""
        k, arithmetic, words, kept, waves = self.k, self.arithmetic, self.arithmetic.words, self.kept, self.frame.tiles.waves_row
        address, own = arithmetic.address, k.s.alloc("m of the wave", words)
        k.comment(f"the states of the row's {waves} waves merge")
        for word in range(words):
            k.v_readfirstlane_b32(own[word], self.m[word])
        region = self.frame.share(self.registers, address, "m, delta")
        for target, part in ((self.m, 0), (self.delta, 1)):
            k.ds_read(target, address, offset=region.offset + part * WORD * words)
        self._merge(waves)
        arithmetic.move(kept, own)
        k.s.free(own)
        arithmetic.exp((kept,), self.m)

    def own_share(self) -> None:
        """Makes delta, after `merge_waves` and its inversion, relative to the wave's own m, as its elements are."""
        self.arithmetic.multiply(self.delta, self.kept, self.delta)

    # -- parts of a split row ------------------------------------------------------------------

    def leave(self, states: Reg) -> None:
        """Stores the part's state. states: the buffer of the row's."""
        k, address = self.k, self.arithmetic.address
        k.set(address, of(k.group_y) * self.bytes)
        k.s_mov_b64("exec", 1, note="one lane")
        k.buffer_store(self.registers, address, states, 0, offen=True, note="m, delta")

    def merge_parts(self, states: Reg, held: Reg) -> None:
        """Merges the states of all parts of the row, 64 at a time, a lane each. Lanes without a part count nothing.

        states: the buffer of the row's. held: VGPRs for m of a lane's parts.
        """
        k, arithmetic, words, parts = self.k, self.arithmetic, self.arithmetic.words, self.frame.tiles.parts
        address, delta = arithmetic.address, self.kept
        maxima = [held.group(i, words) for i in range(-(-parts // WAVEFRONT))]
        self.empty()
        lane_number(k, address)
        k.set(address, of(address) * self.bytes)
        for i, m in enumerate(maxima):
            k.buffer_load(m, address, states, 0, offen=True, note="m of a part")
            if i == len(maxima) - 1 and parts % WAVEFRONT:
                arithmetic.floor(delta)
                k.v_cmp_gt_u32("vcc", parts * self.bytes, address)
                arithmetic.select(m, delta)
            k.v_add_u32(address, WAVEFRONT * self.bytes, address)
        arithmetic.maximum(self.m, maxima)
        self.reduce_maximum()
        for m in reversed(maxima):
            k.v_subrev_u32(address, WAVEFRONT * self.bytes, address)
            k.buffer_load(delta, address, states, 0, offen=True, offset=WORD * words, note="delta")
            arithmetic.exp((m,), self.m)
            arithmetic.multiply(m, delta, m)
            arithmetic.add(self.delta, m)
        self._reduce_sum(self.lanes)
