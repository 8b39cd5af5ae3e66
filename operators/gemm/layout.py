"""Layout of an operand tile in LDS, and which lane moves what: closed forms, no tables.

Letters: an operand tile has `rows` (m of A, n of B) by k elements of e bytes. i and g are a lane's place in the matrix
instruction (lane % atom, lane // atom), G is the number of lane groups. A chunk is the kw words (4 bytes each) of consecutive k
that a lane reads at once, a span the G chunks that one read of all lanes covers. Element x of the chunk of group g in span S has
k = G·chunk·S + chunk·g + x. So one 128-bit read feeds several matrix instructions (f32: four), or two reads feed one (8-bit
operands of 128 k). The sum only requires that A and B use the same order. A staging unit is the block of elements that a
work-item loads and writes together: one load, or v rows by u k if staging transposes.

Elements go from memory to fragments in one of three ways, by which dimension is contiguous and how many k a register holds:

* k contiguous: LDS is [S][slot][g ^ swizzle(slot)][x]; slot is the LDS row. A lane reads one chunk of one row. Staging copies.
  If a tile has two spans of 64 bytes, they form one row of LDS, [slot][(G·S + g) ^ swizzle(slot)][x]. Adjacent lanes then load
  the 128 bytes of a cache line at once; a second load could find the line evicted.
  In a preshuffled matrix, adjacent lanes load 16 bytes each of consecutive rows, which belong to `wide` atoms in turn. The places
  of each atom's chunks are rotated, so that the lanes' writes do not conflict.
  With 6-bit elements a lane's operand is 24 bytes: three reads of 8 bytes from LDS rows of six chunks. The swizzle exchanges
  adjacent chunks in every second group of eight slots.
* rows contiguous, one element a lane and matrix instruction (f32, f64): LDS is [k][row] ("lines"). A lane reads `wide` rows of
  one k, which feed `wide` atoms. Staging copies.
* rows contiguous, several k a lane (16- and 8-bit types, xf32): LDS as for k contiguous. A work-item loads a block of v rows by
  u k, transposes it in registers and writes v pieces of u k.

If rows interleave, row i of atom t = wide·T + w is row wide·(atom·T + i) + w of the tile. If a unit has more rows than `wide`
(16- and 8-bit types in small tiles), i is folded (`slot_of`). B's rows (columns of C) always interleave: a lane's columns of C are
then adjacent and are stored in one wide store. Blocks of v = wide rows go to the same place of `wide` atoms, so that adjacent
lanes write adjacent slots.

Bank conflicts are counted by `simgpu.hardware.timing_rules.lds_banks`; the tests check every read and write. Functions accept
ints, integer arrays, or formulas, whose instructions compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import ResourceError
from simgpu.hardware.matrix_table import FORMATS
from simgpu.operators.cost import minimum
from simgpu.operators.gemm.limits import CACHE_LINE, LINE_ROWS, RING_BYTES, aligned_bytes, padded_rows, power_in
from simgpu.operators.gemm.loads import ROW_LANES, WORD, row_lanes, rows_of_a_load, unit_depth
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import PANEL_ROWS
from simgpu.operators.gemm.tree import BlockGemmNode
from simgpu.operators.resources import DS_REACH, WIDEST

Index = Any
STEP = 96  # bytes of a row in a K step, of 6-bit elements
PAIR = 6 * STEP
EIGHT = 8  # slots after which 16 bytes are skipped, and bytes of a read
BANK_WORDS = 32  # one conflict-free line, gfx908 to gfx942
# (chunks of an LDS row, kw): (step, count) of swizzle(slot) = step · (slot // slots a line) % count.
SWIZZLES = {(8, 4): (1, 8), (4, 4): (1, 4), (4, 2): (1, 4), (4, 1): (2, 2), (2, 4): (1, 2), (2, 2): (1, 2), (2, 1): (1, 2),
            (6, 4): (1, 2)}  # fmt: skip


@dataclass(frozen=True)
class TileLayout:
    """Tile of one operand: `rows` x `k` elements. Raises ResourceError if it does not divide among the work-items."""

    name: str  # A or B
    rows: int  # rows of the tile: m of A, n of B
    k: int  # k of the tile, in elements (MX formats: in bytes)
    warp_rows: int  # rows of one wave
    atom: int  # rows of a matrix instruction
    groups: int  # G
    kw: int  # words of a chunk
    threads: int  # work-items that stage the tile
    k_contiguous: bool  # True if k, and not the rows, is contiguous in memory
    interleave: bool  # True if atoms count rows interleaved even if k is contiguous (B)
    element: int = WORD  # e: bytes of an element
    operand: int = 1  # registers of a lane in one matrix instruction
    most_wide: int = 4  # most atoms that interleave
    reads: int = 1  # spans that a lane holds at once: those of one matrix instruction, or more
    panel: int = 0  # rows of a preshuffled matrix whose WIDEST-byte pieces alternate (`operators.preshuffle`); 0: not preshuffled
    aligned: int = 0  # bytes to multiples of which loads begin (`limits.aligned_bytes`); 0: where a step begins
    beside: bool = False  # True if a lane's operand is 24 bytes of consecutive k (32 elements of 6 bits), read 8 bytes at a time

    def __post_init__(self) -> None:
        whole = self.rows * self.k % self.threads == 0 and self.rows * self.k * self.element >= WORD * self.threads
        if whole and self.transposes:
            spans = self.k // self.span
            blocks = self.rows % (self.vec * ROW_LANES) == 0 == self.k % self.span and spans & (spans - 1) == 0
            whole = blocks and (self.units % self.threads == 0 or self.threads % self.units == 0)
        elif whole and not self.panel:
            whole = self.vec * self.element >= WORD
        if self.bytes > DS_REACH:
            raise ResourceError(
                f"a {self.rows}x{self.k} tile of {self.name} takes {self.bytes} bytes of LDS, an instruction reaches {DS_REACH}: "
                "use smaller tiles"
            )
        if not whole:
            raise ResourceError(
                f"a {self.rows}x{self.k} tile of {self.name} does not divide among "
                f"{self.threads} work-items: use tiles that are multiples of them"
            )

    # -- shape -------------------------------------------------------------------------------

    @property
    def lines(self) -> bool:
        """True if LDS holds lines of rows, one k each, instead of chunks of k."""
        return not self.k_contiguous and self.operand * WORD == self.element

    @property
    def transposes(self) -> bool:
        """True if staging transposes."""
        return not self.k_contiguous and not self.lines

    @property
    def wide(self) -> int:
        """Number of atoms whose rows interleave."""
        if self.k_contiguous and not self.interleave:
            return 1
        return power_in(self.warp_rows // self.atom, self.most_wide)

    @property
    def atoms(self) -> int:
        """Atoms in a wave's rows."""
        return self.warp_rows // self.atom

    @property
    def pack(self) -> int:
        """Elements in a register, at least one."""
        return max(1, WORD // self.element)

    @property
    def chunk(self) -> int:
        """Number of k of one read."""
        return max(1, self.kw * WORD // self.element)

    @property
    def span(self) -> int:
        """Number of k that one read per lane covers."""
        return self.groups * self.chunk

    @property
    def line_spans(self) -> int:
        """Spans of an LDS row: 2 if k is contiguous and two spans are a cache line, else 1."""
        return 2 if self.k_contiguous and 2 * self.span * self.element == CACHE_LINE and self.k % (2 * self.span) == 0 else 1

    @property
    def row_chunks(self) -> int:
        """Chunks of an LDS row."""
        return self.groups * self.operand // self.kw if self.beside else self.groups * self.line_spans

    @property
    def steps(self) -> int:
        """Matrix instructions along k that one group of `reads` spans feeds."""
        return 1 if self.beside else self.reads * self.kw // self.operand

    @property
    def turns(self) -> int:
        """Number of times that a tile fills the fragment registers."""
        return self.k // self.turn_k

    @property
    def turn_k(self) -> int:
        """Number of k in the fragment registers."""
        return self.row_chunks * self.chunk if self.beside else self.span * self.reads

    @property
    def fragment_words(self) -> int:
        """Registers of all fragments of one turn."""
        return self.atoms * self.atom_words

    @property
    def atom_words(self) -> int:
        """Registers of an atom's fragments of one turn."""
        return self.operand if self.beside else self.reads * self.kw

    @property
    def share(self) -> int:
        """Elements that a work-item stages."""
        return self.rows * self.k // self.threads

    @property
    def bytes(self) -> int:
        return self.rows * self.k * self.element

    # -- staging -----------------------------------------------------------------------------

    @property
    def vec(self) -> int:
        """Elements of one global load of a work-item, along the contiguous dimension."""
        if self.transposes:
            return rows_of_a_load(self.rows, self.wide, self.element, self.share, self.kw * WORD)
        if self.aligned:
            return 1
        return power_in(self.share, self.chunk if self.k_contiguous else power_in(self.rows, WIDEST // self.element))

    @property
    def depth(self) -> int:
        """Number of global loads of a staging unit: u, or 1 if staging copies."""
        if not self.transposes:
            return 1
        return unit_depth(self.block_rows * self.k, self.threads, self.vec, self.element, self.chunk)

    @property
    def block_rows(self) -> int:
        """Rows that are assigned to work-items: `rows`, or the next power of two if staging transposes.

        Units of a work-item are then at fixed distances. Work-items with rows past the tile move its last rows again.
        """
        return padded_rows(self.rows) if self.transposes else self.rows

    @property
    def units(self) -> int:
        """Number of staging units in `block_rows` rows."""
        return self.block_rows * self.k // (self.vec * self.depth)

    @property
    def loads(self) -> int:
        """Staging units of a work-item. If there are fewer units than work-items, several work-items move the same unit."""
        return max(1, self.units // self.threads)

    @property
    def unit_words(self) -> int:
        """Registers of one staging unit."""
        return self.vec * self.depth * self.element // WORD

    @property
    def staged_words(self) -> int:
        """Registers of a work-item's elements."""
        return self.loads * self.unit_words

    @property
    def rows_a_line(self) -> int:
        """Slots in one conflict-free line."""
        return 8 if self.beside else BANK_WORDS // (self.row_chunks * self.kw)

    @property
    def swap(self) -> int:
        """Xor mask on the rows of lines that an odd g reads: the rows of one block of `wide` atoms; 0 if nothing moves.

        It is used for lines of which a lane reads at most 8 bytes, so that several g share a phase of the read.
        """
        rows = self.atom * self.wide
        narrow = self.lines and self.wide * self.element <= WIDEST // 2
        return rows if narrow and self.groups == 4 and self.rows % (2 * rows) == 0 else 0

    @property
    def odd_blocks_apart(self) -> bool:
        """True if a wave has blocks that `swap` moves in opposite directions. Odd blocks then need a read address of their own."""
        return self.swap > 0 and self.atoms > self.wide

    def swizzle(self, slot: Index) -> Index:
        """Returns the xor mask on the index of a chunk in its slot."""
        step, count = SWIZZLES[self.row_chunks, self.kw]
        chunks = step * (slot // self.rows_a_line % count) ^ self.atom_xor * (slot // self.atom % self.wide)
        return chunks ^ slot // (self.atom // 2) % 2 if self.quads else chunks

    @property
    def atom_xor(self) -> int:
        """Additional xor mask on chunks for each next atom of `wide`; nonzero only for a preshuffled matrix."""
        return self.row_chunks // self.wide if self.panel and self.wide > 1 else 0

    @property
    def read_turns(self) -> tuple[int, ...]:
        """Xor masks, in chunks, by which a lane's read addresses differ. Each needs an address register."""
        return tuple(sorted({self.read_turn(w, span) for w in range(self.wide) for span in range(self.line_spans)}))

    def read_turn(self, t: int, span: int) -> int:
        """Returns the element of `read_turns` at which a lane reads atom t's chunk of a span."""
        return t % self.wide * self.atom_xor ^ span % self.line_spans * self.groups

    @property
    def pairs(self) -> bool:
        """True if a unit is in one atom and neighbouring lanes in two. Lanes of odd atoms then write pairs in reverse order."""
        return self.fold > 2

    def piece(self, thread: Index, number: int) -> Index:
        """Returns the row, within a transposed unit, that a work-item writes with its LDS write `number` of the unit."""
        return number ^ thread // (ROW_LANES // 2) % 2 if self.pairs else number

    @property
    def fold(self) -> int:
        """Rows of a transposed unit that belong to one atom. `row_of` spreads them, so that adjacent lanes write adjacent slots."""
        return self.vec // self.wide if self.transposes else 1

    @property
    def quads(self) -> bool:
        """True if four lanes have adjacent groups of `wide` columns of C, which they store together, although slots are folded."""
        return self.interleave and self.fold == 2 and self.wide > 1

    def lane_slot(self, i: Index) -> Index:
        """Returns the slot, of an atom's, that lane i reads: slot i, or of group 0 to 3, 8 to 11, 4 to 7, 12 to 15 (`quads`)."""
        return i % 2 * (self.atom // 2) + i // 4 % 2 * 4 + i // 8 * 2 + i // 2 % 2 if self.quads else i

    def row_of(self, t: Index, i: Index) -> Index:
        """Returns the row, counted from the wave's first, that is row i of atom t. Additive in the bits of i."""
        return self._row_at(t, self.lane_slot(i))

    def _row_at(self, t: Index, i: Index) -> Index:
        """Returns the row, counted from the wave's first, in slot i of atom t."""
        block, w = t // self.wide, t % self.wide
        run = self.atom // self.fold
        return self.wide * (self.atom * block + i % run * self.fold + i // run) + w

    def slot_of(self, row: Index) -> Index:
        """Returns the slot (LDS row) of a row: slots are in the order of atoms. The inverse of `_row_at`."""
        block, rest = row // (self.wide * self.atom), row % (self.wide * self.atom)
        w, i = rest % self.wide, rest // self.wide
        i = i % self.fold * (self.atom // self.fold) + i // self.fold
        return (block * self.wide + w) * self.atom + i

    def byte(self, row: Index, k: Index) -> Index:
        """Returns the LDS byte of an element, from the tile's first byte."""
        if self.lines:
            half = self.swap * (k // self.chunk % 2)
            return (k * self.rows + (row ^ half)) * self.element
        slot = self.slot_of(row)
        place = k // self.chunk % self.row_chunks ^ self.swizzle(slot)
        first = (k // (self.chunk * self.row_chunks) * self.rows + slot) * self.row_chunks + place
        return first * self.kw * WORD + k % self.chunk * self.element

    def at(self, byte: Index) -> tuple[Index, Index]:
        """Returns (row, k) of the element at an LDS byte: the inverse of `byte`."""
        word = byte // self.element
        if self.lines:
            k, place = word // self.rows, word % self.rows
            half = self.swap * (k // self.chunk % 2)
            return place ^ half, k
        line, x = word // self.chunk, word % self.chunk
        slots, place = line // self.row_chunks, line % self.row_chunks
        slot, block = slots % self.rows, slots // self.rows
        row = self._row_at(slot // self.atom, slot % self.atom)
        return row, (block * self.row_chunks + (place ^ self.swizzle(slot))) * self.chunk + x

    def staged_element(self, thread: Index, load: int) -> tuple[Index, Index]:
        """Returns (row, k) of the first element that a work-item moves in its staging unit number `load`."""
        if self.panel:
            return self._staged_of_panels(thread + load * self.threads)
        if self.aligned:  # as in rows that begin with a line
            unit = thread + load * self.threads
            return self.row_of(unit // self.k // self.atom, unit // self.k % self.atom), unit % self.k
        if not self.transposes:
            return self.at((thread + load * self.threads) * self.vec * self.element)
        unit = (thread + load * self.threads) % self.units
        pieces, blocks = self.chunk // self.depth, self.block_rows // self.vec // self.row_lanes
        low, rest = unit % self.row_lanes, unit // self.row_lanes
        piece, rest = rest % pieces, rest // pieces
        high, chunk = rest % blocks, rest // blocks
        high = high.least(self.last_block) if hasattr(high, "least") else minimum(high, self.last_block)
        return self.vec * (high * self.row_lanes + low), chunk * self.chunk + piece * self.depth

    def _staged_of_panels(self, unit: Index) -> tuple[Index, Index]:
        pieces, chunks = self.chunk // self.vec, self.k // self.chunk
        piece, rest = unit % pieces, unit // pieces
        w, rest = rest % self.wide, rest // self.wide
        low, rest = rest % ROW_LANES, rest // ROW_LANES
        chunk, high = rest % chunks, rest // chunks
        return self.wide * (high * ROW_LANES + low) + w, chunk * self.chunk + piece * self.vec

    def times_loaded(self) -> np.ndarray:
        """Returns how often a step loads each element, as an array of (rows, k).

        It is once, but in small tiles several work-items move the same unit, and work-items with rows past the tile its last rows.
        """
        counts, threads = np.zeros((self.rows, self.k), np.int64), np.arange(self.threads)
        along_k = self.k_contiguous or self.panel
        rows, ks = (1, self.vec) if along_k else (self.vec, self.depth)
        for load in range(self.loads):
            row, k = self.staged_element(threads, load)
            for more in np.ndindex(rows, ks):
                np.add.at(counts, (row + more[0], k + more[1]), 1)
        return counts

    @property
    def last_block(self) -> int:
        """Index of the tile's last block of `row_lanes` transposed units."""
        return self.rows // (self.vec * self.row_lanes) - 1

    @property
    def row_lanes(self) -> int:
        """Consecutive lanes that load transposed units of the same k."""
        return row_lanes(self.rows, self.vec, self.element, self.depth < self.chunk)

    def offset_from_first(self, load: int) -> tuple[int, int] | None:
        """Returns (rows, k) from unit 0 to unit `load`, or None if the distance differs between work-items."""
        threads = np.arange(self.threads)
        first, other = self.staged_element(threads, 0), self.staged_element(threads, load)
        rows, k = np.unique(other[0] - first[0]), np.unique(other[1] - first[1])
        return (int(rows[0]), int(k[0])) if len(rows) == len(k) == 1 else None

    def write_step(self, load: int, piece: int) -> tuple[int, int]:
        """Returns (xor, plus) from a work-item's first LDS write of a tile to write number `piece` of unit `load`.

        The write's address is (first ^ xor) + plus. ResourceError if no such pair exists.
        """
        threads = np.arange(self.threads)
        begin, moved = self.staged_element(threads, 0), self.piece(threads, piece)
        first = self.byte(begin[0] + self.piece(threads, 0), begin[1])
        row, k = self.staged_element(threads, load)
        other = self.byte(row + moved, k)
        near = (begin[0] + moved, begin[1]), (row + moved, k % self.span), (row + moved, k)
        turns = [self.byte(*place) ^ first for place in near]
        inside = [turn % (self.row_chunks * self.kw * WORD) for turn in turns]  # an LDS row: stages begin at multiples of it
        for xor in (int(turn[0]) for turn in (np.zeros_like(first), *inside, *turns) if (turn == turn[0]).all()):
            plus = other - (first ^ xor)
            if (plus == plus[0]).all():
                return xor, int(plus[0])
        raise ResourceError(f"write {piece} of unit {load} of {self.name} is at no fixed distance from the first")

    def source(self, t: int, step: int) -> int:
        """Returns the first register, among a turn's fragments, of atom t's operand at a step."""
        if not self.lines:
            return t * self.atom_words + step * self.operand
        return (step * self.atoms + t) * self.operand


@dataclass(frozen=True)
class TileLayouts:
    """Layouts of A's and B's tiles of a K step, as a block's node cuts them."""

    a: TileLayout
    b: TileLayout
    tile_k: int  # elements of a K step

    @classmethod
    def of(cls, block: BlockGemmNode) -> TileLayouts:
        """Returns the layouts of a block: rows of its tile of C, of its waves' tiles, and its K steps."""
        problem, (a, b, _), (step, inner, *sides) = block.plan.problem, block.views, block.loops
        operands = zip("AB", (a.rows, b.cols), sides, (problem.element, problem.element_b), strict=True)
        of_a, of_b = (
            {"name": name, "rows": rows.tile, "warp_rows": side.tile, **_along_k(block.plan, name, kind, step.tile, inner.tile)}
            for name, rows, side, kind in operands
        )
        return cls(
            TileLayout(**of_a, k_contiguous=not problem.trans_a, interleave=False),
            TileLayout(**of_b, k_contiguous=problem.trans_b, panel=PANEL_ROWS * problem.preshuffle_b, interleave=True),
            step.tile,
        )


def _along_k(plan: GemmPlan, operand: str, kind: DType, tile_k: int, warp_k: int) -> dict[str, Any]:
    """Returns the layout's fields about k and the atom. For MX formats k counts bytes, because 6- and 4-bit elements share them."""
    atom, problem = plan.atom, plan.problem
    row = mfma.find(atom.mnemonic, plan.descriptor.arch)
    if row.flexible:
        row = row.with_formats(FORMATS.index(atom.dtype_in), FORMATS.index(atom.dtype_b))
    groups, element = WAVEFRONT // atom.n, 1 if problem.scales == "mx" else kind.bytes
    words = max(1, kind.packed_bytes(warp_k) // WORD // groups)
    kw = 4 if kind.bits == 6 else power_in(words, 4)
    return {
        "k": kind.packed_bytes(tile_k) // element, "atom": atom.m if operand == "A" else atom.n, "groups": groups, "kw": kw,
        "reads": words // kw, "threads": plan.threads, "element": element, "operand": row.registers(operand),
        "beside": kind.bits == 6, "most_wide": WIDEST // dtype(problem.accumulator).bytes,
        "aligned": aligned_bytes(problem, plan.descriptor, plan.tiling, operand),
    }  # fmt: skip


@dataclass(frozen=True)
class LineRing:
    """Ring of one operand's tile."""

    layout: TileLayout  # layout of its K step, which maps rows to slots

    @property
    def units(self) -> int:
        """Loads of a work-item that bring a line of each row, LINE_ROWS rows each. An even number."""
        return self.layout.rows // LINE_ROWS

    @property
    def bytes(self) -> int:
        return self.layout.rows * RING_BYTES

    @staticmethod
    def pair(slot: Index) -> Index:
        """Returns the LDS byte, from the tile's first, of the ring of a slot and its neighbour."""
        return slot // 2 * PAIR + slot // EIGHT * WIDEST

    @staticmethod
    def in_pair(slot: Index, at: Index) -> Index:
        """Returns the byte of the pair's ring, before it is wrapped, of byte `at` of the row in an LDS row."""
        return slot % 2 * (PAIR // 2) + at

    def byte(self, slot: Index, at: Index) -> Index:
        """Returns the LDS byte, from the tile's first, of byte `at` of the row in an LDS row."""
        return self.pair(slot) + self.in_pair(slot, at) % PAIR

    @staticmethod
    def place(thread: Index) -> tuple[Index, Index]:
        """Returns (slot of LINE_ROWS, byte of the line) of a work-item.

        The number's bits, from the lowest: 0 and 1 of the piece, 1 of the slot, 2 of the piece, 0 of the slot, the rest of the
        slot.
        """
        slot = thread // 32 * 4 + thread // 4 % 2 * 2 + thread // 16 % 2
        return slot, WIDEST * (thread % 4 + thread // 8 % 2 * 4)

    def row_step(self, unit: int) -> int:
        """Returns the rows of the tile from a work-item's first unit to unit number `unit`."""
        return int(self.layout.row_of(unit * LINE_ROWS // self.layout.atom, 0))
