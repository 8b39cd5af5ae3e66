"""Barriers that order nothing, for Device(check="performance"): across which no two waves' accesses ever clash.

A barrier orders what a wave did since the barrier before it and what another does until the next one. Where no such pair touches
the same bytes, one of the two a write, the waves need not have met. LDS is looked at byte by byte, by the bitmaps of `races`;
device memory by allocations; and an atomic, a coherent access, a cache operation, a message or a load to LDS on either side
counts as a reason for the barrier, as order in memory that others see may hang on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.alu.control import ENDS
from simgpu.checks.performance import BARRIERS
from simgpu.checks.races.lds.shadow import HEADER, OWN, OWN_ATOMIC, OWN_MAPS, OWN_READ, OWN_WRITE, map_words, mark_all_reads
from simgpu.checks.races.order import block_of
from simgpu.engine.allocations import aligned_bytes
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at
from simgpu.engine.workgroup import WAVES, context, number_of, slot_of, waves_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import MESSAGES, ControlKind
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.runtime import load32, load64, part, runtime, store64, words
from simgpu.machine.values import I32, I64
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

SIGNS = (
    ControlKind.CACHE, ControlKind.DCACHE, ControlKind.APPEND, ControlKind.CONSUME, ControlKind.GDS, ControlKind.GWS, *MESSAGES,
)  # fmt: skip
COHERENT_BITS = ("glc", "sc0", "sc1")
READS, WRITES, SIGN = 1, 2, 4
# A worker's block: addresses of the counts and of slot 0's area, bytes from an area to the next.
COUNTS, AREAS, STRIDE, BLOCK_FIELDS = range(4)
# Counts of a record: how often waves met there, and how often that was needed.
MET, NEEDED, COUNTED = range(3)
# A slot's area: the record of the last barrier + 1, and of the one at which waves arrive (MIXED where they are at several); signs
# before the last barrier and since; then, for each wave, allocations read and written before it, and since; then the bitmaps of
# LDS before it.
LAST, ARRIVING, SIGNS_BEFORE, SIGNS_SINCE, PER_WAVE = range(5)
READ_BEFORE, WRITTEN_BEFORE, READ_SINCE, WRITTEN_SINCE, WAVE_FIELDS = range(5)
MIXED = -1
ENTRY_SHIFT = layout.ALLOC_BYTES.bit_length() - 1  # of an allocation's entry: entries follow each other


class BarrierSlack(Check):
    """Compares what lies on both sides of each barrier; goes before `Races`, which forgets at a barrier what was before."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None or inst.spec.control in (ControlKind.BARRIER, *SIGNS, *ENDS)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.control is ControlKind.BARRIER:
            with self._several(frame):
                record = frame.build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)
                arrive.call(frame.build, frame.wave, record)
        elif inst.spec.control in SIGNS or effect_of(inst).dma:
            with self._several(frame):
                touch.call(frame.build, frame.wave, constant(0), SIGN)

    def access(self, frame: Frame, access: Access) -> None:
        inst = frame.inst
        assert inst is not None
        marked = any(inst.mods.get(bit) for bit in COHERENT_BITS)
        if access.space == "lds" or (inst.spec.memory is not None and inst.spec.memory.space == "scratch"):
            return
        how = (READS if access.reads else 0) | (WRITES if access.writes else 0) | (SIGN if access.atomic or marked else 0)
        with self._several(frame):
            touch.call(frame.build, frame.wave, frame.build.ptrtoint(access.entry, I64), how)

    def _several(self, frame: Frame) -> Any:
        """What is emitted inside runs only where a workgroup has several waves."""
        return frame.build.if_then(frame.build.icmp_signed(">", frame.context(WAVES), constant(1)))

    def end(self, frame: Frame, index: Any) -> None:
        with self._several(frame):
            leave.call(frame.build, frame.wave)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        counts = np.zeros((launch.program.count + 1, COUNTED), np.int64)
        fields = PER_WAVE + launch.waves * (WAVE_FIELDS + OWN_MAPS * map_words(launch.lds_bytes))
        areas = aligned_bytes(8 * fields * len(worker.slots))
        block = np.array([counts.ctypes.data, areas.ctypes.data, 8 * fields], np.int64)
        worker.checks["barrier_slack"] = counts, areas, block
        worker.set_context(BARRIERS, block.ctypes.data)

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        counts = sum(worker.checks["barrier_slack"][0] for worker in workers)
        idle = np.flatnonzero((counts[:, MET] > 0) & (counts[:, NEEDED] == 0))
        if any(worker.error is not None for worker in workers):
            return []
        return [_note(launch, int(record), int(counts[record, MET])) for record in idle]


def _note(launch: Dispatch, record: int, count: int) -> Finding:
    message = (
        "no two waves touch the same bytes before and behind this s_barrier, up to the next ones: on these paths it orders nothing "
        "and may go (one such barrier at a time: without it, another may be needed)"
    )
    return finding_at(launch, record, "performance", message, severity="note", count=count)


@part
def area_of(wave: int) -> int:
    """Address of the area of the wave's slot."""
    block = context(wave, BARRIERS)
    return load64(block + 8 * AREAS) + number_of(wave) * load64(block + 8 * STRIDE)


