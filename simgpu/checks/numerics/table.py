"""What handlers note: how often each kind of thing happened at an instruction, and the lowest workgroup's first in full.

Each worker has a table. Nothing is looked up where numbers are as they should be: handlers call only where something is not.
"""

from __future__ import annotations

from ctypes import Structure, addressof, c_int64, sizeof
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.events import AXIS_BITS, retired
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load8, load32, load64, part, runtime, store32, structure

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


class NumericKind(IntEnum):
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


KINDS = len(NumericKind)
OPERANDS = 4  # kept of the first; the result behind them
ENTRIES = 8192
(BLOCK,) = context_fields("numerics", 1)  # address of the worker's NumericsBlock


class NumericsBlock(Structure):
    """What handlers find a worker's memory by."""

    _fields_ = (
        ("numbers", c_int64),  # address of an i32 by record and kind: number of the entry + 1
        ("entries", c_int64),  # address of ENTRIES Anomaly
        ("used", c_int64),  # entries
        ("lost", c_int64),  # what found no room
        ("stored", c_int64),  # address of `stores.table_of`
    )


class Anomaly(Structure):
    """A kind at a record; from `rank` on that of the lowest workgroup."""

    _fields_ = (
        ("record", c_int64),
        ("kind", c_int64),
        ("times", c_int64),  # wave-instructions
        ("values", c_int64),  # lanes, or elements
        ("rank", c_int64),  # of the workgroup, -1 before the first
        ("wave", c_int64),
        ("group", c_int64 * 3),
        ("lanes", c_int64),  # mask
        ("extra", c_int64),
        ("retired", c_int64),  # instructions of the wave before
        ("bits", c_int64 * (OPERANDS + 1)),  # of the operands and the result of the first lane
    )


NUMERICS_BLOCK, ANOMALY = np.dtype(NumericsBlock), np.dtype(Anomaly)
ANOMALY_BYTES = sizeof(Anomaly)


@part
def entry_of(wave: int, record: int, kind: int) -> int:
    """The address of the entry of a kind at a record, a new one if there is room; 0 where there is none."""
    block = structure(context(wave, BLOCK), NUMERICS_BLOCK)
    place = block.numbers + 4 * (record * KINDS + kind)
    number = load32(place)
    if number == 0:
        used = block.used
        if used == ENTRIES:
            block.lost += 1
            return 0
        block.used = used + 1
        number = used + 1
        store32(place, number)
        fresh = structure(block.entries + ANOMALY_BYTES * used, ANOMALY)
        fresh.record = record
        fresh.kind = kind
        fresh.rank = -1
    return block.entries + ANOMALY_BYTES * (number - 1)


@part
def enter(wave: int, record: int, kind: int, lanes: int, values: int, extra: int) -> int:
    """Count lanes of a kind at a record; returns the entry's address where its operands are to be kept, else 0."""
    place = entry_of(wave, record, kind)
    if place == 0:
        return 0
    entry = structure(place, ANOMALY)
    entry.times += 1
    entry.values += values
    group, most = slot_of(wave).group, (1 << AXIS_BITS) - 1
    rank = min(group[0], most) | min(group[1], most) << AXIS_BITS | min(group[2], most) << 2 * AXIS_BITS
    if 0 <= entry.rank <= rank:
        return 0
    entry.rank = rank
    entry.wave = load32(wave + layout.WAVE_ID)
    for axis in range(3):
        entry.group[axis] = group[axis]
    entry.lanes = lanes
    entry.extra = extra
    entry.retired = retired(wave, record)
    return place


@part
def keep(place: int, number: int, bits: int) -> None:
    """Have the entry that `enter` returned hold the bits of an operand or the result."""
    structure(place, ANOMALY).bits[number] = bits


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
            keep(entry, number, load64(rows + 8 * (LANES * number + lane)))


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
class NumericNote:
    """One kind at one instruction, of all workers. bits: of the operands and the result of the first lane, see `note`."""

    record: int
    kind: NumericKind
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
class NumericStorage:
    """A worker's memory."""

    numbers: np.ndarray
    entries: np.ndarray  # of ANOMALY
    block: NumericsBlock


def prepare(worker: Worker, records: int, stored: np.ndarray) -> None:
    """An empty table for a worker; stored: see `stores`."""
    numbers, entries = np.zeros(records * KINDS, np.int32), np.zeros(ENTRIES, ANOMALY)
    block = NumericsBlock(numbers=numbers.ctypes.data, entries=entries.ctypes.data, stored=stored.ctypes.data)
    worker.checks["numerics"] = NumericStorage(numbers, entries, block), stored
    worker.set_context(BLOCK, addressof(block))


def noted(workers: list[Worker]) -> list[NumericNote]:
    """What all workers noted, by record and kind: the counts added, the lowest workgroup's first."""
    merged: dict[tuple[int, int], np.void] = {}
    for worker in workers:
        storage = worker.checks["numerics"][0]
        for entry in storage.entries[: storage.block.used]:
            key = int(entry["record"]), int(entry["kind"])
            held = merged.get(key)
            if held is None:
                merged[key] = entry.copy()
                continue
            first = (entry if entry["rank"] < held["rank"] else held).copy()
            for name in ("times", "values"):
                first[name] = entry[name] + held[name]
            merged[key] = first
    return [_noted(entry) for entry in merged.values()]


def _noted(entry: np.void) -> NumericNote:
    held = {name: int(entry[name]) for name in ("record", "times", "values", "rank", "wave", "extra", "retired")}
    x, y, z = entry["group"].tolist()
    bits = tuple(entry["bits"].view(np.uint64).tolist())
    return NumericNote(
        kind=NumericKind(int(entry["kind"])), workgroup=(x, y, z), lanes=int(entry["lanes"]) & (1 << 64) - 1, bits=bits, **held
    )  # fmt: skip


def lost(workers: list[Worker]) -> int:
    """What found no room."""
    return sum(int(worker.checks["numerics"][0].block.lost) for worker in workers)
