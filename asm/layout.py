"""Where an operand tile lies in LDS, and which lane moves what: closed forms, no tables.

Letters: an operand tile has `rows` (m of A, n of B) by k elements of 4 bytes; i and g are a lane's
place in the matrix instruction (lane % atom, lane // atom), G its lane groups. Consecutive atoms
share the reduction order k = G·kw·S + kw·g + s, so that one read of kw elements feeds kw atoms.

Two layouts, by what is contiguous in memory, so that staging never transposes:

* k contiguous: LDS is [S][row][g ^ swizzle(row)][s]; a lane reads kw k of one row.
* rows contiguous: LDS is [k][row]; a lane reads `wide` rows of one k, which feed `wide` atoms: atom
  t = wide·T + w has row wide·(atom·T + i) + w. B always counts rows so: a lane's C columns are
  then neighbours and leave in one wide store.

Bank conflicts (32 banks of 4 bytes; phases of b128 reads on gfx908 to gfx942: lanes {0-3,20-23},
{4-7,16-19}, {8-11,28-31}, {12-15,24-27} and the same plus 32; assumed for b64: 16 consecutive
lanes, for b32: 32): reads are free of them (test_asm_layout goes through every phase), but for an
odd number of atoms above one beside each other in the rows-contiguous layout. Writes are
consecutive and free too.

Functions take ints or integer arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.errors import ResourceError

Index = Any
WORD = 4  # bytes of an element
BANK_WORDS = 32  # of one conflict-free line, gfx908 to gfx942
HALF_LINE = 16
# (G, kw): (step, count) of swizzle(row) = step · (row // rows a line) % count.
SWIZZLES = {(4, 4): (2, 2), (4, 2): (1, 4), (4, 1): (2, 2), (2, 4): (1, 2), (2, 2): (1, 2), (2, 1): (1, 2)}


def widest(count: int, limit: int = 4) -> int:
    """The largest of 4, 2, 1 that divides `count` and is at most `limit`."""
    return next(width for width in (4, 2, 1) if width <= limit and count % width == 0)


@dataclass(frozen=True)
class TileLayout:
    """One operand's tile of `rows` x `k` elements, staged by `threads` work-items.

    warp_rows: of one wave; atom: rows of a matrix instruction; groups: G; kw: consecutive k of a
    lane; k_contiguous: k is the dimension that is contiguous in memory; interleave: whether atoms
    count rows interleaved even where k is contiguous (B). Raises ResourceError if the tile does
    not divide among the work-items.
    """

    name: str
    rows: int
    k: int
    warp_rows: int
    atom: int
    groups: int
    kw: int
    threads: int
    k_contiguous: bool
    interleave: bool

    def __post_init__(self) -> None:
        if self.rows * self.k % self.threads:
            raise ResourceError(
                f"a {self.rows}x{self.k} tile of {self.name} does not divide among "
                f"{self.threads} work-items: use tiles that are multiples of them"
            )

    @property
    def wide(self) -> int:
        """Atoms whose rows interleave."""
        if self.k_contiguous and not self.interleave:
            return 1
        return widest(self.warp_rows // self.atom)

    @property
    def atoms(self) -> int:
        """Matrix instructions beside each other in a wave's rows."""
        return self.warp_rows // self.atom

    @property
    def span(self) -> int:
        """k that one read per lane covers."""
        return self.groups * self.kw

    @property
    def spans(self) -> int:
        return self.k // self.span

    @property
    def vec(self) -> int:
        """Elements of one global load and LDS write of a work-item."""
        share = self.rows * self.k // self.threads
        return widest(share, self.kw if self.k_contiguous else widest(self.rows))

    @property
    def loads(self) -> int:
        """Global loads of a work-item per tile."""
        return self.rows * self.k // self.threads // self.vec

    @property
    def bytes(self) -> int:
        return self.rows * self.k * WORD

    @property
    def rows_a_line(self) -> int:
        return BANK_WORDS // self.span

    @property
    def swaps_halves(self) -> bool:
        """Rows contiguous, one atom a wave: odd g has its 16 words in the line's other half."""
        single = self.wide == 1 and self.atoms == 1 and self.groups == 4
        return not self.k_contiguous and single and self.rows % BANK_WORDS == 0

    def swizzle(self, row: Index) -> Index:
        step, count = SWIZZLES[self.groups, self.kw]
        return step * (row // self.rows_a_line % count)

    def row_of(self, t: Index, i: Index) -> Index:
        """Row of the tile, from the wave's first, that row i of atom t holds."""
        block, w = t // self.wide, t % self.wide
        return self.wide * (self.atom * block + i) + w

    def slot_of(self, row: Index) -> Index:
        """Place among the LDS rows, k contiguous: atom after atom; the inverse of `row_of`."""
        block, rest = row // (self.wide * self.atom), row % (self.wide * self.atom)
        return block * self.wide * self.atom + rest % self.wide * self.atom + rest // self.wide

    def word(self, row: Index, k: Index) -> Index:
        """LDS word of an element, from the tile's first."""
        if not self.k_contiguous:
            half = HALF_LINE * (k // self.kw % 2) if self.swaps_halves else 0
            return k * self.rows + (row ^ half)
        slot = self.slot_of(row)
        chunk = k // self.kw % self.groups ^ self.swizzle(slot)
        return (k // self.span * self.rows + slot) * self.span + chunk * self.kw + k % self.kw

    def element(self, word: Index) -> tuple[Index, Index]:
        """(row, k) at an LDS word: the inverse of `word`."""
        if not self.k_contiguous:
            k, place = word // self.rows, word % self.rows
            half = HALF_LINE * (k // self.kw % 2) if self.swaps_halves else 0
            return place ^ half, k
        line, s = word // self.kw, word % self.kw
        slots, chunk = line // self.groups, line % self.groups
        slot, block = slots % self.rows, slots // self.rows
        row = self.row_of(slot // self.atom, slot % self.atom)
        return row, block * self.span + (chunk ^ self.swizzle(slot)) * self.kw + s

    def staged(self, thread: Index, load: int) -> tuple[Index, Index]:
        """(row, k) of the first element that a work-item moves in its load number `load`."""
        return self.element((thread + load * self.threads) * self.vec)

    def offset_from_first(self, load: int) -> tuple[int, int] | None:
        """(rows, k) from load 0 to `load`, if it is the same for every work-item."""
        threads = np.arange(self.threads)
        first, other = self.staged(threads, 0), self.staged(threads, load)
        rows, k = np.unique(other[0] - first[0]), np.unique(other[1] - first[1])
        return (int(rows[0]), int(k[0])) if len(rows) == len(k) == 1 else None
