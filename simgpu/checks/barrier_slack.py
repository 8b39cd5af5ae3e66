"""Finds barriers that order nothing, for Device(check="performance").

A barrier orders a wave's accesses since the previous barrier before another wave's accesses until the next one. The barrier is
unneeded if no such pair of accesses touches the same bytes with at least one write.

LDS is compared byte by byte, with the bitmaps of `races`. Device memory is compared by allocation. Signs are operations that
always count as a reason for the barrier, because other waves may depend on their order: an atomic on memory, a coherent access,
a cache operation, a message, a load to LDS.
"""

from __future__ import annotations

from ctypes import Structure, addressof, c_int64, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.alu.control import ENDS
from simgpu.checks.performance import BARRIERS
from simgpu.checks.races.lds.shadow import (  # fmt: skip
    OWN,
    OWN_ATOMIC,
    OWN_MAPS,
    OWN_READ,
    OWN_WRITE,
    map_words,
    maps_at,
    mark_all_reads,
    view_of,
)
from simgpu.checks.races.order import block_of
from simgpu.engine.allocations import aligned_bytes
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at
from simgpu.engine.workgroup import WAVES, context, number_of, slot_of, waves_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import MESSAGES, ControlKind
from simgpu.hardware.memory_model import cache_bits
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.runtime import address_of, load32, part, records, runtime, structure, words
from simgpu.machine.values import I32, I64
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

SIGNS = (
    ControlKind.CACHE, ControlKind.DCACHE, ControlKind.APPEND, ControlKind.CONSUME, ControlKind.GDS, ControlKind.GWS, *MESSAGES,
)  # fmt: skip
READS, WRITES, SIGN = 1, 2, 4


class SlackBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (
        ("counts", c_int64),  # address of the records' `Meetings`
        ("areas", c_int64),  # address of slot 0's area
        ("stride", c_int64),  # bytes from one area to the next
    )


class Meetings(Structure):
    """Counts of one barrier."""

    _fields_ = (
        ("met", c_int64),  # times that all waves of a workgroup passed it together
        ("needed", c_int64),  # times that it ordered accesses, or that a sign was on either side
    )


class SlackArea(Structure):
    """Head of a slot's area. A `SlackWave` for each wave and the LDS bitmaps before the last barrier follow it."""

    _fields_ = (
        ("last", c_int64),  # record + 1 of the last barrier; 0 if there was none, or waves were at several
        ("arriving", c_int64),  # record + 1 of the barrier at which waves arrive; MIXED if they are at several
        ("signs_before", c_int64),  # 1 if a sign was seen before the last barrier
        ("signs_since", c_int64),  # 1 if a sign was seen since then
    )


class SlackWave(Structure):
    """Allocations that a wave read and wrote before the last barrier and since, as bits. Those 64 entries apart share a bit."""

    _fields_ = (("read_before", c_int64), ("written_before", c_int64), ("read_since", c_int64), ("written_since", c_int64))


SLACK_BLOCK, MEETINGS, SLACK_AREA, SLACK_WAVE = (np.dtype(kind) for kind in (SlackBlock, Meetings, SlackArea, SlackWave))
MEETINGS_BYTES, AREA_BYTES, WAVE_BYTES = sizeof(Meetings), sizeof(SlackArea), sizeof(SlackWave)
MIXED = -1
ENTRY_SHIFT = layout.ALLOC_BYTES.bit_length() - 1  # log2 of the bytes of an allocation's entry: entries are consecutive


class BarrierSlack(Check):
    """Compares the accesses on both sides of each barrier. Runs before `Races`, which forgets earlier accesses at a barrier."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None or inst.spec.control in (ControlKind.BARRIER, *SIGNS, *ENDS)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.control is ControlKind.BARRIER:
            with self._if_several_waves(frame):
                record = frame.build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)
                arrive.call(frame.build, frame.wave, record)
        elif inst.spec.control in SIGNS or effect_of(inst).dma:
            with self._if_several_waves(frame):
                touch.call(frame.build, frame.wave, constant(0), SIGN)

    def access(self, frame: Frame, access: Access) -> None:
        inst = frame.inst
        assert inst is not None
        marked = bool(cache_bits(inst.mods))
        if access.space == "lds" or (inst.spec.memory is not None and inst.spec.memory.space == "scratch"):
            return
        how = (READS if access.reads else 0) | (WRITES if access.writes else 0) | (SIGN if access.atomic or marked else 0)
        with self._if_several_waves(frame):
            touch.call(frame.build, frame.wave, frame.build.ptrtoint(access.entry, I64), how)

    def _if_several_waves(self, frame: Frame) -> Any:
        """Opens a block whose code runs only if a workgroup has several waves."""
        return frame.build.if_then(frame.build.icmp_signed(">", frame.context(WAVES), constant(1)))

    def end(self, frame: Frame, index: Any) -> None:
        with self._if_several_waves(frame):
            leave.call(frame.build, frame.wave)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        counts = np.zeros(launch.program.count + 1, MEETINGS)
        stride = AREA_BYTES + launch.waves * (WAVE_BYTES + 8 * OWN_MAPS * map_words(launch.lds_bytes))
        areas = aligned_bytes(stride * len(worker.slots))
        block = SlackBlock(counts=counts.ctypes.data, areas=areas.ctypes.data, stride=stride)
        worker.checks["barrier_slack"] = counts, areas, block
        worker.set_context(BARRIERS, addressof(block))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        met, needed = (sum(worker.checks["barrier_slack"][0][name] for worker in workers) for name in ("met", "needed"))
        idle = np.flatnonzero((met > 0) & (needed == 0))
        if any(worker.error is not None for worker in workers):
            return []
        return [_note(launch, int(record), int(met[record])) for record in idle]


def _note(launch: Dispatch, record: int, count: int) -> Finding:
    message = (
        "no two waves access the same bytes before and after this s_barrier, up to the next ones: on these paths it orders "
        "nothing and can be removed (remove one such barrier at a time: another may then be needed)"
    )
    return finding_at(launch, record, "performance", message, severity="note", count=count)


@part
def slack_of(wave: int) -> Any:
    """Returns the worker's block."""
    return structure(context(wave, BARRIERS), SLACK_BLOCK)


