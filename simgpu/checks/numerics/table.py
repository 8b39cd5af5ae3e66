"""What handlers note: how often each kind of thing happened at an instruction, and the lowest workgroup's first in full.

Each worker has a table. Nothing is looked up where numbers are as they should be: handlers call only where something is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.events import AXIS_BITS, retired
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load8, load32, load64, part, runtime, store32, store64

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


class Kind(IntEnum):
    """What may happen at an instruction."""

    NAN = 0  # a NaN of operands that are none
    INFINITY = 1  # an infinity of finite operands
    OVERFLOW = 2  # the same where the result is narrower than an operand
    SATURATION = 3  # a number that the type does not hold became the nearest that it does
    NAN_TO_INTEGER = 4
    DENORMAL = 5  # flushed by MODE
    CANCELLATION = 6
    NAN_CODE = 7  # a matrix operand's 8-bit code that means NaN
    STORED_NAN = 8
    STORED_INFINITY = 9


KINDS = len(Kind)
OPERANDS = 4  # kept of the first; the result behind them
ENTRIES = 8192
FIELDS = 17
RECORD, KIND, TIMES, VALUES, RANK, WAVE, X, Y, Z, LANE_MASK, EXTRA, MOMENT = range(12)
FIRST = 12  # of the fields, where the operands' bits stand
(BLOCK,) = context_fields("numerics", 1)  # address of the worker's block; its words:
MAP, TABLE, USED, LOST, STORED = range(5)  # i32 by record and kind: entry + 1; the entries; how many; not kept; see `stores`
BLOCK_FIELDS = 5


@part
def entry_of(wave: int, record: int, kind: int) -> int:
    """The address of the entry of a kind at a record, a new one if there is room; 0 where there is none."""
    block = context(wave, BLOCK)
    place = load64(block + 8 * MAP) + 4 * (record * KINDS + kind)
    number = load32(place)
    if number == 0:
        used = load64(block + 8 * USED)
        if used == ENTRIES:
            store64(block + 8 * LOST, load64(block + 8 * LOST) + 1)
            return 0
        store64(block + 8 * USED, used + 1)
        number = used + 1
        store32(place, number)
        fresh = load64(block + 8 * TABLE) + 8 * FIELDS * used
        store64(fresh + 8 * RECORD, record)
        store64(fresh + 8 * KIND, kind)
        store64(fresh + 8 * RANK, -1)
    return load64(block + 8 * TABLE) + 8 * FIELDS * (number - 1)


@part
def enter(wave: int, record: int, kind: int, lanes: int, values: int, extra: int) -> int:
    """Count lanes of a kind at a record; returns the entry's address where its operands are to be kept, else 0."""
    entry = entry_of(wave, record, kind)
    if entry == 0:
        return 0
    store64(entry + 8 * TIMES, load64(entry + 8 * TIMES) + 1)
    store64(entry + 8 * VALUES, load64(entry + 8 * VALUES) + values)
    group, most = slot_of(wave).group, (1 << AXIS_BITS) - 1
    rank = min(group[0], most) | min(group[1], most) << AXIS_BITS | min(group[2], most) << 2 * AXIS_BITS
    held = load64(entry + 8 * RANK)
    if 0 <= held <= rank:
        return 0
    store64(entry + 8 * RANK, rank)
    store64(entry + 8 * WAVE, load32(wave + layout.WAVE_ID))
    for axis in range(3):
        store64(entry + 8 * (X + axis), group[axis])
    store64(entry + 8 * LANE_MASK, lanes)
    store64(entry + 8 * EXTRA, extra)
    store64(entry + 8 * MOMENT, retired(wave, record))
    return entry


@part
def ones(mask: int) -> int:
    """Bits that are set."""
    count = 0
    for lane in range(LANES):
        count += mask >> lane & 1
    return count


@part
def lowest(mask: int) -> int:
    """The lowest bit that is set."""
    lane = 0
    while not mask >> lane & 1:
        lane += 1
    return lane


@runtime
def note(wave: int, record: int, kind: int, lanes: int, rows: int, count: int, extra: int) -> None:
    """Note lanes where something happened, if any; rows: `count` rows of 64 i64, operands and the result behind them."""
    if lanes == 0:
        return
    entry = enter(wave, record, kind, lanes, ones(lanes), extra)
    if entry:
        lane = lowest(lanes)
        for number in range(count):
            store64(entry + 8 * (FIRST + number), load64(rows + 8 * (LANES * number + lane)))


@part
def special(registers: int, count: int, bits: int, field: int, value: int) -> int:
    """An element of `count` registers whose bits in `field` are `value`, and 0 alone stands for none; -1 where there is none."""
    step = bits >> 3
    for at in range(0, count * layout.ROW, step):
        if step == 1:
            element = load8(registers + at) & 0xFF
        else:
            element = load32(registers + (at & ~3)) >> 8 * (at & 3)
        if element & field == value:
            return element & ((1 << bits) - 1)
    return -1


@dataclass(frozen=True)
class Noted:
    """One kind at one instruction, of all workers. bits: of the operands and the result of the first lane, see `note`."""

    record: int
    kind: Kind
    times: int  # wave-instructions
    values: int  # lanes, or elements
    rank: int
    wave: int
    workgroup: tuple[int, int, int]
    lanes: int  # mask, of the first
    extra: int
    retired: int  # instructions of the wave before
    bits: tuple[int, ...]


@dataclass(frozen=True)
class Storage:
    """A worker's arrays."""

    numbers: np.ndarray  # i32, by record and kind
    entries: np.ndarray  # i64 (ENTRIES, FIELDS)
    block: np.ndarray


def prepare(worker: Worker, records: int, stored: np.ndarray) -> None:
    """An empty table for a worker; stored: see `stores`."""
    numbers, entries = np.zeros(records * KINDS, np.int32), np.zeros((ENTRIES, FIELDS), np.int64)
    block = np.array([numbers.ctypes.data, entries.ctypes.data, 0, 0, stored.ctypes.data], np.int64)
    worker.checks["numerics"] = Storage(numbers, entries, block), stored
    worker.set_context(BLOCK, block.ctypes.data)


def noted(workers: list[Worker]) -> list[Noted]:
    """What all workers noted, by record and kind: the counts added, the lowest workgroup's first."""
    merged: dict[tuple[int, int], np.ndarray] = {}
    for worker in workers:
        storage = worker.checks["numerics"][0]
        for entry in storage.entries[: int(storage.block[USED])]:
            key = int(entry[RECORD]), int(entry[KIND])
            held = merged.get(key)
            if held is None:
                merged[key] = entry.copy()
                continue
            first = (entry if entry[RANK] < held[RANK] else held).copy()
            first[[TIMES, VALUES]] = entry[[TIMES, VALUES]] + held[[TIMES, VALUES]]
            merged[key] = first
    return [_noted(entry) for entry in merged.values()]


def _noted(entry: np.ndarray) -> Noted:
    words = [int(word) for word in entry]
    unsigned = (1 << 64) - 1
    return Noted(
        words[RECORD], Kind(words[KIND]), words[TIMES], words[VALUES], words[RANK], words[WAVE], (words[X], words[Y], words[Z]),
        words[LANE_MASK] & unsigned, words[EXTRA], words[MOMENT], tuple(word & unsigned for word in words[FIRST:]),
    )  # fmt: skip


def lost(workers: list[Worker]) -> int:
    """What found no room."""
    return sum(int(worker.checks["numerics"][0].block[LOST]) for worker in workers)
