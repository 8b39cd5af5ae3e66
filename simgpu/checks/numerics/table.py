"""Tables of handlers' notes: counts by instruction and kind, with full details of the first one in the lowest workgroup.

Each worker has a table. Handlers only call these functions when something is wrong, so results without anomalies cost no look-up.
"""

from __future__ import annotations

from ctypes import Structure, addressof, c_int64, sizeof
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.events import AXIS_BITS, retired_until
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load8, load32, load64, part, runtime, store32, structure

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


class NumericKind(IntEnum):
    """Kinds of anomaly at an instruction."""

    NAN = 0  # a NaN from operands that are not NaN
    INFINITY = 1  # an infinity from finite operands
    OVERFLOW = 2  # an infinity from finite operands, one of them wider than the result
    SATURATION = 3  # a number out of the type's range became the nearest in range
    NAN_TO_INTEGER = 4  # a NaN that was converted to 0
    DENORMAL = 5  # flushed by MODE
    CANCELLATION = 6  # a sum far smaller than its last addend
    NAN_CODE = 7  # an 8-bit code in a matrix operand that means NaN
    STORED_NAN = 8  # to device memory
    STORED_INFINITY = 9


KINDS = len(NumericKind)
OPERANDS = 4  # operands kept of the first occurrence, before its result
ENTRIES = 8192  # of a worker's table
(BLOCK,) = context_fields("numerics", 1)  # address of the worker's NumericsBlock


class NumericsBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (
        ("numbers", c_int64),  # address of an i32 by record and kind: number of the entry + 1
        ("entries", c_int64),  # address of ENTRIES `Anomaly` records
        ("used", c_int64),  # number of entries
        ("lost", c_int64),  # notes for which there was no entry
        ("stored", c_int64),  # address of `stores.table_of`
    )


class Anomaly(Structure):
    """Notes of a kind at a record. Fields from `rank` on are of the first in the lowest workgroup."""

    _fields_ = (
        ("record", c_int64),
        ("kind", c_int64),
        ("times", c_int64),  # executions, by any wave
        ("values", c_int64),  # lanes, or elements
        ("rank", c_int64),  # rank of the workgroup, -1 before the first
        ("wave", c_int64),
        ("group", c_int64 * 3),
        ("lanes", c_int64),  # mask
        ("extra", c_int64),  # by kind: `vector.pack_types` types; register of D; 0 for A and 1 for B
        ("retired", c_int64),  # instructions of the wave before it
        ("bits", c_int64 * (OPERANDS + 1)),  # operands and result of the first lane
    )


NUMERICS_BLOCK, ANOMALY = np.dtype(NumericsBlock), np.dtype(Anomaly)
ANOMALY_BYTES = sizeof(Anomaly)


@part
def entry_of(wave: int, record: int, kind: int) -> int:
    """Returns the address of the entry of a kind at a record, new if necessary; 0 if there is no room."""
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
    """Counts an execution with `values` anomalies of a kind. Returns the entry's address if `keep` should add operands, else 0."""
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
    entry.retired = retired_until(wave, record)
    return place


@part
def keep(place: int, number: int, bits: int) -> None:
    """Stores the bits of an operand or the result in the entry that `enter` returned."""
    structure(place, ANOMALY).bits[number] = bits


@part
def ones(mask: int) -> int:
    """Counts the set bits."""
    count = 0
    for lane in range(LANES):
        count += mask >> lane & 1
    return count


@part
def lowest(mask: int) -> int:
    """Returns the position of the lowest set bit."""
    lane = 0
    while not mask >> lane & 1:
        lane += 1
    return lane


@runtime
def note(wave: int, record: int, kind: int, lanes: int, rows: int, count: int, extra: int) -> None:
    """Notes the affected lanes, if any. lanes: mask. rows: address of `count` rows of 64 i64, the operands before the result."""
    if lanes == 0:
        return
    entry = enter(wave, record, kind, lanes, ones(lanes), extra)
    if entry:
        lane = lowest(lanes)
        for number in range(count):
            keep(entry, number, load64(rows + 8 * (LANES * number + lane)))


@part
def special(registers: int, count: int, bits: int, field: int, value: int) -> int:
    """Returns the first element in `count` registers whose bits in `field` are `value`, -1 if there is none.

    registers: address of the first. bits: of an element, a multiple of 8.
    """
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
    """Notes of a kind at an instruction, of all workers."""

    record: int
    kind: NumericKind
    times: int  # executions, by any wave
    values: int  # lanes, or elements
    rank: int
    wave: int
    workgroup: tuple[int, int, int]
    lanes: int  # mask of the first occurrence
    extra: int
    retired: int  # instructions of the wave before it
    bits: tuple[int, ...]  # operands and result of the first lane, see `note`


@dataclass(frozen=True)
class NumericStorage:
    """Memory of a worker."""

    numbers: np.ndarray  # i32 by record and kind: number of the entry + 1
    entries: np.ndarray  # of ANOMALY
    block: NumericsBlock


def prepare(worker: Worker, records: int, stored: np.ndarray) -> None:
    """Gives a worker an empty table. stored: see `stores`."""
    numbers, entries = np.zeros(records * KINDS, np.int32), np.zeros(ENTRIES, ANOMALY)
    block = NumericsBlock(numbers=numbers.ctypes.data, entries=entries.ctypes.data, stored=stored.ctypes.data)
    worker.checks["numerics"] = NumericStorage(numbers, entries, block), stored
    worker.set_context(BLOCK, addressof(block))


def merge_notes(workers: list[Worker]) -> list[NumericNote]:
    """Returns the notes of all workers, one for each record and kind: the sums of the counts, details of the lowest workgroup."""
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
    return [_note_of(entry) for entry in merged.values()]


def _note_of(entry: np.void) -> NumericNote:
    held = {name: int(entry[name]) for name in ("record", "times", "values", "rank", "wave", "extra", "retired")}
    x, y, z = entry["group"].tolist()
    bits = tuple(entry["bits"].view(np.uint64).tolist())
    return NumericNote(
        kind=NumericKind(int(entry["kind"])), workgroup=(x, y, z), lanes=int(entry["lanes"]) & (1 << 64) - 1, bits=bits, **held
    )  # fmt: skip


def lost_notes(workers: list[Worker]) -> int:
    """Returns the number of notes for which tables were full."""
    return sum(int(worker.checks["numerics"][0].block.lost) for worker in workers)
