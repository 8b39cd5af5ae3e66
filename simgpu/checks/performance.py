"""Notes on slow code, for Device(check="performance"): bank conflicts, cache lines, idle lanes, spills.

LDS: clocks lost to bank conflicts by the rules of `simgpu.hardware.timing_rules.lds_banks`. Memory: cache lines that a wave's
access touches, compared with the fewest that hold as many bytes. Both are counted at every access and reported once for each
instruction. Active lanes are also counted at vector ALU instructions, and reported once for consecutive ones with the same
count.
"""

from __future__ import annotations

import itertools
from ctypes import Structure, addressof, c_int64, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at, location_of
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules import lds_banks
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import part, records, runtime, structure, words
from simgpu.machine.values import I32, I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

# log2 of the bytes of a vector L1 line (ROCm Compute Profiler documentation; CDNA3 white paper).
LINE_LOG2 = {"gfx908": 6, "gfx90a": 6, "gfx942": 7, "gfx950": 7}
SIZES = (4, 8, 12, 16)  # bytes of a lane
RULES = 2 * len(SIZES)
BLOCK, BARRIERS = context_fields("performance", 2)  # addresses of the worker's PerformanceBlock, and of its SlackBlock
DISTINCT, BANKS = 4 * LANES, 64  # most distinct dwords of an LDS access; most banks


class PerformanceCounts(Structure):
    """Sums over all executions of a record."""

    _fields_ = (
        ("accesses", c_int64),  # executions: of memory instructions with an active lane, of vector ALU instructions all
        ("active", c_int64),  # active lanes
        ("lost", c_int64),  # clocks lost to LDS bank conflicts
        ("lines", c_int64),  # cache lines touched
        ("least", c_int64),  # fewest cache lines that hold the touched bytes
    )


class LdsRule(Structure):
    """Rule by which LDS serves the lanes of an access, by its kind and size."""

    _fields_ = (("banks", c_int64), ("phases", c_int64 * LANES))  # number of banks, and the phase of each lane


class PerformanceBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (
        ("counts", c_int64),  # address of a PerformanceCounts for each record
        ("rules", c_int64),  # address of `rules_of`
        ("line", c_int64),  # log2 of a line's bytes
        ("room", c_int64 * (DISTINCT + BANKS)),  # scratch space to sort an access
    )


PERFORMANCE_COUNTS, LDS_RULE, PERFORMANCE_BLOCK = (np.dtype(kind) for kind in (PerformanceCounts, LdsRule, PerformanceBlock))
COUNTS_BYTES = sizeof(PerformanceCounts)
WASTE = 2  # a note is made from this ratio of touched to needed lines on
FEW_LANES = 32  # a note is made if fewer lanes are active on average


class Performance(Check):
    """Counts costs of each access to LDS and memory, and active lanes of vector ALU instructions."""

    def concerns(self, inst: Instruction) -> bool:
        memory = inst.spec.memory
        return by_lanes(inst) or (memory is not None and inst.spec.encoding != "smem" and memory.space != "scratch")

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if not by_lanes(inst):
            return
        build = frame.build
        counts = frame.context(BLOCK).pointer().at(PerformanceBlock.counts.offset).load(I64, 8).pointer()
        mine = counts.at(frame.slot(layout.SLOT_INDEX, I32).zext(I64) * COUNTS_BYTES)
        for field, more in ((PerformanceCounts.accesses, 1), (PerformanceCounts.active, build.ctpop(frame.exec_bits()))):
            place = mine.at(field.offset)
            place.store(place.load(I64, 8) + more, 8)

    def access(self, frame: Frame, access: Access) -> None:
        if access.lanes is None:
            return
        build = frame.build
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        kind = 0 if access.space == "global" else 2 if access.writes else 1
        record = build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)
        count_access.call(build, frame.wave, record, access.lanes, access.size, kind)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        counts, rules = np.zeros(launch.program.count + 1, PERFORMANCE_COUNTS), rules_of(launch.arch)
        line = LINE_LOG2[launch.arch]
        block = PerformanceBlock(counts=counts.ctypes.data, rules=rules.ctypes.data, line=line)
        worker.checks["performance"] = counts, rules, block
        worker.set_context(BLOCK, addressof(block))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        counts = {name: _total(workers, name) for name in PERFORMANCE_COUNTS.names or ()}
        records = (int(record) for record in np.flatnonzero(counts["accesses"]))
        found = [note for record in records for note in _notes(launch, record, counts)]
        return found + _idle_lanes(launch, counts) + _spills(launch)

    def conflicts(self, workers: list[Worker]) -> dict[int, int]:
        """Returns clocks lost to LDS bank conflicts by record. Their sum is the counter `lds_bank_conflicts`."""
        lost = _total(workers, "lost")
        return {int(record): int(lost[record]) for record in np.flatnonzero(lost)}


def _total(workers: list[Worker], name: str) -> np.ndarray:
    """Returns a field of `PerformanceCounts`, summed over all workers, by record."""
    return np.sum([worker.checks["performance"][0][name] for worker in workers], axis=0)


def by_lanes(inst: Instruction) -> bool:
    """True for a vector ALU instruction that works on the lanes of EXEC."""
    classes = effect_of(inst).access.classes
    return "valu" in classes and classes.isdisjoint(("mfma", "readlane", "writelane"))


