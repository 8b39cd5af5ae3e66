"""Places of a row's chunks for a wave's lanes: offsets, ends of rows, wide loads and stores.

A load of a lane is a chunk of v elements, at any byte (`parts/buffers.py`). Chunk j of a row begins at element v*j; the last one
begins at n - v, so that it ends with the row, and overlaps the one before. A lane past the row, or past the wave's part of it, has
an offset outside the buffer: it loads 0 and stores nothing. What the overlap and such lanes hold must not be reduced (`counting`);
the overlap's results are stored twice, with the same value, or, if they have another value there, only by the chunk before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, REACH
from simgpu.asm.parts.elements import Elements
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg

LOAD_BYTES = 16  # of one access of a lane


@dataclass(frozen=True)
class Operands:
    """An operand, or a half of one: its buffer, and the bytes from a wave's first row to a lane's."""

    name: str
    buffer: Reg
    element: int  # bytes
    row: Reg | None = None  # VGPR: bytes to the lane's row of the wave's first load; None: 0
    stride: Reg | int | None = None  # bytes between rows; None for vectors


class Places:
    """Chunks of a wave.

        chunk      elements of a chunk
        columns    elements of a row
        column     VGPR, first element of the lane's first chunk
        end        element at which the wave's part of the row ends: a number or an SGPR
        sure       groups that are full in every wave, without an overlap; a group is a chunk of every lane
    """

    def __init__(self, k: KernelBuilder, chunk: int, columns: int, column: Reg, end: int | Reg, sure: int) -> None:
        self.k, self.chunk, self.columns, self.column, self.end, self.sure = k, chunk, columns, column, end, sure
        self.overlap = -columns % chunk
        self.offset = k.v.alloc("offset")
        self._held: tuple[object, Reg | int | None, int] | None = None  # what `offset` is for; None: something else

    def forget(self) -> None:
        """Makes `at` emit the next offset, whatever the last one was: `column` or `offset` has changed, or a branch comes in."""
        self._held = None

    def _has(self, group: int, whole: bool = False) -> None:
        """Emits VCC = the lane has a chunk of the group. whole: and that does not overlap the one before."""
        before = WAVEFRONT * self.chunk * group + (self.chunk - 1) * whole
        end = self.end - before if isinstance(self.end, int) else of(self.end) - before
        with self.k.temporary(end) as limit:
            self.k.v_cmp_gt_i32("vcc", limit, self.column)

    def first(self, group: int, target: Reg) -> None:
        """Emits a lane's first element of a group's chunk in a row."""
        self.k.v_add_u32(target, WAVEFRONT * self.chunk * group, self.column)
        if self.overlap and group >= self.sure:
            self.k.v_min_i32(target, self.columns - self.chunk, target, note="the last chunk ends with the row")

    def at(self, operand: Operands, group: int, rows: int = 0) -> tuple[Reg, int]:
        """Emits a lane's offset of a group's chunk. Returns its VGPR, valid until the next call, and an immediate offset.

        rows: rows from the wave's first load's to this one's.
        """
        k, offset, start = self.k, self.offset, 0
        ragged = group >= self.sure
        if not ragged:
            start = WAVEFRONT * self.chunk * group * operand.element
        immediate = start % REACH
        key = operand.element, operand.row, group if ragged else immediate - start
        held, stride, before = self._held or (None, None, 0)
        if held != key or rows < before or (before and stride != operand.stride):
            self._first_row(operand, group, start - immediate)
            before = 0
        if rows > before:
            assert operand.stride is not None
            more = operand.stride * (rows - before) if isinstance(operand.stride, int) else of(operand.stride) * (rows - before)
            k.set(offset, of(offset) + more)
        self._held = key, operand.stride, rows
        return offset, immediate

    def _first_row(self, operand: Operands, group: int, start: int) -> None:
        """Emits a lane's offset of a group's chunk in its first row. start: bytes to be added if the group is sure."""
        k, offset, column, ragged = self.k, self.offset, self.column, group >= self.sure
        if ragged and (group or self.overlap):
            self.first(group, offset)
            column = offset
        place = of(column) * operand.element
        k.set(offset, (place if operand.row is None else place + operand.row) + start)
        if ragged:
            self.leave_outside(offset, group)

    def leave_outside(self, offset: Reg, group: int, whole: bool = False) -> None:
        """Replaces an offset by one outside the buffer in lanes without a chunk of the group; whole: and in that of an overlap."""
        self.forget()
        self._has(group, whole)
        self.k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc")

    def counting(self, group: int) -> Iterator[int]:
        """Emits, for each element of a group's chunk, VCC = it counts, and yields its number. Nothing if all count.

        The overlap does not count, nor does what a lane without a chunk holds.
        """
        if group < self.sure:
            return
        for number in range(self.chunk):
            if number in (0, self.overlap):
                self.counts(group, number)
            yield number

    def counts(self, group: int, number: int) -> None:
        """Emits VCC = an element of a group's chunk counts."""
        self._has(group, whole=number < self.overlap)

    # -- memory ------------------------------------------------------------------------------

    def words(self, element: int) -> int:
        """Returns the registers of a chunk as loaded."""
        return max(1, self.chunk * element // WORD)

    def load(self, target: Reg, operand: Operands, group: int, rows: int = 0) -> None:
        """Loads a chunk into registers, as it is in memory; 0 outside the buffer."""
        self._access("load", target, operand, group, *self.at(operand, group, rows))

    def store(self, source: Reg, operand: Operands, group: int, rows: int = 0, apart: Elements | None = None,
              scratch: Reg | None = None) -> None:  # fmt: skip
        """Stores a chunk. apart: the overlap of a row's last chunk has other values, so only its rest is stored.

        It has the elements' type in memory. scratch: a VGPR, for elements of 8 bits.
        """
        offset, immediate = self.at(operand, group, rows)
        if apart is None or not self.overlap or group < self.sure:
            self._access("store", source, operand, group, offset, immediate)
            return
        self.leave_outside(offset, group, whole=True)
        self._access("store", source, operand, group, offset, 0)
        offset, _ = self.at(operand, group, rows)
        self._has(group, whole=True)
        self.k.v_cndmask_b32(offset, offset, OUTSIDE, "vcc", note="the last chunk")
        self.forget()
        self._store_rest(source, operand, offset, apart, scratch)

    def _store_rest(self, source: Reg, operand: Operands, offset: Reg, apart: Elements, scratch: Reg | None) -> None:
        """Stores the elements of a chunk after the overlap, by words if they fill words."""
        start, end = self.overlap * operand.element, self.chunk * operand.element
        while start < end:
            word, within = divmod(start, WORD)
            if within or end - start < WORD:
                one, high = apart.single(source, start // operand.element, scratch)
                size = operand.element
            else:
                most = (end - start) // WORD if source[word].index % 2 == 0 else 1  # several registers begin at an even one
                count = max(count for count in (1, 2, 4) if count <= most)
                one, high, size = source[word : word + count], False, WORD * count
            note = f"{operand.name}, after the overlap"
            self.k.buffer_store(one, offset, operand.buffer, 0, offset=start, nbytes=size, high=high, note=note)
            start += size

    def _access(self, direction: str, data: Reg, operand: Operands, group: int, offset: Reg, immediate: int) -> None:
        nbytes, first = self.chunk * operand.element, WAVEFRONT * self.chunk * group
        note = f"{operand.name} columns {first} + {self.chunk}·lane"
        for start in range(0, nbytes, LOAD_BYTES):
            size = min(nbytes, LOAD_BYTES)
            word, count = start // WORD, max(1, size // WORD)
            part = data[word : word + count]
            self.k.emit(f"buffer_{direction}", part, offset, operand.buffer, 0, offset=immediate + start, nbytes=size, note=note)
