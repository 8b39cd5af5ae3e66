"""Records for `unused`, by instruction: waves that wrote by it, waves that raced as its readers, and readers missing from cells.

A set of waves has a bit for each number in a workgroup. Waves of the same number in different workgroups share a bit. Each worker
has its own table.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.checks.races import cells as c
from simgpu.checks.races.order import BLOCK_AT, RaceBlock, block_of
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.runtime import cold_part, part, structure
from simgpu.machine.values import I64

SEVERAL = -1  # several areas


class RecordUse(Structure):
    """Uses of one record."""

    _fields_ = (
        ("wrote", c_int64),  # waves with lanes that wrote by it, anywhere
        ("raced", c_int64),  # waves whose reads by it raced with a write
        ("writers", c_int64),  # waves of these writes
        ("crossed", c_int64),  # 1 if a writer was of another workgroup
        ("unseen", c_int64),  # waves that read by it but are in no cell: a dword's cells hold two
        # For `note_race` and for `note_unseen`: number of the area, 0 for none, or SEVERAL; the first and the last epoch.
        ("raced_in", c_int64),
        ("raced_first", c_int64),
        ("raced_last", c_int64),
        ("unseen_in", c_int64),
        ("unseen_first", c_int64),
        ("unseen_last", c_int64),
    )


USE, USE_BYTES = np.dtype(RecordUse), sizeof(RecordUse)


@part
def use_of(wave: int, tag: int) -> Any:
    """Returns the worker's row of the record of a tag, an unused row if it is another launch's."""
    block = block_of(wave)
    record = (tag & c.SITES) - block.first_site
    if record < 0 or record > block.records:
        record = block.records
    return structure(block.uses + USE_BYTES * record, USE)


@part
def bit_of(tag: int) -> int:
    """Returns the wave of a tag, as a bit."""
    return 1 << (tag >> c.WAVE_SHIFT & 15)


@part
def epoch_of(tag: int) -> int:
    """Returns the epoch of a tag; see `order`."""
    return tag >> c.EPOCH_SHIFT & c.EPOCHS


@part
def merge_area(held: int, number: int) -> int:
    """Returns the common area of earlier uses and a new one, SEVERAL if they differ. held: the area so far, 0 for none."""
    return number if (held == 0) | (held == number) else SEVERAL


@part
def first_epoch(held: int, epoch: int) -> int:
    """Returns the earlier of two epochs. held: the epoch so far, 0 for none."""
    return min(held, epoch) if held else epoch


def emit_write(frame: Frame, record: Any) -> None:
    """Emits code that records that the wave writes by a record's instruction. It is inline, because a call would make the handler
    save registers."""
    table = frame.context(BLOCK_AT).pointer().at(RaceBlock.uses.offset).load(I64, align=8).pointer()
    waves = table.at(record * USE_BYTES).at(RecordUse.wrote.offset)
    wave = frame.build.zext(frame.state(layout.WAVE_ID), I64)
    waves.store(waves.load(I64, align=8) | frame.build.shl(ir.Constant(I64, 1), wave), align=8)


@cold_part
def note_race(wave: int, area: Any, reader: int, writer: int) -> None:
    """Records a race of a reader and a writer, given by their tags."""
    use = use_of(wave, reader)
    use.raced |= bit_of(reader)
    use.writers |= bit_of(writer)
    epoch = epoch_of(reader)
    use.raced_in = merge_area(use.raced_in, area.number)
    use.raced_first = first_epoch(use.raced_first, epoch)
    use.raced_last = max(use.raced_last, epoch)
    if (reader ^ writer) >= c.GROUP_UNIT:
        use.crossed = 1


@cold_part
def note_unseen(wave: int, area: Any, reader: int) -> None:
    """Records a reader, by its tag, that is missing from the cells."""
    use = use_of(wave, reader)
    use.unseen |= bit_of(reader)
    epoch = epoch_of(reader)
    use.unseen_in = merge_area(use.unseen_in, area.number)
    use.unseen_first = first_epoch(use.unseen_first, epoch)
    use.unseen_last = max(use.unseen_last, epoch)


@cold_part
def note_displaced(wave: int, area: Any, first: np.ndarray, second: np.ndarray, tag: int) -> None:
    """Records second readers as unseen if `cells.note_second` is about to give their place to another."""
    some = 0
    for i in range(second.size):
        cell, held = first[i], second[i]
        # By signs, as there: this reader takes the place, and its owner is another one, of the same workgroup as the first.
        kept = (held ^ cell) - c.GROUP_UNIT
        some |= (c.WAVE_UNIT - 1 - (cell ^ tag)) & kept & -held & -(held ^ tag)
    if some < 0:
        for i in range(second.size):
            cell, held = first[i], second[i]
            if held != 0 and held != tag and (held ^ cell) < c.GROUP_UNIT and (cell ^ tag) >= c.WAVE_UNIT:
                note_unseen(wave, area, held)
