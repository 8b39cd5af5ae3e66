"""Notes on what costs time, for Device(check="performance"): bank conflicts, lines, lanes, spills.

LDS: clocks lost to bank conflicts by the rules of `simgpu.hardware.timing_rules.lds_banks`. Memory: cache lines that a
wave's access touches against the fewest that hold as many bytes. Counted at every access, told once
for each instruction. Active lanes are counted at vector ALU instructions too, and told once for those that
follow each other with the same.
"""

from __future__ import annotations

import itertools
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
from simgpu.machine.runtime import part, runtime, words
from simgpu.machine.values import I32, I64
from simgpu.machine.wave_frame import PTR
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

# Counts of a record: accesses, their active lanes, clocks lost in LDS, lines touched, fewest lines.
ACCESSES, ACTIVE, LOST, LINES, LEAST, FIELDS = range(6)
# Vector L1 lines in bytes (ROCm Compute Profiler documentation; CDNA3 white paper).
LINE_LOG2 = {"gfx908": 6, "gfx90a": 6, "gfx942": 7, "gfx950": 7}
# The rules of LDS by (write, bytes of a lane): banks, then the phase of each lane.
RULE_FIELDS = 1 + LANES
SIZES = (4, 8, 12, 16)
BLOCK, BARRIERS = context_fields("performance", 2)  # addresses of the worker's block, and of `barrier_slack`'s
# A worker's block: addresses of the counts and of the rules; log2 of a line; then room for what an access is sorted by.
COUNTS, RULES, LINE, ROOM = range(4)
DISTINCT, BANKS = 4 * LANES, 64
BLOCK_FIELDS = ROOM + DISTINCT + BANKS
WASTE = 2  # lines touched for each needed one, from which on it is told
FEW_LANES = 32  # active ones on average, below which it is told


class Performance(Check):
    """Counts at each access to LDS and memory."""

    def concerns(self, inst: Instruction) -> bool:
        memory = inst.spec.memory
        return by_lanes(inst) or (memory is not None and inst.spec.encoding != "smem" and memory.space != "scratch")

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if not by_lanes(inst):
            return
        build = frame.build
        block = build.inttoptr(frame.context(BLOCK), PTR)
        counts = build.inttoptr(frame.load(frame.at(block, 8 * COUNTS), I64, 8), PTR)
        record = build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)
        mine = frame.at(counts, build.mul(record, constant(8 * FIELDS)))
        for field, more in ((ACCESSES, constant(1)), (ACTIVE, build.ctpop(frame.exec_bits()))):
            place = frame.at(mine, 8 * field)
            frame.store(build.add(frame.load(place, I64, 8), more), place, 8)

    def access(self, frame: Frame, access: Access) -> None:
        if access.lanes is None:
            return
        build = frame.build
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        kind = 0 if access.space == "global" else 2 if access.writes else 1
        record = build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)
        count_access.call(build, frame.wave, record, access.lanes, access.size, kind)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        counts = np.zeros((launch.program.count + 1, FIELDS), np.int64)
        rules = rules_of(launch.arch)
        block = np.zeros(BLOCK_FIELDS, np.int64)
        block[:ROOM] = counts.ctypes.data, rules.ctypes.data, LINE_LOG2[launch.arch]
        worker.checks["performance"] = counts, rules, block
        worker.set_context(BLOCK, block.ctypes.data)

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        counts = sum(worker.checks["performance"][0] for worker in workers)
        records = (int(record) for record in np.flatnonzero(counts[:, ACCESSES]))
        found = [note for record in records for note in _notes(launch, record, counts[record])]
        return found + _idle_lanes(launch, counts) + _spills(launch)

    def conflicts(self, workers: list[Worker]) -> dict[int, int]:
        """Clocks lost to LDS bank conflicts by record; all together the counter `lds_bank_conflicts`."""
        lost = sum(worker.checks["performance"][0][:, LOST] for worker in workers)
        return {int(record): int(lost[record]) for record in np.flatnonzero(lost)}