@runtime
def touch(wave: int, entry: int, how: int) -> None:
    """An access of the wave to the allocation of an entry, or a sign."""
    area = area_of(wave)
    if how & SIGN:
        store64(area + 8 * SIGNS_SINCE, 1)
    mine = area + 8 * (PER_WAVE + WAVE_FIELDS * load32(wave + layout.WAVE_ID))
    bit = 1 << (entry >> ENTRY_SHIFT & 63)
    if how & READS:
        store64(mine + 8 * READ_SINCE, load64(mine + 8 * READ_SINCE) | bit)
    if how & WRITES:
        store64(mine + 8 * WRITTEN_SINCE, load64(mine + 8 * WRITTEN_SINCE) | bit)


@runtime
def arrive(wave: int, record: int) -> None:
    """The wave comes to the barrier of a record; with the last one, all go on."""
    area, group = area_of(wave), slot_of(wave)
    there = load64(area + 8 * ARRIVING)
    store64(area + 8 * ARRIVING, record + 1 if there == 0 or there == record + 1 else MIXED)
    if group.waiting + 1 == group.left:
        settle(wave, area)


@runtime
def leave(wave: int) -> None:
    """The wave ends; others may have waited for it at a barrier, or it is the last."""
    area, group = area_of(wave), slot_of(wave)
    if group.waiting + 1 == group.left:
        if group.waiting:
            store64(area + 8 * ARRIVING, MIXED)
        settle(wave, area)
        if group.left == 1:
            store64(area + 8 * LAST, 0)


@part
def settle(wave: int, area: int) -> None:
    """All waves have done what they do between two barriers: was the first of them needed?"""
    block, waves = block_of(wave), waves_of(wave)
    last, count = load64(area + 8 * LAST), block.lds_words
    shadow = block.lds_shadow + number_of(wave) * block.lds_stride
    mark_all_reads(shadow, count, waves)
    total = OWN_MAPS * count * waves
    since = words(shadow + 8 * (HEADER + OWN * count), total)
    before = words(area + 8 * (PER_WAVE + WAVE_FIELDS * waves), total)
    rows = words(area + 8 * PER_WAVE, WAVE_FIELDS * waves)
    signs = load64(area + 8 * SIGNS_BEFORE) | load64(area + 8 * SIGNS_SINCE)
    if last > 0:
        counts = load64(context(wave, BARRIERS) + 8 * COUNTS) + 8 * COUNTED * (last - 1)
        store64(counts + 8 * MET, load64(counts + 8 * MET) + 1)
        if signs or memory_clashes(rows, waves) or lds_clashes(before, since, count, waves):
            store64(counts + 8 * NEEDED, load64(counts + 8 * NEEDED) + 1)
    for at in range(total):
        before[at] = since[at]
    for each in range(waves):
        at = WAVE_FIELDS * each
        rows[at + READ_BEFORE], rows[at + WRITTEN_BEFORE] = rows[at + READ_SINCE], rows[at + WRITTEN_SINCE]
        rows[at + READ_SINCE] = rows[at + WRITTEN_SINCE] = 0
    store64(area + 8 * SIGNS_BEFORE, load64(area + 8 * SIGNS_SINCE))
    store64(area + 8 * SIGNS_SINCE, 0)
    # Where waves meet at different barriers, none of these is said to order nothing.
    store64(area + 8 * LAST, max(0, load64(area + 8 * ARRIVING)))
    store64(area + 8 * ARRIVING, 0)


@part
def memory_clashes(rows: np.ndarray, waves: int) -> bool:
    """Whether two waves touch an allocation on both sides, one of them writing."""
    for one in range(waves):
        for other in range(waves):
            mine, theirs = WAVE_FIELDS * one, WAVE_FIELDS * other
            if one == other:
                continue
            if rows[mine + WRITTEN_BEFORE] & (rows[theirs + READ_SINCE] | rows[theirs + WRITTEN_SINCE]):
                return True
            if rows[mine + READ_BEFORE] & rows[theirs + WRITTEN_SINCE]:
                return True
    return False


@part
def lds_clashes(before: np.ndarray, since: np.ndarray, count: int, waves: int) -> bool:
    """Whether two waves touch a byte of LDS on both sides, one of them writing, not both by atomics."""
    for at in range(count):
        # Of the bytes of a word: those that some wave wrote, read, updated before, and those that several did.
        wrote, read, updated, all_wrote, all_read, all_updated = 0, 0, 0, 0, 0, 0
        for wave in range(waves):
            own = OWN_MAPS * wave * count + at
            w, r, a = before[own + OWN_WRITE * count], before[own + OWN_READ * count], before[own + OWN_ATOMIC * count]
            all_wrote, all_read, all_updated = all_wrote | wrote & w, all_read | read & r, all_updated | updated & a
            wrote, read, updated = wrote | w, read | r, updated | a
        if not wrote | read | updated:
            continue
        for wave in range(waves):
            own = OWN_MAPS * wave * count + at
            w, r, a = since[own + OWN_WRITE * count], since[own + OWN_READ * count], since[own + OWN_ATOMIC * count]
            others_wrote = all_wrote | wrote & ~before[own + OWN_WRITE * count]
            others_read = all_read | read & ~before[own + OWN_READ * count]
            others_updated = all_updated | updated & ~before[own + OWN_ATOMIC * count]
            if others_wrote & (w | r | a) or others_read & (w | a) or others_updated & (w | r):
                return True
    return False
