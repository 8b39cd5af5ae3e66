"""Events that checked handlers report: counted in a table of each worker by record, code and extra data.

`report` emits the call that enters an event. The table counts the events of a (record, code, extra) and keeps one in full, that
of the lowest workgroup, so the result does not depend on the host's threads. Python reads the tables after the launch. A check
defines an event by `RACE = event("race")`. A function with `@finding_of(RACE)` turns it into a finding.

An event also has the number of instructions that its wave had retired. The check `RetiredCounter` adds up straight-line code at
each jump. A report adds the instructions between the last jump and its record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from ctypes import Structure, c_int64
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.check import Check
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.finding import Finding
from simgpu.engine.positions import Event, finding_at
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import SLOT_INDEX
from simgpu.machine.runtime import builtin, cold_part, load32, load64, part, runtime, store64, structure
from simgpu.machine.values import I32, I64, Builder, IrValue

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


def event(name: str) -> int:
    """Returns an event's code, 1 to 2^31 - 1. It is the same in every process, because compiled handlers are cached on disk."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFE | 1


# Makes a finding of an event; None if it is not worth a report in this launch.
Formatter = Callable[[Dispatch, Event], Finding | None]
FORMATTERS: dict[int, Formatter] = {}


def finding_of(code: int) -> Callable[[Formatter], Formatter]:
    """Returns a decorator that registers the formatter of an event code."""

    def register(function: Formatter) -> Formatter:
        if code in FORMATTERS:
            raise ValueError(f"{function.__name__}: another event has its code {code}: give it another name")
        FORMATTERS[code] = function
        return function

    return register


# -- the table ------------------------------------------------------------------------------------

ENTRIES = 4096  # a power of two
LIMIT = 3 * ENTRIES // 4  # most entries in use, so that probing ends soon
AXIS_BITS = 20  # bits of each workgroup coordinate in a rank (z above y above x)
# Context fields: address of the worker's table; address of `Program.starts`, 0 without `RetiredCounter`; record where waves begin.
TABLE, STARTS, BEGIN = context_fields("events", 3)
# Wave fields: instructions retired before the current straight-line code; 1 + the first record of that code, 0 for BEGIN.
RETIRED, SINCE = wave_fields("events", 2)


class EventEntry(Structure):
    """Events of one key and extra. All fields except `count` describe the event that is kept."""

    _fields_ = (
        ("key", c_int64),  # code << 32 | record; 0: unused
        ("extra", c_int64),  # data of the check
        ("count", c_int64),  # number of events
        ("lanes", c_int64),  # mask
        ("address", c_int64),
        ("wave", c_int64),  # number in the workgroup
        ("group", c_int64 * 3),  # workgroup id
        ("rank", c_int64),  # order of the workgroup: the lowest is kept
        ("retired", c_int64),  # instructions that the wave retired before it, -1 if unknown
    )


class EventTable(Structure):
    """Events of a worker."""

    _fields_ = (
        ("entries", EventEntry * ENTRIES),
        ("used", c_int64),  # number of entries
        ("lost", c_int64),  # events that found no free entry
    )


EVENT_ENTRY, EVENT_TABLE = np.dtype(EventEntry), np.dtype(EventTable)


@builtin
def _ones(build: Builder, word: IrValue) -> IrValue:
    """Returns the number of set bits in an i64."""
    return build.ctpop(word)


@part
def instructions(wave: int, first: int, end: int) -> int:
    """Returns the number of instructions that begin in records first to end - 1."""
    at, last = context(wave, STARTS) + first, context(wave, STARTS) + end
    count = 0
    while at + 8 <= last:
        count += _ones(load64(at))
        at += 8
    if at < last:
        count += _ones(load64(at) & ((1 << 8 * (last - at)) - 1))
    return count


@part
def retired_until(wave: int, record: int) -> int:
    """Returns the number of instructions that the wave retired before its current record; -1 without `RetiredCounter`."""
    if context(wave, STARTS) == 0:
        return -1
    since = load64(wave + SINCE)
    return load64(wave + RETIRED) + instructions(wave, since - 1 if since else context(wave, BEGIN), record)


@runtime
def _note_jump(wave: int, index: int, target: int) -> None:
    store64(wave + RETIRED, retired_until(wave, index) + 1)
    store64(wave + SINCE, target + 1)


class RetiredCounter(Check):
    """Counts retired instructions at jumps, without hooks in straight-line code. Comes before checks that stop a wave at a jump."""

    sums = True

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind == "control"

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        build = frame.build
        _note_jump.call(build, frame.wave, build.zext(index, I64), build.zext(target, I64))

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        worker.set_context(STARTS, launch.program.starts.ctypes.data)
        worker.set_context(BEGIN, launch.entry)


@cold_part
def enter(wave: int, record: int, code: int, lanes: int, address: int, extra: int) -> None:
    """Enters an event at the wave's current record; see `enter_ranked`."""
    enter_at(wave, record, code, lanes, address, extra, record)


