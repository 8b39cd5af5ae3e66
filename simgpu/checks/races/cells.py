"""Shadow cells of device memory, and the rule by which two accesses race. (LDS has bitmaps instead: `lds`.)

Each dword of device memory that kernels may write has three cells: its last writer, and two readers of different waves. A cell
is one number: workgroup, epoch (`order`), wave, two flags, and the record of the access. Two readers suffice: a later write that
clashes with any reader clashes with one of these. So whether a race is found does not depend on the order in which waves ran.

Accesses to parts of dwords have separate cells, one per byte. Accesses to whole dwords check the byte cells of a dword that has
some.

While all accesses cover whole lines of 64 bytes, three cells represent a line, because its 16 dwords would have the same cells.
The first access to part of a line splits it: its cells are copied to its dwords. No finding depends on that.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, c_int64
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.layout import LANES
from simgpu.machine.runtime import builtin, cold_part, load32, load64, octets, part, words
from simgpu.machine.values import I64, Builder, IrValue

# Fields of a cell. 0 is an empty cell, since epochs begin with 1.
SITE_BITS, WAVE_SHIFT, EPOCH_SHIFT, GROUP_SHIFT = 22, 24, 28, 44
SITES = (1 << SITE_BITS) - 1
COHERENT, ATOMIC = 1 << 22, 1 << 23  # flags: a load past the caches; an atomic operation or a coherent store
WAVE_UNIT, EPOCH_UNIT, GROUP_UNIT = 1 << WAVE_SHIFT, 1 << EPOCH_SHIFT, 1 << GROUP_SHIFT
WAVES_MASK = EPOCH_UNIT - WAVE_UNIT
GROUP_BITS = 19
EPOCHS, GROUPS = (1 << 16) - 1, (1 << GROUP_BITS) - 1

# Maps of an area: its cells by dword, by byte and by line; a byte of marks for each dword and for each line.
(
    WRITER, READER, READER2, BYTE_WRITER, BYTE_READER, BYTE_READER2, LINE_WRITER, LINE_READER, LINE_READER2,
    MARKS, LINE_MARKS, MAPS,
) = range(12)  # fmt: skip
LINE_SHIFT, LINE_DWORDS, LINE_BYTES = 6, 16, 64
# Marks of a dword or a line. NARROW: it has byte cells. SHARED: its readers are of different workgroups, so more readers add
# nothing. WRITTEN: it was written. SPLIT: the dwords of the line have cells of their own.
NARROW_MARK, SHARED_MARK, WRITTEN_MARK, SPLIT_MARK = 1, 2, 4, 8
OTHERS, AGAIN = 1, 2  # results of `note_first`


class Area(Structure):
    """Shadow of an allocation. The flags save passes over cells that are not in use."""

    _fields_ = (
        ("maps", c_int64 * MAPS),  # addresses of the maps
        ("dwords", c_int64),  # dwords of whole lines
        ("address", c_int64),  # address of the memory
        ("number", c_int64),  # number among the areas of a launch, from 1 on
        ("written", c_int64),  # 1 if it was ever written
        ("read", c_int64),  # 1 if it was ever read
        ("read2", c_int64),  # 1 if a dword had two readers
        ("narrowed", c_int64),  # 1 if there are cells by byte
        ("atomics", c_int64),  # 1 if there were atomics
        ("coarse", c_int64),  # 1 if accesses of other devices see it only between kernels
        ("barrier", c_int64),  # 1 for the memory of a cooperative launch's barrier, see `releases.observe`
        ("heads", c_int64),  # address of an i64 for each dword: the latest link of a release there (`knowledge`); 0 if none
    )


AREA = np.dtype(Area)


@part
def clashes(cell: int, tag: int, floor: int, skip: int, need: int) -> bool:
    """True if `cell` is of another wave than `tag` and no barrier orders it before.

    floor: lower cells of the tag's workgroup are from before its last barrier. skip: a cell with one of these flags never
    clashes. need: flags that a clashing cell must have.
    """
    apart = cell ^ tag
    unordered = (apart >= GROUP_UNIT) | ((apart & WAVES_MASK != 0) & (cell >= floor))
    return (cell != 0) & unordered & ((cell & skip) == 0) & ((cell & need) == need)


@part
def any_clash(cells: np.ndarray, tag: int, floor: int, skip: int, need: int) -> bool:
    """True if `clashes` is true for one of the cells. Truth values are sign bits, because LLVM vectorises these, unlike i1."""
    found = 0
    for i in range(cells.size):
        cell = cells[i]
        apart = cell ^ tag
        unordered = (GROUP_UNIT - 1 - apart) | (-(apart & WAVES_MASK) & (floor - 1 - cell))
        found |= unordered & -cell & ((cell & skip) - 1) & ((~cell & need) - 1)
    return found < 0


@part
def stale(cell: int, tag: int, floor: int) -> bool:
    """True if `tag` may replace a reader's cell: it is empty, it is of the same wave and epoch and has a flag, or it is of an
    earlier epoch of the workgroup and either the same wave's or from before the last barrier."""
    apart = cell ^ tag
    own = (apart < WAVE_UNIT) & ((cell & (ATOMIC | COHERENT)) != 0)
    earlier = (apart & WAVES_MASK == 0) | (cell < floor)
    return (cell == 0) | ((apart >= EPOCH_UNIT) & (apart < GROUP_UNIT) & earlier) | own


