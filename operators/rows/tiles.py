"""Tiles of a kernel of rows, as its emitter needs them; the base of plans of rows, and their common limits."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.operators.resources import Derivation

LOAD_BYTES = 16  # the widest load of a lane
WAVES = 4  # waves of a block whose waves have rows of their own
IN_FLIGHT = (1, 2, 4)  # numbers of loads of short rows, or of rows, that a wave may have in flight
ROW_WAVES = (1, 4, 8)  # numbers of waves that may keep a row: a CU has 8 at two waves per SIMD
GRANULE = 8  # chunks: a wave's part of a row is a multiple of it, so that it begins with a cache line
MOST_SPAN = 1 << 30  # limit for the rows of a wave, so that an offset outside a buffer stays outside for the next rows


class RowDerivation(Derivation):
    """Base of the plans of rows: a block has rows for each wave, or one row for its waves.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> plan = RowTree(RmsNorm(rows=4096, n=100), "mi300x").plan
    >>> plan.rows_load, plan.tile_rows
    (2, 8)
    """

    lanes_row: int  # lanes that share a row
    waves_row: int  # waves that share a row, or its part
    in_flight: int  # loads of short rows, or rows, that a wave has in flight

    @property
    def rows_load(self) -> int:
        """Rows in a load of a wave."""
        return self.descriptor.wavefront_size // self.lanes_row

    @property
    def rows_wave(self) -> int:
        """Rows of a wave."""
        return self.in_flight * self.rows_load

    @property
    def tile_rows(self) -> int:
        """Rows of a block."""
        return self.rows_wave * (WAVES if self.waves_row == 1 else 1)

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return max(WAVES, self.waves_row)


@dataclass(frozen=True)
class RowTiles:
    """Sizes of the tiles of a kernel of rows, from the loops and axes of its tree. A chunk is what a lane loads at a time.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> RowTree(RmsNorm(rows=4096, n=1000), "mi300x").row_tiles.chunks
    250
    """

    columns: int  # elements of a row
    rows: int  # rows of a block
    rows_load: int  # rows of one load of a wave
    chunk: int  # elements of a chunk, at most a row's
    part: int  # chunks of a wave's part of a row
    parts: int  # blocks that share a row
    waves_row: int  # waves of a block that share a row, or its part
    loads: int  # chunks of a row that a lane has in registers at a time

    @property
    def chunks(self) -> int:
        """Chunks of a row. The last one ends with the row, and may overlap the one before."""
        return -(-self.columns // self.chunk)