@cold_part
def enter_at(wave: int, record: int, code: int, lanes: int, address: int, extra: int, here: int) -> None:
    """Enters an event at `record`, which need not be the wave's current record, `here`; see `enter_ranked`."""
    group, most = slot_of(wave).group, (1 << AXIS_BITS) - 1
    rank = min(group[0], most) | min(group[1], most) << AXIS_BITS | min(group[2], most) << 2 * AXIS_BITS
    enter_ranked(wave, record, code, lanes, address, extra, rank, here)


@cold_part
def enter_ranked(wave: int, record: int, code: int, lanes: int, address: int, extra: int, rank: int, here: int) -> None:
    """Counts an event of a record. Keeps it if its rank is lower than that of the kept event of this record, code and extra.

    here: the wave's current record
    """
    table = structure(context(wave, TABLE), EVENT_TABLE)
    key = code << 32 | record
    at = ((key * 0x9E3779B1) ^ (extra * 0x85EBCA6B) ^ (key >> 29)) & (ENTRIES - 1)
    entry = table.entries[at]
    while entry.key != 0:
        if entry.key == key and entry.extra == extra:
            entry.count += 1
            if rank < entry.rank:
                keep(wave, entry, lanes, address, rank, here)
            return
        at = (at + 1) & (ENTRIES - 1)
        entry = table.entries[at]
    if table.used >= LIMIT:
        table.lost += 1
        return
    table.used += 1
    entry.key = key
    entry.extra = extra
    entry.count = 1
    keep(wave, entry, lanes, address, rank, here)


@cold_part
def keep(wave: int, entry: Any, lanes: int, address: int, rank: int, here: int) -> None:
    """Stores an event in its entry; overwrites any event there."""
    entry.rank = rank
    entry.retired = retired_until(wave, here)
    entry.lanes = lanes
    entry.address = address
    entry.wave = load32(wave + layout.WAVE_ID)
    group = slot_of(wave).group
    for axis in range(3):
        entry.group[axis] = group[axis]


@runtime
def _enter(wave: int, record: int, code: int, lanes: int, address: int, extra: int) -> None:
    enter(wave, record, code, lanes, address, extra)


def retired_before(launch: Dispatch, wave: np.ndarray, record: int) -> int:
    """Returns the instructions that a stopped wave retired before a record of its straight-line code; -1 without `RetiredCounter`.

    wave: its bytes
    """
    if not any(check.kind is RetiredCounter for check in launch.program.checks):
        return -1
    count, since = (int(wave[at : at + 8].view(np.int64)[0]) for at in (RETIRED, SINCE))
    return count + int(launch.program.starts[since - 1 if since else launch.entry : record].sum())


def report(frame: Frame, code: int, lanes: Any, address: Any, extra: Any) -> None:
    """Emits the report of an event of the frame's record. lanes, address, extra: i64 values or ints."""
    build = frame.build
    record = build.zext(frame.slot(SLOT_INDEX, I32), I64)
    _enter.call(build, frame.wave, record, int(code), lanes, address, extra)


def prepare(worker: Worker) -> None:
    """Gives a worker an empty table."""
    table = np.zeros(1, EVENT_TABLE)
    worker.checks["events"] = table
    worker.set_context(TABLE, table.ctypes.data)


def reports(workers: list[Worker]) -> list[Event]:
    """Returns the events of all workers, merged by record, code and extra."""
    merged: dict[tuple[int, int], np.void] = {}
    for worker in workers:
        entries = worker.checks["events"]["entries"][0]
        for entry in entries[entries["key"] != 0]:
            key = int(entry["key"]), int(entry["extra"])
            held = merged.get(key)
            count = entry["count"] + (held["count"] if held is not None else 0)
            merged[key] = entry.copy() if held is None or entry["rank"] < held["rank"] else held
            merged[key]["count"] = count
    return [_unpack(entry) for entry in merged.values()]


def _unpack(entry: np.void) -> Event:
    key, extra, count, wave, before = (int(entry[name]) for name in ("key", "extra", "count", "wave", "retired"))
    lanes, address = (int(entry[name]) & (1 << 64) - 1 for name in ("lanes", "address"))
    x, y, z = entry["group"].tolist()
    return Event(key >> 32, key & 0xFFFFFFFF, wave, (x, y, z), lanes, address, extra, count, before)


def lost_events(workers: list[Worker]) -> int:
    """Returns the number of events that were dropped because a table was full."""
    return sum(int(worker.checks["events"]["lost"][0]) for worker in workers)


def drain(workers: list[Worker]) -> list[tuple[Formatter, Event]]:
    """Returns the events, each with its formatter."""
    return [(FORMATTERS[event.code], event) for event in reports(workers)]


def overflow(launch: Dispatch, workers: list[Worker]) -> list[Finding]:
    """Returns a note if events were dropped."""
    missing = lost_events(workers)
    if not missing:
        return []
    full = f"{missing} more events at other places were not kept: {LIMIT} places a thread are"
    return [finding_at(launch, launch.entry, "resource", full, severity="note")]