def by_lanes(inst: Instruction) -> bool:
    """Whether it is a vector ALU instruction that works on the lanes of EXEC."""
    classes = effect_of(inst).access.classes
    return "valu" in classes and classes.isdisjoint(("mfma", "readlane", "writelane"))


def rules_of(arch: str) -> np.ndarray:
    """Rules of reads, then of writes, by `SIZES`: banks and each lane's phase."""
    table = np.zeros((2, len(SIZES), RULE_FIELDS), np.int64)
    for write, kind in enumerate(("read", "write")):
        for at, size in enumerate(SIZES):
            rule = lds_banks.phases(arch, kind, size)
            table[write, at, 0] = rule.banks
            for number, phase in enumerate(rule.phases):
                for lane in phase:
                    table[write, at, 1 + lane] = number
    return table


@part
def lost_clocks(rule: np.ndarray, offsets: np.ndarray, lanes: int, count: int, room: np.ndarray) -> int:
    """Clocks that an LDS access of `count` dwords a lane loses to bank conflicts."""
    banks, lost = rule[0], 0
    wanted, depth = room[:DISTINCT], room[DISTINCT:]
    for phase in range(LANES):
        found, deepest = 0, 0
        depth[:] = 0
        for lane in range(LANES):
            if rule[1 + lane] != phase or not lanes >> lane & 1:
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
    """Cache lines (2^line bytes) that an access touches."""
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
    """Bytes that an access touches, those that several lanes touch counted once where lanes agree."""
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
    """kind: 0 memory, 1 a read of LDS, 2 a write of it."""
    if lanes == 0:
        return
    block = words(context(wave, BLOCK), BLOCK_FIELDS)
    counts = words(block[COUNTS] + 8 * FIELDS * record, FIELDS)
    offsets, room = words(wave + layout.ADDRESSES, LANES), block[ROOM:]
    counts[ACCESSES] += 1
    for lane in range(LANES):
        counts[ACTIVE] += lanes >> lane & 1
    if kind:
        dwords = max(1, size >> 2)
        rule = words(block[RULES] + 8 * RULE_FIELDS * ((kind - 1) * 4 + dwords - 1), RULE_FIELDS)
        counts[LOST] += lost_clocks(rule, offsets, lanes, dwords, room)
        return
    line = block[LINE]
    counts[LINES] += lines_touched(offsets, lanes, size, line, room)
    counts[LEAST] += (distinct_bytes(offsets, lanes, size) + (1 << line) - 1) >> line


def _notes(launch: Dispatch, record: int, counts: np.ndarray) -> list[Finding]:
    accesses, _, lost, lines, least = (int(value) for value in counts)
    said = []
    if lost:
        said.append(f"LDS bank conflicts: {lost / accesses:.3g} clocks lost each time, {lost} in all")
    if lines and lines >= WASTE * least:
        size = 1 << LINE_LOG2[launch.arch]
        touched, needed = f"{lines / accesses:.3g}", f"{least / accesses:.3g}"
        said.append(f"touches {touched} cache lines of {size} bytes each time where {needed} would hold its bytes")
    return [_note(launch, record, message, accesses) for message in said]


def _note(launch: Dispatch, record: int, message: str, count: int) -> Finding:
    return finding_at(launch, record, "performance", message, count=count, severity="note")


def _idle_lanes(launch: Dispatch, counts: np.ndarray) -> list[Finding]:
    """Where few lanes are active: one note for instructions that follow each other with the same lanes as often."""
    ran = np.flatnonzero(counts[:, ACCESSES])
    found = []
    for (times, lanes), group in itertools.groupby(ran, key=lambda record: tuple(counts[record, [ACCESSES, ACTIVE]])):
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
    """Registers that the compiler keeps in private memory, by the metadata."""
    info = launch.info
    spilled = ("SGPRs", info.sgpr_spill_count), ("VGPRs", info.vgpr_spill_count)
    said = [f"{count} {name}" for name, count in spilled if count]
    if not said:
        return []
    message = f"the compiler spilled {' and '.join(said)}: fewer live values, or fewer waves a SIMD, would keep them"
    return [_note(launch, launch.entry, message, 1)]
