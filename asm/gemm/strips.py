"""A tile of C through LDS, strip by strip, so that adjacent lanes store whole rows of the tile (`operators.gemm.stores`).

A strip has one row of atoms of each wave along m. All waves write their sums to it; after a barrier, consecutive work-items read
four adjacent columns each, row after row. If LDS has room for two strips, the next one is written while others are still read.
Rows have a power of two of work-items' rows in a pass; work-items beyond them are idle.
"""

from __future__ import annotations

from collections.abc import Iterator

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.prologue import TilePlace
from simgpu.asm.gemm.store import BATCH, Accumulators, StoreGroup, TileRow
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.stores import GROUP, ROW_PAD, strip_bytes
from simgpu.operators.resources import WIDEST

NOWHERE = 1 << 20  # row of work-items that store nothing: past any tile


class Strips:
    """Sums of lanes that hold `GROUP` adjacent columns of a row of the tile, as `Accumulators` are those of the matrix units."""

    wide, blocks = GROUP, 1

    def __init__(self, k: KernelBuilder, plan: GemmPlan, acc: Accumulators, place: TilePlace) -> None:
        self.k, self.acc, self.columns = k, acc, acc.columns
        rows, columns = acc.rows, acc.columns
        self.block_columns = self.wave_columns = columns.rows
        self.pitch, self.high = columns.rows * WORD + ROW_PAD, plan.waves_m * rows.atom  # bytes of a row, rows of a strip
        self.nbytes = strip_bytes(plan.tiling, rows.atom)
        self.buffers = 2 if 2 * self.nbytes <= plan.resources.lds_bytes else 1
        across = columns.rows // GROUP  # work-items of a row
        self.at_once = min(self.high, 1 << (plan.threads // across).bit_length() - 1)  # rows of all work-items
        self.in_flight = min(BATCH, self.groups)
        self.idle = plan.threads > across * self.at_once
        item = of(k.work_item, plan.threads)
        line, self._part = item // across, item % across
        place_in = line % self.at_once
        self.row_formula = place_in // rows.atom * rows.warp_rows + rows.row_of(0, place_in % rows.atom)
        self.written = k.v.alloc("LDS address of the lane's sums")
        first = of(place.group, rows.groups) * acc.lane_rows
        wave = k.scalar("first row of the wave in a strip", of(place.wave_row, rows.rows) // rows.warp_rows * rows.atom)
        column = columns.row_of(0, of(place.lane_row, columns.atom))
        k.set(self.written, (first + wave) * self.pitch + (column + place.wave_column) * WORD)
        k.s.free(wave)
        self.read = k.vector("LDS address of the work-item's columns", place_in * self.pitch + self._part * WIDEST)
        if self.idle:
            self.active = k.s.alloc("work-items with a row", 2)
            count = k.scalar("number of work-items with a row", across * self.at_once)
            k.v_cmp_gt_u32(self.active, count, k.work_item)
            k.s.free(count)

    def places(self, row: Reg, column: Reg) -> None:
        """Emits the work-item's first row of the tile and its column."""
        k = self.k
        k.set(column, self._part * GROUP)
        k.set(row, self.row_formula)
        if self.idle:
            nowhere = k.vector("no row", NOWHERE)
            k.v_cndmask_b32(row, nowhere, row, self.active)
            k.v.free(nowhere)

    @property
    def groups(self) -> int:
        """Groups of a lane in a strip."""
        return self.high // self.at_once

    def column(self, number: int) -> int:
        """Returns the distance of a column of the lane from its first."""
        return number

    def tile_rows(self) -> Iterator[TileRow]:
        """Yields the lane's rows, strip by strip."""
        rows = self.acc.rows
        for mt in range(rows.atoms):
            for number in range(self.groups):
                at = number * self.at_once
                row = at // rows.atom * rows.warp_rows + rows.row_of(0, at % rows.atom) + rows.row_of(mt, 0)
                yield TileRow(mt, number, row)

    def passes(self, clipped: bool, data: Reg) -> Iterator[list[TileRow]]:
        """Emits each strip's way to LDS, and yields its rows. Where stores are clipped, those of idle work-items are, too.

        data: registers of a group, which are free between strips.
        """
        every = list(self.tile_rows())
        for mt in range(self.acc.rows.atoms):
            self._write(mt, data[0 : self.columns.wide])
            if not clipped:
                self.begin()
            yield [row for row in every if row.mt == mt]

    def begin(self) -> None:
        """Disables work-items without a row, for loads of vectors."""
        if self.idle:
            self.k.s_mov_b64("exec", self.active, note="work-items with a row")

    def _write(self, mt: int, data: Reg) -> None:
        """Emits the writes of all waves' atoms in row mt, and the barriers before and after them. Enables all lanes."""
        k, acc, columns = self.k, self.acc, self.acc.columns
        if self.idle:
            k.s_mov_b64("exec", -1)
        if mt == 0 or self.buffers == 1:
            k.s_barrier(note="LDS is free for a strip of C")
        for block in range(acc.blocks):
            for r in range(acc.per_atom):
                row = acc.lane_rows * acc.rows.groups * (r // acc.lane_rows) + r % acc.lane_rows
                for w in range(columns.wide):
                    k.move(data[w], acc.element(mt, block * columns.wide + w, r))
                offset = self._buffer(mt) + row * self.pitch + block * acc.block_columns * WORD
                k.ds_write(self.written, data, offset=offset, note=f"strip {mt}, block {block}, element {r}")
        k.s_barrier(note=f"strip {mt} is in LDS")

    def start(self, group: StoreGroup) -> None:
        """Emits the read of a group's sums."""
        offset = self._buffer(group.mt) + group.r * self.at_once * self.pitch
        self.k.ds_read(group.data[0:GROUP], self.read, offset=offset, note=f"row {group.row} of the tile")

    def take(self, k: KernelBuilder, group: StoreGroup, elements: list[Reg]) -> None:
        """Emits nothing: the sums are in the group's registers."""

    def _buffer(self, mt: int) -> int:
        return mt % self.buffers * self.nbytes
