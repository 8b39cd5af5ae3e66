"""Rows of a step of one array: loaded by blocks of rows by columns, written to LDS as rows and as columns, read as operands.

A lane's block has 4 rows of 4 or 2 columns. Four halves of a column make two registers. In LDS, a column's quads of rows are in
the order g, a: quad g of atom a, for which S has the elements in lane group g. So one read brings a lane its rows of all atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simgpu.asm.attention.frame import advance_within
from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.buffers import clip
from simgpu.asm.parts.lanes import gather_column
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention_backward.plan import FRAGMENTS
from simgpu.operators.attention_backward.tiles import PADDED, UNIT_ROWS, WAVES, MovedTile

QUAD = 4  # rows of a lane in an atom
HALF = 2  # bytes of an element
READ = 16  # bytes of a lane's read of a row
Read = Callable[[Reg], None]


class TileMoves:
    """Moves of one array's tiles. `start` emits a lane's addresses."""

    def __init__(self, k: KernelBuilder, tile: MovedTile, staging: Reg, base: int) -> None:
        self.k, self.tile, self.staging, self.base = k, tile, staging, base
        self.buffer = k.s.alloc(f"{tile.name} buffer", 4)
        self.offsets = [k.v.alloc(f"{tile.name} offset") for _ in range(tile.loads)]
        self.rows_to = [k.v.alloc(f"{tile.name} rows to LDS") for _ in range(tile.loads)]
        self.columns_to = [k.v.alloc(f"{tile.name} columns to LDS") for _ in range(tile.loads if tile.columns else 0)]
        self.row_from = k.v.alloc(f"{tile.name} row from LDS")
        self.column_from = k.v.alloc(f"{tile.name} column from LDS") if tile.columns else None
        self.partial = tile.units % (WAVES * WAVEFRONT) != 0
        self.inside = k.s.alloc(f"{tile.name} lanes with a block", 2) if self.partial else None

    def start(self, row: Reg, group: Reg, scratch: Reg) -> None:
        """Emits the addresses. row, group: of the lane in an atom. scratch: four VGPRs."""
        k, tile = self.k, self.tile
        across = tile.padded // tile.unit_columns
        quad, column = scratch[0], scratch[1]
        with k.lend(scratch[2:4]):
            for number in range(tile.loads):
                unit = of(k.work_item, WAVES * WAVEFRONT) + number * WAVES * WAVEFRONT
                places = unit // across, unit % across * tile.unit_columns
                k.assign((quad, column), places, ("quad of rows", "first column"))
                self._place(number, of(quad), of(column))
        if self.inside is not None:
            last = tile.units - (tile.loads - 1) * WAVES * WAVEFRONT
            k.v_cmp_gt_u32("vcc", last, k.work_item)
            k.s_mov_b64(self.inside, "vcc")
        k.set(self.row_from, of(row) * tile.row_bytes + of(group) * READ + self.base)
        if self.column_from is not None:
            place = of(row) * tile.column_bytes + of(group) * (tile.rows // 2)
            k.set(self.column_from, place + (self.base + tile.rows_size))

    def _place(self, number: int, quad: Formula, column: Formula) -> None:
        """Emits a block's offset in memory and places in LDS. quad: of its rows; column: its first."""
        k, tile, offset = self.k, self.tile, self.offsets[number]
        k.set(offset, quad * (UNIT_ROWS * tile.width * HALF) + column * HALF)
        for end, place in ((tile.rows // UNIT_ROWS, quad), (tile.width, column)):
            clip(k, offset, offset, end, place, note="no row or no column: reads 0")
        k.set(self.rows_to[number], quad * (UNIT_ROWS * tile.row_bytes) + column * HALF + self.base)
        if tile.columns:
            place = column * tile.column_bytes + quad % 4 * (tile.rows // 2) + quad // 4 * (QUAD * HALF)
            k.set(self.columns_to[number], place + (self.base + tile.rows_size))

    # -- a step --------------------------------------------------------------------------------

    def _words(self, number: int, row: int) -> Reg:
        return self.staging.group(number * UNIT_ROWS + row, self.tile.unit_columns // 2)

    def load(self) -> None:
        """Emits the loads of a step at the buffer's beginning, and moves that to the next step."""
        k, tile = self.k, self.tile
        for number in range(tile.loads):
            for row in range(UNIT_ROWS):
                place, note = row * tile.width * HALF, f"{tile.name}: block {number}, row {row}"
                k.buffer_load(self._words(number, row), self.offsets[number], self.buffer, 0, offset=place, note=note)
        advance_within(k, self.buffer, tile.rows * tile.width * HALF)

    def store(self, halves: tuple[Reg, ...], target: Reg) -> None:
        """Emits the writes to LDS. halves: selectors of low and high halves. target: two VGPRs."""
        k, tile = self.k, self.tile
        for number in range(tile.loads):
            limited = self.inside is not None and number == tile.loads - 1
            if limited:
                k.s_mov_b64("exec", self.inside)
            for row in range(UNIT_ROWS):
                words = self._words(number, row)
                k.ds_write(self.rows_to[number], words, offset=row * tile.row_bytes,
                           note=f"{tile.name}: block {number}, row {row} to LDS")  # fmt: skip
            for column in range(tile.unit_columns if tile.columns else 0):
                gather_column(k, target, [self._words(number, row) for row in range(UNIT_ROWS)], column, halves)
                k.ds_write_b64(self.columns_to[number], target, offset=column * tile.column_bytes,
                               note=f"{tile.name}: block {number}, column {column} to LDS")  # fmt: skip
            if limited:
                k.s_mov_b64("exec", -1)

    # -- operands ------------------------------------------------------------------------------

    def row_reads(self, atoms: range) -> Iterator[Callable[[Reg], None]]:
        """Yields reads of operands with rows, 16 bytes a lane: of columns 32n + 8g .. of row 16a + i, for each n, then a."""
        k, tile = self.k, self.tile
        for span in range(tile.padded // PADDED):
            for atom in atoms:
                offset = atom * ATOM * tile.row_bytes + span * PADDED * HALF
                yield lambda target, offset=offset: k.ds_read_b128(  # type: ignore[misc]
                    target, self.row_from, offset=offset, note=f"{tile.name}: rows as an operand"
                )

    def column_reads(self, atoms: range) -> Iterator[Callable[[Reg], None]]:
        """Yields reads of operands with columns: of the lane's rows of these atoms in column 16c + i, for each c."""
        k, tile, words = self.k, self.tile, 2 * len(atoms)
        assert self.column_from is not None
        for column in range(-(-tile.width // ATOM)):
            offset = column * ATOM * tile.column_bytes + atoms[0] * QUAD * HALF
            yield lambda target, offset=offset, place=self.column_from: k.ds_read(  # type: ignore[misc]
                target[:words], place, offset=offset, note=f"{tile.name}: columns as an operand"
            )


class Reads:
    """A step's reads into a ring of registers for FRAGMENTS operands. `take` and `refill` are called in turn, once for each.

    With `cross`, the ring goes on with the next step: after the last read of a step, there is a barrier, then `cross`, which
    emits the next step's addresses. The first reads are then emitted here, before the loop. Without it, each step begins with
    them.
    """

    def __init__(self, k: KernelBuilder, reads: Sequence[Read], ring: Reg, cross: Callable[[], None] | None) -> None:
        self.k, self.ring, self.cross, self.taken = k, ring, cross, 0
        # A place that no read uses ends the step, so that each step's reads begin at the ring's beginning.
        self.reads: list[Read | None] = [*reads, *[None] * (-len(reads) % FRAGMENTS)]
        if cross:
            self._first()

    @property
    def crosses(self) -> bool:
        """True if the ring goes on with the next step."""
        return self.cross is not None

    def _first(self) -> None:
        for number in range(FRAGMENTS):
            self._emit(number)

    def _emit(self, number: int) -> None:
        read = self.reads[number]
        if read is not None:
            read(self._place(number))

    def _place(self, number: int) -> Reg:
        return self.ring.group(number % FRAGMENTS, 4)

    def take(self) -> Reg:
        """Returns the next operand's registers."""
        if self.taken == 0 and self.cross is None:
            self._first()
        return self._place(self.taken)

    def refill(self) -> None:
        """Emits the read that reuses the registers of the operand that `take` returned."""
        self._ahead()
        while self.taken and self.reads[self.taken] is None:
            self._ahead()

    def _ahead(self) -> None:
        ahead = self.taken + FRAGMENTS
        self.taken = (self.taken + 1) % len(self.reads)
        if ahead == len(self.reads) and self.cross is not None:
            self.k.s_barrier(note="all waves have the step's operands; the next step's rows are in LDS")
            self.cross()
        if ahead < len(self.reads) or self.cross is not None:
            self._emit(ahead % len(self.reads))
