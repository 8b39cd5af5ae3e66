"""Records plain accesses whose lanes are not consecutive, if nothing clashes.

If consecutive lanes cover whole lines, the lines are not split: for example in tiles whose rows are whole lines, swizzled or
not. A load of 128 bits a lane then reads the marks and cells of 16 lines instead of 256 dwords.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.checks.races import cells as c
from simgpu.checks.races.cells import clashes, lanes_of_a_line, split_line, widely_read
from simgpu.checks.races.lds.carried import WRITES
from simgpu.checks.races.uses import note_unseen
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import octets, part, words

# Results of `lines_without_clash`: recorded; something clashes; some line is split.
CLEAR, CLASH, PARTED = range(3)


@part
def all_without_clash(
    wave: int, area: Any, flags: int, tag: int, floor: int, lanes: int, offsets: np.ndarray, count: int
) -> bool:
    """True if nothing clashes with a plain access to whole dwords; records it then. False if something clashes, or if this fast
    way does not apply. count: dwords a lane."""
    if tag & (c.ATOMIC | c.COHERENT) or area.narrowed or area.atomics:
        return False
    dwords = area.dwords
    writers = words(area.maps[c.WRITER], dwords)
    readers = words(area.maps[c.READER], dwords)
    seconds = words(area.maps[c.READER2], dwords)
    bits, clash = 0, 0
    each = lanes_of_a_line(lanes, 4 * count, offsets)
    if each:
        found = lines_without_clash(wave, area, flags, tag, floor, offsets, each)
        if found != PARTED:
            return found == CLEAR
    for lane in range(LANES):
        bits |= offsets[lane]
    if bits & 3:
        return False
    line_marks, parted = area.maps[c.LINE_MARKS], c.SPLIT_MARK
    held = octets(line_marks, dwords // c.LINE_DWORDS)
    for lane in range(LANES):
        if lanes >> lane & 1:
            parted &= held[offsets[lane] >> c.LINE_SHIFT]
            parted &= held[(offsets[lane] + 4 * count - 1) >> c.LINE_SHIFT]
    if not parted:
        for lane in range(LANES):
            if lanes >> lane & 1:
                split_line(area, offsets[lane] >> c.LINE_SHIFT)
                split_line(area, (offsets[lane] + 4 * count - 1) >> c.LINE_SHIFT)
    writes = flags & WRITES
    if not writes and area.read2 and widely_read(area, lanes, offsets, count):
        return True
    marks = octets(area.maps[c.MARKS], dwords)
    if area.written:
        for lane in range(LANES):
            if lanes >> lane & 1:
                for at in range(offsets[lane] >> 2, (offsets[lane] >> 2) + count):
                    clash |= clashes(writers[at], tag, floor, 0, 0)
    if writes and area.read:
        for lane in range(LANES):
            if lanes >> lane & 1:
                for at in range(offsets[lane] >> 2, (offsets[lane] >> 2) + count):
                    clash |= clashes(readers[at], tag, floor, 0, 0)
                    clash |= clashes(seconds[at], tag, floor, 0, 0)
    if clash:
        return False
    came = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            first = offsets[lane] >> 2
            for at in range(first, first + count):
                came |= enter_plain(wave, area, writers, readers, seconds, marks, at, tag, floor, writes)
    tell_of_reader(wave, area, tag, came, writes)
    return True


@part
def lines_without_clash(wave: int, area: Any, flags: int, tag: int, floor: int, offsets: np.ndarray, each: int) -> int:
    """Does `all_without_clash` if every `each` consecutive lanes cover a line. Returns CLEAR, CLASH or PARTED."""
    marks = octets(area.maps[c.LINE_MARKS], area.dwords // c.LINE_DWORDS)
    all_, any_ = c.SHARED_MARK, 0
    for lane in range(0, LANES, each):
        held = marks[offsets[lane] >> c.LINE_SHIFT]
        all_ &= held
        any_ |= held
    if any_ & c.SPLIT_MARK:
        return PARTED
    writes = flags & WRITES
    if not writes and area.read2 and all_ and not any_ & c.WRITTEN_MARK:
        return CLEAR
    writers = words(area.maps[c.LINE_WRITER], marks.size)
    readers = words(area.maps[c.LINE_READER], marks.size)
    seconds = words(area.maps[c.LINE_READER2], marks.size)
    clash = 0
    for lane in range(0, LANES, each):
        at = offsets[lane] >> c.LINE_SHIFT
        if area.written:
            clash |= clashes(writers[at], tag, floor, 0, 0)
        if writes and area.read:
            clash |= clashes(readers[at], tag, floor, 0, 0)
            clash |= clashes(seconds[at], tag, floor, 0, 0)
    if clash:
        return CLASH
    came = 0
    for lane in range(0, LANES, each):
        at = offsets[lane] >> c.LINE_SHIFT
        came |= enter_plain(wave, area, writers, readers, seconds, marks, at, tag, floor, writes)
    tell_of_reader(wave, area, tag, came, writes)
    return CLEAR


@part
def enter_plain(
    wave: int, area: Any, writers: np.ndarray, readers: np.ndarray, seconds: np.ndarray, marks: np.ndarray, at: int, tag: int,
    floor: int, writes: int,
) -> int:  # fmt: skip
    """Enters a plain access to one dword or line. Returns flags as `note_first`."""
    if writes:
        writers[at] = tag
        marks[at] |= c.WRITTEN_MARK
        return 0
    return enter_reader(wave, area, readers, seconds, marks, at, tag, floor)


@part
def enter_reader(
    wave: int, area: Any, readers: np.ndarray, seconds: np.ndarray, marks: np.ndarray, at: int, tag: int, floor: int
) -> int:
    """Enters a plain load as a reader of one dword or line. Returns flags as `note_first`."""
    cell = readers[at]
    if cell == tag:
        return 0
    if c.stale(cell, tag, floor):
        readers[at] = tag
        return 0
    if (cell ^ tag) < c.WAVE_UNIT:
        return c.AGAIN
    second = seconds[at]
    if second != tag and ((second == 0) | ((second ^ cell) < c.GROUP_UNIT)):
        if second:
            note_unseen(wave, area, second)
        seconds[at] = tag
        if (cell ^ tag) >= c.GROUP_UNIT and cell & (c.ATOMIC | c.COHERENT) == 0:
            marks[at] |= c.SHARED_MARK
    return c.OTHERS


@part
def tell_of_reader(wave: int, area: Any, tag: int, came: int, writes: int) -> None:
    """Updates the area's flags after a plain access, and records an unseen reader. came: flags of `note_first`."""
    if came & c.AGAIN:
        note_unseen(wave, area, tag)
    if came & c.OTHERS:
        area.read2 = 1
    if writes:
        area.written = 1
    else:
        area.read = 1