@part
def note_first(first: np.ndarray, tag: int, floor: int) -> int:
    """Enters a reader in its first cells where these are `stale`. Returns OTHERS if some cell remains another wave's, AGAIN if
    some cell remains this wave's from another instruction."""
    others, again = 0, 0
    for i in range(first.size):
        cell = first[i]
        apart = cell ^ tag
        # `stale`, by signs.
        own = (apart - WAVE_UNIT) & -(cell & (ATOMIC | COHERENT))
        earlier = (EPOCH_UNIT - 1 - apart) & (apart - GROUP_UNIT) & (((apart & WAVES_MASK) - 1) | (cell - floor))
        take = (cell - 1) | earlier | own
        others |= ~take & (WAVE_UNIT - 1 - apart)
        again |= ~take & (apart - WAVE_UNIT) & -apart
        first[i] = tag if take < 0 else cell
    return (OTHERS if others < 0 else 0) | (AGAIN if again < 0 else 0)


@cold_part
def note_second(first: np.ndarray, second: np.ndarray, tag: int) -> None:
    """Enters a reader in the second cells where the first cell is another wave's."""
    for i in range(first.size):
        cell, held = first[i], second[i]
        # A second reader of another workgroup than the first's is worth more than one of the same. By signs: the first cell is
        # another wave's, and the second is empty or of the first one's workgroup.
        put = (WAVE_UNIT - 1 - (cell ^ tag)) & ((held - 1) | ((held ^ cell) - GROUP_UNIT))
        second[i] = tag if put < 0 else held


@cold_part
def mark_shared(first: np.ndarray, second: np.ndarray, marks: np.ndarray) -> None:
    """Marks dwords (or lines) whose two readers are plain loads of different workgroups."""
    for i in range(first.size):
        a, b = first[i], second[i]
        shared = -a & -b & (GROUP_UNIT - 1 - (a ^ b)) & (((a | b) & (ATOMIC | COHERENT)) - 1)
        marks[i] |= SHARED_MARK if shared < 0 else 0


@part
def add_mark(marks: np.ndarray, mark: int) -> None:
    for i in range(marks.size):
        marks[i] |= mark


@part
def has_mark(marks: np.ndarray, mark: int) -> bool:
    found = 0
    for i in range(marks.size):
        found |= marks[i]
    return found & mark != 0


@part
def whole_lines(area: Any, first: int, count: int) -> bool:
    """True if no line of a range is split."""
    return not has_mark(octets(area.maps[LINE_MARKS] + first, count), SPLIT_MARK)