def rules_of(arch: str) -> np.ndarray:
    """Returns the LDS rules of reads and of writes, by `SIZES`: (2, 4) LDS_RULE."""
    table = np.zeros((2, len(SIZES)), LDS_RULE)
    for write, kind in enumerate(("read", "write")):
        for at, size in enumerate(SIZES):
            rule = lds_banks.phases(arch, kind, size)
            table["banks"][write, at] = rule.banks
            for number, phase in enumerate(rule.phases):
                table["phases"][write, at, list(phase)] = number
    return table


@part
def rule_of(rules: int, write: int, dwords: int) -> Any:
    """Returns the rule of an access of `dwords` a lane. rules: address of `rules_of`."""
    return records(rules, RULES, LDS_RULE)[write * (RULES // 2) + dwords - 1]


@part
def lost_clocks(rule: Any, offsets: np.ndarray, lanes: int, count: int, room: np.ndarray) -> int:
    """Returns the clocks that an LDS access of `count` dwords a lane loses to bank conflicts. room: scratch space."""
    banks, lost, phases = rule.banks, 0, rule.phases
    wanted, depth = room[:DISTINCT], room[DISTINCT:]
    last = 0
    for lane in range(LANES):
        last = max(last, phases[lane])
    for phase in range(last + 1):
        found, deepest = 0, 0
        depth[:] = 0
        for lane in range(LANES):
            if phases[lane] != phase or not lanes >> lane & 1:
                continue
            for dword in range(count):
                word = (offsets[lane] >> 2) + dword
                known = False
                for at in range(found):
                    known |= wanted[at] == word
                if not known:
                    wanted[found] = word
                    found += 1
                    depth[word % banks] += 1
                    deepest = max(deepest, depth[word % banks])
        lost += max(0, deepest - 1)
    return lost


@part
def lines_touched(offsets: np.ndarray, lanes: int, size: int, line: int, seen: np.ndarray) -> int:
    """Returns the number of cache lines (2^line bytes) that an access touches. seen: scratch space."""
    found = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            for where in range(offsets[lane] >> line, ((offsets[lane] + size - 1) >> line) + 1):
                known = False
                for at in range(found - 1, -1, -1):
                    if seen[at] == where:
                        known = True
                        break
                if not known:
                    seen[found] = where
                    found += 1
    return found


@part
def distinct_bytes(offsets: np.ndarray, lanes: int, size: int) -> int:
    """Returns the number of bytes that an access touches; lanes with the same address count once."""
    total = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            again = False
            for other in range(lane):
                again |= lanes >> other & 1 != 0 and offsets[other] == offsets[lane]
            total += 0 if again else size
    return total


@runtime
def count_access(wave: int, record: int, lanes: int, size: int, kind: int) -> None:
    """Counts an access. kind: 0 memory, 1 a read of LDS, 2 a write of it."""
    if lanes == 0:
        return
    block = structure(context(wave, BLOCK), PERFORMANCE_BLOCK)
    counts = structure(block.counts + COUNTS_BYTES * record, PERFORMANCE_COUNTS)
    offsets = words(wave + layout.ADDRESSES, LANES)
    counts.accesses += 1
    for lane in range(LANES):
        counts.active += lanes >> lane & 1
    if kind:
        dwords = max(1, size >> 2)
        counts.lost += lost_clocks(rule_of(block.rules, kind - 1, dwords), offsets, lanes, dwords, block.room)
        return
    counts.lines += lines_touched(offsets, lanes, size, block.line, block.room)
    counts.least += (distinct_bytes(offsets, lanes, size) + (1 << block.line) - 1) >> block.line


def _notes(launch: Dispatch, record: int, counts: dict[str, np.ndarray]) -> list[Finding]:
    accesses, lost, lines, least = (int(counts[name][record]) for name in ("accesses", "lost", "lines", "least"))
    said = []
    if lost:
        said.append(f"LDS bank conflicts: {lost / accesses:.3g} clocks lost each time, {lost} in all")
    if lines and lines >= WASTE * least:
        size = 1 << LINE_LOG2[launch.arch]
        touched, needed = f"{lines / accesses:.3g}", f"{least / accesses:.3g}"
        said.append(f"touches {touched} cache lines of {size} bytes each time, {needed} would hold its bytes")
    return [_note(launch, record, message, accesses) for message in said]


def _note(launch: Dispatch, record: int, message: str, count: int) -> Finding:
    return finding_at(launch, record, "performance", message, count=count, severity="note")


def _idle_lanes(launch: Dispatch, counts: dict[str, np.ndarray]) -> list[Finding]:
    """Returns notes on vector instructions with few active lanes: one for consecutive instructions with the same counts."""
    accesses, active = counts["accesses"], counts["active"]
    found = []
    for (times, lanes), group in itertools.groupby(np.flatnonzero(accesses), key=lambda at: (accesses[at], active[at])):
        if lanes >= FEW_LANES * times:
            continue
        records = [int(index) for index in group]
        message = f"{lanes / times:.3g} of 64 lanes active on average"
        if len(records) > 1:
            last = location_of(launch, records[-1])
            message += f", here and in the next {len(records) - 1} vector instructions, up to {last.name} `{last.text}`"
        found.append(_note(launch, records[0], message, int(times)))
    return found


def _spills(launch: Dispatch) -> list[Finding]:
    """Returns a note if the compiler spilled registers to private memory, by the metadata."""
    info = launch.info
    spilled = ("SGPRs", info.sgpr_spill_count), ("VGPRs", info.vgpr_spill_count)
    said = [f"{count} {name}" for name, count in spilled if count]
    if not said:
        return []
    message = f"the compiler spilled {' and '.join(said)}: fewer live values, or fewer waves a SIMD, would keep them"
    return [_note(launch, launch.entry, message, 1)]
