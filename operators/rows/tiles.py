"""Tiles of a kernel of rows, as its emitter needs them."""

from __future__ import annotations

from dataclasses import dataclass


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