@part
def area_of(wave: int) -> Any:
    """Returns the area of the wave's slot."""
    block = slack_of(wave)
    return structure(block.areas + number_of(wave) * block.stride, SLACK_AREA)


@runtime
def touch(wave: int, entry: int, how: int) -> None:
    """Records a sign, or an access to the allocation at address `entry` of the table. how: READS, WRITES and SIGN."""
    area = area_of(wave)
    if how & SIGN:
        area.signs_since = 1
    mine = structure(address_of(area) + AREA_BYTES + WAVE_BYTES * load32(wave + layout.WAVE_ID), SLACK_WAVE)
    bit = 1 << (entry >> ENTRY_SHIFT & 63)
    if how & READS:
        mine.read_since |= bit
    if how & WRITES:
        mine.written_since |= bit


@runtime
def arrive(wave: int, record: int) -> None:
    """Records that the wave arrives at the barrier of a record. The last wave to arrive calls `settle`."""
    area, group = area_of(wave), slot_of(wave)
    there = area.arriving
    area.arriving = record + 1 if there == 0 or there == record + 1 else MIXED
    if group.waiting + 1 == group.left:
        settle(wave, area)


@runtime
def leave(wave: int) -> None:
    """Records that the wave ends, as an arrival if all other waves wait at a barrier or have ended."""
    area, group = area_of(wave), slot_of(wave)
    if group.waiting + 1 == group.left:
        if group.waiting:
            area.arriving = MIXED
        settle(wave, area)
        if group.left == 1:
            area.last = 0


@part
def settle(wave: int, area: Any) -> None:
    """Decides whether the last barrier was needed, once all waves have finished their work between two barriers."""
    waves = waves_of(wave)
    view, last = view_of(block_of(wave), number_of(wave), waves), area.last
    mark_all_reads(view)
    total = OWN_MAPS * view.count * waves
    since = words(maps_at(view, OWN), total)
    rows = records(address_of(area) + AREA_BYTES, waves, SLACK_WAVE)
    before = words(address_of(area) + AREA_BYTES + WAVE_BYTES * waves, total)
    if last > 0:
        counts = structure(slack_of(wave).counts + MEETINGS_BYTES * (last - 1), MEETINGS)
        counts.met += 1
        if area.signs_before | area.signs_since or memory_clashes(rows, waves) or lds_clashes(before, since, view.count, waves):
            counts.needed += 1
    for at in range(total):
        before[at] = since[at]
    for each in rows:
        each.read_before = each.read_since
        each.written_before = each.written_since
        each.read_since = 0
        each.written_since = 0
    area.signs_before = area.signs_since
    area.signs_since = 0
    # If waves meet at different barriers, none of these is reported as unneeded.
    area.last = max(0, area.arriving)
    area.arriving = 0


@part
def memory_clashes(rows: Any, waves: int) -> bool:
    """True if one wave touched an allocation before the barrier and another since, and one of them wrote."""
    for one in range(waves):
        for other in range(waves):
            mine, theirs = rows[one], rows[other]
            if one == other:
                continue
            if mine.written_before & (theirs.read_since | theirs.written_since):
                return True
            if mine.read_before & theirs.written_since:
                return True
    return False


@part
def lds_clashes(before: np.ndarray, since: np.ndarray, count: int, waves: int) -> bool:
    """True if one wave touched a byte of LDS before the barrier and another since, one of them wrote, and not both by atomics."""
    for at in range(count):
        # Bytes of a word, as bits, that some wave wrote, read or updated before; then those that several waves did.
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
