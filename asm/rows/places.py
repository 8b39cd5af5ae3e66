"""Where a wave's lanes find their chunks of a row: offsets, ends of rows, wide loads and stores.

A load of a lane is a chunk of v elements, at any byte (`parts/buffers.py`). Chunk j of a row begins at element v*j; the last one
begins at n - v, so that it ends with the row, and overlaps the one before. A lane past the row, or past the wave's part of it, has
an offset outside the buffer: it loads 0 and stores nothing. What the overlap and such lanes hold must not be reduced (`leave_out`);
the overlap's results are stored twice, with the same value, or, if groups
have values of their own, before the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import DWORDS, ELEMENT_LOADS, ELEMENT_STORES, OUTSIDE, REACH, clip
from simgpu.asm.parts.integer_math import log2
from simgpu.hardware.isa.instruction import Reg

LOAD_BYTES = 16  # of one access of a lane


@dataclass(frozen=True)
class Operands:
    """An operand, or a half of one: its buffer, and the bytes from a wave's first row to a lane's."""

    name: str
    buffer: Reg
    element: int  # bytes
    row: Reg | None = None  # VGPR: bytes to the lane's row of the wave's first load; None: 0
    stride: Reg | None = None  # SGPR: bytes between rows; None for vectors


class Places:
    """Chunks of a wave.

        chunk, lanes     elements of a chunk, lanes of a row
        columns          elements of a row
        lane             VGPR, the lane's number among those of its row
        column           VGPR, first element of the lane's first chunk
        left             chunks of the wave's part, a number or an SGPR
        sure             groups that are full in every wave; a group is a chunk of every lane
    """

    def __init__(
        self, k: KernelBuilder, chunk: int, lanes: int, columns: int, lane: Reg, column: Reg, left: int | Reg, sure: int
    ) -> None:
        self.k, self.chunk, self.lanes, self.columns = k, chunk, lanes, columns
        self.lane, self.column, self.left, self.sure = lane, column, left, sure
        self.overlaps = bool(columns % chunk)
        self.offset = k.v.alloc("offset")

    def _limit(self, group: int, last: bool = False) -> Operand:
        """Returns how many chunks are left at a group, less one if `last`: a number or an SGPR that `_done` frees."""
        before = self.lanes * group + last
        if isinstance(self.left, int):
            return self.left - before
        if not before:
            return self.left
        limit = self.k.s.alloc("chunks left")
        self.k.s_sub_u32(limit, self.left, before)
        return limit

    def _done(self, limit: Operand) -> None:
        if isinstance(limit, Reg) and limit != self.left:
            self.k.s.free(limit)

    def _start(self, group: int, target: Reg) -> None:
        """Emits the first element of a group's chunk, before it is moved to end with the row."""
        self.k.v_add_u32(target, WAVEFRONT * self.chunk * group, self.column)

    def at(self, operand: Operands, group: int, rows: int = 0) -> tuple[Reg, int]:
        """Emits a lane's offset of a group's chunk. Returns its VGPR, valid until the next call, and an immediate offset.

        rows: rows from the wave's first load's to this one's.
        """
        k, offset, immediate = self.k, self.offset, 0
        if group < self.sure:
            start = WAVEFRONT * self.chunk * group * operand.element
            immediate = start % REACH
            k.v_lshlrev_b32(offset, log2(operand.element), self.column)
            if start >= REACH:
                k.v_add_u32(offset, start - immediate, offset)
        else:
            self._start(group, offset)
            if self.overlaps:
                k.v_min_u32(offset, self.columns - self.chunk, offset, note="the last chunk ends with the row")
            k.v_lshlrev_b32(offset, log2(operand.element), offset)
        if operand.row is not None:
            k.v_add_u32(offset, operand.row, offset)
        if rows:
            apart = k.s.alloc("bytes of rows")
            k.s_mul_i32(apart, operand.stride, rows)
            k.v_add_u32(offset, apart, offset)
            k.s.free(apart)
        if group >= self.sure:
            self.leave_outside(offset, group)
        return offset, immediate

    def leave_outside(self, offset: Reg, group: int, last: bool = False) -> None:
        """Replaces an offset by one outside the buffer in lanes without a chunk of the group; last: and of the last chunk."""
        limit = self._limit(group, last)
        if isinstance(limit, Reg):
            clip(self.k, offset, offset, limit, self.lane)
        else:
            self.k.v_cmp_gt_i32("vcc", limit, self.lane)
            self.k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc")
        self._done(limit)

    def first_new(self, target: Reg, group: int) -> None:
        """Emits the number of a chunk's elements that count nothing: the overlap, or all of a lane without a chunk."""
        k = self.k
        if self.overlaps:
            self._start(group, target)
            k.v_min_u32(self.offset, self.columns - self.chunk, target)
            k.v_sub_u32(target, target, self.offset, note="elements that the chunk before has")
        else:
            k.v_mov_b32(target, 0)
        limit = self._limit(group)
        k.v_cmp_gt_i32("vcc", limit, self.lane)
        k.v_cndmask_b32(target, self.chunk, target, "vcc", note="no chunk: nothing counts")
        self._done(limit)

    # -- memory ------------------------------------------------------------------------------

    def words(self, element: int) -> int:
        """Returns the registers of a chunk as loaded."""
        return max(1, self.chunk * element // WORD)

    def load(self, target: Reg, operand: Operands, group: int, rows: int = 0) -> None:
        """Loads a chunk into registers, as it is in memory; 0 outside the buffer."""
        self._move("load", ELEMENT_LOADS, target, operand, group, rows)

    def store(self, source: Reg, operand: Operands, group: int, rows: int = 0, apart: bool = False) -> None:
        """Stores a chunk. apart: the overlap of a row's last chunk has values that do not count: it is stored before the others."""
        if apart and self.overlaps and group >= self.sure:
            offset, _ = self.at(operand, group, rows)
            limit = self._limit(group, last=True)
            self.k.v_cmp_eq_u32("vcc", limit, self.lane)
            self.k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc", note="the last chunk")
            self._done(limit)
            self._access("store", ELEMENT_STORES, source, operand, offset, 0)
            offset, _ = self.at(operand, group, rows)
            self.leave_outside(offset, group, last=True)
            self._access("store", ELEMENT_STORES, source, operand, offset, 0)
            return
        self._move("store", ELEMENT_STORES, source, operand, group, rows)

    def _move(self, direction: str, endings: dict[int, str], data: Reg, operand: Operands, group: int, rows: int) -> None:
        self._access(direction, endings, data, operand, *self.at(operand, group, rows))

    def _access(
        self, direction: str, endings: dict[int, str], data: Reg, operand: Operands, offset: Reg, immediate: int
    ) -> None:
        nbytes, note = self.chunk * operand.element, f"{operand.name}, {self.chunk} elements"
        for start in range(0, nbytes, LOAD_BYTES):
            size = min(nbytes, LOAD_BYTES)
            word, count = start // WORD, max(1, size // WORD)
            ending = DWORDS[count] if size >= WORD else endings[size]
            self.k.emit(f"buffer_{direction}_{ending}", data[word : word + count], offset, operand.buffer, 0, offen=True,
                        offset=immediate + start, note=note)  # fmt: skip