@cold_part
def split_line(area: Any, line: int) -> None:
    """Copies a line's cells to its dwords, and marks it as split.

    Threads that split or use a line at the same time may lose an entry, like threads that write a cell at the same time.
    """
    marks = octets(area.maps[LINE_MARKS] + line, 1)
    if marks[0] & SPLIT_MARK:
        return
    for which in range(3):
        cell = load64(area.maps[LINE_WRITER + which] + 8 * line)
        if cell:
            cells = words(area.maps[WRITER + which] + 8 * LINE_DWORDS * line, LINE_DWORDS)
            for i in range(LINE_DWORDS):
                cells[i] = cell
    if marks[0]:
        octets(area.maps[MARKS] + LINE_DWORDS * line, LINE_DWORDS)[:] = marks[0]
    marks[0] = SPLIT_MARK


@part
def split(area: Any, start: int, nbytes: int) -> None:
    """Splits the lines of a range of bytes."""
    for line in range(start >> LINE_SHIFT, ((start + nbytes - 1) >> LINE_SHIFT) + 1):
        split_line(area, line)


def _lines(each: int) -> Callable[..., Any]:
    def cover(build: Builder, offsets: Any) -> IrValue:
        """True if every `each` consecutive lanes cover a line, in any order."""
        row = offsets.pointer.load(ir.VectorType(I64, LANES), align=8)
        lines = row >> LINE_SHIFT
        begun = 1 << (row & LINE_BYTES - 1)  # bytes of the line where lanes begin
        for bit in range(each.bit_length() - 1):
            begun |= begun.shuffle([lane ^ 1 << bit for lane in range(LANES)])
        whole = sum(1 << place for place in range(0, LINE_BYTES, LINE_BYTES // each))
        apart = (begun ^ whole) | (lines ^ lines.shuffle([lane - lane % each for lane in range(LANES)]))
        return (apart != 0).bitcast(I64) == 0

    return cover


lines_of_4, lines_of_8, lines_of_16 = (builtin(_lines(each)) for each in (4, 8, 16))


@part
def lanes_of_a_line(lanes: int, size: int, offsets: np.ndarray) -> int:
    """Returns n = 4, 8 or 16 if each n consecutive lanes of `size` bytes cover a line, in any order; 0 if not, or if some lane is
    inactive."""
    if lanes == -1 and size == 16 and lines_of_4(offsets):
        return 4
    if lanes == -1 and size == 8 and lines_of_8(offsets):
        return 8
    return 16 if lanes == -1 and size == 4 and lines_of_16(offsets) else 0


@part
def widely_read(area: Any, lanes: int, offsets: np.ndarray, count: int) -> bool:
    """True if all dwords of a load are marked as shared, and none as written or accessed by bytes. count: dwords a lane."""
    marks = octets(area.maps[MARKS], area.dwords)
    all_, any_ = SHARED_MARK, 0
    if count == 4:
        four, here = 0x01010101, area.maps[MARKS]
        every, some = four * SHARED_MARK, 0
        for lane in range(LANES):
            if lanes >> lane & 1:
                held = load32(here + (offsets[lane] >> 2))
                every &= held
                some |= held
        return every == four * SHARED_MARK and some & four * (NARROW_MARK | WRITTEN_MARK) == 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            first = offsets[lane] >> 2
            for at in range(first, first + count):
                all_ &= marks[at]
                any_ |= marks[at]
    return all_ & SHARED_MARK != 0 and any_ & (NARROW_MARK | WRITTEN_MARK) == 0


@part
def note_writer(cells: np.ndarray, tag: int) -> None:
    """Enters a writer. An atomic does not replace a plain write of the same wave and epoch."""
    if tag & ATOMIC:
        for i in range(cells.size):
            cell = cells[i]
            keep = (cell != 0) & ((cell ^ tag) < WAVE_UNIT) & ((cell & ATOMIC) == 0)
            cells[i] = cell if keep else tag
    else:
        for i in range(cells.size):
            cells[i] = tag
